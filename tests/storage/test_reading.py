"""Reading beside an owner, and where there is none."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from interturn.storage import (
    SqliteStore,
    StoreFailed,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("apart", [False, True])
async def test_a_reader_beside_an_owner_sees_every_commit_and_writes_nothing(
    tmp_path, scribe, apart, opened
):
    """The same loads, no lease, no refusal; and no write goes through it."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1)])
        reader = SqliteStore(path, keys=keys)
        assert await reader.open_read_only() == scribe.root
        assert repr(reader) == "<SqliteStore open, read-only>"
        for seq in (3, 5):
            await store.commit([scribe.turn(1, seq)])
            loaded = await reader.load_session(scribe.hasher.session("s1"), recent=9)
            assert loaded == await store.load_session(scribe.hasher.session("s1"), recent=9)
            assert loaded.last == seq + 1
        for attempt in (reader.commit([scribe.turn(1, 7)]), reader.renew()):
            with pytest.raises(StoreFailed, match="reading only"):
                await attempt
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await reader._reader.execute_fetchall("DELETE FROM messages")
        await reader.close()
        assert await store.commit([scribe.turn(1, 7)]) == ["written"]


async def test_a_reader_of_nothing_is_none(files, path):
    """There is nothing to open, and nothing is made."""
    reader = SqliteStore(path)
    assert await reader.open_read_only() is None
    with pytest.raises(StoreFailed):
        await reader.rows(1, after=0, limit=1)
    await reader.close()
    assert files.bytes() == {}


async def test_a_reader_does_not_keep_an_owner_out(path, scribe, opened):
    """While it is open, a database changes hands, and it goes on reading."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
    reader = SqliteStore(path)
    assert await reader.open_read_only() == scribe.root
    async with opened(path, scribe) as store:
        await store.commit([scribe.turn(1, 3)])
        assert len(await reader.rows(1, after=0, limit=9)) == 4
    await reader.close()


@pytest.mark.parametrize("apart", [False, True])
async def test_a_reader_of_a_database_at_rest_makes_no_file(tmp_path, files, scribe, opened, apart):
    """Cleanly closed, and nobody has it open: every load works, and every byte stays."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1)])
        before = await store.load_session(scribe.hasher.session("s1"), recent=9)
    left = files.bytes()
    assert not [name for name in left if name.endswith(("-wal", "-shm"))]
    reader = SqliteStore(path, keys=keys)
    assert await reader.open_read_only() == scribe.root
    assert await reader.load_session(scribe.hasher.session("s1"), recent=9) == before
    assert len(await reader.underived(after=0, limit=9)) == 1
    assert await reader.check() == []
    assert files.bytes() == left
    await reader.close()
    assert files.bytes() == left


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("gone", [False, True])
async def test_a_reader_sees_that_a_database_is_at_rest_no_more(
    tmp_path, scribe, opened, apart, gone
):
    """An owner came, or came and went, after it was opened: the next load tells what is there."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1), *[scribe.first(ref) for ref in range(2, 60)]])
    reader = SqliteStore(path, keys=keys)
    await reader.open_read_only()
    assert len(await reader.rows(1, after=0, limit=99)) == 2
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.turn(1, seq) for seq in range(3, 63, 2)])
        await store.forget(2)
        if not gone:
            many = [reader.rows(1, after=0, limit=99) for _ in range(5)]
            assert [len(rows) for rows in await asyncio.gather(*many)] == [62] * 5
    assert len(await reader.rows(1, after=0, limit=99)) == 62
    assert await reader.rows(2, after=0, limit=99) == []
    assert len(await reader.customers(after=0, limit=99)) == 58
    assert await reader.check() == []
    await reader.close()


async def test_a_crashed_owners_commits_are_read(path, scribe, opened):
    """Where a log was left, it is joined: what is only there is seen."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        copy = path.with_name("copy.db")
        for suffix in ("", "-wal"):
            content = path.with_name(path.name + suffix).read_bytes()
            copy.with_name(copy.name + suffix).write_bytes(content)
    reader = SqliteStore(copy)
    assert await reader.open_read_only() == scribe.root
    assert len(await reader.rows(1, after=0, limit=9)) == 2
    await reader.close()
