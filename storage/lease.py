"""The lease: one owner for each database, and a stale owner's writes refused.

Two things say who owns a database. The **lease row** holds an epoch that every
owner raises by one, who the owner is, and when it last said that it lives;
every write is conditional on the epoch, so it is the epoch that protects the
data, whatever the rest concludes. The **lock file** beside the database is held
by the owner through the operating system, which frees it when the process dies,
however it dies: it tells at once what the lease would tell only after
``lease_s``, and no process id has to be guessed at.

| lock | lease | conclusion |
|---|---|---|
| free | no owner, or expired | take it |
| free | owner on this host, who held the lock | dead: take it at once |
| free | any other live owner | refuse: its lock may be out of our sight |
| held by another | live | refuse |
| held by another | expired | stopped or hung: take over by the epoch alone |
| held by another | no owner | opening or closing right now: ask again, then refuse |
| no locks here | live | refuse |
| no locks here | expired, or no owner | take it |

An owner that took over by the epoch alone holds no lock, and says so in its
row: for it, a free lock proves nothing. It gets the lock at the first renewal
after the other process lets go.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from .errors import StoreOwned

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: the lease alone decides there
    _flock = None
else:
    _flock = fcntl.flock

LockState: TypeAlias = Literal["free", "held", "absent"]
"""``free``: nobody's or ours; ``held``: another's; ``absent``: locks don't work here."""


def this_owner() -> str:
    """Return how this process names itself as an owner: ``host/process id``."""
    return f"{socket.gethostname()}/{os.getpid()}"


def host_of(owner: str) -> str:
    """Return the host of an owner's name: what stands before the last slash."""
    return owner.rpartition("/")[0]


class Lease(msgspec.Struct, frozen=True):
    """The lease row.

    Attributes:
        epoch: raised by one at every change of owner.
        owner: ``host/process id``, or None if it was given back.
        since: when the owner took it, in seconds since 1970 UTC.
        renewed: when the owner last said that it lives, likewise.
        lease_s: for how many seconds that counts.
        locked: whether the owner holds the lock file.
    """

    epoch: int
    owner: str | None
    since: float
    renewed: float
    lease_s: float
    locked: bool

    def refusal(self, lock: LockState, *, host: str, now: float) -> StoreOwned | None:
        """Return why a newcomer on this host must stay out, or None if it may take over."""
        if self.owner is None:
            return StoreOwned("another process", None) if lock == "held" else None
        if now >= self.renewed + self.lease_s:
            return None
        if lock == "free" and self.locked and host_of(self.owner) == host:
            return None
        return StoreOwned(self.owner, datetime.fromtimestamp(self.since, UTC))


class LockFile:
    """A file whose lock the operating system frees when its holder dies.

    The file stays when the lock goes: unlinking it would let two processes lock
    two files of one name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.held = False

    def look(self) -> LockState:
        """Return who holds the lock, and leave no trace."""
        if self.held:
            return "held"
        if _flock is None:  # pragma: no cover - Windows
            return "absent"
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return "free"
        except OSError:
            return "absent"
        try:
            # Shared, so that those who only look never get in each other's way.
            return _try(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def take(self) -> LockState:
        """Try to get the lock: ``free`` says that it is ours now. Raises `OSError`."""
        if self.held:
            return "free"
        if _flock is None:  # pragma: no cover - Windows
            return "absent"
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        state = _try(self._descriptor, fcntl.LOCK_EX)
        self.held = state == "free"
        return state

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = None
        self.held = False


def _try(descriptor: int, kind: int) -> LockState:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "absent"
    return "free"
