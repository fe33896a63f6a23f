"""What sessions cost in memory: passive ones nothing, idle cells a little, active ones their texts.

Bytes are those that tracemalloc sees, so they are exact and the same on every run;
resident memory is shown beside. With many sessions active, a full garbage collection is
timed: what it costs is what a turn may have to wait for.

Run with ``python benchmarks/idle.py [--sessions 10000] [--quick] [--json FILE]``.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Final

from harness import Report, Row, Table, at_most, parser, publish
from silent import NO_FOLDS, Silent
from texts import replied, said

from interturn.runtime import Keyring, Runtime, Settings

TURNS: Final = 6
"""Turns of a session: its window is full."""


def traced() -> int:
    """Return the bytes that are in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def resident() -> int:
    """Return the bytes of resident memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


async def talk(runtime: Runtime, sessions: range) -> int:
    """Fill the windows of these sessions, and return the bytes of their texts."""
    size = 0

    async def one(number: int) -> int:
        session = runtime.session(f"s{number}", customer=f"c{number}")
        written = 0
        for _, text, reply in zip(range(TURNS), said(number), replied(number), strict=False):
            await session.record(text, reply)
            written += len(text.encode()) + len(reply.encode())
        return written

    for start in range(sessions.start, sessions.stop, 500):
        group = range(start, min(start + 500, sessions.stop))
        size += sum(await asyncio.gather(*map(one, group)))
    return size


async def idle_cells(folder: Path, cells: int) -> float:
    """Return the bytes of a cell whose actor is not in memory, in the cells' dict."""
    async with Runtime.open(folder / "cells.db", keyring=Keyring.generate()) as runtime:
        inside = runtime._inside  # noqa: SLF001
        assert inside is not None
        names = [f"session-{number}" for number in range(cells)]
        before = traced()
        for name in names:
            inside.cell(name)
        return (traced() - before) / cells


async def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--sessions", type=int, default=10_000, help="active at once")
    chosen = options.parse_args()
    sessions: int = chosen.sessions // 10 if chosen.quick else chosen.sessions
    settings = Settings(active=2 * sessions, idle_s=86_400, fold_at=NO_FOLDS, snapshot_s=0)
    silent = Silent()
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        cell = await idle_cells(Path(folder), 10_000)
        opened = Runtime.open(
            Path(folder) / "idle.db",
            keyring=Keyring.generate(),
            settings=settings,
            deriver=silent,
            profiler=silent,
        )
        async with opened as runtime:
            await talk(runtime, range(100))
            before = traced()
            texts = await talk(runtime, range(100, 100 + sessions)) / sessions
            await runtime.flush()
            active = (traced() - before) / sessions
            tracemalloc.stop()
            started = time.perf_counter()
            gc.collect()
            collected = time.perf_counter() - started
            statistics = runtime.statistics()
            rss = resident()
    rows = [
        Row("idle cell", {"bytes": cell}),
        Row("texts of an active session", {"bytes": texts}),
        Row("active session, its customer with it", {"bytes": active}),
    ]
    whole = [
        Row(
            f"{statistics.sessions:,} active sessions",
            {"resident MB": rss / 1e6, "gc.collect ms": collected * 1e3},
        )
    ]
    targets = [
        at_most("idle cell, bytes", cell, 300),
        at_most(
            "active session, bytes to 1.5 times its texts and 1 kB",
            active / (1.5 * texts + 1_000),
            1,
        ),
    ]
    tables = [Table("Bytes each", rows, chart="bytes"), Table("All together", whole)]
    publish(Report("idle", {"sessions": sessions}, tables, targets), chosen.json)


if __name__ == "__main__":
    asyncio.run(main())
