"""What the command line prints through, and what it lets through.

Texts of people reach a terminal with their control characters made visible, so
that nobody's message can move the cursor, set the title or colour the screen.
A character that the terminal's encoding lacks is spelled as well as it can be,
and never stops the output. Colours and drawings only where a terminal is.
"""

from __future__ import annotations

import codecs
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Final, TextIO, TypeAlias

from rich.console import Console, RenderableType

from interturn.runtime.cli.texts import Texts

# C0 and C1 except newline, line and paragraph separators, the two overrides of direction.
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202d\u202e\ud800-\udfff]")

_SPELLED = {
    "¿": "?",
    "¡": "!",
    "«": '"',
    "»": '"',
    "“": '"',
    "”": '"',
    "\u2018": "'",
    "\u2019": "'",
    "\u2013": "-",
    "—": "-",
    "·": "-",
    "…": "...",
    "→": "->",
    "€": "EUR",
}


def plain(text: str) -> str:
    r"""Return ``text`` with tabs as spaces and other control characters spelled, as ``\x1b``."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return _CONTROLS.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Spell what an encoding lacks: without its accent, by its look, or by its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    spelled = []
    for character in error.object[error.start : error.end]:
        base = "".join(
            part
            for part in unicodedata.normalize("NFKD", character)
            if not unicodedata.combining(part)
        )
        if character in _SPELLED:
            spelled.append(_SPELLED[character])
        elif base.isascii():
            spelled.append(base)
        else:
            spelled.append(character.encode("ascii", "backslashreplace").decode())
    return "".join(spelled), error.end


codecs.register_error("interturn.spelled", _spelled)


INTERRUPTED: Final = 130
"""Exit status after Ctrl-C: 128 and the number of the signal, as shells have it."""


class Terminal:
    """Standard output and standard error, and the words to fill them with.

    Attributes:
        texts: in the chosen language.
        out: for drawings.
        err: for progress.
        drawn: whether standard output is a terminal that can be drawn on.
        progress: whether standard error is one.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr)
        self.drawn = self.out.is_terminal and not self.out.is_dumb_terminal
        self.progress = self.err.is_terminal and not self.err.is_dumb_terminal

    def line(self, text: str = "") -> None:
        """Print one or more lines, unwrapped, with nothing in them but text."""
        sys.stdout.write(plain(text) + "\n")

    def say(self, key: str, /, **values: object) -> None:
        """Print a sentence."""
        self.line(self.texts(key, **values))

    def complain(self, message: str) -> None:
        """Print one line on standard error."""
        sys.stderr.write(" ".join(plain(message).split("\n")) + "\n")
        sys.stderr.flush()

    def draw(self, drawing: RenderableType) -> None:
        """Draw on the terminal."""
        self.out.print(drawing)

    def data(self, text: str) -> None:
        """Write what a program reads: always UTF-8, byte for byte."""
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()


Work: TypeAlias = Callable[[Terminal], int]
"""What a command does once it is understood; returns the exit status."""


def _console(stream: TextIO) -> Console:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="interturn.spelled")
    # Said outright, since rich would also colour a pipe if the environment asks for it.
    return Console(
        file=stream, force_terminal=stream.isatty(), markup=False, highlight=False, emoji=False
    )
