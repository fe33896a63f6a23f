"""A story over the whole runtime, and what must hold wherever it was cut short.

It keeps an account of what it was promised, so that afterwards whatever is there can be
held to it: what must be there, what may be, and what may not.
"""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict

import pytest

from interturn.actors import FactChange, Scored
from interturn.runtime import InterturnError, Settings
from interturn.runtime.archive import Archive

NAMES = ("web", "tel", "anon", "otra", "lejos")
PROFILE = "Alguien que habla."


class Broken(RuntimeError):
    """What a port raises."""


class Ports:
    """Every port of a runtime: plain answers, and a failure where it is wanted.

    Attributes:
        calls: how often each was asked.
        failing: the port and the number of the call that raises, if one does.
    """

    name = "bytes/4"
    byte_level = True

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failing: tuple[str, int] | None = None

    def _called(self, port: str) -> None:
        self.calls[port] += 1
        if self.failing == (port, self.calls[port]):
            raise Broken

    async def fold(self, summary, leaving, *, cap_tokens):
        self._called("fold")
        return " ".join(message.text for message in leaving)

    async def derive(self, turn, known):
        self._called("derive")
        said = turn[-2].text
        return [FactChange("set", f"said:{said}", said)]

    async def refresh(self, profile, recent, facts, *, cap_tokens):
        self._called("refresh")
        return PROFILE

    def rank(self, query, facts, *, limit):
        self._called("rank")
        return [Scored(fact, 1.0) for fact in facts][:limit]

    def count(self, text: str) -> int:
        self._called("count")
        return (len(text.encode()) + 3) // 4


class Story:
    """Two sessions of one customer and an anonymous one, with all that can happen to them.

    Attributes:
        tried: what was to be recorded, for each session.
        promised: what is on disk, by the runtime's word.
        undone: what may have been taken back, and whether it was, by the runtime's word.
        left: what was left without a reply.
        remembered: the fact that was to be remembered, and whether it was.
        identified: whether the anonymous visitor has become the customer, or None.
        told: whether the story came to its end, and what it has seen.
    """

    def __init__(self, runtime, *, swallow: tuple[type[Exception], ...] = ()) -> None:
        self.runtime = runtime
        self.swallow = swallow
        self.tried: defaultdict[str, list[str]] = defaultdict(list)
        self.promised: defaultdict[str, list[str]] = defaultdict(list)
        self.undone: dict[str, bool] = {}
        self.left: set[str] = set()
        self.remembered: bool | None = None
        self.identified: bool | None = None
        self.rival: asyncio.Task | None = None
        self.seen: dict[str, object] = {}

    def session(self, name: str):
        customer = {"web": "ana", "tel": "ana", "otra": "bea"}.get(name)
        return self.runtime.session(name, customer=customer)

    async def say(self, name: str, text: str, delivery: str | None = None):
        self.tried[name].append(text)
        async with self.session(name).turn(text, delivery_id=delivery, budget=400) as turn:
            already = turn.already
            await turn.reply(f"re: {text}")
        if already is None:
            self.promised[name].append(text)
        return already

    async def tell(self) -> None:
        """Tell it from beginning to end; what fails, if that is awaited, is passed over."""
        steps = (
            self._greet,
            self._wait_for_a_rival,
            self._repeat,
            self._fold,
            self._take_back,
            self._look,
            self._remember,
            self._leave_memory,
            self._leave_a_turn,
            self._identify,
            self._read,
        )
        for step in steps:
            with contextlib.suppress(*self.swallow):
                await step()

    async def _greet(self) -> None:
        await self.say("web", "Soy Ana.", "d1")
        await self.say("anon", "Busco el segundo.")

    async def _wait_for_a_rival(self) -> None:
        """Another task holds the session's turn, and this one waits in its line."""
        held = asyncio.Event()

        async def rival():
            with contextlib.suppress(*self.swallow):
                try:
                    async with self.session("web").turn("Soy el rival.") as turn:
                        held.set()
                        for _ in range(3):
                            await asyncio.sleep(0)
                        self.tried["web"].append("Soy el rival.")
                        await turn.reply("re: Soy el rival.")
                        self.promised["web"].append("Soy el rival.")
                finally:
                    held.set()

        self.rival = asyncio.create_task(rival())
        await held.wait()
        await self.say("web", "Espero mi turno.")

    async def _repeat(self) -> None:
        self.tried["web"].remove("Soy Ana.")  # it is no other turn
        already = await self.say("web", "Soy Ana.", "d1")
        self.seen["already"] = already is not None and already.text

    async def _fold(self) -> None:
        self.tried["tel"].append("Llamé ayer.")
        await self.session("tel").record("Llamé ayer.", "re: Llamé ayer.")
        self.promised["tel"].append("Llamé ayer.")
        for number in range(2):
            await self.say("web", f"Pido el {number}.")
        await self.runtime.flush()

    async def _take_back(self) -> None:
        *_, newest, _ = [message.text async for message in self.session("web").transcript()]
        text = newest
        self.undone[text] = False
        self.undone[text] = await self.session("web").undo()

    async def _look(self) -> None:
        request = await self.session("web").assemble("¿Y luego? " * 8, budget=60)
        self.seen["compacted"] = request.receipt.compacted
        assert request.tokens <= 60

    async def _remember(self) -> None:
        customer = self.runtime.customer("ana")
        self.remembered = False
        await customer.remember("Prefiere el correo.", slot="channel")
        self.remembered = True
        self.seen["recalled"] = len(await customer.recall("correo"))

    async def _leave_memory(self) -> None:
        await self.runtime.flush()
        for name in ("otra", "lejos"):
            await self.say(name, f"Hola desde {name}.")
        self.seen["passivations"] = self.runtime.statistics().passivations

    async def _leave_a_turn(self) -> None:
        self.left.add("Mejor no.")
        async with self.session("tel").turn("Mejor no.", budget=400):
            pass

    async def _identify(self) -> None:
        self.identified = False
        await self.session("anon").identify("ana")
        self.identified = True
        await self.say("anon", "Soy yo, Ana.")

    async def _read(self) -> None:
        texts = [message.text async for message in self.session("web").transcript()]
        self.seen["read"] = len(texts)

    def complete(self) -> bool:
        """Whether all of it has happened, as it does where nothing is in its way."""
        return self.identified is True and self.seen == {
            "already": "re: Soy Ana.",
            "compacted": self.seen.get("compacted") or "some",
            "recalled": self.seen.get("recalled") or "some",
            "passivations": self.seen.get("passivations") or "some",
            "read": 8,
        }


