"""Ownership: one owner for each database, refused by name, and fenced once taken over."""

# ruff: noqa: S603 - the processes are this very interpreter

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from datetime import UTC, datetime

import pytest

from interturn.runtime import Fenced, MemoryStore, Settings, StoreFailed, StoreOwned
from interturn.storage import this_owner

pytestmark = pytest.mark.anyio

OWNER = """
    import asyncio, sys
    from interturn.runtime import Keyring, Runtime

    class Bytes:
        name, byte_level = "bytes/4", True
        def count(self, text): return (len(text.encode()) + 3) // 4

    async def main():
        runtime = Runtime.open(sys.argv[1], keyring=Keyring.from_file(sys.argv[2]), counter=Bytes())
        async with runtime:
            await runtime.session("s").record("del otro", "r")
            print("open", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    asyncio.run(main())
"""


@pytest.fixture
def other_process(path, keyring, tmp_path):
    """Another process that holds the database until its standard input ends."""
    keyring.save(tmp_path / "memory.key")
    started = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OWNER), str(path), str(tmp_path / "memory.key")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _bytes(folder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


async def test_a_second_runtime_in_this_process(opened, path, say):
    """A database that is open here is refused with the owner's name, and the owner goes on."""
    began = datetime.now(UTC)
    async with opened() as runtime:
        await say(runtime.session("s"), "v")
        # Connections of one process share the log's index, which is no content.
        before = _bytes(path.parent) | {"memory.db-shm": b""}
        for _ in range(3):
            with pytest.raises(StoreOwned) as caught:
                async with opened():
                    raise AssertionError("opened")
            assert caught.value.owner == this_owner()
            assert began <= caught.value.since <= datetime.now(UTC)
            assert str(os.getpid()) in str(caught.value)
        assert _bytes(path.parent) | {"memory.db-shm": b""} == before
        assert (await say(runtime.session("s"), "w")).seq == 3
    async with opened():
        pass


async def test_a_memory_store_has_one_owner_too(opened):
    """The same contents in memory are refused a second owner until the first gives them back."""
    store = MemoryStore()
    async with opened(store):
        with pytest.raises(StoreOwned):
            async with opened(MemoryStore(beside=store)):
                pass
    async with opened(MemoryStore(beside=store)):
        pass


async def test_another_process(opened, other_process, path, pairs):
    """A database that another process holds is refused with its name; freed, it is ours."""
    process = other_process()
    before = _bytes(path.parent)
    with pytest.raises(StoreOwned) as caught:
        async with opened():
            pass
    assert caught.value.owner.endswith(f"/{process.pid}")
    assert _bytes(path.parent) == before
    process.communicate()
    assert process.returncode == 0
    async with opened() as runtime:
        assert await pairs(runtime.session("s")) == [("del otro", "r")]


async def test_a_dead_owner_is_followed_at_once(opened, other_process, pairs, say):
    """An owner that was killed is known to be dead at once: nobody waits for its lease."""
    process = other_process()
    process.send_signal(signal.SIGKILL)
    process.wait()
    async with opened() as runtime:
        await say(runtime.session("s"), "después")
        got = [said for said, _ in await pairs(runtime.session("s"))]
        assert got == ["del otro", "después"]


def _expire(path) -> None:
    """Let the owner's last sign of life be long ago, as if its process had been stopped."""
    with sqlite3.connect(path, timeout=10) as database:
        database.execute("UPDATE lease SET renewed = 0, since = 0")
    database.close()


async def test_one_that_was_taken_over_is_fenced(opened, path, say, pairs, clock, until, balanced):
    """An owner that was taken over writes nothing more: `Fenced`, and it closes itself."""
    settings = Settings(lease_s=3_600)
    stale = opened(clock=clock, settings=settings)
    async with stale:
        session = stale.session("s")
        await say(session, "mía")
        turn = session.turn("en curso")
        await turn.__aenter__()
        _expire(path)
        async with opened() as owner:
            await say(owner.session("s"), "suya")
            with pytest.raises(Fenced):
                await turn.reply("tarde")
            await turn.__aexit__(None, None, None)
            await until(stale._host.done)
            for call in (
                lambda: say(session, "x"),
                lambda: session.record("x", "y"),
                session.layers,
                stale.flush,
            ):
                with pytest.raises(Fenced):
                    await call()
            await say(owner.session("s"), "sigue")
            assert [s for s, _ in await pairs(owner.session("s"))] == ["mía", "suya", "sigue"]
    balanced(stale, at_rest=True)


async def test_one_that_was_taken_over_finds_out_by_itself(opened, path, clock, until, say):
    """An owner that was taken over and writes nothing learns it when it renews its lease."""
    stale = opened(clock=clock, settings=Settings(lease_s=30))
    async with stale:
        await say(stale.session("s"), "mía")
        _expire(path)
        async with opened() as owner:
            await clock.advance(10)
            await until(stale._host.done)
            with pytest.raises(Fenced):
                await stale.session("s").layers()
            await say(owner.session("s"), "suya")
    async with opened() as again:
        assert (await say(again.session("s"), "v")).seq == 5


async def test_a_stale_owners_fold_is_refused(opened, path, say, until, recorder, summarizer):
    """A fold that ends after its owner was taken over isn't laid."""
    recorder.gate = asyncio.Event()
    settings = Settings(window=2)
    stale = opened(summarizer=recorder, settings=settings)
    async with stale:
        for number in range(2):
            await say(stale.session("s"), f"Ana pide el {number}.")
        await until(lambda: recorder.leaving)
        _expire(path)
        mine = summarizer()
        async with opened(summarizer=mine, settings=settings) as owner:
            await owner.session("s").layers()
            await owner.flush()
            summary = (await owner.session("s").layers()).summary
            recorder.answer = lambda *_: "Luis lo canceló todo."
            recorder.gate.set()
            await until(stale._host.done)
            await say(owner.session("s"), "Ana pide el 2.")
            await owner.flush()
            layers = await owner.session("s").layers()
            assert layers.summary.startswith(summary)
            assert "Luis" not in layers.summary
            assert layers.cursor == 4


async def test_a_lease_that_cant_be_renewed_for_once_is_no_end(opened, watched, clock, say):
    """A renewal that fails is counted, and the next one is tried; turns go on."""
    async with opened(watched, clock=clock, settings=Settings(lease_s=30)) as runtime:
        watched.fail("renew", StoreFailed("disk"))
        await clock.advance(10)
        await say(runtime.session("s"), "v")
        renewals = watched.calls["renew"]
        await clock.advance(10)
        await say(runtime.session("s"), "w")
        assert watched.calls["renew"] == renewals + 1
        assert runtime.statistics().failures == 1
