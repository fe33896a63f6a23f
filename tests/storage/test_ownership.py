"""One owner for each database, across real processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from unittest.mock import Mock

import pytest

from interturn.storage import Fenced, SqliteStore, StoreFailed, StoreOwned, this_owner
from interturn.storage.lease import LockFile

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="signals and locks are POSIX's"),
]

HOUR_S = 3_600.0

PROCESS = """
import asyncio, sys
from interturn.storage import Root, SqliteStore, StorageError, WriteTurn, Row, SessionRow
from interturn.storage import CustomerRow, this_owner
path, key_id, wrapped, owner = sys.argv[1:]

async def main():
    store = SqliteStore(path)
    async def say(line):
        try:
            match line.split():
                case ["open"]:
                    await store.open(
                        Root(key_id, bytes.fromhex(wrapped)),
                        owner=owner or this_owner(), lease_s=3600.0)
                case ["first"]:
                    await store.commit([WriteTurn(
                        1, Row(1, 0, 1, b"v"), Row(2, 1, 1, b"a"),
                        SessionRow(1, b"s" * 16, 1, b"n", b"w"),
                        CustomerRow(1, b"c" * 16, b"n", "k", b"w"))])
                case ["turn", seq]:
                    await store.commit(
                        [WriteTurn(1, Row(int(seq), 0, 1, b"v"), Row(int(seq) + 1, 1, 1, b"a"))])
                case ["renew"]:
                    await store.renew()
                case ["close"]:
                    await store.close()
        except StorageError as error:
            return type(error).__name__
        return "done"
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(await say(line), flush=True)

asyncio.run(main())
"""


class Process:
    """Another process with a store on the same file."""

    def __init__(self, path, scribe, owner=""):
        self._process = subprocess.Popen(  # noqa: S603 - its own program
            [
                sys.executable,
                "-c",
                PROCESS,
                path,
                scribe.root.key_id,
                scribe.root.wrapped.hex(),
                owner,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.pid = self._process.pid

    def say(self, *lines):
        """Have it do something, and return what came of the last."""
        for line in lines:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        return answer

    def signal(self, number):
        """Send it a signal; if it dies of it, wait until it has."""
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def end(self):
        """Make sure that it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def process(path, scribe):
    """Return a maker of other processes; they are gone when the test is."""
    with contextlib.ExitStack() as stack:

        def make(owner=""):
            made = Process(path, scribe, owner)
            stack.callback(made.end)
            return made

        yield make


def expire(path):
    """Make the lease look as if its owner had said nothing for long."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute("UPDATE lease SET renewed = 0")


async def open_here(path, scribe, owner=None):
    store = SqliteStore(path)
    await store.open(scribe.root, owner=owner or this_owner(), lease_s=HOUR_S)
    return store


async def test_a_second_process_is_refused_with_the_owners_name(files, path, scribe, process):
    """At the look and at the open, with every byte of the files as it was."""
    owner = process()
    assert owner.say("open", "first") == "done"
    before = files.bytes()
    assert {"memory.db-wal", "memory.db-shm"} < set(before)
    for attempt in (SqliteStore(path).look(), open_here(path, scribe)):
        with pytest.raises(StoreOwned) as refusal:
            await attempt
        assert refusal.value.owner.endswith(f"/{owner.pid}")
        assert refusal.value.since is not None
    assert files.bytes() == before
    assert owner.say("turn 3") == "done"


async def test_a_killed_owner_is_taken_over_at_once(files, path, scribe, process):
    """Its lock died with it: nobody waits for the lease, and what it committed is there."""
    owner = process()
    assert owner.say("open", "first", "turn 3") == "done"
    owner.signal(signal.SIGKILL)
    before = files.bytes()
    assert "memory.db-wal" in before
    assert await SqliteStore(path).look() == scribe.root
    assert files.bytes() == before
    store = await open_here(path, scribe)
    assert [row.seq for row in await store.rows(1, after=0, limit=9)] == [1, 2, 3, 4]
    assert await store.commit([scribe.turn(1, 5)]) == ["written"]
    await store.close()


async def test_a_log_whose_index_was_lost_is_looked_at_untouched(files, path, scribe, process):
    """A copy of database and log alone: the look changes nothing, the open recovers all."""
    owner = process()
    owner.say("open", "first", "turn 3")
    owner.signal(signal.SIGKILL)
    (path.parent / "memory.db-shm").unlink()
    before = files.bytes()
    assert await SqliteStore(path).look() == scribe.root
    assert files.bytes() == before
    store = await open_here(path, scribe)
    assert len(await store.rows(1, after=0, limit=9)) == 4
    await store.close()


async def test_a_stopped_owner_is_taken_over_when_its_lease_expires_and_fenced(
    path, scribe, process
):
    """Alive and holding the lock, but silent: the epoch decides, and its writes are refused."""
    owner = process()
    owner.say("open", "first")
    owner.signal(signal.SIGSTOP)
    with pytest.raises(StoreOwned):
        await SqliteStore(path).look()
    expire(path)
    assert await SqliteStore(path).look() == scribe.root
    store = await open_here(path, scribe)
    assert not store._lock.held
    owner.signal(signal.SIGCONT)
    assert owner.say("turn 3") == "Fenced"
    assert owner.say("renew") == "Fenced"
    assert await store.commit([scribe.turn(1, 3)]) == ["written"]
    assert owner.say("close") == "done"
    await store.renew()
    assert store._lock.held
    assert process().say("open") == "StoreOwned"
    await store.close()


async def test_an_owner_without_the_lock_is_not_dead(path, scribe, process):
    """Taken over from a stopped process that then dies: its free lock proves nothing of ours."""
    owner = process()
    owner.say("open", "first")
    owner.signal(signal.SIGSTOP)
    expire(path)
    store = await open_here(path, scribe)
    owner.signal(signal.SIGKILL)
    assert process().say("open") == "StoreOwned"
    await store.renew()
    assert process().say("open") == "StoreOwned"
    await store.close()
    assert process().say("open") == "done"


async def test_a_dead_owner_on_another_host_keeps_its_lease(path, scribe, process):
    """Its lock may be out of our sight: only the lease's end frees the database."""
    owner = process("elsewhere/7")
    owner.say("open", "first")
    owner.signal(signal.SIGKILL)
    for attempt in (SqliteStore(path).look(), open_here(path, scribe)):
        with pytest.raises(StoreOwned) as refusal:
            await attempt
        assert refusal.value.owner == "elsewhere/7"
    expire(path)
    store = await open_here(path, scribe)
    await store.close()


