"""What the SQLite store promises beyond the contract: files, failures, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import aiosqlite
import msgspec
import pytest

from interturn.storage import (
    Keyring,
    Known,
    SchemaTooNew,
    SqliteStore,
    StoreFailed,
    WrongKey,
    connection,
    customer_key_place,
    schema,
    this_owner,
)

pytestmark = pytest.mark.anyio

MINUTE_S = 60.0


@contextlib.asynccontextmanager
async def opened(path, scribe, **options):
    """Give an open store, and close it."""
    store = SqliteStore(path, **options)
    await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    try:
        yield store
    finally:
        await store.close()


def edit(path, *statements):
    """Change a database as a foreign tool would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        for statement in statements:
            tool.execute(statement)


def size(path):
    """Return the bytes of a file, 0 if there is none."""
    return Path(path).stat().st_size if Path(path).exists() else 0


def everything(path):
    """Return all rows of all tables of a database."""
    with contextlib.closing(sqlite3.connect(path)) as tool:
        tables = [
            name for (name,) in tool.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: tool.execute(f"SELECT * FROM {name}").fetchall() for name in tables}  # noqa: S608 - names and hashes of our own


# Looking, and refusing to open.


async def test_looking_at_nothing_makes_nothing(files, path):
    """A missing file, a missing folder and an empty file are all no database yet."""
    assert await SqliteStore(path).look() is None
    assert await SqliteStore(path.parent / "no" / "folder.db").look() is None
    path.touch()
    assert await SqliteStore(path).look() is None
    assert files.bytes() == {"memory.db": b""}


async def test_looking_at_a_closed_database_touches_nothing(files, path, scribe):
    """Every byte stays, and no file appears."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
    before = files.bytes()
    assert set(before) == {"memory.db", "memory.db-lock"}
    assert await SqliteStore(path).look() == scribe.root
    assert files.bytes() == before


@pytest.mark.parametrize("spoil", ["junk", "short", "foreign", "newer", "folder"])
async def test_what_is_not_ours_is_refused_untouched(files, path, scribe, spoil):
    """No database, somebody else's, or a newer one: a clear error, and every byte stays."""
    error = StoreFailed
    match spoil:
        case "junk":
            path.write_bytes(os.urandom(5_000))
        case "short":
            path.write_bytes(b"not a database")
        case "foreign":
            edit(path, "CREATE TABLE notes (words)")
        case "newer":
            async with opened(path, scribe):
                pass
            edit(path, "PRAGMA user_version = 99", "PRAGMA wal_checkpoint(TRUNCATE)")
            error = SchemaTooNew
        case _:
            path.mkdir()
            (path / "memory.db").touch()
    before = files.bytes() if spoil != "folder" else None
    for attempt in (
        SqliteStore(path).look(),
        SqliteStore(path).open(scribe.root, owner=this_owner(), lease_s=MINUTE_S),
        SqliteStore(path).open_read_only(),
    ):
        with pytest.raises(error):
            await attempt
    if before is not None:
        assert files.bytes() == before


async def test_a_newer_schema_says_both_versions(path, scribe):
    """The one that was found, and the newest that is known."""
    async with opened(path, scribe):
        pass
    edit(path, "PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew) as told:
        await SqliteStore(path).look()
    assert (told.value.found, told.value.known) == (99, schema.VERSION)


async def test_a_missing_folder_is_a_failed_store(path, scribe):
    """Opening says so, and makes no folder."""
    store = SqliteStore(path.parent / "no" / "memory.db")
    with pytest.raises(StoreFailed, match="No such file or directory"):
        await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    await store.close()
    assert not (path.parent / "no").exists()


@pytest.mark.parametrize("cut", ["after journal_mode", "before anything"])
async def test_a_creation_that_was_cut_short_is_no_database(path, scribe, cut):
    """A file with no tables is what a crash leaves, and the next open fills it."""
    if cut == "after journal_mode":
        edit(path, "PRAGMA journal_mode = WAL")
        assert path.stat().st_size
    else:
        path.touch()
    assert await SqliteStore(path).look() is None
    async with opened(path, scribe) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]


def test_a_store_that_makes_no_sense_is_refused(path):
    """A durability that isn't one, and keys in the very file that they are to be apart from."""
    with pytest.raises(ValueError, match="'fast'"):
        SqliteStore(path, durability="fast")
    with pytest.raises(ValueError, match="own"):
        SqliteStore(path, keys=path)


