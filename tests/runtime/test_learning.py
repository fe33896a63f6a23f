"""Facts learnt from turns: in order, once, whoever fails, and never in a turn's way."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from interturn.actors.deriver import derived
from interturn.actors.facts import FactChange
from interturn.runtime import ActorFailed, Settings, StoreFailed, jobs, learning
from interturn.runtime.customers import CustomerCell

pytestmark = pytest.mark.anyio


def slots(facts) -> dict[str, str]:
    return {fact.slot: fact.text for fact in facts}


class Scripted:
    """A deriver that keeps the visitor's words as one fact, or does as a test says.

    Attributes:
        seen: the visitor's words of each call.
        plan: what each call answers or raises instead, first come first served.
        gate: if set, awaited before answering.
    """

    def __init__(self, *plan: object) -> None:
        self.seen: list[str] = []
        self.plan = list(plan)
        self.gate: asyncio.Event | None = None

    async def derive(self, turn, known):  # noqa: ARG002 - the port's signature
        said = turn[-2].text
        self.seen.append(said)
        if self.gate is not None:
            await self.gate.wait()
        if self.plan:
            answer = self.plan.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        return [FactChange("set", f"said:{said}", said)]


async def test_the_same_fact_from_two_sessions_at_once(opened):
    """The same fact 5 times from 2 sessions at once is one fact with 5 sightings (P10)."""
    async with opened() as runtime:
        one, two = (runtime.session(s, customer="ana") for s in ("web", "tel"))
        said = "Soy alérgica a las nueces"
        await asyncio.gather(*(s.record(said, "Ok") for s in (one, two, one, two, one)))
        await runtime.flush()
        (fact,) = await runtime.customer("ana").facts()
        assert fact.sightings == 5
        assert "nueces" in fact.text
    async with opened() as runtime:
        await runtime.flush()
        assert await runtime.customer("ana").facts() == (fact,)


async def test_moved_from_madrid_to_valencia(opened):
    """A fact told otherwise is updated in place: Valencia, was Madrid (P10)."""
    async with opened() as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("Vivo en Madrid", "Vale")
        await session.record("Me he mudado, ahora vivo en Valencia", "Anotado")
        await runtime.flush()
        (home,) = [f for f in await runtime.customer("ana").facts() if f.slot == "home"]
        assert "Valencia" in home.text
        assert "Madrid" not in home.text
        assert "Madrid" in home.was
        request = await session.assemble("¿Dónde vivo?", budget=8_000)
        assert "Valencia" in str(request.messages[0])


async def test_what_can_both_be_true_stays_two(opened):
    """Two allergies stay two, and both stand in the profile at once."""
    async with opened() as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("Soy alérgica a las nueces", "Vale")
        await session.record("También soy alérgica al látex", "Vale")
        await runtime.flush()
        facts = await runtime.customer("ana").facts()
        assert len([f for f in facts if f.slot.startswith("allergy")]) == 2
        profile = await runtime.customer("ana").profile()
        assert "nueces" in profile
        assert "látex" in profile


async def test_no_longer_retracts(opened):
    """Saying "ya no" takes the fact back: what was true is not stated as current."""
    async with opened() as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("Tengo un perro que se llama Toby", "Qué bien")
        await runtime.flush()
        assert "Toby" in str(slots(await runtime.customer("ana").facts()))
        await session.record("Ya no tengo perro", "Lo siento")
        await runtime.flush()
        assert "Toby" not in str(slots(await runtime.customer("ana").facts()))


async def test_a_relatives_illness_isnt_the_customers(opened):
    """What ails a daughter never stands as the customer's own condition."""
    async with opened() as runtime:
        await runtime.session("s", customer="ana").record("Mi hija es celíaca", "Anotado")
        await runtime.flush()
        for fact in await runtime.customer("ana").facts():
            assert "hija" in fact.text
            assert not fact.slot.startswith(("condition", "allergy", "diet"))


