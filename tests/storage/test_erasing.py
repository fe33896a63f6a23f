"""Undoing, deleting, adopting, forgetting: the contract that every backend keeps."""

from __future__ import annotations

import asyncio
import os

import msgspec
import pytest

from interturn.storage import Adoption, Erased, Fenced, StoreFailed

pytestmark = pytest.mark.anyio

OWNER = "here/1"
MINUTE_S = 60.0


async def load(store, scribe, ref):
    return await store.load_session(scribe.hasher.session(f"s{ref}"), recent=64)


async def contents(store, scribe):
    """Return all that a store tells of three sessions and their customers."""
    return (
        [await load(store, scribe, ref) for ref in (1, 2, 3)],
        await store.customers(after=0, limit=99),
        [await store.rows(ref, after=0, limit=99) for ref in (1, 2, 3)],
    )


# Forgetting a customer, deleting a session.


async def test_forgetting_removes_all_of_a_customer_and_nothing_of_others(store, scribe):
    """Sessions, messages, key and snapshot; the receipt counts what went."""
    await store.commit([scribe.first(1), scribe.turn(1, 3), scribe.first(2)])
    await store.commit([scribe.first(3, customer=1), scribe.facts(1, 0), scribe.snapshot(1, 2, 0)])
    before = await contents(store, scribe)
    assert await store.forget(1) == Erased(sessions=2, messages=6)
    sessions, customers, rows = await contents(store, scribe)
    assert sessions == [None, before[0][1], None]
    assert customers == before[1][1:]
    assert rows == [[], before[2][1], []]
    assert await store.sessions_of(1) == []
    assert await store.load_customer(scribe.hasher.customer("c1")) is None
    assert await store.commit([scribe.turn(2, 3), scribe.turn(1, 5)]) == ["written", "stale"]


async def test_nothing_to_remove_is_nothing(store, scribe):
    """Forget, delete and undo as the first calls, of what never was, and twice: all zero."""
    assert await store.forget(1) == Erased(0, 0)
    assert await store.delete_session(1) == 0
    assert await store.undo(1, 1) is False
    await store.commit([scribe.first(1)])
    assert await store.forget(1) == Erased(1, 2)
    assert await store.forget(1) == Erased(0, 0)
    assert await store.delete_session(1) == 0


async def test_who_was_forgotten_can_come_again_as_somebody_new(store, scribe):
    """The same ids, the same deliveries: nothing of before is known."""
    await store.commit([scribe.first(1, "d")])
    await store.forget(1)
    first = scribe.first(1, "d")
    assert await store.commit([first]) == ["written"]
    loaded = await load(store, scribe, 1)
    assert (loaded.customer, loaded.last) == (first.new_customer, 2)


async def test_a_session_is_deleted_and_its_customer_stays(store, scribe):
    """It tells how many messages went; another session of theirs is as it was."""
    await store.commit([scribe.first(1), scribe.turn(1, 3, "d"), scribe.first(2, customer=1)])
    before = await contents(store, scribe)
    assert await store.delete_session(1) == 4
    sessions, customers, rows = await contents(store, scribe)
    assert sessions == [None, before[0][1], None]
    assert (customers, rows[1]) == (before[1], before[2][1])
    assert await store.commit([scribe.turn(1, 5)]) == ["stale"]
    again = msgspec.structs.replace(scribe.first(1, "d", customer=1), new_customer=None)
    assert await store.commit([again]) == ["written"]


# Undoing the newest turn.


async def test_undoing_takes_the_newest_turn_back(store, scribe):
    """Both rows and the delivery; what was derived goes back; the next turn takes its place."""
    await store.commit([scribe.first(1), scribe.turn(1, 3, "d"), scribe.first(2)])
    await store.commit([scribe.facts(1, 0, (1, 4))])
    facts = scribe.facts(1, 1, (1, 9))
    assert await store.undo(1, 3, snapshot=facts) is True
    loaded = await load(store, scribe, 1)
    assert (loaded.last, loaded.session.derived) == (2, 2)
    assert (loaded.customer.snapshot, loaded.customer.version) == (facts.snapshot, 2)
    assert await store.underived(after=0, limit=1) == await store.underived(after=1, limit=1)
    assert await store.commit([scribe.turn(1, 3, "d")]) == ["written"]
    assert await store.undo(1, 3) is True
    assert await store.undo(1, 1) is True
    assert await store.commit([scribe.turn(1, 1)]) == ["written"]


