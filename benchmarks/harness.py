"""What every benchmark shares: latencies, the machine's state, tables, targets and JSON.

Latencies go into HDR histograms (three significant digits), so a stall counts and the
tail isn't averaged away. Times are comparable only within one run on one machine, so
what is promised is a ratio to a floor: plain code that does the same work, measured in
the same run, in turns with what it is compared to.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from hdrh.histogram import HdrHistogram

VERSIONED: Final = ("anyio", "msgspec", "cryptography", "tiktoken", "aiosqlite")
_LONGEST_NS: Final = 600 * 10**9
_PROBES: Final = 40


class Latencies:
    """How long something took, many times over."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_NS, 3)

    def add(self, seconds: float) -> None:
        """Count one more."""
        self._histogram.record_value(max(1, min(_LONGEST_NS, int(seconds * 1e9))))

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._histogram.get_total_count())

    def us(self, percentile: float) -> float:
        """Return the latency in µs that this percentage of them don't exceed."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e3

    @property
    def cells(self) -> dict[str, float]:
        """The columns that every table of latencies has."""
        return {
            "p50 µs": self.us(50),
            "p95 µs": self.us(95),
            "p99 µs": self.us(99),
            "max µs": self.us(100),
        }


class Row(msgspec.Struct):
    """One line of a table: a name, and figures by column."""

    name: str
    cells: dict[str, float | str | None]


class Table(msgspec.Struct):
    """Figures that belong beside each other.

    Attributes:
        chart: the column that a chart of this table shows, None for no chart.
    """

    title: str
    rows: list[Row]
    chart: str | None = None
    note: str = ""


class Target(msgspec.Struct):
    """What a ratio must reach."""

    name: str
    value: float
    sense: Literal["at least", "at most"]
    bound: float

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.value >= self.bound if self.sense == "at least" else self.value <= self.bound


class Report(msgspec.Struct):
    """What a benchmark found, with what one has to know to read it."""

    benchmark: str
    settings: dict[str, str | int | float]
    tables: list[Table]
    targets: list[Target]
    machine: dict[str, str | int | float] = {}


def at_least(name: str, value: float, bound: float) -> Target:
    """Return a target that a ratio must not fall below."""
    return Target(name, value, "at least", bound)


def at_most(name: str, value: float, bound: float) -> Target:
    """Return a target that a ratio must not exceed."""
    return Target(name, value, "at most", bound)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, more noise")
    return parser


def publish(report: Report, to: Path | None) -> None:
    """Print a report, and write it as JSON where that is asked for."""
    report.machine = machine()
    print("  ".join(f"{name} {value}" for name, value in report.machine.items()))
    if report.settings:
        print("  ".join(f"{name}={value}" for name, value in report.settings.items()))
    for table in report.tables:
        print(f"\n{table.title}")
        _print_rows(table.rows)
        if table.note:
            print(table.note)
    if report.targets:
        print()
    for target in report.targets:
        verdict = "holds" if target.holds else "MISSED"
        print(f"{verdict:6} {target.name}: {target.value:.2f} ({target.sense} {target.bound:g})")
    if to is not None:
        to.write_bytes(msgspec.json.format(msgspec.json.encode(report)))


def _print_rows(rows: Sequence[Row]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    lines = [["", *columns]]
    lines += [[row.name, *(_figure(row.cells.get(column)) for column in columns)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def _figure(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    small = 100
    return f"{value:,.0f}" if value >= small or value == int(value) else f"{value:.3g}"


def machine() -> dict[str, str | int | float]:
    """Return what figures depend on beside the code."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONED}
    return {
        "cpus": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 2),
        "fdatasync_ms": round(fdatasync_ms(), 2),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **versions,
    }


def handles() -> int:
    """Return how many files and sockets the process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def fdatasync_ms() -> float:
    """Return the median time that the disk takes to sync 4 kB, in ms."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(_PROBES):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno()) if sys.platform == "linux" else os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def in_turns(rounds: int, *tasks: Callable[[], None]) -> None:
    """Run the tasks one after the other, and over again, so that all meet the same noise."""
    for _ in range(rounds):
        for task in tasks:
            task()


def timed(latencies: Latencies, calls: Iterable[Callable[[], object]]) -> None:
    """Time each call."""
    clock = time.perf_counter
    for call in calls:
        started = clock()
        call()
        latencies.add(clock() - started)
