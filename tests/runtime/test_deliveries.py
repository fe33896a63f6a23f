"""Deliveries: the same delivery id twice is one turn, however it comes the second time."""

from __future__ import annotations

import asyncio

import pytest

from interturn.runtime import DeliveryConflict, Settings, StoreFailed

pytestmark = pytest.mark.anyio


async def test_the_second_time_returns_the_stored_reply(opened, say, pairs):
    """A delivery that was answered gives its stored reply and writes nothing."""
    async with opened() as runtime:
        session = runtime.session("s")
        first = await say(session, "hola", "buenas", delivery_id="d")
        async with session.turn("hola", delivery_id="d") as turn:
            assert turn.already.text == "buenas"
            assert turn.request.messages[-1]["content"] == "hola"
            again = await turn.reply("otra cosa")
        assert (again.seq, again.reply, again.at) == (first.seq, first.reply, first.at)
        assert again.duplicate
        recorded = await session.record("hola", "de nuevo", delivery_id="d")
        assert (recorded.seq, recorded.duplicate, recorded.reply.text) == (1, True, "buenas")
        assert await pairs(session) == [("hola", "buenas")]


async def test_a_known_delivery_takes_no_turn(opened, say, until):
    """A second delivery that is answered at once holds nothing up while its block lasts."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "hola", delivery_id="d")
        async with session.turn("hola", delivery_id="d") as turn:
            assert turn.already is not None
            assert runtime.statistics().held == 0
            assert (await say(session, "otra")).seq == 3


async def test_both_at_once_are_one_turn(opened, until, pairs, balanced):
    """Twenty deliveries of one id at once: one is answered, the rest get its reply."""
    async with opened() as runtime:
        session = runtime.session("s")
        answered = []

        async def deliver(number):
            async with session.turn("hola", delivery_id="d") as turn:
                if turn.already is not None:
                    return turn.already.text
                answered.append(number)
                return (await turn.reply(f"reply {number}")).reply.text

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(deliver(n)) for n in range(20)]
        assert {task.result() for task in tasks} == {"reply 0"}
        assert answered == [0]
        assert await pairs(session) == [("hola", "reply 0")]
        balanced(runtime, at_rest=True)


async def test_records_of_one_delivery_at_once_are_one_turn(opened, pairs):
    """Twenty imports of one delivery at once write it once."""
    async with opened() as runtime:
        session = runtime.session("s")
        recorded = await asyncio.gather(
            *(session.record("hola", f"r{n}", delivery_id="d") for n in range(20))
        )
        assert [r.duplicate for r in recorded] == [False] + [True] * 19
        assert {r.reply.text for r in recorded} == {"r0"}
        assert await pairs(session) == [("hola", "r0")]


async def test_where_the_first_is_abandoned_the_second_takes_the_turn(opened, until, pairs):
    """A second delivery waits behind the first and takes the turn if that is left unanswered."""
    async with opened() as runtime:
        session = runtime.session("s")

        async def second():
            async with session.turn("hola", delivery_id="d") as turn:
                assert turn.already is None
                return await turn.reply("del segundo")

        async with session.turn("hola", delivery_id="d"):
            task = asyncio.create_task(second())
            await until(lambda: runtime.statistics().queued == 1)
        assert not (await task).duplicate
        assert await pairs(session) == [("hola", "del segundo")]


async def test_after_a_restart(opened, say, pairs):
    """A delivery is known after a restart, also when both come at once then."""
    async with opened() as runtime:
        await say(runtime.session("s"), "hola", "buenas", delivery_id="d")
    async with opened() as runtime:
        session = runtime.session("s")

        async def deliver():
            async with session.turn("hola", delivery_id="d") as turn:
                return turn.already.text

        assert await asyncio.gather(deliver(), deliver()) == ["buenas", "buenas"]
        assert await pairs(session) == [("hola", "buenas")]
        assert runtime.statistics().turns == 0


@pytest.mark.parametrize("reopened", [False, True])
async def test_with_other_words_it_is_a_conflict(opened, say, pairs, reopened):
    """The same delivery id with different words is `DeliveryConflict`, and nothing is written."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "hola", delivery_id="d")
        if not reopened:
            await _conflicts(session, say)
    async with opened() as runtime:
        session = runtime.session("s")
        if reopened:
            await _conflicts(session, say)
        assert await pairs(session) == [("hola", "re: hola")]
        assert (await say(session, "sigue")).seq == 3


