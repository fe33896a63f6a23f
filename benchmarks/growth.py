"""What a turn and an assembly cost as one conversation grows: they should not grow with it.

Run with ``python benchmarks/growth.py [--turns 10000]``. Prints the median time of
a turn and of an assembly early and late in one session, and late over early, all
from one run: figures of other runs or machines don't compare.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from interturn.runtime import Keyring, Runtime

VISITOR = "Hola, quería saber si el pedido {} sale el martes, porque el jueves salgo de viaje."
AGENT = "El pedido {} sale el martes y le llega el miércoles por la tarde, entre cinco y ocho."


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10_000, help="turns of the session")
    turns: int = parser.parse_args().turns
    span = min(100, turns // 4)
    turn_s: list[float] = []
    assemble_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "growth.db"
        async with Runtime.open(path, keyring=Keyring.generate()) as runtime:
            session = runtime.session("one")
            for number in range(turns):
                started = time.perf_counter()
                await session.assemble(VISITOR.format(number))
                assembled = time.perf_counter()
                async with session.turn(VISITOR.format(number)) as turn:
                    await turn.reply(AGENT.format(number))
                turn_s.append(time.perf_counter() - assembled)
                assemble_s.append(assembled - started)
                await runtime.flush()
        size = path.stat().st_size
    print(f"{'':10} {'turn 20':>12} {f'turn {turns:,}':>14} {'late/early':>11}")
    for name, times in (("assemble", assemble_s), ("turn", turn_s)):
        early = statistics.median(times[20 : 20 + span]) * 1e6
        late = statistics.median(times[-span:]) * 1e6
        print(f"{name:10} {early:>9,.0f} µs {late:>11,.0f} µs {late / early:>11.2f}")
    print(f"database: {size / turns:,.0f} bytes a turn")


if __name__ == "__main__":
    asyncio.run(main())
