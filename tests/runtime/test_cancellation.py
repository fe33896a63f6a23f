"""Cancellation at every wait: all or nothing of a turn, and the next works at once."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from interturn.runtime import Settings, StoreFailed

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("how", ["waiting", "woken"])]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    """Run on asyncio's own loop and on uvloop."""
    return "asyncio", {"use_uvloop": request.param}


MOST = 60


async def _turn(runtime, name):
    async with runtime.session(name).turn("hola", delivery_id="d") as turn:
        await asyncio.sleep(0)
        await turn.reply("buenas")


async def _record(runtime, name):
    await runtime.session(name).record("hola", "buenas", delivery_id="d")


async def _large(runtime, name):
    async with runtime.session(name).turn("hola " * 8_000, delivery_id="d", budget=100_000) as turn:
        await turn.reply("buenas " * 8_000)


async def _assemble(runtime, name):
    await runtime.session(name).assemble("hola")


async def _layers(runtime, name):
    await runtime.session(name).layers()


async def _transcript(runtime, name):
    assert [m async for m in runtime.session(name).transcript()]


async def _sessions(runtime, name):
    await runtime.session(name).customer.sessions()


WORK = {
    w.__name__[1:]: w for w in (_turn, _record, _large, _assemble, _layers, _transcript, _sessions)
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("stored", [False, True])
async def test_cancelled_anywhere(opened, interrupt, how, work, stored, say, pairs, balanced):
    """A caller cancelled at any wait leaves all or nothing; this and other sessions go on."""
    async with opened(settings=Settings(active=2)) as runtime:
        if stored:
            for at in range(MOST):
                await say(runtime.session(f"s{at}"), "antes")
        reached = 0
        for at in range(1, MOST):
            name = f"s{at}"
            if not stored and work is _transcript:
                await say(runtime.session(name), "antes")
            cancelled = await interrupt(work(runtime, name), at, how)
            reached += cancelled
            # At once: nobody waits for what was cancelled longer than for its commit.
            await say(runtime.session(name), "después")
            await say(runtime.session("otra"), "después")
            got = [said for said, _ in await pairs(runtime.session(name))]
            assert got[-1] == "después"
            rest = [said for said in got[:-1] if said != "antes"]
            assert len(rest) <= 1
            assert runtime.statistics().held == 0
            # What may have landed answers its second delivery, and never lands twice.
            if work in (_turn, _record):
                await work(runtime, name)
                assert [s for s, _ in await pairs(runtime.session(name))].count("hola") == 1
            if not cancelled:
                break
        else:
            raise AssertionError("it never ended")
        assert reached >= (0 if work in (_layers, _assemble) and not stored else 1)
        await runtime.flush()
        balanced(runtime, at_rest=True)


async def test_cancelled_by_a_scope(opened, how, say, pairs, balanced, watched, until):
    """Anyio's cancellation, which comes again and again, leaves all or nothing too."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await session.layers()
        watched.gates["commit"] = asyncio.Event()

        async def talk():
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await say(session, "hola")

        scopes: list[anyio.CancelScope] = []
        task = asyncio.create_task(talk())
        await until(lambda: watched.reached["commit"])
        scopes[0].cancel()
        await task
        watched.gates.pop("commit").set()
        await say(session, "después")
        assert [said for said, _ in await pairs(session)] == ["hola", "después"]
        assert runtime.statistics().late_replies == 1
        balanced(runtime, at_rest=True)


async def test_withdrawn_while_it_waits(opened, how, until, say, pairs, balanced):
    """Who leaves the line is withdrawn, and those behind keep their order."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("0") as turn:
            tasks = [asyncio.create_task(say(session, str(n))) for n in range(1, 7)]
            await until(lambda: runtime.statistics().queued == 6)
            for gone in (0, 2, 5):
                tasks[gone].cancel()
            await turn.reply("r")
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(o).__name__ for o in outcomes].count("CancelledError") == 3
        assert [said for said, _ in await pairs(session)] == ["0", "2", "4", "5"]
        assert runtime.statistics().withdrawn == 3
        balanced(runtime, at_rest=True)


async def test_cancelled_as_the_turn_is_given(opened, how, until, say, pairs):
    """Who is cancelled at the very moment the turn becomes theirs gives it on."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("0") as turn:
            second = asyncio.create_task(say(session, "1"))
            third = asyncio.create_task(say(session, "2"))
            await until(lambda: runtime.statistics().queued == 2)
            await turn.reply("r")
            second.cancel()  # its promise is kept, and it hasn't run since
        await asyncio.wait([second])
        await third
        assert [said for said, _ in await pairs(session)] == ["0", "2"]
        assert second.cancelled()


async def test_a_failing_commit_hides_no_cancellation(opened, how, watched, until, say, pairs):
    """Who is cancelled while their commit fails is cancelled, and the next turn works."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await session.layers()
        watched.gates["commit"] = asyncio.Event()
        watched.fail("commit", StoreFailed("disk"))
        task = asyncio.create_task(say(session, "hola"))
        await until(lambda: watched.reached["commit"])
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        watched.gates.pop("commit").set()
        await say(session, "después")
        assert [said for said, _ in await pairs(session)] == ["después"]


async def test_a_reply_that_was_cut_short_is_whole_or_not_at_all(
    opened, how, watched, until, say, pairs
):
    """An answer cancelled on its way to the disk lands whole, once; its retry writes nothing."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        async with session.turn("hola", delivery_id="d") as turn:
            watched.gates["commit"] = asyncio.Event()
            reply = asyncio.create_task(turn.reply("buenas"))
            await until(lambda: watched.reached["commit"])
            reply.cancel()
            await asyncio.wait([reply])
            watched.gates.pop("commit").set()
        async with session.turn("hola", delivery_id="d") as turn:
            assert turn.already.text == "buenas"
        assert await pairs(session) == [("hola", "buenas")]


async def test_a_cancelled_flush_and_fold_go_on(opened, how, recorder, until, say):
    """Who waits for folds may leave; the folds go on."""
    recorder.gate = asyncio.Event()
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        for number in range(2):
            await say(runtime.session("s"), f"Pedido {number} de Ana.")
        flushing = asyncio.create_task(runtime.flush())
        await until(lambda: recorder.leaving)
        flushing.cancel()
        await asyncio.wait([flushing])
        recorder.gate.set()
        await runtime.flush()
        assert (await runtime.session("s").layers()).cursor == 2


async def test_a_reply_withdrawn_before_it_is_written_may_be_tried_again(
    opened, how, watched, recorder, until, say, pairs
):
    """A reply cancelled while it waited behind a fold's write leaves the turn held."""
    recorder.gate = asyncio.Event()
    async with opened(watched, summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(2):
            await say(session, f"Pedido {number} de Ana.")
        await until(lambda: recorder.leaving)
        async with session.turn("hola") as turn:
            watched.gates["commit"] = asyncio.Event()
            recorder.gate.set()
            await until(lambda: watched.reached["commit"])
            reply = asyncio.create_task(turn.reply("buenas"))
            await until(lambda: runtime.statistics().queued == 1)
            reply.cancel()
            await asyncio.wait([reply])
            watched.gates.pop("commit").set()
            await turn.reply("buenas")
        assert len(await pairs(session)) == 3
