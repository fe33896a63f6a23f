"""Counts: every message that was taken in is counted out once, by how it ended."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from interturn.runtime import DeliveryConflict, InterturnError, Settings, TurnClosed, TurnExpired

pytestmark = pytest.mark.anyio


async def test_a_known_delivery_is_a_duplicate_wherever_it_is_known(opened, say):
    """A delivery known in memory counts as one known on disk does; a conflict counts too."""
    async with opened(settings=Settings(deliveries=1)) as runtime:
        session = runtime.session("s")
        await say(session, "a", delivery_id="a")
        async with session.turn("a", delivery_id="a") as turn:
            assert turn.already is not None
            assert (await turn.reply("x")).duplicate
        assert runtime.statistics().duplicates == 1
        await session.record("a", "x", delivery_id="a")
        assert runtime.statistics().duplicates == 2
        for number in range(3):
            await say(session, f"b{number}", delivery_id=f"b{number}")
        async with session.turn("a", delivery_id="a") as turn:
            assert turn.already is None  # forgotten in memory, known at the commit
            assert (await turn.reply("x")).duplicate
        assert runtime.statistics().duplicates == 3
        with pytest.raises(DeliveryConflict):
            await say(session, "other words", delivery_id="b2")
        assert runtime.statistics().duplicates == 4
        assert runtime.statistics().turns == 4


async def test_an_answer_to_nobodys_turn_is_counted(opened, clock, until, say, balanced):
    """A reply to a turn that was lost is taken in, fails, and writes nothing."""
    async with opened(clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")
        turn = await session.turn("lost").__aenter__()
        other = asyncio.create_task(say(session, "other"))
        await until(lambda: runtime.statistics().queued == 1)
        await clock.advance(10)
        await other
        failed = runtime.statistics().failed
        with pytest.raises(TurnExpired):
            await turn.reply("late")
        assert runtime.statistics().failed == failed + 1
        with pytest.raises(TurnClosed):
            await turn.reply("later")
        balanced(runtime, at_rest=True)


async def test_the_answer_to_who_has_left_is_counted_as_late(opened, watched, until, balanced):
    """Who leaves while their turn is being written gets no answer, and it is counted as late."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await session.layers()
        watched.gates["commit"] = asyncio.Event()
        tasks = [asyncio.create_task(session.record(f"v{n}", "r")) for n in range(3)]
        await until(lambda: watched.reached["commit"] == 1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        watched.gates.pop("commit").set()
        await until(lambda: runtime.statistics().in_flight == 0)
        statistics = runtime.statistics()
        assert (statistics.late_replies, statistics.withdrawn, statistics.turns) == (1, 2, 1)
        balanced(runtime, at_rest=True)


async def test_after_the_drain_all_that_was_accepted_has_ended(
    opened, watched, clock, until, say, balanced
):
    """Accepted = replied + failed + withdrawn + expired, with each of the four and nothing left."""
    settings = Settings(drain_s=1)
    async with opened(watched, clock=clock, settings=settings) as runtime:
        session = runtime.session("s")
        await say(session, "replied")
        turn = await session.turn("held for ever").__aenter__()
        waits = [asyncio.create_task(say(session, f"w{n}", timeout=5 * n + 5)) for n in range(3)]
        await until(lambda: runtime.statistics().queued == 3)
        waits[2].cancel()
        await clock.advance(5)
        await until(waits[0].done)
        closing = asyncio.create_task(runtime.close())
        await until(waits[1].done)
        await clock.advance(1)
        await closing
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "TurnTimeout",
            "RuntimeClosed",
            "CancelledError",
        ]
        with contextlib.suppress(InterturnError):
            await turn.reply("late")
    statistics = runtime.statistics()
    ended = statistics.replied + statistics.failed + statistics.withdrawn + statistics.expired
    assert statistics.accepted == ended
    assert (statistics.failed, statistics.withdrawn, statistics.expired) == (1, 1, 1)
    assert (statistics.queued, statistics.in_flight, statistics.held) == (0, 0, 0)
