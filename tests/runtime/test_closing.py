"""Opening and closing: each ends everything it began, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from interturn.runtime import (
    MemoryStore,
    Runtime,
    RuntimeClosed,
    Settings,
    StoreFailed,
)

pytestmark = pytest.mark.anyio


async def test_after_closing_every_call_is_refused(opened, say):
    """A closed runtime, or one not opened yet, refuses every call with `RuntimeClosed`."""
    runtime = opened()
    for _ in range(2):
        session = runtime.session("s") if runtime._inside else None
        if session is None:
            session = runtime.session("s")
        for call in (
            lambda s=session: say(s, "x"),
            lambda s=session: s.record("x", "y"),
            lambda s=session: s.assemble("x"),
            session.layers,
            runtime.flush,
            lambda: runtime.customer("c").sessions(),
        ):
            with pytest.raises(RuntimeClosed):
                await call()
        if runtime._inside is None:
            async with runtime:
                await say(runtime.session("s"), "v")
    assert runtime.statistics().turns == 1
    with pytest.raises(RuntimeClosed):
        await runtime.__aenter__()


async def test_closing_twice_is_fine(opened, say):
    """`close` may be called twice, at once, and before leaving the block."""
    async with opened() as runtime:
        await say(runtime.session("s"), "v")
        await asyncio.gather(runtime.close(), runtime.close())
        await runtime.close()
    await runtime.close()
    await opened().close()  # never opened


async def test_each_of_those_who_wait_is_told(opened, until, say, balanced, pairs):
    """Closing with 20 who wait: the held turn ends, each other gets an answer or is told."""
    async with opened() as runtime:
        session = runtime.session("s")
        turn = session.turn("held")
        await turn.__aenter__()
        waiting = [asyncio.create_task(say(session, f"w{n}")) for n in range(10)]
        waiting += [asyncio.create_task(session.record(f"r{n}", "x")) for n in range(10)]
        await until(lambda: runtime.statistics().queued == 20)
        closing = asyncio.create_task(runtime.close())
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RuntimeClosed] * 20
        with pytest.raises(RuntimeClosed):
            await say(session, "late")
        assert not closing.done()
        assert (await turn.reply("the last word")).seq == 1
        await turn.__aexit__(None, None, None)
        await closing
    balanced(runtime, at_rest=True)
    statistics = runtime.statistics()
    assert (statistics.accepted, statistics.failed) == (23, 20)
    async with opened() as runtime:
        assert await pairs(runtime.session("s")) == [("held", "the last word")]


async def test_those_who_wait_for_an_actor_to_come_are_told(opened, watched, until, say, balanced):
    """Closing while actors are being read from disk: each who waits for one is answered."""
    async with opened(watched) as runtime:
        watched.gates["load_session"] = asyncio.Event()
        waiting = [asyncio.create_task(say(runtime.session(f"s{n % 3}"), "v")) for n in range(20)]
        await until(lambda: watched.reached["load_session"] == 3)
        closing = asyncio.create_task(runtime.close())
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RuntimeClosed] * 20
        watched.gates.pop("load_session").set()
        await closing
    balanced(runtime, at_rest=True)


async def test_what_is_being_written_is_written(opened, watched, until, say, pairs):
    """Closing while turns are being written: they land and are acknowledged."""
    async with opened(watched) as runtime:
        for number in range(5):
            await runtime.session(f"s{number}").layers()
        watched.gates["commit"] = asyncio.Event()
        writing = [asyncio.create_task(say(runtime.session(f"s{n}"), "v")) for n in range(5)]
        await until(lambda: runtime.statistics().in_flight == 5)
        closing = asyncio.create_task(runtime.close())
        watched.gates.pop("commit").set()
        assert [recorded.seq for recorded in await asyncio.gather(*writing)] == [1] * 5
        await closing
    async with opened() as runtime:
        assert len(await pairs(runtime.session("s4"))) == 1


async def test_a_turn_held_for_ever_doesnt_keep_it_open(opened, clock, until):
    """A turn held over `drain_s` is lost: closing ends, and its late reply is refused."""
    async with opened(clock=clock, settings=Settings(drain_s=10)) as runtime:
        turn = await runtime.session("s").turn("held").__aenter__()
        closing = asyncio.create_task(runtime.close())
        await clock.advance(9.9)
        assert not closing.done()
        await clock.advance(0.2)
        await until(closing.done)
        with pytest.raises(RuntimeClosed):
            await turn.reply("late")


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("ticks", range(16))
async def test_a_reply_at_the_last_moment_is_answered(
    opened, clock, ticks, pairs, memory, balanced
):
    """A reply at any moment of the closing's end is written or refused: it never waits for ever."""
    store = MemoryStore()
    settings = Settings(lease_s=86_400)  # no other alarm beside the drain's
    async with opened(store if memory else None, clock=clock, settings=settings) as runtime:
        turn = runtime.session("s").turn("held")
        await turn.__aenter__()
        closing = asyncio.create_task(runtime.close())
        for _ in range(5):
            await asyncio.sleep(0)
        moment = asyncio.create_task(clock.advance(20))
        for _ in range(ticks):
            await asyncio.sleep(0)
        try:
            await turn.reply("r")
            written = True
        except RuntimeClosed:
            written = False
        await moment
        await closing
    balanced(runtime, at_rest=False)
    async with opened(MemoryStore(beside=store) if memory else None) as runtime:
        assert len(await pairs(runtime.session("s"))) == written


