"""The command line, `interturn`: for people, on the same surface as everybody's code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from interturn.runtime.cli.texts import Texts, language_of

_INTERRUPTED: Final = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: without the program's name; ``sys.argv`` if None.
    """
    if arguments is None:
        # Asked to end, it ends as at Ctrl-C: cleanly, leaving no temporary file behind.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    try:
        from interturn.runtime.cli.app import run  # noqa: PLC0415 - what it needs is an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"rich", "typer"}:
            raise
        texts = Texts(language_of(os.environ))
        sys.stderr.write(texts("missing_packages") + "\n")
        return 1
    return run(arguments)
