"""Handles: what the embedding application holds of a session and of a turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self, TypeVar

from interturn.actors.commands import Answer, Asked, Known, Record, Release, Take, TurnRecorded
from interturn.actors.errors import (
    BudgetExceeded,
    DeliveryConflict,
    TurnClosed,
    TurnExpired,
)
from interturn.actors.message import Discreet, Message
from interturn.actors.request import Memory, Request
from interturn.actors.session import Layers, SessionActor
from interturn.runtime.cell import Cell
from interturn.runtime.customer import Customer
from interturn.runtime.errors import Reentered, StoreFailed, Tampered, public_errors
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping
from interturn.runtime.letter import Look
from interturn.runtime.pruning import check_page
from interturn.runtime.supervisor import Supervisor
from interturn.runtime.texts import (
    check_id,
    check_seconds,
    check_text,
    check_texts,
    check_time,
    check_whole,
)
from interturn.runtime.threads import in_thread
from interturn.runtime.tokens import INLINE_BYTES
from interturn.runtime.vault import check_sequence

_PAGE_ROWS: Final = 200
_CHARACTERS_A_TOKEN: Final = 4
"""About, for Western text: only to guess where there is work for a thread."""
_INLINE_HISTORY_BYTES: Final = 4 * INLINE_BYTES

T = TypeVar("T")


class Recorded(Discreet, frozen=True):
    """A turn is on disk.

    Attributes:
        seq: sequence number of the visitor's message; the agent's is the next.
        at: when it was recorded (UTC).
        duplicate: the delivery was there already; then nothing was written.
        reply: the agent's message as it is stored.
    """

    seq: int
    at: datetime
    duplicate: bool
    reply: Message


class Session:
    """One conversation, by its id. A handle costs nothing: no I/O, no state."""

    __slots__ = ("_customer_id", "_supervisor", "session_id")

    def __init__(
        self, supervisor: Callable[..., Supervisor], session_id: str, customer_id: str | None
    ) -> None:
        check_id("session_id", session_id)
        if customer_id is not None:
            check_id("customer", customer_id)
        self.session_id = session_id
        self._customer_id = customer_id
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"Session(customer={'named' if self._customer_id else 'unnamed'})"

    @property
    def customer(self) -> Customer:
        """The customer whom this session belongs to, anonymous or named."""
        return Customer(self._supervisor, self._customer_id, session=self)

    def turn(
        self,
        text: str,
        *,
        instructions: str = "",
        knowledge: Sequence[str] = (),
        budget: int | None = None,
        delivery_id: str | None = None,
        timeout: float | None = None,
    ) -> Turn:
        """Take the session for one turn: ``async with session.turn(text) as turn``.

        Turns of one session are held one after the other, first come, first
        served. Leaving the block without `Turn.reply` writes nothing. With the
        setting ``keep_unanswered`` the text is on disk, sealed, from entering the
        block to leaving it, and in the database after a crash: see
        `Runtime.unanswered`.

        Args:
            text: what the visitor says, at most ``text_bytes`` of UTF-8.
            instructions: the application's own, first in the request.
            knowledge: what the application looked up for this turn, best first.
            budget: tokens of the request at most; None means the setting.
            delivery_id: the transport's id of this message, at most 512 bytes; the
                same id twice is one turn.
            timeout: seconds to wait for the turn at most; None means ``turn_s``.

        Raises:
            InvalidText, InvalidId: on entering, as the rest.
            BudgetExceeded: instructions and text alone don't fit.
            CustomerMismatch: the session belongs to another customer.
            DeliveryConflict: this delivery was recorded with other words.
            TurnTimeout: the turn wasn't free in time.
            Reentered: this very task holds the session's turn.
            MailboxFull, Overloaded, Quarantined: retry later.
            StoreFailed, Tampered: the session can't be read, or with
                ``keep_unanswered`` not written to.
            RuntimeClosed, Fenced: the runtime is at its end.
        """
        return Turn(self, text, instructions, knowledge, budget, delivery_id, timeout)

    async def assemble(
        self,
        text: str,
        *,
        instructions: str = "",
        knowledge: Sequence[str] = (),
        budget: int | None = None,
    ) -> Request:
        """Assemble the request for ``text`` as a turn would, taking nothing.

        Waits for nobody's turn, and reads no disk while the session is in memory.

        Raises:
            InvalidText, BudgetExceeded, CustomerMismatch: as for `turn`.
        """
        known = self._checked(text, instructions, knowledge, budget)
        actor, memory = await self._remembered(text)
        return await self._assembled(actor, memory, text, instructions, known, budget)

    async def record(
        self,
        visitor: str,
        agent: str,
        *,
        delivery_id: str | None = None,
        at: datetime | None = None,
    ) -> Recorded:
        """Write a turn that happened elsewhere: an import, a replay.

        It waits for the turn that is held, in the same line as `turn`.

        Args:
            visitor: what the visitor said.
            agent: what the agent replied.
            delivery_id: as for `turn`.
            at: when it was said, aware; None means now. It orders nothing.

        Raises:
            InvalidText, InvalidId, CustomerMismatch, DeliveryConflict: as for `turn`.
            StoreFailed: it isn't on disk; with ``unknown``, it may be.
        """
        supervisor = self._supervisor()
        bound = supervisor.settings.text_bytes
        check_text("visitor", visitor, bound)
        check_text("agent", agent, bound)
        at = check_time(at) or supervisor.utc()
        delivery = self._delivery(delivery_id)
        cell = supervisor.reach(self.session_id, self._customer_id)
        self._refuse_reentry(supervisor)
        letter = cell.ask(Record(visitor, agent, at, delivery), self._customer_id)
        answer = await supervisor.answer(cell, letter, supervisor.settings.turn_s)
        return await self._recorded(answer, visitor)

    async def layers(self) -> Layers:
        """Return window, surplus, summary and cursor as they stand, and whose they are."""
        return await self._look(_layers)

    async def transcript(self) -> AsyncIterator[Message]:
        """Iterate over all messages that were not pruned, oldest first, read in pages."""
        keeping, last = await self._look(lambda cell: (_keeping(cell), _last(cell)))
        after = 0
        while page := await self._page(keeping, after, _PAGE_ROWS):
            with public_errors():
                await check_page(self._supervisor().vault, keeping, page, after=after)
            for message in page:
                yield message
            after = page[-1].seq
        if after < last:
            raise Tampered("messages", f"session {keeping.ref}, message {after + 1}")

    async def identify(self, customer_id: str) -> None:
        """Make the anonymous visitor of this session a customer: it turned out who they are.

        The session and what was learnt from it become the customer's, in one
        transaction; nothing is sealed again. It waits for the turn that is held.

        Raises:
            CustomerMismatch: the session belongs to another named customer.
        """
        check_id("customer_id", customer_id)
        supervisor = self._supervisor()
        moves = supervisor.moves
        self._refuse_reentry(supervisor)
        await moves.carried_out(lambda: moves.identify(self.session_id, customer_id))

    async def undo(self) -> bool:
        """Take back the newest turn, while it is in the window, and what it alone taught.

        Returns:
            Whether there was one to take back.
        """
        supervisor = self._supervisor()
        moves, claim = supervisor.moves, self._customer_id
        self._refuse_reentry(supervisor)
        return await moves.carried_out(lambda: moves.undo(self.session_id, claim))

    async def delete(self) -> int:
        """Destroy this session: its key, its messages, its summary.

        What was learnt about the customer is theirs and stays.

        Returns:
            How many messages went.
        """
        supervisor = self._supervisor()
        moves, claim = supervisor.moves, self._customer_id
        self._refuse_reentry(supervisor)
        return await moves.carried_out(lambda: moves.delete(self.session_id, claim))

    def _refuse_reentry(self, supervisor: Supervisor) -> None:
        if supervisor.reach(self.session_id, self._customer_id).held_by(asyncio.current_task()):
            raise Reentered

    async def owner(self) -> CustomerKeeping:
        """Return whom the session belongs to, with their key: for `Customer`."""
        return (await self._look(_keeping)).customer

    # What turns use too.

    def _delivery(self, delivery_id: str | None) -> bytes | None:
        if delivery_id is None:
            return None
        check_id("delivery_id", delivery_id)
        hasher = self._supervisor().vault.hasher
        return hasher.delivery(hasher.session(self.session_id), delivery_id)

    def _checked(
        self, text: str, instructions: str, knowledge: Sequence[str], budget: int | None
    ) -> tuple[str, ...]:
        """Hold what a request is asked with to what can be; return the knowledge."""
        bound = self._supervisor().settings.text_bytes
        check_text("visitor", text, bound)
        if instructions != "":
            check_text("instructions", instructions, bound)
        check_whole("budget", budget)
        return check_texts("knowledge", knowledge, bound)

    async def _remembered(self, text: str) -> tuple[SessionActor, Memory]:
        supervisor = self._supervisor()
        if supervisor.retrieving.prepares:
            customers = supervisor.customers
            customer = await self._look(lambda cell: customers.cell(_keeping(cell).customer))
            await supervisor.retrieving.prepare(customer, text)
        return await self._look(lambda cell: supervisor.remembered(cell, text))

    async def _look(self, question: Callable[[Cell], T]) -> T:
        supervisor = self._supervisor()
        cell = supervisor.reach(self.session_id, self._customer_id)
        if cell.ready:
            return cell.look(question, self._customer_id)
        answer: T = await supervisor.answer(cell, cell.ask(Look(question), self._customer_id))
        return answer

    async def _assembled(
        self,
        actor: SessionActor,
        memory: Memory,
        text: str,
        instructions: str,
        knowledge: tuple[str, ...],
        budget: int | None,
    ) -> Request:
        """Assemble, off the loop where there is much to count or to compact."""
        tokens = self._supervisor().settings.budget if budget is None else budget

        def assemble() -> Request:
            return actor.request(
                text, memory, instructions=instructions, knowledge=knowledge, budget=tokens
            )

        given = len(text) + len(instructions) + sum(map(len, knowledge))
        # Where history is sure to be dropped, it is compacted: milliseconds of reading.
        compacts = memory.history_tokens + given // _CHARACTERS_A_TOKEN > tokens
        if compacts or given > INLINE_BYTES or actor.text_bytes > _INLINE_HISTORY_BYTES:
            return await in_thread(assemble)
        return assemble()

    async def _recorded(self, answer: TurnRecorded | Known, visitor: str) -> Recorded:
        if isinstance(answer, TurnRecorded):
            said, reply = answer.messages
            return Recorded(said.seq, said.at, duplicate=False, reply=reply)
        said, reply = await self._stored(answer.seq, visitor)
        return Recorded(said.seq, said.at, duplicate=True, reply=reply)

    async def _stored(self, seq: int, visitor: str) -> tuple[Message, Message]:
        """Return the turn that a delivery was recorded as.

        Raises:
            DeliveryConflict: the visitor's words were others.
        """
        keeping, messages = await self._look(lambda cell: (_keeping(cell), _find(cell, seq)))
        if messages is None:
            messages = await self._page(keeping, seq - 1, 2)
            with public_errors():
                check_sequence(keeping.ref, messages, after=seq - 1)
        said, reply = messages
        if said.text != visitor:
            raise DeliveryConflict
        return said, reply

    async def _page(self, keeping: SessionKeeping, after: int, limit: int) -> list[Message]:
        vault = self._supervisor().vault
        if keeping.new is not None:
            return []
        with public_errors():
            rows = await vault.store.rows(keeping.ref, after=after, limit=limit)
            return await vault.messages(keeping, rows)


def _layers(cell: Cell) -> Layers:
    assert cell.actor is not None
    return cell.actor.layers(_keeping(cell).customer.customer_id)


def _keeping(cell: Cell) -> SessionKeeping:
    assert cell.keeping is not None
    return cell.keeping


def _last(cell: Cell) -> int:
    assert cell.actor is not None
    return cell.actor.last


def _find(cell: Cell, seq: int) -> list[Message] | None:
    assert cell.actor is not None
    said, reply = cell.actor.find(seq), cell.actor.find(seq + 1)
    return None if said is None or reply is None else [said, reply]


class Turn:
    """One turn of a session, held from entering the block to its reply.

    Attributes:
        request: what to send to the model.
        already: the stored reply if this delivery was answered before, else None.
        assembly_s: seconds that assembling the request took, reading what it needs included.
    """

    def __init__(
        self,
        session: Session,
        text: str,
        instructions: str,
        knowledge: Sequence[str],
        budget: int | None,
        delivery_id: str | None,
        timeout_s: float | None,
    ) -> None:
        self._session = session
        self._text = text
        self._instructions = instructions
        self._knowledge = knowledge
        self._known: tuple[str, ...] = ()
        self._budget = budget
        self._delivery_id = delivery_id
        self._timeout_s = timeout_s
        self._cell: Cell | None = None
        self._ticket = 0
        self._delivery: bytes | None = None
        self._before: Recorded | None = None
        self._open = False
        self._request: Request | None = None
        self.already: Message | None = None
        self.assembly_s = 0.0

    def __repr__(self) -> str:
        return f"Turn(open={self._open}, already={self.already is not None})"

    @property
    def request(self) -> Request:
        """What to send to the model.

        Raises:
            TurnClosed: the turn was never entered, or needs no request: the
                delivery was answered before.
        """
        if self._request is None:
            raise TurnClosed
        return self._request

    async def __aenter__(self) -> Self:
        session, text = self._session, self._text
        self._known = session._checked(  # noqa: SLF001
            text, self._instructions, self._knowledge, self._budget
        )
        timeout_s = None
        if self._timeout_s is not None:
            timeout_s = check_seconds("timeout", self._timeout_s)
        self._delivery = session._delivery(self._delivery_id)  # noqa: SLF001
        supervisor = session._supervisor()  # noqa: SLF001
        claim = session._customer_id  # noqa: SLF001
        cell = supervisor.reach(session.session_id, claim)
        task = asyncio.current_task()
        if cell.held_by(task):
            raise Reentered
        if timeout_s is None:
            timeout_s = supervisor.settings.turn_s
        self._ticket = supervisor.ticket()
        asked = None
        if supervisor.settings.keep_unanswered:
            asked = Asked(self._ticket, text, supervisor.utc(), self._delivery_id)
        try:
            letter = cell.ask(Take(self._ticket, self._delivery, asked), claim)
            answer = await supervisor.answer(cell, letter, timeout_s)
            self._cell = cell
            if isinstance(answer, Known):
                self._before = await session._recorded(answer, text)  # noqa: SLF001
                self.already = self._before.reply
                with contextlib.suppress(BudgetExceeded):  # nothing needs to be sent
                    await self._assemble()
            else:
                cell.holder = (self._ticket, task)
                self._open = True
                await self._assemble()
        except BaseException:
            self._leave(cell)
            raise
        return self

    async def _assemble(self) -> None:
        session = self._session
        now = session._supervisor().now  # noqa: SLF001
        began = now()
        actor, memory = await session._remembered(self._text)  # noqa: SLF001
        self._request = await session._assembled(  # noqa: SLF001
            actor, memory, self._text, self._instructions, self._known, self._budget
        )
        self.assembly_s = now() - began

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cell is not None:
            self._leave(self._cell)

    def _leave(self, cell: Cell) -> None:
        """Give the turn back if it is held. Nothing here awaits, so nothing can cancel it."""
        self._open = False
        if cell.holder is not None and cell.holder[0] == self._ticket:
            cell.holder = None  # its reply may still be on its way, and nobody waits for itself
        cell.tell(Release(self._ticket))

    async def reply(self, text: str, *, at: datetime | None = None) -> Recorded:
        """Record the turn: both rows are on disk when this returns.

        After `StoreFailed` the turn is still held, and the reply may be tried
        again, unless the failure says ``unknown``.

        Args:
            text: what the agent replied.
            at: when that was, aware; None means now. It orders nothing.

        Raises:
            InvalidText: the reply can't be kept; the turn is still held.
            TurnClosed: the turn was answered or left.
            TurnExpired: it was held over ``turn_s`` and lost to another.
            DeliveryConflict: this delivery was recorded with other words.
            StoreFailed: it isn't on disk; with ``unknown``, it may be.
            Fenced: another process took the database over.
        """
        session = self._session
        if self._before is not None and self._cell is not None:
            return self._before
        if not self._open or self._cell is None:
            raise TurnClosed
        supervisor = session._supervisor(closing=True)  # noqa: SLF001
        check_text("agent", text, supervisor.settings.text_bytes)
        when = check_time(at) or supervisor.utc()
        command = Answer(self._ticket, self._text, text, when, self._delivery)
        cell = self._cell
        letter = cell.ask(command)
        self._open = False
        try:
            answer = await supervisor.answer(cell, letter)
        except TurnClosed:
            raise TurnExpired from None
        except StoreFailed as failure:
            self._open = not failure.unknown
            raise
        except asyncio.CancelledError:
            self._open = letter.withdrawn
            raise
        return await session._recorded(answer, self._text)  # noqa: SLF001
