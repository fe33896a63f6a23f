"""Pauses: a process that was stopped past its lease comes back as nobody's owner."""

# ruff: noqa: S603 - the process is this very interpreter

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from interturn.runtime import StoreOwned

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="only POSIX stops a process"),
]

OWNER = """
import asyncio, json, sys
from interturn.runtime import Keyring, Runtime, Settings

class Bytes:
    name, byte_level = "bytes/4", True
    def count(self, text): return (len(text.encode()) + 3) // 4

async def told(call):
    try:
        await call
    except Exception as error:
        return type(error).__name__
    return "done"

async def main():
    path, key = sys.argv[1:]
    read = lambda: asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    settings = Settings(lease_s=0.5)
    runtime = Runtime.open(path, keyring=Keyring.from_file(key), counter=Bytes(), settings=settings)
    async with runtime:
        session, free = runtime.session("s", customer="ana"), runtime.session("free")
        await session.record("antes", "r")
        await free.record("antes", "r")
        async with session.turn("en curso") as turn:
            line = asyncio.create_task(told(session.record("en la fila", "r")))
            print(runtime.statistics().sessions, flush=True)
            await read()  # stopped, taken over, continued
            outcomes = {
                "reply": await told(turn.reply("tarde")),
                "waited": await line,
                "record": await told(free.record("tarde", "r")),
                "look": await told(session.layers()),
                "remember": await told(runtime.customer("ana").remember("tarde")),
                "flush": await told(runtime.flush()),
            }
        await runtime.close()
        outcomes["sessions"] = runtime.statistics().sessions
        outcomes["turns"] = runtime.statistics().turns
    outcomes["runtime"] = repr(runtime)
    print(json.dumps(outcomes), flush=True)

asyncio.run(main())
"""


@pytest.fixture
def owner(path, keyring, tmp_path):
    """A process that holds the database under a lease of half a second, with a turn held."""
    keyring.save(tmp_path / "memory.key")
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), str(tmp_path / "memory.key")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    yield process
    process.kill()
    process.communicate()


async def _taken_over(opened, attempts: int = 100_000):
    """Ask until the lease has run out: how often was refused, and the new owner."""
    for refused in range(attempts):
        runtime = opened()
        try:
            return refused, await runtime.__aenter__()
        except StoreOwned:
            continue
    raise AssertionError("the lease never ran out")


async def test_an_owner_that_was_stopped_past_its_lease_is_fenced(opened, owner, say, pairs):
    """Stopped, taken over and continued: nothing of it is written, all who wait are told."""
    assert owner.stdout.readline() == "2\n"
    os.kill(owner.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, owner.pid, os.WSTOPPED)  # noqa: ASYNC222 - it stops at once
    refused, runtime = await _taken_over(opened)
    assert refused > 0  # its lock was held, and its last sign of life was fresh
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(runtime)
        session = runtime.session("s", customer="ana")
        await say(session, "del nuevo")
        os.kill(owner.pid, signal.SIGCONT)
        out, _ = owner.communicate("go on\n")
        outcomes = json.loads(out)
        assert outcomes.pop("turns") == 2
        assert outcomes.pop("sessions") == 0
        assert outcomes.pop("runtime") == "Runtime(closed)"
        assert outcomes == dict.fromkeys(outcomes, "Fenced")
        assert owner.returncode == 0
        await say(session, "sigue")
        said = [text for text, _ in await pairs(session)]
        assert said == ["antes", "del nuevo", "sigue"]
        assert await pairs(runtime.session("free")) == [("antes", "r")]
        assert await runtime.customer("ana").facts() == ()
