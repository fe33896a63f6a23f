"""A story over the whole runtime, and what must hold wherever it was cut short.

It keeps an account of what it was promised, so that afterwards whatever is there can be
held to it: what must be there, what may be, and what may not.
"""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict

import msgspec
import pytest

from interturn.actors import FactChange, Scored
from interturn.runtime import Settings
from interturn.runtime.archive import Archive

NAMES = ("web", "tel", "anon", "otra", "lejos")
PROFILE = "Alguien que habla."


class Ports:
    """Every port of a runtime: plain answers, and a failure where it is wanted."""

    name = "bytes/4"
    byte_level = True

    def __init__(self) -> None:
        self._failing = ""
        self._left = 0
        self._error: Exception | None = None

    def fail(self, port: str, nth: int, error: Exception) -> None:
        """Fail the nth call of a port from now."""
        self._failing, self._left, self._error = port, nth, error

    def calm(self) -> bool:
        """Fail no more; return whether anything has failed."""
        self._failing = ""
        return self._left <= 0

    def _called(self, port: str) -> None:
        if port == self._failing:
            self._left -= 1
            if not self._left:
                raise self._error

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
        remembered: whether the fact that was to be remembered was.
        identified: whether the anonymous visitor has become the customer.
        passes_over: failures that don't end it.
        rival: another task's turn of the same session.
        seen: what it has seen on its way.
    """

    def __init__(self, runtime, passes_over: tuple[type[Exception], ...]) -> None:
        self.runtime = runtime
        self.passes_over = passes_over
        self.tried: defaultdict[str, list[str]] = defaultdict(list)
        self.promised: defaultdict[str, list[str]] = defaultdict(list)
        self.undone: dict[str, bool] = {}
        self.left: set[str] = set()
        self.remembered = self.identified = False
        self.rival: asyncio.Task | None = None
        self.seen: dict[str, object] = {}

    def session(self, name: str):
        customer = {"web": "a", "tel": "a", "otra": "b"}.get(name)
        return self.runtime.session(name, customer=customer)

    async def say(self, name: str, text: str, delivery: str | None = None):
        self.tried[name].append(text)
        async with self.session(name).turn(text, delivery_id=delivery, budget=400) as turn:
            already = turn.already
            await asyncio.sleep(0)
            await turn.reply(f"re: {text}")
        self.promised[name].append(text)
        return already

    async def tell(self) -> None:
        """Tell it from beginning to end, passing over what fails where that is looked for."""
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
            with contextlib.suppress(*self.passes_over):
                await step()

    async def _greet(self) -> None:
        await self.say("web", "Soy Ana.", "d1")
        await self.say("anon", "Busco el segundo.")

    async def _wait_for_a_rival(self) -> None:
        """Another task holds the session's turn, and this one waits in its line."""
        held = asyncio.Event()

        async def rival():
            with contextlib.suppress(*self.passes_over):
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
        text = (await self.session("web").layers()).window[-2].text
        self.undone[text] = False
        self.undone[text] = await self.session("web").undo()

    async def _look(self) -> None:
        request = await self.session("web").assemble("¿Y luego? " * 8, budget=60)
        self.seen["compacted"] = request.receipt.compacted
        assert request.tokens <= 60

    async def _remember(self) -> None:
        customer = self.runtime.customer("a")
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
        await self.session("anon").identify("a")
        self.identified = True
        await self.say("anon", "Soy yo, Ana.")

    async def _read(self) -> None:
        texts = [message.text async for message in self.session("web").transcript()]
        self.seen["read"] = len(texts)

    def complete(self) -> bool:
        """Whether all of it has happened, as it does where nothing is in its way."""
        some = ("compacted", "recalled", "passivations")
        return (
            self.identified is True
            and (self.seen.get("already"), self.seen.get("read")) == ("re: Soy Ana.", 8)
            and all(self.seen.get(what) for what in some)
        )


