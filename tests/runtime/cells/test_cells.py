"""Cells alone, on asyncio and on trio: a house with a nursery for tasks and a list for a disk."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import anyio
import anyio.lowlevel
import pytest

from interturn.actors.commands import Answer, Granted, Known, Record, Release, Take
from interturn.actors.errors import CustomerMismatch, TurnClosed
from interturn.runtime.cell import EDGES, SLICE_S, IllegalMove, Phase
from interturn.runtime.errors import ActorFailed, Quarantined, StoreFailed
from interturn.runtime.letter import Look

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)


def _record(text, delivery=None):
    return Record(text, "r", NOON, delivery)


def _answer(ticket, text):
    return Answer(ticket, text, "r", NOON)


@pytest.mark.parametrize(("start", "to"), list(product(Phase, Phase)), ids=lambda phase: phase.name)
async def test_the_table_of_moves(home, start, to):
    """Each legal move is made; each other one is `IllegalMove` and changes nothing."""
    async with home() as house:
        house.cell.phase = start
        if to in EDGES[start]:
            house.cell.move(to)
            assert house.cell.phase is to
        else:
            with pytest.raises(IllegalMove, match=f"{start.name} to {to.name}"):
                house.cell.move(to)
            assert house.cell.phase is start


def test_the_table_is_the_life_of_a_cell():
    """The legal moves, written out: no other edge can slip into the table unseen."""
    assert {(start.name, to.name) for start, ends in EDGES.items() for to in ends} == {
        ("ABSENT", "ACTIVATING"),
        ("ACTIVATING", "READY"),
        ("ACTIVATING", "ABSENT"),
        ("ACTIVATING", "QUARANTINED"),
        ("READY", "DEACTIVATING"),
        ("READY", "ACTIVATING"),
        ("READY", "QUARANTINED"),
        ("DEACTIVATING", "ABSENT"),
        ("QUARANTINED", "ACTIVATING"),
        ("QUARANTINED", "ABSENT"),
    }


async def test_twenty_first_messages_share_one_activation(home):
    """First messages that come at once share one activation, and are handled in their order."""
    async with home() as house:
        letters = [house.cell.ask(_record(str(n))) for n in range(20)]
        assert house.cell.phase is Phase.ACTIVATING
        for letter in letters:
            await letter.promise.wait()
        assert house.counts["activations"] == 1
        assert house.said == [str(n) for n in range(20)]
        assert (house.cell.mailbox, house.cell.line) == (None, None)
        assert house.counts["queued"] == 0


async def test_a_failed_activation_fails_its_waiters_and_nothing_else(home):
    """Those who wait for an actor that can't come are told why; the next message tries anew."""
    async with home() as house:
        house.refusals.append(StoreFailed("disk"))
        letters = [house.cell.ask(_record(str(n))) for n in range(5)]
        for letter in letters:
            with pytest.raises(StoreFailed):
                await letter.promise.wait()
        assert house.cell.phase is Phase.ABSENT
        assert house.counts["gone"] == 1
        await house.cell.ask(_record("again")).promise.wait()
        assert house.said == ["again"]


async def test_an_activation_that_fails_too_often_rests(home):
    """Too many failures quarantine the cell, with the time until it may be tried again."""
    async with home() as house:
        house.refusals.append(ActorFailed("session/x", "KeyError"))
        house.rest_s = 5.0
        with pytest.raises(ActorFailed):
            await house.cell.ask(_record("a")).promise.wait()
        assert house.cell.phase is Phase.QUARANTINED
        assert house.cell.retry_at == 5.0
        assert not house.cell.may_leave(4.9)
        assert house.cell.may_leave(5.0)


async def test_an_idle_cell_decides_at_once(home):
    """On an idle cell a decision that needs no disk is made in the caller, with no await."""
    async with home() as house:
        await house.cell.ask(_record("a")).promise.wait()
        take = house.cell.ask(Take(1))
        assert take.promise.done
        assert isinstance(take.promise.result(), Granted)
        look = house.cell.ask(Look(lambda cell: cell.actor.last))
        assert look.promise.result() == 2
        assert house.cell.tell(Release(1)).promise.done
        assert house.cell.idle


async def test_looking_waits_for_nothing_that_is_written(home):
    """A look is answered while a turn is on its way to disk, from the state before it."""
    async with home() as house:
        await house.cell.ask(_record("a")).promise.wait()
        writing = house.cell.ask(_record("b"))
        look = house.cell.ask(Look(lambda cell: cell.actor.last))
        assert (look.promise.done, look.promise.result()) == (True, 2)
        await writing.promise.wait()


