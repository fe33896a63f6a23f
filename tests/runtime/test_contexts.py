"""Contexts: whose task, whose loop and whose variables things run in, and who may wait for whom."""

# ruff: noqa: ARG002, ARG005 - a port's arguments have their names

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from interturn.runtime import MemoryStore, Reentered, Runtime, Settings, WrongLoop

pytestmark = pytest.mark.anyio

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_callers_variables_dont_leak_into_jobs(opened, summarizer, say):
    """A fold runs in a context of its own: it sees no variable of whoever spoke or opened."""
    seen = []
    recorder = summarizer(
        lambda leaving, number: seen.append(WHO.get()) or f"Fold {number} of Ana."
    )
    WHO.set("opener")
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        for number in range(6):
            WHO.set(f"caller {number}")
            await say(runtime.session("s"), f"Pedido {number}.")
            await runtime.flush()
    assert seen == ["nobody"] * 5


async def test_waiting_for_oneself_is_refused_at_once(opened, say, pairs, balanced):
    """A task that holds a session's turn and asks for it again gets `Reentered`, not a hang."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("held") as turn:
            for call in (
                lambda: say(session, "x"),
                lambda: session.record("x", "y"),
                lambda: say(runtime.session("s"), "x", timeout=0),
            ):
                with pytest.raises(Reentered):
                    await call()
            await say(runtime.session("other"), "fine")
            await turn.reply("r")
            await say(session, "after the reply")
        await session.record("and then", "r")
        assert len(await pairs(session)) == 3
        balanced(runtime, at_rest=True)


async def test_a_task_that_lost_its_turn_may_ask_again(opened, clock, until, say, pairs):
    """Losing a turn to `turn_s` isn't holding it: the same task may take the next."""
    async with opened(clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")
        async with session.turn("lost"):
            other = asyncio.create_task(say(session, "other"))
            await until(lambda: runtime.statistics().queued == 1)
            await clock.advance(10)
            await other
            await say(session, "again")
        assert [said for said, _ in await pairs(session)] == ["other", "again"]


async def test_a_summarizer_may_call_its_own_session(opened, say, pairs, no_gap):
    """A summarizer that looks at, or writes to, the session it folds neither hangs nor harms it."""
    seen = []

    class Curious:
        async def fold(self, summary, leaving, *, cap_tokens):
            session = runtime.session("s")
            seen.append((await session.layers()).cursor)
            await session.assemble("?")
            if len(seen) == 1:
                await session.record("from within", "r")
                await say(session, "a turn from within")
            return f"Ana pidió el {leaving[0].seq}."

    async with opened(summarizer=Curious(), settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(4):
            await say(session, f"t{number}")
        await runtime.flush()
        said = [said for said, _ in await pairs(session)]
        assert sorted(said) == ["a turn from within", "from within", "t0", "t1", "t2", "t3"]
        no_gap(await session.layers(), 12, window=2)
        assert (await session.layers()).cursor == 10


async def test_another_loop_is_told_so(opened, say):
    """From another thread's loop every call is `WrongLoop`, and nothing is touched."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "v")
        calls = [
            lambda: say(session, "x"),
            lambda: session.record("x", "y"),
            lambda: session.assemble("x"),
            session.layers,
            runtime.flush,
            runtime.close,
            lambda: runtime.customer("c").sessions(),
        ]
        caught = []

        def elsewhere():
            for call in calls:
                try:
                    asyncio.run(call())
                except Exception as error:  # noqa: BLE001 - looked at below
                    caught.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        while thread.is_alive():  # noqa: ASYNC110 - a thread sets no event of the loop's
            await asyncio.sleep(0)
        thread.join()
        assert [type(error) for error in caught] == [WrongLoop] * len(calls)
        await say(session, "still here")


def test_a_runtime_of_a_dead_loop_is_told_so(keyring, counter):
    """A runtime whose loop has ended is refused in the next one; closing it there is fine."""
    runtime = Runtime.open(MemoryStore(), keyring=keyring, counter=counter)

    async def leave_open():
        await runtime.__aenter__()

    async def use():
        with pytest.raises(Exception) as caught:  # noqa: PT011 - either refusal is right
            await runtime.session("s").record("x", "y")
        await runtime.close()
        return type(caught.value).__name__

    asyncio.run(leave_open())
    assert asyncio.run(use()) in {"RuntimeClosed", "WrongLoop"}


async def test_open_and_close_from_different_tasks(opened, say, pairs):
    """A runtime may be opened in one task, used in others and closed in a third."""
    runtime = opened()
    await asyncio.create_task(runtime.__aenter__())
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(say(runtime.session(f"s{number}"), "v"))
    await asyncio.create_task(runtime.close())
    async with opened() as again:
        for number in range(5):
            assert len(await pairs(again.session(f"s{number}"))) == 1


async def test_the_one_who_cancels_a_search_cancels_nobody_else(opened, watched, until, say, pairs):
    """A caller cancelled while a customer is looked for takes nobody else's search with it."""
    async with opened(watched) as runtime:
        watched.gates["load_customer"] = asyncio.Event()
        first = asyncio.create_task(runtime.customer("ana").sessions())
        await until(lambda: watched.reached["load_customer"] == 1)
        second = asyncio.create_task(say(runtime.session("s", customer="ana"), "hola"))
        third = asyncio.create_task(runtime.customer("ana").sessions())
        await until(lambda: runtime.statistics().activations == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        watched.gates.pop("load_customer").set()
        await second
        assert await third in ([], ["s"])
        assert first.cancelled()
        assert await runtime.customer("ana").sessions() == ["s"]
        assert await pairs(runtime.session("s")) == [("hola", "re: hola")]


async def test_a_failed_search_fails_its_own_and_is_made_anew(opened, watched, say):
    """A customer who couldn't be looked up is looked up anew by the next."""
    async with opened(watched) as runtime:
        watched.fail("load_customer", OSError("boom"))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - a store of one's own may raise anything
            await say(runtime.session("s", customer="ana"), "hola")
        assert type(caught.value).__name__ == "ActorFailed"
        await say(runtime.session("s", customer="ana"), "hola")
