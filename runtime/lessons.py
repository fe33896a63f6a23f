"""Turns to learn from: each as it is recorded, and what an earlier run left over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interturn.actors.commands import TurnRecorded
from interturn.actors.errors import InterturnError
from interturn.actors.message import Message
from interturn.runtime.errors import public_errors
from interturn.runtime.events import log
from interturn.runtime.keeping import SessionKeeping
from interturn.runtime.vault import Vault

if TYPE_CHECKING:
    from interturn.runtime.cell import Cell
    from interturn.runtime.customers import Customers


class Lesson:
    """Turns of one session to learn from: their messages, or where to read them.

    Attributes:
        session: whose rows they are.
        session_id: its id.
        first: the visitor's sequence number in the first of them.
        last: the same in the last.
        messages: of the one turn that it is, after what the agent said before it;
            None where they are to be read.
    """

    __slots__ = ("first", "last", "messages", "session", "session_id")

    def __init__(
        self,
        session: SessionKeeping,
        session_id: str,
        first: int,
        last: int,
        messages: tuple[Message, ...] | None,
    ) -> None:
        self.session = session
        self.session_id = session_id
        self.first = first
        self.last = last
        self.messages = messages


class Lessons:
    """Hands turns to the customers whom they say something about."""

    def __init__(self, vault: Vault, customers: Customers) -> None:
        self._vault = vault
        self._customers = customers
        self.catching_up = True

    def of_turn(self, cell: Cell, keeping: SessionKeeping, event: TurnRecorded) -> None:
        """Learn from a turn that was recorded, with what the agent said just before it."""
        seq = event.turn.seq
        asked = cell.actor.find(seq - 1) if cell.actor is not None else None
        messages = event.messages if asked is None else (asked, *event.messages)
        lesson = Lesson(keeping, cell.session_id, seq, seq, messages)
        self._customers.learning.learn(self._customers.cell(keeping.customer), lesson)

    def of_rest(self, session_id: str, keeping: SessionKeeping, last: int) -> None:
        """Learn from a session's turns that were recorded and never learnt from."""
        customer = self._customers.cell(keeping.customer)
        first = customer.learnt.get(keeping.ref, keeping.derived) + 1
        if first < last:
            self._customers.learning.learn(
                customer, Lesson(keeping, session_id, first, last - 1, None)
            )

    async def catch_up(self) -> None:
        """Do so for every session of the store, whether it ever comes back or not."""
        try:
            with public_errors():
                async for session_id, keeping, last in self._vault.underived():
                    self.of_rest(session_id, keeping, last)
        except InterturnError as error:
            log.error("catching_up_failed", error=type(error).__name__)
        finally:
            self.catching_up = False
