"""One cell under many orders of events: 200 seeds of trio's scheduler in virtual time.

trio chooses at random which of the tasks that can run runs next; seeded, its choice can
be made again. Pauses and deadlines take virtual time there, so seconds pass at once. The
same visits come on asyncio, plain and with uvloop, where only the visitors are random.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from itertools import count

import anyio
import anyio.lowlevel
import pytest
import trio.testing
from trio._core import _run  # its scheduler takes a seed by no public door

from interturn.actors.commands import Answer, Record, Release, Take
from interturn.actors.errors import TurnClosed
from interturn.runtime.cell import Phase
from interturn.runtime.errors import MailboxFull, Quarantined, StoreFailed
from interturn.runtime.letter import Look

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
LOOPS = {
    "trio": range(200),
    "asyncio": range(20),
    "uvloop": range(20),
}
SENDERS = 5
VISITS = 8


@pytest.fixture(
    params=[(loop, seed) for loop, seeds in LOOPS.items() for seed in seeds],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def seeded(request):
    """The loop and the seed of this run."""
    return request.param


@pytest.fixture
def anyio_backend(seeded):
    """Run on that loop: trio with a clock that jumps to whatever comes next."""
    loop, seed = seeded
    if loop == "trio":
        _run._ALLOW_DETERMINISTIC_SCHEDULING = True
        _run._r.seed(seed)
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return "asyncio", {"use_uvloop": loop == "uvloop"}


class Crowd:
    """Senders of one cell, each with one message after the other, and what they were told."""

    def __init__(self, house, seed: int, *, virtual: bool) -> None:
        self.house = house
        self.chance = random.Random(seed)
        self.virtual = virtual
        self.tickets = count(1)
        self.told: defaultdict[int, list[str]] = defaultdict(list)

    async def pause(self) -> None:
        """Take a while: seconds where they cost nothing, a turn of the loop elsewhere."""
        if self.virtual:
            await anyio.sleep(self.chance.choice((0, 0, 0.5, 3)))
        else:
            await anyio.lowlevel.checkpoint()

    async def sender(self, number: int) -> None:
        for visit in range(VISITS):
            name = f"{number}/{visit}" + "x" * (visit % 2)
            try:
                await self._visit(number, name)
            except (StoreFailed, TurnClosed, MailboxFull, Quarantined):
                await self.pause()

    async def _visit(self, number: int, name: str) -> None:
        cell = self.house.cell
        match self.chance.randrange(5):
            case 0:
                assert await self._answer(cell.ask(Look(lambda cell: cell.actor.last))) >= 0
            case 1 | 2:
                await self._answer(cell.ask(Record(name, "r", NOON, None)))
                self.told[number].append(name)
            case _:
                ticket = next(self.tickets)
                try:
                    await self._answer(cell.ask(Take(ticket)))
                    await self.pause()
                    if self.chance.random() < 0.7:
                        await self._answer(cell.ask(Answer(ticket, name, "r", NOON)))
                        self.told[number].append(name)
                finally:
                    cell.tell(Release(ticket))

    async def _answer(self, letter):
        """Wait for an answer as callers do, who may have a deadline or be cancelled."""
        patience = self.chance.choice((1.0, 10.0, None)) if self.virtual else None
        leaves = not self.virtual and self.chance.random() < 0.2
        with anyio.move_on_after(patience) as scope:
            if leaves:
                scope.cancel()
            return await letter.promise.wait()
        if not letter.promise.done:
            if self.house.cell.withdraw(letter, StoreFailed("left")):
                self.house.counts["withdrawn"] += 1
            else:
                letter.abandoned = True
        raise StoreFailed("left")


async def test_every_message_ends_whatever_the_order(home, seeded):
    """Each message ends, none is lost or doubled, and each sender's stand in their order."""
    loop, seed = seeded
    async with home(mailbox=12) as house:
        crowd = Crowd(house, seed, virtual=loop == "trio")
        house.pause = crowd.pause
        async with anyio.create_task_group() as senders:
            for number in range(SENDERS):
                senders.start_soon(crowd.sender, number)
            for _ in range(6):
                await crowd.pause()
                if crowd.chance.random() < 0.5:
                    unknown = crowd.chance.random() < 0.5
                    house.failures.append(StoreFailed("disk", unknown=unknown))
                if crowd.chance.random() < 0.3:
                    house.refusals.append(StoreFailed("disk"))
                if house.cell.idle:
                    house.cell.leave()
        while house.cell.phase is Phase.ACTIVATING or house.cell.in_flight:
            await crowd.pause()
    counts, said = house.counts, house.said
    assert counts["accepted"] == counts["replied"] + counts["failed"] + counts["withdrawn"]
    assert counts["queued"] == 0
    assert house.cell.held is None
    assert len(said) == len(set(said)), "a turn is doubled"
    for number, told in crowd.told.items():
        kept = [text for text in said if text.startswith(f"{number}/")]
        assert [text for text in kept if text in told] == told, "a turn is lost or out of order"
