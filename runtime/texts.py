"""What can be kept, word for word: texts, ids, times and numbers are held to it at the door."""

from __future__ import annotations

from collections.abc import Sequence
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


def check_texts(field: str, texts: Sequence[str], bound: int) -> tuple[str, ...]:
    """Return texts that can be kept, as they are now.

    Raises:
        InvalidText: it isn't a sequence, or a text by itself; or one can't be kept.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
        raise InvalidText(field, f"must be a sequence of texts, not {type(texts).__name__}")
    kept = tuple(texts)
    for text in kept:
        check_text(field, text, bound)
    return kept


def check_whole(field: str, number: int | None) -> None:
    """Hold a number to be whole, where it is given.

    Raises:
        InvalidText: it isn't.
    """
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise InvalidText(field, f"must be a whole number, not {type(number).__name__}")


def check_seconds(field: str, seconds: float) -> float:
    """Return a span of time, in seconds.

    Raises:
        InvalidText: it is no number, negative, or more than a float can say.
    """
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise InvalidText(field, f"must be seconds, not {type(seconds).__name__}")
    if not seconds >= 0:  # so said, it holds for what is no number, too
        raise InvalidText(field, "must be seconds, 0 or more")
    try:
        return float(seconds)
    except OverflowError:
        pass
    raise InvalidText(field, "is out of range")


def check_time(at: datetime | None) -> datetime | None:
    """Return the time in UTC.

    Raises:
        InvalidText: it is no time, or has no zone.
    """
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise InvalidText("at", f"must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
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