async def test_two_stores_of_one_process_refuse_each_other(path, scribe):
    """The lock is the store's, not the process's; and the refusal harms the first in nothing."""
    first = await open_here(path, scribe)
    await first.commit([scribe.first(1)])
    for attempt in (SqliteStore(path).look(), open_here(path, scribe), first.look()):
        with pytest.raises(StoreOwned) as refusal:
            await attempt
        assert refusal.value.owner == this_owner()
    assert await first.commit([scribe.turn(1, 3)]) == ["written"]
    await first.close()
    second = await open_here(path, scribe)
    await second.close()


async def test_of_processes_that_open_at_once_one_wins(path, scribe, process):
    """The database is made once, by one; the others are refused."""
    racers = [process() for _ in range(4)]
    for racer in racers:
        racer._process.stdin.write("open\n")
    for racer in racers:
        racer._process.stdin.flush()
    answers = [racer._process.stdout.readline().strip() for racer in racers]
    assert sorted(answers) == ["StoreOwned"] * 3 + ["done"]
    winner = racers[answers.index("done")]
    assert winner.say("first", "turn 3") == "done"


async def test_a_database_that_is_being_made_is_owned(path, scribe):
    """Half made it looks like no database of ours; while the lock is held, it is its maker's."""
    with contextlib.closing(sqlite3.connect(path)) as tool:
        tool.execute("CREATE TABLE half (made)")
    maker = LockFile(path.with_name("memory.db-lock"))
    assert maker.take() == "free"
    for attempt in (SqliteStore(path).look(), open_here(path, scribe)):
        with pytest.raises(StoreOwned):
            await attempt
    maker.release()
    with pytest.raises(StoreFailed):
        await SqliteStore(path).look()


async def test_a_killed_writer_loses_nothing_that_it_acknowledged(path, scribe, process):
    """Killed again and again between its answers: every acknowledged turn is there, none twice."""
    seq = 1
    for _ in range(5):
        writer = process()
        assert writer.say("open") == "done"
        if seq == 1:
            writer.say("first")
            seq += 2
        for _ in range(5):
            assert writer.say(f"turn {seq}") == "done"
            seq += 2
        writer._process.stdin.write(f"turn {seq}\n")
        writer._process.stdin.flush()
        writer.signal(signal.SIGKILL)
        store = await open_here(path, scribe)
        found = [row.seq for row in await store.rows(1, after=0, limit=999)]
        await store.close()
        assert found in (list(range(1, seq)), list(range(1, seq + 2)))
        seq = len(found) + 1


UNCLOSED = """
import asyncio, sys
from interturn.storage import Root, SqliteStore, this_owner

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open(Root("k", b"w"), owner=this_owner(), lease_s=3600.0)
    return store

store = asyncio.run(main())
print("the main thread is done", flush=True)
"""


def test_a_process_that_never_closes_still_exits(path):
    """It warns, and ends by itself; its database is free at once."""
    done = subprocess.run(  # noqa: S603 - its own program
        [sys.executable, "-W", "always::ResourceWarning", "-c", UNCLOSED, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == "the main thread is done\n"
    assert "never closed" in done.stderr
    assert "Traceback" not in done.stderr


async def test_what_an_unclosed_process_left_is_taken_over(path):
    """Its lock died with it."""
    test_a_process_that_never_closes_still_exits(path)
    assert await SqliteStore(path).look() is not None


async def test_a_fenced_store_leaves_the_new_owner_alone_when_it_closes(path, scribe):
    """Closing gives back one's own lease and nobody else's."""
    stale = SqliteStore(path)
    await stale.open(scribe.root, owner=this_owner(), lease_s=0.0)
    fresh = await open_here(path, scribe)
    with pytest.raises(Fenced):
        await stale.commit([scribe.first(1)])
    await stale.close()
    await fresh.renew()
    assert fresh._lock.held
    assert await fresh.commit([scribe.first(1)]) == ["written"]
    await fresh.close()


@pytest.mark.parametrize("missing", ["module", "support"])
async def test_where_locks_do_not_work_the_lease_alone_decides(
    path, scribe, process, monkeypatch, missing
):
    """A dead owner's lease is waited for, since nothing tells that it is dead."""
    if missing == "module":
        monkeypatch.setattr("interturn.storage.lease._flock", None)
    else:
        # A file system that knows no locks, which can't be mounted for a test.
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    owner = process()
    owner.say("open", "first")
    owner.signal(signal.SIGKILL)
    with pytest.raises(StoreOwned):
        await SqliteStore(path).look()
    expire(path)
    store = await open_here(path, scribe)
    with pytest.raises(StoreOwned):
        await SqliteStore(path).look()
    assert await store.commit([scribe.turn(1, 3)]) == ["written"]
    await store.close()