@pytest.mark.parametrize(
    ("visitor", "agent"),
    [
        ("Hola, buenas tardes", "Hola"),
        ("¿Y si fuera alérgica a las nueces?", "Habría que evitarlas"),
        ("¿Vivo en Madrid o en Barcelona?", "No lo sé"),
        ("Si viviera en París comería cruasanes, jajaja", "Claro"),
        ("Ok, gracias", "Usted vive en Madrid y es alérgica al polen. Yo usaría el plan anual."),
        ("Soy Batman jajaja", "Encantado"),
        ("👍", "👍"),
    ],
)
async def test_what_isnt_said_of_oneself_is_nothing(opened, visitor, agent):
    """Jokes, questions, hypotheses and the agent's words are no facts."""
    async with opened() as runtime:
        await runtime.session("s", customer="ana").record(visitor, agent)
        await runtime.flush()
        assert slots(await runtime.customer("ana").facts()) == {}


async def test_a_slow_deriver_holds_nothing_back(opened, say, until):
    """While derivation hangs, turns of the same customer return and assemble at once (P8)."""
    deriver = Scripted()
    deriver.gate = asyncio.Event()
    async with opened(deriver=deriver) as runtime:
        session = runtime.session("s", customer="ana")
        for number in range(100):
            await say(session, f"v{number}")
        await until(lambda: deriver.seen)
        assert (await session.assemble("x")).messages
        assert await runtime.customer("ana").facts() == ()
        deriver.gate.set()
        await runtime.flush()
        assert len(await runtime.customer("ana").facts()) == 100
    assert deriver.seen == [f"v{n}" for n in range(100)]


async def test_a_hanging_deriver_bounds_the_drain(opened, clock, until):
    """Closing waits `drain_s` for a deriver that hangs, and the turn is learnt at the next open."""
    deriver = Scripted()
    deriver.gate = asyncio.Event()
    async with opened(deriver=deriver, clock=clock, settings=Settings(drain_s=10)) as runtime:
        await runtime.session("s", customer="ana").record("Vivo en Vigo", "Ok")
        await until(lambda: deriver.seen)
        closing = asyncio.create_task(runtime.close())
        await clock.advance(9.9)
        assert not closing.done()
        await clock.advance(0.2)
        await closing
    async with opened(deriver=Scripted()) as runtime:
        await runtime.flush()
        (fact,) = await runtime.customer("ana").facts()
        assert (fact.text, fact.sightings) == ("Vivo en Vigo", 1)


@pytest.mark.parametrize(
    "error", [ValueError("model down"), asyncio.CancelledError(), TimeoutError()], ids=repr
)
async def test_a_deriver_that_raises_once(opened, clock, error, say, until):
    """A derivation that failed, even with a cancellation of its own, is counted and tried again."""
    deriver = Scripted(error)
    async with opened(deriver=deriver, clock=clock) as runtime:
        session = runtime.session("s", customer="ana")
        await say(session, "uno")
        await say(session, "dos")
        await until(lambda: runtime.statistics().derivations_failed)
        await clock.advance(2)
        await runtime.flush()
        statistics = runtime.statistics()
        assert (statistics.derivations, statistics.derivations_failed) == (2, 1)
        assert deriver.seen == ["uno", "uno", "dos"]
        facts = await runtime.customer("ana").facts()
        assert sorted((f.text, f.sightings) for f in facts) == [("dos", 1), ("uno", 1)]
        assert (await say(session, "tres")).seq == 5