async def test_an_old_sqlite_is_refused_by_version(path, files, scribe, monkeypatch):
    """The one that is needed and the one that is here are named; no file is made."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreFailed, match=r"3\.37\.0 is needed"):
        await SqliteStore(path).open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    assert files.bytes() == {}


@pytest.mark.parametrize("name", ["¿dónde? #1 100%.db", "a&b=c;mode=memory.db", "'; --.db"])
async def test_any_name_of_a_file_is_that_files_name(tmp_path, scribe, name):
    """Characters that mean something in an address are part of the name."""
    keys = f"keys of {name}"
    async with opened(tmp_path / name, scribe, keys=tmp_path / keys) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]
        assert len(await store.rows(1, after=0, limit=9)) == 2
    assert await SqliteStore(tmp_path / name, keys=tmp_path / keys).look() == scribe.root
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-lock", keys}


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
async def test_the_database_is_set_up_as_promised(path, scribe, durability, level):
    """A write-ahead log of bounded size, synced as asked; foreign keys; deleted bytes zeroed."""
    async with opened(path, scribe, durability=durability) as store:
        told = {
            name: (await store._writer.execute_fetchall(f"PRAGMA {name}"))[0][0]
            for name in (
                "journal_mode",
                "synchronous",
                "foreign_keys",
                "secure_delete",
                "journal_size_limit",
                "application_id",
            )
        }
        [(busy_ms,)] = await store._writer.execute_fetchall("PRAGMA busy_timeout")
    assert told == {
        "journal_mode": "wal",
        "synchronous": level,
        "foreign_keys": 1,
        "secure_delete": 1,
        "journal_size_limit": 64 * 1024 * 1024,
        "application_id": schema.APPLICATION_ID,
    }
    assert 0 < busy_ms <= 10_000


async def test_a_database_of_a_past_version_is_brought_up_to_date(path, scribe, monkeypatch):
    """A forward step runs once, in the transaction that takes the lease; readers wait for it."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, ("CREATE TABLE more (n INTEGER) STRICT",)))
    monkeypatch.setattr(schema, "VERSION", 2)
    with pytest.raises(StoreFailed, match="older schema"):
        await SqliteStore(path).open_read_only()
    async with opened(path, scribe) as store:
        assert await store.commit([scribe.turn(1, 3)]) == ["written"]
    async with opened(path, scribe):
        pass
    assert everything(path)["more"] == []
    with contextlib.closing(sqlite3.connect(path)) as tool:
        assert tool.execute("PRAGMA user_version").fetchone() == (2,)


# Batches.


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
async def test_a_batch_of_turns_is_one_call(path, scribe, crossings, size):
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


async def test_new_sessions_and_snapshots_cost_a_few_calls(path, scribe, crossings):
    """However many: BEGIN, one statement for each kind, COMMIT."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(ref) for ref in range(1, 201)])
        crossings.clear()
        writes = [scribe.snapshot(ref, 2, 0) for ref in range(1, 201)]
        writes += [scribe.first(ref) for ref in range(201, 401)]
        assert await store.commit(writes) == ["written"] * 400
        assert crossings == {store._writer: 7}


async def test_big_batches_are_written_whole(path, scribe):
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


async def test_rows_rest_in_the_order_in_which_they_came(path, scribe):
    """The visitor's row, then the agent's, turn after turn."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(2), scribe.first(1)])
        await store.commit([scribe.turn(1, 3), scribe.turn(2, 3), scribe.turn(1, 5)])
    order = [(row[1], row[2]) for row in everything(path)["messages"]]
    assert order == [
        *[(2, 1), (2, 2), (1, 1), (1, 2)],
        *[(1, 3), (1, 4), (2, 3), (2, 4), (1, 5), (1, 6)],
    ]


def test_the_tables_refuse_what_no_turn_writes(path, scribe):
    """Gaps, doubles and roles on the wrong side are refused whoever writes."""

    async def make():
        async with opened(path, scribe) as store:
            await store.commit([scribe.first(1)])

    asyncio.run(make())
    insert = "INSERT INTO messages (session, seq, role, at, sealed) VALUES"
    for values in ("(1, 4, 1, 0, x'00')", "(1, 2, 1, 0, x'00')", "(1, 3, 1, 0, x'00')"):
        with pytest.raises(sqlite3.IntegrityError):
            edit(path, f"{insert} {values}")


# Failures.


async def test_a_full_disk_fails_the_write_and_no_later_one(path, scribe):
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


async def test_a_locked_database_is_a_failed_store(path, scribe):
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


async def test_a_failed_commit_says_that_its_outcome_is_unknown(path, scribe, monkeypatch):
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


