"""Zeroes what SQLite leaves of deleted content in the unused parts of its pages.

``secure_delete`` zeroes what is deleted where it lies. It doesn't know of older
copies: when SQLite moves live cells between neighbouring pages it may write a
page anew in the tight form and leave, in the gap between its cell pointers and
its cells, the bytes of cells that live elsewhere by then. Is their row deleted
later, those bytes stay. In a trial with 400 customers five left such traces when
they were deleted; were a session's wrapped key among them, it would still open
what is left of that session.

VACUUM would end that by writing the whole database anew, with everybody waiting.
Zeroing the gaps needs one look at each page. The file format says where they
are (https://www.sqlite.org/fileformat.html, "B-tree Pages") and that nothing
reads them: so this changes no content, whoever reads meanwhile, and a write that
is torn by a power loss tears zeros. Freed blocks, freed pages and overflow pages
hold no old content, thanks to ``secure_delete``.

Three things have to hold, and the caller sees to them. The write-ahead log is
empty and nobody can write to it, or a checkpoint could change a page between
our look and our write. The connection that writes has no page in its cache (but
the first, which holds the schema and nobody's content), or it would write an old
gap again. The open file is closed after every connection, since POSIX drops all
of a process's locks on a file when it closes one descriptor of it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

SLICE_BYTES: Final = 16 * 1024 * 1024
"""Looked at in one go, while nobody can write: about 10 ms where the file is in memory."""

_HEADER_BYTES: Final = 100
_BTREE_HEADER_BYTES: Final = {0x02: 12, 0x05: 12, 0x0A: 8, 0x0D: 8}
"""By the kind of page, its first byte: interior and leaf, of an index and of a table."""

_CELLS: Final = struct.Struct(">HH")
_CELLS_AT: Final = 3
"""In the page's header: how many cells it has, and where the first begins."""

_ZEROS: Final = bytes(65_536)

_PAGES_AT_MOST: Final = 0x02_00_00_00
"""From here on an overflow page can look like a b-tree page: its first byte is of a page number."""

_LOCK_BYTE: Final = 0x4000_0000
"""The page at this place holds nothing; Windows locks it."""


class Scrubber:
    """A database file, open for zeroing the gaps in its pages."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b", buffering=0)

    def close(self) -> None:
        """Close the file. Only when every connection to it is closed."""
        self._file.close()

    def scrub(self, start: int) -> int:
        """Zero the gaps of a slice that starts at this place; return where the next starts.

        0 says that the file is at its end; what was zeroed is then on the disk.
        Raises `OSError`; `ValueError` if this is no database that it knows.
        """
        size = os.fstat(self._file.fileno()).st_size
        header = self._read(0, _HEADER_BYTES)
        page_bytes = int.from_bytes(header[16:18], "big")
        page_bytes = 65_536 if page_bytes == 1 else page_bytes
        usable = page_bytes - header[20]
        automatic_vacuum = any(header[52:56])
        if automatic_vacuum or page_bytes < 512 or size // page_bytes >= _PAGES_AT_MOST:  # noqa: PLR2004 - the smallest page
            raise ValueError("pages of this file can't be told apart")
        end = min(size, start + SLICE_BYTES)
        content = self._read(start, end - start)
        # Most of a file's pages are b-tree pages, and most have a clean gap.
        for page, kind in enumerate(content[::page_bytes]):
            at = page * page_bytes
            if start + at == 0:
                self._zero(content, 0, content[_HEADER_BYTES], _HEADER_BYTES, usable, start)
            elif kind in _BTREE_HEADER_BYTES and start + at != _LOCK_BYTE:
                self._zero(content, at, kind, 0, usable, start)
        if end < size:
            return end
        os.fsync(self._file.fileno())
        return 0

    def _zero(
        self, content: bytes, at: int, kind: int, skipped: int, usable: int, start: int
    ) -> None:
        """Zero the gap of the b-tree page at this place of a slice."""
        cells, first_cell = _CELLS.unpack_from(content, at + skipped + _CELLS_AT)
        first = at + skipped + _BTREE_HEADER_BYTES[kind] + 2 * cells
        last = at + (first_cell or 65_536)
        if not first <= last <= at + usable:
            raise ValueError("a page is damaged")
        clean = _ZEROS[: last - first]
        if content[first:last] != clean:
            self._file.seek(start + first)
            self._file.write(clean)

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        parts = []
        while size and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
