"""What passes between a store and its caller: rows, writes and their outcomes.

Every text and id in them is sealed or a keyed hash. `storage.base` has the
contract that they are part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from .errors import Tampered
from .sealing import HASH_BYTES

ROLE_VISITOR, ROLE_AGENT = 0, 1


class Row(msgspec.Struct, frozen=True, gc=False):
    """One sealed message.

    Attributes:
        seq: its place in the session, from 1.
        role: 0 the visitor, 1 the agent.
        at: microseconds since 1970 UTC.
        sealed: the message, sealed with the session's key at this place.
        delivery: keyed hash of the delivery id, on the visitor's row only.
    """

    seq: int
    role: int
    at: int
    sealed: bytes
    delivery: bytes | None = None


class CustomerRow(msgspec.Struct, frozen=True, gc=False):
    """A customer: who, by keyed hash, and their wrapped key.

    Attributes:
        ref: the store's small integer for them.
        hash: keyed hash of the customer id.
        name: the customer id, sealed with the customer's key.
        key_id: the master key that wraps theirs.
        wrapped: the customer's wrapped key.
        snapshot: the customer actor's sealed state, if any was saved.
        version: of the snapshot; 0 before the first.
    """

    ref: int
    hash: bytes
    name: bytes
    key_id: str
    wrapped: bytes
    snapshot: bytes | None = None
    version: int = 0


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """A session: which, whose, its wrapped key and its actor's sealed state.

    Attributes:
        ref: the store's small integer for it.
        hash: keyed hash of the session id.
        customer: `ref` of the customer who owns it.
        name: the session id, sealed with the session's key.
        wrapped: the session's key, wrapped with the customer's.
        cursor: sequence number of the last message that the snapshot has folded.
        snapshot: the session actor's sealed state, if any was saved.
        version: of the snapshot; 0 before the first.
        derived: sequence number of the last message that facts have been derived
            from; never past the newest message.
        pruned: up to where its oldest messages were pruned, sealed; None if none were.
    """

    ref: int
    hash: bytes
    customer: int
    name: bytes
    wrapped: bytes
    cursor: int = 0
    snapshot: bytes | None = None
    version: int = 0
    derived: int = 0
    pruned: bytes | None = None


_Hash: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_SHAPES: Final[dict[type, Any]] = {
    Row: tuple[_Count, Literal[0, 1], int, bytes, bytes | None],
    # One whose key is gone is known by the name of no key, and refused by the keyring.
    CustomerRow: tuple[_Count, _Hash, bytes, str, bytes, bytes | None, _Count],
    SessionRow: tuple[
        _Count, _Hash, _Count, bytes, bytes, _Count, bytes | None, _Count, _Count, bytes | None
    ],
}


def check_row(row: Row | CustomerRow | SessionRow, table: str, where: str) -> None:
    """Hold a row that was read to its types and ranges: a damaged file gives any.

    Raises:
        Tampered: a value is none that was ever written.
    """
    check_values(msgspec.structs.astuple(row), _SHAPES[type(row)], table, where)
    if isinstance(row, CustomerRow) and (row.snapshot is None) != (row.version == 0):
        raise Tampered(table, where)  # a snapshot that was there once is gone


def check_values(values: object, shape: Any, table: str, where: str) -> None:
    """Hold values that were read to their types, as `check_row` does."""
    try:
        msgspec.convert(values, shape, builtin_types=(bytes,))
    except msgspec.ValidationError:
        pass  # raised outside: what is chained to an error must not quote the value
    else:
        return
    raise Tampered(table, where)


class LoadedSession(msgspec.Struct, frozen=True, gc=False):
    """All that activation needs: both rows, and what is newer than the snapshot.

    Attributes:
        session: the session.
        customer: its owner.
        last: the highest sequence number recorded.
        rows: the messages after the session's cursor, oldest first.
        deliveries: hash and sequence number of the deliveries among the newest
            messages (as many messages as `load_session` was asked to look at),
            oldest first.
    """

    session: SessionRow
    customer: CustomerRow
    last: int
    rows: list[Row]
    deliveries: list[tuple[bytes, int]]


class Underived(msgspec.Struct, frozen=True, gc=False):
    """A session with messages that no facts have been derived from yet.

    Attributes:
        session: the session, without its snapshot.
        customer: its owner, with their snapshot.
        last: the highest sequence number recorded.
    """

    session: SessionRow
    customer: CustomerRow
    last: int


class Unanswered(msgspec.Struct, frozen=True, gc=False):
    """What a visitor said that no turn has answered.

    Attributes:
        session: the session, without its snapshot.
        customer: its owner, with their snapshot.
        sealed: the words, sealed with the session's key.
    """

    session: SessionRow
    customer: CustomerRow
    sealed: bytes


class Totals(msgspec.Struct, frozen=True, gc=False):
    """How much a database holds, as of one moment.

    Attributes:
        customers: how many.
        sessions: how many.
        messages: how many.
        folded: sessions whose cursor has moved.
        oldest: the least time of a message, in microseconds since 1970 UTC; None if none.
        newest: the greatest.
        version: of the schema.
    """

    customers: int
    sessions: int
    messages: int
    folded: int
    oldest: int | None
    newest: int | None
    version: int


class Erased(msgspec.Struct, frozen=True, gc=False):
    """What went with a customer.

    Attributes:
        sessions: how many of their sessions.
        messages: how many messages in them.
    """

    sessions: int
    messages: int


class Opened(msgspec.Struct, frozen=True):
    """What `open` found.

    Attributes:
        epoch: of the lease that was taken; higher than any before.
        sessions: the highest session `ref` in use, 0 if none.
        customers: the highest customer `ref` in use, 0 if none.
    """

    epoch: int
    sessions: int
    customers: int


class Root(msgspec.Struct, frozen=True):
    """The store secret under the master key, and the proof that the key is right.

    Attributes:
        key_id: the master key that wraps the secret.
        wrapped: the wrapped secret, from which ids are hashed.
    """

    key_id: str
    wrapped: bytes


class WriteTurn(msgspec.Struct, frozen=True, gc=False):
    """One turn: exactly two rows; with its session and customer where they are new.

    `customer` is ignored where that customer is there already.
    """

    session: int
    visitor: Row
    agent: Row
    new_session: SessionRow | None = None
    new_customer: CustomerRow | None = None


class WriteUnanswered(msgspec.Struct, frozen=True, gc=False):
    """What a visitor said, kept until their session's next turn is written or known.

    One for each session: these replace those before. None takes them away, and
    with them a session that has no message, unless it is to stay (``lasting``).
    A new session and customer come along as with a turn.
    """

    session: int
    sealed: bytes | None
    new_session: SessionRow | None = None
    new_customer: CustomerRow | None = None
    lasting: bool = False


class WriteSession(msgspec.Struct, frozen=True, gc=False):
    """A session's snapshot with its cursor, if the stored version is still `seen`."""

    session: int
    cursor: int
    snapshot: bytes
    seen: int