async def test_a_slow_fold_is_let_go(opened, clock, until, recorder, say, pairs, summarizer):
    """Closing waits `drain_s` for a fold, then lets it go; the next opening folds it."""
    recorder.gate = asyncio.Event()
    settings = Settings(window=2, drain_s=10)
    async with opened(clock=clock, summarizer=recorder, settings=settings) as runtime:
        for number in range(3):
            await say(runtime.session("s"), f"Pedido {number} de Ana.")
        await until(lambda: recorder.leaving)
        closing = asyncio.create_task(runtime.close())
        await clock.advance(9)
        assert not closing.done()
        await clock.advance(1)
        await until(closing.done)
    again = summarizer()
    async with opened(summarizer=again, settings=settings) as runtime:
        await runtime.session("s").layers()
        await runtime.flush()
        assert again.leaving == [[1, 2, 3, 4]]


async def test_a_fold_that_ends_in_time_is_kept(opened, clock, until, recorder, say):
    """A fold that is done within `drain_s` of the closing is kept."""
    recorder.gate = asyncio.Event()
    settings = Settings(window=2)
    async with opened(clock=clock, summarizer=recorder, settings=settings) as runtime:
        for number in range(2):
            await say(runtime.session("s"), f"Pedido {number} de Ana.")
        await until(lambda: recorder.leaving)
        closing = asyncio.create_task(runtime.close())
        await clock.advance(5)
        recorder.gate.set()
        await closing
    assert runtime.statistics().folds == 1
    async with opened(summarizer=recorder, settings=settings) as runtime:
        assert (await runtime.session("s").layers()).cursor == 2


async def test_closing_from_within_a_turn_ends(opened, clock, until):
    """A task that closes while it holds a turn waits `drain_s` for itself, and no longer."""
    async with opened(clock=clock) as runtime:

        async def inside():
            async with runtime.session("s").turn("held"):
                await runtime.close()

        task = asyncio.create_task(inside())
        await until(lambda: repr(runtime) == "Runtime(closing)")
        await clock.advance(10)
        await task


