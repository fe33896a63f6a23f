"""What importing and opening cost: CPU time of fresh interpreters.

The floor of the import is a process that imports the same dependencies and nothing of
interturn. tiktoken and its vocabulary must not be among what the import loads. Opening is
timed on a new database, and on the one that `activation` makes if it is named.

Run with ``python benchmarks/start.py [--json FILE]``. Variants take turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Final

from harness import Report, Row, Table, at_most, parser, publish

ROUNDS: Final = 15
_TIMED: Final = """
import time, json, sys
started = time.process_time()
{}
print(json.dumps([time.process_time() - started, "tiktoken" in sys.modules, len(sys.modules)]))
"""
_FLOOR: Final = (
    "import asyncio, aiosqlite, anyio, anyio.to_thread, msgspec, snowballstemmer, structlog\n"
    "import cryptography.hazmat.primitives.ciphers.aead, cryptography.hazmat.primitives.kdf.hkdf"
)
_OURS: Final = f"{_FLOOR}\nimport interturn.runtime"


def run(code: str) -> tuple[float, bool, int]:
    """Return CPU seconds of the code, whether it loaded tiktoken, and how many modules."""
    done = subprocess.run(  # noqa: S603 - this very interpreter, on code of ours
        [sys.executable, "-c", _TIMED.format(code)], check=True, capture_output=True, text=True
    )
    seconds, tokens, modules = json.loads(done.stdout)
    return seconds, tokens, modules


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    variants = {"dependencies alone": _FLOOR, "interturn.runtime too": _OURS}
    runs: dict[str, list[tuple[float, bool, int]]] = {name: [] for name in variants}
    for _ in range(3 if options.quick else ROUNDS):
        for name, code in variants.items():
            runs[name].append(run(code))
    cpu = {
        name: statistics.median(seconds for seconds, _, _ in found) * 1e3
        for name, found in runs.items()
    }
    rows = [
        Row(
            name,
            {
                "CPU ms": cpu[name],
                "modules": found[0][2],
                "tiktoken": "loaded" if found[0][1] else "not loaded",
            },
        )
        for name, found in runs.items()
    ]
    floor, ours = cpu.values()
    targets = [
        at_most("import: CPU ms beyond the dependencies", ours - floor, 60),
        at_most(
            "import: runs that loaded tiktoken",
            sum(found[1] for found in runs["interturn.runtime too"]),
            0,
        ),
    ]
    publish(Report("start", {}, [Table("Importing", rows, chart="CPU ms")], targets), options.json)


if __name__ == "__main__":
    main()
