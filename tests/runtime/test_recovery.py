"""Recovery: what was acknowledged is there after any end, and a restart changes no request."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from interturn.runtime import MemoryStore, Settings, SqliteStore

pytestmark = pytest.mark.anyio


def _text(number: int) -> str:
    return f"Ana pidió el {40_000 + number} para el día {number % 28 + 1} de mayo."


async def _request(session, **given):
    request = await session.assemble(
        "¿Y luego?", instructions="Sé breve.", knowledge=["a <b>"], **given
    )
    return request.messages, request.tokens, request.receipt


@pytest.mark.parametrize("turns", [1, 6, 7, 40])
@pytest.mark.parametrize("memory", [False, True])
async def test_a_request_is_the_same_after_a_restart(opened, say, turns, memory):
    """The whole request is byte-equal before closing and after reopening, compaction too."""
    store = MemoryStore()
    async with opened(store if memory else None) as runtime:
        session = runtime.session("s")
        for number in range(turns):
            await say(session, _text(number), "Vale, queda anotado.")
        await runtime.flush()
        before = [await _request(session), await _request(session, budget=150)]
        layers = await session.layers()
    async with opened(MemoryStore(beside=store) if memory else None) as runtime:
        session = runtime.session("s")
        assert [await _request(session), await _request(session, budget=150)] == before
        assert await session.layers() == layers
        await runtime.flush()
        assert [await _request(session), await _request(session, budget=150)] == before


async def test_a_request_is_the_same_after_leaving_memory(opened, say):
    """An actor that left memory for others comes back with the same request, folds and all."""
    async with opened(settings=Settings(active=2, window=4)) as runtime:
        before = {}
        for name in ("a", "b", "c", "d"):
            for number in range(15):
                await say(runtime.session(name), f"{name}: {_text(number)}")
            await runtime.flush()
            before[name] = await _request(runtime.session(name))
        assert runtime.statistics().passivations >= 2
        for name, request in before.items():
            assert await _request(runtime.session(name)) == request


async def test_two_looks_a_minute_apart_are_the_same(opened, say, clock):
    """With nothing new, the bytes before the visitor's message are the same at any time."""
    async with opened(MemoryStore(), clock=clock) as runtime:
        session = runtime.session("s")
        for number in range(20):
            await say(session, _text(number))
        await runtime.flush()
        before = await _request(session)
        await clock.advance(60)
        assert await _request(session) == before
        other = await session.assemble("Otra cosa.", instructions="Sé breve.", knowledge=["a <b>"])
        assert other.messages[:-1] == before[0][:-1]


@pytest.mark.parametrize("stop", [6, 7, 8, 9])
async def test_the_cursor_goes_on_where_it_was(opened, recorder, say, stop, no_gap, summarizer):
    """Stopped anywhere and started again, no message is folded twice and none is left out."""
    settings = Settings(fold_at=4)
    async with opened(summarizer=recorder, settings=settings) as runtime:
        for number in range(stop):
            await say(runtime.session("s"), _text(number))
        await runtime.flush()
        cursor = (await runtime.session("s").layers()).cursor
    again = summarizer()
    async with opened(summarizer=again, settings=settings) as runtime:
        session = runtime.session("s")
        assert (await session.layers()).cursor == cursor
        for number in range(stop, stop + 10):
            await say(session, _text(number))
        await runtime.flush()
        layers = await session.layers()
        no_gap(layers, 2 * (stop + 10))
    folded = list(chain.from_iterable(recorder.leaving + again.leaving))
    assert folded == list(range(1, layers.cursor + 1))


async def test_six_restarts_multiply_nothing(opened, say, pairs):
    """Restarts store nothing again: messages grow by what was said."""
    for round_ in range(6):
        async with opened(settings=Settings(window=2)) as runtime:
            session = runtime.session("s", customer="ana")
            for number in range(3):
                await say(session, f"{round_}: {_text(number)}")
            assert len(await pairs(session)) == 3 * (round_ + 1)
            assert await runtime.customer("ana").sessions() == ["s"]


async def test_a_reader_beside_the_writer(opened, path, say, pairs):
    """A second connection that reads in a loop never locks the database for turns."""
    async with opened() as runtime:
        reader = SqliteStore(path)
        assert await reader.open_read_only() is not None
        done = asyncio.Event()

        async def read():
            reads = 0
            while not done.is_set():
                rows = await reader.rows(1, after=0, limit=1_000)
                assert len(rows) % 2 == 0
                reads += 1
            return reads

        reading = asyncio.create_task(read())
        for number in range(60):
            await say(runtime.session("s"), _text(number))
        done.set()
        assert await reading > 20
        await reader.close()
        assert len(await pairs(runtime.session("s"))) == 60


async def test_a_long_lived_reader_doesnt_let_the_log_grow(opened, path, summarizer):
    """No read transaction stays open between calls, so the log is cut back as it grows."""
    short = summarizer(lambda leaving, _: f"Ana pidió el {leaving[0].seq}.")
    async with opened(summarizer=short, settings=Settings(durability="normal")) as runtime:
        session = runtime.session("s")
        reading = session.transcript()
        await session.record("a" * 5_000, "b" * 5_000)
        await anext(reading)
        for _ in range(15):
            await asyncio.gather(*(session.record("a" * 5_000, "b" * 5_000) for _ in range(60)))
        await reading.aclose()
        log = path.with_name("memory.db-wal").stat().st_size
        assert path.stat().st_size + log > 9_000_000
        assert log < 7_000_000
