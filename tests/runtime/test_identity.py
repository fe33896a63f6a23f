"""Who a visitor turns out to be: identify and merge, whatever goes on meanwhile."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from interturn.runtime import (
    CustomerMismatch,
    MemoryStore,
    Reentered,
    Runtime,
    Settings,
    StoreFailed,
    TurnTimeout,
)

pytestmark = pytest.mark.anyio


async def told(customer) -> dict[str, int]:
    return {fact.text: fact.sightings for fact in await customer.facts()}


async def test_identify(opened, words, pairs):
    """An anonymous visitor who is identified brings session and facts to the customer's own."""
    async with opened(deriver=words) as runtime:
        await runtime.session("tel", customer="ana").record("uno", "x")
        web = runtime.session("web")
        await web.record("dos", "x")
        await web.record("uno", "x")
        await runtime.flush()
        assert (await web.layers()).customer is None
        await web.identify("ana")
        ana = runtime.customer("ana")
        assert await told(ana) == {"uno": 2, "dos": 1}
        assert await ana.sessions() == ["tel", "web"]
        assert (await web.layers()).customer == "ana"
        await web.identify("ana")  # again is fine
        await runtime.session("web", customer="ana").record("tres", "x")
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        ana = runtime.customer("ana")
        assert await told(ana) == {"uno": 2, "dos": 1, "tres": 1}
        assert len(await pairs(runtime.session("web", customer="ana"))) == 3


async def test_nothing_learnt_is_doubled_by_identify(opened, words):
    """What identify took over from an anonymous visitor isn't learnt again after a restart."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        await web.record("uno", "x")
        await runtime.flush()  # learnt, and not at rest yet
        await web.identify("ana")
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1}
    assert words.seen == ["uno"]


async def test_identify_for_another_is_refused(opened, words):
    """A session of a named customer is never given to another, nor found by their name."""
    async with opened(deriver=words) as runtime:
        session = runtime.session("s", customer="ana")
        await session.record("uno", "x")
        with pytest.raises(CustomerMismatch):
            await runtime.session("s").identify("berta")
        with pytest.raises(CustomerMismatch):
            await runtime.session("s", customer="berta").record("x", "y")
        await runtime.flush()
        assert await told(runtime.customer("berta")) == {}
        assert await told(runtime.customer("ana")) == {"uno": 1}


async def test_identify_before_the_first_turn(opened, words):
    """A session with no turn yet can be identified, and its first turn is the customer's."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        await web.identify("ana")
        await web.record("uno", "x")
        await runtime.flush()
        assert await runtime.customer("ana").sessions() == ["web"]
        assert await told(runtime.customer("ana")) == {"uno": 1}


async def test_identify_before_the_first_turn_is_durable(opened, words):
    """Whoever logs in and says nothing is still known after a restart."""
    async with opened(deriver=words) as runtime:
        await runtime.session("web").identify("ana")
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        assert (await web.layers()).customer == "ana"
        assert await runtime.customer("ana").sessions() == ["web"]
        with pytest.raises(CustomerMismatch):
            await web.identify("berta")
        await web.record("uno", "x")
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1}


@pytest.mark.parametrize("applied", [False, True])
async def test_an_early_identify_whose_write_fails(opened, words, watched, applied):
    """Before the first turn too: not done is said, a lost answer is looked up."""
    async with opened(watched, deriver=words) as runtime:
        web = runtime.session("web")
        watched.fail("adopt", StoreFailed("disk", unknown=applied), applied=applied)
        if applied:
            await web.identify("ana")
        else:
            with pytest.raises(StoreFailed):
                await web.identify("ana")
            assert (await web.layers()).customer is None
            await web.identify("ana")
        await web.record("uno", "x")
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1}


async def test_identify_takes_what_an_operator_noted(opened, words):
    """What was remembered of a visitor before their first turn becomes the customer's."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        await web.customer.remember("Viene de la feria", slot="origin")
        await web.identify("ana")
        assert await told(runtime.customer("ana")) == {"Viene de la feria": 1}
        await web.record("uno", "x")
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"Viene de la feria": 1, "uno": 1}


async def test_identify_waits_for_the_held_turn(opened, words, until, balanced):
    """Identify waits in the session's line: the held turn ends as the visitor's, then it goes."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        async with web.turn("uno") as turn:
            with pytest.raises(Reentered):
                await web.identify("ana")
            identifying = asyncio.create_task(web.identify("ana"))
            await until(lambda: runtime.statistics().queued)
            assert not identifying.done()
            await turn.reply("x")
        await identifying
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1}
        balanced(runtime, at_rest=True)