class Account:
    """Holds a runtime to what a story was promised."""

    def __init__(self, story: Story, pairs, no_gap) -> None:
        self.story = story
        self.pairs = pairs
        self.no_gap = no_gap

    async def go_on(self) -> None:
        """See that every session takes a turn at once, and that nobody else was hurt."""
        story = self.story
        if story.rival is not None:
            await asyncio.wait([story.rival])
            assert story.rival.exception() is None, "somebody else was hurt"
        for name in NAMES:
            await story.say(name, f"Después, en {name}.")
        await story.runtime.flush()

    async def check(self, runtime) -> None:
        """See that every session is whole, and holds what was promised and nothing else."""
        said, owners = {}, {}
        for name in NAMES:
            session = runtime.session(name)
            said[name] = await self._transcript(name, session)
            owners[name] = await self._layers(session, said[name])
        assert [owners[name] for name in ("web", "tel", "otra", "lejos")] == [*"aab", None]
        assert owners["anon"] == ("a" if self.story.identified else owners["anon"])
        for name, owner in owners.items():
            mine = [n for n in NAMES if n == name or (owner and owners[n] == owner)]
            facts = await runtime.session(name).customer.facts()
            told = Counter(fact.text for fact in facts if fact.slot != "channel")
            assert told == Counter(text for n in mine for text in said[n])
            assert all(fact.sightings == 1 for fact in facts)
            remembered = owner == "a" and self.story.remembered
            assert not remembered or any(fact.slot == "channel" for fact in facts)

    async def _transcript(self, name: str, session) -> list[str]:
        story, got = self.story, await self.pairs(session)
        said = [text for text, _ in got]
        assert [reply for _, reply in got] == [f"re: {text}" for text in said]
        assert len(said) == len(set(said)), "a turn is doubled"
        assert set(said) <= set(story.tried[name]) - story.left, "nobody said so"
        promised = {text for text in story.promised[name] if text not in story.undone}
        assert promised <= set(said), "a promised turn is missing"
        assert not any(story.undone.get(text) for text in said), "what was taken back is there"
        assert said[-1] == f"Después, en {name}."
        return said

    async def _layers(self, session, said: list[str]) -> str | None:
        """Each message is in one place; the summary holds what was folded, once."""
        layers = await session.layers()
        self.no_gap(layers, 2 * len(said), window=4)
        for number, text in enumerate(said):
            assert layers.summary.count(f"re: {text}") == (2 * number < layers.cursor)
        return layers.customer


@pytest.fixture
def stage(opened, path, keyring, clock, pairs, no_gap, balanced):
    """Play a story and settle its account.

    ``await stage(ports, play, store=…)``: whatever ``play`` has made of the story that it is
    given, everything goes on at once, the account is right, also after closing and opening
    again, and the doctor finds nothing.
    """
    small = Settings(window=4, active=4, snapshot_s=0, profile_every=2, keep_unanswered=True)
    settings = msgspec.structs.replace(small, durability="normal")

    async def perform(ports, play, *, store=None, passes_over=()):
        given = dict.fromkeys(("summarizer", "deriver", "profiler", "retriever", "counter"), ports)
        given |= {"settings": settings, "clock": clock}
        async with opened(store, **given) as runtime:
            story = Story(runtime, passes_over)
            outcome = await play(story)
            account = Account(story, pairs, no_gap)
            await account.go_on()
            await account.check(runtime)
            balanced(runtime, at_rest=True)
        balanced(runtime, at_rest=True)
        async with Archive.open(path, keyring=keyring, counter=ports) as archive:
            diagnosis = await archive.doctor()
        assert (diagnosis.findings, diagnosis.unanswered) == ((), 0)
        async with opened(**given) as runtime:
            await runtime.flush()
            await account.check(runtime)
        for file in path.parent.iterdir():
            file.unlink()
        return story, outcome

    return perform


@pytest.fixture
def make_ports():
    """Make the ports of one runtime."""
    return Ports