class WriteCustomer(msgspec.Struct, frozen=True, gc=False):
    """A customer's snapshot, if the stored version is still `seen`, with how far it has come.

    `derived` names sessions (`ref`) and the sequence numbers up to which facts
    have been derived from them. These marks move in the same transaction, and
    forward only: not past a session's newest message, and not for a session
    that is another customer's by now. Stale, the marks stay too.
    """

    customer: int
    snapshot: bytes
    seen: int
    derived: tuple[tuple[int, int], ...] = ()


class Adoption(msgspec.Struct, frozen=True, gc=False):
    """What one customer takes over, in one transaction.

    Attributes:
        customer: `ref` of whom the sessions become.
        sessions: `ref` and newly wrapped key of each.
        new_sessions: of that customer's, with no turn yet; inserted.
        new_customer: that customer's row, inserted if they aren't there.
        snapshot: that customer's, if it changes.
        leaving: `ref` of another customer, who must own no session any more and is
            removed with their key and snapshot; absent, nothing is to remove.
    """

    customer: int
    sessions: Sequence[tuple[int, bytes]] = ()
    new_sessions: Sequence[SessionRow] = ()
    new_customer: CustomerRow | None = None
    snapshot: WriteCustomer | None = None
    leaving: int | None = None


Write: TypeAlias = WriteTurn | WriteUnanswered | WriteSession | WriteCustomer


class Prune(msgspec.Struct, frozen=True, gc=False):
    """A session's oldest messages, to be removed up to and with ``through``.

    Attributes:
        session: `ref` of the session.
        through: sequence number of the last message to go.
        seen: the mark that rests.
        mark: the mark that says ``through``, sealed; it replaces that one.
    """

    session: int
    through: int
    seen: bytes | None
    mark: bytes


class Known(msgspec.Struct, frozen=True):
    """The write's delivery was recorded before, at the visitor's `seq`; nothing was written."""

    seq: int


Outcome: TypeAlias = Known | Literal["written", "stale"]
"""``written``; ``stale``: the stored version, or the next sequence number, is another."""