async def test_identify_while_derivation_hangs(opened, words, until):
    """Identify doesn't wait for a deriver that hangs; what it was reading is learnt as theirs."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        words.gate = asyncio.Event()
        await web.record("uno", "x")
        await web.record("dos", "x")
        await until(lambda: words.seen)
        await web.identify("ana")
        assert await runtime.customer("ana").sessions() == ["web"]
        words.gate.set()
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "dos": 1}


async def test_a_cancelled_identify_tears_nothing(opened, words, interrupt):
    """Whoever is cancelled while identifying leaves a whole session, one's or the other's."""
    async with opened(MemoryStore(), deriver=words) as runtime:
        for at in range(1, 12):
            web = runtime.session(f"web{at}")
            await web.record(f"v{at}", "x")
            going = await interrupt(web.identify("ana"), at, "waiting")
            await web.identify("ana")
            assert (await web.layers()).customer == "ana"
            await runtime.flush()
            assert (await told(runtime.customer("ana")))[f"v{at}"] == 1
            if not going:
                break


async def test_the_anonymous_key_is_nowhere_afterwards(opened, words, path):
    """After identify the anonymous visitor's wrapped key is in no file."""
    async with opened(deriver=words) as runtime:
        web = runtime.session("web")
        await web.record("uno", "x")
        keeping = await web.owner()
        row = await runtime._inside.vault.store.load_customer(keeping.hash)
        assert any(row.wrapped in f.read_bytes() for f in path.parent.iterdir())
        await web.identify("ana")
        assert not any(row.wrapped in f.read_bytes() for f in path.parent.iterdir())
        assert await runtime._inside.vault.store.load_customer(keeping.hash) is None


@pytest.mark.parametrize("applied", [False, True])
async def test_an_identify_whose_write_fails(opened, words, watched, applied):
    """An identify that fails changes nothing; one whose answer is lost is done. Both go on."""
    async with opened(watched, deriver=words) as runtime:
        web = runtime.session("web")
        await web.record("uno", "x")
        await runtime.flush()
        watched.fail("adopt", StoreFailed("disk", unknown=applied), applied=applied)
        if applied:
            await web.identify("ana")
        else:
            with pytest.raises(StoreFailed):
                await web.identify("ana")
            assert (await web.layers()).customer is None
            assert await told(runtime.customer("ana")) == {}
            await web.identify("ana")
        await web.record("dos", "x")
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "dos": 1}
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "dos": 1}
        assert await runtime.customer("ana").sessions() == ["web"]


async def test_a_crash_in_the_middle_of_identify(opened, words, watched, path, keyring, tmp_path):
    """In the files before and after the write, all is one's or all the other's."""
    async with opened(watched, deriver=words) as runtime:
        web = runtime.session("web")
        await web.record("uno", "x")
        await runtime.flush()
        shutil.copytree(path.parent, tmp_path / "before")
        await web.identify("ana")
        shutil.copytree(path.parent, tmp_path / "after")
    for name, owner in (("before", None), ("after", "ana")):
        async with opened(tmp_path / name / path.name, deriver=words) as runtime:
            await runtime.flush()
            web = runtime.session("web")
            assert (await web.layers()).customer == owner
            assert await told(web.customer) == {"uno": 1}
            assert await told(runtime.customer("ana")) == ({"uno": 1} if owner else {})


@pytest.mark.parametrize("present", [True, False], ids=["in memory", "at rest"])
async def test_merge(opened, words, pairs, present):
    """Merging makes sessions and facts of two customers one's, whether in memory or not."""
    async with opened(deriver=words) as runtime:
        for who, text in (("ana", "uno"), ("ana", "ambas"), ("eva", "ambas"), ("eva", "dos")):
            await runtime.session(f"de {who}", customer=who).record(text, "x")
        await runtime.flush()
        if present:
            await runtime.customer("ana").merge("eva")
            assert (await runtime.session("de eva").layers()).customer == "ana"
            await runtime.session("de eva").record("tres", "x")
    async with opened(deriver=words) as runtime:
        if not present:
            await runtime.customer("ana").merge("eva")
            await runtime.session("de eva").record("tres", "x")
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "ambas": 2, "dos": 1, "tres": 1}
        assert await runtime.customer("ana").sessions() == ["de ana", "de eva"]
        assert await runtime.customer("eva").sessions() == []
        assert await told(runtime.customer("eva")) == {}
        assert len(await pairs(runtime.session("de eva", customer="ana"))) == 3
        with pytest.raises(CustomerMismatch):
            await runtime.session("de eva", customer="eva").layers()