async def test_a_deriver_that_always_fails(opened, clock):
    """After five failures the offline deriver reads the turn in the other's stead."""

    class Broken:
        async def derive(self, turn, known):  # noqa: ARG002 - the port's signature
            raise OSError

    async with opened(deriver=Broken(), clock=clock) as runtime:
        await runtime.session("s", customer="ana").record("Vivo en Vigo", "Ok")
        for _ in range(6):
            await clock.advance(61)
        await runtime.flush()
        assert slots(await runtime.customer("ana").facts()) == {"home": "Vivo en Vigo"}
        assert runtime.statistics().derivations_failed == 5


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        "```json [] ```",
        [None, 1, {"slot": "home"}, ("set", "home", "x")],
        [FactChange("set", None, None)],
        [FactChange("set", "a", 7)],
        [FactChange("set", "\ud800", "x"), FactChange("set", "b", "\ud83d")],
        [FactChange("set", "", ""), FactChange("set", "\n", "\n")],
        [FactChange("retract", "nothing-of-the-kind")],
    ],
    ids=str,
)
async def test_a_deriver_that_answers_nonsense(opened, clock, answer, say):
    """Nonsense from a deriver is no fact, and hurts neither the turn nor what follows."""
    async with opened(deriver=Scripted(answer), clock=clock) as runtime:
        session = runtime.session("s", customer="ana")
        await say(session, "uno")
        await say(session, "dos")
        await clock.advance(61)
        await runtime.flush()
        texts = {f.text for f in await runtime.customer("ana").facts()}
        assert texts <= {"uno", "dos"}
        assert "dos" in texts