@pytest.mark.parametrize("seq", [-1, 0, 1, 2, 4, 5])
async def test_only_the_newest_turn_can_be_undone(store, scribe, seq):
    """By its visitor's number and no other; then nothing has changed."""
    await store.commit([scribe.first(1), scribe.turn(1, 3)])
    before = await contents(store, scribe)
    assert await store.undo(1, seq, snapshot=scribe.facts(1, 0)) is False
    assert await contents(store, scribe) == before


@pytest.mark.parametrize("cursor", [3, 4])
async def test_a_folded_turn_cannot_be_undone(store, scribe, cursor):
    """It is in the summary already."""
    await store.commit([scribe.first(1), scribe.turn(1, 3), scribe.snapshot(1, cursor, 0)])
    assert await store.undo(1, 3) is False
    assert (await load(store, scribe, 1)).last == 4


@pytest.mark.parametrize(("customer", "seen"), [(1, 1), (2, 0), (7, 0)])
async def test_a_stale_snapshot_undoes_nothing(store, scribe, customer, seen):
    """Another version, another customer's, nobody's: refused whole."""
    await store.commit([scribe.first(1), scribe.first(2)])
    before = await contents(store, scribe)
    with pytest.raises(StoreFailed, match="stale") as told:
        await store.undo(1, 1, snapshot=scribe.facts(customer, seen))
    assert not told.value.unknown
    assert await contents(store, scribe) == before


# Adopting sessions: identify and merge.


async def test_sessions_are_adopted_by_a_new_customer(store, scribe):
    """Identify: rows, cursor and marks stay, the key is the newly wrapped one, the rest went."""
    await store.commit([scribe.first(1, customer=5), scribe.turn(1, 3), scribe.first(2)])
    await store.commit([scribe.facts(5, 0, (1, 2)), scribe.snapshot(1, 2, 0)])
    before = await load(store, scribe, 1)
    facts = scribe.facts(9, 0, (1, 4))
    await store.adopt(
        Adoption(
            sessions=[(1, b"newly wrapped")],
            customer=9,
            new_customer=scribe.customer(9),
            snapshot=facts,
            leaving=5,
        )
    )
    after = await load(store, scribe, 1)
    assert after.session == msgspec.structs.replace(
        before.session, customer=9, wrapped=b"newly wrapped", derived=4
    )
    assert (after.rows, after.last) == (before.rows, before.last)
    assert (after.customer.ref, after.customer.snapshot) == (9, facts.snapshot)
    assert [customer.ref for customer in await store.customers(after=0, limit=9)] == [2, 9]
    assert await store.commit([scribe.turn(1, 5)]) == ["written"]


async def test_sessions_are_adopted_by_a_customer_who_is_there(store, scribe):
    """Merge: their row and key stay as they are, whatever row is brought; nobody has to leave."""
    await store.commit([scribe.first(1), scribe.first(2), scribe.first(3, customer=2)])
    there = await store.load_customer(scribe.hasher.customer("c1"))
    wrapped = [(ref, os.urandom(62)) for ref in (2, 3)]
    await store.adopt(Adoption(sessions=wrapped, customer=1, new_customer=scribe.customer(1)))
    assert await store.load_customer(there.hash) == there
    assert [(row.ref, row.wrapped) for row in await store.sessions_of(1)][1:] == wrapped
    assert [customer.ref for customer in await store.customers(after=0, limit=9)] == [1, 2]
    await store.adopt(Adoption(customer=1, leaving=2))
    await store.adopt(Adoption(customer=1, leaving=2))
    assert [customer.ref for customer in await store.customers(after=0, limit=9)] == [1]


