"""How a text parts into words, and what each word is compared by."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, TypeVar
from zlib import crc32

# Marks that sit on letters in scripts where Python's \w stops at them.
_MARKS: Final = (
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
    "\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ece\u0f71-\u0f84\u1000-\u109f\u1780-\u17d3"
)
WORD: Final = re.compile(
    rf"[\w{_MARKS}]++(?:(?:[-'’·@]|(?<=\d)[.,:/](?=\d))[\w{_MARKS}]++)*+"  # noqa: RUF001
)
LONGEST_WORD: Final = 40
_SHORT: Final = 2
_MOST_KNOWN: Final = 8_192
_AROUND: Final = ".,;:!?…¿¡()\"'"  # what a word may be remembered with
_LATIN_ENDS: Final = 0x0250
_LATIN_MORE: Final = range(0x1E00, 0x1F00)
_ACCENTED: Final = re.compile(r"[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff’]")  # noqa: RUF001


def _folding() -> dict[str, str]:
    table = {chr(code): "" for code in range(0x0300, 0x0370)}
    for code in (*range(0x00C0, _LATIN_ENDS), *_LATIN_MORE):
        base = unicodedata.normalize("NFD", chr(code))[0]
        table[chr(code)] = base.lower() if base.isascii() else chr(code)
    return table | {"’": "'", "ß": "ss", "ł": "l", "Ł": "l", "ø": "o", "Ø": "o"}  # noqa: RUF001


_FOLD: Final = _folding()
# The same a byte a letter, but for "ß", which becomes two.
_FOLD_BYTES: Final = "".join(
    "ß" if letter == "ß" else _FOLD.get(letter, letter).lower() for letter in map(chr, range(256))
).encode("latin-1")


def _unaccented(accented: re.Match[str]) -> str:
    return _FOLD[accented.group()]


def fold(text: str) -> str:
    """Return ``text`` in lower case without Latin accents, as the word lists are kept."""
    if text.isascii():
        return text.lower()
    try:
        # Western European text, by far the most frequent, takes a tenth of the time in bytes.
        folded = text.encode("latin-1").translate(_FOLD_BYTES).decode("latin-1")
    except UnicodeEncodeError:
        folded = "ß"
    return _ACCENTED.sub(_unaccented, text).lower() if "ß" in folded else folded


_T = TypeVar("_T")
_KEY_SPACE: Final = 0xFFFE
STRONG: Final = 1
_STEM: Final = 6


def fingerprint(word: str) -> int:
    """Return 16 bits for a word; the lowest is free to say that it is `STRONG`."""
    return crc32(word.encode("utf-8", "replace")) & _KEY_SPACE


def stem_key(word: str) -> int:
    """Return the fingerprint of a folded word's stem, so that its forms compare equal."""
    return crc32(word[:_STEM].encode("utf-8", "replace")) & _KEY_SPACE


def remember(known: dict[str, _T], token: str, what: _T, *, listed: bool) -> None:
    """Remember a word as it was written, if it says nothing of anybody.

    Words in the lists do, words in small letters and what has two signs at most:
    never a number, a name or an address. It would outlive the conversation.
    """
    told = token.strip(_AROUND)
    if len(token) <= LONGEST_WORD and (
        listed or len(told) <= _SHORT or (told.isalpha() and told.islower())
    ):
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[token] = what
