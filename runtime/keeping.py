"""Between what actors hold and what storage keeps: who owns which key, and the sealing.

Everything that leaves for the store passes here and is sealed, everything that
comes back passes here and is opened; `interturn.actors` never sees a key and
`interturn.storage` never a word.

Keys form a chain: a master key wraps each customer's key, a customer's key wraps
the keys of their sessions, a session's key seals its rows and its snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from interturn.actors.commands import Durable, Released, SummaryLaid, Turn
from interturn.actors.errors import CustomerMismatch
from interturn.actors.message import Message
from interturn.actors.ports import TokenCounter
from interturn.runtime.texts import scratch
from interturn.storage import (
    CustomerRow,
    Row,
    Sealer,
    SessionRow,
    Tampered,
    WriteSession,
    WriteTurn,
    sealing,
)
from interturn.storage.rows import ROLE_AGENT, ROLE_VISITOR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class CustomerKeeping:
    """A customer's place in the store and their key.

    Attributes:
        customer_id: None for an anonymous visitor, who is known by their session.
        new: the row to write with their first turn; None once it is there.
        version: of the snapshot that the store holds.
        state: that snapshot, opened, until `cell` has taken it up.
        cell: their place in memory, made by `interturn.runtime.customers`.
    """

    __slots__ = (
        "__weakref__",
        "cell",
        "customer_id",
        "hash",
        "new",
        "ref",
        "sealer",
        "state",
        "version",
    )

    def __init__(
        self, row: CustomerRow, sealer: Sealer, customer_id: str | None, *, new: bool
    ) -> None:
        self.ref = row.ref
        self.hash = row.hash
        self.customer_id = customer_id
        self.sealer = sealer
        self.new: CustomerRow | None = row if new else None
        self.version = row.version
        self.state: bytes | None = None
        self.cell: object = None
        if row.snapshot is not None:
            self.state = self.open_state(row.snapshot)

    def written(self) -> None:
        """Note that the store has a new snapshot of them, and so has them."""
        self.new = None
        self.version += 1

    def open_state(self, sealed: bytes) -> bytes:
        """Open the customer's state.

        Raises:
            Tampered: it isn't theirs, or was changed.
        """
        place, where = sealing.customer_place(self.hash), f"snapshot {self.ref}"
        return self.sealer.open(sealed, place, table="customers", where=where)

    def seal_state(self, state: bytes) -> bytes:
        """Seal the customer's state."""
        return self.sealer.seal(state, sealing.customer_place(self.hash))


class SessionKeeping:
    """A session's place in the store, its key, and its owner.

    Attributes:
        version: of the snapshot that the store holds.
        derived: sequence number up to which its customer's facts were learnt from
            it, as the store says.
        new: the row to write with the first turn; None once it is there.
        lasting: whether it stays in the store though it has no message: it was
            there before, or somebody was identified in it.
    """

    __slots__ = (
        "_key",
        "customer",
        "derived",
        "hash",
        "lasting",
        "new",
        "ref",
        "sealer",
        "version",
    )

    def __init__(
        self, row: SessionRow, key: bytes, customer: CustomerKeeping, *, new: bool
    ) -> None:
        self.ref = row.ref
        self.hash = row.hash
        self.version = row.version
        self.derived = row.derived
        self.customer = customer
        self.new: SessionRow | None = row if new else None
        self.lasting = not new
        self._key = key
        self.sealer = Sealer(key)

    def wrapped_for(self, customer: CustomerKeeping) -> bytes:
        """Return the session's key, wrapped for another customer."""
        return customer.sealer.seal(self._key, sealing.session_key_place(self.hash))

    def becomes(self, customer: CustomerKeeping) -> None:
        """Take note that the session is another customer's, in the store too."""
        self.customer = customer
        self.new = None
        self.lasting = True

    def check(self, claim: str | None) -> None:
        """Let the caller in if ``claim``, a customer's id, names the owner, or nobody.

        Raises:
            CustomerMismatch: they name somebody else.
        """
        if claim is not None and claim != self.customer.customer_id:
            raise CustomerMismatch

    def seal_turn(
        self, turn: Turn, count: Callable[[str], int], counter: str
    ) -> tuple[WriteTurn, tuple[Message, Message]]:
        """Count and seal a turn: the write for the store, and the messages as they will be."""
        visitor = Message(turn.seq, "visitor", turn.visitor, turn.at, count(turn.visitor))
        agent = Message(turn.seq + 1, "agent", turn.agent, turn.at, count(turn.agent))
        write = WriteTurn(
            self.ref,
            self._row(visitor, ROLE_VISITOR, counter, turn.delivery),
            self._row(agent, ROLE_AGENT, counter, None),
            self.new,
            self.customer.new if self.new is not None else None,
        )
        return write, (visitor, agent)

    def seal_snapshot(self, laid: SummaryLaid) -> WriteSession:
        """Seal the state that a fold leaves."""
        sealed = self.sealer.seal(laid.snapshot(), sealing.session_place(self.hash))
        return WriteSession(self.ref, laid.cursor, sealed, self.version)

    def written(self, what: Durable) -> None:
        """Note that the store has it."""
        if isinstance(what, SummaryLaid):
            self.version += 1
        elif not isinstance(what, Released):
            self.new = self.customer.new = None

    def open_snapshot(self, sealed: bytes) -> bytes:
        """Open a snapshot.

        Raises:
            Tampered: it isn't this session's, or was changed.
        """
        place = sealing.session_place(self.hash)
        return self.sealer.open(sealed, place, table="sessions", where=f"snapshot {self.ref}")

    def open_name(self, row: SessionRow) -> str:
        """Open the session's id.

        Raises:
            Tampered: it isn't this session's, or was changed.
        """
        place = sealing.session_name_place(self.hash)
        where = f"name {self.ref}"
        return self.sealer.open(row.name, place, table="sessions", where=where).decode()

    def open_row(self, row: Row, counter: TokenCounter | None) -> Message:
        """Open a row, counting its tokens anew if ``counter`` is another than did.

        Raises:
            Tampered: it isn't this session's message of this number, or was changed.
        """
        place = sealing.message_place(self.hash, row.seq, row.role)
        where = f"session {self.ref}, message {row.seq}"
        body = self.sealer.open(row.sealed, place, table="messages", where=where)
        text, tokens, name, when, delivery = _decode_body(body)
        if (when, delivery) != (row.at, row.delivery):
            raise Tampered("messages", where)  # what rests beside the sealed body, unsealed
        if counter is not None and name != counter.name:
            tokens = counter.count(text)
        at = moment(row.at)
        return Message(row.seq, "agent" if row.role == ROLE_AGENT else "visitor", text, at, tokens)

    def _row(self, message: Message, role: int, counter: str, delivery: bytes | None) -> Row:
        at = microseconds(message.at)
        body = _encode_body((scratch(message.text), message.tokens, counter, at, delivery))
        place = sealing.message_place(self.hash, message.seq, role)
        return Row(message.seq, role, at, self.sealer.seal(body, place), delivery)


def microseconds(at: datetime) -> int:
    """Return a time as it rests: microseconds since 1970 UTC."""
    return (at - _EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """Return a time that rests as microseconds since 1970 UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


_encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(tuple[str, int, str, int, bytes | None]).decode
