"""What touches several actors: identify, merge, forget; and what takes back: undo, delete.

The supervisor carries these out, never one actor asking another, and never the
caller's task, so that a cancelled caller tears nothing. Each goes the same way:
the sessions concerned are held like turns, so that nothing is being written;
what is being learnt is stopped; one transaction changes the store; then memory
follows, and what was computed from the old state finds nobody waiting for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from interturn.actors.commands import Release, Take
from interturn.actors.customer import Joined, Unlearnt
from interturn.actors.errors import CustomerMismatch, Forgotten, InterturnError
from interturn.actors.message import Discreet
from interturn.runtime.cell import Cell
from interturn.runtime.customers import CustomerCell
from interturn.runtime.errors import (
    ActorFailed,
    MailboxFull,
    Overloaded,
    Reentered,
    public_errors,
)
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping
from interturn.runtime.promise import Promise
from interturn.storage import Adoption
from interturn.storage.errors import StorageError, StoreFailed

if TYPE_CHECKING:
    from interturn.runtime.supervisor import Supervisor

T = TypeVar("T")


class Erasure(Discreet, frozen=True):
    """What `Customer.forget` destroyed: counts and a time, nothing of what it was.

    Attributes:
        sessions: how many conversations.
        messages: how many messages in them.
        facts: how many facts.
        at: when it was done (UTC).
    """

    sessions: int
    messages: int
    facts: int
    at: datetime


class Moves:
    """Carries out what touches several actors of one runtime."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._vault = supervisor.vault
        self._customers = supervisor.customers
        self.under_way = 0

    async def carried_out(
        self, work: Callable[[], Awaitable[T]], customer: CustomerCell | None = None
    ) -> T:
        """Do it in a task of the runtime's; a caller who is cancelled only stops waiting.

        Args:
            work: what to do.
            customer: in whose place it waits for what came before, if in one.

        Raises:
            MailboxFull, Overloaded: as many wait there, or in all, as may. Retry later.
        """
        self._admit(customer)
        promise: Promise[T] = Promise()

        async def carry_out() -> None:
            try:
                with public_errors():
                    promise.keep(await work())
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                promise.fail(error)
            except BaseException:
                promise.fail(self._supervisor.refusal())
                raise
            finally:
                self.under_way -= 1
                if customer is not None:
                    customer.waiting -= 1
                self._supervisor.freed()

        self.under_way += 1
        if customer is not None:
            customer.waiting += 1
        self._supervisor.jobs.start(carry_out)
        return await promise.wait()

    def _admit(self, customer: CustomerCell | None) -> None:
        supervisor = self._supervisor
        mailbox, queued = supervisor.settings.mailbox, supervisor.settings.queued
        full: InterturnError | None = None
        if customer is not None and customer.waiting >= mailbox:
            key = f"customer/{supervisor.token(customer.keeping.hash.hex())}"
            full = MailboxFull(key, customer.waiting, mailbox)
        elif self.under_way >= queued:
            full = Overloaded("queued", queued)
        if full is not None:
            supervisor.counters.rejected += 1
            raise full

    @asynccontextmanager
    async def _held(self, session_id: str, claim: str | None = None) -> AsyncIterator[Cell]:
        """Hold a session as a turn does, in the same line."""
        supervisor = self._supervisor
        cell = supervisor.reach(session_id, claim)
        ticket = supervisor.ticket()
        try:
            letter = cell.ask(Take(ticket), claim)
            await supervisor.answer(cell, letter, supervisor.settings.turn_s)
            yield cell
        finally:
            cell.tell(Release(ticket))

    async def identify(self, session_id: str, customer_id: str) -> None:
        """Make the anonymous visitor of a session this customer's.

        Raises:
            CustomerMismatch: the session belongs to another named customer.
        """
        async with AsyncExitStack() as stack:
            session = _keeping(await stack.enter_async_context(self._held(session_id)))
            anonymous = session.customer
            if anonymous.customer_id == customer_id:
                return
            if anonymous.customer_id is not None:
                raise CustomerMismatch
            target = await self._vault.named(customer_id)
            await self._becomes(target, anonymous, {session_id: session}, stack, None)

    async def merge(self, target: CustomerKeeping, other_id: str, task: object) -> None:
        """Make all that is the other customer's the target's.

        Raises:
            Reentered: ``task`` asks, and holds a turn that this would wait for.
        """
        leaving = await self._vault.named(other_id)
        async with AsyncExitStack() as stack:
            await self._becomes(target, leaving, {}, stack, task)

    async def _becomes(
        self,
        target: CustomerKeeping,
        leaving: CustomerKeeping,
        held: dict[str, SessionKeeping],
        stack: AsyncExitStack,
        task: object,
    ) -> None:
        """Hold all that is the leaving customer's, and make it the target's."""
        while target is not leaving:  # else they have become one, also the other way round
            for session_id in await self._sessions(leaving):
                if session_id not in held:
                    if self._supervisor.reach(session_id, None).held_by(task):
                        raise Reentered
                    cell = await stack.enter_async_context(self._held(session_id))
                    held[session_id] = _keeping(cell)
            if leaving.new is not None and not held:
                return  # nobody who was ever heard of
            if await self._join(target, leaving, held):
                return
            target = await self._vault.customer(target.hash, target.customer_id)

    async def _sessions(self, customer: CustomerKeeping) -> list[str]:
        """Return the ids of a customer's sessions, also of those with no turn yet."""
        rows = await self._vault.store.sessions_of(customer.ref) if customer.new is None else []
        stored = [self._vault.opened(row, customer).open_name(row) for row in rows]
        return list(dict.fromkeys([*stored, *self._supervisor.sessions_in_memory(customer)]))

    async def _join(
        self, target: CustomerKeeping, leaving: CustomerKeeping, held: dict[str, SessionKeeping]
    ) -> bool:
        """Make the customer who leaves the target, with these sessions, which are held.

        Returns:
            False, and nothing was changed: the target was forgotten or has become
            another, or whoever leaves has come to more sessions.

        Raises:
            Forgotten: whoever leaves was forgotten or has become another.
        """
        ours, theirs = self._customers.cell(target), self._customers.cell(leaving)
        # In one order whoever joins whom, so that two joins never wait for each other.
        first, second = sorted((ours, theirs), key=lambda cell: cell.keeping.ref)
        async with self._customers.paused(first), self._customers.paused(second):
            if theirs.gone:
                raise Forgotten
            if ours.gone or not held.keys() >= set(await self._sessions(leaving)):
                return False
            sessions = [session for session in held.values() if session.customer is leaving]
            event = Joined(theirs.actor.state)
            # What was learnt rests with the facts that it taught, or it would be twice.
            ours.marks.update(theirs.marks)
            adoption = Adoption(
                customer=target.ref,
                sessions=[(s.ref, s.wrapped_for(target)) for s in sessions if s.new is None],
                new_sessions=[
                    replace(s.new, customer=target.ref, wrapped=s.wrapped_for(target))
                    for s in sessions
                    if s.new is not None
                ],
                new_customer=target.new,
                snapshot=self._customers.write_after(ours, event),
                leaving=None if leaving.new else leaving.ref,
            )
            unfinished: StorageError | None = None
            try:
                await self._vault.store.adopt(adoption)
            except StorageError as error:
                if not await self._joined(leaving, sessions):
                    raise
                # It is done: only the answer was lost, or traces are still to be erased.
                unknown = isinstance(error, StoreFailed) and error.unknown
                unfinished = None if unknown else error
            self._customers.took(ours, event)
            for session in sessions:
                session.becomes(target)
                ours.learnt[session.ref] = theirs.learnt.get(session.ref, session.derived)
            ours.lessons.extend(theirs.lessons)
            self._customers.dismiss(theirs)
        if unfinished is not None:
            raise unfinished
        return True

    async def _joined(self, leaving: CustomerKeeping, sessions: list[SessionKeeping]) -> bool:
        """Return whether the store has joined them, whatever it answered."""
        if leaving.new is None:
            return await self._vault.store.load_customer(leaving.hash) is None
        found = await self._vault.store.load_session(sessions[0].hash, recent=0)
        return found is not None

    async def undo(self, session_id: str, claim: str | None) -> bool:
        """Take back the newest turn of a session, and what it alone taught."""
        async with self._held(session_id, claim) as cell:
            session, actor = _keeping(cell), cell.actor
            if actor is None or session.new is not None or actor.last == actor.cursor:
                return False
            seq = actor.last - 1
            customer = self._customers.cell(session.customer)
            async with self._customers.paused(customer):
                if customer.gone:
                    raise Forgotten
                event = Unlearnt((session_id, seq))
                write = self._customers.write_after(customer, event)
                try:
                    undone = await self._vault.store.undo(session.ref, seq, snapshot=write)
                except StorageError:
                    if await self._vault.store.rows(session.ref, after=seq - 1, limit=1):
                        raise
                    undone = True  # only the answer was lost
                if undone:
                    self._customers.took(customer, event)
                    learnt = customer.learnt.get(session.ref, session.derived)
                    customer.learnt[session.ref] = session.derived = min(learnt, seq - 1)
                    self._drop_lessons(customer, session, after=seq)
            if undone:
                cell.forget_state()
            return undone

    async def delete(self, session_id: str, claim: str | None) -> int:
        """Destroy a session: its key, its rows, its summary. Facts are the customer's and stay."""
        async with self._held(session_id, claim) as cell:
            session = _keeping(cell)
            if session.new is not None:
                return 0
            customer = self._customers.cell(session.customer)
            async with self._customers.paused(customer):
                if customer.gone:
                    raise Forgotten
                messages = await self._vault.store.delete_session(session.ref)
                self._drop_lessons(customer, session, after=0)
                customer.marks.pop(session.ref, None)
            cell.forget_state()
            return messages

    def _drop_lessons(self, customer: CustomerCell, session: SessionKeeping, *, after: int) -> None:
        for lesson in customer.lessons:
            if lesson.session.ref == session.ref:
                lesson.last = min(lesson.last, after - 2)
        customer.lessons = [lesson for lesson in customer.lessons if lesson.first <= lesson.last]

    async def forget(self, customer: CustomerKeeping) -> Erasure:
        """Destroy a customer's key and all that it seals, in memory and on disk."""
        supervisor = self._supervisor
        cell = self._customers.cell(customer)
        with supervisor.arrivals.gate(customer.hash):
            await supervisor.evict(customer)
            async with self._customers.paused(cell):
                facts = len(cell.actor.state.book.facts)
                erased = await self._vault.store.forget(customer.ref)
                self._customers.dismiss(cell)
        return Erasure(erased.sessions, erased.messages, facts, supervisor.utc())


def _keeping(cell: Cell) -> SessionKeeping:
    if cell.keeping is None:
        raise ActorFailed(cell.key, "state dropped meanwhile")
    return cell.keeping
