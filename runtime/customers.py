"""Customers in memory: their facts learnt turn by turn, as jobs, and brought to rest.

A customer lives as long as a session that holds them, or as long as something is
left to do: turns to learn from, a snapshot to write. Nobody waits for learning.
Turns stand in one queue for each customer, in the order that they were recorded,
whichever session they came from. What is learnt is published at once and rests
later, at most every ``snapshot_s`` seconds, together with how far each session
was learnt from: after a crash the rest is learnt again, from the rows.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from interturn.actors.customer import (
    EMPTY,
    CustomerActor,
    CustomerEvent,
    CustomerLimits,
    CustomerState,
    Learnt,
    Refreshed,
    decode,
)
from interturn.actors.deriver import derived
from interturn.actors.errors import Forgotten, InterturnError
from interturn.actors.facts import Fact, FactChange
from interturn.actors.message import Message
from interturn.actors.ports import Deriver, Profiler, TokenCounter
from interturn.actors.profile import OfflineProfiler
from interturn.runtime.backoff import back_off_s
from interturn.runtime.clock import Alarm, Alarms
from interturn.runtime.errors import StoreFailed, public_errors
from interturn.runtime.events import log
from interturn.runtime.jobs import Jobs, raise_if_called_off
from interturn.runtime.keeping import CustomerKeeping
from interturn.runtime.lessons import Lesson
from interturn.runtime.promise import Promise
from interturn.runtime.retrieving import Reading, Retrieving
from interturn.runtime.statistics import Counters
from interturn.runtime.tokens import INLINE_BYTES
from interturn.runtime.vault import Vault
from interturn.runtime.writer import Writer
from interturn.storage import Adoption, Outcome, Tampered, Write, WriteCustomer

_LESSONS_HELD: Final = 64
"""Turns kept in memory for learning; those that come after are read from the rows again."""

_ATTEMPTS: Final = 5
"""Failures in a row after which the offline deriver reads the turn in the other's stead."""


class CustomerCell:
    """One customer's place in memory.

    Attributes:
        actor: their facts and profile.
        lessons: what is to be learnt from, oldest first.
        learnt: sessions, by the store's number, and how far they were learnt from.
        marks: those of them that moved since the last snapshot.
        reading: what the retriever has read of them, if it reads.
        gone: whether the customer was forgotten or has become another.
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "actor",
        "alarm",
        "dirty",
        "failures",
        "gone",
        "keeping",
        "learnt",
        "lessons",
        "marks",
        "reading",
        "rest",
        "saved",
        "scope",
    )

    def __init__(self, keeping: CustomerKeeping, actor: CustomerActor) -> None:
        self.keeping = keeping
        self.actor = actor
        self.lessons: deque[Lesson] = deque()
        self.learnt: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.dirty = False
        self.gone = False
        self.failures = 0
        self.alarm: Alarm | None = None
        self.rest: Alarm | None = None
        self.saved: Promise[None] | None = None
        self.scope: anyio.CancelScope | None = None
        self.reading: Reading | None = None
        self._lock: anyio.Lock | None = None

    @property
    def lock(self) -> anyio.Lock:
        """Held by whoever changes what rests, so that each sees the version that it replaces."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    @property
    def locked(self) -> bool:
        """Whether somebody changes what rests."""
        return self._lock is not None and self._lock.locked()

    @property
    def learning(self) -> bool:
        """Whether something is being learnt."""
        return self.scope is not None

    def __repr__(self) -> str:
        return f"CustomerCell({self.actor!r}, lessons={len(self.lessons)}, dirty={self.dirty})"

    @property
    def quiet(self) -> bool:
        """Whether nothing is being learnt nor waits for it, but for what rests after a failure."""
        return not self.learning and (not self.lessons or self.rest is not None)


