"""Taking back: the newest turn with what it alone taught, and whole sessions."""

from __future__ import annotations

import asyncio

import pytest

from interturn.runtime import MemoryStore, Reentered, Settings, StoreFailed

pytestmark = pytest.mark.anyio


async def told(customer) -> dict[str, int]:
    return {fact.text: fact.sightings for fact in await customer.facts()}


async def test_undo(opened, words, pairs, say):
    """The newest turn is gone from window, rows and facts; the next takes its number, and so on."""
    async with opened(deriver=words) as runtime:
        session, ana = runtime.session("s", customer="ana"), runtime.customer("ana")
        for text in ("uno", "dos", "tres"):
            await session.record(text, "x")
        await runtime.flush()
        assert await session.undo()
        assert [m.text for m in (await session.layers()).window[::2]] == ["uno", "dos"]
        assert await told(ana) == {"uno": 1, "dos": 1}
        assert "tres" not in str((await session.assemble("tres tres")).messages[:-1])
        assert await session.undo()
        assert await told(ana) == {"uno": 1}
        assert (await say(session, "cuatro")).seq == 3
        await runtime.flush()
        assert await told(ana) == {"uno": 1, "cuatro": 1}
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        session = runtime.session("s")
        assert [said for said, _ in await pairs(session)] == ["uno", "cuatro"]
        assert await told(session.customer) == {"uno": 1, "cuatro": 1}


async def test_what_others_taught_too_stays(opened):
    """Undo takes back only what the turn alone taught, and gives back what it replaced."""
    async with opened() as runtime:
        one, two = (runtime.session(s, customer="ana") for s in ("web", "tel"))
        await one.record("Vivo en Madrid", "Vale")
        await two.record("Soy alérgica a las nueces", "Vale")
        await one.record("Soy alérgica a las nueces", "Vale")
        await runtime.flush()
        assert await one.undo()
        facts = {f.slot: (f.text, f.sightings, f.was) for f in await one.customer.facts()}
        assert facts["home"] == ("Vivo en Madrid", 1, None)
        assert facts["allergy:nueces"][1] == 1
        await one.record("Ahora vivo en Valencia", "Vale")
        await runtime.flush()
        assert await one.undo()
        assert {f.slot: (f.text, f.sightings, f.was) for f in await one.customer.facts()} == facts