async def _conflicts(session, say):
    with pytest.raises(DeliveryConflict):
        await say(session, "adiós", delivery_id="d")
    with pytest.raises(DeliveryConflict):
        await session.record("adiós", "r", delivery_id="d")


async def test_a_delivery_belongs_to_its_session(opened, say):
    """The same id in another session is another delivery."""
    async with opened() as runtime:
        for name in ("uno", "dos"):
            recorded = await say(runtime.session(name), "hola", delivery_id="d")
            assert (recorded.seq, recorded.duplicate) == (1, False)


@pytest.mark.parametrize("deliveries", [0, 1, 3])
async def test_one_older_than_memory_is_found_when_it_is_written(
    opened, say, pairs, deliveries, balanced
):
    """A delivery older than those known in memory is found at the commit: nothing is written."""
    async with opened(settings=Settings(deliveries=deliveries)) as runtime:
        session = runtime.session("s")
        for number in range(6):
            await say(session, f"t{number}", delivery_id=f"d{number}")
        for number in range(6):
            known = number >= 6 - deliveries
            async with session.turn(f"t{number}", delivery_id=f"d{number}") as turn:
                assert (turn.already is not None) == known
                recorded = await turn.reply("otra vez")
            assert recorded.duplicate
            assert (recorded.seq, recorded.reply.text) == (2 * number + 1, f"re: t{number}")
        with pytest.raises(DeliveryConflict):
            await say(session, "otras palabras", delivery_id="d0")
        assert (await session.record("t0", "x", delivery_id="d0")).duplicate
        assert (await say(session, "nueva", delivery_id="d6")).seq == 13
        assert len(await pairs(session)) == 7
        balanced(runtime, at_rest=True)


async def test_a_folded_delivery_still_has_its_reply(opened, say):
    """The stored reply is there also when its turn has long left the window."""
    async with opened(settings=Settings(window=2, deliveries=100)) as runtime:
        session = runtime.session("s")
        for number in range(20):
            await say(session, f"Pedido {number}, por favor.", delivery_id=f"d{number}")
        await runtime.flush()
        assert (await session.layers()).cursor == 38
        async with session.turn("Pedido 0, por favor.", delivery_id="d0") as turn:
            assert turn.already.text == "re: Pedido 0, por favor."
            assert turn.already.seq == 2


async def test_where_the_outcome_is_unknown_the_delivery_tells(opened, watched, say, pairs):
    """After a commit whose outcome is unknown, the delivery tells that the turn is there."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        watched.fail("commit", StoreFailed("lost", unknown=True), applied=True)
        with pytest.raises(StoreFailed) as caught:
            await say(session, "hola", "buenas", delivery_id="d")
        assert caught.value.unknown
        async with session.turn("hola", delivery_id="d") as turn:
            assert turn.already.text == "buenas"
        assert await pairs(session) == [("antes", "re: antes"), ("hola", "buenas")]


async def test_where_the_first_fails_the_second_is_recorded(opened, watched, pairs, until):
    """Two deliveries at once whose first write fails: the second takes the turn, once."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        watched.fail("commit", StoreFailed("disk full"))

        async def deliver(reply):
            async with session.turn("hola", delivery_id="d") as turn:
                return turn.already.text if turn.already else (await turn.reply(reply)).reply.text

        outcomes = await asyncio.gather(deliver("a"), deliver("b"), return_exceptions=True)
        assert isinstance(outcomes[0], StoreFailed)
        assert outcomes[1] == "b"
        assert await pairs(session) == [("hola", "b")]