class Customers:
    """The customers of one runtime. See the module's head."""

    def __init__(
        self,
        *,
        vault: Vault,
        writer: Writer,
        alarms: Alarms,
        counters: Counters,
        jobs: Jobs,
        moved: Callable[[], None],
        retrieving: Retrieving,
        counter: TokenCounter,
        limits: CustomerLimits,
        snapshot_s: float,
        deriver: Deriver | None,
        profiler: Profiler | None,
    ) -> None:
        self._vault = vault
        self._writer = writer
        self._alarms = alarms
        self._counters = counters
        self._jobs = jobs
        self._moved = moved
        self._retrieving = retrieving
        self._counter = counter
        self._limits = limits
        self._snapshot_s = snapshot_s
        self._deriver = deriver
        self._profiler: Profiler = profiler or OfflineProfiler(counter)
        # Strong references: whoever is here has something left to do.
        self._busy: set[CustomerCell] = set()
        self.closed = False

    def cell(self, keeping: CustomerKeeping) -> CustomerCell:
        """Return the customer's place, with their facts as they rest."""
        cell = keeping.cell
        if not isinstance(cell, CustomerCell):
            try:
                state = EMPTY if keeping.state is None else decode(keeping.state)
            except msgspec.MsgspecError:
                raise Tampered("customers", f"snapshot {keeping.ref}") from None
            keeping.state = None
            cell = keeping.cell = CustomerCell(
                keeping, CustomerActor(self._limits, self._counter, state)
            )
            self._retrieving.changed(cell)
        return cell

    # Learning.

    def learn(self, cell: CustomerCell, lesson: Lesson) -> None:
        """Take in turns to learn from; nobody waits."""
        last = cell.lessons[-1] if cell.lessons else None
        if len(cell.lessons) >= _LESSONS_HELD:
            lesson.messages = None
            if last is not None and last.session is lesson.session and last.messages is None:
                last.last = lesson.last
                return
        cell.lessons.append(lesson)
        self._go_on(cell)

    def _go_on(self, cell: CustomerCell) -> None:
        free = not (cell.learning or cell.locked or cell.gone or self.closed)
        if cell.lessons and cell.rest is None and free:
            self._busy.add(cell)
            self._counters.learning += 1
            scope = cell.scope = anyio.CancelScope()
            self._jobs.start(self._study, cell, scope, scope=scope)

    async def _study(self, cell: CustomerCell, scope: anyio.CancelScope) -> None:
        """Learn from what is there, turn by turn, until nothing is or something fails."""
        try:
            while cell.lessons:
                await self._study_lesson(cell, cell.lessons[0], scope)
                if scope.cancel_called:
                    return
                cell.lessons.popleft()
                if cell.actor.refresh_due:
                    await self._refresh(cell, scope)
                await anyio.lowlevel.checkpoint()
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._failed(cell, error)
        finally:
            if not scope.cancel_called:
                self._stopped(cell)

    def _stop(self, cell: CustomerCell) -> None:
        """Call learning off; what is still said about a turn is of no effect."""
        if cell.scope is not None:
            cell.scope.cancel()
            self._stopped(cell)

    def _stopped(self, cell: CustomerCell) -> None:
        cell.scope = None
        self._counters.learning -= 1
        self._release(cell)
        self._moved()
        self._go_on(cell)

    async def _study_lesson(
        self, cell: CustomerCell, lesson: Lesson, scope: anyio.CancelScope
    ) -> None:
        ref = lesson.session.ref
        while lesson.first <= lesson.last:
            if lesson.first <= cell.learnt.get(ref, lesson.session.derived):
                lesson.first += 2  # learnt before, from another reading of the same rows
                continue
            turn = lesson.messages
            if turn is None:
                turn = await self._read(lesson)
            if not turn:
                return  # taken back or deleted: who comes at this number later is another
            changes = await self._derive(cell, turn)
            if scope.cancel_called:
                return
            source = (lesson.session_id, lesson.first)
            self._happened(cell, Learnt(source, turn[-1].at, tuple(changes), turn[-2:]))
            cell.failures = 0
            cell.learnt[ref] = cell.marks[ref] = lesson.first + 1
            self._soon(cell)
            lesson.first += 2
            self._counters.derivations += 1

    async def _read(self, lesson: Lesson) -> tuple[Message, ...]:
        """Read a turn from its rows, with the agent's message before it, if there is one."""
        asked = lesson.first > 1
        rows = await self._vault.store.rows(
            lesson.session.ref, after=lesson.first - 1 - asked, limit=2 + asked
        )
        messages = await self._vault.messages(lesson.session, rows)
        whole = messages and messages[-1].seq == lesson.first + 1
        return tuple(messages) if whole else ()

    async def _derive(self, cell: CustomerCell, turn: tuple[Message, ...]) -> Sequence[FactChange]:
        known: Sequence[Fact] = cell.actor.view.facts
        if self._deriver is not None and cell.failures < _ATTEMPTS:
            changes = await self._deriver.derive(turn, known)
            if not all(isinstance(change, FactChange) for change in changes):
                raise TypeError("a deriver answers FactChange values")
            return changes
        if sum(len(message.text) for message in turn) > INLINE_BYTES:
            return await anyio.to_thread.run_sync(derived, turn, known)
        return derived(turn, known)

    def _failed(self, cell: CustomerCell, error: BaseException) -> None:
        """Let learning rest; the turn is tried again, and in the end read offline."""
        cell.failures += 1
        self._counters.derivations_failed += 1
        log.warning("derivation_failed", error=type(error).__name__, attempt=cell.failures)
        pause = back_off_s(cell.failures)
        cell.rest = self._alarms.after(pause, lambda: self.wake(cell))

    def wake(self, cell: CustomerCell) -> None:
        """Try again what rests after a failure."""
        if cell.rest is not None:
            cell.rest.cancel()
            cell.rest = None
            self._go_on(cell)

    def wake_all(self) -> None:
        """Try again at once whatever rests."""
        for cell in list(self._busy):
            self.wake(cell)

    async def _refresh(self, cell: CustomerCell, scope: anyio.CancelScope) -> None:
        """Ask the profiler; what it can't do is left for the next time."""
        view = cell.actor.view
        cap = self._limits.profile_tokens
        profile = cell.actor.state.standing
        try:
            answer = await self._profiler.refresh(
                profile, tuple(cell.actor.recent), view.facts, cap_tokens=cap
            )
            answer.encode()
            if answer.strip() and self._counter.count(answer) <= cap:
                profile = answer
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._counters.derivations_failed += 1
            log.warning("refresh_failed", error=type(error).__name__)
        if not scope.cancel_called:
            self._happened(cell, Refreshed(profile))

    def _happened(self, cell: CustomerCell, event: CustomerEvent) -> None:
        """Take up what happened; it rests with the next snapshot."""
        self._take_up(cell, event)
        self._soon(cell)

    # Coming to rest.

    def _soon(self, cell: CustomerCell) -> None:
        """See that the customer is saved within ``snapshot_s``."""
        if cell.gone:
            return
        cell.dirty = True
        self._busy.add(cell)
        if cell.alarm is None:
            cell.alarm = self._alarms.after(self._snapshot_s, lambda: self._save_due(cell))

    def _save_due(self, cell: CustomerCell) -> None:
        cell.alarm = None
        if cell.gone:
            return
        if cell.locked or (cell.saved is not None and not cell.saved.done):
            self._soon(cell)  # one snapshot at a time: each names the version that it saw
        else:
            self._save(cell)

    def _save(self, cell: CustomerCell, state: CustomerState | None = None) -> Promise[None]:
        if cell.alarm is not None:
            cell.alarm.cancel()
            cell.alarm = None
        promise: Promise[None] = Promise()
        cell.dirty = False
        marks, cell.marks = cell.marks, {}
        self._busy.add(cell)
        cell.saved = promise
        self._writer.submit(_Snapshot(self, cell, cell.actor.snapshot(state), marks, promise))
        return promise

    async def rest(self, cell: CustomerCell) -> None:
        """Return when what is in memory now is on disk.

        Raises:
            InterturnError: it couldn't be written; it is tried again later.
        """
        async with self._changing(cell):
            if (cell.dirty or cell.marks) and not cell.gone:
                await self._save(cell).wait()

    @asynccontextmanager
    async def _changing(self, cell: CustomerCell) -> AsyncIterator[None]:
        """Be the one who writes; what came to be learnt meanwhile is learnt afterwards."""
        try:
            async with cell.lock:
                await self._settled(cell)
                yield
        finally:
            self._go_on(cell)

    async def _settled(self, cell: CustomerCell) -> None:
        while cell.saved is not None and not cell.saved.done:
            with contextlib.suppress(InterturnError):
                await cell.saved.wait()

    @asynccontextmanager
    async def paused(self, cell: CustomerCell) -> AsyncIterator[None]:
        """Learn nothing and write nothing meanwhile; what waits, waits."""
        try:
            async with cell.lock:
                self._stop(cell)
                await self._settled(cell)
                yield
        finally:
            self._go_on(cell)

    async def commit(self, cell: CustomerCell, event: CustomerEvent) -> None:
        """Bring an event to rest, and only then take it up.

        Raises:
            Forgotten: the customer was, meanwhile.
            InterturnError: it isn't on disk; nothing has changed.
        """
        async with self._changing(cell):
            if cell.gone:
                raise Forgotten
            keeping, state = cell.keeping, cell.actor.after(event)
            if keeping.new is None:
                await self._save(cell, state).wait()
            else:
                with public_errors():
                    await self._vault.store.adopt(
                        Adoption(
                            customer=keeping.ref,
                            new_customer=keeping.new,
                            snapshot=self.write_after(cell, event),
                        )
                    )
                keeping.written()
            # Not ``state``: something may have been learnt while it was being written.
            self._take_up(cell, event)

    def write_after(self, cell: CustomerCell, event: CustomerEvent) -> WriteCustomer:
        """Return the write that brings an event to rest, for a transaction of the caller's.

        Then `took` follows. The customer is `paused` from before to after.
        """
        keeping = cell.keeping
        sealed = keeping.seal_state(cell.actor.snapshot(cell.actor.after(event)))
        return WriteCustomer(keeping.ref, sealed, keeping.version, tuple(cell.marks.items()))

    def took(self, cell: CustomerCell, event: CustomerEvent) -> None:
        """Take up what the caller's transaction brought to rest."""
        cell.keeping.written()
        cell.marks.clear()
        cell.dirty = False
        self._take_up(cell, event)

    def _take_up(self, cell: CustomerCell, event: CustomerEvent) -> None:
        if cell.actor.apply(event, cell.actor.after(event)):
            self._retrieving.changed(cell)

    def unsaved(self, cell: CustomerCell, marks: dict[int, int]) -> None:
        """A snapshot didn't come to rest, or may not have: look what did, and save it again."""
        cell.marks = {**marks, **cell.marks}
        cell.dirty = True
        self._jobs.start(self._look_again, cell)

    async def _look_again(self, cell: CustomerCell) -> None:
        try:
            with public_errors():
                row = await self._vault.store.load_customer(cell.keeping.hash)
            if row is not None:
                cell.keeping.version = row.version
        except InterturnError as error:
            log.warning("snapshot_failed", error=type(error).__name__)
        self._soon(cell)

    def _release(self, cell: CustomerCell) -> None:
        """Let go of a customer who has nothing left to do."""
        resting = cell.dirty or cell.marks or (cell.saved is not None and not cell.saved.done)
        if cell.gone or not (resting or cell.lessons or cell.learning):
            self._busy.discard(cell)

    def dismiss(self, cell: CustomerCell) -> None:
        """Let go at once of a customer who was forgotten or has become another."""
        cell.gone = True
        cell.dirty = False
        cell.lessons.clear()
        cell.marks.clear()
        for alarm in (cell.alarm, cell.rest):
            if alarm is not None:
                alarm.cancel()
        cell.alarm = cell.rest = None
        self._retrieving.leave(cell)
        self._release(cell)
        self._vault.forgets(cell.keeping)

    def rested(self, cell: CustomerCell) -> None:
        """A snapshot is on disk."""
        self._vault.rested += 1
        self._release(cell)

    async def rest_all(self) -> None:
        """Bring everyone to rest who isn't."""
        for cell in list(self._busy):
            try:
                await self.rest(cell)
            except InterturnError as error:
                log.error("snapshot_failed", error=type(error).__name__)


class _Snapshot:
    """A customer's state on its way to disk."""

    __slots__ = ("_cell", "_customers", "_marks", "_promise", "_state", "size")

    def __init__(
        self,
        customers: Customers,
        cell: CustomerCell,
        state: bytes,
        marks: dict[int, int],
        promise: Promise[None],
    ) -> None:
        self._customers = customers
        self._cell = cell
        self._state = state
        self._marks = marks
        self._promise = promise
        self.size = len(state)

    def prepare(self) -> Write:
        """Seal."""
        keeping = self._cell.keeping
        derived = tuple(self._marks.items())
        return WriteCustomer(keeping.ref, keeping.seal_state(self._state), keeping.version, derived)

    def settle(self, outcome: Outcome) -> None:
        """It is durable, or the stored version is another."""
        if outcome != "written":
            self.fail(StoreFailed("the stored state is not the one in memory"))
            return
        self._cell.keeping.written()
        self._promise.keep(None)
        self._customers.rested(self._cell)

    def fail(self, error: InterturnError) -> None:
        """It was not written, or may not have been."""
        if not self._cell.gone:
            self._customers.unsaved(self._cell, self._marks)
        self._promise.fail(error)
