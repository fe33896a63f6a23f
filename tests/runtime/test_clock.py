"""Alarms: rung in their order by whatever clock there is, or called off."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from interturn.runtime.clock import Alarms, SystemClock
from interturn.runtime.supervisor import back_off_s

pytestmark = pytest.mark.anyio


@pytest.fixture
def rung():
    return []


async def _ringing(alarms, clock, work):
    async with anyio.create_task_group() as group:
        group.start_soon(alarms.ring)
        await clock.advance(0)
        await work()
        group.cancel_scope.cancel()


async def test_alarms_ring_in_order_at_their_time(clock, rung):
    """Alarms ring at their times and none early, equal ones in the order they were set."""
    alarms = Alarms(clock)

    async def work():
        for seconds in (5, 1, 3, 3, 0):
            alarms.after(seconds, lambda s=seconds: rung.append((s, clock.now)))
        await clock.advance(2)
        assert rung == [(0, 1_000), (1, 1_001)]
        alarms.after(0.5, lambda: rung.append(("new", clock.now)))
        await clock.advance(10)
        assert rung[2:] == [("new", 1_002.5), (3, 1_003), (3, 1_003), (5, 1_005)]

    await _ringing(alarms, clock, work)


async def test_an_alarm_that_was_called_off_is_silent(clock, rung):
    """Calling off is safe at any time: before, twice, and after it rang."""
    alarms = Alarms(clock)

    async def work():
        first = alarms.after(1, lambda: rung.append(1))
        second = alarms.after(2, lambda: rung.append(2))
        first.cancel()
        first.cancel()
        await clock.advance(3)
        assert rung == [2]
        second.cancel()

    await _ringing(alarms, clock, work)


async def test_alarms_called_off_leave_nothing(clock, rung):
    """A hundred thousand alarms that were called off take no room, and the others still ring."""
    alarms = Alarms(clock)

    async def work():
        for number in range(100_000):
            alarm = alarms.after(10 + number, lambda: rung.append("off"))
            if number % 1_000:
                alarm.cancel()
            else:
                alarm.action = lambda n=number: rung.append(n)
        assert len(alarms._heap) < 3_000
        await clock.advance(200_000)
        assert rung == list(range(0, 100_000, 1_000))

    await _ringing(alarms, clock, work)


async def test_an_alarm_may_set_alarms(clock, rung):
    """An alarm that sets the next one, as the lease's renewal does, goes on for ever."""
    alarms = Alarms(clock)

    def again():
        rung.append(clock.now)
        alarms.after(10, again)

    async def work():
        again()
        await clock.advance(100)
        assert rung == [1_000 + 10 * n for n in range(11)]

    await _ringing(alarms, clock, work)


async def test_an_alarm_that_sets_itself_again_at_once_lets_others_go_on(clock, rung):
    """With a pause of 0 s it rings again and again, and the loop is everybody's meanwhile."""
    alarms = Alarms(clock)

    def again():
        rung.append("again")
        if "other" not in rung:
            alarms.after(0, again)

    async def work():
        alarms.after(0, again)
        while len(rung) < 3:
            await anyio.lowlevel.checkpoint()
        rung.append("other")

    await _ringing(alarms, clock, work)
    assert rung[:3] == ["again"] * 3


async def test_the_machines_clock_is_aware():
    """The machine's clock tells UTC with its zone, and time that doesn't go back."""
    clock = SystemClock()
    assert clock.utc().utcoffset().total_seconds() == 0
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before


def test_back_off_doubles_from_one_to_sixty_seconds():
    """Rests double from 1 s to 60 s, each within the upper half of its ceiling, and differ."""
    for attempt in range(1, 2_000, 7):
        ceiling = min(60, 2 ** min(attempt - 1, 20))
        rests = {back_off_s(attempt) for _ in range(20)}
        assert all(ceiling / 2 <= rest <= ceiling for rest in rests)
        assert len(rests) > 10