async def test_merge_waits_for_held_turns(opened, words, until, balanced):
    """Merging waits for turns of whoever leaves, also of a session that has no turn yet."""
    async with opened(deriver=words) as runtime:
        eva = runtime.session("vieja", customer="eva")
        await eva.record("uno", "x")
        async with runtime.session("nueva", customer="eva").turn("dos") as turn:
            with pytest.raises(Reentered):
                await runtime.customer("ana").merge("eva")
            merging = asyncio.create_task(runtime.customer("ana").merge("eva"))
            await until(lambda: runtime.statistics().queued)
            assert not merging.done()
            await turn.reply("x")
        await merging
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "dos": 1}
        assert await runtime.customer("ana").sessions() == ["vieja", "nueva"]
        balanced(runtime, at_rest=True)


async def test_a_merge_that_waits_too_long(opened, words, clock, until, balanced):
    """A merge that can't have a session within `turn_s` gives up, and nothing has changed."""
    async with opened(deriver=words, clock=clock, settings=Settings(turn_s=60)) as runtime:
        await runtime.session("s", customer="eva").record("uno", "x")
        async with runtime.session("s").turn("dos"):
            merging = asyncio.create_task(runtime.customer("ana").merge("eva"))
            await until(lambda: runtime.statistics().queued)
            await clock.advance(61)
            outcome = (await asyncio.gather(merging, return_exceptions=True))[0]
        assert outcome is None or isinstance(outcome, TurnTimeout)
        owner = "ana" if outcome is None else "eva"
        assert await runtime.customer(owner).sessions() == ["s"]
        balanced(runtime, at_rest=True)


@pytest.mark.parametrize("store", [MemoryStore, None])
async def test_merges_the_other_way_round_at_once(opened, words, store):
    """Merges a into b and b into a at once don't wait for each other, and end in one customer."""
    async with opened(store and store(), deriver=words) as runtime:
        for who in "ab":
            await runtime.session(f"de {who}", customer=who).record(who, "x")
        await runtime.flush()
        a, b = runtime.customer("a"), runtime.customer("b")
        await asyncio.gather(a.merge("b"), b.merge("a"))
        owners = [who for who in (a, b) if await who.sessions()]
        assert len(owners) == 1
        assert await told(owners[0]) == {"a": 1, "b": 1}
        assert sorted(await owners[0].sessions()) == ["de a", "de b"]


async def test_merging_nobody(opened, words):
    """Merging a stranger, or oneself, changes nothing."""
    async with opened(deriver=words) as runtime:
        await runtime.session("s", customer="ana").record("uno", "x")
        await runtime.flush()
        await runtime.customer("ana").merge("ana")
        await runtime.customer("ana").merge("nadie")
        assert await told(runtime.customer("ana")) == {"uno": 1}
        await runtime.customer("nadie").merge("ana")
        assert await told(runtime.customer("nadie")) == {"uno": 1}
        assert isinstance(runtime, Runtime)


async def test_a_new_session_of_who_leaves(opened, words, pairs):
    """A session in memory with no turn yet goes along in a merge, and can be written."""
    async with opened(deriver=words) as runtime:
        await runtime.session("vieja", customer="eva").record("uno", "x")
        await runtime.session("nueva", customer="eva").layers()
        await runtime.customer("ana").merge("eva")
        await runtime.session("nueva").record("dos", "x")
        await runtime.flush()
        assert await told(runtime.customer("ana")) == {"uno": 1, "dos": 1}
        assert await pairs(runtime.session("nueva", customer="ana")) == [("dos", "x")]


async def test_who_names_the_owner_while_another_began_the_reading(opened, watched, until):
    """The first caller left during the reading: a new session is the next one's who names one."""
    gate = watched.gates["load_customer"] = asyncio.Event()
    async with opened(watched) as runtime:
        first = asyncio.create_task(runtime.session("s").layers())
        await until(lambda: watched.reached["load_customer"])
        first.cancel()
        second = asyncio.create_task(runtime.session("s", customer="bea").record("a", "b"))
        await until(first.done)
        gate.set()
        assert (await second).seq == 1
        assert (await runtime.session("s").layers()).customer == "bea"
