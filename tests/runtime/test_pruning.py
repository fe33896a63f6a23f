"""Retention: what is old, folded and learnt from goes; what it taught, and all else, stays."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import timedelta

import pytest

from interturn.runtime import MemoryStore, Pruned, RuntimeClosed, Settings, StoreFailed, Tampered
from interturn.runtime.archive import Archive
from interturn.runtime.pruning import _ROWS

pytestmark = pytest.mark.anyio

SMALL = Settings(window=2, retain_days=30)
NOTHING = Pruned(0, 0, 0, 0)


@pytest.fixture(params=["sqlite", "memory"])
def store(request):
    """Return what `opened` is given: None for the test's file, or one store in memory."""
    return MemoryStore() if request.param == "memory" else None


@pytest.fixture
def talked(opened, clock):
    """Hold conversations of so many turns, and let all of it rest."""

    async def talk(turns, *, store=None, settings=SMALL, size=0):
        async with opened(store, settings=settings, clock=clock) as runtime:
            for session_id, count in turns.items():
                session = runtime.session(session_id, customer="ana")
                for number in range(count):
                    text = f"Pedido {number} de {session_id}.".ljust(size, "x")
                    await session.record(text, f"Vale, {number}.", delivery_id=f"d{number}")
            await runtime.flush()

    return talk


def later(clock, days):
    clock.wall += timedelta(days=days)


async def seqs(session) -> list[int]:
    return [message.seq async for message in session.transcript()]


async def test_old_turns_go_and_what_they_taught_stays(opened, clock, store, talked, no_gap):
    """Layers, facts and profile are as they were; the transcript begins later; turns go on."""
    await talked({"s": 10, "corta": 1}, store=store)
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        session, ana = runtime.session("s"), runtime.customer("ana")
        before = await session.layers(), await ana.facts(), await ana.profile()
        assert before[0].cursor == 18
        assert await runtime.prune() == NOTHING
        later(clock, 31)
        pruned = await runtime.prune()
        assert (pruned.sessions, pruned.messages, pruned.refused) == (1, 16, 0)
        assert await runtime.prune() == NOTHING
        assert (await session.layers(), await ana.facts(), await ana.profile()) == before
        assert await seqs(session) == [17, 18, 19, 20]
        assert await seqs(runtime.session("corta")) == [1, 2]
        assert (await session.record("hola", "buenas")).seq == 21
        await runtime.flush()
        no_gap(await session.layers(), 22, window=2)
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        session = runtime.session("s")
        assert await seqs(session) == list(range(17, 23))
        no_gap(await session.layers(), 22, window=2)
        assert [await session.undo(), await session.undo()] == [True, False]
        assert (await session.record("otra", "vez")).seq == 21


async def test_only_what_is_old_goes(opened, clock, talked):
    """The oldest whole turns up to the first that is younger, however the clock has jumped."""
    await talked({"s": 3})
    later(clock, 20)
    await talked({"s": 0})
    async with opened(settings=SMALL, clock=clock) as runtime:
        session = runtime.session("s")
        for number in range(5):
            await session.record("nuevo", f"{number}", at=clock.wall)
        await session.record("viejo", "de entonces", at=clock.wall - timedelta(days=90))
        await runtime.flush()
    later(clock, 11)
    async with opened(settings=SMALL, clock=clock) as runtime:
        assert (await runtime.prune()).messages == 6
        assert await seqs(runtime.session("s")) == list(range(7, 19))


async def test_what_is_flushed_can_go_at_once(opened, clock, store):
    """What was learnt waits for no timer: the same runtime that learnt it prunes."""
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        session = runtime.session("s", customer="ana")
        for number in range(10):
            await session.record(f"Pedido {number}.", "Vale.", at=clock.wall - timedelta(days=90))
        await runtime.flush()
        assert (await runtime.prune()).messages == 16
        assert await seqs(session) == [17, 18, 19, 20]


async def test_off_by_default(opened, clock, talked):
    """Without ``retain_days`` nothing goes; with none kept, all that is folded may."""
    await talked({"s": 6})
    later(clock, 9_999)
    async with opened(clock=clock) as runtime:
        assert await runtime.prune() == NOTHING
    async with opened(settings=Settings(retain_days=0), clock=clock) as runtime:
        assert (await runtime.prune()).messages == 8


