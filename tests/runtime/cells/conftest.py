"""A house for cells alone: a nursery for tasks, a list for a disk, on asyncio and on trio."""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from interturn.actors.commands import Answer, TurnRecorded
from interturn.actors.errors import CustomerMismatch
from interturn.actors.extractive import Extractive
from interturn.actors.message import Message
from interturn.actors.session import Limits, SessionActor
from interturn.runtime.cell import Cell
from interturn.runtime.errors import MailboxFull, StoreFailed


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Owner:
    """Whose a session is: enough of what the runtime keeps for a cell."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def check(self, claim) -> None:
        if claim is not None and claim != self.name:
            raise CustomerMismatch

    new = None

    @property
    def customer(self):
        return self

    @property
    def customer_id(self):
        return self.name or None


class House:
    """What a cell needs, with a list for a disk and tasks in a nursery."""

    def __init__(self, nursery, counter, mailbox: int = 1_000) -> None:
        self.nursery = nursery
        self.counter = counter
        self.mailbox = mailbox
        self.disk: list[Message] = []
        self.deliveries: dict[bytes, int] = {}
        self.time = 0.0
        self.tick = 0.0
        self.counts: Counter[str] = Counter()
        self.refusals: list[Exception] = []
        self.failures: list[StoreFailed] = []
        self.rest_s: float | None = None
        self.owner = Owner()
        self.cell = Cell("s", self)
        self.pause = anyio.lowlevel.checkpoint  # what everything that takes time takes

    def token(self, session_id) -> str:
        return "x"

    def admit(self, cell, command) -> None:
        if cell.waiting >= self.mailbox and not isinstance(command, Answer):
            raise MailboxFull(cell.key, cell.waiting, self.mailbox)
        self.counts["accepted"] += 1

    def answered(self, *, failed, late, duplicate=False) -> None:
        self.counts["failed" if failed else "replied"] += 1
        self.counts["duplicates"] += duplicate

    def queued(self, change) -> None:
        self.counts["queued"] += change

    def now(self) -> float:
        self.time += self.tick
        return self.time

    def utc(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def go_on(self, cell) -> None:
        self.counts["went on"] += 1
        self.nursery.start_soon(self._pump, cell)

    def activate(self, cell) -> None:
        self.counts["activations"] += 1
        self.nursery.start_soon(self._activate, cell)

    def persist(self, cell, letter, what) -> None:
        self.nursery.start_soon(self._persist, cell, letter, what)

    def changed(self, cell) -> None:
        self.counts["changed"] += 1

    def freed(self) -> None:
        self.counts["freed"] += 1

    def fold_failed(self, cell) -> None:
        raise AssertionError("no fold fails in this house")

    def waits(self, cell, ticket) -> None:
        self.counts["waits"] += 1

    def failing(self, cell, error):
        cell.failed_at += (self.time,)
        return self.rest_s

    def gone(self, cell) -> None:
        self.counts["gone"] += 1

    async def _pump(self, cell) -> None:
        await self.pause()
        cell.pump()

    async def _activate(self, cell) -> None:
        await self.pause()
        if self.refusals:
            error = self.refusals.pop()
            cell.refused(lambda: error, self.rest_s)
            return
        actor = SessionActor(Limits(), self.counter, Extractive(self.counter))
        actor.restore(None, self.disk, self.deliveries.items())
        cell.arrived(actor, self.owner)

    async def _persist(self, cell, letter, turn) -> None:
        for _ in range(2):
            await self.pause()
        if self.failures and (failure := self.failures.pop()) is not None:
            if failure.unknown and len(turn.visitor) % 2:
                self._write(turn)
            cell.unsettled(letter, turn, failure)
            return
        if turn.delivery in self.deliveries and turn.delivery is not None:
            cell.settled(letter, turn, self.deliveries[turn.delivery], None)
            return
        cell.settled(letter, turn, None, TurnRecorded(turn, self._write(turn)))

    def _write(self, turn):
        messages = (
            Message(turn.seq, "visitor", turn.visitor, turn.at, 1),
            Message(turn.seq + 1, "agent", turn.agent, turn.at, 1),
        )
        assert turn.seq == len(self.disk) + 1, "a turn doesn't follow the newest"
        self.disk.extend(messages)
        if turn.delivery is not None:
            self.deliveries[turn.delivery] = turn.seq
        return messages

    @property
    def said(self) -> list[str]:
        return [message.text for message in self.disk if message.role == "visitor"]


@pytest.fixture
def home(counter):
    """Make a house to live in; leaving it waits for its tasks."""

    @asynccontextmanager
    async def make(**given):
        async with anyio.create_task_group() as nursery:
            yield House(nursery, counter, **given)

    return make
