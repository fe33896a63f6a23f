"""The whole runtime against a dictionary: rules in any order, all promises after each.

Turns of many sessions are begun, answered, abandoned and cancelled while others wait;
deliveries come twice; folds and derivations fail and hang; commits are refused, or done
and reported as failed; sessions leave memory, customers are identified, merged and
forgotten; the process "dies", which is to say that the files are opened as they lie
while the first runtime is never closed, and opens again.

The ordinary run makes 22 runs of 100 steps. ``INTERTURN_MACHINE=1000`` makes as many runs
as that says, each time others.
"""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from interturn.actors import FactChange
from interturn.runtime import (
    CustomerMismatch,
    DeliveryConflict,
    InterturnError,
    Keyring,
    Overloaded,
    Runtime,
    Settings,
    StoreFailed,
)
from interturn.runtime.archive import Archive
from interturn.storage import Faulty, SqliteStore

RUNS = int(os.environ.get("INTERTURN_MACHINE", "0"))
WINDOW = 4
SETTINGS = Settings(
    window=WINDOW, active=6, deliveries=2, summary_tokens=50_000, drain_s=5, keep_unanswered=False
)
NAMES = ("uno", "dos", "tres", "cuatro", "cinco")
CUSTOMERS = ("ana", "bea", None)
HELD_AT_MOST = 6
# Drawn the same whatever has happened, since threads may make two runs differ.
PICK = st.integers(0, 59)


Pair = tuple[str, str]


@dataclass
class Conversation:
    """A session as it should be."""

    name: str
    customer: str | None = None
    turns: list[Pair] = field(default_factory=list)
    maybe: list[tuple[Pair, str | None]] = field(default_factory=list)
    deliveries: dict[str, Pair] = field(default_factory=dict)
    cursor: int = 0
    owned: bool = False  # identified, with turns or without

    @property
    def owner(self) -> str:
        """Whose facts it teaches: its customer's, or its anonymous visitor's own."""
        return self.customer or f"anonymous {self.name}"

    def recorded(self, pair: Pair, delivery: str | None) -> None:
        self.turns.append(pair)
        if delivery is not None:
            self.deliveries[delivery] = pair

    def unknown(self, pair: Pair, delivery: str | None) -> None:
        self.maybe.append((pair, delivery))


class Visit:
    """One turn, from asking for it to its end."""

    def __init__(self, runtime, talk: Conversation, text: str, delivery: str | None) -> None:
        self.talk = talk
        self.text = text
        self.delivery = delivery
        self.held = False
        self.replying = False
        self.ended: object = None
        self.answer: str | None = None
        self.told = asyncio.Event()
        self.task = asyncio.create_task(self._run(runtime))

    async def _run(self, runtime) -> None:
        try:
            self.ended = await self._turn(runtime)
        except asyncio.CancelledError as error:
            self._left(error)
            raise
        except InterturnError as error:
            self._left(error)

    async def _turn(self, runtime) -> str:
        session = runtime.session(self.talk.name, customer=self.talk.customer)
        async with session.turn(self.text, delivery_id=self.delivery) as turn:
            self.held = True
            if turn.already is not None:
                return f"already {turn.already.text}"
            await self.told.wait()
            if self.answer is None:
                return "abandoned"
            self.replying = True
            recorded = await turn.reply(self.answer)
            self.replying = False
            if recorded.duplicate:
                return f"already {recorded.reply.text}"
            assert recorded.seq == 2 * len(self.talk.turns) + 1
            self.talk.recorded((self.text, self.answer), self.delivery)
            return "recorded"

    def _left(self, error: BaseException) -> None:
        self.ended = error
        known = isinstance(error, StoreFailed) and not error.unknown
        if self.replying and not known:
            self.talk.unknown((self.text, str(self.answer)), self.delivery)

    def reply(self, answer: str | None) -> None:
        """Answer the turn, or with None abandon it."""
        self.answer = answer
        self.told.set()


class Port:
    """A summarizer and a deriver that work, fail or hang, as ``mode`` says."""

    def __init__(self) -> None:
        self.mode = "work"
        self.gate = asyncio.Event()

    def turn(self, mode: str) -> None:
        """Change how it is from now on; whoever hangs goes on."""
        self.mode = mode
        self.gate.set()
        self.gate = asyncio.Event()

    async def _be(self) -> None:
        if self.mode == "hang":
            await self.gate.wait()
        if self.mode == "fail":
            raise OSError("the model is gone")

    async def fold(self, summary, leaving, *, cap_tokens):
        await self._be()
        return "\n".join(f"Dijo: {m.text}" for m in leaving if m.role == "visitor")

    async def derive(self, turn, known):
        await self._be()
        said = turn[-2].text
        return [FactChange("set", f"said:{said}", said)]


