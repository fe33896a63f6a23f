"""Failures of the store: a turn is whole or not there, is told so, and others serve."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import timedelta

import pytest

from interturn.runtime import (
    ActorFailed,
    Quarantined,
    Settings,
    StoreFailed,
    Tampered,
    TurnClosed,
    TurnExpired,
)
from interturn.runtime.cell import Look

pytestmark = pytest.mark.anyio


async def test_a_reply_that_failed_can_be_tried_again(opened, watched, pairs, say, balanced):
    """After a failure that isn't unknown the turn is still held, and its reply is tried again."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        async with session.turn("hola") as turn:
            for _ in range(3):
                watched.fail("commit", StoreFailed("SQLITE_FULL"))
                with pytest.raises(StoreFailed) as caught:
                    await turn.reply("buenas")
                assert not caught.value.unknown
            assert (await turn.reply("buenas")).seq == 3
        assert await pairs(session) == [("antes", "re: antes"), ("hola", "buenas")]
        balanced(runtime, at_rest=True)


async def test_a_first_turn_that_failed_can_be_tried_again(opened, watched, pairs):
    """The first turn of a new session and a new customer can be tried again too."""
    async with opened(watched) as runtime:
        session = runtime.session("s", customer="ana")
        async with session.turn("hola") as turn:
            watched.fail("commit", StoreFailed("SQLITE_FULL"))
            with pytest.raises(StoreFailed):
                await turn.reply("buenas")
            assert (await turn.reply("buenas")).seq == 1
    async with opened() as runtime:
        assert await pairs(runtime.session("s", customer="ana")) == [("hola", "buenas")]
        assert await runtime.customer("ana").sessions() == ["s"]


@pytest.mark.parametrize("applied", [False, True])
async def test_after_an_unknown_outcome_the_turn_is_over(opened, watched, pairs, applied, say):
    """Where the turn may be on disk after all it is over, and the session reads what is there."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        async with session.turn("hola", delivery_id="d") as turn:
            watched.fail("commit", StoreFailed("SQLITE_IOERR", unknown=True), applied=applied)
            with pytest.raises(StoreFailed) as caught:
                await turn.reply("buenas")
            assert caught.value.unknown
            with pytest.raises(TurnClosed):
                await turn.reply("buenas")
        async with session.turn("hola", delivery_id="d") as turn:
            assert (turn.already is not None) == applied
            await turn.reply("buenas")
        assert await pairs(session) == [("antes", "re: antes"), ("hola", "buenas")]


@pytest.mark.parametrize("applied", [False, True])
async def test_a_store_that_raises_anything(opened, watched, pairs, applied, say):
    """Whatever a store of somebody's own raises at a commit, the outcome counts as unknown."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        watched.fail("commit", ZeroDivisionError(), applied=applied)
        with pytest.raises(StoreFailed) as caught:
            await session.record("hola", "buenas", delivery_id="d")
        assert caught.value.unknown
        assert caught.value.cause == "ZeroDivisionError"
        assert (await session.record("hola", "buenas", delivery_id="d")).duplicate == applied
        assert await pairs(session) == [("hola", "buenas")]


