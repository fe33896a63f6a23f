"""Forgetting: key, rows, facts and memory of a customer go, whatever is under way (P13)."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from interturn.runtime import (
    Forgotten,
    InterturnError,
    MemoryStore,
    RuntimeClosed,
    Settings,
    StoreFailed,
    TurnClosed,
)
from interturn.storage import SqliteStore

pytestmark = pytest.mark.anyio

CANARIES = ("canario-7f3a", "ana@example.org", "web-ana-1", "web-ana-2", "fabla de canario")


async def told(customer) -> dict[str, int]:
    return {fact.text: fact.sightings for fact in await customer.facts()}


async def _fill(runtime, customer: str = "ana@example.org") -> None:
    for session in ("web-ana-1", "web-ana-2"):
        for number in range(4):
            await runtime.session(session, customer=customer).record(
                f"Soy canario-7f3a, pedido {number}", "fabla de canario"
            )
    await runtime.session("otra", customer="eva").record("Vivo en Vigo", "Ok")
    await runtime.customer(customer).remember("VIP canario-7f3a", slot="since")
    await runtime.flush()


@pytest.mark.parametrize("apart", [False, True], ids=["one file", "keys apart"])
async def test_nothing_is_left_in_any_file(opened, path, tmp_path, apart, words):
    """After `forget` texts, ids and wrapped keys are in no file; the receipt counts what went."""
    keys = tmp_path / "data" / "keys.db" if apart else None
    settings = Settings(window=2, fold_at=2, profile_every=2)
    async with opened(deriver=words, keys=keys, settings=settings) as runtime:
        await _fill(runtime)
        ana, store = runtime.customer("ana@example.org"), runtime._inside.vault.store
        assert (await runtime.session("web-ana-1").layers()).summary
        assert await ana.profile()
        keeping = await ana._keeping()
        row = await store.load_customer(keeping.hash)
        sought = [row.wrapped, row.hash, row.name]
        for session in await store.sessions_of(keeping.ref):
            sought += [session.wrapped, session.hash, session.name]
            sought += [r.sealed for r in await store.rows(session.ref, after=0, limit=50)]
        sought += [text.encode() for text in CANARIES]

        def found() -> list[bytes]:
            files = b"\0".join(f.read_bytes() for f in path.parent.rglob("*") if f.is_file())
            return [one for one in sought if one in files]

        assert row.wrapped in found()
        assert not any(text.encode() in found() for text in CANARIES)
        erased = await ana.forget()
        assert (erased.sessions, erased.messages, erased.facts) == (2, 16, 5)
        assert erased.at.tzinfo is not None
        assert "canario" not in repr(erased)
        assert found() == []
        assert await told(runtime.customer("eva")) == {"Vivo en Vigo": 1}
    assert found() == []
    async with opened(deriver=words, keys=keys) as runtime:
        await runtime.flush()
        assert await told(runtime.customer("ana@example.org")) == {}
        assert (await runtime.session("web-ana-1").layers()).window == ()
        assert len((await runtime.session("otra").layers()).window) == 2
    assert found() == []


async def test_a_copy_from_before_with_the_keys_of_after(opened, path, tmp_path, words):
    """With keys kept apart a copy of the data taken before can't be opened any more."""
    keys = tmp_path / "keys.db"
    async with opened(deriver=words, keys=keys) as runtime:
        await _fill(runtime)
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    async with opened(deriver=words, keys=keys) as runtime:
        await runtime.customer("ana@example.org").forget()
    reopened = opened(copy / path.name, deriver=words, keys=keys)
    with pytest.raises(InterturnError):
        async with reopened as runtime:
            await runtime.session("web-ana-1").layers()
    for file in copy.iterdir():
        assert not any(text.encode() in file.read_bytes() for text in CANARIES)


