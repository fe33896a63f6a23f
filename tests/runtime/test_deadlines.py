"""Deadlines: a wait has an end, and its error says whether the work had begun."""

from __future__ import annotations

import asyncio

import pytest

from interturn.runtime import Settings, TurnTimeout

pytestmark = pytest.mark.anyio


async def test_a_turn_whose_words_are_being_written_is_waited_for_no_longer(
    opened, watched, clock, until, say, pairs, balanced
):
    """A turn that is being taken at its deadline is told as begun, and is given back."""
    settings = Settings(keep_unanswered=True)
    async with opened(watched, clock=clock, settings=settings) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        gate = watched.gates["commit"] = asyncio.Event()
        late = asyncio.create_task(say(session, "tarde", timeout=5))
        await until(lambda: runtime.statistics().in_flight == 1)
        await clock.advance(5)
        await until(late.done)
        with pytest.raises(TurnTimeout) as caught:
            await late
        assert caught.value.started is True
        assert runtime.statistics().expired == 0
        del watched.gates["commit"]
        gate.set()
        assert (await say(session, "después")).seq == 3
        assert [said for said, _ in await pairs(session)] == ["antes", "después"]
        assert runtime.statistics().late_replies == 1
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        assert await runtime.unanswered() == []


async def test_a_record_that_is_being_written_is_waited_for_no_longer(
    opened, watched, clock, until, pairs, balanced
):
    """What is on its way to a slow disk after `turn_s` is told as begun, and its delivery tells."""
    async with opened(watched, clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")
        await session.layers()
        gate = watched.gates["commit"] = asyncio.Event()
        first = asyncio.create_task(session.record("v", "r", delivery_id="d"))
        await until(lambda: watched.reached["commit"] == 1)
        behind = asyncio.create_task(session.record("w", "r"))
        await until(lambda: runtime.statistics().queued == 1)
        await clock.advance(10)
        for task, started in ((first, True), (behind, False)):
            with pytest.raises(TurnTimeout) as caught:
                await task
            assert caught.value.started is started
        del watched.gates["commit"]
        gate.set()
        assert (await session.record("v", "r", delivery_id="d")).duplicate
        assert await pairs(session) == [("v", "r")]
        assert (runtime.statistics().late_replies, runtime.statistics().expired) == (1, 1)
        balanced(runtime, at_rest=True)