async def test_nothing_to_undo(opened, words):
    """With no turn, never a turn, or all of them folded, undo says no and changes nothing."""
    settings = Settings(window=2, fold_at=2)
    async with opened(deriver=words, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        assert not await session.undo()
        for number in range(4):
            await session.record(f"v{number}", "x")
        await runtime.flush()
        layers = await session.layers()
        assert (layers.cursor, len(layers.window)) == (6, 2)
        assert await session.undo()
        assert not await session.undo()
        assert (await session.layers()).cursor == 6
        assert (await session.record("nueva", "x")).seq == 7
        assert await session.undo()
        assert not await session.undo()


async def test_undo_beside_a_fold_under_way(opened, recorder, until, no_gap, words):
    """A fold that was begun before an undo changes nothing that was taken back (P6)."""
    recorder.gate = asyncio.Event()
    settings = Settings(window=2, fold_at=2)
    async with opened(summarizer=recorder, deriver=words, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        await session.record("dos", "x")
        await until(lambda: recorder.leaving)
        assert await session.undo()
        assert await session.undo()
        recorder.gate.set()
        await runtime.flush()
        layers = await session.layers()
        assert (layers.cursor, layers.summary, layers.window) == (0, "", ())
        assert (await session.record("tres", "x")).seq == 1
        await runtime.flush()
        no_gap(await session.layers(), 2, window=2)
        assert await told(session.customer) == {"tres": 1}


async def test_undo_of_what_isnt_learnt_yet(opened, words, until):
    """A turn that is taken back while it is being learnt from never becomes a fact."""
    words.gate = asyncio.Event()
    async with opened(deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        await session.record("dos", "x")
        await until(lambda: words.seen)
        assert await session.undo()
        words.gate.set()
        await runtime.flush()
        await session.record("tres", "x")
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1, "tres": 1}


async def test_undo_after_the_session_has_come_back(opened, words, until):
    """Also where the session left memory meanwhile, what is taken back isn't learnt."""
    words.gate = asyncio.Event()
    async with opened(deriver=words, settings=Settings(active=2)) as runtime:
        session = runtime.session("s", customer="ana")
        for text in ("uno", "dos", "tres"):
            await session.record(text, "x")
        await until(lambda: words.seen)
        for other in ("a", "b"):
            await runtime.session(other, customer="eva").layers()
        assert runtime.statistics().passivations
        assert await session.undo()
        words.gate.set()
        await session.record("cuatro", "x")
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1, "dos": 1, "cuatro": 1}


async def test_undo_after_a_crash_before_learning(opened, words, watched):
    """Turns found unlearnt at the start can be taken back, and those that follow are learnt."""
    held = type(words)()
    held.gate = asyncio.Event()
    async with opened(deriver=held, settings=Settings(drain_s=0)) as runtime:
        session = runtime.session("s", customer="ana")
        for text in ("uno", "dos", "tres"):
            await session.record(text, "x")
    words.gate = asyncio.Event()
    async with opened(watched, deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        assert await session.undo()
        words.gate.set()
        await session.record("cuatro", "x")
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1, "dos": 1, "cuatro": 1}


async def test_undo_waits_for_the_held_turn(opened, words, until, balanced):
    """Undo waits in the session's line, and takes back the turn that was held before it."""
    async with opened(deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        async with session.turn("dos") as turn:
            with pytest.raises(Reentered):
                await session.undo()
            undoing = asyncio.create_task(session.undo())
            await until(lambda: runtime.statistics().queued)
            await turn.reply("x")
        assert await undoing
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1}
        balanced(runtime, at_rest=True)


@pytest.mark.parametrize("applied", [False, True])
async def test_an_undo_whose_write_fails(opened, words, watched, applied, pairs):
    """An undo that fails changes nothing; one whose answer is lost is done, with its facts."""
    async with opened(watched, deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        await session.record("dos", "x")
        await runtime.flush()
        watched.fail("undo", StoreFailed("disk", unknown=applied), applied=applied)
        if applied:
            assert await session.undo()
        else:
            with pytest.raises(StoreFailed):
                await session.undo()
            assert await told(session.customer) == {"uno": 1, "dos": 1}
            assert await session.undo()
        assert (await session.record("tres", "x")).seq == 3
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1, "tres": 1}
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        session = runtime.session("s", customer="ana")
        assert await told(session.customer) == {"uno": 1, "tres": 1}
        assert [said for said, _ in await pairs(session)] == ["uno", "tres"]


async def test_a_cancelled_undo_tears_nothing(opened, words, interrupt, pairs):
    """Whoever is cancelled while taking back leaves a session whole: taken back, or not."""
    async with opened(MemoryStore(), deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        for at in range(1, 10):
            await session.record(f"v{at}", "x")
            await runtime.flush()
            before = len(await pairs(session))
            going = await interrupt(session.undo(), at, "woken")
            await session.record(f"w{at}", "x")
            await runtime.flush()
            said = [text for text, _ in await pairs(session)]
            assert len(said) in (before, before + 1)
            assert set(await told(session.customer)) == set(said)
            if not going:
                break


async def test_a_delivery_taken_back_may_come_again(opened, words, say):
    """After undo the same delivery id is a new turn, as for a regenerated answer."""
    async with opened(deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x", delivery_id="d1")
        assert await session.undo()
        assert not (await session.record("uno", "y", delivery_id="d1")).duplicate
        await runtime.flush()
        assert await told(session.customer) == {"uno": 1}


async def test_delete(opened, words, path, pairs):
    """A deleted session is in no file; its customer's facts stay, and the id starts anew."""
    async with opened(deriver=words) as runtime:
        session, ana = runtime.session("s", customer="ana"), runtime.customer("ana")
        assert await session.delete() == 0
        for text in ("uno", "dos"):
            await session.record(text, "x")
        await runtime.session("otra", customer="ana").record("tres", "x")
        await runtime.flush()
        (row, _) = await runtime._inside.vault.store.sessions_of((await ana._keeping()).ref)
        assert await session.delete() == 4
        assert not any(row.wrapped in f.read_bytes() for f in path.parent.iterdir())
        assert await ana.sessions() == ["otra"]
        assert await told(ana) == {"uno": 1, "dos": 1, "tres": 1}
        assert (await session.layers()).window == ()
        assert (await session.record("cuatro", "x")).seq == 1
        await runtime.flush()
        assert await told(ana) == {"uno": 1, "dos": 1, "tres": 1, "cuatro": 1}
        assert await pairs(session) == [("cuatro", "x")]
        assert await session.delete() == 2
        assert await session.delete() == 0


async def test_delete_while_learning_and_folding(opened, words, recorder, until):
    """A session deleted while a fold and a derivation of it are under way is gone, and quiet."""
    words.gate, recorder.gate = asyncio.Event(), asyncio.Event()
    settings = Settings(window=2, fold_at=2)
    async with opened(deriver=words, summarizer=recorder, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        for number in range(3):
            await session.record(f"v{number}", "x")
        await until(lambda: words.seen and recorder.leaving)
        assert await session.delete() == 6
        words.gate.set()
        recorder.gate.set()
        await runtime.flush()
        assert await told(session.customer) == {}
        assert (await session.record("nueva", "x")).seq == 1
        await runtime.flush()
        assert await told(session.customer) == {"nueva": 1}