async def test_looking_is_only_for_who_may(home):
    """A caller who names another customer is refused a look, as any other message."""
    async with home() as house:
        house.owner.name = "ana"
        await house.cell.ask(_record("a"), "ana").promise.wait()
        for command in (Look(lambda cell: cell.actor.last), _record("b"), Take(1)):
            with pytest.raises(CustomerMismatch):
                await house.cell.ask(command, "eve").promise.wait()
            assert house.cell.idle
        assert house.cell.ask(Look(lambda cell: cell.actor.last)).promise.result() == 2


async def test_turns_are_taken_first_come_first_served(home):
    """Who waits for a turn takes it in the order of arrival, before whatever came later."""
    async with home() as house:
        cell = house.cell
        await cell.ask(Take(1)).promise.wait()
        waiting = [cell.ask(Take(2)), cell.ask(_record("b")), cell.ask(Take(3))]
        assert house.counts["waits"] == 1
        reply = cell.ask(_answer(1, "a"))
        late = cell.ask(_record("d"))
        await reply.promise.wait()
        await waiting[0].promise.wait()
        assert (cell.held, waiting[1].promise.done) == (2, False)
        cell.tell(Release(2))
        await waiting[2].promise.wait()
        assert cell.held == 3
        await cell.ask(_answer(3, "c")).promise.wait()
        await late.promise.wait()
        assert house.said == ["a", "b", "c", "d"]


async def test_a_release_overtakes_whatever_waits(home):
    """A turn given back while something is being written frees it before the rest goes on."""
    async with home() as house:
        cell = house.cell
        await cell.ask(Take(1)).promise.wait()
        line = cell.ask(Take(2))
        reply = cell.ask(_answer(1, "a"))
        behind = cell.ask(_record("b"))
        cell.tell(Release(1))
        await reply.promise.wait()
        await line.promise.wait()
        assert cell.held == 2
        cell.tell(Release(2))
        await behind.promise.wait()
        assert house.said == ["a", "b"]
        assert house.counts["queued"] == 0


async def test_what_waits_can_be_withdrawn_and_what_is_under_way_cannot(home):
    """A message is withdrawn while it waits; under way it completes."""
    async with home() as house:
        cell = house.cell
        await cell.ask(_record("a")).promise.wait()
        under_way, waits, stays = (cell.ask(_record(t)) for t in "bcd")
        assert not cell.withdraw(under_way, StoreFailed("x"))
        assert cell.withdraw(waits, StoreFailed("x"))
        assert not cell.withdraw(waits, StoreFailed("x"))
        await stays.promise.wait()
        assert house.said == ["a", "b", "d"]
        await cell.ask(Take(1)).promise.wait()
        lone = cell.ask(Take(2))
        assert cell.withdraw(lone, StoreFailed("x"))
        assert (cell.mailbox, cell.line, house.counts["queued"]) == (None, None, 0)


async def test_a_queue_lets_others_have_the_loop(home):
    """After a millisecond of work a queue goes on in a task of its own, and loses nothing."""
    async with home() as house:
        cell = house.cell
        house.tick = SLICE_S / 4
        letters = [cell.ask(Look(lambda _, n=n: n)) for n in range(40)]
        assert [await letter.promise.wait() for letter in letters] == list(range(40))
        assert house.counts["went on"] >= 5


async def test_what_an_actor_doesnt_declare_drops_its_state(home):
    """An undeclared failure fails its message alone; the state is read again from disk."""
    async with home() as house:
        cell = house.cell
        await cell.ask(_record("a")).promise.wait()
        first = cell.actor
        with pytest.raises(ActorFailed, match="ZeroDivisionError"):
            await cell.ask(Look(lambda _: 1 / 0)).promise.wait()
        assert cell.phase is Phase.ABSENT
        assert cell.ask(_record("b")).promise is not None
        await cell.ask(_record("c")).promise.wait()
        assert cell.actor is not first
        assert house.said == ["a", "b", "c"]


@pytest.mark.parametrize("failing", [False, True])
async def test_a_look_that_fails_while_something_is_written(home, failing):
    """A look that fails leaves what is on its way to disk to be settled, and nothing else falls."""
    async with home() as house:
        cell = house.cell
        await cell.ask(_record("a")).promise.wait()
        for rest_s in (None, 1.0):
            house.rest_s = rest_s
            if failing:
                house.failures.append(StoreFailed("disk"))
            writing = cell.ask(_record("b"))
            with pytest.raises(ActorFailed):
                await cell.ask(Look(lambda _: 1 / 0)).promise.wait()
            if failing:
                with pytest.raises(StoreFailed):
                    await writing.promise.wait()
            else:
                await writing.promise.wait()
            await cell.ask(_record("c")).promise.wait()
        assert house.said == (["a", "c", "c"] if failing else ["a", "b", "c", "b", "c"])