@pytest.mark.parametrize(
    "case",
    [
        "nobody",
        "no session",
        "twice",
        "version",
        "left behind",
        "taken ref",
        "taken hash",
        "session there",
    ],
)
async def test_a_stale_adoption_is_refused_whole(store, scribe, case):
    """Whatever isn't as the caller saw it: nothing has changed."""
    await store.commit([scribe.first(1), scribe.first(2), scribe.first(3, customer=2)])
    before = await contents(store, scribe)
    call = {
        "sessions": [(2, b"w"), (3, b"w")],
        "customer": 1,
        "new_customer": None,
        "snapshot": scribe.facts(1, 0),
        "leaving": 2,
    }
    call |= {
        "nobody": {"customer": 8, "snapshot": None},
        "no session": {"sessions": [(2, b"w"), (3, b"w"), (9, b"w")]},
        "twice": {"sessions": [(2, b"w"), (3, b"w"), (3, b"v")]},
        "version": {"snapshot": scribe.facts(1, 1)},
        "left behind": {"sessions": [(2, b"w")]},
        "taken ref": {"new_customer": msgspec.structs.replace(scribe.customer(8), ref=1)},
        "taken hash": {
            "customer": 8,
            "new_customer": msgspec.structs.replace(scribe.customer(1), ref=8),
            "snapshot": None,
        },
        "session there": {"new_sessions": [scribe.session(3, 1)]},
    }[case]
    with pytest.raises(StoreFailed, match=r"^the store failed: stale") as told:
        await store.adopt(Adoption(**call))
    assert not told.value.unknown
    assert await contents(store, scribe) == before
    assert await store.commit([scribe.turn(2, 3)]) == ["written"]


async def test_a_session_may_begin_with_no_turn(store, scribe):
    """What is adopted before its first turn is there, empty, and its first turn follows."""
    begun = scribe.session(4, 1)
    await store.adopt(Adoption(customer=1, new_customer=scribe.customer(1), new_sessions=[begun]))
    loaded = await store.load_session(begun.hash, recent=4)
    assert (loaded.session, loaded.last, loaded.rows) == (begun, 0, [])
    assert await store.sessions_of(1) == [begun]
    assert await store.underived(after=0, limit=9) == []
    assert await store.commit([scribe.turn(4, 1)]) == ["written"]
    assert await store.delete_session(4) == 2


@pytest.mark.parametrize("case", ["row", "snapshot", "leaving", "session"])
async def test_an_adoption_that_makes_no_sense_is_refused(store, scribe, case):
    """Another customer's row or snapshot, or adopting from oneself."""
    await store.commit([scribe.first(1), scribe.first(2)])
    call = {"customer": 1, "new_customer": None, "snapshot": None, "leaving": None}
    call |= {
        "row": {"new_customer": scribe.customer(2)},
        "snapshot": {"snapshot": scribe.facts(2, 0)},
        "leaving": {"leaving": 1},
        "session": {"new_sessions": [scribe.session(7, 2)]},
    }[case]
    with pytest.raises(ValueError, match="adopt"):
        await store.adopt(Adoption(sessions=[(2, b"w")], **call))
    assert await store.sessions_of(2) != []


# For all of them.


def calls(store, scribe):
    """Return one call of each kind that would change something."""
    return (
        store.undo(1, 3, snapshot=scribe.facts(1, 0)),
        store.adopt(
            Adoption(sessions=[(1, b"w")], customer=2, snapshot=scribe.facts(2, 0), leaving=1)
        ),
        store.delete_session(1),
        store.forget(1),
    )


async def test_a_stale_owner_removes_nothing(doors, scribe):
    """The epoch is checked in the transaction; the new owner finds everything as it was."""
    stale, fresh = doors(), doors()
    await stale.open(scribe.root, owner=OWNER, lease_s=0.0)
    await stale.commit([scribe.first(1), scribe.turn(1, 3), scribe.first(2)])
    before = await contents(stale, scribe)
    await fresh.open(scribe.root, owner="there/2", lease_s=MINUTE_S)
    for call in calls(stale, scribe):
        with pytest.raises(Fenced):
            await call
    assert await contents(fresh, scribe) == before
    await stale.close()
    await fresh.close()


async def test_nothing_is_removed_before_open_or_after_close(doors, scribe):
    """A store that isn't open says so."""
    store = doors()
    for call in calls(store, scribe):
        with pytest.raises(StoreFailed):
            await call
    await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    await store.close()
    for call in calls(store, scribe):
        with pytest.raises(StoreFailed):
            await call


async def test_removals_and_commits_at_once_do_not_meet(store, scribe):
    """Each is whole, and every turn of the others lands."""
    await store.commit([scribe.first(ref) for ref in range(1, 21)])
    told = await asyncio.gather(
        *(store.forget(ref) for ref in range(1, 6)),
        *(store.delete_session(ref) for ref in range(6, 11)),
        *(store.undo(ref, 1) for ref in range(11, 16)),
        *(store.commit([scribe.turn(ref, 3)]) for ref in range(16, 21)),
    )
    assert told == [*[Erased(1, 2)] * 5, *[2] * 5, *[True] * 5, *[["written"]] * 5]
    assert [row.ref for row in await store.customers(after=0, limit=99)] == list(range(6, 21))
