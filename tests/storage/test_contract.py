"""The contract that every backend keeps."""

from __future__ import annotations

import asyncio
import os

import msgspec
import pytest

from interturn.storage import (
    Fenced,
    Known,
    Root,
    Row,
    StoreFailed,
    StoreOwned,
    WriteTurn,
)

pytestmark = pytest.mark.anyio

OWNER = "here/1"
MINUTE_S = 60.0


async def test_a_store_that_never_was_is_none(doors):
    """Before the first open there is nothing, and looking makes nothing."""
    assert await doors().look() is None
    assert await doors().look() is None


async def test_the_root_is_kept_as_it_was_given(doors, scribe):
    """What the first open was given is what every later look returns."""
    first = doors()
    await first.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    await first.close()
    assert await doors().look() == scribe.root


async def test_another_root_is_refused(doors, scribe):
    """A store made meanwhile under another secret is never mixed with ours."""
    first = doors()
    await first.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    await first.close()
    with pytest.raises(StoreFailed):
        await doors().open(Root("another", os.urandom(62)), owner=OWNER, lease_s=MINUTE_S)
    assert await doors().look() == scribe.root


async def test_one_object_can_be_opened_again(doors, scribe):
    """What was committed outlives close, and the epoch rises with every owner."""
    store = doors()
    first = await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    await store.commit([scribe.first(1)])
    await store.close()
    await store.close()
    second = await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    assert second.epoch > first.epoch
    assert (second.sessions, second.customers) == (1, 1)
    assert len(await store.rows(1, after=0, limit=10)) == 2
    await store.close()


async def test_a_second_owner_is_refused_with_the_first_ones_name(doors, store, scribe):
    """While an owner lives, another is refused at the look and at the open."""
    other = doors()
    for attempt in (other.look(), other.open(scribe.root, owner="there/2", lease_s=MINUTE_S)):
        with pytest.raises(StoreOwned) as refusal:
            await attempt
        assert refusal.value.owner == OWNER
        assert refusal.value.since is not None
    with pytest.raises(StoreOwned):
        await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    assert await store.commit([scribe.first(1)]) == ["written"]


async def test_a_stale_owners_write_is_refused(doors, scribe):
    """After another took over from an expired lease, the first is fenced; the other serves."""
    stale, fresh = doors(), doors()
    await stale.open(scribe.root, owner=OWNER, lease_s=0.0)
    await stale.commit([scribe.first(1), scribe.first(2)])
    await fresh.open(scribe.root, owner="there/2", lease_s=MINUTE_S)
    for writes in (
        [scribe.turn(1, 3)],
        [scribe.first(3)],
        [scribe.snapshot(1, 2, 0)],
        [scribe.turn(1, 3), scribe.snapshot(2, 2, 0)],
    ):
        with pytest.raises(Fenced):
            await stale.commit(writes)
    with pytest.raises(Fenced):
        await stale.renew()
    await fresh.renew()
    assert await fresh.commit([scribe.turn(1, 3), scribe.snapshot(1, 2, 0)]) == ["written"] * 2
    await stale.close()
    with pytest.raises(StoreOwned):
        await doors().look()
    assert (await fresh.load_session(scribe.hasher.session("s1"), recent=10)).last == 4
    assert await fresh.load_session(scribe.hasher.session("s3"), recent=10) is None
    await fresh.close()


async def test_a_turn_is_two_rows_as_they_were_given(store, scribe):
    """Every field of both rows comes back, in order."""
    first, second = scribe.first(1, "d1"), scribe.turn(1, 3)
    assert await store.commit([first, second]) == ["written", "written"]
    assert await store.rows(1, after=0, limit=10) == [
        first.visitor,
        first.agent,
        second.visitor,
        second.agent,
    ]
    assert await store.rows(1, after=1, limit=2) == [first.agent, second.visitor]
    assert await store.rows(1, after=4, limit=10) == []
    assert await store.rows(2, after=0, limit=10) == []


