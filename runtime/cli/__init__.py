"""The command line, `interturn`: for people, on the same surface as everybody's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from interturn.runtime.cli.texts import Texts, language_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: without the program's name; ``sys.argv`` if None.
    """
    try:
        from interturn.runtime.cli.app import run  # noqa: PLC0415 - what it needs is an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"rich", "typer"}:
            raise
        texts = Texts(language_of(os.environ))
        sys.stderr.write(texts("missing_packages") + "\n")
        return 1
    return run(sys.argv[1:] if arguments is None else arguments)
