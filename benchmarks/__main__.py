"""All benchmarks, each in a process of its own: ``python -m benchmarks [NAME …]``.

Each is a script as well: ``python benchmarks/NAME.py --help`` tells its own options.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
NAMES: Final = ("assembly", "turns", "activation", "idle", "start")
"""In the order in which they run; `recall` besides where its data is named."""


def main() -> int:
    """Run those that are named, or all, and return how many failed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write NAME.json there")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, more noise")
    parser.add_argument("--data", type=Path, help="the conversations for recall, which runs then")
    options = parser.parse_args()
    if unknown := set(options.names).difference(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    failed = 0
    for name in options.names or NAMES:
        arguments = ["--quick"] if options.quick else []
        if options.json is not None:
            options.json.mkdir(parents=True, exist_ok=True)
            arguments += ["--json", str(options.json / f"{name}.json")]
        failed += run(name, *arguments)
    if options.data is not None:
        failed += run("recall", str(options.data))
    return failed


def run(name: str, *arguments: str) -> bool:
    """Run one benchmark; return whether it failed."""
    print(f"\n== {name}", flush=True)
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    return subprocess.run(command, check=False).returncode != 0  # noqa: S603 - our own script


if __name__ == "__main__":
    sys.exit(main())
