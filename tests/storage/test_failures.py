"""A disk, a file or a foreign tool that refuses."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import aiosqlite
import msgspec
import pytest

from interturn.storage import (
    SqliteStore,
    StoreFailed,
    connection,
)

pytestmark = pytest.mark.anyio


async def test_a_full_disk_fails_the_write_and_no_later_one(path, scribe, opened):
    """The turn isn't recorded, no transaction stays open, and with room again all works."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
        big = scribe.turn(1, 3)
        big = msgspec.structs.replace(
            big, visitor=msgspec.structs.replace(big.visitor, sealed=os.urandom(100_000))
        )
        [(pages,)] = await store._writer.execute_fetchall("PRAGMA page_count")
        await store._writer.execute_fetchall(f"PRAGMA max_page_count = {pages}")
        for writes in ([big], [big, scribe.snapshot(2, 2, 0)], [scribe.first(3), big]):
            with pytest.raises(StoreFailed) as told:
                await store.commit(writes)
            assert told.value.cause.startswith("SQLITE_FULL")
            assert not told.value.unknown
            assert not store._writer.in_transaction
        assert await store.rows(1, after=2, limit=9) == []
        await store._writer.execute_fetchall("PRAGMA max_page_count = 1000000")
        assert await store.commit([big, scribe.first(3)]) == ["written", "written"]


async def test_a_locked_database_is_a_failed_store(path, scribe, opened):
    """A foreign tool that holds the write lock: the turn isn't recorded, the next one is."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        await store._writer.execute_fetchall("PRAGMA busy_timeout = 0")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
            tool.execute("BEGIN IMMEDIATE")
            for writes in ([scribe.turn(1, 3)], [scribe.first(2)]):
                with pytest.raises(StoreFailed) as told:
                    await store.commit(writes)
                assert told.value.cause.startswith("SQLITE_BUSY")
                assert not told.value.unknown
            tool.execute("ROLLBACK")
        assert await store.commit([scribe.turn(1, 3), scribe.first(2)]) == ["written"] * 2


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("SQLITE_IOERR_FSYNC", True),
        ("SQLITE_IOERR_WRITE", True),
        ("SQLITE_IOERR", True),
        ("SQLITE_FULL", False),
        ("SQLITE_BUSY", False),
        ("SQLITE_READONLY", False),
        ("SQLITE_CORRUPT", False),
    ],
)
def test_only_an_io_error_at_the_commit_leaves_the_outcome_unknown(name, unknown):
    """Before the commit, and for every other refusal, nothing was written."""
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorname = name
    assert connection.failure(error, committing=True).unknown is unknown
    assert connection.failure(error).unknown is False
    assert connection.failure(error).cause == f"{name}: as SQLite says it"


async def test_a_failed_commit_says_that_its_outcome_is_unknown(path, scribe, monkeypatch, opened):
    """An I/O error at COMMIT, or at the statement that is its own transaction, is unknown."""
    execute = aiosqlite.Connection.execute_fetchall
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorname = "SQLITE_IOERR_FSYNC"

    def breaking(self, sql, parameters=None):
        if sql.lstrip().startswith(("COMMIT", "INSERT INTO main.messages")):
            raise broken
        return execute(self, sql, parameters)

    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
        with monkeypatch.context() as patch:
            patch.setattr(aiosqlite.Connection, "execute_fetchall", breaking)
            for writes in ([scribe.turn(1, 3)], [scribe.snapshot(1, 2, 0)]):
                with pytest.raises(StoreFailed) as told:
                    await store.commit(writes)
                assert told.value.unknown
        assert not store._writer.in_transaction
        assert await store.commit([scribe.turn(1, 3), scribe.snapshot(1, 2, 0)]) == ["written"] * 2


async def test_a_damaged_page_is_a_failed_store(path, scribe, opened):
    """Neither an empty history nor a crash."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(ref) for ref in range(1, 200)])
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4_096)
        file.write(b"\xff" * (size - 4_096))
    with pytest.raises(StoreFailed):
        await SqliteStore(path).look()


