"""A long life in small: nothing is left of what has passed, however many came and went."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from interturn.runtime import Settings
from interturn.runtime.cell import Cell
from interturn.runtime.customers import CustomerCell
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping

pytestmark = pytest.mark.anyio

FILES = Path("/proc/self/fd")
ACTIVE = 20
LOG_BYTES = 5 * 2**20  # SQLite writes its log back after 1,000 pages of 4 KiB
AT_ONCE = 8
VISITS = 400
EIGHTH = VISITS // 8


KINDS = (Cell, CustomerCell, SessionKeeping, CustomerKeeping)


def _alive():
    """Return the objects of these kinds that exist, whoever holds them."""
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) in KINDS]


def _log_bytes(path):
    return path.with_name(path.name + "-wal").stat().st_size


def _open_files():
    return len(list(FILES.iterdir()))


def _threads():
    """Count threads but for anyio's workers, which are reused and bounded."""
    return sum("worker" not in thread.name for thread in threading.enumerate())


@pytest.mark.skipif(not FILES.is_dir(), reason="counts open files as Linux tells them")
async def test_what_has_passed_leaves_nothing_behind(
    opened, clock, path, words, say, until, settle
):
    """P18: cells, customers, tasks, files and threads are as many after 350 visits as after 50."""
    settings = Settings(active=ACTIVE, window=4, idle_s=100, snapshot_s=5, keep_unanswered=True)
    before = _alive()  # kept, so that what other tests left isn't counted, nor goes meanwhile
    async with opened(clock=clock, settings=settings, deriver=words) as runtime:

        def alive():
            now, then = ([type(thing) for thing in things] for things in (_alive(), before))
            return [now.count(kind) - then.count(kind) for kind in KINDS]

        async def at_rest():
            """Wait until nothing is under way, the renewal of the lease neither."""
            await until(lambda: not runtime._inside.jobs and not runtime.statistics().held)
            await runtime._inside._writer.quiet()
            await settle()

        async def visit(number):
            session = runtime.session(f"s{number % 150}", customer=f"c{number % 75}")
            for turn in range(3):
                await say(
                    session, f"Visita {number}, turno {turn}.", delivery_id=f"{number}/{turn}"
                )
            async with session.turn("Se va sin respuesta."):
                pass

        async def visits(first, last):
            for start in range(first, last, AT_ONCE):
                await asyncio.gather(*map(visit, range(start, min(last, start + AT_ONCE))))
                await clock.advance(20)

        counts = []
        for eighth in range(1, 8):
            await visits((eighth - 1) * EIGHTH, eighth * EIGHTH)
            await runtime.flush()
            await clock.advance(6)  # snapshots of customers come to rest
            await runtime.flush()
            await at_rest()
            cells, customers, *keepings = alive()
            assert cells == runtime.statistics().sessions <= ACTIVE
            assert max(customers, *keepings) <= ACTIVE
            counts.append((len(asyncio.all_tasks()), _threads(), _open_files()))
        assert len(set(counts[1:])) == 1
        assert _log_bytes(path) <= LOG_BYTES
        await clock.advance(1_000)  # everybody has left
        assert runtime.statistics().sessions == 0
        assert alive() == [0, 0, 0, 0]
