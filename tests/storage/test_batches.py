"""What a batch costs in SQLite, and how it rests."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter

import aiosqlite
import pytest

from interturn.storage import (
    Known,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def crossings(monkeypatch):
    """Return a count of calls into the database threads."""
    count = Counter()
    execute = aiosqlite.Connection._execute

    async def counted(self, function, *args, **kwargs):
        count[self] += 1
        return await execute(self, function, *args, **kwargs)

    monkeypatch.setattr(aiosqlite.Connection, "_execute", counted)
    return count


@pytest.mark.parametrize("size", [1, 7, 256, 1_024])
async def test_a_batch_of_turns_is_one_call(path, scribe, crossings, size, opened):
    """However many turns: one statement, one crossing to the thread, one transaction."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(ref) for ref in range(1, size + 1)])
        crossings.clear()
        outcomes = await store.commit([scribe.turn(ref, 3) for ref in range(1, size + 1)])
        assert outcomes == ["written"] * size
        assert crossings == {store._writer: 1}
        crossings.clear()
        await store.load_session(scribe.hasher.session("s1"), recent=64)
        assert crossings == {store._reader: 1}


async def test_new_sessions_and_snapshots_cost_a_few_calls(path, scribe, crossings, opened):
    """However many: BEGIN, one statement for each kind, COMMIT."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(ref) for ref in range(1, 201)])
        crossings.clear()
        writes = [scribe.snapshot(ref, 2, 0) for ref in range(1, 201)]
        writes += [scribe.first(ref) for ref in range(201, 401)]
        assert await store.commit(writes) == ["written"] * 400
        assert crossings == {store._writer: 7}


async def test_big_batches_are_written_whole(path, scribe, opened, everything):
    """Beyond what one statement takes, a batch is still one transaction."""
    async with opened(path, scribe, durability="normal") as store:
        assert await store.commit([scribe.first(n) for n in range(1, 2_501)]) == ["written"] * 2_500
        turns = [scribe.turn(n, 3, "d") for n in range(1, 2_501)]
        snapshots = [scribe.snapshot(n, 2, n % 2) for n in range(1, 2_501)]
        outcomes = await store.commit([*turns, *snapshots])
        assert outcomes[:2_500] == ["written"] * 2_500
        assert outcomes[2_500:] == ["stale", "written"] * 1_250
        again = [scribe.turn(n, 5, "d" if n == 1_700 else None) for n in range(1, 2_501)]
        outcomes = await store.commit(again)
        assert outcomes.pop(1_699) == Known(3)
        assert outcomes == ["written"] * 2_499
    rows = everything(path)["messages"]
    assert len(rows) == 2 * (2_500 + 2_500 + 2_499)
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))


async def test_rows_rest_in_the_order_in_which_they_came(path, scribe, opened, everything):
    """The visitor's row, then the agent's, turn after turn."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(2), scribe.first(1)])
        await store.commit([scribe.turn(1, 3), scribe.turn(2, 3), scribe.turn(1, 5)])
    order = [(row[1], row[2]) for row in everything(path)["messages"]]
    assert order == [
        *[(2, 1), (2, 2), (1, 1), (1, 2)],
        *[(1, 3), (1, 4), (2, 3), (2, 4), (1, 5), (1, 6)],
    ]


def test_the_tables_refuse_what_no_turn_writes(path, scribe, opened, edit):
    """Gaps, doubles and roles on the wrong side are refused whoever writes."""

    async def make():
        async with opened(path, scribe) as store:
            await store.commit([scribe.first(1)])

    asyncio.run(make())
    insert = "INSERT INTO messages (session, seq, role, at, sealed) VALUES"
    for values in ("(1, 4, 1, 0, x'00')", "(1, 2, 1, 0, x'00')", "(1, 3, 1, 0, x'00')"):
        with pytest.raises(sqlite3.IntegrityError):
            edit(path, f"{insert} {values}")
