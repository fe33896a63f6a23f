"""Many at once: turns of one session never interleave, and sessions don't wait for each other."""

from __future__ import annotations

import asyncio
import random

import pytest

from interturn.runtime import MailboxFull, Overloaded, Settings, TurnTimeout

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    """Run on asyncio's own loop and on uvloop."""
    return "asyncio", {"use_uvloop": request.param}


async def test_two_tasks_of_fifty_turns(opened, pairs, balanced, no_gap):
    """Two tasks of 50 turns on one session: pairs adjacent, each request saw the reply before."""
    async with opened() as runtime:
        last = ""

        async def talk(name):
            nonlocal last
            session = runtime.session("s")
            for number in range(50):
                async with session.turn(f"{name}{number}") as turn:
                    history = turn.request.messages[:-1]
                    assert (history[-1]["content"] if history else "") == last
                    await asyncio.sleep(0)
                    last = f"r {name}{number}"
                    await turn.reply(last)

        await asyncio.gather(talk("a"), talk("b"))
        got = await pairs(runtime.session("s"))
        assert len(got) == 100
        assert all(reply == f"r {said}" for said, reply in got)
        await runtime.flush()
        no_gap(await runtime.session("s").layers(), 200)
        balanced(runtime, at_rest=True)
        assert runtime.statistics().accepted > 200


async def test_two_hundred_sessions_at_once(opened, say, pairs, balanced):
    """200 sessions of 20 turns at once: no error, and far fewer commits than turns."""
    async with opened() as runtime:

        async def talk(name):
            session = runtime.session(name, customer=f"c{name}")
            for number in range(20):
                assert (await say(session, f"{name} {number}")).seq == 2 * number + 1

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(talk(f"s{number}"))
        statistics = runtime.statistics()
        assert statistics.turns == 4_000
        assert statistics.commits < 1_000
        assert statistics.commit_units_max > 50
        assert statistics.failures == statistics.failed == 0
        await runtime.flush()
        balanced(runtime, at_rest=True)
        for number in (0, 57, 199):
            got = await pairs(runtime.session(f"s{number}"))
            assert [said for said, _ in got] == [f"s{number} {n}" for n in range(20)]


async def test_ten_messages_in_one_tick(opened, pairs, until):
    """Ten messages in one tick are answered in the order of arrival, each after the one before."""
    async with opened() as runtime:
        seen = []

        async def visitor(number):
            async with runtime.session("s").turn(f"m{number}") as turn:
                seen.append(turn.request.receipt.blocks["history"].kept)
                await asyncio.sleep(0)
                await turn.reply("r")

        tasks = [asyncio.create_task(visitor(number)) for number in range(10)]
        other = asyncio.create_task(runtime.session("other").record("x", "y"))
        await asyncio.gather(*tasks, other)
        assert [said for said, _ in await pairs(runtime.session("s"))] == [
            f"m{n}" for n in range(10)
        ]
        assert seen == [2 * n for n in range(7)] + seen[7:]
        assert seen == sorted(seen)


async def test_a_held_session_holds_up_nobody_else(opened, say):
    """While one session's turn is held, a hundred others go on."""
    async with opened() as runtime, runtime.session("held").turn("x"):
        await asyncio.gather(*(say(runtime.session(f"s{n}"), "v") for n in range(100)))


async def test_twenty_first_messages_make_one_actor(opened, watched, say, pairs, balanced):
    """Twenty first messages at once share one activation, and are recorded in their order."""
    async with opened(watched) as runtime:
        await asyncio.gather(*(say(runtime.session("s"), f"m{n}") for n in range(20)))
        assert watched.calls["load_session"] == 1
        assert runtime.statistics().activations == 1
        assert [said for said, _ in await pairs(runtime.session("s"))] == [
            f"m{n}" for n in range(20)
        ]
        balanced(runtime, at_rest=True)


async def test_one_customers_first_sessions_at_once_share_one_key(opened, say, pairs):
    """A new customer's sessions, begun at once in many channels, are one customer's."""
    async with opened() as runtime:
        await asyncio.gather(
            *(say(runtime.session(f"s{n}", customer="ana"), f"m{n}") for n in range(30))
        )
        assert sorted(await runtime.customer("ana").sessions()) == sorted(
            f"s{n}" for n in range(30)
        )
    async with opened() as runtime:
        for number in range(30):
            session = runtime.session(f"s{number}", customer="ana")
            assert [said for said, _ in await pairs(session)] == [f"m{number}"]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_people_do(  # noqa: C901 - a crowd does many things
    opened, seed, pairs, balanced, no_gap, clock
):
    """A random crowd that talks, leaves, retries, cancels and looks: every book balances."""
    chance = random.Random(seed)
    settings = Settings(window=4, active=6, mailbox=8, deliveries=2, durability="normal")
    acknowledged: dict[str, list[str]] = {f"s{n}": [] for n in range(9)}

    async def visit(name: str, number: int) -> None:
        session = runtime.session(name)
        text = f"{name} dice {number}"
        match chance.randrange(8):
            case 0:
                async with session.turn(text):
                    await asyncio.sleep(0)
            case 1:
                await session.assemble(text)
            case 2:
                assert len([m async for m in session.transcript()]) % 2 == 0
            case 3:
                await session.record(text, "r", delivery_id=text)
                acknowledged[name].append(text)
                assert (await session.record(text, "r", delivery_id=text)).duplicate
            case _:
                async with session.turn(text, timeout=chance.choice((0, None))) as turn:
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    await turn.reply("r")
                    acknowledged[name].append(text)

    async with opened(settings=settings, clock=clock) as runtime:
        for round_ in range(30):
            tasks = [
                asyncio.create_task(visit(f"s{chance.randrange(9)}", 100 * round_ + n))
                for n in range(12)
            ]
            for task in tasks:
                if chance.random() < 0.2:
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
                    task.cancel()
            pump = asyncio.create_task(_pass(clock))
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            pump.cancel()
            odd = [o for o in outcomes if isinstance(o, BaseException) and not _expected(o)]
            assert not odd, odd
            balanced(runtime)
        await runtime.flush()
        balanced(runtime, at_rest=True)
        for name, texts in acknowledged.items():
            got = [said for said, _ in await pairs(runtime.session(name))]
            assert len(got) == len(set(got))
            assert set(texts) <= set(got)
            no_gap(await runtime.session(name).layers(), 2 * len(got), window=4)


async def _pass(clock) -> None:
    while True:
        await clock.advance(0.01)


def _expected(outcome: BaseException) -> bool:
    return isinstance(outcome, (asyncio.CancelledError, TurnTimeout, MailboxFull, Overloaded))