async def test_errors_show_neither_ids_nor_content(path, scribe, opened):
    """A failed store's words are SQLite's own, and hold no value."""
    async with opened(path, scribe) as store:
        first = scribe.first(1)
        await store.commit([first])
        await store._writer.execute_fetchall("PRAGMA query_only = ON")
        with pytest.raises(StoreFailed) as told:
            await store.commit([scribe.turn(1, 3, "a delivery")])
        shown = f"{told.value!r} {told.value.__cause__!r} {store!r}"
        assert told.value.cause.startswith("SQLITE_READONLY")
        assert "delivery'" not in shown
        assert first.visitor.sealed.hex() not in shown
        await store._writer.execute_fetchall("PRAGMA query_only = OFF")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("how", ["renamed", "removed", "replaced"])
async def test_a_database_that_vanishes_takes_no_turn(tmp_path, scribe, opened, how, apart):
    """A folder that goes while the store is open: no write is taken that nobody would find."""
    folder, away = tmp_path / "data", tmp_path / "away"
    folder.mkdir()
    keys = folder / "memory.keys" if apart else None
    async with opened(folder / "memory.db", scribe, keys=keys) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
        if how == "renamed":
            folder.rename(away)
        else:
            shutil.rmtree(folder)
        if how == "replaced":
            folder.mkdir()
            async with opened(folder / "memory.db", scribe, keys=keys):
                pass
        for call in (lambda: store.commit([scribe.turn(1, 3)]), store.renew):
            with pytest.raises(StoreFailed, match="not where it was") as told:
                await call()
            assert not told.value.unknown
        with pytest.raises(StoreFailed, match="not where it was"):
            await store.forget(1)
        if how == "renamed":
            away.rename(folder)
            assert await store.commit([scribe.turn(1, 3)]) == ["written"]
            assert (await store.forget(1)).messages == 4


UNPRIVILEGED = """
import asyncio, os, sys
from interturn.storage import Root, SqliteStore, StoreFailed, this_owner
if os.geteuid() == 0:  # who may write whatever its mode says
    os.setgid(65534)
    os.setuid(65534)
path, key_id, wrapped = sys.argv[1:]
root = Root(key_id, bytes.fromhex(wrapped))

async def main():
    store = SqliteStore(path)
    try:
        await store.open(root, owner=this_owner(), lease_s=60.0)
    except StoreFailed as error:
        print("failed", error.unknown)
    reader = SqliteStore(path)
    print(await reader.open_read_only() == root, len(await reader.rows(1, after=0, limit=9)))
    await reader.close()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("closed", ["file", "folder"])
async def test_what_cannot_be_written_can_be_read(scribe, closed, opened):
    """A read-only file or folder: opening fails, reading works, nothing changes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "memory.db"
        async with opened(path, scribe) as store:
            await store.commit([scribe.first(1)])
        path.chmod(0o444)
        os.chmod(folder, 0o777 if closed == "file" else 0o555)  # noqa: PTH101 - the case
        content = path.read_bytes()
        done = subprocess.run(  # noqa: ASYNC221, S603 - a test may block; its own program
            [
                sys.executable,
                "-c",
                UNPRIVILEGED,
                path,
                scribe.root.key_id,
                scribe.root.wrapped.hex(),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - the case
        assert done.stdout == "failed False\nTrue 2\n", done.stderr
        assert path.read_bytes() == content


@pytest.mark.parametrize("apart", [False, True])
async def test_a_check_tells_what_is_wrong_by_number(tmp_path, scribe, apart, opened, edit):
    """Nothing in a sound database; a lost key, a lost session and a lost index entry by place."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
        assert await store.check() == []
    edit(
        keys or path, "DELETE FROM customer_keys WHERE hash = (SELECT min(hash) FROM customer_keys)"
    )
    edit(path, "DELETE FROM sessions WHERE ref = 2")
    async with opened(path, scribe, keys=keys) as store:
        problems = await store.check()
    assert "messages row 3 has no sessions" in problems
    assert any(problem.endswith("has no key") for problem in problems)
