"""The store contract: rows, opaque snapshots, wrapped keys, deliveries, one lease.

A store knows nothing of what is inside: every text and id comes sealed or as a
keyed hash. What it must promise:

- **One owner.** `open` takes the lease and raises its epoch; every write is
  conditional on that epoch inside the writing transaction, so that a stale
  owner's write is refused with `Fenced`.
- **A batch is one transaction.** `commit` makes all accepted writes of a batch
  durable together; a write that can't be accepted (a known delivery, a stale
  version) is told so in its outcome and takes no other with it.
- **Absence** is None or an empty list, never an error.
- **A conflict** that is no part of a batch refuses the whole call with
  `StoreFailed("stale…")`, and nothing has changed.
- **Erasure is finished.** When a call that erases returns, what it erased is in
  no file. Once it is under way it ends, whatever fails: in the call, or in the
  next `open`, before that returns.
- **Unknown outcomes** are `StoreFailed(unknown=True)`: the caller must look
  before it writes again.
- **References** (`ref`) of sessions and customers are small integers that the
  caller allots in rising order, starting after those that `open` reports.

Nothing here assumes SQLite. One suite, `tests/storage/test_contract.py`, holds
every backend to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .rows import (
    Adoption,
    CustomerRow,
    Erased,
    LoadedSession,
    Opened,
    Outcome,
    Prune,
    Root,
    Row,
    SessionRow,
    Unanswered,
    Underived,
    Write,
    WriteCustomer,
)


class Store(Protocol):
    """Where rows, snapshots, keys and the lease rest. See the module's promises."""

    async def look(self) -> Root | None:
        """Return the root of an existing store, or None if there is none yet.

        Reads only, and leaves every file as it is. Raises `StoreOwned`,
        `SchemaTooNew`, `StoreFailed`.
        """
        ...

    async def open(self, root: Root, *, owner: str, lease_s: float) -> Opened:
        """Take the lease, making the store with ``root`` if there is none.

        Raises `StoreOwned` while another live owner holds it, `SchemaTooNew`,
        `StoreFailed`.
        """
        ...

    async def renew(self) -> None:
        """Say that the owner lives. Raises `Fenced`, `StoreFailed`."""
        ...

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Make a batch durable in one transaction; an outcome for each write, in order.

        Raises `Fenced` or `StoreFailed`: then no write of the batch was applied,
        unless the failure says ``unknown``.
        """
        ...

    async def load_session(self, session_hash: bytes, *, recent: int) -> LoadedSession | None:
        """Return a session with what is newer than its snapshot.

        ``recent``: how many of the newest messages to look at for deliveries.
        """
        ...

    async def load_customer(self, customer_hash: bytes) -> CustomerRow | None:
        """Return a customer."""
        ...

    async def rows(self, session: int, *, after: int, limit: int) -> list[Row]:
        """Return at most ``limit`` rows with a sequence number over ``after``, oldest first."""
        ...

    async def sessions_of(self, customer: int) -> list[SessionRow]:
        """Return a customer's sessions by rising `ref`, without their snapshots."""
        ...

    async def customers(self, *, after: int, limit: int) -> list[CustomerRow]:
        """Return at most ``limit`` customers with a `ref` over ``after``, by rising `ref`."""
        ...

    async def underived(self, *, after: int, limit: int) -> list[Underived]:
        """Return at most ``limit`` sessions that facts are still to be derived from.

        By rising `ref`, with a `ref` over ``after``. Also sessions that nobody
        has come back to: what a crash cut off is found here.
        """
        ...

    async def unanswered(self, *, after: int, limit: int) -> list[Unanswered]:
        """Return at most ``limit`` sessions with words that an earlier owner left unanswered.

        By rising `ref`, with a `ref` over ``after``. What was written under this
        owner's epoch is in somebody's hands and not among them.
        """
        ...

    async def aged(self, *, before: int, after: int, upto: int) -> list[bytes]:
        """Return the hashes of the sessions that `prune` would take something from.

        Their oldest message is from before ``before`` (microseconds since 1970
        UTC) and older than the newest turn that was folded, and than the newest
        that facts were derived from. Looks at a `ref` over ``after``, up to ``upto``.
        """
        ...

    async def adopt(self, adoption: Adoption) -> None:
        """Give sessions to a customer, in one transaction: for identify and merge.

        The old wrapped keys of the sessions, and whatever was ``leaving``'s, are
        then in no file. A cancelled caller doesn't stop it.

        Raises:
            ValueError: ``new_customer``, ``snapshot`` or a new session is not
                ``customer``'s, or ``leaving`` is ``customer``. Nothing was changed.
            Fenced: another process has taken over. Nothing was changed.
            StoreFailed: ``stale…``: a session or the customer isn't there, a `ref`
                or hash is somebody else's, the snapshot is of another
                version, or ``leaving`` still owns a session; nothing was changed.
                Otherwise nothing was changed unless it says ``unknown``; where it
                says that an erasure is to be finished, all was changed.
        """
        ...

    async def undo(self, session: int, seq: int, *, snapshot: WriteCustomer | None = None) -> bool:
        """Remove the newest turn of a session if its visitor's row has this ``seq``.

        ``derived`` of the session goes back to at most ``seq - 1``, and the
        customer's snapshot is written, in the same transaction. The delivery of
        the turn is forgotten with it. A cancelled caller doesn't stop it.

        Returns:
            False, and nothing was changed: the newest turn is another, the
            session isn't there, or its cursor is at or past ``seq``.

        Raises:
            Fenced: another process has taken over. Nothing was changed.
            StoreFailed: ``stale…``: the snapshot is of another version or of a
                customer who doesn't own the session. Nothing was changed, unless
                it says ``unknown``.
        """
        ...

    async def delete_session(self, session: int) -> int:
        """Remove a session, its key and its rows; return how many messages went.

        0 for an unknown ``session``. Its customer stays. A cancelled caller
        doesn't stop it. Raises `Fenced`; `StoreFailed` as `forget` does.
        """
        ...

    async def prune(self, cuts: Sequence[Prune]) -> int:
        """Remove the oldest messages of sessions in one transaction; return how many went.

        A cut is left out if another mark than ``seen`` rests, or if it would
        reach the newest turn that was folded, or the newest that facts were
        derived from. So a session keeps a row that says how far it has come. The
        deliveries of what went are known no more. `shrink` finishes it. A
        cancelled caller doesn't stop it. Raises `Fenced`, `StoreFailed`.
        """
        ...

    async def shrink(self) -> int:
        """Finish what `prune` began: leave no trace, give space back; return bytes given back.

        Space is given back where it is worth it; meanwhile others may have to
        wait. A cancelled caller doesn't stop it. Raises `Fenced`; `StoreFailed` as
        `forget` does.
        """
        ...

    async def forget(self, customer: int) -> Erased:
        """Destroy a customer's key, and remove everything that was theirs.

        The key goes first, and with it a durable note that the rest has to
        follow. Called again after a failure, it goes on. An unknown customer is
        ``Erased(0, 0)``. A cancelled caller doesn't stop it.

        Raises:
            Fenced: another process has taken over; what is left to do is its.
            StoreFailed: it was not begun, or the cause says that the erasure will
                be finished at the next open.
        """
        ...

    async def close(self) -> None:
        """Give the lease back and close. Safe to call twice, and after any failure."""
        ...