async def test_a_session_loads_with_all_that_activation_needs(store, scribe):
    """Both rows, the last number, what is newer than the cursor, and the newest deliveries."""
    first = scribe.first(1, "d1")
    turns = [scribe.turn(1, seq, f"d{seq}") for seq in (3, 5, 7)]
    await store.commit([first, *turns])
    snapshot = scribe.snapshot(1, 4, 0)
    assert await store.commit([snapshot]) == ["written"]
    loaded = await store.load_session(first.new_session.hash, recent=4)
    assert loaded.session == msgspec.structs.replace(
        first.new_session, cursor=4, snapshot=snapshot.snapshot, version=1
    )
    assert loaded.customer == first.new_customer
    assert loaded.last == 8
    assert loaded.rows == [row for turn in turns[1:] for row in (turn.visitor, turn.agent)]
    assert loaded.deliveries == [(turn.visitor.delivery, turn.visitor.seq) for turn in turns[1:]]


async def test_absence_is_none_or_empty(store, scribe):
    """What is not there is no error."""
    assert await store.load_session(scribe.hasher.session("nobody"), recent=10) is None
    assert await store.load_customer(scribe.hasher.customer("nobody")) is None
    assert await store.sessions_of(7) == []
    assert await store.customers(after=0, limit=10) == []
    assert await store.commit([]) == []


async def test_customers_and_their_sessions_are_listed(store, scribe):
    """By rising reference, in pages, the sessions without their snapshots."""
    firsts = [scribe.first(1, customer=1), scribe.first(2, customer=2)]
    again = WriteTurn(3, Row(1, 0, 1, b"v"), Row(2, 1, 2, b"a"), scribe.session(3, 1))
    await store.commit([*firsts, again])
    await store.commit([scribe.snapshot(1, 2, 0)])
    assert await store.load_customer(firsts[1].new_customer.hash) == firsts[1].new_customer
    assert await store.customers(after=0, limit=1) == [firsts[0].new_customer]
    assert await store.customers(after=1, limit=9) == [firsts[1].new_customer]
    listed = await store.sessions_of(1)
    assert [session.ref for session in listed] == [1, 3]
    assert [session.snapshot for session in listed] == [None, None]
    assert [session.version for session in listed] == [1, 0]


async def test_a_known_delivery_writes_nothing_and_says_where_it_is(store, scribe):
    """The second time, the outcome is the sequence number of the first."""
    await store.commit([scribe.first(1, "d1")])
    assert await store.commit([scribe.turn(1, 3, "d1")]) == [Known(1)]
    assert await store.commit([scribe.turn(1, 3, "d3"), scribe.turn(1, 5, "d3")]) == [
        "written",
        Known(3),
    ]
    assert (await store.load_session(scribe.hasher.session("s1"), recent=9)).last == 4


async def test_a_delivery_is_known_in_its_own_session_only(store, scribe):
    """The same bytes in two sessions are two deliveries."""
    one, two = scribe.first(1, "d"), scribe.first(2)
    visitor = msgspec.structs.replace(two.visitor, delivery=one.visitor.delivery)
    two = msgspec.structs.replace(two, visitor=visitor)
    assert await store.commit([one, two]) == ["written", "written"]


async def test_a_refused_write_takes_no_other_with_it(store, scribe):
    """One offender of each kind among twenty: the rest is written."""
    await store.commit([scribe.first(ref, "d") for ref in range(1, 21)])
    writes = [scribe.turn(ref, 3) for ref in range(1, 21)]
    writes[3] = scribe.turn(4, 3, "d")
    writes[11] = scribe.turn(12, 1)
    writes.insert(5, scribe.snapshot(6, 2, 9))
    writes.insert(9, scribe.snapshot(7, 2, 0))
    outcomes = await store.commit(writes)
    expected = ["written"] * 22
    expected[3], expected[13], expected[5] = Known(1), "stale", "stale"
    assert outcomes == expected


@pytest.mark.parametrize("seq", [1, 3, 6, 7, 99])
async def test_a_turn_that_does_not_follow_the_newest_is_stale(store, scribe, seq):
    """A number that is taken, or that leaves a gap, writes nothing."""
    await store.commit([scribe.first(1), scribe.turn(1, 3)])
    assert await store.commit([scribe.turn(1, seq)]) == ["stale"]
    assert len(await store.rows(1, after=0, limit=99)) == 4


async def test_a_turn_of_no_session_is_stale(store, scribe):
    """A session or a customer that isn't there can't be written to."""
    orphan = msgspec.structs.replace(scribe.first(2), new_customer=None)
    assert await store.commit([scribe.turn(1, 1), orphan]) == ["stale", "stale"]
    assert await store.load_session(orphan.new_session.hash, recent=1) is None


