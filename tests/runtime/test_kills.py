"""Killed with -9, again and again: what was acknowledged over a pipe is there afterwards.

A child serves turns of many sessions of a few customers, some with delivery ids, folds
and learns offline, and says of each turn that it is on disk, when it is told so. Its
parent kills it at a random moment and looks at what it left; the next child goes on with
the same file. ``INTERTURN_KILLS=200`` makes as many rounds as that says.
"""

# ruff: noqa: S603 - the processes are this very interpreter

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap

import pytest

from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.archive import Archive

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("INTERTURN_KILLS", "20"))
SESSIONS = 24

CHILD = """
    import asyncio, random, sys
    from interturn.runtime import Keyring, Runtime, Settings

    class Bytes:
        name, byte_level = "bytes/4", True
        def count(self, text): return (len(text.encode()) + 3) // 4

    path, key, seed, unanswered = sys.argv[1:]
    draw = random.Random(seed)
    few = asyncio.Semaphore(6)  # fewer than fit in memory, so that sessions come and go

    async def talk(runtime, number):
        session = runtime.session(f"s{number}", customer=f"c{number % 4}")
        async with few:
            window = (await session.layers()).window
        first = window[-1].seq // 2 if window else 0
        for turn in range(first, first + 10_000):
            text = f"Soy la visita {turn} y vivo en la calle {number}, portal {turn}."
            delivery = f"d{turn}" if turn % 3 == 0 else None
            async with few:
                async with session.turn(text, delivery_id=delivery) as held:
                    recorded = await held.reply(f"Anotado {turn}.")
                cursor = (await session.layers()).cursor
            print(number, recorded.seq, cursor, flush=True)
            if draw.random() < 0.2:
                await asyncio.sleep(0)

    async def main():
        settings = Settings(window=4, active=18, keep_unanswered=unanswered == "1", snapshot_s=0.01)
        async with Runtime.open(
            path, keyring=Keyring.from_file(key), settings=settings, counter=Bytes()
        ) as runtime:
            async with asyncio.TaskGroup() as group:
                for number in range(SESSIONS):
                    group.create_task(talk(runtime, number))

    asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_every_kill(path, tmp_path, pairs, counter):
    """P1, P3, P6: nothing acknowledged is missing, nothing doubled, no cursor went back."""
    key, script = tmp_path / "master.key", tmp_path / "child.py"
    keyring = Keyring.from_file(key, create=True)
    child = textwrap.dedent(CHILD).replace("SESSIONS", str(SESSIONS))
    script.write_text(child, encoding="utf-8")
    async with Runtime.open(path, keyring=keyring, counter=counter):
        pass  # the file is there before anybody is killed
    acknowledged = dict.fromkeys(range(SESSIONS), 0)
    cursors = dict.fromkeys(range(SESSIONS), 0)
    draw = random.Random(7)
    for round_ in range(ROUNDS):
        lives = draw.randrange(1, 150)  # acknowledgements until it dies
        run = [sys.executable, str(script), str(path), str(key), str(round_), str(round_ % 2)]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
            assert process.stdout is not None
            for _ in range(lives):
                _note(process.stdout.readline(), acknowledged, cursors)
            process.kill()
            for line in process.stdout:  # what it had said before it died
                if line.endswith("\n"):
                    _note(line, acknowledged, cursors)
        await _look(path, keyring, pairs, counter, acknowledged, cursors, last=round_ == ROUNDS - 1)


def _note(line: str, acknowledged: dict[int, int], cursors: dict[int, int]) -> None:
    number, seq, cursor = map(int, line.split())
    assert seq == 2 * acknowledged[number] + 1, "doubled or lost"
    acknowledged[number] += 1
    cursors[number] = max(cursors[number], cursor)


async def _look(path, keyring, pairs, counter, acknowledged, cursors, *, last) -> None:
    """Look at what the killed process left, as its successor would."""
    async with Runtime.open(
        path, keyring=keyring, counter=counter, settings=Settings(window=4)
    ) as runtime:
        for number, turns in acknowledged.items():
            session = runtime.session(f"s{number}")
            found = await pairs(session)
            # The reply of one more turn may have been on its way when the process died.
            assert len(found) - turns in (0, 1), number
            for turn, (said, replied) in enumerate(found):
                assert said.startswith(f"Soy la visita {turn} y vivo en la calle {number},")
                assert replied == f"Anotado {turn}."
            layers = await session.layers()
            assert layers.cursor >= cursors[number], "a cursor went back"
            acknowledged[number] = len(found)
            cursors[number] = layers.cursor
        for left in await runtime.unanswered():
            assert left.text.startswith("Soy la visita")
        await runtime.flush()
    async with Archive.open(path, keyring=keyring) as archive:
        assert not (await archive.doctor()).findings
        if last:
            assert (await archive.doctor()).facts > 0
