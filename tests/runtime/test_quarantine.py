"""Quarantine: an actor that fails again and again rests, longer each time, and comes back."""

from __future__ import annotations

import pytest

from interturn.runtime import ActorFailed, Quarantined
from interturn.runtime.cell import Look, Phase

pytestmark = pytest.mark.anyio


def _broken(cell):
    raise ZeroDivisionError


async def _fail(runtime) -> None:
    with pytest.raises(ActorFailed):
        await runtime._inside.cell("s").ask(Look(_broken)).promise.wait()


async def _rests(runtime, clock, failures: int) -> list[float]:
    """Fail, wait for the rest to end, fail again: how long each rest was."""
    session, rests = runtime.session("s"), []
    for _ in range(failures):
        await _fail(runtime)
        with pytest.raises(Quarantined) as caught:
            await session.layers()
        rests.append(caught.value.retry_s)
        await clock.advance(caught.value.retry_s)
        await session.layers()
    return rests


async def test_rests_grow_to_a_minute_however_long_they_take(opened, clock, say):
    """One failure after a rest is another rest, twice as long, up to 60 s, each with jitter."""
    async with opened(clock=clock) as runtime:
        await say(runtime.session("s"), "v")
        for _ in range(3):
            await _fail(runtime)
        rests = await _rests(runtime, clock, 12)
        ceilings = [min(60, 2**attempt) for attempt in range(12)]
        pairs = list(zip(rests, ceilings, strict=True))
        assert all(ceiling / 2 <= rest <= ceiling for rest, ceiling in pairs)
        assert any(rest != ceiling for rest, ceiling in pairs)
        assert len(runtime._inside.cell("s").failed_at) <= 17


async def test_a_minute_without_a_failure_forgives(opened, clock, say):
    """Who has worked for 60 s since its rest is as one that never failed."""
    async with opened(clock=clock) as runtime:
        await say(runtime.session("s"), "v")
        for _ in range(3):
            await _fail(runtime)
        assert (await _rests(runtime, clock, 5))[-1] >= 8
        await clock.advance(60.1)  # jittered rests don't end on the dot
        for _ in range(3):
            await _fail(runtime)
            await runtime.session("s").layers()
        assert (await _rests(runtime, clock, 1))[0] <= 1


async def test_who_waits_at_a_quarantine_loses_no_other_session(opened, clock, say, until):
    """While one rests others are served, its cell is one of those that leave, and it comes back."""
    async with opened(clock=clock) as runtime:
        await say(runtime.session("s"), "v")
        for _ in range(4):
            await _fail(runtime)
        assert runtime._inside.cell("s").phase is Phase.QUARANTINED
        for number in range(20):
            await say(runtime.session(f"s{number}"), "v")
        await clock.advance(400)
        assert runtime.statistics().sessions == 0
        assert (await say(runtime.session("s"), "w")).seq == 3
