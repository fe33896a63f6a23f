"""Token counts: tiktoken's own, from the disk, off the loop, and no network ever."""

# ruff: noqa: S603 - the process is this very interpreter

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from interturn.runtime import tokens
from interturn.runtime.tokens import load_counter

pytestmark = pytest.mark.anyio

OFFLINE = """
import asyncio, sys

def no_network(event, arguments):
    if event.startswith("socket.") and event.removeprefix("socket.") in (
        "connect", "getaddrinfo", "gethostbyname", "sendto", "bind"
    ):
        print("network:", event, flush=True)
        raise SystemExit(1)

sys.addaudithook(no_network)
from interturn.runtime.tokens import load_counter

async def main():
    for encoding in ("o200k_base", "cl100k_base"):
        counter = await load_counter(encoding)
        texts = ("antidisestablishmentarianism", "2 + 2 = 4", "お誕生日おめでとう")
        print(counter.name, *map(counter.count, texts))

asyncio.run(main())
"""


def test_the_vocabulary_is_read_without_a_network(tmp_path):
    """In a process that may open no connection, both encodings count as OpenAI's cookbook says."""
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE], env=environ, capture_output=True, text=True, check=False
    )
    assert run.stdout == "o200k_base 6 7 8\ncl100k_base 6 7 9\n", run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []


async def test_the_vocabulary_is_read_off_the_loop(monkeypatch):
    """Half a second of work at the first use is done in a thread: the loop goes on."""
    threads = []
    read = tokens._read_vocabulary

    def noted(encoding):
        threads.append(threading.get_ident())
        return read(encoding)

    monkeypatch.setattr(tokens, "_read_vocabulary", noted)
    tokens._load.cache_clear()
    loading = asyncio.create_task(load_counter("cl100k_base"))
    ticks = 0
    while not loading.done():
        await asyncio.sleep(0)
        ticks += 1
    assert (await loading).name == "cl100k_base"
    assert threads
    assert threading.get_ident() not in threads
    assert ticks > 10


async def test_a_vocabulary_that_is_another_is_refused(monkeypatch):
    """A file on disk whose hash isn't the one that tiktoken expects is never believed."""
    monkeypatch.setitem(tokens._SHA256, "cl100k_base", "0" * 64)
    tokens._load.cache_clear()
    with pytest.raises(RuntimeError, match="cl100k_base on disk isn't the expected one"):
        await load_counter("cl100k_base")


@pytest.mark.parametrize("text", ["a" * 600_000, " " * 600_000, "\n" * 600_000, "🙂" * 100_000])
async def test_a_long_run_is_counted_off_the_loop(opened, text):
    """A long run of one character is slow to count, so the loop goes on meanwhile."""
    async with opened(counter=None) as runtime:
        session = runtime.session("s")
        recording = asyncio.create_task(session.record("x" + text, "r"))
        ticks = 0
        while not recording.done():
            await asyncio.sleep(0)
            ticks += 1
        await recording
        assert ticks > 100
        window = (await session.layers()).window
        assert window[0].tokens > 100