async def test_held_turns_end_with_forgotten(opened, words, until, balanced, pairs):
    """A held turn's late reply raises `Forgotten` and writes nothing; who waits is told too."""
    async with opened(deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        other = runtime.session("t", customer="ana")
        async with session.turn("dos") as turn, other.turn("x") as new:
            waiting = asyncio.create_task(session.record("tres", "x"))
            await until(lambda: runtime.statistics().queued)
            erased = await runtime.customer("ana").forget()
            assert (erased.sessions, erased.messages) == (1, 2)
            for late in (turn, new):
                with pytest.raises((Forgotten, TurnClosed)) as refusal:
                    await late.reply("tarde")
                assert refusal.type is Forgotten
            with pytest.raises(Forgotten):
                await waiting
            assert (await session.record("nueva", "x")).seq == 1
        await runtime.flush()
        assert await pairs(session) == [("nueva", "x")]
        assert await told(session.customer) == {"nueva": 1}
        balanced(runtime, at_rest=True)


async def test_the_same_id_comes_back_as_a_stranger(opened, words):
    """A customer who was forgotten and comes again has no facts, no profile, no sessions."""
    async with opened(deriver=words) as runtime:
        await _fill(runtime)
        ana = runtime.customer("ana@example.org")
        await ana.forget()
        assert (await ana.facts(), await ana.profile(), await ana.sessions()) == ((), "", [])
        assert await ana.recall("canario-7f3a") == ()
        session = runtime.session("web-ana-1", customer="ana@example.org")
        assert "canario" not in str((await session.assemble("hola")).messages)
        await session.record("uno", "x")
        await runtime.flush()
        assert await told(ana) == {"uno": 1}
        assert (await ana.forget()).messages == 2


async def test_forgetting_nobody(opened, path):
    """Forgetting a stranger, also as the first call of all, is fine: the receipt counts nothing."""
    async with opened() as runtime:
        erased = await runtime.customer("nadie").forget()
        assert (erased.sessions, erased.messages, erased.facts) == (0, 0, 0)
        erased = await runtime.session("s").customer.forget()
        assert (erased.sessions, erased.messages, erased.facts) == (0, 0, 0)
        await runtime.session("s").record("v", "x")
        assert (await runtime.session("s").customer.forget()).messages == 2


async def test_while_all_goes_on(opened, words, watched, recorder, until, balanced):
    """Folds and derivations under way change nothing any more; others are served meanwhile."""
    words.gate, recorder.gate = asyncio.Event(), asyncio.Event()
    settings = Settings(window=2, fold_at=2)
    given = {"deriver": words, "summarizer": recorder, "settings": settings}
    async with opened(watched, **given) as runtime:
        session, eva = runtime.session("s", customer="ana"), runtime.session("e", customer="eva")
        for number in range(3):
            await session.record(f"v{number}", "x")
        await eva.record("antes", "x")
        await until(lambda: words.seen and recorder.leaving)
        watched.gates["forget"] = asyncio.Event()
        forgetting = asyncio.create_task(runtime.customer("ana").forget())
        await until(lambda: watched.reached["forget"])
        async with eva.turn("mientras") as turn:
            await turn.reply("x")
        with pytest.raises(Forgotten):
            await session.record("durante", "x")
        remembering = asyncio.create_task(runtime.customer("ana").remember("nota"))
        assert not forgetting.done()
        watched.gates.pop("forget").set()
        assert (await forgetting).messages == 6
        with pytest.raises(Forgotten):
            await remembering
        words.gate.set()
        recorder.gate.set()
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {}
        assert (await session.layers()).summary == ""
        assert await told(runtime.customer("eva")) == {"antes": 1, "mientras": 1}
        assert len((await eva.layers()).window) == 2
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        await runtime.flush()
        assert await runtime.customer("ana").sessions() == []


async def test_a_turn_on_its_way_to_disk(opened, words, watched, until, balanced):
    """A turn that is being written when its customer is forgotten goes with the rest."""
    async with opened(watched, deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        watched.gates["commit"] = asyncio.Event()
        writing = asyncio.create_task(session.record("dos", "x"))
        await until(lambda: runtime.statistics().in_flight)
        forgetting = asyncio.create_task(runtime.customer("ana").forget())
        for _ in range(20):
            await asyncio.sleep(0)
        watched.gates.pop("commit").set()
        erased = await forgetting
        await asyncio.gather(writing, return_exceptions=True)
        assert erased.messages == 4
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {}
        balanced(runtime, at_rest=True)


class Late:
    """A store whose answer to `load_session` waits, read before what happens meanwhile."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.gate: asyncio.Event | None = None
        self.reached = 0

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    async def load_session(self, session_hash, *, recent):
        answer = await self.inner.load_session(session_hash, recent=recent)
        if (gate := self.gate) is not None:
            self.reached += 1
            await gate.wait()
        return answer


@pytest.mark.parametrize("known", [True, False], ids=["in memory", "at rest"])
async def test_a_session_that_is_just_being_read(opened, path, words, until, known):
    """What was read of a customer before they were forgotten never comes into memory after."""
    async with opened(deriver=words) as runtime:
        await _fill(runtime)
    store = Late(SqliteStore(path))
    async with opened(store, deriver=words) as runtime:
        ana = runtime.customer("ana@example.org")
        keeping = await ana._keeping() if known else None
        store.gate = asyncio.Event()
        reading = asyncio.create_task(runtime.session("web-ana-1").layers())
        await until(lambda: store.reached)
        await ana.forget()
        gate, store.gate = store.gate, None
        gate.set()
        (outcome,) = await asyncio.gather(reading, return_exceptions=True)
        assert isinstance(outcome, Forgotten) or outcome.window == ()
        assert (await runtime.session("web-ana-1").layers()).window == ()
        assert await told(ana) == {}
        assert keeping is None or await ana._keeping() is not keeping


async def test_identify_into_whoever_is_forgotten(opened, words, watched, until):
    """Whoever is identified while the customer is being forgotten becomes the stranger of after."""
    async with opened(watched, deriver=words) as runtime:
        await runtime.session("s", customer="ana").record("secreto", "x")
        web = runtime.session("web")
        await web.record("uno", "x")
        await runtime.flush()
        watched.gates["forget"] = asyncio.Event()
        forgetting = asyncio.create_task(runtime.customer("ana").forget())
        await until(lambda: watched.reached["forget"])
        identifying = asyncio.create_task(web.identify("ana"))
        for _ in range(50):
            await asyncio.sleep(0)
        watched.gates.pop("forget").set()
        await asyncio.gather(forgetting, identifying)
        assert await told(runtime.customer("ana")) == {"uno": 1}
        assert await runtime.customer("ana").sessions() == ["web"]


async def test_a_forget_whose_store_fails(opened, words, watched, pairs):
    """A forget that the store refuses raises, never reports; tried again, it is done."""
    async with opened(watched, deriver=words) as runtime:
        await _fill(runtime)
        ana = runtime.customer("ana@example.org")
        watched.fail("forget", StoreFailed("disk"))
        with pytest.raises(StoreFailed):
            await ana.forget()
        assert len(await pairs(runtime.session("web-ana-1"))) == 4
        assert (await ana.forget()).messages == 16
        assert await ana.sessions() == []
        await runtime.session("web-ana-1", customer="ana@example.org").record("uno", "x")


async def test_closing_while_forgetting(opened, words, watched, until, balanced):
    """Closing lets a forget that was begun end, and its caller is told so."""
    async with opened(watched, deriver=words) as runtime:
        await _fill(runtime)
        watched.gates["forget"] = asyncio.Event()
        forgetting = asyncio.create_task(runtime.customer("ana@example.org").forget())
        await until(lambda: watched.reached["forget"])
        closing = asyncio.create_task(runtime.close())
        for _ in range(50):
            await asyncio.sleep(0)
        watched.gates.pop("forget").set()
        assert (await forgetting).messages == 16
        await closing
    balanced(runtime, at_rest=True)


async def test_a_forget_that_hangs_at_the_end(opened, words, watched, until, clock):
    """A forget whose store hangs over `drain_s` is told that the runtime closed."""
    async with opened(watched, deriver=words, clock=clock) as runtime:
        await _fill(runtime)
        watched.gates["forget"] = asyncio.Event()
        forgetting = asyncio.create_task(runtime.customer("ana@example.org").forget())
        await until(lambda: watched.reached["forget"])
        closing = asyncio.create_task(runtime.close())
        await clock.advance(11)
        with pytest.raises(RuntimeClosed):
            await forgetting
        await closing


async def test_a_cancelled_forget_ends(opened, words, interrupt):
    """Whoever is cancelled while forgetting tears nothing: it ends, and others are whole."""
    for at in range(1, 10):
        async with opened(MemoryStore(), deriver=words) as runtime:
            await _fill(runtime)
            going = await interrupt(runtime.customer("ana@example.org").forget(), at, "waiting")
            await runtime.session("web-ana-1").layers()
            assert await told(runtime.customer("eva")) == {"Vivo en Vigo": 1}
            assert (await runtime.session("web-ana-1").layers()).window == ()
        if not going:
            break
