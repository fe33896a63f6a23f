"""Learning: turns are read for what they say about their customer, as jobs.

Nobody waits for it. Turns stand in one queue for each customer, in the order that
they were recorded, whichever session they came from. Each is read by the deriver;
what it finds is published at once. A turn whose reading failed is tried again after
a rest, and in the end read offline. Every few turns the profiler is asked, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from interturn.actors.customer import CustomerLimits, Learnt, Refreshed
from interturn.actors.deriver import derived
from interturn.actors.facts import Fact, FactChange
from interturn.actors.message import Message
from interturn.actors.ports import Deriver, Profiler, TokenCounter
from interturn.actors.profile import OfflineProfiler
from interturn.runtime.backoff import back_off_s
from interturn.runtime.clock import Alarms
from interturn.runtime.events import log
from interturn.runtime.jobs import Jobs, raise_if_called_off
from interturn.runtime.lessons import Lesson
from interturn.runtime.statistics import Counters
from interturn.runtime.threads import in_thread
from interturn.runtime.tokens import INLINE_BYTES
from interturn.runtime.vault import Vault

if TYPE_CHECKING:
    from interturn.runtime.customers import CustomerCell, Customers

_LESSONS_HELD: Final = 64
"""Turns kept in memory for learning; those that come after are read from the rows again."""

_ATTEMPTS: Final = 5
"""Failures in a row after which the offline deriver reads the turn in the other's stead."""


class Learning:
    """What the customers of one runtime learn from their turns. See the module's head."""

    def __init__(
        self,
        customers: Customers,
        *,
        vault: Vault,
        alarms: Alarms,
        counters: Counters,
        jobs: Jobs,
        moved: Callable[[], None],
        counter: TokenCounter,
        limits: CustomerLimits,
        deriver: Deriver | None,
        profiler: Profiler | None,
    ) -> None:
        self._customers = customers
        self._vault = vault
        self._alarms = alarms
        self._counters = counters
        self._jobs = jobs
        self._moved = moved
        self._counter = counter
        self._limits = limits
        self._deriver = deriver
        self._read_before = False
        self._profiler: Profiler = profiler or OfflineProfiler(counter)

    def __repr__(self) -> str:
        return f"Learning(customers={self._counters.learning})"

    def learn(self, cell: CustomerCell, lesson: Lesson) -> None:
        """Take in turns to learn from; nobody waits."""
        last = cell.lessons[-1] if cell.lessons else None
        if len(cell.lessons) >= _LESSONS_HELD:
            lesson.messages = None
            if last is not None and last.session is lesson.session and last.messages is None:
                last.last = lesson.last
                return
        cell.lessons.append(lesson)
        self.go_on(cell)

    def go_on(self, cell: CustomerCell) -> None:
        """Learn on, if there is something to learn from and nothing is in the way."""
        if not cell.lessons or cell.gone:
            return
        self._customers.hold(cell)  # also while learning rests, so that a flush finds them
        free = not (cell.learning or cell.locked or self._customers.closed)
        if cell.rest is None and free:
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
                del cell.lessons[0]
                if cell.actor.refresh_due:
                    await self._refresh(cell, scope)
                if cell.lessons:
                    await anyio.lowlevel.checkpoint()
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._failed(cell, error)
        finally:
            if not scope.cancel_called:
                self._stopped(cell)

    def stop(self, cell: CustomerCell) -> None:
        """Call learning off; what is still said about a turn is of no effect."""
        if cell.scope is not None:
            cell.scope.cancel()
            self._stopped(cell)

    def _stopped(self, cell: CustomerCell) -> None:
        cell.scope = None
        self._counters.learning -= 1
        self._customers.release(cell)
        self._moved()
        self.go_on(cell)

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
            self._customers.happened(cell, Learnt(source, turn[-1].at, tuple(changes), turn[-2:]))
            cell.failures = 0
            cell.learnt[ref] = cell.marks[ref] = lesson.first + 1
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
        if self._read_before and sum(len(message.text) for message in turn) <= INLINE_BYTES:
            return derived(turn, known)
        changes = await in_thread(lambda: derived(turn, known))
        self._read_before = True  # what it knows of languages is loaded: some 200 ms
        return changes

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
            self.go_on(cell)

    def wake_all(self) -> None:
        """Try again at once whatever rests."""
        for cell in self._customers.busy:
            self.wake(cell)

    async def _refresh(self, cell: CustomerCell, scope: anyio.CancelScope) -> None:
        """Ask the profiler; what it can't do is left for the next time."""
        view = cell.actor.view
        cap = self._limits.profile_tokens
        profile = cell.actor.state.standing
        try:
            answer = await self._profiler.refresh(
                profile, cell.actor.recent, view.facts, cap_tokens=cap
            )
            answer.encode()
            if answer.strip() and self._counter.count(answer) <= cap:
                profile = answer
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._counters.derivations_failed += 1
            log.warning("refresh_failed", error=type(error).__name__)
        if not scope.cancel_called:
            self._customers.happened(cell, Refreshed(profile))
