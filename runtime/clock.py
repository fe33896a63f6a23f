"""Time as a port, and the alarms that run on it."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Protocol

import anyio

from interturn.runtime.events import log


class Clock(Protocol):
    """What the runtime needs of time. Times describe messages and never order them."""

    def utc(self) -> datetime:
        """Return the present time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment, never going back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when this many seconds of `monotonic` have passed."""
        ...


class SystemClock:
    """The machine's clock."""

    def utc(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic time in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await anyio.sleep(seconds)


class Alarm:
    """Something to do at a time, unless it is called off."""

    __slots__ = ("_alarms", "action")

    def __init__(self, action: Callable[[], object], alarms: Alarms) -> None:
        self.action: Callable[[], object] | None = action
        self._alarms = alarms

    def cancel(self) -> None:
        """Call it off. Safe at any time, also after it rang."""
        if self.action is not None:
            self.action = None
            self._alarms.called_off()


class Alarms:
    """All the runtime's timers in one heap, rung by one task.

    Deadlines of turns, back-offs, sweeps and the lease's renewal are alarms, so
    that a virtual clock moves them all, and none costs a task of its own.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = count()
        self._earlier = anyio.Event()
        self._called_off = 0

    def at(self, when: float, action: Callable[[], object]) -> Alarm:
        """Ring at this monotonic time, in seconds. ``action`` must not block."""
        alarm = Alarm(action, self)
        if not self._heap or when < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (when, next(self._order), alarm))
        return alarm

    def after(self, seconds: float, action: Callable[[], object]) -> Alarm:
        """Ring this many seconds from now."""
        return self.at(self._clock.monotonic() + seconds, action)

    def called_off(self) -> None:
        """Forget alarms that were called off when they are most of the heap."""
        self._called_off += 1
        if self._called_off > max(1_000, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._called_off = 0

    async def ring(self) -> None:
        """Ring alarms as they fall due, until cancelled."""
        while True:
            self._ring_due()
            self._earlier = anyio.Event()
            async with anyio.create_task_group() as group:
                if self._heap:
                    group.start_soon(self._sleep_until, self._heap[0][0], self._earlier)
                await self._earlier.wait()
                group.cancel_scope.cancel()

    async def _sleep_until(self, when: float, earlier: anyio.Event) -> None:
        await self._clock.sleep(max(0.0, when - self._clock.monotonic()))
        earlier.set()

    def _ring_due(self) -> None:
        now = self._clock.monotonic()
        due: list[Alarm] = []
        # What is set meanwhile rings next time, however soon: others want the loop, too.
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].action is None):
            due.append(heapq.heappop(self._heap)[2])
        for alarm in due:
            if alarm.action is not None:
                action, alarm.action = alarm.action, None
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - one alarm can't silence the others
                    log.error("alarm_failed", error=type(error).__name__)
