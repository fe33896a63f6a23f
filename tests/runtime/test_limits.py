"""Limits on what a request, a customer and the closing may cost, each by its setting."""

from __future__ import annotations

import asyncio

import pytest

from interturn.runtime import MailboxFull, Overloaded, Settings
from interturn.storage import WriteCustomer

pytestmark = pytest.mark.anyio


class Refreshes:
    """A profiler that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    async def refresh(self, profile, recent, facts, *, cap_tokens):  # noqa: ARG002
        self.calls += 1
        return profile


def _snapshots(watched) -> int:
    return sum(isinstance(write, WriteCustomer) for batch in watched.commits for write in batch)


async def test_the_facts_of_a_request_are_bounded(opened, counter):
    """However many facts a question meets, those chosen cost `facts_tokens` at most."""
    async with opened(settings=Settings(facts_tokens=60)) as runtime:
        ana, session = runtime.customer("ana"), runtime.session("s", customer="ana")
        for number in range(40):
            await ana.remember(f"Compró la mesa de roble número {number}", slot=f"mesa:{number}")
        for text in ("¿Qué mesa de roble compré?", "¿Y la mesa de roble número 7?"):
            request = await session.assemble(text, budget=100_000)
            chosen = {scored.id for scored in request.receipt.facts}
            facts = [fact for fact in await ana.facts() if fact.id in chosen]
            assert 0 < len(facts) < 40
            assert sum(counter.count(fact.text) for fact in facts) <= 60
        recalled = await ana.recall("mesa de roble")
        assert 0 < sum(counter.count(scored.fact.text) for scored in recalled) <= 60
    async with opened(settings=Settings(facts_tokens=0)) as runtime:
        session = runtime.session("s", customer="ana")
        assert len(await session.customer.facts()) == 40
        assert (await session.assemble("¿Qué mesa de roble compré?")).receipt.facts == ()


@pytest.mark.parametrize("cap", [0, 32, 200])
async def test_what_stands_for_dropped_history_is_bounded(opened, counter, cap, say):
    """What a budget drops stands in the request in `compaction_tokens` at most."""
    async with opened(settings=Settings(compaction_tokens=cap)) as runtime:
        session = runtime.session("s")
        for number in range(6):
            await say(session, f"El pedido {4800 + number} de Ana llega el martes {number}. " * 20)
        whole = await session.assemble("¿Cuándo llega?")
        request = await session.assemble("¿Cuándo llega?", budget=whole.tokens // 3)
        assert request.receipt.compacted > 0
        added = request.receipt.blocks["summary"].tokens - whole.receipt.blocks["summary"].tokens
        assert added <= cap


async def test_a_profile_is_refreshed_every_so_many_turns(opened, say):
    """The profiler is asked once for each `profile_every` turns of a customer, in all sessions."""
    profiler = Refreshes()
    async with opened(profiler=profiler, settings=Settings(profile_every=5)) as runtime:
        for number in range(24):
            await say(runtime.session(f"s{number % 3}", customer="ana"), f"turno {number}")
        await runtime.flush()
        assert profiler.calls == 4


async def test_a_customer_rests_at_most_every_so_often(opened, watched, clock, words, say, until):
    """However much is learnt, a snapshot is written once in `snapshot_s`, and at the closing."""
    settings = Settings(snapshot_s=30)
    async with opened(watched, clock=clock, deriver=words, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        for number in range(10):
            await say(session, f"turno {number}")
            await runtime.flush()
            await clock.advance(2)
        assert _snapshots(watched) == 0
        await clock.advance(10)
        await until(lambda: _snapshots(watched) == 1)
        await clock.advance(300)
        assert _snapshots(watched) == 1  # nothing new, nothing written
        await say(session, "uno más")
        await runtime.flush()
    assert _snapshots(watched) == 2


async def test_closing_brings_many_customers_to_rest_together(opened, watched, words, say):
    """Customers with something to write share their commits at the closing, as turns do."""
    settings = Settings(snapshot_s=3_600)
    async with opened(watched, deriver=words, settings=settings) as runtime:
        turns = (say(runtime.session(f"s{n}", customer=f"c{n}"), f"soy {n}") for n in range(200))
        await asyncio.gather(*turns)
        await runtime.flush()
        before = len(watched.commits)
        assert _snapshots(watched) == 0
    assert _snapshots(watched) == 200
    assert len(watched.commits) - before <= 3
    async with opened() as runtime:
        assert [fact.text for fact in await runtime.customer("c7").facts()] == ["soy 7"]


async def test_a_closing_on_a_full_disk_loses_no_fact(opened, watched, words, say):
    """Where the closing finds the disk full, all is learnt again from the rows later."""
    settings = Settings(snapshot_s=3_600)
    async with opened(watched, deriver=words, settings=settings) as runtime:
        for number in range(3):
            await say(runtime.session(f"s{number}", customer=f"c{number}"), f"soy {number}")
        await runtime.flush()
        watched.full = True
    watched.full = False
    async with opened(deriver=words) as runtime:
        await runtime.flush()
        for number in range(3):
            facts = await runtime.customer(f"c{number}").facts()
            assert [fact.text for fact in facts] == [f"soy {number}"]


async def test_what_is_written_of_one_customer_is_bounded(opened, watched, until):
    """Beyond `mailbox` that wait for one customer, `remember` is refused; others are served."""
    async with opened(watched, settings=Settings(mailbox=4)) as runtime:
        ana = runtime.customer("ana")
        await ana.remember("primera", slot="a")
        watched.gates["commit"] = asyncio.Event()
        waiting = [asyncio.create_task(ana.remember(f"nota {n}")) for n in range(10)]
        await until(lambda: sum(task.done() for task in waiting) == 6)
        for task in [task for task in waiting if task.done()]:
            with pytest.raises(MailboxFull) as caught:
                await task
            assert (caught.value.depth, caught.value.bound) == (4, 4)
            assert caught.value.key.startswith("customer/")
            assert "ana" not in str(caught.value)
        assert runtime.statistics().rejected == 6
        watched.gates.pop("commit").set()
        await asyncio.gather(*(task for task in waiting if not task.done()))
        await ana.remember("después", slot="b")
        assert len(await ana.facts()) == 6


async def test_what_touches_several_actors_is_bounded_in_all(opened, watched, until):
    """Beyond `queued` forgettings and the like under way, another is `Overloaded`; then served."""
    async with opened(watched, settings=Settings(queued=3)) as runtime:
        for number in range(5):
            await runtime.customer(f"c{number}").remember("x", slot="a")
        watched.gates["forget"] = asyncio.Event()
        waiting = [asyncio.create_task(runtime.customer(f"c{n}").forget()) for n in range(3)]
        await until(lambda: watched.reached["forget"] == 3)
        with pytest.raises(Overloaded) as caught:
            await runtime.customer("c3").forget()
        assert (caught.value.what, caught.value.bound) == ("queued", 3)
        watched.gates.pop("forget").set()
        assert [erasure.facts for erasure in await asyncio.gather(*waiting)] == [1, 1, 1]
        assert (await runtime.customer("c3").forget()).facts == 1
