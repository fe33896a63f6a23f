"""Costs, as counted operations: an active session reads no disk and counts nothing twice."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from interturn.runtime import MemoryStore, Settings

pytestmark = pytest.mark.anyio


def _text(number: int) -> str:
    return f"Pedido {100_000 + number} de Ana para el martes."


class Costs:
    """What a piece of work asked of the store and of the counter."""

    def __init__(self, store, counter) -> None:
        self.store = store
        self.counter = counter

    def begin(self) -> None:
        self.calls = Counter(self.store.calls)
        self.counted = self.counter.calls

    def end(self) -> dict[str, int]:
        asked = dict(self.store.calls - self.calls)
        return asked | {"counted": self.counter.calls - self.counted}


async def _turn(session, number: int, costs: Costs) -> tuple[dict[str, int], ...]:
    """Hold a turn; return what assembling it, what accounting for it and what recording it cost."""
    costs.begin()
    async with session.turn(_text(number), instructions="Sé breve.") as turn:
        assembled = costs.end()
        costs.begin()
        assert turn.request.tokens > 0
        assert turn.request.receipt.blocks["visitor"].tokens > 0
        accounted = costs.end()
        costs.begin()
        await turn.reply(f"Vale, {number}.")
        return assembled, accounted, costs.end()


class _Nothing:
    """A deriver that finds nothing, so that facts and their counts are not in the figures."""

    async def derive(self, turn, known):  # noqa: ARG002 - the port's names
        return []


async def test_a_turn_costs_the_same_at_10000_as_at_20(opened, watch, counter, summarizer):
    """Assembly reads no disk and counts nothing; a turn costs at 10,000 what it did at 20."""
    watched = watch(MemoryStore())
    costs = Costs(watched, counter)
    recorder = summarizer(lambda leaving, _: f"Ana pidió el {leaving[0].seq}.")
    async with opened(watched, summarizer=recorder, deriver=_Nothing()) as runtime:
        session = runtime.session("s")
        seen = {}
        for number in range(1, 10_002):
            cost = await _turn(session, number, costs)
            if number in (20, 200, 10_000):
                seen[number] = cost
            await runtime.flush()
    assembled, accounted, recorded = seen[20]
    assert assembled == {"counted": 0}
    assert set(accounted) == {"counted"}
    assert accounted["counted"] <= 4  # system, instructions, summary, text: each once
    assert recorded["commit"] == 1
    assert recorded["counted"] <= 3  # the reply; the line that a fold adds, and its summary
    assert seen[200] == seen[10_000] == seen[20]


async def test_each_text_is_counted_once(opened, counter, summarizer, say):
    """A message's tokens are counted once in its life, also when its request is accounted for."""
    recorder = summarizer(lambda leaving, _: f"Ana pidió el {leaving[0].seq}.")
    async with opened(MemoryStore(), summarizer=recorder) as runtime:
        session = runtime.session("s")
        for number in range(100):
            async with session.turn(_text(number)) as turn:
                assert turn.request.tokens
                await turn.reply(f"Vale, {number}.")
        await runtime.flush()
    for number in range(100):
        assert counter.asked[_text(number)] == 1
        assert counter.asked[f"Vale, {number}."] == 1


async def test_a_reopened_session_counts_no_message_again(opened, counter, say):
    """Stored counts are taken from the disk; with another counter they are counted again."""
    async with opened() as runtime:
        for number in range(10):
            await say(runtime.session("s"), _text(number))
        await runtime.flush()
        tokens = [m.tokens for m in (await runtime.session("s").layers()).window]
    counter.asked.clear()
    async with opened() as runtime:
        await runtime.session("s").layers()
        assert not any(counter.asked[_text(number)] for number in range(10))
    other = type(counter)()
    other.name = "another"
    async with opened(counter=other) as runtime:
        layers = await runtime.session("s").layers()
        assert [m.tokens for m in layers.window] == tokens
        assert all(other.asked[m.text] == 1 for m in layers.window)


async def test_an_active_session_is_assembled_from_memory(opened, watched, say):
    """`assemble`, `layers` and a turn that is left ask the store nothing while it is active."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        for number in range(10):
            await say(session, _text(number))
        await runtime.flush()
        before = Counter(watched.calls)
        for _ in range(100):
            await session.assemble("¿Y luego?")
            await session.layers()
            async with session.turn("nada"):
                pass
        assert watched.calls == before


async def test_what_a_budget_drops_is_compacted_once(opened, counter, say):
    """While the same turns are dropped, their compaction is remembered, at any length alike."""
    costs = []
    async with opened(MemoryStore()) as runtime:
        session = runtime.session("s")
        for number in range(600):
            await say(session, _text(number), "Queda anotado para el jueves a las diez.")
            await runtime.flush()
            if number in (60, 599):
                first = counter.calls
                request = await session.assemble("¿Y luego?", budget=250)
                second = counter.calls
                assert request.receipt.compacted > 0
                third = counter.calls
                await session.assemble("¿Y luego?", budget=250)
                costs.append((second - first, counter.calls - third))
    for first, again in costs:
        assert again < first or again <= 12
    assert costs[1][0] <= 2 * costs[0][0]
    assert costs[1][1] <= 2 * costs[0][1]


async def test_what_rests_is_two_rows_a_turn(opened, say):
    """The database holds two rows a turn and one row a session and customer, and no more."""
    async with opened(settings=Settings(window=2)) as runtime:
        for number in range(40):
            await say(runtime.session(f"s{number % 4}", customer=f"c{number % 2}"), _text(number))
        await runtime.flush()
        reader = runtime._store._reader
        rows = {}
        for (table,) in await reader.execute_fetchall(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ):
            [(rows[table],)] = await reader.execute_fetchall(f"SELECT count(*) FROM {table}")  # noqa: S608
    assert rows["messages"] == 80
    assert (rows["sessions"], rows["customers"], rows["customer_keys"]) == (4, 2, 2)
    assert sum(rows.values()) <= 80 + 4 + 2 + 2 + 4


async def test_three_hundred_sessions_cost_no_thread_and_no_handle(opened, say):
    """Threads and open files are the same over 300 sessions as over one; cells stay few."""

    def held() -> tuple[int, int]:
        folder = Path("/proc/self/fd")
        return threading.active_count(), len(list(folder.iterdir())) if folder.is_dir() else 0

    async with opened(settings=Settings(active=50)) as runtime:
        await say(runtime.session("first"), "v")
        await runtime.flush()  # the first derivation begins a worker, which others reuse
        threads, files = held()
        tasks = len(asyncio.all_tasks())
        for number in range(300):
            await say(runtime.session(f"s{number}"), "v")
        await runtime.flush()
        assert held()[0] <= threads
        assert held()[1] <= files
        assert len(asyncio.all_tasks()) <= tasks
        assert runtime.statistics().sessions <= 50


async def test_a_thousand_idle_sessions_hold_no_task(opened, say):
    """An idle session is an entry with no task of its own, however many there are."""
    async with opened(MemoryStore()) as runtime:
        await say(runtime.session("first"), "v")
        tasks = len(asyncio.all_tasks())
        for number in range(1_000):
            await say(runtime.session(f"s{number}"), "v")
        assert runtime.statistics().sessions == 1_001
        assert len(asyncio.all_tasks()) == tasks
        cells = runtime._inside._cells.values()
        assert all((c.mailbox, c.line, c.holder) == (None, None, None) for c in cells)
