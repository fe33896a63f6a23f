"""What a session actor is told, what it decides, and what then happens: all as values.

Commands come in, `SessionActor.decide` answers with a decision, and an event says
what has happened; `SessionActor.apply` takes events and nothing else.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final, TypeAlias

import msgspec

from interturn.actors.message import Discreet, Message
from interturn.actors.summary import Line, Summary

_SNAPSHOT_FORMAT: Final = 1


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The session's state as it rests; a later format only adds fields."""

    format: int
    cursor: int
    lines: tuple[Line, ...]


# What an actor is told.


class Asked(Discreet, frozen=True):
    """What the visitor says, to be kept until the turn that it takes is answered.

    Attributes:
        ticket: under which the turn is taken.
        text: the words.
        at: when (UTC).
        delivery_id: the transport's id of them, if it gave one.
    """

    ticket: int
    text: str
    at: datetime
    delivery_id: str | None

    @property
    def size(self) -> int:
        """About how much there is to seal, in characters."""
        return len(self.text)


class Take(Discreet, frozen=True):
    """Take the turn, unless this delivery was answered before.

    What is ``asked``, if anything, is on disk before the turn is taken.
    """

    ticket: int
    delivery: bytes | None = None
    asked: Asked | None = None


class Release(Discreet, frozen=True):
    """Give the turn back unanswered. A turn that isn't held any more is no error."""

    ticket: int


class Answer(Discreet, frozen=True):
    """Record the turn that is held under this ticket."""

    ticket: int
    visitor: str
    agent: str
    at: datetime
    delivery: bytes | None = None


class Record(Discreet, frozen=True):
    """Record a turn that happened elsewhere."""

    visitor: str
    agent: str
    at: datetime
    delivery: bytes | None = None


class FoldTask(Discreet, frozen=True):
    """A fold to do: what leaves the window, and the summary that it is laid on.

    Attributes:
        summary: the summary so far.
        leaving: whole turns, oldest first.
        offline: whether the offline summarizer is to do it.
    """

    summary: Summary
    leaving: tuple[Message, ...]
    offline: bool


class FoldDone(Discreet, frozen=True):
    """A fold came to its end: the new summary, or None if it failed."""

    task: FoldTask
    summary: Summary | None


Command: TypeAlias = Take | Release | Answer | Record | FoldDone


# What happens.


class Taken(Discreet, frozen=True):
    """The turn is held under this ticket; ``kept`` says whether what was asked is on disk."""

    ticket: int
    kept: bool = False


class Released(Discreet, frozen=True):
    """The turn that was held under this ticket is free; what was asked isn't on disk any more."""

    size: ClassVar[int] = 0

    ticket: int


class Turn(Discreet, frozen=True):
    """A turn to record: two messages that follow the newest.

    Attributes:
        seq: of the visitor's message; the agent's is the next.
        ticket: under which the turn was held, None if it was recorded unheld.
    """

    seq: int
    visitor: str
    agent: str
    at: datetime
    delivery: bytes | None
    ticket: int | None

    @property
    def size(self) -> int:
        """About how much there is to count and seal, in characters."""
        return len(self.visitor) + len(self.agent)


class TurnRecorded(Discreet, frozen=True):
    """A turn is on disk."""

    turn: Turn
    messages: tuple[Message, Message]


class SummaryLaid(Discreet, frozen=True):
    """A fold is to be kept: summary and cursor change together or not at all."""

    task: FoldTask
    summary: Summary
    cursor: int

    @property
    def size(self) -> int:
        """About how much there is to seal, in characters."""
        return sum(len(line.text) for line in self.summary.lines)

    def snapshot(self) -> bytes:
        """Encode the state that rests: `SessionActor.restore` reads it."""
        return msgspec.msgpack.encode(Snapshot(_SNAPSHOT_FORMAT, self.cursor, self.summary.lines))


class FoldFailed(Discreet, frozen=True):
    """A fold failed: the surplus waits."""

    task: FoldTask


class Pruned(Discreet, frozen=True):
    """The oldest messages were pruned, up to and with this number."""

    through: int


Event: TypeAlias = Taken | Released | TurnRecorded | SummaryLaid | FoldFailed | Pruned


# What an actor decides.


class Granted(msgspec.Struct, frozen=True):
    """The turn is taken."""


class Known(msgspec.Struct, frozen=True):
    """The delivery was answered before: the visitor's message has this number."""

    seq: int


Durable: TypeAlias = Asked | Released | Turn | SummaryLaid
"""What can be brought to disk; to release a turn is to take from there what was asked."""


class Persist(msgspec.Struct, frozen=True):
    """Bring this to disk; when it is there, `apply` the event that follows from it."""

    what: Durable


class Now(msgspec.Struct, frozen=True):
    """Nothing to bring to disk: apply the event, if any, and give the reply."""

    event: Event | None = None
    reply: Granted | Known | None = None


class Wait(msgspec.Struct, frozen=True):
    """Another turn is held: ask again when it is free."""


WAIT: Final = Wait()
Decision: TypeAlias = Persist | Now | Wait
