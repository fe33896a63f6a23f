"""A long life in one process: is memory flat, and what else grows, turn after turn?

Run with ``python benchmarks/soak.py [--turns 1000000]``. Visitors come, hold a few
turns and leave; half of the visits are a session's first, the others go to few
regulars. Time is virtual, so that hours of idling, sweeps and snapshots are in it;
memory, files and tasks are real. At each tenth it prints what is in memory and on
disk; resident memory after the first tenth should stay where it is.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from interturn.actors import Fact, FactChange, Message
from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.cell import Cell
from interturn.runtime.customers import CustomerCell

TURN_S: Final = 0.01  # virtual, of all visitors together: 100 turns a second
AT_ONCE: Final = 256  # visitors, at most half of the sessions in memory
REGULARS: Final = 3  # the higher, the fewer sessions take most of the later visits
WORDS: Final = (
    *("pedido", "factura", "martes", "jueves", "dirección", "entrega", "precio", "talla", "color"),
    *("devolución", "tarjeta", "cuenta", "reserva", "vuelo", "hotel", "habitación", "teléfono"),
    *("correo", "plazo", "garantía", "repuesto", "técnico", "visita", "mañana", "tarde", "gracias"),
)
TURNS_A_VISIT: Final = (1, 9)


class VirtualClock:
    """Time that passes as turns are held."""

    def __init__(self) -> None:
        self._now = 0.0
        self._started = datetime(2026, 1, 1, tzinfo=UTC)
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def utc(self) -> datetime:
        """Return the present time."""
        return self._started + timedelta(seconds=self._now)

    def monotonic(self) -> float:
        """Return seconds since the start."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Return when `pass_by` has come this far."""
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken.wait()

    def pass_by(self, seconds: float) -> None:
        """Let time pass, and wake whoever slept until now."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].set()


class Nothing:
    """Derives nothing: turns are read for facts all the same."""

    async def derive(self, turn: Sequence[Message], known: Sequence[Fact]) -> list[FactChange]:
        """Return no change."""
        del turn, known
        return []


class ByteCounter:
    """Counts a token for each four bytes: cheap, so that what is left is the runtime."""

    name = "bytes/4"
    byte_level = True

    def count(self, text: str) -> int:
        """Return a quarter of the bytes."""
        return (len(text.encode()) + 3) // 4


class Soak:
    """Visits to a runtime, until so many turns were held."""

    def __init__(
        self, runtime: Runtime, clock: VirtualClock, turns: int, sessions: int, at_once: int
    ) -> None:
        self._runtime = runtime
        self._at_once = at_once
        self._clock = clock
        self._turns = turns
        self._sessions = sessions
        self._random = random.Random(1)  # noqa: S311 - the same visits each time
        self._seen = 0
        self._here: set[int] = set()
        self.held = 0

    async def until(self, turns: int) -> None:
        """Let visitors come until so many turns were held in all."""

        async def visitors() -> None:
            while self.held < turns:
                await self._visit(self._whose())

        await asyncio.gather(*(visitors() for _ in range(self._at_once)))

    def _whose(self) -> int:
        """Return a session: new ones at an even pace, else a regular, whoever isn't here now."""
        due = self._at_once + self._sessions * self.held // self._turns
        if self._seen < min(due, self._sessions):
            self._seen += 1
            number = self._seen - 1
        else:
            number = int(self._seen * self._random.random() ** REGULARS)
        while number in self._here:
            number = (number + 1) % max(self._seen, self._at_once + 1)
        return number

    async def _visit(self, number: int) -> None:
        self._here.add(number)
        session = self._runtime.session(f"s{number}", customer=f"c{number // 2}")
        for _ in range(self._random.randint(*TURNS_A_VISIT)):
            async with session.turn(self._sentence(12)) as turn:
                await turn.reply(self._sentence(20))
            self.held += 1
            self._clock.pass_by(TURN_S)
        self._here.discard(number)

    def _sentence(self, words: int) -> str:
        said = " ".join(self._random.choices(WORDS, k=words))
        return f"Hola, {said} {self._random.randrange(10**6)}."