async def test_the_window_and_what_waits_for_its_fold_stay(opened, clock, talked, summarizer):
    """Nothing folded: nothing goes, however old."""

    def refuse(*_):
        raise OSError

    later(clock, 0)
    async with opened(settings=SMALL, clock=clock, summarizer=summarizer(refuse)) as runtime:
        session = runtime.session("s")
        for number in range(3):
            await session.record(f"Pedido {number}.", "Vale.")
        later(clock, 31)
        assert (await session.layers()).surplus
        assert await runtime.prune() == NOTHING
        assert await seqs(session) == list(range(1, 7))


class _Slow:
    """A deriver that learns nothing until it is let."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.seen = []

    async def derive(self, turn, known):  # noqa: ARG002 - the port's names
        await self.gate.wait()
        self.seen.append([message.seq for message in turn])
        return []


async def test_what_is_not_learnt_from_yet_stays(opened, clock, talked):
    """A turn goes only when facts have been derived from it; a later lesson finds what it needs."""
    await talked({"s": 4})
    slow = _Slow()
    async with opened(settings=SMALL, clock=clock, deriver=slow) as runtime:
        session = runtime.session("s")
        for number in range(4, 10):
            await session.record(f"Pedido {number}.", "Vale.")
        await asyncio.sleep(0)
        later(clock, 31)
        assert (await runtime.prune()).messages == 6
        assert await seqs(session) == list(range(7, 21))
        slow.gate.set()
        await runtime.flush()
    assert [turn[-2] for turn in slow.seen] == list(range(9, 21, 2))
    async with opened(settings=SMALL, clock=clock, deriver=slow) as runtime:
        assert (await runtime.prune()).messages == 10
        await runtime.flush()
    assert len(slow.seen) == 6


async def test_a_delivery_that_was_pruned_is_a_new_turn(opened, clock, store, talked):
    """In memory and after a restart; one whose turn is kept is known as before."""
    await talked({"s": 10}, store=store)
    later(clock, 31)
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        session = runtime.session("s")
        assert (await session.record("Pedido 0 de s.", "Otra vez.", delivery_id="d0")).duplicate
        await runtime.prune()
        again = await session.record("Pedido 0 de s.", "Otra vez.", delivery_id="d0")
        assert (again.seq, again.duplicate) == (21, False)
        assert (await session.record("Pedido 9 de s.", "x", delivery_id="d9")).seq == 19
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        again = await runtime.session("s").record("Pedido 1 de s.", "Ya.", delivery_id="d1")
        assert (again.seq, again.duplicate) == (23, False)


async def test_long_conversations_go_in_many_transactions(opened, clock, watch, talked):
    """A bounded number of messages in each, with everybody else's turns in between."""
    store = MemoryStore()
    await talked({"s": _ROWS + 50, "t": 40, "u": 40}, store=store)
    later(clock, 31)
    watched = watch(store)
    async with opened(watched, settings=SMALL, clock=clock) as runtime:
        gate = watched.gates["prune"] = asyncio.Event()
        pruning = asyncio.create_task(runtime.prune())
        assert (await runtime.session("t").record("mientras", "tanto")).seq == 81
        await runtime.flush()
        gate.set()
        pruned = await pruning
        assert (pruned.sessions, pruned.messages) == (3, 2 * _ROWS + 96 + 78 + 76)
        assert watched.calls["prune"] >= 3
        assert await seqs(runtime.session("s")) == list(range(2 * _ROWS + 97, 2 * _ROWS + 101))


async def test_two_prunings_at_once(opened, clock, store, talked):
    """No mark goes back: every message is there or pruned, and is counted once."""
    await talked({"s": 30, "t": 30}, store=store)
    later(clock, 31)
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        told = await asyncio.gather(*(runtime.prune() for _ in range(3)))
        assert sum(pruned.messages for pruned in told) == 2 * 56
        assert await seqs(runtime.session("s")) == [57, 58, 59, 60]


