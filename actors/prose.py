"""What of a message the visitor says themselves, and not what they paste or quote."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from interturn.actors.guard import TRIM
from interturn.actors.sentences import parts

HEARD: Final = 4_000
"""Characters of a message that are read: half from its beginning, half from its end."""

_QUOTED: Final = re.compile(r"[\"“«„](?=[^\"”»“]{2,400}\s[^\"”»“]{1,400}\s)[^\"”»“]{8,800}[\"”»“]")
_QUOTED_LINE: Final = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_ROLE_MARK: Final = re.compile(
    r"^\s*(?:#{1,6}\s*)?[<\[|]*(?:system|assistant|developer)[>\]|]*\s*[:>\]|]"
    r"|<\|[^|>]{1,30}\|>|^\s*#{2,6}\s*(?:system|sistema|instruc\w+)",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE_WORDS: Final = 8
# The one thing of a pasted log that whoever pasted it will be asked for again.
_ERROR: Final = re.compile(
    r"\b(?:error|code|código|codigo|errno)[ :=#]{1,3}(?:code |código )?"
    r"(?:0x[0-9A-F]{2,8}|[A-Z]{1,5}[-_]?\d{2,6})\b",
    re.IGNORECASE,
)


def prose(text: str) -> str:
    """Return what of a text the visitor says themselves: no code, no quotations.

    Of what is pasted only the last error's code stays. What poses as another speaker ends it.
    """
    if len(text) > HEARD:
        text = f"{text[: HEARD // 2]}\n\n{text[-HEARD // 2 :]}"
    text = unicodedata.normalize("NFC", text)
    posing = _ROLE_MARK.search(text)
    if posing:
        text = text[: posing.start()]
    if "\n" in text or text.lstrip().startswith(">"):
        text = "\n".join(_last_error(piece) if code else piece for code, piece in parts(text))
        text = _QUOTED_LINE.sub("", text)
    if '"' in text or "“" in text or "«" in text or "„" in text:
        text = _QUOTED.sub(_unquoted, text)
    return text


def _last_error(log: str) -> str:
    return max(_ERROR.findall(log), key=log.rindex, default="")


def _unquoted(quoted: re.Match[str]) -> str:
    """Return a quotation's place holder, or the quotation where it is but a title."""
    words = quoted.group().split()
    titled = sum(word.strip(TRIM)[:1].isupper() for word in words)
    return quoted.group() if len(words) <= _TITLE_WORDS and 2 * titled >= len(words) else "…"
