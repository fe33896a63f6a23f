"""The session actor: one conversation's window, summary and cursor.

`decide` looks at the state and says what should happen; it changes nothing.
What has to rest on disk comes back as a `Persist`; only when the store has
committed does `apply` change the state. So memory never runs ahead of disk, and
a failed commit leaves nothing half done. Whoever runs the actor keeps one
decision in flight at most, from `decide` to `apply`.

A turn is taken, then answered or released. While one is held, whatever would
write a turn waits (`WAIT`); looking never does.

The fold: what has left the window is handed out by `fold_due`, one fold at a
time, and comes back as `FoldDone`. It counts only if it is still the fold that
the actor waits for, which means that the cursor is where it began. When the
surplus reaches `TAKEOVER` windows the offline summarizer takes over from one
that fails or hangs, so that memory stays bounded and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from interturn.actors.commands import (
    WAIT,
    Answer,
    Command,
    Decision,
    Event,
    FoldDone,
    FoldFailed,
    FoldTask,
    Granted,
    Known,
    Now,
    Persist,
    Pruned,
    Record,
    Release,
    Released,
    Snapshot,
    SummaryLaid,
    Take,
    Taken,
    Turn,
    TurnRecorded,
)
from interturn.actors.errors import TurnClosed
from interturn.actors.extractive import Extractive
from interturn.actors.facts import Scored
from interturn.actors.message import Discreet, Message
from interturn.actors.ports import TokenCounter
from interturn.actors.request import Memory, Request, assemble
from interturn.actors.summary import Summary
from interturn.actors.window import Window

TAKEOVER: Final = 4
"""Windows of surplus at which the offline summarizer takes over."""

_COUNTS_KEPT: Final = 8


class Limits(msgspec.Struct, frozen=True):
    """The bounds of a session: `interturn.runtime.Settings` names and explains them."""

    window: int = 12
    fold_at: int = 2
    deliveries: int = 32
    summary_tokens: int = 400
    compaction_tokens: int = 200


class Layers(Discreet, frozen=True):
    """A session's memory as it stands.

    Attributes:
        window: the newest messages, word for word, oldest first.
        surplus: older messages that are not folded yet, oldest first.
        summary: all before them, folded.
        cursor: sequence number of the last folded message.
        customer: the id of the customer, None for an anonymous visitor.
    """

    window: tuple[Message, ...]
    surplus: tuple[Message, ...]
    summary: str
    cursor: int
    customer: str | None


class SessionActor:
    """One conversation. See the module's head for how it is driven.

    Args:
        limits: the bounds.
        counter: counts tokens; ``byte_level = True`` on it says that a text
            never has more tokens than UTF-8 bytes.
        extractive: the offline summarizer, which also compacts for requests.
    """

    __slots__ = (
        "_byte_level",
        "_compacted",
        "_count",
        "_counts",
        "_deliveries",
        "_extractive",
        "_folding",
        "_kept",
        "_limits",
        "_memory",
        "_resting",
        "_summary",
        "_window",
        "held",
    )

    def __init__(self, limits: Limits, counter: TokenCounter, extractive: Extractive) -> None:
        self._limits = limits
        self._count = counter.count
        self._byte_level: bool = getattr(counter, "byte_level", False)
        self._extractive = extractive
        self._window = Window(limits.window)
        self._summary = Summary()
        self._deliveries: dict[bytes, int] = {}
        self._folding: FoldTask | None = None
        self._resting = False
        self.held: int | None = None
        self._kept = False
        self._memory: Memory | None = None
        self._counts: dict[str, int] = {}
        self._compacted: tuple[tuple[int, int], str] = ((0, 0), "")

    def restore(
        self,
        snapshot: bytes | None,
        messages: Iterable[Message],
        deliveries: Iterable[tuple[bytes, int]] = (),
    ) -> None:
        """Take up the state that rests: the snapshot, and what was recorded after it.

        Raises:
            OutOfOrder: the messages don't follow the snapshot's cursor.
            msgspec.MsgspecError: the snapshot isn't one.
        """
        if snapshot is not None:
            state = msgspec.msgpack.decode(snapshot, type=Snapshot)
            # It may have been laid under a larger cap than the one that holds now.
            self._summary = Summary(state.lines).shortened(self._limits.summary_tokens, self.count)
            self._window = Window(self._limits.window, state.cursor)
        self._window.extend(messages)
        self._deliveries = dict(deliveries)
        self._memory = None

    def __repr__(self) -> str:
        return (
            f"SessionActor(cursor={self.cursor}, surplus={self._window.surplus_count}, "
            f"window={len(self._window)}, held={self.held is not None}, "
            f"folding={self._folding is not None})"
        )

    @property
    def cursor(self) -> int:
        """Sequence number of the last folded message."""
        return self._window.cursor

    @property
    def last(self) -> int:
        """Sequence number of the newest message, 0 before any."""
        return self._window.last

    @property
    def folding(self) -> bool:
        """Whether a fold is handed out and not back yet."""
        return self._folding is not None

    @property
    def kept(self) -> bool:
        """Whether what was asked in the turn that is held is on disk."""
        return self._kept

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of the messages that are not folded."""
        return self._window.text_bytes

    def find(self, seq: int) -> Message | None:
        """Return a message while it is not folded."""
        return self._window.find(seq)

    def decide(self, command: Command) -> Decision:
        """Say what should happen, changing nothing.

        Raises:
            TurnClosed: an answer to a turn that isn't held.
        """
        match command:
            case Take(ticket, delivery, asked):
                taken = Now(Taken(ticket), Granted()) if asked is None else Persist(asked)
                return self._unless_known(delivery) or taken
            case Answer(ticket, visitor, agent, at, delivery):
                if self.held != ticket:
                    raise TurnClosed
                return Persist(Turn(self.last + 1, visitor, agent, at, delivery, ticket))
            case Record(visitor, agent, at, delivery):
                return self._unless_known(delivery) or Persist(
                    Turn(self.last + 1, visitor, agent, at, delivery, None)
                )
            case Release(ticket):
                if self.held != ticket:
                    return Now()
                return Persist(Released(ticket)) if self._kept else Now(Released(ticket))
            case FoldDone(task, summary):
                if task is not self._folding:
                    return Now()
                if summary is None:
                    return Now(FoldFailed(task))
                return Persist(SummaryLaid(task, summary, task.leaving[-1].seq))

    def _unless_known(self, delivery: bytes | None) -> Decision | None:
        if self.held is not None:
            return WAIT
        seq = self._deliveries.get(delivery) if delivery is not None else None
        return None if seq is None else Now(reply=Known(seq))

    def apply(self, event: Event) -> None:
        """Change the state by what has happened."""
        match event:
            case Taken(ticket, kept):
                self.held = ticket
                self._kept = kept
            case Released():
                self.held = None
                self._kept = False
            case TurnRecorded(turn, messages):
                self._window.extend(messages)
                self._memory = None
                if turn.ticket is not None:
                    self.held = None
                    self._kept = False
                if turn.delivery is not None:
                    self._remember_delivery(turn.delivery, turn.seq)
            case SummaryLaid(_, summary, cursor):
                self._window.fold_through(cursor)
                self._summary = summary
                self._folding = self._memory = None
            case FoldFailed():
                self._folding = None
                self._resting = True
            case Pruned(through):
                known = self._deliveries.items()
                self._deliveries = {delivery: seq for delivery, seq in known if seq > through}

    def _remember_delivery(self, delivery: bytes, seq: int) -> None:
        self._deliveries[delivery] = seq
        while len(self._deliveries) > self._limits.deliveries:
            del self._deliveries[next(iter(self._deliveries))]

    def fold_due(self) -> FoldTask | None:
        """Hand out the next fold, or None if there is none to start now.

        Whole turns, at most `TAKEOVER` windows of them. The offline takeover
        replaces a fold that is still under way: that one's result comes too late.
        """
        bound = TAKEOVER * self._limits.window
        surplus = self._window.surplus_count
        takeover = surplus >= bound
        if takeover:
            busy = self._folding is not None and self._folding.offline
        else:
            busy = self._folding is not None or self._resting
        if busy or surplus < self._limits.fold_at:
            return None
        leaving = self._window.surplus[: min(bound, surplus - surplus % 2)]
        self._folding = FoldTask(self._summary, leaving, takeover)
        return self._folding

    def rested(self) -> None:
        """The back-off after a failed fold is over."""
        self._resting = False

    def layers(self, customer: str | None = None) -> Layers:
        """Return the session's memory as it stands."""
        window = self._window
        return Layers(window.newest, window.surplus, self._summary.text, window.cursor, customer)

    def memory(self, profile: str = "", facts: tuple[Scored, ...] = ()) -> Memory:
        """Return what a request is assembled from: immutable, kept until something changes."""
        if self._memory is None:
            self._memory = Memory(
                summary=tuple(line.text for line in self._summary.lines),
                history=tuple(self._window),
                history_tokens=self._window.tokens,
            )
        if not (profile or facts):
            return self._memory
        return msgspec.structs.replace(self._memory, profile=profile, facts=facts)

    def request(
        self,
        text: str,
        memory: Memory,
        *,
        instructions: str = "",
        knowledge: Sequence[str] = (),
        budget: int,
    ) -> Request:
        """Assemble the request for the visitor's ``text``.

        Touches no state but remembered counts, so that it may run in a thread
        with a `memory` taken before.

        Raises:
            BudgetExceeded: instructions and ``text`` alone don't fit.
        """
        return assemble(
            text,
            memory,
            instructions=instructions,
            knowledge=knowledge,
            budget=budget,
            compaction_tokens=self._limits.compaction_tokens,
            count=self.count,
            compact=self._compact,
            byte_level=self._byte_level,
        )

    def count(self, text: str) -> int:
        """Count a text's tokens, at most once while it is among the last few asked for."""
        tokens = self._counts.get(text)
        if tokens is None:
            tokens = self._count(text)
            counts = dict(list(self._counts.items())[1 - _COUNTS_KEPT :])
            counts[text] = tokens
            self._counts = counts
        return tokens

    def _compact(self, dropped: Sequence[Message], cap_tokens: int) -> str:
        """Compact whole turns for one request, once while the same turns are dropped."""
        key = (dropped[-1].seq, cap_tokens)
        kept_key, text = self._compacted
        if kept_key != key:
            text = self._extractive.extract(self._summary, dropped, cap_tokens)
            self._compacted = (key, text)
        return text
