"""A store that fails when it is told to: for tests of whatever stands on a store.

What a bot does when the disk is full can't be seen while the disk has room. So
wrap the store that the test opens, and say what is to go wrong::

    store = Faulty(SqliteStore(path))
    async with Runtime.open(store, keyring=keyring) as runtime:
        store.full = True  # from now on nothing can be written
        with pytest.raises(StoreFailed):
            await session.record("hola", "buenas")
        store.full = False
        store.fail("write", applied=True)  # the next write is done, and nobody knows
        store.fail("read", nth=3)  # the third read from now fails
        store.before = slow  # an ``async def slow(method)``, awaited before each call

Everything else is the real store's doing.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from .base import Store
from .errors import StoreFailed
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

T = TypeVar("T")

WRITES: Final = frozenset(
    {"renew", "commit", "adopt", "undo", "delete_session", "prune", "shrink", "forget"}
)
"""The methods that ``"write"`` stands for; ``"read"`` stands for those that load."""

_NEITHER: Final = frozenset({"look", "open", "close"})


class _Fault(NamedTuple):
    error: BaseException
    applied: bool


class Faulty:
    """Any store, with faults on demand. See the module's head.

    Args:
        store: the store that does the work.

    Attributes:
        full: while True, whatever writes fails as on a full disk; nothing is written.
        before: awaited before each call with the method's name, if it is set.
        calls: how often each method was called.
    """

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.full = False
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.calls: Counter[str] = Counter()
        self._faults: defaultdict[str, deque[_Fault | None]] = defaultdict(deque)

    def __repr__(self) -> str:
        return f"Faulty({self.inner!r})"

    def fail(
        self,
        what: str = "write",
        error: BaseException | None = None,
        *,
        nth: int = 1,
        applied: bool = False,
    ) -> None:
        """Fail a call: the ``nth`` from now, or from the last that was told to fail so.

        Args:
            what: ``"write"``, ``"read"``, or the name of a method of the store.
            error: what is raised; None means `StoreFailed`, ``unknown`` with ``applied``.
            nth: which call, from 1.
            applied: whether the call is carried out first, as where only the
                answer is lost.
        """
        error = error or StoreFailed("a fault on demand", unknown=applied)
        self._faults[what].extend([None] * (nth - 1))
        self._faults[what].append(_Fault(error, applied))

    async def _call(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[method] += 1
        if self.before is not None:
            await self.before(method)
        if self.full and method in WRITES:
            raise StoreFailed("SQLITE_FULL: database or disk is full")
        fault = self._due(method)
        if fault is not None and not fault.applied:
            raise fault.error
        answer = await call()
        if fault is not None:
            raise fault.error
        return answer

    def _due(self, method: str) -> _Fault | None:
        kinds = [] if method in _NEITHER else ["write" if method in WRITES else "read"]
        due = [self._faults[what].popleft() for what in (method, *kinds) if self._faults[what]]
        return next((fault for fault in due if fault is not None), None)

    # The store.

    async def look(self) -> Root | None:
        """See `Store.look`."""
        return await self._call("look", self.inner.look)

    async def open(self, root: Root, *, owner: str, lease_s: float) -> Opened:
        """See `Store.open`."""
        call = self.inner.open
        return await self._call("open", lambda: call(root, owner=owner, lease_s=lease_s))

    async def renew(self) -> None:
        """See `Store.renew`."""
        await self._call("renew", self.inner.renew)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """See `Store.commit`."""
        return await self._call("commit", lambda: self.inner.commit(writes))

    async def load_session(self, session_hash: bytes, *, recent: int) -> LoadedSession | None:
        """See `Store.load_session`."""
        call = self.inner.load_session
        return await self._call("load_session", lambda: call(session_hash, recent=recent))

    async def load_customer(self, customer_hash: bytes) -> CustomerRow | None:
        """See `Store.load_customer`."""
        return await self._call("load_customer", lambda: self.inner.load_customer(customer_hash))

    async def rows(self, session: int, *, after: int, limit: int) -> list[Row]:
        """See `Store.rows`."""
        call = self.inner.rows
        return await self._call("rows", lambda: call(session, after=after, limit=limit))

    async def sessions_of(self, customer: int) -> list[SessionRow]:
        """See `Store.sessions_of`."""
        return await self._call("sessions_of", lambda: self.inner.sessions_of(customer))

    async def customers(self, *, after: int, limit: int) -> list[CustomerRow]:
        """See `Store.customers`."""
        call = self.inner.customers
        return await self._call("customers", lambda: call(after=after, limit=limit))

    async def underived(self, *, after: int, limit: int) -> list[Underived]:
        """See `Store.underived`."""
        call = self.inner.underived
        return await self._call("underived", lambda: call(after=after, limit=limit))

    async def unanswered(self, *, after: int, limit: int) -> list[Unanswered]:
        """See `Store.unanswered`."""
        call = self.inner.unanswered
        return await self._call("unanswered", lambda: call(after=after, limit=limit))

    async def aged(self, *, before: int, after: int, upto: int) -> list[bytes]:
        """See `Store.aged`."""
        call = self.inner.aged
        return await self._call("aged", lambda: call(before=before, after=after, upto=upto))

    async def adopt(self, adoption: Adoption) -> None:
        """See `Store.adopt`."""
        await self._call("adopt", lambda: self.inner.adopt(adoption))

    async def undo(self, session: int, seq: int, *, snapshot: WriteCustomer | None = None) -> bool:
        """See `Store.undo`."""
        call = self.inner.undo
        return await self._call("undo", lambda: call(session, seq, snapshot=snapshot))

    async def delete_session(self, session: int) -> int:
        """See `Store.delete_session`."""
        return await self._call("delete_session", lambda: self.inner.delete_session(session))

    async def prune(self, cuts: Sequence[Prune]) -> int:
        """See `Store.prune`."""
        return await self._call("prune", lambda: self.inner.prune(cuts))

    async def shrink(self) -> int:
        """See `Store.shrink`."""
        return await self._call("shrink", self.inner.shrink)

    async def forget(self, customer: int) -> Erased:
        """See `Store.forget`."""
        return await self._call("forget", lambda: self.inner.forget(customer))

    async def close(self) -> None:
        """See `Store.close`. What fails can still be closed, unless it is told otherwise."""
        await self._call("close", self.inner.close)
