"""What one session, customer or chore costs the others: it should be next to nothing.

Run with ``python benchmarks/fairness.py``. Eight visitors of other customers hold turns
one after another, by turns with a disturbance and without it, in one run on one
database. Printed are the median and the 99th percentile of their turns' time as ratios
of the two, the longest turn of each, and the longest that the event loop was held up.
Figures of other runs or machines don't compare; ratios do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from interturn.actors import Message
from interturn.runtime import Keyring, Runtime, Settings

VISITORS: Final = 8
TURNS: Final = 25  # of each visitor, with the disturbance and without, in each round
PAUSE_S: Final = 0.04  # at most, between a visitor's turns
STUCK: Final = "atascado"
VISITOR: Final = "Hola, quería saber si el pedido {} sale el martes, porque el jueves viajo."
AGENT: Final = (
    "El pedido {} sale el martes y le llega el miércoles por la tarde, entre cinco y ocho."
)
PAGE: Final = (
    "Vivo en Sevilla y el pedido va a la calle Betis. Tengo dos hijas. El vino no me gusta. "
)
LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)

Disturbance = Callable[[Runtime, int], Awaitable[Callable[[], Awaitable[object]]]]
"""Prepares itself for a round, undisturbed; what it returns is the disturbance."""


class Hanging:
    """A summarizer that hangs where the stuck session's words leave, and is quick elsewhere."""

    async def fold(self, summary: str, leaving: Sequence[Message], *, cap_tokens: int) -> str:
        """Return the first words that leave, or nothing for ever."""
        del summary, cap_tokens
        if STUCK in leaving[0].text:
            await asyncio.Event().wait()
        return leaving[0].text[:80]


class Span(NamedTuple):
    """Turn times in seconds, and the longest that the loop was held up."""

    turns: list[float]
    stall: float