async def test_a_transcript_that_is_being_read_goes_on_after_what_was_pruned(
    opened, clock, store, talked
):
    """Messages that go under a reader's feet are no tampering."""
    await talked({"s": 400}, store=store)
    later(clock, 31)
    async with opened(store, settings=SMALL, clock=clock) as runtime:
        read = []
        async for message in runtime.session("s").transcript():
            if message.seq == 150:
                await runtime.prune()
            read.append(message.seq)
    assert read == [*range(1, 201), *range(797, 801)]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("DELETE FROM messages WHERE seq = 17", {"gap"}),
        ("UPDATE sessions SET pruned = NULL", {"gap"}),
        ("UPDATE sessions SET pruned = snapshot", {"tampered"}),
    ],
)
async def test_a_missing_row_that_was_not_pruned_is_loud(
    opened, clock, path, keyring, talked, change, kinds
):
    """And a mark that is gone or another's: to who reads on, to a reader outside, to the doctor."""
    await talked({"s": 10})
    later(clock, 31)
    async with opened(settings=SMALL, clock=clock) as runtime:
        await runtime.prune()
    async with Archive.open(path, keyring=keyring, settings=SMALL) as archive:
        assert (await archive.doctor()).findings == ()
        assert [m.seq async for m in archive.transcript("s")] == [17, 18, 19, 20]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute(change)
    async with Archive.open(path, keyring=keyring, settings=SMALL) as archive:
        assert {finding.kind for finding in (await archive.doctor()).findings} == kinds
        with pytest.raises(Tampered):
            assert [m async for m in archive.transcript("s")]
    async with opened(settings=SMALL, clock=clock) as runtime:
        with pytest.raises(Tampered):
            await seqs(runtime.session("s"))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE messages SET at = 0 WHERE session = 1 AND seq = 3",
        "UPDATE sessions SET cursor = 20 WHERE ref = 1",
        "UPDATE messages SET sealed = zeroblob(99) WHERE session = 1 AND seq = 4",
        "UPDATE sessions SET wrapped = zeroblob(99) WHERE ref = 1",
    ],
)
async def test_a_changed_byte_destroys_nothing(opened, clock, path, talked, change):
    """A session in which something doesn't open is left as it is, and told; others are pruned."""
    await talked({"s": 10, "t": 10})
    later(clock, 31)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute(change)
    async with opened(settings=SMALL, clock=clock) as runtime:
        pruned = await runtime.prune()
        assert (pruned.sessions, pruned.messages, pruned.refused) == (1, 16, 1)
    with contextlib.closing(sqlite3.connect(path)) as tool:
        left = tool.execute("SELECT session, count(*) FROM messages GROUP BY session").fetchall()
    assert left == [(1, 20), (2, 4)]


async def test_the_file_gets_smaller(opened, clock, path, talked):
    """By what the receipt says; what went is in no file; the rest is all there."""
    await talked({"s": 200}, size=3_000)
    later(clock, 31)
    before = path.stat().st_size
    async with opened(settings=SMALL, clock=clock) as runtime:
        pruned = await runtime.prune()
        assert pruned.bytes > 500_000
        assert path.stat().st_size == before - pruned.bytes
        assert await seqs(runtime.session("s")) == list(range(397, 401))
    async with opened(settings=SMALL, clock=clock) as runtime:
        assert (await runtime.session("s").record("y", "más")).seq == 401


@pytest.mark.parametrize("method", ["aged", "load_session", "rows", "prune", "shrink"])
@pytest.mark.parametrize("applied", [False, True])
async def test_a_store_that_fails_in_between(opened, clock, watched, talked, method, applied, say):
    """Told; whatever went is marked as gone, turns go on, and the next call does the rest."""
    await talked({"s": 10, "t": 10}, store=watched)
    later(clock, 31)
    async with opened(watched, settings=SMALL, clock=clock) as runtime:
        watched.fail(method, StoreFailed("disk", unknown=applied), applied=applied)
        with pytest.raises(StoreFailed):
            await runtime.prune()
        await say(runtime.session("s"), "sigo aquí")
        await runtime.prune()
        left = await seqs(runtime.session("s"))
        assert left[0] >= 17
        assert left == list(range(left[0], 23))
        assert await seqs(runtime.session("t")) == [17, 18, 19, 20]


async def test_a_runtime_that_closes_waits_for_no_long_pruning(
    opened, clock, watched, talked, until
):
    """It stops at the next session; what went is gone, and the next runtime does the rest."""
    await talked({"s": 10, "t": 10}, store=watched)
    later(clock, 31)
    runtime = opened(watched, settings=SMALL, clock=clock)
    async with runtime:
        gate = watched.gates["aged"] = asyncio.Event()
        pruning = asyncio.create_task(runtime.prune())
        await until(lambda: watched.reached["aged"])
        closing = asyncio.create_task(runtime.close())
        await until(lambda: runtime._inside.closing)
        gate.set()
        await closing
    with pytest.raises(RuntimeClosed):
        await pruning
    async with opened(settings=SMALL, clock=clock) as runtime:
        assert (await runtime.prune()).messages == 32
