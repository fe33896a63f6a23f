"""What can be kept, word for word: texts, ids and times are held to it at the door."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from interturn.actors.errors import InvalidId, InvalidText

_ID_BYTES: Final = 512


def check_text(field: str, text: str, bound: int) -> None:
    """Hold a text to what can be kept, word for word.

    Raises:
        InvalidText: it isn't text, is empty, has lone surrogates, or is over ``bound`` bytes.
    """
    size = _size(field, text, InvalidText)
    if size > bound:
        raise InvalidText(field, f"{size:,} bytes of UTF-8, {bound:,} allowed")


def scratch(text: str) -> str:
    """Return a text to give to code in C that would keep its UTF-8 beside it.

    CPython caches in a string the UTF-8 that an extension asks for, for as long as the
    string lives (PEP 393), which doubles what a text with accents takes in memory. A
    copy takes that with it.
    """
    return text if text.isascii() else text.encode().decode()


def check_time(at: datetime | None) -> datetime | None:
    """Return the time in UTC.

    Raises:
        InvalidText: it has no zone.
    """
    if at is None:
        return None
    if at.tzinfo is None:
        raise InvalidText("at", "the time needs a zone")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise InvalidText("at", "the time is out of range in UTC") from None


def check_id(field: str, value: str) -> None:
    """Hold an id to what can be matched exactly.

    Raises:
        InvalidId: it isn't text, is empty, over 512 bytes, or has control
            characters or lone surrogates.
    """
    size = _size(field, value, InvalidId)
    if size > _ID_BYTES:
        raise InvalidId(field, f"{size:,} bytes of UTF-8, {_ID_BYTES} allowed")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value):  # noqa: PLR2004 - C0, DEL, C1
        raise InvalidId(field, "has control characters")


def _size(field: str, text: str, error: type[InvalidText]) -> int:
    if not isinstance(text, str):
        raise error(field, f"must be text, not {type(text).__name__}")
    if not text:
        raise error(field, "is empty")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        pass  # raised outside: what is chained to an error must not hold the text either
    raise error(field, "has lone surrogates, which aren't text")
