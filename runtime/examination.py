"""What the doctor has seen and found so far in a database, and the search of its raw files."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from interturn.actors.message import Discreet
from interturn.runtime.errors import StoreFailed
from interturn.storage.errors import StorageError, Tampered, WrongKey

_LOOKED_FOR: Final = 256
_FRAGMENT_BYTES: Final = 12
"""Long enough not to stand in a file of random bytes by chance (2 to the -96 a place)."""


class Finding(Discreet, frozen=True):
    """Something wrong in a database.

    Attributes:
        kind: ``tampered``, ``wrong-key``, ``gap``, ``pair``, ``cursor``, ``mark``,
            ``database`` or ``plaintext``.
        where: the place, by number and never by id.
    """

    kind: str
    where: str


class Diagnosis(msgspec.Struct, frozen=True):
    """What `Archive.doctor` found.

    Attributes:
        customers: customers in the database.
        sessions: sessions.
        messages: messages.
        facts: facts of all customers.
        unanswered: turns that are held, or were cut off by a crash, with their words kept.
        looked_for: texts and ids that were searched for in the raw files.
        findings: what is wrong, empty if nothing is.
    """

    customers: int
    sessions: int
    messages: int
    facts: int
    unanswered: int
    looked_for: int
    findings: tuple[Finding, ...]


class Examination:
    """What the doctor has seen so far."""

    def __init__(self) -> None:
        self.customers = self.sessions = self.messages = self.facts = self.unanswered = 0
        self.fragments: dict[bytes, None] = {}
        self._findings: list[Finding] = []

    def found(self, kind: str, where: str) -> None:
        """Note something wrong."""
        self._findings.append(Finding(kind, where))

    def noting(self) -> _Noting:
        """Note what storage refuses inside, and go on."""
        return _Noting(self)

    def look_for(self, text: str) -> None:
        """Search the raw files for the middle of this text later, the newest of many."""
        encoded = text.encode()
        middle = max(0, len(encoded) - _FRAGMENT_BYTES) // 2
        fragment = encoded[middle : middle + _FRAGMENT_BYTES]
        # A run of one byte stands in any file: it would tell nothing.
        if len(fragment) == _FRAGMENT_BYTES and len(set(fragment)) > _FRAGMENT_BYTES // 3:
            self.fragments[fragment] = None
            if len(self.fragments) > _LOOKED_FOR:
                del self.fragments[next(iter(self.fragments))]

    def diagnosis(self) -> Diagnosis:
        """Return what was seen."""
        return Diagnosis(
            self.customers,
            self.sessions,
            self.messages,
            self.facts,
            self.unanswered,
            len(self.fragments),
            tuple(self._findings),
        )


class _Noting:
    def __init__(self, examination: Examination) -> None:
        self._examination = examination

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        match error:
            case Tampered(table=table, where=where):
                self._examination.found("tampered", f"{table}, {where}")
            case WrongKey():
                self._examination.found("wrong-key", error.key_id)
            case StoreFailed() | StorageError():
                self._examination.found("database", str(error))
            case _:
                return False
        return True


def holding(files: Iterable[Path], fragments: tuple[bytes, ...]) -> list[Path]:
    """Return the files that hold any of the fragments."""
    return [file for file in files if any(_holds(file, fragments))]


def _holds(file: Path, fragments: tuple[bytes, ...]) -> Iterator[bool]:
    if not file.exists() or not file.stat().st_size:
        return
    with file.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for fragment in fragments:
            yield content.find(fragment) >= 0
