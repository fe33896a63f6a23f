"""What a query over many facts costs, alone and within `session.assemble`."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from data import Customer, Turn
from labelled import Remember, record

from interturn.actors.retrieval import FactIndex
from interturn.runtime import Keyring, Runtime

FACTS = 500  # the most a customer has by default
_SAID = "Hola, ¿qué tal?"  # no fact, and no summary worth the name
_UPDATES = 50


class Query(NamedTuple):
    """Medians in µs: of a query asked first, and again; of a fact more in the index."""

    facts: int
    first: float
    again: float
    update: float


def _turns(customers: Sequence[Customer]) -> list[Turn]:
    return [
        turn._replace(source=(f"{number}/{turn.source[0]}", turn.source[1]))
        for number, customer in enumerate(customers)
        for turn in customer.turns
    ]


def query_us(customers: Sequence[Customer], remember: Remember) -> Query:
    """Measure a query over `FACTS` facts, and an update.

    Each query is asked twice: the second time its words are known, as those of a
    conversation are after a while.
    """
    facts = remember(_turns(customers))[:FACTS]
    index = FactIndex.of(facts)
    queries = [question.text for customer in customers[:2] for question in customer.questions]

    def timed() -> float:
        times = []
        for query in queries:
            started = time.perf_counter()
            index.rank(query, limit=20)
            times.append(time.perf_counter() - started)
        return statistics.median(times) * 1e6

    first, again = timed(), timed()
    updates = []
    for number in range(_UPDATES):
        new = msgspec.structs.replace(
            facts[-1], id=f"new{number}", text=f"I sold boat {number} to a friend."
        )
        started = time.perf_counter()
        index.updated((*facts, new))
        updates.append(time.perf_counter() - started)
    return Query(len(facts), first, again, statistics.median(updates) * 1e6)


class Assembling(NamedTuple):
    """Median µs of assembling without facts and with them, and how many there were."""

    without: float
    having: float
    facts: int


async def assembling_us(customers: Sequence[Customer]) -> Assembling:
    """Measure `session.assemble` on an active session, a fresh query each time.

    One customer was recorded until `FACTS` facts were held, the other has none; both
    sessions hold the same full window. The two take turns, in one run.
    """
    queries = [question.text for customer in customers for question in customer.questions]
    with tempfile.TemporaryDirectory() as folder:
        async with Runtime.open(Path(folder) / "costs.db", keyring=Keyring.generate()) as runtime:
            full = runtime.customer("full")
            turns = iter(_turns(customers))
            while len(await full.facts()) < FACTS and (more := list(itertools.islice(turns, 100))):
                await record(runtime, "full", more)
                await runtime.flush()
            sessions = {
                name: runtime.session(f"active {name}", customer=name) for name in ("none", "full")
            }
            for session in sessions.values():
                for _ in range(6):
                    await session.record(_SAID, _SAID)
            await runtime.flush()
            times: dict[str, list[float]] = {name: [] for name in sessions}
            for query in queries:
                for name, session in sessions.items():
                    started = time.perf_counter()
                    await session.assemble(query)
                    times[name].append(time.perf_counter() - started)
            assert not await runtime.customer("none").facts()
            count = len(await full.facts())
    none, having = (statistics.median(times[name]) * 1e6 for name in ("none", "full"))
    return Assembling(none, having, count)
