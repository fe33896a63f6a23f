"""Customers in memory: their places, and how what they know comes to rest.

A customer lives as long as a session that holds them, or as long as something is
left to do: turns to learn from (`interturn.runtime.learning`), a snapshot to write.
What has happened to them is published at once and rests later, at most every
``snapshot_s`` seconds, together with how far each session was learnt from: after a
crash the rest is learnt again, from the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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
    decode,
)
from interturn.actors.errors import Forgotten, InterturnError
from interturn.actors.ports import Deriver, Profiler, TokenCounter
from interturn.runtime.clock import Alarm, Alarms
from interturn.runtime.errors import StoreFailed, public_errors
from interturn.runtime.events import log
from interturn.runtime.jobs import Jobs
from interturn.runtime.keeping import CustomerKeeping
from interturn.runtime.learning import Learning
from interturn.runtime.lessons import Lesson
from interturn.runtime.promise import Promise
from interturn.runtime.retrieving import Reading, Retrieving
from interturn.runtime.statistics import Counters
from interturn.runtime.vault import Vault
from interturn.runtime.writer import Writer
from interturn.storage import Adoption, Outcome, Tampered, Write, WriteCustomer


class CustomerCell:
    """One customer's place in memory.

    Attributes:
        actor: their facts and profile.
        lessons: what is to be learnt from, oldest first.
        learnt: sessions, by the store's number, and how far they were learnt from.
        marks: those of them that moved since the last snapshot.
        reading: what the retriever has read of them, if it reads.
        waiting: how many wait for what they say to be written.
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
        "waiting",
    )

    def __init__(self, keeping: CustomerKeeping, actor: CustomerActor) -> None:
        self.keeping = keeping
        self.actor = actor
        self.lessons: list[Lesson] = []
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
        self.waiting = 0
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
        self._jobs = jobs
        self._retrieving = retrieving
        self._counter = counter
        self._limits = limits
        self._snapshot_s = snapshot_s
        # Strong references: whoever is here has something left to do.
        self._busy: set[CustomerCell] = set()
        self.closed = False
        self.learning = Learning(
            self,
            vault=vault,
            alarms=alarms,
            counters=counters,
            jobs=jobs,
            moved=moved,
            counter=counter,
            limits=limits,
            deriver=deriver,
            profiler=profiler,
        )

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
            self._publish(cell)
        return cell

    # What happens to them.

    def happened(self, cell: CustomerCell, event: CustomerEvent) -> None:
        """Take up what happened; it rests with the next snapshot."""
        self._take_up(cell, event)
        self.soon(cell)

    # Coming to rest.

    def soon(self, cell: CustomerCell) -> None:
        """See that the customer is saved within ``snapshot_s``."""
        if cell.gone:
            return
        cell.dirty = True
        self.hold(cell)
        if cell.alarm is None:
            cell.alarm = self._alarms.after(self._snapshot_s, lambda: self._save_due(cell))

    def _save_due(self, cell: CustomerCell) -> None:
        cell.alarm = None
        if cell.gone:
            return
        if cell.locked or (cell.saved is not None and not cell.saved.done):
            self.soon(cell)  # one snapshot at a time: each names the version that it saw
        else:
            self._save(cell)

    def _save(self, cell: CustomerCell, state: CustomerState | None = None) -> Promise[None]:
        if cell.alarm is not None:
            cell.alarm.cancel()
            cell.alarm = None
        promise: Promise[None] = Promise()
        cell.dirty = False
        marks, cell.marks = cell.marks, {}
        self.hold(cell)
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
            self.learning.go_on(cell)

    async def _settled(self, cell: CustomerCell) -> None:
        while cell.saved is not None and not cell.saved.done:
            with contextlib.suppress(InterturnError):
                await cell.saved.wait()

    @asynccontextmanager
    async def paused(self, cell: CustomerCell) -> AsyncIterator[None]:
        """Learn nothing and write nothing meanwhile; what waits, waits."""
        try:
            async with cell.lock:
                self.learning.stop(cell)
                await self._settled(cell)
                yield
        finally:
            self.learning.go_on(cell)

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
            self._publish(cell)

    def _publish(self, cell: CustomerCell) -> None:
        """Make what sessions read now, so that no turn waits for it."""
        try:
            cell.actor.publish()
        except Exception as error:  # noqa: BLE001 - a token counter may raise anything
            # What has happened has happened: it is shown when it is asked for.
            log.warning("publishing_failed", error=type(error).__name__)
        else:
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
        self.soon(cell)

    @property
    def busy(self) -> list[CustomerCell]:
        """Those who have something left to do."""
        return list(self._busy)

    def hold(self, cell: CustomerCell) -> None:
        """Keep a customer in memory until they have nothing left to do."""
        self._busy.add(cell)

    def release(self, cell: CustomerCell) -> None:
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
        self.release(cell)
        self._vault.forgets(cell.keeping)

    def rested(self, cell: CustomerCell) -> None:
        """A snapshot is on disk."""
        self._vault.rested += 1
        self.release(cell)

    async def rest_all(self) -> None:
        """Bring everyone to rest who isn't, all at once so that they share their commits."""
        async with anyio.create_task_group() as group:
            for cell in self.busy:
                group.start_soon(self._rest_or_tell, cell)

    async def _rest_or_tell(self, cell: CustomerCell) -> None:
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
