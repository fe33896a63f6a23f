"""Exits: a process ends by itself, however it leaves its runtime."""

# ruff: noqa: S603 - the processes are this very interpreter

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import asyncio, signal, sys, os
from interturn.runtime import Keyring, MemoryStore, Runtime, RuntimeClosed, Settings

class Bytes:
    name, byte_level = "bytes/4", True
    def count(self, text): return (len(text.encode()) + 3) // 4

class Hangs:
    async def fold(self, summary, leaving, *, cap_tokens):
        print("folding", flush=True)
        await asyncio.Event().wait()

PATH, KEY = sys.argv[1:]

def make(**given):
    given.setdefault("counter", Bytes())
    return Runtime.open(PATH, keyring=Keyring.from_file(KEY, create=True), **given)

async def say(session, text):
    async with session.turn(text) as turn:
        await turn.reply("r")
"""

# What each script does, after which its process must end with nobody's help.
LEFT_OPEN = """
async def main():
    runtime = make()
    await runtime.__aenter__()
    await say(runtime.session("s"), "a")
    print("said", flush=True)

asyncio.run(main())
"""

LOOP_LEFT = """
loop = asyncio.new_event_loop()
runtime = make()
loop.run_until_complete(runtime.__aenter__())
loop.run_until_complete(say(runtime.session("s"), "a"))
print("said", flush=True)
"""

HELD = """
async def main():
    runtime = make(settings=Settings(drain_s=86_400))
    await runtime.__aenter__()
    await say(runtime.session("s"), "a")
    async def hold():
        async with runtime.session("s").turn("held"):
            await asyncio.Event().wait()
    task = asyncio.create_task(hold())
    others = [asyncio.create_task(say(runtime.session("s"), "waits")) for _ in range(5)]
    await asyncio.sleep(0)
    print("said", flush=True)

asyncio.run(main())
"""

BY_HAND = """
async def main():
    runtime = make(settings=Settings(drain_s=86_400))
    await runtime.__aenter__()
    await say(runtime.session("s"), "a")
    global turn
    turn = await runtime.session("s").turn("never left").__aenter__()
    print("said", flush=True)

asyncio.run(main())
"""

WRITING = """
async def main():
    runtime = make()
    await runtime.__aenter__()
    await say(runtime.session("s"), "a")
    tasks = [asyncio.create_task(say(runtime.session(f"s{n}"), "x" * 3_000)) for n in range(300)]
    for _ in range(int(os.environ.get("TICKS", "3"))):
        await asyncio.sleep(0)
    print("said", flush=True)

asyncio.run(main())
"""

FOLDING = """
async def main():
    runtime = make(summarizer=Hangs(), settings=Settings(window=2, drain_s=86_400))
    await runtime.__aenter__()
    for number in range(3):
        await say(runtime.session("s"), "a")
    await asyncio.sleep(0)
    print("said", flush=True)

asyncio.run(main())
"""

RAISES = """
async def main():
    async with make() as runtime:
        await say(runtime.session("s"), "a")
        print("said", flush=True)
        raise SystemExit(0)

asyncio.run(main())
"""

SCRIPTS = {
    "never closed": LEFT_OPEN,
    "its loop left lying": LOOP_LEFT,
    "a turn held and five who wait": HELD,
    "a turn entered and never left": BY_HAND,
    "turns on their way to disk": WRITING,
    "a fold that hangs": FOLDING,
    "an exit asked for": RAISES,
}


def _run(script: str, path, tmp_path, **environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(script), str(path), str(tmp_path / "key")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": ":".join(p for p in sys.path if p)} | environ,
    )


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_process_ends_by_itself(script, path, tmp_path):
    """A process that never closes its runtime warns and exits; its database is free at once."""
    ended = _run(script, path, tmp_path, PYTHONWARNINGS="always::ResourceWarning")
    assert "said" in ended.stdout, ended.stderr
    assert ended.returncode == 0, ended.stderr
    assert ("never closed" in ended.stderr) == (script is not RAISES), ended.stderr
    assert "Traceback" not in ended.stderr
    after = _run(
        """
        async def main():
            async with make() as runtime:
                said = [m.text async for m in runtime.session("s").transcript()]
                assert said[:2] == ["a", "r"], said
                await say(runtime.session("s"), "después")
                print("fine")

        asyncio.run(main())
        """,
        path,
        tmp_path,
    )
    assert after.stdout == "fine\n", after.stderr


@pytest.mark.parametrize("ticks", ["1", "8", "40", "200"])
def test_a_loop_torn_down_at_any_moment_ends(path, tmp_path, ticks):
    """A loop that ends while batches are written ends, and each turn in them is whole or not."""
    ended = _run(WRITING, path, tmp_path, TICKS=ticks)
    assert ended.returncode == 0, ended.stderr
    after = _run(
        """
        async def main():
            async with make() as runtime:
                for number in range(300):
                    said = [m.text async for m in runtime.session(f"s{number}").transcript()]
                    assert said in ([], ["x" * 3_000, "r"]), said
                print("fine")

        asyncio.run(main())
        """,
        path,
        tmp_path,
    )
    assert after.stdout == "fine\n", after.stderr


@pytest.mark.parametrize("where", ["in a turn", "in a fold", "waiting"])
def test_control_c(path, tmp_path, where):
    """Ctrl-C in the middle of a turn, of a fold, or of waiting ends the process, and cleanly."""
    script = {
        "in a turn": """
            async def main():
                async with make() as runtime:
                    async with runtime.session("s").turn("a"):
                        print("ready", flush=True)
                        await asyncio.Event().wait()
            asyncio.run(main())
            """,
        "in a fold": """
            async def main():
                settings = Settings(window=2, drain_s=0)
                async with make(summarizer=Hangs(), settings=settings) as runtime:
                    for _ in range(3):
                        await say(runtime.session("s"), "a")
                    print("ready", flush=True)
                    await asyncio.Event().wait()
            asyncio.run(main())
            """,
        "waiting": """
            async def main():
                async with make() as runtime:
                    async def hold():
                        async with runtime.session("s").turn("a"):
                            await asyncio.Event().wait()
                    held = asyncio.create_task(hold())
                    await asyncio.sleep(0.0)
                    print("ready", flush=True)
                    try:
                        await say(runtime.session("s"), "b")
                    finally:
                        held.cancel()
            asyncio.run(main())
            """,
    }[where]
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(script), str(path), str(tmp_path / "key")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "", "PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    while "ready" not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert "KeyboardInterrupt" in err
    assert "never retrieved" not in err
    again = _run(
        "async def main():\n    async with make(): print('fine')\nasyncio.run(main())",
        path,
        tmp_path,
    )
    assert again.stdout == "fine\n", again.stderr