async def test_a_cancelled_close_closes_all_the_same(opened, until, clock):
    """Cancelling whoever waits for the closing doesn't stop it."""
    async with opened(clock=clock) as runtime:
        async with runtime.session("s").turn("held"):
            closing = asyncio.create_task(runtime.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
        await until(runtime._host.done)


@pytest.mark.parametrize("how", ["waiting", "woken"])
async def test_an_opening_cancelled_anywhere_leaves_nothing_open(
    opened, interrupt, how, say, pairs
):
    """Opening cancelled at any of its waits gives the store back: it can be opened again."""
    for at in range(1, 50):
        runtime = opened()
        cancelled = await interrupt(runtime.__aenter__(), at, how)
        await runtime.close()
        assert runtime._host.done()
        async with opened() as again:
            await say(again.session("s"), f"t{at}")
        if not cancelled:
            break
    async with opened() as again:
        assert len(await pairs(again.session("s"))) == at


async def test_an_opening_cancelled_while_the_store_opens(opened, watched, until, say):
    """Opening cancelled while the store is being opened gives it back when it is."""
    for method in ("look", "open"):
        watched.gates[method] = asyncio.Event()
        runtime = opened(watched)
        entering = asyncio.create_task(runtime.__aenter__())
        await until(lambda m=method: watched.reached[m] >= 1)
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()
        watched.gates.pop(method).set()
        await runtime.close()
    async with opened() as again:
        await say(again.session("s"), "v")


@pytest.mark.parametrize("method", ["look", "open"])
async def test_an_opening_that_fails_closes_the_store(opened, watched, method):
    """An opening that fails is told in its own terms, closes the store and can be tried again."""
    for error in (StoreFailed("disk"), ValueError("odd")):
        watched.fail(method, error)
        runtime = opened(watched)
        with pytest.raises(type(error)):
            async with runtime:
                raise AssertionError("opened")
        with pytest.raises(RuntimeClosed):
            await runtime.session("s").layers()
        await runtime.close()
    assert watched.calls["close"] == 2
    async with opened(watched):
        pass


async def test_a_store_that_fails_to_close_is_told(opened, watched, say):
    """A failure at closing is raised by leaving the block, unless another error is on its way."""
    watched.fail("close", StoreFailed("disk"), applied=True)
    with pytest.raises(StoreFailed):
        async with opened(watched) as runtime:
            await say(runtime.session("s"), "v")
    watched.fail("close", StoreFailed("disk"), applied=True)
    with pytest.raises(ZeroDivisionError):
        async with opened(watched):
            raise ZeroDivisionError


async def test_sixty_openings(opened, say, until):
    """Opening and closing again and again leaks no thread and no file handle."""

    def handles() -> int:
        folder = Path("/proc/self/fd")
        return len(list(folder.iterdir())) if folder.is_dir() else 0

    async with opened() as runtime:
        await say(runtime.session("s"), "v")
    threads, files = threading.active_count(), handles()
    for _ in range(60):
        async with opened() as runtime:
            await runtime.session("s").layers()
    await until(lambda: threading.active_count() <= threads)  # each says its last word first
    assert handles() <= files


async def test_a_repr_tells_the_state(opened, clock, until):
    """The runtime's `repr` tells whether it is open, closing or closed."""
    runtime = opened(clock=clock)
    assert repr(runtime) == "Runtime(closed)"
    async with runtime:
        assert repr(runtime) == "Runtime(open)"
        async with runtime.session("s").turn("held"):
            closing = asyncio.create_task(runtime.close())
            await asyncio.sleep(0)
            assert repr(runtime) == "Runtime(closing)"
        await closing
    assert repr(runtime) == "Runtime(closed)"
    assert isinstance(runtime, Runtime)


async def test_a_host_cancelled_while_the_store_closes_waits_for_it(opened, watched, until, say):
    """Once `close` has returned the store is given back, whoever cancelled what meanwhile."""
    runtime = await opened(watched).__aenter__()
    await say(runtime.session("s"), "v")
    watched.gates["close"] = asyncio.Event()
    closing = asyncio.create_task(runtime.close())
    await until(lambda: watched.reached["close"])
    runtime._host.cancel()
    await until(lambda: watched.reached["close"] == 2 or runtime._host.done())
    watched.gates.pop("close").set()
    await closing
    assert watched.calls["close"] == 2
    async with opened() as again:
        await say(again.session("s"), "w")
