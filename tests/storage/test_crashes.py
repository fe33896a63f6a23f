"""Killed at every step of an erasure, or of finishing it: the next open ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from interturn.storage import CustomerRow, Root, SqliteStore, this_owner

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed by forking"),
]

KILLED = 77

# Forks before any thread is started, once for each statement, so that the cost of
# importing is paid once. A dead process leaves its files as SIGKILL would.
PROGRAM = """
import asyncio, os, shutil, sys
import aiosqlite
from interturn.storage import Adoption, Prune, Root, SqliteStore, StorageError, this_owner

folder, apart, key_id, wrapped, what = sys.argv[1:]
execute = aiosqlite.Connection.execute_fetchall
left = 1 << 30

def dying(self, sql, parameters=None):
    global left
    left -= 1
    if left == 0:
        os._exit(77)
    return execute(self, sql, parameters)

aiosqlite.Connection.execute_fetchall = dying

async def play(name, nth):
    global left
    store = SqliteStore(f"{name}/memory.db", keys=f"{name}/memory.keys" if int(apart) else None)
    if what == "open":
        left = nth
    await store.open(Root(key_id, bytes.fromhex(wrapped)), owner=this_owner(), lease_s=3600.0)
    if what != "open":
        left = nth
    match what:
        case "forget":
            await store.forget(1)
        case "delete":
            await store.delete_session(1)
        case "adopt":
            moved = [(1, b"w1" * 31), (2, b"w2" * 31)]
            await store.adopt(Adoption(sessions=moved, customer=3, leaving=1))
        case "prune":
            await store.prune([Prune(1, 8, None, b"mark" * 16)])
            await store.shrink()
    left = 1 << 30
    os._exit(0)

for nth in range(1, 200):
    name = f"{folder}/{nth}"
    shutil.copytree(f"{folder}/before", name)
    child = os.fork()
    if not child:
        asyncio.run(play(name, nth))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 77:
        break
