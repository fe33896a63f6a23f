"""A crowd at one cell, under many seeds: every message ends, and every turn is whole."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import count

import anyio
import anyio.lowlevel
import pytest
from trio._core import _run  # its scheduler takes a seed by no public door

from interturn.actors.commands import Answer, Record, Release, Take
from interturn.actors.errors import TurnClosed
from interturn.runtime.cell import Phase
from interturn.runtime.errors import MailboxFull, StoreFailed
from interturn.runtime.letter import Look

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)


def _record(text):
    return Record(text, "r", NOON, None)


def _answer(ticket, text):
    return Answer(ticket, text, "r", NOON)


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_comes_every_message_ends(  # noqa: C901, PLR0915 - a crowd does many things
    home, seed, anyio_backend
):
    """A random crowd with failing writes and readings: each message ends, each turn is whole."""
    if anyio_backend == "trio":
        _run._r.seed(seed)
    chance = random.Random(seed)
    tickets = count(1)
    acknowledged: list[str] = []

    async def visit(house, name):
        await anyio.lowlevel.checkpoint()
        cell = house.cell
        try:
            match chance.randrange(5):
                case 0:
                    await cell.ask(Look(lambda cell: cell.actor.last)).promise.wait()
                case 1:
                    await cell.ask(_record(name)).promise.wait()
                    acknowledged.append(name)
                case 2:
                    letter = cell.ask(_record(name))
                    for _ in range(chance.randrange(4)):
                        await anyio.lowlevel.checkpoint()
                    if not letter.promise.done and cell.withdraw(letter, StoreFailed("left")):
                        house.counts["withdrawn"] += 1
                case _:
                    ticket = next(tickets)
                    await cell.ask(Take(ticket)).promise.wait()
                    assert cell.held == ticket or cell.held is None
                    try:
                        for _ in range(chance.randrange(3)):
                            await anyio.lowlevel.checkpoint()
                        if chance.random() < 0.7:
                            await cell.ask(_answer(ticket, name)).promise.wait()
                            acknowledged.append(name)
                    finally:
                        cell.tell(Release(ticket))
        except (StoreFailed, TurnClosed, MailboxFull):
            pass

    async with home(mailbox=12) as house:
        for round_ in range(5):
            if chance.random() < 0.5:
                house.failures.append(StoreFailed("disk", unknown=chance.random() < 0.5))
            if chance.random() < 0.3:
                house.refusals.append(StoreFailed("disk"))
            async with anyio.create_task_group() as crowd:
                for number in range(10):
                    crowd.start_soon(visit, house, f"{round_}/{number}" + "x" * (number % 2))
            if house.cell.idle and chance.random() < 0.5:
                house.cell.leave()
        while house.cell.phase is Phase.ACTIVATING or house.cell.in_flight:
            await anyio.lowlevel.checkpoint()
        counts = house.counts
        assert counts["accepted"] == counts["replied"] + counts["failed"] + counts["withdrawn"]
        assert counts["queued"] == 0
        assert house.cell.held is None
        assert len(house.said) == len(set(house.said))
        assert set(acknowledged) <= set(house.said)
