"""What it costs to bring a session into memory from a large database, and to open that.

The floor is one SELECT of a session's newest twelve rows through aiosqlite, and the
decryption of as many bytes with one key. interturn reads whose session it is and their
facts as well, unwraps both keys, and checks order and seal of every row.

Run with ``python benchmarks/activation.py [--rows 1000000] [--quick] [--json FILE]``.
Activation and floor take turns, over sessions in random order.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiosqlite
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from harness import Latencies, Report, Row, Table, at_most, parser, publish
from silent import Silent
from texts import replied, said

from interturn.runtime import Keyring, Runtime, Settings

TURNS: Final = 6
"""Turns of a session: its window, so that nothing is folded."""

_NEWEST: Final = (
    "SELECT seq, role, sealed FROM messages WHERE session = ? ORDER BY seq DESC LIMIT 12"
)


async def build(path: Path, keyring: Keyring, sessions: int) -> None:
    """Fill a database, many sessions at a time, so that a session's rows lie apart."""
    silent = Silent()
    settings = Settings(durability="normal")
    opened = Runtime.open(path, keyring=keyring, settings=settings, deriver=silent, profiler=silent)
    async with opened as runtime:

        async def one(number: int) -> None:
            session = runtime.session(f"s{number}", customer=f"c{number}")
            for _, text, reply in zip(range(TURNS), said(number), replied(number), strict=False):
                await session.record(text, reply)

        for start in range(0, sessions, 1_000):
            await asyncio.gather(*map(one, range(start, min(start + 1_000, sessions))))


async def opening_ms(path: Path, keyring: Keyring) -> tuple[float, float]:
    """Return the wall and CPU time of opening and closing, in ms, with the vocabulary loaded."""
    cpu, wall = time.process_time(), time.perf_counter()
    async with Runtime.open(path, keyring=keyring):
        took = time.perf_counter() - wall, time.process_time() - cpu
    return took[0] * 1e3, took[1] * 1e3


async def compared(path: Path, keyring: Keyring, names: Sequence[int]) -> dict[str, Latencies]:
    """Activate sessions, and do the floor's work, in turn."""
    found = {"floor: SELECT and decrypt": Latencies(), "activate a session": Latencies()}
    floor, ours = found.values()
    cipher = AESGCM(os.urandom(32))
    silent = Silent()
    clock = time.perf_counter
    opened = Runtime.open(path, keyring=keyring, deriver=silent, profiler=silent)
    async with opened as runtime, aiosqlite.connect(path) as connection:
        [(most,)] = await connection.execute_fetchall("SELECT max(ref) FROM sessions")
        for number in names:
            ref = random.randrange(1, most + 1)  # noqa: S311 - which session, no secret
            rows = list(await connection.execute_fetchall(_NEWEST, (ref,)))
            nonce = os.urandom(12)
            sealed = [cipher.encrypt(nonce, bytes(row[2][28:]), b"") for row in rows]
            started = clock()
            await connection.execute_fetchall(_NEWEST, (ref,))
            for body in sealed:
                cipher.decrypt(nonce, body, b"")
            floor.add(clock() - started)
            session = runtime.session(f"s{number}")
            started = clock()
            await session.layers()
            ours.add(clock() - started)
    return found


async def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="messages in the database")
    chosen = options.parse_args()
    rows: int = chosen.rows // 10 if chosen.quick else chosen.rows
    sessions = rows // (2 * TURNS)
    with tempfile.TemporaryDirectory() as folder:
        path, keyring = Path(folder) / "activation.db", Keyring.generate()
        started = time.perf_counter()
        await build(path, keyring, sessions)
        built = time.perf_counter() - started
        openings = [await opening_ms(path, keyring) for _ in range(5)]
        names = random.sample(range(sessions), min(sessions, 2_000))
        found = await compared(path, keyring, names)
        size = path.stat().st_size
    floor, ours = found.values()
    table = [
        Row(name, {**latencies.cells, "to floor": latencies.us(50) / floor.us(50)})
        for name, latencies in found.items()
    ]
    wall, cpu = sorted(openings)[len(openings) // 2]
    targets = [
        at_most("cold activation, to one SELECT and decryption", ours.us(50) / floor.us(50), 3),
        at_most("opening, CPU ms", cpu, 100),
    ]
    tables = [
        Table(f"{rows:,} rows, {sessions:,} sessions", table, chart="p50 µs"),
        Table(
            "Opening it",
            [Row("open", {"ms": wall, "CPU ms": cpu, "file MB": size / 1e6, "built in s": built})],
        ),
    ]
    publish(Report("activation", {"rows": rows}, tables, targets), chosen.json)


if __name__ == "__main__":
    asyncio.run(main())
