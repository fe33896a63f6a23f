"""What a session actor has decided, on its way through the writer to disk."""

from __future__ import annotations

from collections.abc import Callable

from interturn.actors.commands import (
    Asked,
    Durable,
    Event,
    Released,
    SummaryLaid,
    Taken,
    Turn,
    TurnRecorded,
)
from interturn.actors.errors import InterturnError
from interturn.actors.ports import TokenCounter
from interturn.runtime.cell import Cell
from interturn.runtime.errors import StoreFailed
from interturn.runtime.events import log
from interturn.runtime.keeping import SessionKeeping
from interturn.runtime.letter import Letter
from interturn.runtime.statistics import Counters
from interturn.runtime.unanswered import seal
from interturn.storage import Known, Outcome, Write, WriteUnanswered


class Decided:
    """A decision on its way to disk."""

    __slots__ = (
        "_cell",
        "_counter",
        "_counters",
        "_event",
        "_keeping",
        "_learn",
        "_letter",
        "_what",
        "size",
    )

    def __init__(
        self,
        cell: Cell,
        letter: Letter,
        what: Durable,
        *,
        counter: TokenCounter,
        counters: Counters,
        learn: Callable[[Cell, SessionKeeping, TurnRecorded], None],
    ) -> None:
        assert cell.keeping is not None
        self._counter = counter
        self._counters = counters
        self._learn = learn
        self._cell = cell
        self._keeping = cell.keeping
        self._letter = letter
        self._what = what
        self._event: Event | None = None
        self.size = what.size

    def prepare(self) -> Write:
        """Count and seal."""
        match self._what:
            case SummaryLaid():
                self._event = self._what
                return self._keeping.seal_snapshot(self._what)
            case Asked(ticket):
                self._event = Taken(ticket, kept=True)
                return seal(self._keeping, self._what)
            case Released():
                self._event = self._what
                return WriteUnanswered(self._keeping.ref, None, lasting=self._keeping.lasting)
        actor, counter = self._cell.actor, self._counter
        assert actor is not None
        write, messages = self._keeping.seal_turn(self._what, actor.count, counter.name)
        self._event = TurnRecorded(self._what, messages)
        return write

    def settle(self, outcome: Outcome) -> None:
        """It is durable, or can't be accepted."""
        counters = self._counters
        if outcome == "stale":
            self.fail(StoreFailed("the stored state is not the one in memory"))
            return
        counters.in_flight -= self._letter.counted
        if isinstance(outcome, Known):
            self._cell.settled(self._letter, self._what, outcome.seq, None)
            return
        self._keeping.written(self._what)
        counters.turns += isinstance(self._what, Turn)
        counters.folds += isinstance(self._what, SummaryLaid)
        self._cell.settled(self._letter, self._what, None, self._event)
        if isinstance(self._event, TurnRecorded):
            self._learn(self._cell, self._keeping, self._event)

    def fail(self, error: InterturnError) -> None:
        """It was not written, or may not have been."""
        self._counters.in_flight -= self._letter.counted
        log.warning("write_failed", key=self._cell.key, error=type(error).__name__)
        self._cell.unsettled(self._letter, self._what, error)
