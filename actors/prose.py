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


def prose(text: str) -> str:
    """Return what of a text the visitor says themselves: no code, no quotations.

    What poses as another speaker ends it.
    """
    if len(text) > HEARD:
        text = f"{text[: HEARD // 2]}\n\n{text[-HEARD // 2 :]}"
    text = unicodedata.normalize("NFC", text)
    posing = _ROLE_MARK.search(text)
    if posing:
        text = text[: posing.start()]
    if "\n" in text or text.lstrip().startswith(">"):
        text = "\n".join(piece for code, piece in parts(text) if not code)
        text = _QUOTED_LINE.sub("", text)
    if '"' in text or "“" in text or "«" in text or "„" in text:
        text = _QUOTED.sub(_unquoted, text)
    return text


def _unquoted(quoted: re.Match[str]) -> str:
    """Return a quotation's place holder, or the quotation where it is but a title."""
    words = quoted.group().split()
    titled = sum(word.strip(TRIM)[:1].isupper() for word in words)
    return quoted.group() if len(words) <= _TITLE_WORDS and 2 * titled >= len(words) else "…"