async def test_a_customer_who_is_there_is_left_alone(store, scribe):
    """Their row and key stay; another's reference or hash is never taken over."""
    first = scribe.first(1, customer=1)
    await store.commit([first])
    assert await store.commit([scribe.first(2, customer=1)]) == ["written"]
    assert await store.load_customer(first.new_customer.hash) == first.new_customer
    stolen = scribe.first(3, customer=1)
    thief = msgspec.structs.replace(stolen.new_customer, hash=scribe.hasher.customer("thief"))
    assert await store.commit([msgspec.structs.replace(stolen, new_customer=thief)]) == ["stale"]
    twin = scribe.first(4, customer=4)
    double = msgspec.structs.replace(twin.new_customer, hash=first.new_customer.hash)
    assert await store.commit([msgspec.structs.replace(twin, new_customer=double)]) == ["stale"]
    assert await store.customers(after=0, limit=9) == [first.new_customer]


async def test_a_snapshot_names_the_version_it_saw(store, scribe):
    """Compare and set: a stale one, or one that takes the cursor back, changes nothing."""
    await store.commit([scribe.first(1), scribe.turn(1, 3)])
    good, again = scribe.snapshot(1, 2, 0), scribe.snapshot(1, 4, 1)
    assert await store.commit([good, scribe.snapshot(1, 2, 0), again]) == [
        "written",
        "stale",
        "written",
    ]
    assert await store.commit([scribe.snapshot(1, 2, 2), scribe.snapshot(8, 2, 0)]) == [
        "stale",
        "stale",
    ]
    session = (await store.load_session(scribe.hasher.session("s1"), recent=1)).session
    assert (session.cursor, session.snapshot, session.version) == (4, again.snapshot, 2)


@pytest.mark.parametrize(
    ("visitor", "agent"),
    [
        (Row(1, 0, 1, b"v"), Row(3, 1, 1, b"a")),
        (Row(1, 0, 1, b"v"), Row(1, 1, 1, b"a")),
        (Row(1, 1, 1, b"v"), Row(2, 1, 1, b"a")),
        (Row(1, 0, 1, b"v"), Row(2, 0, 1, b"a")),
        (Row(1, 0, 1, b"v"), Row(2, 1, 1, b"a", b"d" * 16)),
        (Row(-1, 0, 1, b"v"), Row(0, 1, 1, b"a")),
    ],
)
async def test_a_turn_is_a_visitor_and_an_agent_in_a_row(store, scribe, visitor, agent):
    """Anything else is refused before anything of the batch is written."""
    with pytest.raises(ValueError, match=r"turn|rows|delivery"):
        await store.commit([scribe.first(1), WriteTurn(1, visitor, agent)])
    assert await store.rows(1, after=0, limit=9) == []


@pytest.mark.parametrize("change", ["another session", "another customer", "no session"])
async def test_a_turn_brings_its_own_session_and_customer(store, scribe, change):
    """Any other is refused before anything of the batch is written."""
    first = scribe.first(1)
    bad = {
        "another session": {"new_session": scribe.session(2, 1)},
        "another customer": {"new_customer": scribe.customer(2)},
        "no session": {"new_session": None},
    }[change]
    with pytest.raises(ValueError, match=r"session"):
        await store.commit([scribe.first(3), msgspec.structs.replace(first, **bad)])
    assert await store.customers(after=0, limit=9) == []


async def test_nothing_is_written_before_open_or_after_close(doors, scribe):
    """A store that isn't open says so."""
    store = doors()
    with pytest.raises(StoreFailed):
        await store.commit([scribe.first(1)])
    await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
    await store.close()
    with pytest.raises(StoreFailed):
        await store.commit([scribe.first(1)])
    with pytest.raises(StoreFailed):
        await store.renew()


async def test_commits_at_once_do_not_meet(store, scribe):
    """Batches from many tasks are all written, each in its own transaction."""
    batches = [[scribe.first(10 * n + m) for m in range(1, 6)] for n in range(12)]
    outcomes = await asyncio.gather(*(store.commit(batch) for batch in batches))
    assert outcomes == [["written"] * 5] * 12
    assert len(await store.customers(after=0, limit=999)) == 60
