"""The supervisor: all the cells, who comes into memory and who leaves it, and their jobs.

It is the house that cells live in. It admits messages within the bounds, brings
actors in from the store, hands their decisions to the writer, runs their folds,
and lets the least recently used go. Everything here runs in the event loop's
thread; only jobs await, in tasks of the runtime's own.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, Final

import anyio
import anyio.lowlevel

from interturn.actors.commands import (
    Answer,
    Durable,
    FoldDone,
    Pruned,
    Release,
)
from interturn.actors.errors import Forgotten, InterturnError
from interturn.actors.extractive import Extractive
from interturn.actors.ports import Deriver, Profiler, Retriever, TokenCounter
from interturn.actors.request import Memory
from interturn.actors.session import SessionActor
from interturn.runtime.arrivals import Arrivals
from interturn.runtime.backoff import back_off_s
from interturn.runtime.cell import Cell, Phase
from interturn.runtime.clock import Alarms, Clock
from interturn.runtime.customers import Customers
from interturn.runtime.decided import Decided
from interturn.runtime.errors import (
    MailboxFull,
    Overloaded,
    Reentered,
    RuntimeClosed,
    TurnTimeout,
)
from interturn.runtime.events import log
from interturn.runtime.folds import Folding, Folds
from interturn.runtime.jobs import Jobs
from interturn.runtime.keeping import CustomerKeeping
from interturn.runtime.lessons import Lessons
from interturn.runtime.letter import Letter
from interturn.runtime.moves import Moves
from interturn.runtime.retrieving import Retrieving
from interturn.runtime.settings import Settings
from interturn.runtime.statistics import Counters
from interturn.runtime.vault import Vault
from interturn.runtime.writer import Writer

_FAILURES: Final = 3
_FAILURES_WITHIN_S: Final = 60.0
_FAILURES_KEPT: Final = 16
"""As many as the longest rest needs."""
_SWEEPS: Final = 4
"""Sweeps for idle actors in each ``idle_s``."""


class Supervisor:
    """Holds the cells of one runtime. See the module's head."""

    def __init__(
        self,
        *,
        vault: Vault,
        writer: Writer,
        folding: Folding,
        counter: TokenCounter,
        extractive: Extractive,
        settings: Settings,
        clock: Clock,
        alarms: Alarms,
        counters: Counters,
        jobs: Jobs,
        deriver: Deriver | None,
        profiler: Profiler | None,
        retriever: Retriever | None,
    ) -> None:
        self.vault = vault
        self.settings = settings
        self.counters = counters
        self._writer = writer
        self.counter = counter
        self._clock = clock
        self._alarms = alarms
        self.jobs = jobs
        self._cells: OrderedDict[str, Cell] = OrderedDict()
        self._tickets = count(1)
        self._quiet = anyio.Event()
        self.closing = self.closed = False
        self.refusal: Callable[[], InterturnError] = RuntimeClosed
        self.retrieving = Retrieving(
            retriever,
            jobs=jobs,
            alarms=alarms,
            counters=counters,
            settings=settings,
            moved=self._moved,
        )
        self.customers = Customers(
            vault=vault,
            writer=writer,
            alarms=alarms,
            counters=counters,
            jobs=jobs,
            moved=self._moved,
            retrieving=self.retrieving,
            counter=counter,
            limits=settings.customer_limits,
            snapshot_s=settings.snapshot_s,
            deriver=deriver,
            profiler=profiler,
        )
        self.folds = Folds(folding, jobs, alarms, counters, self._moved)
        self.lessons = Lessons(vault, self.customers)
        self.arrivals = Arrivals(
            vault,
            self.lessons,
            partial(SessionActor, settings.limits, counter, extractive),
            2 * settings.deliveries,
            self.failing,
        )
        self.moves = Moves(self)
        jobs.start(self._catch_up)
        self._sweep()

    def __repr__(self) -> str:
        return f"Supervisor(cells={len(self._cells)}, closing={self.closing})"

    # For handles.

    def cell(self, session_id: str) -> Cell:
        """Return the session's cell, made if it isn't there.

        Raises:
            Overloaded: every actor in memory is needed there.
        """
        cell = self._cells.get(session_id)
        if cell is None:
            self._make_room()
            cell = self._cells[session_id] = Cell(session_id, self)
        else:
            self._cells.move_to_end(session_id)
        cell.used = self._clock.monotonic()
        return cell

    def reach(self, session_id: str, claim: str | None) -> Cell:
        """Return the session's cell for a caller who names this customer.

        A session that isn't in the store yet belongs to nobody: if it came into
        memory as somebody else's, it comes in anew as the one's who is named.
        """
        cell = self.cell(session_id)
        keeping = cell.keeping
        if (
            claim is not None
            and keeping is not None
            and keeping.new is not None
            and keeping.customer.customer_id != claim
            and cell.idle
        ):
            cell.leave()
            cell = self.cell(session_id)
        return cell

    def remembered(self, cell: Cell, text: str) -> tuple[SessionActor, Memory]:
        """Return what a request for ``text`` is assembled from, as it stands now.

        The customer's part is read from their published view, with no message.
        """
        assert cell.actor is not None
        assert cell.keeping is not None
        customer = self.customers.cell(cell.keeping.customer)
        facts = self.retrieving.chosen(customer, text)
        return cell.actor, cell.actor.memory(customer.actor.view.profile, facts)

    def utc(self) -> datetime:
        """Return the present time in UTC."""
        return self._clock.utc()

    def ticket(self) -> int:
        """Return a number for a turn to be held under."""
        return next(self._tickets)

    @property
    def held(self) -> int:
        """How many turns are held."""
        return sum(1 for cell in self._cells.values() if cell.held is not None)

    @property
    def sessions(self) -> int:
        """How many actors are in memory."""
        return len(self._cells)

    def sessions_in_memory(self, customer: CustomerKeeping) -> list[str]:
        """Return the ids of a customer's sessions that are in memory."""
        return [
            cell.session_id
            for cell in self._cells.values()
            if cell.keeping is not None and cell.keeping.customer is customer
        ]

    def pruned(self, session_id: str, through: int) -> None:
        """Let a session that is in memory know that its oldest messages are to go."""
        cell = self._cells.get(session_id)
        if cell is not None and cell.actor is not None:
            cell.actor.apply(Pruned(through))

    # Erasing.

    async def evict(self, customer: CustomerKeeping) -> None:
        """Put a customer's sessions out of memory; held turns end with `Forgotten`.

        What is being brought to disk comes to its end first.
        """
        for cell in list(self._cells.values()):
            if cell.belongs_to(customer):
                flying = cell.evicted(Forgotten)
                self.folds.stop(cell)
                if flying is not None:
                    with contextlib.suppress(InterturnError):
                        await flying.promise.wait()

    # The house, as cells see it.

    def token(self, session_id: str) -> str:
        """Return what stands for a session in logs and errors."""
        return self.vault.hasher.token(session_id)

    def admit(self, cell: Cell, command: object) -> None:
        """Count a message in, or say which bound keeps it out.

        The answer to a held turn is always let in: it frees what others wait for.
        """
        if self.closed or (self.closing and not isinstance(command, Answer)):
            self.counters.rejected += 1
            raise self.refusal()
        if isinstance(command, Answer):
            self.counters.accepted += 1
            return
        if cell.phase is Phase.QUARANTINED and cell.retry_at > self.now():
            self.counters.rejected += 1
            raise cell.quarantined()
        if (waiting := cell.waiting) >= self.settings.mailbox:
            self.counters.rejected += 1
            raise MailboxFull(cell.key, waiting, self.settings.mailbox)
        if self.counters.queued >= self.settings.queued:
            self.counters.rejected += 1
            raise Overloaded("queued", self.settings.queued)
        self.counters.accepted += 1

    def answered(self, *, failed: bool, late: bool, duplicate: bool = False) -> None:
        """Count a message out. See `House.answered`."""
        if failed:
            self.counters.failed += 1
        else:
            self.counters.replied += 1
        self.counters.late_replies += late
        self.counters.duplicates += duplicate

    def queued(self, change: int) -> None:
        """Count messages into queues, or out of them."""
        self.counters.queued += change

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._clock.monotonic()

    def go_on(self, cell: Cell) -> None:
        """Let a cell's queues go on in a task of their own."""
        self.jobs.start(self._pump, cell)

    def activate(self, cell: Cell) -> None:
        """Bring an actor in."""
        if self.closed:
            cell.refused(self.refusal)
            return
        self.counters.activations += 1
        self.jobs.start(self.arrivals.bring_in, cell)

    def persist(self, cell: Cell, letter: Letter, what: Durable) -> None:
        """Hand a decision to the writer."""
        self.counters.in_flight += letter.counted
        decided = Decided(
            cell,
            letter,
            what,
            counter=self.counter,
            counters=self.counters,
            learn=self.lessons.of_turn,
        )
        self._writer.submit(decided)

    def changed(self, cell: Cell) -> None:
        """Start the fold that is due, if one is."""
        if not self.closing and self._cells.get(cell.session_id) is cell:
            self.folds.start_due(cell)

    def freed(self) -> None:
        """A turn is free again, which the drain waits for."""
        if self.closing:
            self._moved()

    def fold_failed(self, cell: Cell) -> None:
        """Let a fold rest before it is tried again."""
        self.folds.rest(cell)

    def waits(self, cell: Cell, ticket: int) -> None:
        """See that a turn which others wait for isn't held over its time."""
        left = cell.held_since + self.settings.turn_s - self.now()
        self._alarms.after(max(0.0, left), lambda: cell.expire(ticket))

    def failing(self, cell: Cell, error: BaseException) -> float | None:
        """Note a failure; return the seconds to rest if there were too many."""
        self.counters.failures += 1
        now = self.now()
        lately = [at for at in cell.failed_at if now - at < _FAILURES_WITHIN_S][-_FAILURES_KEPT:]
        cell.failed_at = (*lately, now)
        log.error("actor_failed", key=cell.key, error=type(error).__name__)
        if len(cell.failed_at) <= _FAILURES:
            return None
        rest_s = back_off_s(len(cell.failed_at) - _FAILURES)
        # They age from the end of the rest: a long one must not forgive what it is for.
        cell.failed_at = (now + rest_s,) * len(cell.failed_at)
        return rest_s

    def gone(self, cell: Cell) -> None:
        """Forget a cell that is absent."""
        self.folds.leave(cell)
        if self._cells.get(cell.session_id) is cell:
            del self._cells[cell.session_id]

    # Waiting for an answer.

    async def answer(self, cell: Cell, letter: Letter, timeout_s: float | None = None) -> Any:
        """Return the answer to a letter.

        A caller who is cancelled withdraws it while it waits; under way, it
        completes and its answer is discarded.

        Raises:
            TurnTimeout: it wasn't there after ``timeout_s``.
        """
        if letter.promise.done:
            return letter.promise.result()
        alarm = None
        try:
            if timeout_s is not None:
                alarm = self._alarms.after(timeout_s, lambda: self._expire(cell, letter))
            return await letter.promise.wait()
        except BaseException:
            if not letter.promise.done:
                if cell.withdraw(letter, RuntimeClosed()):
                    self.counters.withdrawn += 1
                else:
                    letter.abandoned = True
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def _expire(self, cell: Cell, letter: Letter) -> None:
        if cell.withdraw(letter, TurnTimeout(started=False)):
            self.counters.expired += 1
        else:
            letter.abandoned = letter.promise.fail(TurnTimeout(started=True))

    # Coming and going.

    def _make_room(self) -> None:
        """Let the least recently used go until one more may come."""
        now = self.now()
        for _ in range(len(self._cells)):
            if len(self._cells) < self.settings.active:
                return
            session_id, cell = next(iter(self._cells.items()))
            if cell.may_leave(now):
                self._passivate(cell)
            else:
                self._cells.move_to_end(session_id)
        if len(self._cells) >= self.settings.active:
            self.counters.rejected += 1
            raise Overloaded("active", self.settings.active)

    def _sweep(self) -> None:
        """Let those go who were idle for ``idle_s``, and come again."""
        now = self.now()
        for cell in list(self._cells.values()):
            if now - cell.used < self.settings.idle_s:
                break  # the rest were used later
            if cell.may_leave(now):
                self._passivate(cell)
        self._alarms.after(self.settings.idle_s / _SWEEPS, self._sweep)

    def _passivate(self, cell: Cell) -> None:
        self.counters.passivations += 1
        cell.leave()

    # Jobs.

    async def _catch_up(self) -> None:
        await self.lessons.catch_up()
        self._moved()

    async def _pump(self, cell: Cell) -> None:
        await anyio.lowlevel.checkpoint()
        cell.pump()

    # Coming to rest.

    def _moved(self) -> None:
        self._quiet.set()
        self._quiet = anyio.Event()

    async def flush(self) -> None:
        """Return when nothing is being folded, learnt or read; what rests is tried at once.

        Raises:
            Reentered: what it would wait for asks for it.
        """
        if self.jobs.inside:
            raise Reentered
        self.folds.wake_all()
        self.customers.learning.wake_all()
        counters = self.counters
        while (
            counters.folding
            or counters.learning
            or self.lessons.catching_up
            or self.retrieving.under_way
        ):
            await self._quiet.wait()

    @property
    def _busy(self) -> bool:
        under_way = self.counters.folding or self.counters.learning or self.moves.under_way
        return bool(under_way or self.held)

    async def drain(self, patience_s: float) -> None:
        """Refuse what is new, let held turns end and folds be kept, within ``patience_s``."""
        self.closing = True
        for cell in list(self._cells.values()):
            cell.refuse_waiting(self.refusal, but=(Answer, Release, FoldDone))
        over = self.now() + patience_s
        alarm = self._alarms.at(over, self._moved)
        while self._busy and self.now() < over:
            await self._quiet.wait()
        alarm.cancel()
        self.customers.closed = True
        await self.customers.rest_all()
        await self._writer.quiet()

    def abandon(self) -> None:
        """Fail whatever still waits: the runtime ends."""
        self.closed = True
        for cell in list(self._cells.values()):
            cell.refuse_waiting(self.refusal)
        self._writer.abandon()
        self._cells.clear()
