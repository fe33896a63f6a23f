"""The vault: where sessions and customers are found in the store, or made.

One object stands for each customer, whoever asks and however many at once. What is
loaded is held to the order of its sequence numbers before anybody believes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread

from interturn.actors.message import Message
from interturn.actors.ports import TokenCounter
from interturn.runtime.events import log
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping
from interturn.runtime.promise import Promise
from interturn.runtime.tokens import INLINE_BYTES
from interturn.storage import (
    CustomerRow,
    Hasher,
    Keyring,
    LoadedSession,
    Opened,
    Row,
    Sealer,
    SessionRow,
    Store,
    Tampered,
    Unanswered,
    Underived,
    WrongKey,
    check_row,
    sealing,
)

_PAGE_ROWS: Final = 64
_ANONYMOUS: Final = b"anonymous"
_NAMED: Final = b"named\0"

T = TypeVar("T")
Left = TypeVar("Left", Underived, Unanswered)


class Vault:
    """Finds sessions and customers in the store, or makes them; opens what rests."""

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        hasher: Hasher,
        counter: TokenCounter | None,
        opened: Opened,
    ) -> None:
        self.store = store
        self.hasher = hasher
        self._counter = counter
        self.epoch = opened.epoch
        self.rested = 0
        self.erasures = 0
        self._keyring = keyring
        self._last_session = opened.sessions
        self._last_customer = opened.customers
        self._customers: WeakValueDictionary[bytes, CustomerKeeping] = WeakValueDictionary()
        self._finding: dict[bytes, Promise[CustomerKeeping | None]] = {}

    async def session(
        self, session_id: str, claims: Callable[[], str | None], *, recent: int
    ) -> tuple[SessionKeeping, LoadedSession | None]:
        """Find a session, or make one that isn't in the store yet.

        Args:
            session_id: which.
            claims: asked only if it is new: whom it belongs to, None for an
                anonymous visitor.
            recent: how many of the newest messages are looked at for deliveries.
        """
        session_hash = self.hasher.session(session_id)
        if (found := await self.found(session_hash, recent=recent)) is not None:
            return found
        claim = claims()
        if claim is None:
            customer = await self.customer(self.hasher.anonymous(session_id), None)
        else:
            customer = await self.named(claim)
        key = sealing.new_key()
        sealer = Sealer(key)
        self._last_session += 1
        row = SessionRow(
            ref=self._last_session,
            hash=session_hash,
            customer=customer.ref,
            name=sealer.seal(session_id.encode(), sealing.session_name_place(session_hash)),
            wrapped=customer.sealer.seal(key, sealing.session_key_place(session_hash)),
        )
        return SessionKeeping(row, key, customer, new=True), None

    async def found(
        self, session_hash: bytes, *, recent: int = 0
    ) -> tuple[SessionKeeping, LoadedSession] | None:
        """Find a session that is in the store."""
        erasures = -1
        while erasures != self.erasures:  # else it may be of somebody who is no more
            rested, erasures = self.rested, self.erasures
            loaded = await self.store.load_session(session_hash, recent=recent)
        if loaded is None:
            return None
        customer = await self._fresh(loaded.customer, since=rested)
        return self.opened(loaded.session, customer), loaded

    def opened(self, row: SessionRow, customer: CustomerKeeping) -> SessionKeeping:
        """Unwrap the key of a session that is in the store.

        Raises:
            Tampered: it was changed, or isn't this customer's.
        """
        where = f"key {row.ref}"
        check_row(row, "sessions", where)
        place = sealing.session_key_place(row.hash)
        key = customer.sealer.open(row.wrapped, place, table="sessions", where=where)
        return SessionKeeping(row, key, customer, new=False)

    async def named(self, customer_id: str) -> CustomerKeeping:
        """Find a customer by their id, or make one; see `customer`."""
        return await self.customer(self.hasher.customer(customer_id), customer_id)

    async def customer(self, customer_hash: bytes, customer_id: str | None) -> CustomerKeeping:
        """Find a customer, or make one that isn't in the store yet; one object for each.

        Those who ask while one is being found share that search; if whoever
        began it is cancelled, the next goes on.
        """
        while (finding := self._finding.get(customer_hash)) is not None:
            if (shared := await finding.wait()) is not None:
                return shared
        found = self._customers.get(customer_hash)
        if found is not None:
            return found
        finding = self._finding[customer_hash] = Promise()
        try:
            row = await self.store.load_customer(customer_hash)
            if row is not None:
                keeping = await self.known(row)
            else:
                keeping = await self._made(customer_hash, customer_id)
            finding.keep(keeping)
        except Exception as error:
            finding.fail(error)
            raise
        finally:
            del self._finding[customer_hash]
            finding.keep(None)  # cancelled, if there is no answer yet
        return keeping

    async def _fresh(self, row: CustomerRow, *, since: int) -> CustomerKeeping:
        """Return a customer whose row was read when ``rested`` was ``since``.

        Had they been in memory then, and come to rest and left meanwhile, the row
        would be older than what they left: so it is read again.
        """
        if since == self.rested or row.hash in self._customers:
            return await self.known(row)
        return await self.customer(row.hash, None)

    async def known(self, row: CustomerRow) -> CustomerKeeping:
        """Unwrap the key of a customer that is in the store."""
        where = f"key {row.ref}"
        check_row(row, "customers", where)
        found = self._customers.get(row.hash)
        if found is not None:
            return found
        place = sealing.customer_key_place(row.hash)
        key = await self._with_keyring(
            lambda: self._keyring.unwrap(
                row.key_id, row.wrapped, place, table="customers", where=where
            )
        )
        sealer = Sealer(key)
        keeping = CustomerKeeping(row, sealer, self._name_of(row, sealer), new=False)
        return self._customers.setdefault(row.hash, keeping)

    async def _made(self, customer_hash: bytes, customer_id: str | None) -> CustomerKeeping:
        key = sealing.new_key()
        place = sealing.customer_key_place(customer_hash)
        key_id, wrapped = await self._with_keyring(lambda: self._keyring.wrap(key, place))
        sealer = Sealer(key)
        name = _ANONYMOUS if customer_id is None else _NAMED + customer_id.encode()
        self._last_customer += 1
        row = CustomerRow(
            ref=self._last_customer,
            hash=customer_hash,
            name=sealer.seal(name, sealing.customer_name_place(customer_hash)),
            key_id=key_id,
            wrapped=wrapped,
        )
        keeping = CustomerKeeping(row, sealer, customer_id, new=True)
        return self._customers.setdefault(customer_hash, keeping)

    def _name_of(self, row: CustomerRow, sealer: Sealer) -> str | None:
        place = sealing.customer_name_place(row.hash)
        name = sealer.open(row.name, place, table="customers", where=f"name {row.ref}")
        return name.removeprefix(_NAMED).decode() if name.startswith(_NAMED) else None

    async def underived(self) -> AsyncIterator[tuple[str, SessionKeeping, int]]:
        """Iterate over sessions with turns that facts were never learnt from.

        Yields:
            Session id, its keeping, and the sequence number of its newest message.
        """
        async for left, keeping in self.left(self.store.underived):
            yield keeping.open_name(left.session), keeping, left.last

    async def left(
        self, load: Callable[..., Awaitable[list[Left]]]
    ) -> AsyncIterator[tuple[Left, SessionKeeping]]:
        """Iterate over the sessions that ``load`` lists in pages, with the keeping of each.

        One whose key doesn't open is left out, and an event says so.
        """
        after = 0
        while True:
            rested, erasures = self.rested, self.erasures
            page = await load(after=after, limit=_PAGE_ROWS)
            if not page:
                return
            for left in page:
                if self.erasures != erasures:
                    break  # it may tell of somebody who is no more: the rest is read again
                after = left.session.ref
                try:
                    customer = await self._fresh(left.customer, since=rested)
                    keeping = self.opened(left.session, customer)
                except (Tampered, WrongKey) as error:
                    log.error("session_refused", error=type(error).__name__)
                    continue
                yield left, keeping

    @property
    def last_session(self) -> int:
        """The highest session `ref` in use."""
        return self._last_session

    def forgets(self, customer: CustomerKeeping) -> None:
        """Let go of a customer who isn't in the store any more."""
        self.erasures += 1
        self._customers.pop(customer.hash, None)

    async def messages(self, keeping: SessionKeeping, rows: list[Row]) -> list[Message]:
        """Open rows; off the loop where they are large.

        Raises:
            Tampered: a row was changed, moved or cut.
        """

        def opened() -> list[Message]:
            return [keeping.open_row(row, self._counter) for row in rows]

        if sum(len(row.sealed) for row in rows) > 4 * INLINE_BYTES:
            return await anyio.to_thread.run_sync(opened)
        return opened()

    async def _with_keyring(self, work: Callable[[], T]) -> T:
        """Wrap or unwrap; off the loop where a key service has to be asked."""
        if self._keyring.local:
            return work()
        return await anyio.to_thread.run_sync(work)


def check_chain(loaded: LoadedSession) -> None:
    """Hold what was loaded to the order of its sequence numbers.

    Raises:
        Tampered: rows are missing between the cursor and the newest, or half a turn.
    """
    expected = loaded.session.cursor + 1
    for row in loaded.rows:
        if row.seq != expected:
            raise Tampered("messages", f"session {loaded.session.ref}, message {expected}")
        expected += 1
    if loaded.last != expected - 1 or loaded.last % 2:
        raise Tampered("messages", f"session {loaded.session.ref}, message {expected}")


def check_sequence(session: int, messages: Sequence[Message], *, after: int) -> None:
    """Hold a page of messages to follow each other and what came before.

    Raises:
        Tampered: one is missing.
    """
    for expected, message in enumerate(messages, after + 1):
        if message.seq != expected:
            raise Tampered("messages", f"session {session}, message {expected}")
