"""The store in memory: the whole contract in dictionaries.

For tests, for trials, and as the contract's plainest reading. What it holds
outlives `close`, so that one object can be opened again, and `MemoryStore(beside=…)`
is a second door to the same contents, as another process would be.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from .batch import Batch, check_adoption
from .contents import Contents, prunable
from .errors import Fenced, StoreFailed
from .lease import Lease, host_of
from .rows import (
    Adoption,
    CustomerRow,
    Erased,
    Known,
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
    WriteSession,
    WriteTurn,
    WriteUnanswered,
)


class MemoryStore:
    """Keeps everything in this process, and loses it with the process.

    Args:
        beside: share the contents of this store, as a second process would.
    """

    def __init__(self, *, beside: MemoryStore | None = None) -> None:
        self._contents: Contents = Contents() if beside is None else beside._contents  # noqa: SLF001 - another of the same class
        self._epoch = 0

    def __repr__(self) -> str:
        return f"<MemoryStore {len(self._contents.sessions)} sessions, epoch {self._epoch}>"

    async def look(self) -> Root | None:
        """Return the root, or None if nothing was ever opened here. Raises `StoreOwned`."""
        self._refuse("")
        return self._contents.root

    async def open(self, root: Root, *, owner: str, lease_s: float) -> Opened:
        """Take the lease. Raises `StoreOwned`; `StoreFailed` if the root is another."""
        self._refuse(host_of(owner))
        contents = self._contents
        if contents.root is None:
            contents.root = root
        elif contents.root != root:
            raise StoreFailed("another process made this store with another root")
        now = time.time()
        self._epoch = contents.lease.epoch + 1
        contents.lease = Lease(self._epoch, owner, now, now, lease_s, locked=False)
        return Opened(
            self._epoch, max(contents.sessions, default=0), max(contents.customers, default=0)
        )

    async def renew(self) -> None:
        """Say that the owner lives. Raises `Fenced`."""
        self._check_owned()
        self._contents.lease = msgspec.structs.replace(self._contents.lease, renewed=time.time())

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Apply a batch; an outcome for each write, in order. Raises `Fenced`."""
        batch = Batch(writes)
        self._check_owned()
        turns = [self._write_turn(turn) for turn in batch.turns]
        unanswered = [self._write_unanswered(words) for words in batch.unanswered]
        snapshots = [self._write_snapshot(snapshot) for snapshot in batch.snapshots]
        customers = [self._write_customer_snapshot(snapshot) for snapshot in batch.customers]
        return batch.outcomes(turns, unanswered, snapshots, customers)

    async def load_session(self, session_hash: bytes, *, recent: int) -> LoadedSession | None:
        """Return a session with what is newer than its snapshot."""
        contents = self._contents
        ref = contents.session_refs.get(session_hash)
        if ref is None:
            return None
        session, rows = contents.sessions[ref], contents.rows[ref]
        return LoadedSession(
            session=session,
            customer=contents.customers[session.customer],
            last=contents.last(ref),
            rows=contents.after(ref, session.cursor),
            deliveries=[
                (row.delivery, row.seq)
                for row in rows[max(0, len(rows) - recent) :]
                if row.delivery is not None
            ],
        )

    async def load_customer(self, customer_hash: bytes) -> CustomerRow | None:
        """Return a customer."""
        ref = self._contents.customer_refs.get(customer_hash)
        return None if ref is None else self._contents.customers[ref]

    async def rows(self, session: int, *, after: int, limit: int) -> list[Row]:
        """Return at most ``limit`` rows with a sequence number over ``after``, oldest first."""
        return self._contents.after(session, after)[:limit]

    async def sessions_of(self, customer: int) -> list[SessionRow]:
        """Return a customer's sessions by rising `ref`, without their snapshots."""
        return [
            msgspec.structs.replace(session, snapshot=None)
            for _, session in sorted(self._contents.sessions.items())
            if session.customer == customer
        ]

    async def customers(self, *, after: int, limit: int) -> list[CustomerRow]:
        """Return at most ``limit`` customers with a `ref` over ``after``, by rising `ref`."""
        refs = sorted(self._contents.customers)
        start = bisect_right(refs, after)
        return [self._contents.customers[ref] for ref in refs[start : start + limit]]

    async def underived(self, *, after: int, limit: int) -> list[Underived]:
        """Return at most ``limit`` sessions that facts are still to be derived from."""
        contents = self._contents
        found = [
            Underived(
                msgspec.structs.replace(session, snapshot=None),
                contents.customers[session.customer],
                contents.last(ref),
            )
            for ref, session in sorted(contents.sessions.items())
            if ref > after and session.derived < contents.last(ref)
        ]
        return found[:limit]

    async def unanswered(self, *, after: int, limit: int) -> list[Unanswered]:
        """Return at most ``limit`` sessions with words that an earlier owner left unanswered."""
        contents = self._contents
        found = []
        for ref, (epoch, sealed) in sorted(contents.unanswered.items()):
            if ref > after and epoch != self._epoch:
                session = msgspec.structs.replace(contents.sessions[ref], snapshot=None)
                customer = contents.customers[session.customer]
                found.append(Unanswered(session, customer, sealed))
        return found[:limit]

    async def aged(self, *, before: int, after: int, upto: int) -> list[bytes]:
        """Return the hashes of the sessions that `prune` would take something from."""
        contents = self._contents
        return [
            session.hash
            for ref, session in sorted(contents.sessions.items())
            if after < ref <= upto
            and (rows := contents.rows[ref])
            and rows[0].seq <= prunable(session)
            and rows[0].at < before
        ]

    async def adopt(self, adoption: Adoption) -> None:
        """Give sessions to a customer; see `Store.adopt`.

        Raises `ValueError`, `Fenced`; `StoreFailed` (``stale…``): nothing was changed.
        """
        check_adoption(adoption)
        self._check_owned()
        customer = self._adopter(adoption)
        self._write_customer(customer)
        for session in adoption.new_sessions:
            self._write_session(session, None)
        stored = self._contents.sessions
        for ref, wrapped in adoption.sessions:
            moved = msgspec.structs.replace(stored[ref], customer=customer.ref, wrapped=wrapped)
            stored[ref] = moved
        if adoption.snapshot is not None:
            self._write_customer_snapshot(adoption.snapshot)
        if adoption.leaving is not None:
            self._contents.drop_customer(adoption.leaving)

    def _adopter(self, adoption: Adoption) -> CustomerRow:
        """Return who adopts, if all is as the caller saw it."""
        contents, new_customer = self._contents, adoption.new_customer
        if new_customer is not None and not self._fits(new_customer):
            raise StoreFailed("stale: a reference or hash is somebody else's")
        customer = contents.customers.get(adoption.customer, new_customer)
        if customer is None:
            raise StoreFailed("stale: the customer isn't there")
        moved = {ref for ref, _ in adoption.sessions}
        if not moved <= contents.sessions.keys() or len(moved) < len(adoption.sessions):
            raise StoreFailed("stale: a session isn't there")
        for new in adoption.new_sessions:
            if new.ref in contents.sessions or new.hash in contents.session_refs:
                raise StoreFailed("stale: a reference or hash is somebody else's")
        if adoption.snapshot is not None and adoption.snapshot.seen != customer.version:
            raise StoreFailed("stale: the customer's snapshot is of another version")
        for ref, session in contents.sessions.items():
            if session.customer == adoption.leaving and ref not in moved:
                raise StoreFailed("stale: the customer who is leaving still owns a session")
        return customer

    async def undo(self, session: int, seq: int, *, snapshot: WriteCustomer | None = None) -> bool:
        """Remove a session's newest turn, if it is this one and not folded.

        Raises `Fenced`; `StoreFailed` (``stale…``): nothing was changed.
        """
        self._check_owned()
        contents = self._contents
        row = contents.sessions.get(session)
        if row is None or seq < 1 or row.cursor >= seq or contents.last(session) != seq + 1:
            return False
        if snapshot is not None:
            if snapshot.customer != row.customer:
                raise StoreFailed("stale: the session is another customer's")
            if snapshot.seen != contents.customers[row.customer].version:
                raise StoreFailed("stale: the customer's snapshot is of another version")
        visitor = contents.rows[session][-2]
        del contents.rows[session][-2:]
        if visitor.delivery is not None:
            del contents.deliveries[session, visitor.delivery]
        if snapshot is not None:
            self._write_customer_snapshot(snapshot)
        self._set_derived(session, min(contents.sessions[session].derived, seq - 1))
        return True

    async def delete_session(self, session: int) -> int:
        """Remove a session; return how many messages went. Raises `Fenced`."""
        self._check_owned()
        return self._contents.drop_session(session)

    async def prune(self, cuts: Sequence[Prune]) -> int:
        """Remove the oldest messages of sessions; return how many went. Raises `Fenced`."""
        self._check_owned()
        contents, messages = self._contents, 0
        for cut in cuts:
            session = contents.sessions.get(cut.session)
            if session is None or session.pruned != cut.seen or cut.through > prunable(session):
                continue
            contents.sessions[cut.session] = msgspec.structs.replace(session, pruned=cut.mark)
            rows, left = contents.rows[cut.session], contents.after(cut.session, cut.through)
            contents.rows[cut.session] = left
            messages += contents.drop_rows(cut.session, rows[: len(rows) - len(left)])
        return messages

    async def shrink(self) -> int:
        """Return 0: memory is given back as it comes free. Raises `Fenced`."""
        self._check_owned()
        return 0

    async def forget(self, customer: int) -> Erased:
        """Remove a customer and everything of theirs. Raises `Fenced`."""
        self._check_owned()
        contents = self._contents
        refs = [ref for ref, row in contents.sessions.items() if row.customer == customer]
        messages = sum(contents.drop_session(ref) for ref in refs)
        contents.drop_customer(customer)
        return Erased(len(refs), messages)

    async def close(self) -> None:
        """Give the lease back. The contents stay."""
        lease = self._contents.lease
        if self._epoch and lease.epoch == self._epoch:
            self._contents.lease = msgspec.structs.replace(lease, owner=None)
        self._epoch = 0

    def _refuse(self, host: str) -> None:
        refusal = self._contents.lease.refusal("absent", host=host, now=time.time())
        if refusal is not None:
            raise refusal

    def _check_owned(self) -> None:
        if not self._epoch:
            raise StoreFailed("the store is not open")
        if self._contents.lease.epoch != self._epoch:
            raise Fenced

    def _write_turn(self, turn: WriteTurn) -> Outcome:
        contents, visitor = self._contents, turn.visitor
        delivery = visitor.delivery
        if delivery is not None and (turn.session, delivery) in contents.deliveries:
            contents.unanswered.pop(turn.session, None)
            return Known(contents.deliveries[turn.session, delivery])
        if visitor.seq != 1 + contents.last(turn.session):
            return "stale"
        if turn.new_session is not None and not self._write_session(
            turn.new_session, turn.new_customer
        ):
            return "stale"
        if turn.session not in contents.sessions:
            return "stale"
        contents.rows[turn.session].extend((visitor, turn.agent))
        if delivery is not None:
            contents.deliveries[turn.session, delivery] = visitor.seq
        contents.unanswered.pop(turn.session, None)
        return "written"

    def _write_unanswered(self, write: WriteUnanswered) -> Outcome:
        contents, ref = self._contents, write.session
        if write.new_session is not None and not self._write_session(
            write.new_session, write.new_customer
        ):
            return "stale"
        if write.sealed is not None:
            if ref not in contents.sessions:
                return "stale"
            contents.unanswered[ref] = (self._epoch, write.sealed)
            return "written"
        contents.unanswered.pop(ref, None)
        if not contents.last(ref) and not write.lasting:
            contents.drop_session(ref)
        return "written"

    def _write_session(self, session: SessionRow, customer: CustomerRow | None) -> bool:
        contents = self._contents
        if session.ref in contents.sessions or session.hash in contents.session_refs:
            return False
        if customer is not None and not self._write_customer(customer):
            return False
        if session.customer not in contents.customers:
            return False
        contents.sessions[session.ref] = session
        contents.session_refs[session.hash] = session.ref
        contents.rows[session.ref] = []
        return True

    def _fits(self, customer: CustomerRow) -> bool:
        """Whether this customer is there, or neither their `ref` nor their hash is."""
        contents = self._contents
        there = contents.customers.get(customer.ref)
        if there is not None:
            return there.hash == customer.hash
        return customer.hash not in contents.customer_refs

    def _write_customer(self, customer: CustomerRow) -> bool:
        if not self._fits(customer):
            return False
        self._contents.customers.setdefault(customer.ref, customer)
        self._contents.customer_refs[customer.hash] = customer.ref
        return True

    def _write_snapshot(self, write: WriteSession) -> Outcome:
        session = self._contents.sessions.get(write.session)
        if session is None or session.version != write.seen or session.cursor > write.cursor:
            return "stale"
        self._contents.sessions[write.session] = msgspec.structs.replace(
            session,
            cursor=write.cursor,
            snapshot=write.snapshot,
            version=session.version + 1,
        )
        return "written"

    def _write_customer_snapshot(self, write: WriteCustomer) -> Outcome:
        contents = self._contents
        customer = contents.customers.get(write.customer)
        if customer is None or customer.version != write.seen:
            return "stale"
        contents.customers[write.customer] = msgspec.structs.replace(
            customer, snapshot=write.snapshot, version=customer.version + 1
        )
        for ref, seq in write.derived:
            session = contents.sessions.get(ref)
            if session is not None and session.customer == write.customer:
                self._set_derived(ref, max(session.derived, min(seq, contents.last(ref))))
        return "written"

    def _set_derived(self, session: int, seq: int) -> None:
        sessions = self._contents.sessions
        sessions[session] = msgspec.structs.replace(sessions[session], derived=seq)