async def flood(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """One session gets turns from 32 at once, without end."""

    async def one() -> None:
        while True:
            await hold(runtime, f"flood{number}", "c", VISITOR, AGENT)

    return lambda: forever(one, 32)


async def hanging(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """One session's summarizer hangs, while its turns go on."""

    async def one() -> None:
        while True:
            await hold(runtime, f"stuck{number}", "c", f"{STUCK} {VISITOR}", AGENT)

    return lambda: forever(one, 1)


async def paste(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """One session gets, keeps and assembles texts of 1 MB."""
    text = (PAGE * (1_000_000 // len(PAGE)))[:1_000_000]

    async def one() -> None:
        while True:
            await hold(runtime, f"paste{number}", "c", text, text, budget=10_000_000)
            await runtime.session(f"paste{number}").assemble("¿Qué dice?")

    return lambda: forever(one, 1)


async def facts(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """One customer has 500 facts, and says 50 kB of what is derived."""
    del number
    customer = runtime.customer("full")
    if not await customer.facts():
        await asyncio.gather(
            *(
                customer.remember(f"Guarda {n} libros en la caja {n}.", slot=f"s{n}")
                for n in range(500)
            )
        )
    text = PAGE * (50_000 // len(PAGE))

    async def one() -> None:
        while True:
            await hold(runtime, "full", "full", text, AGENT, budget=1_000_000)
            await runtime.session("full", customer="full").assemble("¿Cuántos libros guarda?")

    return lambda: forever(one, 1)


async def forgetting(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """A customer with 100 sessions of 100 messages is forgotten."""
    customer = f"gone{number}"
    await asyncio.gather(*(fill(runtime, f"{customer}/{n}", customer, 50) for n in range(100)))
    await runtime.flush()
    return runtime.customer(customer).forget


async def pruning(runtime: Runtime, number: int) -> Callable[[], Awaitable[object]]:
    """What is old goes, most of the database, and the space is given back."""
    await asyncio.gather(
        *(fill(runtime, f"old{number}/{n}", f"old{n}", 200, at=LONG_AGO) for n in range(50))
    )
    await runtime.flush()
    return runtime.prune


DISTURBANCES: Final[dict[str, Disturbance]] = {
    "a flood of turns": flood,
    "a hanging summarizer": hanging,
    "texts of 1 MB": paste,
    "500 facts, 50 kB said": facts,
    "a forget of 10,000": forgetting,
    "a prune of 20,000": pruning,
}


async def hold(
    runtime: Runtime, session: str, customer: str, said: str, told: str, budget: int | None = None
) -> None:
    """Hold a turn."""
    async with runtime.session(session, customer=customer).turn(said, budget=budget) as turn:
        await turn.reply(told)


async def fill(
    runtime: Runtime, session: str, customer: str, turns: int, at: datetime | None = None
) -> None:
    """Record turns, a minute each."""
    for number in range(turns):
        when = at and at + timedelta(minutes=number)
        await runtime.session(session, customer=customer).record(
            VISITOR.format(number), 4 * AGENT.format(number), at=when
        )


async def forever(work: Callable[[], Awaitable[None]], times: int) -> None:
    """Do it in so many tasks, until cancelled."""
    await asyncio.gather(*(work() for _ in range(times)))


@asynccontextmanager
async def going_on(
    work: Callable[[], Awaitable[object]] | None,
) -> AsyncIterator[asyncio.Task | None]:
    """Let work go on meanwhile. What ends by itself is awaited, what doesn't is cancelled."""
    if work is None:
        yield None
        return
    task = asyncio.ensure_future(work())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def span(runtime: Runtime, until: asyncio.Task[object] | None) -> Span:
    """Let the visitors hold their turns, and on until a chore is done."""
    turns: list[float] = []
    stalls = [0.0]
    chance = random.Random(1)  # noqa: S311 - the same pauses each time

    async def visitor(number: int) -> None:
        done = 0
        while done < TURNS or (until is not None and not until.done()):
            started = time.perf_counter()
            await hold(
                runtime, f"v{number}", f"v{number}", VISITOR.format(done), AGENT.format(done)
            )
            turns.append(time.perf_counter() - started)
            done += 1
            # In step they would share every commit, and any ninth visitor would split them.
            await asyncio.sleep(chance.uniform(0, PAUSE_S))

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - before - 0.001)

    async with going_on(watch):
        await asyncio.gather(*(visitor(number) for number in range(VISITORS)))
    return Span(turns, max(stalls))


async def measure(disturbance: Disturbance, rounds: int) -> tuple[Span, Span]:
    """Return the turns without the disturbance and with it, taken by turns in one run."""
    calm, disturbed = Span([], 0.0), Span([], 0.0)
    settings = Settings(retain_days=30)
    with tempfile.TemporaryDirectory() as folder:
        async with Runtime.open(
            Path(folder) / "fairness.db",
            keyring=Keyring.generate(),
            settings=settings,
            summarizer=Hanging() if disturbance is hanging else None,
        ) as runtime:
            await span(runtime, None)  # warm
            for number in range(rounds):
                work = await disturbance(runtime, number)
                found = await span(runtime, None)
                calm = Span(calm.turns + found.turns, max(calm.stall, found.stall))
                async with going_on(work) as task:
                    chore = disturbance in (forgetting, pruning)
                    found = await span(runtime, task if chore else None)
                    if chore and task is not None:
                        await task
                disturbed = Span(disturbed.turns + found.turns, max(disturbed.stall, found.stall))
    return calm, disturbed


def percentiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Return median, 99th percentile and highest, in milliseconds."""
    ordered = sorted(times)
    return (
        statistics.median(ordered) * 1e3,
        ordered[len(ordered) * 99 // 100] * 1e3,
        ordered[-1] * 1e3,
    )


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", help="a disturbance whose name has this in it")
    given = parser.parse_args()
    print(
        f"{'beside':24} {'median':>16} {'ratio':>6} {'p99':>16} {'ratio':>6} {'longest':>16}"
        f" {'loop held up':>15}   (ms, without and with)"
    )
    for name, disturbance in DISTURBANCES.items():
        if given.only and given.only not in name:
            continue
        calm, disturbed = await measure(disturbance, given.rounds)
        before, beside = percentiles(calm.turns), percentiles(disturbed.turns)
        columns = [f"{b:>7,.1f} {d:>8,.1f}" for b, d in zip(before, beside, strict=True)]
        print(
            f"{name:24} {columns[0]} {beside[0] / before[0]:>6.2f}"
            f" {columns[1]} {beside[1] / before[1]:>6.2f} {columns[2]}"
            f" {calm.stall * 1e3:>7,.1f}{disturbed.stall * 1e3:>8,.1f}",
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(main())