@pytest.mark.parametrize("nth", range(6))
@pytest.mark.parametrize("applied", [False, True])
async def test_the_nth_commit_fails(opened, watched, nth, applied, pairs, no_gap, say, balanced):
    """Whichever commit fails, of turns or of folds, each acknowledged turn is there once."""
    error = StoreFailed("disk", unknown=applied)
    watched.fail("commit", error, nth=nth + 1, applied=applied)
    acknowledged = []
    async with opened(watched, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(6):
            text = f"Ana pide el {number}."
            try:
                await say(session, text, delivery_id=text)
            except StoreFailed:
                await say(session, text, delivery_id=text)
            acknowledged.append(text)
            await runtime.flush()
        assert [said for said, _ in await pairs(session)] == acknowledged
        await say(session, "y ya")
        await runtime.flush()
        layers = await session.layers()
        no_gap(layers, 14, window=2)
        assert layers.cursor == 12
        balanced(runtime, at_rest=True)
    async with opened(settings=Settings(window=2)) as runtime:
        assert await runtime.session("s").layers() == layers


async def test_one_failed_batch_fails_its_own(opened, watched, pairs, say, until):
    """A failed commit fails the turns in it; each session goes on by itself."""
    async with opened(watched) as runtime:
        sessions = [runtime.session(f"s{n}") for n in range(10)]
        for session in sessions:
            await say(session, "antes")
        watched.gates["commit"] = asyncio.Event()
        watched.fail("commit", StoreFailed("disk"))
        tasks = [asyncio.create_task(session.record("hola", "r")) for session in sessions[:5]]
        await until(lambda: watched.reached["commit"])
        tasks += [asyncio.create_task(session.record("hola", "r")) for session in sessions[5:]]
        await until(lambda: runtime.statistics().in_flight == 10)
        watched.gates.pop("commit").set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [isinstance(outcome, StoreFailed) for outcome in outcomes]
        assert failed == [True] * 5 + [False] * 5
        for session, lost in zip(sessions, failed, strict=True):
            assert len(await pairs(session)) == 2 - lost
            await say(session, "después")


async def test_those_who_wait_behind_a_failure_go_on(opened, watched, pairs, until, say):
    """Behind a turn whose write failed and which was left, the next is taken and recorded."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await session.layers()
        watched.fail("commit", StoreFailed("disk"))
        outcomes = await asyncio.gather(
            *(say(session, f"m{n}") for n in range(5)), return_exceptions=True
        )
        assert isinstance(outcomes[0], StoreFailed)
        assert [said for said, _ in await pairs(session)] == [f"m{n}" for n in range(1, 5)]


@pytest.mark.parametrize("error", [StoreFailed("disk"), Tampered("messages", "1")])
async def test_an_actor_that_cant_be_read_fails_those_who_wait_and_nothing_else(
    opened, watched, error, say, balanced, until
):
    """A failed activation fails its waiters with the cause; the next tries again, others serve."""
    async with opened(watched) as runtime:
        await say(runtime.session("s"), "v")
    async with opened(watched) as runtime:
        watched.fail("load_session", error)
        outcomes = await asyncio.gather(
            *(say(runtime.session("s"), f"m{n}") for n in range(5)),
            say(runtime.session("other"), "v"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes[:5]] == [type(error)] * 5
        assert not isinstance(outcomes[5], BaseException)
        assert (await say(runtime.session("s"), "v")).seq == 3
        balanced(runtime, at_rest=True)


@pytest.mark.parametrize("loads", [1, 3])
async def test_a_reply_survives_a_state_that_cant_be_read_back(
    opened, watched, say, pairs, loads, until
):
    """A commit fails, and reading the state back too: the turn is still held for its reply."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        async with session.turn("hola") as turn:
            watched.fail("commit", StoreFailed("disk"))
            for _ in range(loads):
                watched.fail("load_session", StoreFailed("disk"))
            with pytest.raises(StoreFailed):
                await turn.reply("buenas")
            await until(lambda: watched.calls["load_session"] >= 2)
            for _ in range(loads - 1):
                with pytest.raises(StoreFailed):
                    await turn.reply("buenas")
            await turn.reply("buenas")
        assert len(await pairs(session)) == 2


async def test_a_turn_lost_with_its_state_leaves_one_actor(opened, watched, say, pairs, until):
    """However a turn is lost, there is at most one live actor for its session."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        turn = session.turn("hola")
        await turn.__aenter__()
        watched.fail("commit", StoreFailed("disk"))
        watched.fail("load_session", StoreFailed("disk"))
        with pytest.raises(StoreFailed):
            await turn.reply("buenas")
        await until(lambda: watched.calls["load_session"] >= 2)
        await asyncio.create_task(session.layers())
        cell = runtime._inside.cell("s")
        with contextlib.suppress(TurnExpired, StoreFailed):
            await turn.reply("buenas")
        await turn.__aexit__(None, None, None)
        await asyncio.create_task(say(session, "después"))
        assert runtime._inside.cell("s") is cell
        assert turn._cell is cell or turn._cell.actor is None


async def test_a_full_disk(opened, path, say, pairs, balanced):
    """On a full disk a turn is refused and not recorded; with room again, later ones work."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        writer = runtime._store._writer
        [(pages,)] = await writer.execute_fetchall("PRAGMA page_count")
        await writer.execute_fetchall(f"PRAGMA max_page_count = {pages}")
        for _ in range(3):
            async with session.turn("x") as turn:
                with pytest.raises(StoreFailed, match="FULL") as caught:
                    await turn.reply("y" * 100_000)
                assert not caught.value.unknown
                with pytest.raises(StoreFailed):
                    await turn.reply("y" * 100_000)
        assert await pairs(session) == [("antes", "re: antes")]
        await writer.execute_fetchall("PRAGMA max_page_count = 1000000")
        async with session.turn("x") as turn:
            await turn.reply("y" * 100_000)
        assert len(await pairs(session)) == 2
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        assert len(await pairs(runtime.session("s"))) == 2


async def test_a_full_disk_fails_no_turn_by_its_folds(opened, path, say, pairs, no_gap):
    """A disk that is full for folds leaves the surplus where it is; with room it is folded."""
    async with opened(settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(5):
            await say(session, f"Ana pide el {number}.")
        await runtime.flush()
        writer = runtime._store._writer
        await writer.execute_fetchall("PRAGMA query_only = ON")
        with pytest.raises(StoreFailed):
            await say(session, "sin sitio")
        await writer.execute_fetchall("PRAGMA query_only = OFF")
        await say(session, "Ana pide el 5.")
        await runtime.flush()
        no_gap(await session.layers(), 12, window=2)


async def test_a_folder_that_vanishes(opened, path, say, pairs, balanced):
    """No turn is taken that nobody would find; back in its place, the same reply is."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        away = path.parent.rename(path.parent.with_name("away"))
        async with session.turn("hola") as turn:
            for _ in range(2):
                with pytest.raises(StoreFailed, match="not where it was") as caught:
                    await turn.reply("buenas")
                assert not caught.value.unknown
            away.rename(path.parent)
            await turn.reply("buenas")
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        assert await pairs(runtime.session("s")) == [("antes", "re: antes"), ("hola", "buenas")]


async def test_a_folder_that_isnt_there(opened, tmp_path):
    """A database that can't be made is `StoreFailed` at open."""
    with pytest.raises(StoreFailed):
        async with opened(tmp_path / "missing" / "memory.db"):
            pass
    with pytest.raises(StoreFailed):
        async with opened(tmp_path):
            pass


async def test_a_file_that_is_no_database(opened, path):
    """A file that isn't ours is `StoreFailed` at open, and is left as it was."""
    for content in (b"hello " * 1_000, b"SQLite format 3\0" + b"\0" * 84):
        path.write_bytes(content)
        with pytest.raises(StoreFailed):
            async with opened():
                pass
        assert path.read_bytes() == content
    path.unlink()
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE t (x)")
    foreign.close()
    with pytest.raises(StoreFailed):
        async with opened():
            pass


async def test_a_counter_that_raises_hurts_its_own_turn_only(opened, counter, say, pairs):
    """A token counter that fails on one message fails that turn; the session goes on."""
    count = counter.count

    def fussy(text):
        if "bad" in text:
            raise ZeroDivisionError
        return count(text)

    counter.count = fussy
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        outcomes = await asyncio.gather(
            session.record("bad", "r"),
            runtime.session("other").record("x", "y"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], StoreFailed)
        assert not isinstance(outcomes[1], BaseException)
        await say(session, "después")
        assert [said for said, _ in await pairs(session)] == ["antes", "después"]


def _broken(cell):
    raise ZeroDivisionError


async def test_the_second_of_three_fails(opened, say, balanced):
    """What an actor doesn't declare fails its own message: the first and third are answered."""
    async with opened() as runtime:
        await say(runtime.session("s"), "v")
        cell = runtime._inside.cell("s")
        letters = [
            cell.ask(Look(lambda c: c.actor.last)),
            cell.ask(Look(_broken)),
        ]
        third = asyncio.create_task(runtime.session("s").layers())
        assert await letters[0].promise.wait() == 2
        with pytest.raises(ActorFailed) as caught:
            await letters[1].promise.wait()
        assert caught.value.cause == "ZeroDivisionError"
        assert (await third).cursor == 0
        balanced(runtime, at_rest=True)


async def test_an_actor_that_fails_again_and_again_rests(opened, say, clock, balanced):
    """Over three failures in 60 s quarantine the key, until its rest is over; others serve."""
    async with opened(clock=clock) as runtime:
        session = runtime.session("s")
        for attempt in range(4):
            await say(session, f"t{attempt}")
            with pytest.raises(ActorFailed):
                await runtime._inside.cell("s").ask(Look(_broken)).promise.wait()
        with pytest.raises(Quarantined) as caught:
            await say(session, "no")
        assert 0 < caught.value.retry_s <= 1
        assert caught.value.retry_at == clock.wall + timedelta(seconds=caught.value.retry_s)
        await say(runtime.session("other"), "v")
        await clock.advance(1)
        assert (await say(session, "sí")).seq == 9
        balanced(runtime, at_rest=True)


async def test_failures_far_apart_are_forgiven(opened, say, clock):
    """Failures over 60 s apart quarantine nobody."""
    async with opened(clock=clock) as runtime:
        for _ in range(8):
            await say(runtime.session("s"), "v")
            with pytest.raises(ActorFailed):
                await runtime._inside.cell("s").ask(Look(_broken)).promise.wait()
            await clock.advance(21)
