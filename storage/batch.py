"""A batch of writes, checked and sorted by kind before anything is touched.

All turns of a batch are applied before unanswered words, these before snapshots,
and sessions' snapshots before customers': nothing else depends on their order, and
each kind can go in one statement. How far facts have been derived comes last, when
it is known which customers' snapshots were written.
"""

from __future__ import annotations

from collections.abc import Sequence

from .rows import (
    ROLE_AGENT,
    ROLE_VISITOR,
    Adoption,
    CustomerRow,
    Outcome,
    Write,
    WriteCustomer,
    WriteSession,
    WriteTurn,
    WriteUnanswered,
)


class Batch:
    """Writes by kind, with a place for each one's outcome.

    Attributes:
        turns: the turns, in order.
        unanswered: what visitors said, in order.
        snapshots: the sessions' snapshots, in order.
        customers: the customers' snapshots, in order.

    Raises:
        ValueError: a turn is not two rows of a visitor and an agent in a row,
            or names a session or customer other than it brings; or a session's
            unanswered words come twice. Nothing was written.
    """

    __slots__ = ("_writes", "customers", "snapshots", "turns", "unanswered")

    def __init__(self, writes: Sequence[Write]) -> None:
        self._writes = writes
        self.turns: list[WriteTurn] = []
        self.unanswered: list[WriteUnanswered] = []
        self.snapshots: list[WriteSession] = []
        self.customers: list[WriteCustomer] = []
        for write in writes:
            if isinstance(write, WriteTurn):
                _check(write)
                self.turns.append(write)
            elif isinstance(write, WriteUnanswered):
                _check_bringing(write)
                self.unanswered.append(write)
            elif isinstance(write, WriteSession):
                self.snapshots.append(write)
            else:
                self.customers.append(write)
        if len({write.session for write in self.unanswered}) < len(self.unanswered):
            raise ValueError("a session's unanswered words come twice")

    @property
    def plain(self) -> bool:
        """Whether there are turns and nothing else: no new session, no snapshot."""
        return not (self.unanswered or self.snapshots or self.customers) and all(
            turn.new_session is None for turn in self.turns
        )

    def outcomes(
        self,
        turns: Sequence[Outcome],
        unanswered: Sequence[Outcome],
        snapshots: Sequence[Outcome],
        customers: Sequence[Outcome],
    ) -> list[Outcome]:
        """Return the outcomes of all kinds in the order of the writes."""
        told = {
            WriteTurn: iter(turns),
            WriteUnanswered: iter(unanswered),
            WriteSession: iter(snapshots),
            WriteCustomer: iter(customers),
        }
        return [next(told[type(write)]) for write in self._writes]


def new_customers(writes: Sequence[WriteTurn | WriteUnanswered]) -> list[CustomerRow]:
    """Return the customers that these writes bring, each once; the first to bring one counts."""
    found: dict[tuple[int, bytes], CustomerRow] = {}
    for write in writes:
        if write.new_customer is not None:
            found.setdefault((write.new_customer.ref, write.new_customer.hash), write.new_customer)
    return list(found.values())


def check_adoption(adoption: Adoption) -> None:
    """Raise `ValueError` unless what it brings belongs together."""
    customer = adoption.customer
    if adoption.new_customer is not None and adoption.new_customer.ref != customer:
        raise ValueError("an adoption brings another customer than its own")
    if adoption.snapshot is not None and adoption.snapshot.customer != customer:
        raise ValueError("an adoption brings another customer's snapshot")
    if any(session.customer != customer for session in adoption.new_sessions):
        raise ValueError("an adoption brings another customer's session")
    if adoption.leaving == customer:
        raise ValueError("a customer can't adopt from themselves and leave")


def _check(turn: WriteTurn) -> None:
    visitor, agent = turn.visitor, turn.agent
    if visitor.role != ROLE_VISITOR or agent.role != ROLE_AGENT:
        raise ValueError("a turn is a visitor's row and an agent's row")
    if visitor.seq < 1 or agent.seq != visitor.seq + 1:
        raise ValueError(f"rows {visitor.seq} and {agent.seq} don't follow each other")
    if agent.delivery is not None:
        raise ValueError("a delivery rests on the visitor's row")
    _check_bringing(turn)


def _check_bringing(write: WriteTurn | WriteUnanswered) -> None:
    if write.new_session is not None and write.new_session.ref != write.session:
        raise ValueError("a write brings another session than its own")
    if write.new_customer is not None:
        if write.new_session is None:
            raise ValueError("a new customer comes with a new session")
        if write.new_session.customer != write.new_customer.ref:
            raise ValueError("a write brings another customer than its session's")