async def test_a_turn_outlives_the_state_it_is_held_in(home):
    """A held turn outlives a failure, a failed write and a failed reading."""
    async with home() as house:
        cell = house.cell
        await cell.ask(Take(1)).promise.wait()
        with pytest.raises(ActorFailed):
            await cell.ask(Look(lambda _: 1 / 0)).promise.wait()
        assert cell.held == 1
        house.failures.append(StoreFailed("disk"))
        with pytest.raises(StoreFailed):
            await cell.ask(_answer(1, "a")).promise.wait()
        house.refusals.append(StoreFailed("disk"))
        with pytest.raises(StoreFailed):
            await cell.ask(_record("waits")).promise.wait()
        assert (cell.held, cell.phase) == (1, Phase.ABSENT)
        assert not cell.may_leave(0)
        await cell.ask(_answer(1, "a")).promise.wait()
        assert house.said == ["a"]
        assert cell.idle


async def test_a_turn_given_back_while_its_actor_is_away(home):
    """A turn given back while the state is being read, or couldn't be, is free."""
    async with home() as house:
        cell = house.cell
        for refused in (False, True):
            await cell.ask(Take(1)).promise.wait()
            house.failures.append(StoreFailed("disk"))
            if refused:
                house.refusals.append(StoreFailed("disk"))
            with pytest.raises(StoreFailed):
                await cell.ask(_answer(1, "a")).promise.wait()
            if refused:
                while cell.phase is not Phase.ABSENT:
                    await anyio.lowlevel.checkpoint()
            cell.tell(Release(1))
            assert cell.held is None
            await cell.ask(_record("b")).promise.wait()
            with pytest.raises(TurnClosed):
                await cell.ask(_answer(1, "a")).promise.wait()
        assert house.said == ["b", "b"]


async def test_a_turn_left_while_its_reply_fails_is_free(home):
    """A turn left while its reply was on its way is free, whatever fails after that."""
    async with home() as house:
        cell = house.cell
        for refused in (False, True):
            await cell.ask(Take(1)).promise.wait()
            reply = cell.ask(_answer(1, "a"))
            cell.tell(Release(1))
            house.failures.append(StoreFailed("disk"))
            if refused:
                house.refusals.append(StoreFailed("disk"))
            with pytest.raises(StoreFailed):
                await reply.promise.wait()
            while cell.phase is Phase.ACTIVATING:
                await anyio.lowlevel.checkpoint()
            assert cell.held is None
            await cell.ask(_record("b")).promise.wait()
        assert house.said == ["b", "b"]


async def test_a_quarantined_cell_refuses_who_waited(home):
    """When a cell rests, those who waited are told so with the time."""
    async with home() as house:
        cell = house.cell
        await cell.ask(Take(1)).promise.wait()
        waits = cell.ask(Take(2))
        house.rest_s = 3.0
        with pytest.raises(ActorFailed):
            await cell.ask(Look(lambda _: 1 / 0)).promise.wait()
        with pytest.raises(Quarantined) as caught:
            await waits.promise.wait()
        assert caught.value.retry_s == 3.0
        with pytest.raises(TurnClosed):
            await cell.ask(_answer(1, "a")).promise.wait()
        assert cell.phase is Phase.QUARANTINED
        cell.tell(Release(1))
        house.rest_s = None
        await cell.ask(_record("later")).promise.wait()
        assert house.said == ["later"]


async def test_an_answer_to_no_turn_brings_nobody_in(home):
    """An answer to a turn that isn't held is `TurnClosed`, and no actor is made for it."""
    async with home() as house:
        with pytest.raises(TurnClosed):
            await house.cell.ask(_answer(7, "a")).promise.wait()
        assert house.counts["activations"] == 0
        await house.cell.ask(_record("a")).promise.wait()
        house.cell.leave()
        assert house.cell.phase is Phase.ABSENT
        with pytest.raises(TurnClosed):
            await house.cell.ask(_answer(7, "a")).promise.wait()
        assert house.counts["activations"] == 1


async def test_a_known_delivery_is_answered_from_memory_or_from_disk(home):
    """A delivery that was recorded is `Known`, whoever knows it first."""
    async with home() as house:
        await house.cell.ask(_record("a", b"d")).promise.wait()
        again = house.cell.ask(_record("a", b"d"))
        assert again.promise.result() == Known(1)
        house.cell.actor._deliveries.clear()
        assert await house.cell.ask(_record("a", b"d")).promise.wait() == Known(1)
        assert house.said == ["a"]
