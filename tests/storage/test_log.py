"""How the write-ahead log grows and what it leaves."""

from __future__ import annotations

import contextlib
import os
import sqlite3

import msgspec
import pytest

pytestmark = pytest.mark.anyio


async def test_the_log_does_not_grow_for_ever(path, scribe, opened, size):
    """Checkpoints keep it to a few megabytes however much is written, and close empties it."""
    async with opened(path, scribe, durability="normal") as store:
        await store.commit([scribe.first(1)])
        largest = 0
        for seq in range(3, 603, 2):
            turn = scribe.turn(1, seq)
            agent = msgspec.structs.replace(turn.agent, sealed=os.urandom(60_000))
            await store.commit([msgspec.structs.replace(turn, agent=agent)])
            largest = max(largest, size(f"{path}-wal"))
        assert path.stat().st_size > 15_000_000
        assert largest < 8_000_000
    assert not size(f"{path}-wal")


async def test_a_foreign_reader_does_not_stop_writes(path, scribe, opened):
    """While it reads, commits go on; it keeps seeing what it saw."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
            tool.execute("BEGIN")
            count = "SELECT count(*) FROM messages"
            assert tool.execute(count).fetchone() == (2,)
            for seq in range(3, 103, 2):
                assert await store.commit([scribe.turn(1, seq)]) == ["written"]
            assert tool.execute(count).fetchone() == (2,)
            tool.execute("COMMIT")
            assert tool.execute(count).fetchone() == (102,)


async def test_what_is_deleted_is_not_in_the_files(files, path, scribe, opened):
    """A replaced snapshot's bytes are nowhere once the log is emptied."""
    old, new = scribe.snapshot(1, 2, 0), scribe.snapshot(1, 2, 1)
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1), old])
        await store.commit([new])
    content = b"".join(files.bytes().values())
    assert new.snapshot in content
    assert old.snapshot not in content