print(nth, code)
"""


class Scene:
    """Two customers, of whom one is to go, in a folder that is copied for every death."""

    def __init__(self, folder, scribe, *, apart):
        self.folder, self.root, self.apart = folder, scribe.root, apart
        self.hasher = scribe.hasher
        self.firsts = [
            scribe.first(1),
            scribe.first(2, customer=1),
            scribe.first(3, customer=3),
        ]
        self.snapshot, self.facts = scribe.snapshot(1, 2, 0), scribe.facts(1, 0)
        # The second session brings no customer of its own.
        self.leaving = self.firsts[0].new_customer

    def store(self, name):
        place = self.folder / name
        keys = place / "memory.keys" if self.apart else None
        return SqliteStore(place / "memory.db", keys=keys)

    async def make(self):
        (self.folder / "before").mkdir()
        store = self.store("before")
        await store.open(self.root, owner=this_owner(), lease_s=3_600.0)
        for write in (*self.firsts, self.snapshot, self.facts):
            assert await store.commit([write]) == ["written"]
        await store.close()

    def die(self, what, *, start="before"):
        """Do it in processes that are killed before their nth statement; return the last n."""
        if start != "before":
            for number in self.numbers():
                if str(number) != start:
                    shutil.rmtree(self.folder / str(number))
            shutil.rmtree(self.folder / "before")
            (self.folder / start).rename(self.folder / "before")
        done = subprocess.run(  # noqa: S603 - its own program
            [
                sys.executable,
                "-c",
                PROGRAM,
                str(self.folder),
                str(int(self.apart)),
                self.root.key_id,
                self.root.wrapped.hex(),
                what,
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        number, code = map(int, done.stdout.split())
        assert code == 0, done.stderr
        return number

    def numbers(self):
        return sorted(int(place.name) for place in self.folder.iterdir() if place.name != "before")

    def secrets(self, *sessions):
        """Return the sealed bytes of sessions."""
        found = []
        for first in self.firsts:
            if first.session in sessions:
                row = first.new_session
                found += [first.visitor.sealed, first.agent.sealed, row.name, row.wrapped]
        return found + ([self.snapshot.snapshot] if 1 in sessions else [])

    def of_leaving(self):
        return [self.leaving.wrapped, self.leaving.name, self.facts.snapshot]

    def traces(self, name, sealed):
        content = b"".join(path.read_bytes() for path in (self.folder / name).iterdir())
        return sum(value in content for value in sealed)

    async def other_is_untouched(self, store):
        first = self.firsts[2]
        loaded = await store.load_session(first.new_session.hash, recent=9)
        assert loaded.rows == [first.visitor, first.agent]
        assert loaded.customer == first.new_customer
        assert loaded.session == first.new_session
        assert await store.check() == []
        assert await store._reader.execute_fetchall("SELECT * FROM tombstones") == []


@pytest.fixture(params=[False, True], ids=["inside", "apart"])
async def scene(request, tmp_path, scribe):
    made = Scene(tmp_path, scribe, apart=request.param)
    await made.make()
    return made


async def test_a_forgetting_is_finished_by_the_next_open(scene):
    """Not begun, all is there; begun, all is gone when open returns; others notice nothing."""
    last = scene.die("forget")
    assert last > 15
    gone = [*scene.secrets(1, 2), *scene.of_leaving()]
    told = Counter()
    for number in range(1, last + 1):
        store = scene.store(str(number))
        await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
        loaded = await store.load_session(scene.firsts[0].new_session.hash, recent=9)
        if loaded is None:
            assert scene.traces(str(number), gone) == 0
            assert [row.ref for row in await store.customers(after=0, limit=9)] == [3]
        else:
            assert scene.traces(str(number), gone) == len(gone)
            assert isinstance(loaded.customer, CustomerRow)
            assert loaded.customer.wrapped == scene.leaving.wrapped
            assert len(await store.sessions_of(1)) == 2
        await scene.other_is_untouched(store)
        told[loaded is None] += 1
        await store.close()
    assert told[False] in range(1, 8)
    assert told[True] > 10


async def test_finishing_can_be_killed_at_every_step_too(scene):
    """Killed after the key went, then at each statement of the opens that follow."""
    last = scene.die("forget")
    for number in range(last, 0, -1):
        # The newest death after which the rows are still there and a tombstone says so.
        if scene.traces(str(number), scene.secrets(1, 2)) > 1:
            break
    last = scene.die("open", start=str(number))
    gone = [*scene.secrets(1, 2), *scene.of_leaving()]
    for number in range(1, last + 1):
        store = scene.store(str(number))
        await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
        assert scene.traces(str(number), gone) == 0
        await scene.other_is_untouched(store)
        await store.close()


async def test_a_deleted_session_is_finished_by_the_next_open(scene):
    """There whole, or in no file; its customer and their other session stay."""
    last = scene.die("delete")
    told = Counter()
    for number in range(1, last + 1):
        store = scene.store(str(number))
        await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
        deleted = await store.load_session(scene.firsts[0].new_session.hash, recent=9) is None
        gone = scene.secrets(1)
        assert scene.traces(str(number), gone) == (0 if deleted else len(gone))
        assert len(await store.rows(2, after=0, limit=9)) == 2
        assert (await store.customers(after=0, limit=1))[0].wrapped == scene.leaving.wrapped
        await scene.other_is_untouched(store)
        told[deleted] += 1
        await store.close()
    assert min(told.values()) > 0


async def test_an_adoption_is_finished_by_the_next_open(scene):
    """All sessions are one's or the other's, and who left is in no file."""
    last = scene.die("adopt")
    told = Counter()
    for number in range(1, last + 1):
        store = scene.store(str(number))
        await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
        left = [len(await store.sessions_of(1)), len(await store.sessions_of(3))]
        assert left in ([2, 1], [0, 3])
        adopted = left == [0, 3]
        keys = [first.new_session.wrapped for first in scene.firsts[:2]]
        gone = [*scene.of_leaving(), *keys]
        assert scene.traces(str(number), gone) == (0 if adopted else len(gone))
        assert len(await store.rows(1, after=0, limit=9)) == 2
        await scene.other_is_untouched(store)
        told[adopted] += 1
        await store.close()
    assert min(told.values()) > 0


async def test_a_pruning_is_finished_by_the_next_open(scene, scribe):
    """Rows and mark go together; what went is in no file; also where the file is written anew."""
    store = scene.store("before")
    await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
    long = [
        msgspec.structs.replace(turn, agent=msgspec.structs.replace(turn.agent, sealed=content))
        for turn, content in ((scribe.turn(1, seq), os.urandom(30_000)) for seq in (3, 5, 7, 9, 11))
    ]
    await store.commit(long)
    await store.commit([scribe.snapshot(1, 10, 1), scribe.facts(1, 1, (1, 12))])
    await store.close()
    whole = (scene.folder / "before" / "memory.db").stat().st_size
    gone = [turn.agent.sealed[-300:] for turn in long[:3]]
    told, sizes = Counter(), set()
    last = scene.die("prune")
    for number in range(1, last + 1):
        store = scene.store(str(number))
        await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
        loaded = await store.load_session(scene.firsts[0].new_session.hash, recent=9)
        pruned = loaded.session.pruned == b"mark" * 16
        assert pruned or loaded.session.pruned is None
        kept = [row.seq for row in await store.rows(1, after=0, limit=99)]
        assert kept == list(range(9 if pruned else 1, 13))
        assert scene.traces(str(number), gone) == (0 if pruned else len(gone))
        assert await store.commit([scribe.turn(1, 13)]) == ["written"]
        await scene.other_is_untouched(store)
        told[pruned] += 1
        await store.close()
        sizes.add((scene.folder / str(number) / "memory.db").stat().st_size)
    assert min(told.values()) > 0
    assert min(sizes) < whole - 80_000
    assert max(sizes) >= whole


async def test_a_copy_from_before_is_unreadable_without_the_keys_file(scene):
    """With keys apart, a backup of the data alone doesn't hold what would open it."""
    store = scene.store("before")
    copied = (scene.folder / "before" / "memory.db").read_bytes()
    await store.open(scene.root, owner=this_owner(), lease_s=3_600.0)
    await store.forget(1)
    await store.close()
    assert scene.secrets(1)[0] in copied
    assert (scene.leaving.wrapped in copied) is not scene.apart
    assert isinstance(scene.root, Root)