def _picked(values, pick: int):
    return values[pick % len(values)] if values else None


class Machine(RuleBasedStateMachine):
    """See the module's head."""

    helpers = None  # the fixtures' classes, given by the test

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="machine"))
        self.keyring = Keyring.generate()
        self.numbers = count(1)
        self.talks: dict[str, Conversation] = {}
        self.facts: dict[str, set[str]] = {}
        self.untaught: set[str] = set()  # of sessions that went before they were learnt from
        self.visits: list[Visit] = []
        self.copies = count(1)
        self.path = self.folder / "memory.db"
        self.run(self._open())

    def run(self, work):
        return self.runner.run(work)

    # The runtime.

    async def _open(self) -> None:
        helpers = self.helpers
        self.clock = helpers.clock()
        self.port = Port()
        self.store = Faulty(SqliteStore(self.path))
        self.runtime = Runtime.open(
            self.store,
            keyring=self.keyring,
            counter=helpers.counter(),
            summarizer=self.port,
            deriver=self.port,
            settings=SETTINGS,
            clock=self.clock,
        )
        await self.runtime.__aenter__()

    async def _close(self, runtime, clock, port) -> None:
        port.turn("work")
        closing = asyncio.create_task(runtime.close())
        while not closing.done():
            await clock.advance(1)
        await closing

    async def _quiet(self) -> None:
        """Return when nothing is on its way to disk."""
        for _ in range(300_000):
            await asyncio.sleep(0)
            if not self.runtime.statistics().in_flight and not any(
                visit.replying and not visit.task.done() for visit in self.visits
            ):
                break
        else:
            raise AssertionError("something is on its way for ever")
        await self.helpers.settle()

    async def _end_visits(self) -> None:
        for visit in self.visits:
            visit.task.cancel()
        await asyncio.gather(*(visit.task for visit in self.visits), return_exceptions=True)
        await self._quiet()
        self.visits = []

    # Turns.

    def talk(self, name: str, customer: str | None) -> Conversation:
        return self.talks.setdefault(name, Conversation(name, customer))

    def text(self) -> str:
        return f"pedido {next(self.numbers)} para la calle Olmo"

    @rule(
        name=st.sampled_from(NAMES),
        customer=st.sampled_from(CUSTOMERS),
        delivered=st.booleans(),
    )
    def begin(self, name, customer, delivered):
        """Somebody says something: the turn is taken, or waits."""
        if len(self.visits) >= HELD_AT_MOST:
            return
        text = self.text()
        delivery = f"d{text}" if delivered else None

        async def begin():
            self.visits.append(Visit(self.runtime, self.talk(name, customer), text, delivery))
            await self.helpers.settle()

        self.run(begin())

    @rule(pick=PICK, answers=st.booleans())
    def answer(self, pick, answers):
        """A turn is answered, or left without an answer."""
        visit = _picked(self.visits, pick)
        if visit is None:
            return
        visit_answer = f"vale, {visit.text}" if answers else None

        async def answer():
            visit.reply(visit_answer)
            await self.helpers.settle()

        self.run(answer())

    @rule(pick=PICK)
    def cancel(self, pick):
        """The caller of a turn goes away, whether it waits, holds it or has answered."""
        visit = _picked(self.visits, pick)
        if visit is None:
            return

        async def cancel():
            visit.task.cancel()
            await self.helpers.settle()

        self.run(cancel())

    @rule(
        name=st.sampled_from(NAMES), customer=st.sampled_from(CUSTOMERS), turns=st.integers(1, 10)
    )
    def record(self, name, customer, turns):
        """Turns that happened elsewhere are recorded, unless somebody holds the session."""
        talk = self.talk(name, customer)
        if self._taken(talk):
            return

        async def record():
            session = self.runtime.session(name, customer=talk.customer)
            for _ in range(turns):
                pair = (self.text(), "queda anotado")
                delivery = f"r{pair[0]}"
                try:
                    recorded = await session.record(*pair, delivery_id=delivery)
                except StoreFailed as error:
                    if error.unknown:
                        talk.unknown(pair, delivery)
                    return
                except Overloaded:
                    return
                assert recorded.seq == 2 * len(talk.turns) + 1
                talk.recorded(pair, delivery)

        self.run(record())

    @rule(pick=PICK, at_once=st.booleans())
    def deliver_again(self, pick, at_once):
        """What was delivered comes again: the same reply, and nothing is written."""
        # The oldest first, which memory has forgotten.
        known = [
            (talk, delivery)
            for talk in self.talks.values()
            for delivery in talk.deliveries
            if not self._taken(talk) and not talk.maybe
        ]
        if not known:
            return
        talk, delivery = known[pick % len(known)]
        text, reply = talk.deliveries[delivery]

        async def again():
            session = self.runtime.session(talk.name, customer=talk.customer)
            asked = [
                session.record(text, "otra respuesta", delivery_id=delivery)
                for _ in range(2 if at_once else 1)
            ]
            for got in await asyncio.gather(*asked, return_exceptions=True):
                if not isinstance(got, (StoreFailed, Overloaded)):
                    assert got.duplicate
                    assert got.reply.text == reply
            try:
                await session.record("otras palabras", "no", delivery_id=delivery)
            except (DeliveryConflict, StoreFailed, Overloaded):
                return
            raise AssertionError("other words under the same delivery")

        self.run(again())

    def _taken(self, talk: Conversation) -> bool:
        return any(visit.talk is talk for visit in self.visits)

    # What goes wrong.

    @rule(mode=st.sampled_from(["work", "fail", "hang"]))
    def models(self, mode):
        """The models work, fail or hang from now on."""

        async def turn():
            self.port.turn(mode)
            await self.helpers.settle()

        self.run(turn())

    @rule(nth=st.integers(1, 3), applied=st.booleans())
    def disk(self, nth, applied):
        """A commit will be refused, or done and reported as failed."""
        self.store.fail("commit", nth=nth, applied=applied)

    @rule(seconds=st.sampled_from([0.5, 6, 61, 130, 400]), back=st.booleans())
    def wait(self, seconds, back):
        """Time passes: snapshots are due, turns expire, sessions leave memory.

        The wall clock may be set back by an hour meanwhile.
        """
        self.clock.wall -= timedelta(hours=back)
        self.run(self.clock.advance(seconds))

    # What an application does besides.

    @rule(pick=PICK)
    def undo(self, pick):
        """The newest turn is taken back."""
        talk = self._free(pick)
        if talk is None or not talk.turns:
            return

        async def undo():
            try:
                undone = await self.runtime.session(talk.name).undo()
            except (StoreFailed, Overloaded):
                return
            if undone:
                text, _ = pair = talk.turns.pop()
                talk.deliveries = {d: p for d, p in talk.deliveries.items() if p != pair}
                self.facts.get(talk.owner, set()).discard(text)

        self.run(undo())

    @rule(pick=PICK)
    def delete(self, pick):
        """A session is destroyed."""
        talk = self._free(pick)
        if talk is None:
            return

        async def delete():
            try:
                await self.runtime.session(talk.name).delete()
            except (StoreFailed, Overloaded):
                return
            self.untaught.update(text for text, _ in talk.turns)
            del self.talks[talk.name]

        self.run(delete())

    @rule(pick=PICK, customer=st.sampled_from(["ana", "bea"]))
    def identify(self, pick, customer):
        """An anonymous visitor turns out to be a customer."""
        talk = self._free(pick)
        if talk is None:
            return

        async def identify():
            try:
                await self.runtime.session(talk.name).identify(customer)
            except CustomerMismatch:
                assert talk.customer not in (None, customer)
                return
            except (StoreFailed, Overloaded):
                return
            assert talk.customer in (None, customer) or not (talk.owned or talk.turns)
            # Who was said to talk, and said nothing yet, is only claimed to be somebody.
            talk.owned = talk.owned or talk.customer is None
            learnt = self.facts.pop(talk.owner, set()) if talk.customer is None else set()
            talk.customer = customer
            self.facts.setdefault(customer, set()).update(learnt)

        self.run(identify())

    @rule(customer=st.sampled_from(["ana", "bea"]))
    def forget(self, customer):
        """A customer is forgotten, whatever their sessions are about."""

        async def forget():
            try:
                await self.runtime.customer(customer).forget()
            except (StoreFailed, Overloaded):
                return
            await self.helpers.settle()
            self.facts.pop(customer, None)
            for name, talk in list(self.talks.items()):
                if talk.customer == customer:
                    talk.turns.clear()
                    talk.maybe.clear()
                    del self.talks[name]

        self.run(forget())

    def _free(self, pick: int) -> Conversation | None:
        free = [talk for talk in self.talks.values() if not self._taken(talk) and not talk.maybe]
        return _picked(free, pick)

    # Ends and beginnings.

    @rule()
    def reopen(self):
        """The runtime is closed and opened again."""

        async def reopen():
            await self._end_visits()
            await self._close(self.runtime, self.clock, self.port)
            await self._open()

        self.run(reopen())

    @rule()
    def crash(self):
        """The process dies: what lies on the disk is opened, nothing was drained."""

        async def crash():
            await self._end_visits()
            here = self.path
            self.path = self.folder / f"memory-{next(self.copies)}.db"
            for suffix in ("", "-wal"):
                if (file := here.with_name(here.name + suffix)).exists():
                    shutil.copy(file, self.path.with_name(self.path.name + suffix))
            dead = self.runtime, self.clock, self.port
            await self._open()
            await self._close(*dead)  # into the files that nobody looks at any more

        self.run(crash())

    @rule()
    def flush(self):
        """With models that work, everything is folded and learnt in the end."""

        async def flush():
            self.port.turn("work")
            flushing = asyncio.create_task(self.runtime.flush())
            while not flushing.done():
                await self.clock.advance(61)
            await flushing
            await self._quiet()
            await self._look(learnt=True)

        self.run(flush())

    # What must hold.

    @invariant()
    def holds(self):
        """Every promise that can be looked at holds."""

        async def look():
            await self._quiet()
            self.visits = [visit for visit in self.visits if not visit.task.done()]
            await self._look()

        self.run(look())

    async def _look(self, *, learnt: bool = False) -> None:
        statistics = self.runtime.statistics()
        ended = statistics.replied + statistics.failed + statistics.withdrawn + statistics.expired
        assert statistics.accepted == ended + statistics.queued + statistics.in_flight
        for talk in list(self.talks.values()):
            self._believe(talk)
            await self._look_at(talk)
        for owner in ("ana", "bea"):
            facts = {fact.text for fact in await self.runtime.customer(owner).facts()}
            said = self.facts.get(owner, set())
            assert facts <= said, "a fact that this customer never said"
            assert not learnt or said - self.untaught <= facts, "a fact is lost"

    async def _look_at(self, talk: Conversation) -> None:
        session = self.runtime.session(talk.name)
        try:
            pairs = await self.helpers.pairs(session)
            layers = await session.layers()
        except Overloaded:
            return  # all in memory are needed there
        if talk.turns:
            with pytest.raises((CustomerMismatch, Overloaded)):
                await self.runtime.session(talk.name, customer="otro").layers()
        self._resolve(talk, pairs)
        assert pairs == talk.turns, "the transcript isn't what was acknowledged"
        self.helpers.no_gap(layers, 2 * len(pairs), WINDOW)
        assert layers.cursor >= talk.cursor, "the cursor went back"
        talk.cursor = layers.cursor
        for text, _ in pairs[: layers.cursor // 2]:
            assert layers.summary.count(text) <= 1, "folded twice"
        self._believe(talk)

    def _believe(self, talk: Conversation) -> None:
        self.facts.setdefault(talk.owner, set()).update(text for text, _ in talk.turns)

    def _resolve(self, talk: Conversation, pairs) -> None:
        """Take up what was in doubt and turned out to be there."""
        for pair in pairs[len(talk.turns) :]:
            found = next((doubt for doubt in talk.maybe if doubt[0] == pair), None)
            assert found is not None, "a turn that nobody said"
            talk.maybe.remove(found)
            talk.recorded(*found)
        talk.maybe.clear()

    def teardown(self):
        """Everything comes to its end, and nothing is left open or in plain words."""
        try:
            self.run(self._end())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    async def _end(self) -> None:
        await self._end_visits()
        await self._close(self.runtime, self.clock, self.port)
        words = b"para la calle Olmo"
        for file in self.folder.iterdir():
            assert words not in file.read_bytes(), "plain words on the disk"
        async with Archive.open(self.path, keyring=self.keyring) as archive:
            diagnosis = await archive.doctor()
        assert not diagnosis.findings, diagnosis


def test_the_whole_runtime(clock, counter, pairs, no_gap, settle):
    """All promises hold after every step, in whatever order things happen."""
    Machine.helpers = SimpleNamespace(
        clock=type(clock),
        counter=type(counter),
        pairs=pairs,
        no_gap=no_gap,
        settle=settle,
    )
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=RUNS or 22,
            stateful_step_count=100,
            derandomize=not RUNS,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