async def test_a_damaged_page_is_a_failed_store(path, scribe):
    """Neither an empty history nor a crash."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(ref) for ref in range(1, 200)])
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4_096)
        file.write(b"\xff" * (size - 4_096))
    with pytest.raises(StoreFailed):
        await SqliteStore(path).look()


async def test_errors_show_neither_ids_nor_content(path, scribe):
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
async def test_what_cannot_be_written_can_be_read(scribe, closed):
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
async def test_a_check_tells_what_is_wrong_by_number(tmp_path, scribe, apart):
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


# Growth.


async def test_the_log_does_not_grow_for_ever(path, scribe):
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


async def test_a_foreign_reader_does_not_stop_writes(path, scribe):
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


async def test_what_is_deleted_is_not_in_the_files(files, path, scribe):
    """A replaced snapshot's bytes are nowhere once the log is emptied."""
    old, new = scribe.snapshot(1, 2, 0), scribe.snapshot(1, 2, 1)
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1), old])
        await store.commit([new])
    content = b"".join(files.bytes().values())
    assert new.snapshot in content
    assert old.snapshot not in content


# Cancellation and closing.


class CancelledAt:
    """Runs a coroutine and cancels it where it waits for the nth time."""

    def __init__(self, coroutine, nth):
        self.coroutine, self.nth = coroutine, nth

    def __await__(self):
        waits = 0
        running = self.coroutine.__await__()
        try:
            future = running.send(None)
            while True:
                waits += 1
                if waits == self.nth:
                    if future is not None:
                        future._asyncio_future_blocking = False
                        future.cancel()
                    future = running.throw(asyncio.CancelledError())
                    continue
                try:
                    yield future
                except BaseException as error:  # noqa: BLE001 - passed on to whom it is for
                    future = running.throw(error)
                else:
                    future = running.send(None)
        except StopIteration as done:
            return done.value


def database_threads():
    """Return the threads of connections, after giving each that was stopped time to end."""
    threads = [thread for thread in threading.enumerate() if "_connection_worker" in thread.name]
    for thread in threads:
        thread._started.wait(timeout=10)
        thread.join(timeout=10)
    return [thread for thread in threads if thread.is_alive()]


@pytest.mark.parametrize("apart", [False, True])
async def test_an_opening_that_is_cancelled_anywhere_leaves_nothing_open(tmp_path, scribe, apart):
    """Every connection is stopped, the lock is free, and the next open succeeds at once."""
    for made_before in (False, True):
        for nth in range(1, 200):
            folder = tmp_path / f"{made_before}-{nth}"
            folder.mkdir()
            path, keys = folder / "memory.db", folder / "memory.keys" if apart else None
            if made_before:
                async with opened(path, scribe, keys=keys):
                    pass
            store = SqliteStore(path, keys=keys)
            opening = store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
            try:
                await CancelledAt(opening, nth)
            except asyncio.CancelledError:
                assert await asyncio.to_thread(database_threads) == []
                async with opened(path, scribe, keys=keys) as again:
                    assert await again.commit([scribe.first(1)]) == ["written"]
            else:
                await store.close()
                break
        else:
            pytest.fail("opening never came to its end")
        assert nth > 15


async def test_a_commit_that_is_cancelled_is_whole(path, scribe):
    """Whoever waited is gone; the batch lands, no transaction stays open, the next is written."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        for seq in (3, 5, 7):
            with pytest.raises(asyncio.CancelledError):
                await CancelledAt(
                    store.commit(
                        [scribe.turn(1, seq), scribe.first(seq), scribe.snapshot(1, 2, 0)]
                    ),
                    1,
                )
        assert await store.commit([scribe.turn(1, 9)]) == ["written"]
        assert not store._writer.in_transaction
        assert len(await store.rows(1, after=0, limit=99)) == 10


async def test_closing_ends_every_thread(path, scribe):
    """Also when it is cancelled, called twice, or called on what never opened."""
    await SqliteStore(path).close()
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    with pytest.raises(asyncio.CancelledError):
        await CancelledAt(store.close(), 1)
    await store.close()
    assert await asyncio.to_thread(database_threads) == []
    assert not store._lock.held


@pytest.mark.parametrize("lost", ["writer", "reader"])
async def test_closing_goes_on_past_a_broken_connection(path, scribe, lost):
    """Whatever state a connection is in, the other is closed and the lock is free."""
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    await getattr(store, f"_{lost}").close()
    if lost == "reader":
        with pytest.raises(StoreFailed, match="closed"):
            await store.rows(1, after=0, limit=1)
    await store.close()
    assert await asyncio.to_thread(database_threads) == []
    async with opened(path, scribe):
        pass


# Keys in a file of their own.


async def test_keys_rest_apart(tmp_path, scribe):
    """No wrapped key is in the database, every one is in the keys file."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    firsts = [scribe.first(ref) for ref in range(1, 30)]
    async with opened(path, scribe, keys=keys) as store:
        await store.commit(firsts)
    data, apart = path.read_bytes(), keys.read_bytes()
    for first in firsts:
        assert first.new_customer.wrapped not in data
        assert first.new_customer.wrapped in apart
        assert first.new_customer.name not in apart


