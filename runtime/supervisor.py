"""The supervisor: all the cells, who comes into memory and who leaves it, and their jobs.

It is the house that cells live in. It admits messages within the bounds, brings
actors in from the store, hands their decisions to the writer, runs their folds,
and lets the least recently used go. Everything here runs in the event loop's
thread; only jobs await, in tasks of the runtime's own.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from interturn.actors.commands import (
    Answer,
    Command,
    Event,
    FoldDone,
    FoldTask,
    Release,
    SummaryLaid,
    Turn,
    TurnRecorded,
)
from interturn.actors.errors import Forgotten, InterturnError
from interturn.actors.extractive import Extractive
from interturn.actors.facts import Scored
from interturn.actors.ports import Deriver, Profiler, Retriever, TokenCounter
from interturn.actors.request import Memory
from interturn.actors.session import SessionActor
from interturn.actors.summary import Refused, Summary
from interturn.actors.window import OutOfOrder
from interturn.runtime.cell import Cell, Phase
from interturn.runtime.clock import Alarm, Alarms, Clock
from interturn.runtime.customers import CustomerCell, Customers, Lesson
from interturn.runtime.errors import (
    ActorFailed,
    MailboxFull,
    Overloaded,
    Quarantined,
    RuntimeClosed,
    StoreFailed,
    Tampered,
    TurnTimeout,
    public,
    public_errors,
)
from interturn.runtime.events import log
from interturn.runtime.folds import Folding
from interturn.runtime.keeping import Claim, CustomerKeeping, SessionKeeping, Vault, check_chain
from interturn.runtime.letter import Letter, Look
from interturn.runtime.moves import Moves
from interturn.runtime.settings import Settings
from interturn.runtime.statistics import Counters
from interturn.runtime.writer import Writer
from interturn.storage import Known, Outcome, Write
from interturn.storage.errors import StorageError

_FAILURES: Final = 3
_FAILURES_WITHIN_S: Final = 60.0
_REST_S: Final = (1.0, 60.0)
_SWEEPS: Final = 4
"""Sweeps for idle actors in each ``idle_s``."""


def back_off_s(attempt: int) -> float:
    """Return how long to rest after the ``attempt``-th failure in a row, in seconds.

    Doubling from 1 to 60 s, with full jitter in the upper half so that what
    failed together isn't tried together (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog 2015).
    """
    low, high = _REST_S
    ceiling = min(high, low * float(1 << min(attempt - 1, 16)))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


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
        spawn: Callable[..., object],
        deriver: Deriver | None,
        profiler: Profiler | None,
        retriever: Retriever | None,
    ) -> None:
        self.vault = vault
        self.settings = settings
        self.counters = counters
        self._writer = writer
        self._folding = folding
        self.counter = counter
        self._extractive = extractive
        self._limits = settings.limits
        self._clock = clock
        self._alarms = alarms
        self._spawn = spawn
        self._cells: OrderedDict[str, Cell] = OrderedDict()
        self._tickets = count(1)
        self._resting: dict[Cell, Alarm] = {}
        self._folds: dict[Cell, anyio.CancelScope] = {}
        self._quiet = anyio.Event()
        self.closing = self.closed = False
        self.refusal: Callable[[], InterturnError] = RuntimeClosed
        self._gates: set[bytes] = set()
        self._retriever = retriever
        self.customers = Customers(
            vault=vault,
            writer=writer,
            alarms=alarms,
            counters=counters,
            start=self.start,
            moved=self._moved,
            counter=counter,
            limits=settings.customer_limits,
            snapshot_s=settings.snapshot_s,
            back_off_s=back_off_s,
            deriver=deriver,
            profiler=profiler,
        )
        self.moves = Moves(self)
        self._catching_up = True
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
            key = f"session/{self.vault.hasher.token(session_id)}"
            cell = self._cells[session_id] = Cell(key, session_id, self)
        else:
            self._cells.move_to_end(session_id)
        cell.used = self._clock.monotonic()
        return cell

    def reach(self, session_id: str, claim: Claim | None) -> Cell:
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
            and keeping.customer.hash != claim.hash
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
        facts = self.chosen(customer, text)
        return cell.actor, cell.actor.memory(customer.actor.view.profile, facts)

    def chosen(
        self,
        customer: CustomerCell,
        query: str,
        *,
        limit: int | None = None,
        tokens: int | None = None,
    ) -> tuple[Scored, ...]:
        """Return the facts that help with a query; a retriever that fails finds none."""
        try:
            return customer.actor.view.chosen(
                query,
                retriever=self._retriever,
                tokens=self.settings.facts_tokens if tokens is None else tokens,
                limit=self.settings.facts_per_customer if limit is None else limit,
            )
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            # Nothing was awaited: a cancellation is the retriever's own, too.
            self.counters.failures += 1
            log.warning("retrieval_failed", error=type(error).__name__)
            return ()

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

    # Erasing.

    @contextlib.contextmanager
    def gate(self, customer_hash: bytes) -> Iterator[None]:
        """Let none of a customer's sessions come into memory meanwhile."""
        self._gates.add(customer_hash)
        try:
            yield
        finally:
            self._gates.discard(customer_hash)

    async def evict(self, customer: CustomerKeeping) -> None:
        """Put a customer's sessions out of memory; held turns end with `Forgotten`.

        What is being brought to disk comes to its end first.
        """
        for cell in list(self._cells.values()):
            if cell.belongs_to(customer):
                flying = cell.evicted(Forgotten)
                if (fold := self._folds.pop(cell, None)) is not None:
                    fold.cancel()
                if flying is not None:
                    with contextlib.suppress(InterturnError):
                        await flying.promise.wait()

    # The house, as cells see it.

    def admit(self, cell: Cell, command: Command | Look) -> None:
        """Count a message in, or say which bound keeps it out.

        The answer to a held turn is always let in: it frees what others wait for.
        """
        if self.closed or (self.closing and not isinstance(command, Answer)):
            self.counters.rejected += 1
            raise self.refusal()
        if isinstance(command, Answer):
            self.counters.accepted += 1
            return
        if cell.phase is Phase.QUARANTINED and (wait := cell.retry_at - self.now()) > 0:
            self.counters.rejected += 1
            raise Quarantined(cell.key, wait)
        if (waiting := cell.waiting) >= self.settings.mailbox:
            self.counters.rejected += 1
            raise MailboxFull(cell.key, waiting, self.settings.mailbox)
        if self.counters.queued >= self.settings.queued:
            self.counters.rejected += 1
            raise Overloaded("queued", self.settings.queued)
        self.counters.accepted += 1

    def answered(self, letter: Letter, *, failed: bool) -> None:
        """Count a message out."""
        if failed:
            self.counters.failed += 1
        else:
            self.counters.replied += 1
        self.counters.late_replies += letter.abandoned

    def queued(self, change: int) -> None:
        """Count messages into queues, or out of them."""
        self.counters.queued += change

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._clock.monotonic()

    def go_on(self, cell: Cell) -> None:
        """Let a cell's queues go on in a task of their own."""
        self.start(self._pump, cell)

    def activate(self, cell: Cell) -> None:
        """Bring an actor in."""
        if self.closed:
            cell.refused(self.refusal)
            return
        self.counters.activations += 1
        self.start(self._activate, cell)

    def persist(self, cell: Cell, letter: Letter, what: Turn | SummaryLaid) -> None:
        """Hand a decision to the writer."""
        self.counters.in_flight += letter.counted
        self._writer.submit(_Decided(self, cell, letter, what))

    def changed(self, cell: Cell) -> None:
        """Start the fold that is due, if one is; it replaces one that hangs."""
        if cell.actor is None or self.closing or self._cells.get(cell.session_id) is not cell:
            return
        if (task := cell.actor.fold_due()) is not None:
            if (late := self._folds.pop(cell, None)) is not None:
                late.cancel()
            self.counters.folding += 1
            # Made here and not in the job: it may be replaced before it has begun.
            scope = self._folds[cell] = anyio.CancelScope()
            self.start(self._fold, cell, task, scope)

    def freed(self) -> None:
        """A turn is free again, which the drain waits for."""
        if self.closing:
            self._moved()

    def fold_failed(self, cell: Cell) -> None:
        """Let a fold rest before it is tried again."""
        cell.folds_failed += 1
        rest = self._alarms.after(back_off_s(cell.folds_failed), lambda: self._rested(cell))
        self._resting[cell] = rest

    def _rested(self, cell: Cell) -> None:
        if (rest := self._resting.pop(cell, None)) is not None:
            rest.cancel()
        if cell.actor is not None:
            cell.actor.rested()
            self.changed(cell)

    def waits(self, cell: Cell, ticket: int) -> None:
        """See that a turn which others wait for isn't held over its time."""
        left = cell.held_since + self.settings.turn_s - self.now()
        self._alarms.after(max(0.0, left), lambda: cell.expire(ticket))

    def failing(self, cell: Cell, error: BaseException) -> float | None:
        """Note a failure; return the seconds to rest if there were too many."""
        self.counters.failures += 1
        now = self.now()
        cell.failed_at = [at for at in cell.failed_at if now - at < _FAILURES_WITHIN_S] + [now]
        log.error("actor_failed", key=cell.key, error=type(error).__name__)
        if len(cell.failed_at) <= _FAILURES:
            return None
        return back_off_s(len(cell.failed_at) - _FAILURES)

    def gone(self, cell: Cell) -> None:
        """Forget a cell that is absent."""
        if (rest := self._resting.pop(cell, None)) is not None:
            rest.cancel()
        if self._cells.get(cell.session_id) is cell:
            del self._cells[cell.session_id]

    # Waiting for an answer.

    async def answer(self, cell: Cell, letter: Letter, timeout_s: float | None = None) -> Any:
        """Return the answer to a letter.

        A caller who is cancelled withdraws it while it waits; under way, it
        completes and its answer is discarded.

        Raises:
            TurnTimeout: it still waited after ``timeout_s``.
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

    def start(self, job: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a job in a context of its own: none of the caller's variables leak in."""
        contextvars.Context().run(self._spawn, job, *args)

    async def _pump(self, cell: Cell) -> None:
        await anyio.lowlevel.checkpoint()
        cell.pump()

    async def _activate(self, cell: Cell) -> None:
        try:
            actor, keeping = await self._bring_in(cell)
        except StorageError as error:
            cell.refused(partial(public, error))
        except Forgotten:
            cell.refused(Forgotten)
        except Exception as error:  # noqa: BLE001 - those who wait are told, the rest serve
            rest_s = self.failing(cell, error)
            cell.refused(partial(ActorFailed, cell.key, type(error).__name__), rest_s)
        except BaseException:
            cell.refused(RuntimeClosed)
            raise
        else:
            cell.arrived(actor, keeping)

    async def _bring_in(self, cell: Cell) -> tuple[SessionActor, SessionKeeping]:
        while True:
            erasures = self.vault.erasures
            actor, keeping = await self._read_in(cell)
            if erasures == self.vault.erasures:
                break
            del actor, keeping  # they may be of somebody who was forgotten meanwhile
        if keeping.new is None:
            self._learn_the_rest(cell.session_id, keeping, actor.last)
        return actor, keeping

    async def _read_in(self, cell: Cell) -> tuple[SessionActor, SessionKeeping]:
        recent = 2 * self.settings.deliveries
        keeping, loaded = await self.vault.session(cell.session_id, cell.claimed, recent=recent)
        if keeping.customer.hash in self._gates:
            raise Forgotten
        actor = SessionActor(self._limits, self.counter, self._extractive)
        if loaded is not None:
            check_chain(loaded)
            sealed = loaded.session.snapshot
            snapshot = None if sealed is None else keeping.open_snapshot(sealed)
            messages = await self.vault.messages(keeping, loaded.rows)
            try:
                actor.restore(snapshot, messages, loaded.deliveries)
            except (OutOfOrder, msgspec.MsgspecError):
                raise Tampered("sessions", f"snapshot {loaded.session.ref}") from None
            if (actor.cursor, actor.last) != (loaded.session.cursor, loaded.last):
                raise Tampered("sessions", f"cursor {loaded.session.ref}")
        return actor, keeping

    def learn(self, cell: Cell, keeping: SessionKeeping, event: TurnRecorded) -> None:
        """Learn from a turn that was recorded, with what the agent said just before it."""
        seq = event.turn.seq
        asked = cell.actor.find(seq - 1) if cell.actor is not None else None
        messages = event.messages if asked is None else (asked, *event.messages)
        lesson = Lesson(keeping, cell.session_id, seq, seq, messages)
        self.customers.learn(self.customers.cell(keeping.customer), lesson)

    def _learn_the_rest(self, session_id: str, keeping: SessionKeeping, last: int) -> None:
        """Learn from turns that were recorded and never learnt from."""
        customer = self.customers.cell(keeping.customer)
        first = customer.learnt.get(keeping.ref, keeping.derived) + 1
        if first < last:
            self.customers.learn(customer, Lesson(keeping, session_id, first, last - 1, None))

    async def catch_up(self) -> None:
        """Do so for every session of the store, whether it ever comes back or not."""
        try:
            with public_errors():
                async for session_id, keeping, last in self.vault.underived():
                    self._learn_the_rest(session_id, keeping, last)
        except InterturnError as error:
            log.error("catching_up_failed", error=type(error).__name__)
        finally:
            self._catching_up = False
            self._moved()

    async def _fold(self, cell: Cell, task: FoldTask, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._folded(cell, task)
        finally:
            if self._folds.get(cell) is scope:
                del self._folds[cell]
            self.counters.folding -= 1
            if not self.counters.folding:
                self._moved()

    async def _folded(self, cell: Cell, task: FoldTask) -> None:
        summary: Summary | None
        try:
            summary, stands_in = await self._folding.fold(task)
            self.counters.folds_offline += stands_in
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            # A summarizer may raise anything, a cancellation of its own too, which
            # must not pass for one of ours: that would end the runtime.
            if not isinstance(error, Exception) and anyio.current_effective_deadline() < 0:
                raise
            summary = None
            self.counters.folds_failed += 1
            reason = error.reason if isinstance(error, Refused) else type(error).__name__
            log.warning("fold_failed", key=cell.key, reason=reason, messages=len(task.leaving))
        with contextlib.suppress(InterturnError):  # the store's failure; the fold comes again
            await cell.tell(FoldDone(task, summary)).promise.wait()

    # Coming to rest.

    def _moved(self) -> None:
        self._quiet.set()
        self._quiet = anyio.Event()

    async def flush(self) -> None:
        """Return when nothing is being folded or learnt; what rests is tried at once."""
        for cell in list(self._resting):
            self._rested(cell)
        self.customers.wake_all()
        while self.counters.folding or self.counters.learning or self._catching_up:
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


class _Decided:
    """A decision on its way to disk."""

    __slots__ = ("_cell", "_event", "_keeping", "_letter", "_supervisor", "_what", "size")

    def __init__(
        self, supervisor: Supervisor, cell: Cell, letter: Letter, what: Turn | SummaryLaid
    ) -> None:
        assert cell.keeping is not None
        self._supervisor = supervisor
        self._cell = cell
        self._keeping = cell.keeping
        self._letter = letter
        self._what = what
        self._event: Event | None = None
        self.size = what.size

    def prepare(self) -> Write:
        """Count and seal."""
        if isinstance(self._what, SummaryLaid):
            self._event = self._what
            return self._keeping.seal_snapshot(self._what)
        actor, counter = self._cell.actor, self._supervisor.counter
        assert actor is not None
        write, messages = self._keeping.seal_turn(self._what, actor.count, counter.name)
        self._event = TurnRecorded(self._what, messages)
        return write

    def settle(self, outcome: Outcome) -> None:
        """It is durable, or can't be accepted."""
        counters = self._supervisor.counters
        if outcome == "stale":
            self.fail(StoreFailed("the stored state is not the one in memory"))
            return
        counters.in_flight -= self._letter.counted
        if isinstance(outcome, Known):
            counters.duplicates += 1
            self._cell.settled(self._letter, self._what, outcome.seq, None)
            return
        self._keeping.written(self._what)
        if isinstance(self._what, Turn):
            counters.turns += 1
        else:
            counters.folds += 1
        self._cell.settled(self._letter, self._what, None, self._event)
        if isinstance(self._event, TurnRecorded):
            self._supervisor.learn(self._cell, self._keeping, self._event)

    def fail(self, error: InterturnError) -> None:
        """It was not written, or may not have been."""
        self._supervisor.counters.in_flight -= self._letter.counted
        log.warning("write_failed", key=self._cell.key, error=type(error).__name__)
        self._cell.unsettled(self._letter, self._what, error)
