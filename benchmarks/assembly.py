"""What assembling a request costs, beside copying its messages, and with facts to choose from.

The floor copies twelve messages into dicts. ``assemble`` is called on a session in memory,
with a text it never saw, whose tokens needn't be counted: where a request is sure to fit,
`tokens` and `receipt` are worked out when they are first asked for. What that costs is
shown beside it. Under load, the calls of one session are timed while 2,000 others take
turns.

Run with ``python benchmarks/assembly.py [--quick] [--json FILE]``. Variants take turns.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness import Latencies, Report, Row, Table, at_most, parser, publish
from silent import Silent
from texts import INSTRUCTIONS, replied, said

from interturn.runtime import Keyring, Runtime, Session
from interturn.runtime.cell import Cell

WINDOW_TURNS: Final = 6
FACTS: Final = (0, 200, 500)
BUSY: Final = 2_000
MOVED: Final = (
    "Tengo una bicicleta {} de color {}",
    "Mi prima {} vive en {}",
    "El {} de cada mes voy a {}",
    "Compré un casco {} para {}",
    "Me gusta ir en tren a {} con {}",
)
WORDS: Final = (
    *("Vigo", "Toledo", "verde", "azul", "Lucía", "Marcos", "lunes", "martes", "montaña"),
    *("carretera", "Bilbao", "Cádiz", "rojo", "infantil", "plegable", "Elena", "Andrés", "viernes"),
)


def notes(count: int) -> Iterator[str]:
    """Yield statements about a customer, each another."""
    pairs = itertools.permutations(WORDS, 2)
    for number, (one, other) in zip(range(count), pairs, strict=False):
        yield MOVED[number % len(MOVED)].format(one, other) + f" desde {1990 + number % 30}"


async def filled(runtime: Runtime, facts: int) -> Session:
    """Return a session with a full window, of a customer with so many facts."""
    customer = f"customer-{facts}"
    for note in notes(facts):
        await runtime.customer(customer).remember(note)
    session = runtime.session(f"session-{facts}", customer=customer)
    for text, reply in zip(said(facts), replied(facts), strict=False):
        await session.record(text, reply)
        if (await session.layers()).window[-1].seq >= 2 * WINDOW_TURNS:
            break
    return session


async def compared(sessions: dict[int, Session], calls: int) -> dict[str, Latencies]:
    """Time the floor and each session's calls, one of each in turn."""
    clock = time.perf_counter
    window = (await sessions[0].layers()).window
    found: defaultdict[str, Latencies] = defaultdict(Latencies)

    def add(name: str, started: float) -> None:
        seconds = clock() - started
        found[name].add(seconds)

    for text in itertools.islice(said(10_000), calls):
        started = clock()
        messages = [{"role": message.role, "content": message.text} for message in window]
        add("floor: copy 12 messages", started)
        assert len(messages) == 2 * WINDOW_TURNS
        for facts, session in sessions.items():
            name = f"assemble, {facts} facts" if facts else "assemble"
            started = clock()
            request = await session.assemble(text, instructions=INSTRUCTIONS)
            add(name, started)
            started = clock()
            assert request.tokens
            add(f"{name}: then count its tokens", started)
    return found


async def under_load(runtime: Runtime, session: Session, busy: int, seconds: float) -> Latencies:
    """Time calls of one session while others take turns as fast as they can."""
    latencies = Latencies()
    ending = False

    async def other(number: int) -> None:
        mine = runtime.session(f"busy-{number}", customer=f"busy-{number}")
        for text, reply in zip(said(number), replied(number), strict=False):
            async with mine.turn(text, instructions=INSTRUCTIONS) as turn:
                await turn.reply(reply)
            if ending:
                return

    others = [asyncio.create_task(other(number)) for number in range(busy)]
    until = time.perf_counter() + seconds
    for text in said(20_000):
        await asyncio.sleep(0)
        started = time.perf_counter()
        await session.assemble(text, instructions=INSTRUCTIONS)
        latencies.add(time.perf_counter() - started)
        if time.perf_counter() > until:
            break
    ending = True
    await asyncio.gather(*others)
    return latencies


class Plain:
    """What an actor is compared with."""

    def __init__(self) -> None:
        self.seen = 0

    def look(self, _: object) -> int:
        """Be called."""
        self.seen += 1
        return self.seen


async def message(runtime: Runtime, calls: int) -> dict[str, Latencies]:
    """Time an uncontended message to an idle actor, and a plain call of a method."""
    inside = runtime._inside  # noqa: SLF001
    assert inside is not None
    cell: Cell = inside.cell("session-0")
    plain = Plain()
    batch = 100
    found = {"plain method call": Latencies(), "message to an idle actor": Latencies()}
    for _ in range(calls):
        started = time.perf_counter()
        for _ in range(batch):
            plain.look(cell)
        found["plain method call"].add((time.perf_counter() - started) / batch)
        started = time.perf_counter()
        for _ in range(batch):
            cell.look(plain.look)
        found["message to an idle actor"].add((time.perf_counter() - started) / batch)
    return found


def rows(found: dict[str, Latencies]) -> list[Row]:
    """Return a row for each, beside the first."""
    floor = next(iter(found.values())).us(50)
    return [
        Row(name, {**latencies.cells, "to floor": latencies.us(50) / floor})
        for name, latencies in found.items()
    ]


async def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    calls, busy, seconds = (200, 200, 2.0) if options.quick else (2_000, BUSY, 15.0)
    with tempfile.TemporaryDirectory() as folder:
        opened = Runtime.open(
            Path(folder) / "assembly.db", keyring=Keyring.generate(), deriver=Silent()
        )
        async with opened as runtime:
            sessions = {facts: await filled(runtime, facts) for facts in FACTS}
            await runtime.flush()
            alone = await compared(sessions, calls)
            spoken = await message(runtime, calls)
            loaded = await under_load(runtime, sessions[0], busy, seconds)
    floor = alone["floor: copy 12 messages"].us(50)
    asked, plain = spoken["message to an idle actor"].us(50), spoken["plain method call"].us(50)
    targets = [
        at_most("assemble, to copying 12 messages", alone["assemble"].us(50) / floor, 10),
        at_most(
            "assemble with 200 facts, to that", alone["assemble, 200 facts"].us(50) / floor, 40
        ),
        at_most("under load, p99 to p50", loaded.us(99) / loaded.us(50), 20),
        at_most("message to an idle actor, to a method call", asked / plain, 10),
    ]
    tables = [
        Table("One request, nothing else running", rows(alone), chart="p50 µs"),
        Table(f"While {busy:,} sessions take turns", rows({"assemble": loaded})),
        Table("A message (mean of 100 at a time)", rows(spoken)),
    ]
    settings: dict[str, str | int | float] = {"calls": calls, "encoding": "o200k_base"}
    publish(Report("assembly", settings, tables, targets), options.json)


if __name__ == "__main__":
    asyncio.run(main())
