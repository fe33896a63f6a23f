"""A message on its way to an actor, and what a cell needs of the house that it lives in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from interturn.actors.commands import Command, Durable
from interturn.runtime.promise import Promise

if TYPE_CHECKING:
    from interturn.runtime.cell import Cell


class Look:
    """A question that reads the actor and changes nothing."""

    __slots__ = ("question",)

    def __init__(self, question: Callable[[Cell], Any]) -> None:
        self.question = question


class Letter:
    """A message on its way to an actor, and the promise of its answer.

    Attributes:
        command: what the actor is to decide, or to be asked.
        claim: the id of the customer whom the caller names, if any.
        promise: of the answer.
        queue: where it waits; None when it is under way or answered.
        counted: whether it was admitted, and so has to be accounted for.
        abandoned: whether the caller left while it was under way.
        withdrawn: whether it was taken back while it waited, so that nothing came of it.
    """

    __slots__ = ("abandoned", "claim", "command", "counted", "promise", "queue", "withdrawn")

    def __init__(
        self, command: Command | Look, claim: str | None = None, *, counted: bool = False
    ) -> None:
        self.command = command
        self.claim = claim
        self.promise: Promise[Any] = Promise()
        self.queue: deque[Letter] | None = None
        self.counted = counted
        self.abandoned = False
        self.withdrawn = False


class House(Protocol):
    """What a cell needs of the runtime that it lives in. All of it returns at once."""

    def token(self, session_id: str) -> str:
        """Return what stands for a session in logs and errors."""

    def admit(self, cell: Cell, command: object) -> None:
        """Count a message in, or raise `MailboxFull`, `Overloaded`, `RuntimeClosed`."""

    def answered(self, *, failed: bool, late: bool, duplicate: bool = False) -> None:
        """Count a message out.

        Args:
            failed: it was answered with an error.
            late: whoever sent it has left.
            duplicate: the answer is that the delivery was recorded before.
        """

    def queued(self, change: int) -> None:
        """Count messages into queues, or out of them."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def utc(self) -> datetime:
        """Return the present time in UTC."""

    def go_on(self, cell: Cell) -> None:
        """Call `Cell.pump` from a task of the runtime's."""

    def activate(self, cell: Cell) -> None:
        """Bring the actor in, in a task of the runtime's: `Cell.arrived` or `Cell.refused`."""

    def persist(self, cell: Cell, letter: Letter, what: Durable) -> None:
        """Hand a decision to the writer: `Cell.settled` or `Cell.unsettled`."""

    def changed(self, cell: Cell) -> None:
        """The actor's state changed: there may be a fold to start."""

    def freed(self) -> None:
        """A turn is free again."""

    def fold_failed(self, cell: Cell) -> None:
        """A fold failed: let the actor know when it has rested."""

    def waits(self, cell: Cell, ticket: int) -> None:
        """Somebody waits for the turn that is held under this ticket."""

    def failing(self, cell: Cell, error: BaseException) -> float | None:
        """Note a failure; return seconds to rest if the cell has failed too often."""

    def gone(self, cell: Cell) -> None:
        """The cell is absent: it may be forgotten."""
