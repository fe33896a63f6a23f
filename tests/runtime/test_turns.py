"""Turns: taken first come first served, answered once, or left without a trace."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from interturn.runtime import (
    BudgetExceeded,
    CustomerMismatch,
    InvalidText,
    Settings,
    TurnClosed,
    TurnExpired,
    TurnTimeout,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    """Run on asyncio's own loop and on uvloop."""
    return "asyncio", {"use_uvloop": request.param}


async def test_a_turn_writes_exactly_two_rows(opened, pairs):
    """A turn writes exactly two rows; its reply says under which number and when."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("¿Qué tal?", instructions="Sé breve.") as turn:
            assert turn.already is None
            assert turn.request.messages == [
                {"role": "system", "content": "Sé breve."},
                {"role": "user", "content": "¿Qué tal?"},
            ]
            recorded = await turn.reply("Bien.")
        assert (recorded.seq, recorded.duplicate, recorded.reply.text) == (1, False, "Bien.")
        assert recorded.reply.seq == 2
        assert recorded.at.tzinfo == UTC
        assert await pairs(session) == [("¿Qué tal?", "Bien.")]


async def test_leaving_without_a_reply_writes_nothing(opened, pairs, say):
    """Leaving without `reply`, by an exception too, writes nothing and frees the session."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("a"):
            pass
        with pytest.raises(ZeroDivisionError):
            async with session.turn("b"):
                raise ZeroDivisionError
        assert await pairs(session) == []
        assert (await say(session, "c")).seq == 1


async def test_a_turn_is_answered_once(opened, pairs):
    """`reply` twice, or after leaving, or before entering, is `TurnClosed` and writes nothing."""
    async with opened() as runtime:
        session = runtime.session("s")
        turn = session.turn("a")
        with pytest.raises(TurnClosed):
            _ = turn.request
        with pytest.raises(TurnClosed):
            await turn.reply("early")
        async with turn:
            await turn.reply("one")
            with pytest.raises(TurnClosed):
                await turn.reply("two")
        with pytest.raises(TurnClosed):
            await turn.reply("three")
        assert await pairs(session) == [("a", "one")]


async def test_two_replies_at_once_are_one(opened, pairs):
    """Of two replies to one turn at once, one is recorded and the other is `TurnClosed`."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("a") as turn:
            outcomes = await asyncio.gather(
                turn.reply("one"), turn.reply("two"), return_exceptions=True
            )
        assert isinstance(outcomes[1], TurnClosed)
        assert await pairs(session) == [("a", "one")]


@pytest.mark.parametrize("bad", ["", "half \ud83d", "x" * 101])
async def test_a_reply_that_cant_be_kept_leaves_the_turn_held(opened, pairs, bad):
    """A reply that can't be kept is `InvalidText`; the turn is still held for a better one."""
    async with opened(settings=Settings(text_bytes=100)) as runtime:
        session = runtime.session("s")
        async with session.turn("a") as turn:
            with pytest.raises(InvalidText, match="agent"):
                await turn.reply(bad)
            assert runtime.statistics().held == 1
            await turn.reply("good")
        assert await pairs(session) == [("a", "good")]


async def test_the_next_turn_sees_the_reply_before(opened, until):
    """A turn that waits is taken when the one before is answered, and sees its reply."""
    async with opened() as runtime:
        session = runtime.session("s")
        seen = []

        async def second():
            async with session.turn("two") as turn:
                seen.extend(m["content"] for m in turn.request.messages)

        async with session.turn("one") as turn:
            waiting = asyncio.create_task(second())
            await until(lambda: runtime.statistics().queued == 1)
            await turn.reply("first")
        await waiting
        assert seen == ["one", "first", "two"]


async def test_a_turn_is_waited_for_no_longer_than_its_timeout(opened, clock, until, pairs):
    """A turn that isn't free within its timeout is `TurnTimeout`, not begun, nothing written."""
    async with opened(clock=clock) as runtime:
        session = runtime.session("s")

        async def wait(timeout):  # noqa: ASYNC109 - the contract's name
            async with session.turn("late", timeout=timeout):
                raise AssertionError("taken")

        async with session.turn("held") as turn:
            late = [asyncio.create_task(wait(s)) for s in (0, 5, 10)]
            await until(lambda: runtime.statistics().accepted >= 4)
            await clock.advance(0)
            await until(late[0].done)
            assert not late[1].done()
            await clock.advance(5)
            await until(late[1].done)
            assert not late[2].done()
            await clock.advance(5)
            for task in late:
                with pytest.raises(TurnTimeout) as caught:
                    await task
                assert caught.value.started is False
                assert isinstance(caught.value, TimeoutError)
            await turn.reply("yes")
        assert await pairs(session) == [("held", "yes")]
        assert runtime.statistics().expired == 3


