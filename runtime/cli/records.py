"""Reads a file of JSON into its records: one document, or lines, plain or gzipped.

A document that is a list of objects is a record for each. Lines are streamed; a
document is held whole. Anything unreadable is a `TranscriptError` with file, line
and place. It never holds, nor is chained to anything that holds, a word of the content.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import msgspec

T = TypeVar("T")

LINE_BYTES = 1 << 28  # the longest LongMemEval line known is 10 MB; this is 26 of them
DOCUMENT_BYTES = 1 << 30  # LongMemEval whole is 280 MB in one document

Reason = Literal[
    "not_a_file",
    "empty",
    "not_json",
    "not_utf8",
    "not_gzip",
    "surrogate",
    "too_deep",
    "too_long",
    "unknown_shape",
    "wrong_shape",
    "unknown_role",
    "unpaired",
]


class TranscriptError(ValueError):
    """A file that can't be read as conversations.

    Attributes:
        file: as it was named.
        line: from 1, where a line is to blame.
        reason: what is wrong, in one word of `Reason`.
        where: the place inside the document, such as ``$.turns[3].utterance``.
    """

    def __init__(
        self, file: str, reason: Reason, *, line: int | None = None, where: str | None = None
    ) -> None:
        super().__init__(file, reason, line, where)
        self.file = file
        self.reason = reason
        self.line = line
        self.where = where

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        where = f" at {self.where}" if self.where else ""
        return f"{self.file}{line}: {self.reason.replace('_', ' ')}{where}"


class Place(msgspec.Struct, frozen=True):
    """Where something is being read, to say so if it can't be."""

    file: str
    line: int | None
    root: str = "$"

    def refusal(
        self, reason: Reason, *, line: int | None = None, where: str | None = None
    ) -> TranscriptError:
        """Return the error, with ``where`` as a path below this place's own."""
        if where is not None or self.root != "$":
            where = self.root + (where or "")
        return TranscriptError(self.file, reason, line=line or self.line, where=where)


def records(path: Path) -> Iterator[tuple[Place, object]]:
    """Yield what the file holds, one record at a time, each with its place."""
    file = str(path)
    reason: Reason
    try:
        with _opened(path) as stream:
            if _plain_name(path).endswith((".jsonl", ".ndjson")):
                yield from _lines(file, stream)
            else:
                yield from _sniffed(file, stream)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        reason = "not_gzip"
    else:
        return
    raise TranscriptError(file, reason)


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def _lines(file: str, stream: IO[bytes]) -> Iterator[tuple[Place, object]]:
    number = 0
    found = False
    while line := stream.readline(LINE_BYTES + 1):
        number += 1
        place = Place(file, number)
        if len(line) > LINE_BYTES:
            raise place.refusal("too_long")
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if line.strip():
            found = True
            yield place, _decoded(line, place)
    if not found:
        raise TranscriptError(file, "empty")


def _sniffed(file: str, stream: IO[bytes]) -> Iterator[tuple[Place, object]]:
    """Tell lines from a document by whether the first line is whole, with more after it."""
    first = _first_line(stream)
    whole = len(first) <= LINE_BYTES
    if whole:
        try:
            _decoded(first, Place(file, None))
        except TranscriptError:
            whole = False
    if whole and _first_line(stream):
        stream.seek(0)
        yield from _lines(file, stream)
        return
    stream.seek(0)
    data = stream.read(DOCUMENT_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    place = Place(file, None)
    if len(data) > DOCUMENT_BYTES:
        raise place.refusal("too_long")
    if not data.strip():
        raise place.refusal("empty")
    document = _decoded(data, place)
    if isinstance(document, list) and not is_messages(document):
        for number, record in enumerate(document):
            yield Place(file, None, f"$[{number}]"), record
    else:
        yield place, document


def _first_line(stream: IO[bytes]) -> bytes:
    """Return the next line that isn't blank, or nothing at the end."""
    while line := stream.readline(LINE_BYTES + 1):
        if line.strip():
            return line.removeprefix(b"\xef\xbb\xbf")
    return b""


def _decoded(data: bytes, place: Place) -> object:
    reason: Reason
    line = None
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        reason = "too_deep"
    except ValueError as error:
        reason, position = _why(data, str(error))
        if place.line is None and position is not None:
            line = data.count(b"\n", 0, position) + 1
    # Raised here and not above: the decoder's own error may hold the data.
    raise place.refusal(reason, line=line)


def _why(data: bytes, message: str) -> tuple[Reason, int | None]:
    """Say what is wrong with bytes that didn't decode, and where if that is known."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return "not_utf8", error.start
    found = re.search(r"\(byte (\d+)\)", message)
    position = int(found[1]) if found else None
    if "surrogate" in message or _has_lone_surrogate(data):
        return "surrogate", position
    return "not_json", position


def _has_lone_surrogate(data: bytes) -> bool:
    """Tell whether a half of a pair of escapes stands alone, as far as text can tell."""
    halves = re.sub(rb"(?i)\\u(d[89ab]..)\\u(d[c-f]..)", b"", data.replace(b"\\\\", b""))
    return re.search(rb"(?i)\\ud[89a-f]", halves) is not None


def _plain_name(path: Path) -> str:
    return path.name.lower().removesuffix(".gz")


def is_messages(items: list[Any]) -> bool:
    """Whether a list is a conversation of its own, and not a list of records."""
    return bool(items) and isinstance(items[0], dict) and "role" in items[0]


def converted(value: object, kind: type[T], place: Place, prefix: str = "") -> T:
    """Return ``value`` as ``kind``, or refuse with the place that isn't so."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = re.search(r"at `\$([^`]*)`", str(error))
        where = prefix + (found[1] if found else "")
    raise place.refusal("wrong_shape", where=where)