class Account:
    """Holds a runtime to what a story was promised."""

    def __init__(self, story: Story, pairs, no_gap, balanced) -> None:
        self.story = story
        self.pairs = pairs
        self.no_gap = no_gap
        self.balanced = balanced

    async def settle(self) -> None:
        """Everything goes on at once, and is whole."""
        story, runtime = self.story, self.story.runtime
        if story.rival is not None:
            await asyncio.wait([story.rival])
            if not story.swallow:
                assert story.rival.exception() is None, "somebody else was hurt"
        for name in NAMES:
            await story.say(name, f"Después, en {name}.")
        await runtime.flush()
        await runtime.flush()  # what failed meanwhile rests, and is tried again
        said = {name: await self._transcript(name) for name in NAMES}
        owners = {name: await self._layers(name, said[name]) for name in NAMES}
        if story.identified is not None:
            assert owners["anon"] == "ana" or not story.identified
        for name in NAMES:
            mine = [n for n in NAMES if n == name or (owners[n] and owners[n] == owners[name])]
            await self._facts(name, owners[name], [text for n in mine for text in said[n]])
        self.balanced(runtime, at_rest=True)

    async def _transcript(self, name: str) -> list[str]:
        story = self.story
        got = await self.pairs(story.session(name))
        said = [text for text, _ in got]
        assert [reply for _, reply in got] == [f"re: {text}" for text in said]
        assert len(said) == len(set(said)), "a turn is doubled"
        assert set(said) <= set(story.tried[name]) - story.left, "nobody said so"
        gone = {text for text, undone in story.undone.items() if undone}
        missing = set(story.promised[name]) - set(said)
        assert missing <= story.undone.keys(), "a promised turn is missing"
        assert gone.isdisjoint(said), "what was taken back is there"
        assert said[-1] == f"Después, en {name}."
        return said

    async def _layers(self, name: str, said: list[str]) -> str | None:
        """Each message is in one place; the summary holds what was folded, once."""
        layers = await self.story.session(name).layers()
        self.no_gap(layers, 2 * len(said), window=4)
        assert layers.cursor % 2 == 0
        for number, text in enumerate(said):
            assert layers.summary.count(f"re: {text}") == (2 * number < layers.cursor)
        return layers.customer

    async def _facts(self, name: str, owner: str | None, said: list[str]) -> None:
        facts = await self.story.session(name).customer.facts()
        told = Counter(fact.text for fact in facts if fact.slot != "channel")
        assert told == Counter(said), "a turn taught not once"
        assert all(fact.sightings == 1 for fact in facts)
        if owner == "ana" and self.story.remembered:
            assert any(fact.slot == "channel" for fact in facts)


@pytest.fixture
def sweep_settings():
    """Small numbers, so that a short story comes to folds, refreshes and passivations."""
    return Settings(
        window=4, active=4, snapshot_s=0, profile_every=2, keep_unanswered=True, durability="normal"
    )


@pytest.fixture
def stage(opened, path, keyring, clock, pairs, no_gap, balanced, sweep_settings):
    """Where a story is played: by ``play``, with these ports, over this store.

    Whatever has become of it, the account is settled, the runtime drains and the doctor
    finds nothing.
    """

    async def perform(ports, play, store=None, swallow=()):
        given = dict.fromkeys(("summarizer", "deriver", "profiler", "retriever", "counter"), ports)
        async with opened(store, settings=sweep_settings, clock=clock, **given) as runtime:
            story = Story(runtime, swallow=swallow)
            outcome = await play(story)
            await Account(story, pairs, no_gap, balanced).settle()
        balanced(runtime, at_rest=True)
        async with Archive.open(path, keyring=keyring, counter=ports) as archive:
            diagnosis = await archive.doctor()
        assert diagnosis.findings == ()
        assert diagnosis.unanswered == 0
        for file in path.parent.iterdir():
            file.unlink()
        return story, outcome

    return perform


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
def failures() -> tuple[type[Exception], ...]:
    """What a story passes over when something is made to fail."""
    return (InterturnError, Broken)