class Figures:
    """What is in memory and on disk, printed a line at a time."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        self._runtime = runtime
        self._path = path
        self._resident: list[float] = []
        self._last = (0, time.perf_counter())

    @staticmethod
    def heading() -> None:
        """Print what the columns are. ``cells`` are all that exist, kept or lost."""
        print(
            f"{'turns':>10} {'resident':>9} {'sessions':>8} {'cells':>7} {'customers':>9}"
            f" {'tasks':>5} {'files':>5} {'threads':>7} {'log':>7} {'database':>12} {'turns/s':>8}"
        )

    def line(self, turns: int) -> None:
        """Print how things are after so many turns."""
        now = time.perf_counter()
        before, then = self._last
        gc.collect()
        kinds = [type(thing) for thing in gc.get_objects()]
        self._resident.append(resident_mb())
        print(
            f"{turns:>10,} {self._resident[-1]:>6,.0f} MB"
            f" {self._runtime.statistics().sessions:>8,} {kinds.count(Cell):>7,}"
            f" {kinds.count(CustomerCell):>9,} {len(asyncio.all_tasks()):>5}"
            f" {len(list(Path('/proc/self/fd').iterdir())):>5} {threading.active_count():>7}"
            f" {size(self._path, '-wal') / 2**20:>4,.0f} MB"
            f" {size(self._path) / turns:>6,.0f} B/turn {(turns - before) / (now - then):>8,.0f}",
            flush=True,
        )
        self._last = (turns, time.perf_counter())

    @property
    def growth(self) -> float:
        """Resident memory at the end over that after the first tenth."""
        return self._resident[-1] / self._resident[0]

    @property
    def peak(self) -> float:
        """The highest of the later tenths over the first."""
        return max(self._resident) / self._resident[0]


def resident_mb() -> float:
    """Return this process's resident memory, as Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def size(path: Path, suffix: str = "") -> int:
    """Return the bytes of a file, or of the one beside it."""
    file = path.with_name(path.name + suffix)
    return file.stat().st_size if file.exists() else 0


async def main() -> None:
    """Soak and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--active", type=int, default=5_000, help="sessions in memory at most")
    parser.add_argument("--derive", action="store_true", help="derive facts, offline")
    parser.add_argument("--exact", action="store_true", help="count with tiktoken")
    parser.add_argument("--durability", choices=("full", "normal"), default="normal")
    given = parser.parse_args()
    at_once = min(AT_ONCE, given.active // 2)
    clock = VirtualClock()
    settings = Settings(active=given.active, durability=given.durability)
    print(
        f"{given.turns:,} turns, {given.sessions:,} sessions, {given.active:,} active, {at_once} at"
        f" once; SQLite, durability {given.durability}; counter:"
        f" {'tiktoken' if given.exact else 'bytes / 4'}; folds offline;"
        f" facts: {'offline' if given.derive else 'none derived'}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "soak.db"
        async with Runtime.open(
            path,
            keyring=Keyring.generate(),
            settings=settings,
            clock=clock,
            counter=None if given.exact else ByteCounter(),
            deriver=None if given.derive else Nothing(),
        ) as runtime:
            soak = Soak(runtime, clock, given.turns, given.sessions, at_once)
            figures = Figures(runtime, path)
            figures.heading()
            for tenth in range(1, 11):
                await soak.until(given.turns * tenth // 10)
                await runtime.flush()  # what is left then is not work under way
                figures.line(soak.held)
            statistics = runtime.statistics()
            print(
                f"resident at the end / after the first tenth: {figures.growth:.2f}"
                f" (at most {figures.peak:.2f}); {statistics.folds:,} folds,"
                f" {statistics.activations:,} activations, {statistics.failures} failures"
            )


if __name__ == "__main__":
    asyncio.run(main())