class Deaf:
    """A deriver that swallows every cancellation until it is released, and then may raise once."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()
        self.error = error

    async def derive(self, turn, known):  # noqa: ARG002 - the port's signature
        self.asked.set()
        while not self.release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.release.wait()
        if (error := self.error) is not None:
            self.error = None
            raise error
        return [FactChange("set", "said", turn[-2].text)]


async def test_a_deaf_deriver_holds_nobody_up(opened, monkeypatch):
    """One that swallows its cancellation blocks neither forget nor close, and teaches nothing."""
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    deaf = Deaf()
    async with opened(deriver=deaf, settings=Settings(drain_s=0.0)) as runtime:
        await runtime.session("s", customer="ana").record("uno", "x")
        await deaf.asked.wait()
        assert (await runtime.customer("ana").forget()).messages == 2
        deaf.asked.clear()
        await runtime.session("s", customer="ana").record("dos", "x")
        await deaf.asked.wait()
    deaf.release.set()
    async with opened(deriver=Scripted()) as runtime:
        await runtime.flush()
        assert slots(await runtime.customer("ana").facts()) == {"said:dos": "dos"}


async def test_a_derivation_that_was_called_off_fails_nobody(opened, until):
    """What a deriver raises after its turn was taken back is of no effect, and delays nothing."""
    deaf = Deaf(RuntimeError("late"))
    async with opened(deriver=deaf) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        await deaf.asked.wait()
        assert await session.undo()
        deaf.release.set()
        await until(lambda: deaf.error is None and not len(runtime._inside.jobs))
        await session.record("dos", "x")
        await until(lambda: runtime.statistics().derivations == 1)
        assert runtime.statistics().derivations_failed == 0
        assert slots(await runtime.customer("ana").facts()) == {"said": "dos"}


async def test_a_deriver_without_measure(opened):
    """The code holds the caps: facts a customer, changes a turn, the length of one."""
    many = [FactChange("set", f"s{n}", f"hecho {n}") for n in range(4_000)]
    long = [FactChange("set", "long", "palabra " * 1_250)]
    settings = Settings(facts_per_customer=25)
    async with opened(deriver=Scripted(many, long), settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        await session.record("dos", "x")
        await runtime.flush()
        facts = await runtime.customer("ana").facts()
        assert len(facts) == 25
        assert max(len(f.text) for f in facts) <= 400


class Profiling:
    """A profiler that answers, or raises, what a test says."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.calls = 0

    async def refresh(self, profile, recent, facts, *, cap_tokens):  # noqa: ARG002 - the port's
        self.calls += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        OSError(),
        asyncio.CancelledError(),
        None,
        7,
        "",
        "  \n",
        "x" * 100_000,
        "\ud83d",
        "Le gusta el trato cercano",
    ],
    ids=lambda a: repr(a)[:20],
)
async def test_a_profiler_of_any_kind(opened, counter, answer, say):
    """Whatever a profiler answers or raises, the cap is held and the always-on slots stand."""
    profiler = Profiling(answer)
    settings = Settings(profile_every=2, profile_tokens=40)
    async with opened(profiler=profiler, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("Soy alérgica a las nueces", "Ok")
        for number in range(6):
            await say(session, f"turno {number}")
        await runtime.flush()
        assert profiler.calls >= 3
        profile = await runtime.customer("ana").profile()
        assert "nueces" in profile
        assert counter.count(profile) <= 40
        profile.encode()
        if answer == "Le gusta el trato cercano":
            assert answer in profile


async def test_a_fact_learnt_while_another_is_remembered(opened, watched, until):
    """What is learnt while `remember` is being written isn't lost: both are there, and rest."""
    deriver = Scripted()
    deriver.gate = asyncio.Event()
    async with opened(watched, deriver=deriver) as runtime:
        session, ana = runtime.session("s", customer="ana"), runtime.customer("ana")
        await session.record("uno", "x")
        await until(lambda: deriver.seen)
        watched.gates["commit"] = asyncio.Event()
        remembering = asyncio.create_task(ana.remember("Es clienta", slot="since"))
        await until(lambda: watched.reached["commit"])
        deriver.gate.set()
        await until(lambda: not runtime.statistics().learning)
        watched.gates.pop("commit").set()
        await remembering
        assert set(slots(await ana.facts())) == {"since", "said:uno"}
    async with opened() as runtime:
        await runtime.flush()
        facts = await runtime.customer("ana").facts()
        assert {f.slot: f.sightings for f in facts} == {"since": 1, "said:uno": 1}


async def test_a_turn_recorded_with_remember_in_one_transaction(opened, watched, until):
    """A turn that comes to rest while `remember` does is learnt, without waiting for another."""
    async with opened(watched, deriver=Scripted()) as runtime:
        session, ana = runtime.session("s", customer="ana"), runtime.customer("ana")
        await session.record("uno", "x")
        await runtime.flush()
        watched.gates["commit"] = asyncio.Event()
        blocker = asyncio.create_task(runtime.session("b").record("x", "y"))
        await until(lambda: watched.reached["commit"])
        both = [
            asyncio.create_task(session.record("dos", "x")),
            asyncio.create_task(ana.remember("Es clienta", slot="since")),
        ]
        await until(lambda: runtime.statistics().in_flight == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        watched.gates.pop("commit").set()
        await asyncio.gather(blocker, *both)
        await runtime.flush()
        assert set(slots(await ana.facts())) == {"since", "said:uno", "said:dos"}


async def test_a_snapshot_that_fails_is_written_again(opened, watched, clock, until):
    """A snapshot whose write fails, or whose answer is lost, comes to rest later, once."""
    async with opened(watched, deriver=Scripted(), clock=clock) as runtime:
        session, ana = runtime.session("s", customer="ana"), runtime.customer("ana")
        for number, applied in enumerate((False, True)):
            await session.record(f"v{number}", "x")
            await runtime.flush()
            watched.fail("commit", StoreFailed("disk", unknown=applied), applied=applied)
            looked = watched.calls["load_customer"]
            await clock.advance(6)
            await until(lambda n=looked: watched.calls["load_customer"] > n)
            await until(lambda: runtime._inside.customers._busy)
            while runtime._inside.customers._busy:  # it looks again before it sets its alarm
                await clock.advance(6)
                await asyncio.sleep(0)
        facts = await ana.facts()
        assert [f.sightings for f in facts] == [1, 1]
    async with opened(deriver=Scripted()) as runtime:
        await runtime.flush()
        assert await runtime.customer("ana").facts() == facts


async def test_customers_leave_memory(opened, clock, until):
    """Many customers leave none behind in memory once idle and at rest (P18)."""
    left = []
    async with opened(deriver=Scripted(), clock=clock, settings=Settings(active=4)) as runtime:
        for number in range(60):
            session = runtime.session(f"s{number}", customer=f"c{number}")
            await session.record("v", "x")
            left.append(weakref.ref((await session.owner()).cell))
        await runtime.flush()
        await clock.advance(1_000)  # snapshots, then idle actors
        await until(lambda: not runtime._inside.customers._busy)
        gc.collect()
        assert all(type(cell()) in (CustomerCell, type(None)) for cell in left)
        assert [cell for cell in left if cell() is not None] == []
        assert len(await runtime.customer("c7").facts()) == 1


async def test_a_forgotten_customer_is_out_of_memory(opened, clock):
    """A forgotten customer's place in memory is gone as soon as `forget` returns (P13)."""
    async with opened(deriver=Scripted(), clock=clock) as runtime:
        await runtime.session("s", customer="ana").record("v", "x")
        await runtime.flush()
        keeping = await runtime.customer("ana")._keeping()
        left = weakref.ref(keeping.cell)
        del keeping
        await runtime.customer("ana").forget()
        gc.collect()
        assert left() is None


async def test_the_first_derivation_is_read_off_the_loop(opened, monkeypatch):
    """Languages are loaded at the first derivation: that holds up nobody's turn."""
    threads = []

    def noted(turn, known):
        threads.append(threading.get_ident())
        return derived(turn, known)

    monkeypatch.setattr(learning, "derived", noted)
    async with opened() as runtime:
        for _ in range(2):
            await runtime.session("s", customer="c").record("Vivo en Sevilla.", "Vale.")
            await runtime.flush()
    assert len(threads) == 2
    assert threads[0] != threading.get_ident() == threads[1]


class Moody:
    """A counter that fails where it is given what facts are counted as, as often as it is told."""

    name = "bytes/4"
    byte_level = True

    def __init__(self, failures: int) -> None:
        self.left = failures

    def count(self, text: str) -> int:
        if text.startswith("- ") and self.left:
            self.left -= 1
            raise OSError
        return len(text.encode()) // 4 + 1


async def test_a_counter_that_fails_as_facts_are_shown_teaches_nothing_twice(opened, words):
    """What was learnt is learnt, though it can't be shown yet; it is when it is asked for."""
    async with opened(counter=Moody(1), deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        for said in ("uno", "dos"):
            await session.record(said, "x")
        await runtime.flush()
        facts = await runtime.customer("ana").facts()
        assert [(fact.text, fact.sightings) for fact in facts] == [("uno", 1), ("dos", 1)]


async def test_a_counter_that_fails_as_a_customer_comes_in_loses_no_fact(opened, words):
    """Facts that couldn't be counted on coming into memory are there, and stay."""
    async with opened(deriver=words) as runtime:
        await runtime.session("s", customer="ana").record("uno", "x")
        await runtime.flush()
    async with opened(counter=Moody(2), deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        with pytest.raises(ActorFailed):
            await session.assemble("hola")
        await session.record("dos", "x")
        await runtime.flush()
        assert set(slots(await runtime.customer("ana").facts()).values()) == {"uno", "dos"}
    async with opened(deriver=words) as runtime:
        assert set(slots(await runtime.customer("ana").facts()).values()) == {"uno", "dos"}


async def test_a_counter_that_fails_once_a_fact_is_on_disk_fails_nobody(opened, words):
    """Who asked for a fact to be remembered is told that it is, though it can't be counted yet."""
    counter = Moody(0)
    async with opened(counter=counter, deriver=words) as runtime:
        ana = runtime.customer("ana")
        await runtime.session("s", customer="ana").record("uno", "x")
        await runtime.flush()
        counter.left = 1
        await ana.remember("Prefiere el correo", slot="contact")
        assert "Prefiere el correo" in slots(await ana.facts()).values()
    async with opened(deriver=words) as runtime:
        assert "Prefiere el correo" in slots(await runtime.customer("ana").facts()).values()