async def test_a_new_key_is_durable_before_what_is_sealed_with_it(tmp_path, scribe):
    """The keys file is committed before the database is written to."""
    statements = []
    async with opened(tmp_path / "memory.db", scribe, keys=tmp_path / "memory.keys") as store:
        await store._writer.set_trace_callback(statements.append)
        await store.commit([scribe.first(1)])
        await store._writer.set_trace_callback(None)
    heads = [" ".join(statement.split()[:3]) for statement in statements]
    key = heads.index("INSERT INTO keys.customer_keys")
    assert heads[key + 1] == "COMMIT"
    assert key + 1 < heads.index("INSERT INTO main.customers")


async def test_a_database_without_its_keys_file_is_refused_untouched(tmp_path, files, scribe):
    """Not named, missing, emptied, or another's: a clear error, and every byte stays."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1)])
    async with opened(tmp_path / "other.db", scribe, keys=tmp_path / "other.keys") as store:
        await store.commit([scribe.first(1)])
    async with opened(tmp_path / "inside.db", scribe):
        pass
    (tmp_path / "empty.keys").touch()
    before = files.bytes()
    for database, named in (
        (path, None),
        (path, tmp_path / "missing.keys"),
        (path, tmp_path / "empty.keys"),
        (path, tmp_path / "other.keys"),
        (path, tmp_path / "inside.db"),
        (tmp_path / "inside.db", keys),
        (tmp_path / "new.db", keys),
    ):
        store = SqliteStore(database, keys=named)
        with pytest.raises(StoreFailed, match="key"):
            await store.look()
        with pytest.raises(StoreFailed, match="key"):
            await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
        with pytest.raises(StoreFailed, match="key"):
            await store.open_read_only()
    assert files.bytes() == before


async def test_a_keys_file_left_alone_by_a_crash_is_taken(tmp_path, scribe):
    """A pair of which only the empty keys file was made is made again."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    async with opened(path, scribe, keys=keys):
        pass
    path.unlink()
    assert await SqliteStore(path, keys=keys).look() is None
    async with opened(path, scribe, keys=keys) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]
    async with opened(path, scribe, keys=keys) as store:
        assert (await store.customers(after=0, limit=1))[0].key_id == "a master key"


async def test_a_key_whose_commit_failed_is_replaced(tmp_path, scribe):
    """What a failed write left in the keys file never stands for the customer who comes later."""
    async with opened(tmp_path / "memory.db", scribe, keys=tmp_path / "memory.keys") as store:
        [(pages,)] = await store._writer.execute_fetchall("PRAGMA main.page_count")
        await store._writer.execute_fetchall(f"PRAGMA main.max_page_count = {pages}")
        big = scribe.first(1)
        big = msgspec.structs.replace(
            big, visitor=msgspec.structs.replace(big.visitor, sealed=os.urandom(100_000))
        )
        with pytest.raises(StoreFailed):
            await store.commit([big])
        await store._writer.execute_fetchall("PRAGMA main.max_page_count = 1000000")
        again = scribe.first(1)
        assert again.new_customer.wrapped != big.new_customer.wrapped
        assert await store.commit([again]) == ["written"]
        assert await store.load_customer(again.new_customer.hash) == again.new_customer


@pytest.mark.parametrize("apart", [False, True])
async def test_a_lost_key_is_wrong_key_and_not_an_empty_history(tmp_path, scribe, apart):
    """The session is there with its rows; unwrapping fails, and for this customer only."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
    lost = scribe.hasher.customer("c1")
    edit(keys or path, f"DELETE FROM customer_keys WHERE hash = x'{lost.hex()}'")  # noqa: S608 - names and hashes of our own
    async with opened(path, scribe, keys=keys) as store:
        loaded = await store.load_session(scribe.hasher.session("s1"), recent=9)
        assert len(loaded.rows) == 2
        with pytest.raises(WrongKey):
            Keyring.generate().unwrap(
                loaded.customer.key_id,
                loaded.customer.wrapped,
                customer_key_place(lost),
                table="customers",
                where="1",
            )
        found = await store.customers(after=0, limit=9)
        assert [customer.key_id for customer in found] == ["lost", "a master key"]


# Reading beside an owner.


@pytest.mark.parametrize("apart", [False, True])
async def test_a_reader_beside_an_owner_sees_every_commit_and_writes_nothing(
    tmp_path, scribe, apart
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


async def test_a_reader_does_not_keep_an_owner_out(path, scribe):
    """While it is open, a database changes hands, and it goes on reading."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
    reader = SqliteStore(path)
    assert await reader.open_read_only() == scribe.root
    async with opened(path, scribe) as store:
        await store.commit([scribe.turn(1, 3)])
        assert len(await reader.rows(1, after=0, limit=9)) == 4
    await reader.close()