async def test_a_turn_held_too_long_is_lost_to_who_waits(opened, clock, until, pairs):
    """A turn held over `turn_s` goes to the next; its late reply is `TurnExpired`, unwritten."""
    async with opened(clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")

        async def second():
            async with session.turn("two", timeout=100) as turn:
                await turn.reply("taken")

        async with session.turn("one") as turn:
            await clock.advance(3)
            waiting = asyncio.create_task(second())
            await until(lambda: runtime.statistics().queued == 1)
            await clock.advance(6.9)
            assert not waiting.done()
            await clock.advance(0.2)
            await waiting
            with pytest.raises(TurnExpired):
                await turn.reply("late")
        assert await pairs(session) == [("two", "taken")]


async def test_a_turn_may_be_held_for_ever_where_nobody_waits(opened, clock, pairs):
    """However long a turn is held, it is lost only to somebody who waits."""
    async with opened(clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")
        async with session.turn("one") as turn:
            await clock.advance(10_000)
            await turn.reply("at last")
        assert await pairs(session) == [("one", "at last")]


async def test_who_comes_late_to_an_overlong_turn_gets_it_at_once(opened, clock, say, pairs):
    """A turn held over `turn_s` is lost as soon as another waits."""
    async with opened(clock=clock, settings=Settings(turn_s=10)) as runtime:
        session = runtime.session("s")
        async with session.turn("one"):
            await clock.advance(11)
            other = asyncio.create_task(say(session, "two"))
            await clock.advance(0)
            await other
        assert await pairs(session) == [("two", "re: two")]


async def test_a_turn_is_lost_also_while_a_fold_is_written(
    opened, watched, clock, until, recorder, say, pairs
):
    """That a fold is being written just then doesn't let an overlong turn be kept."""
    recorder.gate = asyncio.Event()
    given = {"summarizer": recorder, "clock": clock, "settings": Settings(window=2, turn_s=10)}
    async with opened(watched, **given) as runtime:
        session = runtime.session("s")
        for number in range(2):
            await say(session, f"t{number}")
        await until(lambda: recorder.leaving)
        async with session.turn("held") as turn:
            waiting = asyncio.create_task(say(session, "waits", timeout=1_000))
            await until(lambda: runtime.statistics().queued == 1)
            watched.gates["commit"] = asyncio.Event()
            recorder.gate.set()
            await until(lambda: watched.reached["commit"] == 1)
            await clock.advance(10)
            watched.gates.pop("commit").set()
            await waiting
            with pytest.raises(TurnExpired):
                await turn.reply("late")
        assert [said for said, _ in await pairs(session)] == ["t0", "t1", "waits"]


async def test_looking_waits_for_nobodys_turn(opened):
    """While a turn is held, `assemble`, `layers`, `transcript` and `customer` go on."""
    async with opened() as runtime:
        session = runtime.session("s", customer="c")
        await session.record("a", "b")
        async with session.turn("held"):
            request = await session.assemble("look")
            assert [m["content"] for m in request.messages] == ["a", "b", "look"]
            assert [m.text for m in (await session.layers()).window] == ["a", "b"]
            assert [m.text async for m in session.transcript()] == ["a", "b"]
            assert await session.customer.sessions() == ["s"]


async def test_record_waits_in_the_same_line(opened, until, pairs):
    """Every way to write goes through the session's one line, in the order of arrival."""
    async with opened() as runtime:
        session = runtime.session("s")

        async def turn(text):
            async with session.turn(text) as held:
                await held.reply("r")

        async with session.turn("0") as held:
            tasks = [
                asyncio.create_task(turn(str(n)) if n % 2 else session.record(str(n), "r"))
                for n in range(1, 7)
            ]
            await until(lambda: runtime.statistics().queued == 6)
            await held.reply("r")
        await asyncio.gather(*tasks)
        assert [said for said, _ in await pairs(session)] == list("0123456")


async def test_times_describe_and_never_order(opened, clock, pairs):
    """A clock that goes back, or stands still, changes no order and no cursor."""
    async with opened(clock=clock) as runtime:
        session = runtime.session("s")
        for number in range(50):
            async with session.turn(str(number)) as turn:
                clock.wall -= timedelta(seconds=4)
                await turn.reply("r")
        for number in range(50, 100):
            await session.record(str(number), "r")
        await session.record("100", "r", at=datetime(1969, 7, 20, tzinfo=UTC))
        await runtime.flush()
        assert [said for said, _ in await pairs(session)] == [str(n) for n in range(101)]
        assert (await session.layers()).cursor == 202 - 12


async def test_a_time_needs_a_zone_and_rests_in_utc(opened):
    """A naive time is refused; an aware one is kept as the same moment in UTC."""
    async with opened() as runtime:
        session = runtime.session("s")
        naive = datetime(2026, 3, 3, 12)  # noqa: DTZ001 - the case
        with pytest.raises(InvalidText, match="zone"):
            await session.record("a", "b", at=naive)
        for edge, hours in ((datetime.min, 9), (datetime.max, -9)):  # noqa: DTZ901 - the case
            outside = edge.replace(tzinfo=timezone(timedelta(hours=hours)))
            with pytest.raises(InvalidText, match="range"):
                await session.record("a", "b", at=outside)
        tokyo = naive.replace(tzinfo=timezone(timedelta(hours=9)))
        assert (await session.record("a", "b", at=tokyo)).at == tokyo
        async for message in session.transcript():
            assert (message.at, message.at.tzinfo) == (tokyo, UTC)


async def test_a_budget_too_small_writes_nothing_and_frees_the_session(opened, say):
    """Instructions and text over the budget are `BudgetExceeded`; the session is free."""
    async with opened() as runtime:
        session = runtime.session("s")
        for budget in (0, -5, 3):
            with pytest.raises(BudgetExceeded) as caught:
                async with session.turn("hola", budget=budget):
                    raise AssertionError("taken")
            assert (caught.value.needed, caught.value.budget) == (5, budget)
            with pytest.raises(BudgetExceeded):
                await session.assemble("hola", budget=budget)
        with pytest.raises(BudgetExceeded):
            async with session.turn("a", instructions="x" * 240, budget=40):
                pass
        assert (await say(session, "hola", budget=5)).seq == 1


async def test_a_message_over_the_whole_budget_hurts_only_itself(opened, say, pairs):
    """A message of 200,000 characters under a budget of 4,000 is refused; the next turn works."""
    async with opened() as runtime:
        session = runtime.session("s")
        with pytest.raises(BudgetExceeded):
            await say(session, "muy largo " * 20_000, budget=4_000)
        await say(session, "corto", budget=4_000)
        await session.record("muy largo " * 20_000, "vale")
        await say(session, "otra", budget=4_000)
        assert len(await pairs(session)) == 3


@pytest.mark.parametrize("stored", [False, True])
async def test_a_session_is_nobody_elses(opened, stored, say, pairs):
    """Naming another customer than the owner is `CustomerMismatch` at every call."""
    async with opened() as runtime:
        await say(runtime.session("s", customer="ana"), "el secreto")
    async with opened() as runtime:
        if not stored:
            await runtime.session("s").layers()
        eve = runtime.session("s", customer="eve")
        calls = (
            lambda: say(eve, "x"),
            lambda: eve.record("x", "y"),
            lambda: eve.assemble("x"),
            eve.layers,
            lambda: pairs(eve),
            eve.owner,
        )
        for call in calls:
            with pytest.raises(CustomerMismatch) as caught:
                await call()
            assert isinstance(caught.value, PermissionError)
        assert await pairs(runtime.session("s", customer="ana")) == [
            ("el secreto", "re: el secreto")
        ]
        assert await pairs(runtime.session("s")) == [("el secreto", "re: el secreto")]
        assert (await runtime.session("s").layers()).customer == "ana"


async def test_an_anonymous_session_is_no_named_customers(opened, say):
    """Who names a customer for an anonymous visitor's session is refused, guess or not."""
    async with opened() as runtime:
        await say(runtime.session("s"), "anónimo")
        for guess in ("ana", "s", "anonymous"):
            with pytest.raises(CustomerMismatch):
                await runtime.session("s", customer=guess).layers()
        assert (await runtime.session("s").layers()).customer is None
        assert await runtime.customer("s").sessions() == []
        assert await runtime.session("s").customer.sessions() == ["s"]


async def test_a_new_session_has_no_history(opened, say):
    """A new session of the same customer has no history and no summary."""
    async with opened() as runtime:
        for name in ("uno", "dos"):
            session = runtime.session(name, customer="ana")
            layers = await session.layers()
            assert (layers.window, layers.surplus, layers.summary, layers.cursor) == ((), (), "", 0)
            request = await session.assemble("hola")
            assert [m["content"] for m in request.messages] == ["hola"]
            await say(session, "hola")
        assert await runtime.customer("ana").sessions() == ["uno", "dos"]
        assert await runtime.customer("nadie").sessions() == []


async def test_a_session_that_was_only_looked_at_is_whoever_writes_first(opened, say):
    """Looking makes nobody the owner: the first who records a turn is."""
    async with opened() as runtime:
        await runtime.session("s").layers()
        await runtime.session("s", customer="eve").assemble("x")
        await say(runtime.session("s", customer="ana"), "mía")
        assert (await runtime.session("s").layers()).customer == "ana"
