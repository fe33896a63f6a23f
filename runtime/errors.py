"""Every error that leaves the library, under one root.

Grouped by who must act. The caller: `InvalidText`, `InvalidId`,
`BudgetExceeded`, `DeliveryConflict`, `CustomerMismatch`, `TurnClosed`,
`Reentered`, `WrongLoop`. The caller, later: `MailboxFull`, `Overloaded`,
`TurnTimeout`, `TurnExpired`, `Quarantined`, `RuntimeClosed`, `Forgotten`.
Whoever runs the machine: `StoreOwned`, `Fenced`, `WrongKey`, `Tampered`,
`StoreFailed`, `SchemaTooNew`, `InvalidSettings`, `ActorFailed`.

Storage knows no other room, so its errors have a root of their own. `public`
gives each its twin under `InterturnError`, with the same fields and without
what was chained to it: a database's own message might quote what it held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from interturn.actors.errors import (
    BudgetExceeded,
    CustomerMismatch,
    DeliveryConflict,
    Forgotten,
    InterturnError,
    InvalidId,
    InvalidText,
    TurnClosed,
    TurnExpired,
)
from interturn.storage import errors as storage

__all__ = [
    "ActorFailed",
    "BudgetExceeded",
    "CustomerMismatch",
    "DeliveryConflict",
    "Fenced",
    "Forgotten",
    "InterturnError",
    "InvalidId",
    "InvalidSettings",
    "InvalidText",
    "MailboxFull",
    "Overloaded",
    "Quarantined",
    "Reentered",
    "RuntimeClosed",
    "SchemaTooNew",
    "StoreFailed",
    "StoreOwned",
    "Tampered",
    "TurnClosed",
    "TurnExpired",
    "TurnTimeout",
    "WrongKey",
    "WrongLoop",
    "public",
]


class InvalidSettings(InterturnError, ValueError):
    """A setting out of its bounds.

    Attributes:
        name: of the setting.
        bound: what it must be, with its unit.
    """

    def __init__(self, name: str, bound: str) -> None:
        super().__init__(name, bound)
        self.name = name
        self.bound = bound

    def __str__(self) -> str:
        return f"{self.name} must be {self.bound}"


class MailboxFull(InterturnError):
    """One actor has too many messages waiting. Retry later.

    Attributes:
        key: the actor's kind and the keyed hash of its id.
        depth: how many wait.
        bound: how many may.
    """

    def __init__(self, key: str, depth: int, bound: int) -> None:
        super().__init__(key, depth, bound)
        self.key = key
        self.depth = depth
        self.bound = bound

    def __str__(self) -> str:
        return f"{self.key} has {self.depth} messages waiting, the bound is {self.bound}"


class Overloaded(InterturnError):
    """The runtime as a whole has no room: messages waiting, or actors in memory.

    Attributes:
        what: ``queued`` or ``active``, the setting that bounds it.
        bound: its value.
    """

    def __init__(self, what: str, bound: int) -> None:
        super().__init__(what, bound)
        self.what = what
        self.bound = bound

    def __str__(self) -> str:
        return f"the runtime is at its bound of {self.bound} ({self.what})"


class TurnTimeout(InterturnError, TimeoutError):
    """What was asked for didn't happen within its time.

    Attributes:
        started: whether the work had begun. What only waited had not: nothing was
            written. What was on its way to the disk had: it completes, and its
            answer is discarded. A turn that was being taken is given back; what
            was being recorded is there, and its delivery id tells.
    """

    def __init__(self, *, started: bool) -> None:
        super().__init__(started)
        self.started = started

    def __str__(self) -> str:
        return f"the turn wasn't taken in time ({'begun' if self.started else 'not begun'})"


class Reentered(InterturnError, RuntimeError):
    """What was asked for would wait for whoever asks.

    A task that holds a session's turn asks for it again, or a port that the runtime
    waits for asks it to `Runtime.flush`.
    """

    def __str__(self) -> str:
        return "whoever asks holds the turn, or is the port, that this would wait for"


class WrongLoop(InterturnError, RuntimeError):
    """The runtime was used from another thread or event loop than it was opened in."""

    def __str__(self) -> str:
        return "the runtime belongs to the event loop that opened it"


class RuntimeClosed(InterturnError):
    """The runtime is closing or closed."""

    def __str__(self) -> str:
        return "the runtime is closed"


class ActorFailed(InterturnError):
    """An actor met what it doesn't declare. Its state was dropped and is read again.

    Attributes:
        key: the actor's kind and the keyed hash of its id.
        cause: the class of what it met.
    """

    def __init__(self, key: str, cause: str) -> None:
        super().__init__(key, cause)
        self.key = key
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.key} failed unexpectedly: {self.cause}"


class Quarantined(InterturnError):
    """An actor failed repeatedly and rests. Others serve.

    Attributes:
        key: the actor's kind and the keyed hash of its id.
        retry_at: when it is tried again (UTC).
        retry_s: seconds until then.
    """

    def __init__(self, key: str, retry_at: datetime, retry_s: float) -> None:
        super().__init__(key, retry_at, retry_s)
        self.key = key
        self.retry_at = retry_at
        self.retry_s = retry_s

    def __str__(self) -> str:
        return f"{self.key} failed repeatedly and is tried again in {self.retry_s:.0f} s"


class StoreOwned(InterturnError, storage.StoreOwned):
    """Another live process holds the database. Nothing was read or written."""


class Fenced(InterturnError, storage.Fenced):
    """Another process took the database over: our write was refused, the runtime closes."""


class WrongKey(InterturnError, storage.WrongKey):
    """The keyring can't open this database: the master key is wrong or missing."""


class Tampered(InterturnError, storage.Tampered):
    """Sealed bytes were changed, moved or cut. What they belong to refuses, the rest serves."""


class StoreFailed(InterturnError, storage.StoreFailed):
    """The disk or the database refused. What was to be written wasn't, or may not be."""


class SchemaTooNew(InterturnError, storage.SchemaTooNew):
    """The database was written by a newer interturn. It was left untouched."""


def public(error: storage.StorageError) -> InterturnError:
    """Return the public twin of a storage error."""
    match error:
        case InterturnError():
            return error
        case storage.StoreOwned(owner=owner, since=since):
            return StoreOwned(owner, since)
        case storage.Fenced():
            return Fenced()
        case storage.WrongKey(key_id=key_id):
            return WrongKey(key_id)
        case storage.Tampered(table=table, where=where):
            return Tampered(table, where)
        case storage.SchemaTooNew(found=found, known=known):
            return SchemaTooNew(found, known)
        case storage.StoreFailed(cause=cause, unknown=unknown):
            return StoreFailed(cause, unknown=unknown)
    return StoreFailed(type(error).__name__)


@contextmanager
def public_errors() -> Iterator[None]:
    """Raise what storage raises inside as its public twin."""
    try:
        yield
    except storage.StorageError as error:
        raise public(error) from None
