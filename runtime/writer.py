"""Group commit: one writer, and every transaction carries all that has come meanwhile.

A commit costs a wait for the disk whatever it holds, so what arrives during one
goes into the next, and throughput grows with load while a lone turn waits for
nobody (DeWitt et al., "Implementation Techniques for Main Memory Database
Systems", SIGMOD 1984, section 5.2). Nothing lingers to fill a batch.

Counting tokens and sealing happen here too, on the way to the disk: for a small
batch in place, for a large one in a thread, where tiktoken lets other threads
run. Callers wait for a promise; only this module's one task waits for the store,
and nobody cancels it before the drain is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread

from interturn.runtime.cell import SLICE_S
from interturn.runtime.clock import Clock
from interturn.runtime.errors import Fenced, InterturnError, RuntimeClosed, StoreFailed, public
from interturn.runtime.events import log
from interturn.runtime.statistics import Counters
from interturn.runtime.tokens import INLINE_BYTES
from interturn.storage import Outcome, Store, Write
from interturn.storage.errors import StorageError

_BATCH_UNITS: Final = 512
_BATCH_BYTES: Final = 16 * 1_048_576
"""A batch holds the disk and memory for its time: about 100 ms of writing at most."""


class Unit(Protocol):
    """Something to bring to disk, and whom to tell."""

    size: int

    def prepare(self) -> Write:
        """Count and seal. Runs in a thread where the batch is large."""

    def settle(self, outcome: Outcome) -> None:
        """It is durable, or can't be accepted: the outcome says so."""

    def fail(self, error: InterturnError) -> None:
        """It was not written, or may not have been."""


class Writer:
    """The one task that writes. See the module's head."""

    def __init__(
        self, store: Store, clock: Clock, counters: Counters, fenced: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._fenced = fenced
        self._queue: deque[Unit] = deque()
        self._batch: list[Unit] = []
        self._wake = anyio.Event()
        self._renewal = False
        self._at_work = False
        self._ended = False
        self._idle = anyio.Event()

    def __repr__(self) -> str:
        return f"Writer(queued={len(self._queue)}, at_work={self._at_work})"

    def submit(self, unit: Unit) -> None:
        """Take a unit for the next transaction; where there is none to come, say so at once."""
        if self._ended:
            unit.fail(RuntimeClosed())
            return
        self._queue.append(unit)
        self._wake.set()

    def renew(self) -> None:
        """Say to the store that the owner lives, before the next transaction."""
        self._renewal = True
        self._wake.set()

    async def quiet(self) -> None:
        """Return when nothing is queued nor under way."""
        while self._queue or self._at_work:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled.

        A loop that is torn down cancels this task like any other, at any point.
        What was under way then may be on disk or not, and is told so.
        """
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                self._at_work = True
                with anyio.CancelScope(shield=True):
                    while self._renewal or self._queue:
                        if self._renewal:  # however much there is to write
                            await self._renew()
                        if self._queue:
                            await self._commit(self._take())
                        # A store in memory waits for nothing, and others want the loop.
                        await anyio.lowlevel.checkpoint()
                self._at_work = False
                self._idle.set()
        finally:
            self._at_work = False
            self._idle.set()
            self.abandon()

    def abandon(self) -> None:
        """Fail what is queued, and what is under way as of unknown outcome: nobody writes more."""
        self._ended = True
        under_way, self._batch = self._batch, []
        for unit in under_way:
            unit.fail(StoreFailed("the writer was stopped", unknown=True))
        while self._queue:
            self._queue.popleft().fail(RuntimeClosed())

    def _take(self) -> list[Unit]:
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and len(batch) < _BATCH_UNITS:
            size += self._queue[0].size
            if size > _BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _renew(self) -> None:
        self._renewal = False
        try:
            await self._store.renew()
        except StorageError as error:
            self._counters.failures += 1
            if isinstance(public(error), Fenced):
                self._fenced()

    async def _commit(self, batch: list[Unit]) -> None:
        started = self._clock.monotonic()
        prepared = await self._prepare(batch)
        if not prepared:
            return
        units = self._batch = [unit for unit, _ in prepared]
        try:
            outcomes = await self._store.commit([write for _, write in prepared])
        except StorageError as error:
            refused = partial(public, error)
            if isinstance(refused(), Fenced):
                self._fenced()
            await self._tell(units, lambda unit, _: unit.fail(refused()))
        except Exception as error:  # noqa: BLE001 - a store of somebody's own may raise anything
            cause = type(error).__name__
            await self._tell(units, lambda unit, _: unit.fail(StoreFailed(cause, unknown=True)))
        else:
            self._counters.committed(len(units), self._clock.monotonic() - started)
            await self._tell(units, lambda unit, place: unit.settle(outcomes[place]))

    async def _prepare(self, batch: list[Unit]) -> list[tuple[Unit, Write]]:
        """Count and seal a batch; a unit that can't be is told so and left out."""
        failed: list[tuple[Unit, InterturnError]] = []

        def prepare() -> list[tuple[Unit, Write]]:
            prepared = []
            for unit in batch:
                try:
                    prepared.append((unit, unit.prepare()))
                except Exception as error:  # noqa: BLE001 - a token counter may raise anything
                    failed.append((unit, StoreFailed(f"{type(error).__name__} while sealing")))
            return prepared

        if sum(unit.size for unit in batch) > INLINE_BYTES:
            prepared = await anyio.to_thread.run_sync(prepare)
        else:
            prepared = prepare()
        for unit, error in failed:
            unit.fail(error)
        return prepared

    async def _tell(self, units: list[Unit], tell: Callable[[Unit, int], None]) -> None:
        """Tell each unit, letting others have the loop every so often."""
        self._batch = []
        until = self._clock.monotonic() + SLICE_S
        for place, unit in enumerate(units):
            try:
                tell(unit, place)
            except Exception as error:  # noqa: BLE001 - one cell's fault never ends the writer
                self._counters.failures += 1
                log.error("settling_failed", error=type(error).__name__)
            if self._clock.monotonic() > until:
                await anyio.lowlevel.checkpoint()
                until = self._clock.monotonic() + SLICE_S
