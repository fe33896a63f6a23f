"""Durable turns a second: interturn beside plain code that does the same work.

A turn assembles the request from the last twelve messages, then seals, counts and
commits what both sides said, with an fsync at each commit. ``bare`` is interturn with
ports that derive and fold nothing; ``offline`` has the default summarizer, deriver and
profiler, which read each turn. Every session waits for its own turn to be on disk
before it begins the next, so with N sessions N turns are under way at most, and a
turn's latency is mostly the wait for the others.

Run with ``python benchmarks/turns.py [--peers] [--quick] [--json FILE]``. Variants take
turns, several rounds, each on a fresh database; the table has the medians of rounds.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from floors import Floor, FloorSession, Kind
from harness import Latencies, Report, Row, Table, at_least, at_most, handles, parser, publish
from silent import NO_FOLDS, Silent
from texts import INSTRUCTIONS, replied, said

from interturn.actors import TokenCounter
from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.tokens import load_counter

Turn = Callable[[int, str, str], Awaitable[None]]
"""Play one turn of a session: its number, what the visitor says, what the agent replies."""

WARM_TURNS: Final = 8
"""Turns of each session before the clock starts: the window is full by then."""

TURNS: Final = 20
"""Turns of each session that are measured, at least: the surplus stays below `NO_FOLDS`."""

ROUNDS: Final = 3

Durability = Literal["full", "normal"]


class Run(NamedTuple):
    """What one round measured."""

    turns_s: float
    cpu_us: float
    latencies: Latencies
    threads: int
    files: int


async def measured(turn: Turn, sessions: int, turns: int) -> Run:
    """Play ``turns`` turns of each session, all sessions at once."""
    latencies = Latencies()
    clock = time.perf_counter

    async def one(number: int, count: int, *, counted: bool) -> None:
        texts, replies = said(number), replied(number)
        for _ in range(count):
            text, reply = next(texts), next(replies)
            started = clock()
            await turn(number, text, reply)
            if counted:
                latencies.add(clock() - started)

    await asyncio.gather(*(one(number, WARM_TURNS, counted=False) for number in range(sessions)))
    gc.collect()
    cpu, started = time.process_time(), clock()
    await asyncio.gather(*(one(number, turns, counted=True) for number in range(sessions)))
    wall, cpu = clock() - started, time.process_time() - cpu
    threads, files = threading.active_count(), handles()
    return Run(sessions * turns / wall, cpu / sessions / turns * 1e6, latencies, threads, files)


@asynccontextmanager
async def floor(
    path: Path, kind: Kind, durability: str, counter: TokenCounter
) -> AsyncIterator[Turn]:
    """Yield turns of plain code."""
    plain = Floor(path, kind, durability, counter.count)
    await plain.open()
    sessions: dict[int, FloorSession] = {}

    async def turn(number: int, text: str, reply: str) -> None:
        session = sessions.get(number) or sessions.setdefault(number, FloorSession(number))
        plain.assemble(session, text, INSTRUCTIONS)
        await plain.turn(session, text, reply)

    yield turn
    await plain.close()


@asynccontextmanager
async def ours(path: Path, durability: Durability, *, offline: bool) -> AsyncIterator[Turn]:
    """Yield turns of interturn, with the offline ports or with silent ones."""
    settings = Settings(durability=durability, fold_at=2 if offline else NO_FOLDS)
    silent = None if offline else Silent()
    async with Runtime.open(
        path, keyring=Keyring.generate(), settings=settings, deriver=silent, profiler=silent
    ) as runtime:

        async def turn(number: int, text: str, reply: str) -> None:
            session = runtime.session(f"s{number}", customer=f"c{number}")
            async with session.turn(text, instructions=INSTRUCTIONS) as held:
                assert held.request.messages
                await held.reply(reply)

        yield turn


Variant = Callable[[Path], AbstractAsyncContextManager[Turn]]


def variants(counter: TokenCounter) -> dict[str, Variant]:
    """Return what is measured, by name."""

    def plain(kind: Kind) -> Variant:
        return lambda path: floor(path, kind, "full", counter)

    return {
        "floor, executemany": plain("executemany"),
        "floor, multi-row INSERT": plain("multi-row"),
        "floor, aiosqlite": plain("aiosqlite"),
        "interturn, bare": lambda path: ours(path, "full", offline=False),
        "interturn, bare, normal": lambda path: ours(path, "normal", offline=False),
        "interturn, offline ports": lambda path: ours(path, "full", offline=True),
    }


async def rounds(tried: dict[str, Variant], sessions: int, turns: int) -> dict[str, list[Run]]:
    """Measure each variant in turn, several times over."""
    runs: dict[str, list[Run]] = {name: [] for name in tried}
    for _ in range(ROUNDS):
        for name, variant in tried.items():
            with tempfile.TemporaryDirectory() as folder:
                async with variant(Path(folder) / "turns.db") as turn:
                    runs[name].append(await measured(turn, sessions, turns))
    return runs


def table(sessions: int, runs: dict[str, list[Run]]) -> Table:
    """Return the medians of the rounds, each beside the first variant's."""
    first = speed(next(iter(runs.values())))
    rows = []
    for name, measured_runs in runs.items():
        middle = sorted(measured_runs, key=lambda run: run.turns_s)[len(measured_runs) // 2]
        cells: dict[str, float | str | None] = {
            "turns/s": middle.turns_s,
            "to floor": middle.turns_s / first,
            "CPU µs/turn": middle.cpu_us,
            **middle.latencies.cells,
            "threads": middle.threads,
            "handles": middle.files,
        }
        rows.append(Row(name, cells))
    return Table(f"{sessions:,} sessions at once, fsync at each commit", rows, chart="turns/s")


def speed(runs: Sequence[Run]) -> float:
    """Return the median turns a second."""
    return statistics.median(run.turns_s for run in runs)


async def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    counter = await load_counter("o200k_base")
    tables, targets = [], []
    fast: dict[int, float] = {}
    for sessions, turns in ((1, 20), (200, TURNS), (2_000, 10)):
        runs = await rounds(variants(counter), sessions, turns)
        tables.append(table(sessions, runs))
        got = {name: speed(measured_runs) for name, measured_runs in runs.items()}
        executemany, *others = (value for name, value in got.items() if name.startswith("floor"))
        bare, offline = got["interturn, bare"], got["interturn, offline ports"]
        where = f"{sessions:,} sessions"
        if sessions == 1:
            targets.append(at_most("one session: a turn, to the floor's", executemany / bare, 2))
            continue
        fast[sessions] = bare
        targets += [
            at_least(f"{where}: bare, to the executemany floor", bare / executemany, 1),
            at_least(f"{where}: bare, to the best floor", bare / max(executemany, *others), 0.7),
            at_least(f"{where}: offline ports, to that floor", offline / executemany, 0.35),
            at_least(f"{where}: full, to normal", bare / got["interturn, bare, normal"], 0.8),
        ]
    targets.append(at_least("2,000 sessions, to 200", fast[2_000] / fast[200], 0.85))
    settings = {"durability": "full", "encoding": "o200k_base", "rounds": ROUNDS}
    publish(Report("turns", settings, tables, targets), options.json)


if __name__ == "__main__":
    asyncio.run(main())
