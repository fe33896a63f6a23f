"""What rests of a customer, and how far facts have been derived."""

from __future__ import annotations

import msgspec
import pytest

from interturn.storage import Fenced

pytestmark = pytest.mark.anyio

OWNER = "here/1"
MINUTE_S = 60.0


async def derived(store, scribe, ref=1):
    """Return how far facts have been derived from a session, by both loads that tell."""
    loaded = await store.load_session(scribe.hasher.session(f"s{ref}"), recent=1)
    [listed] = [
        session
        for session in await store.sessions_of(loaded.session.customer)
        if session.ref == ref
    ]
    assert listed == msgspec.structs.replace(loaded.session, snapshot=None)
    return listed.derived


async def test_a_customers_snapshot_names_the_version_it_saw(store, scribe):
    """Compare and set; a stale one, or one of nobody, changes nothing."""
    await store.commit([scribe.first(1)])
    good, again = scribe.facts(1, 0), scribe.facts(1, 1)
    outcomes = await store.commit([good, scribe.facts(1, 0), again, scribe.facts(7, 0)])
    assert outcomes == ["written", "stale", "written", "stale"]
    [customer] = await store.customers(after=0, limit=9)
    assert (customer.snapshot, customer.version) == (again.snapshot, 2)
    assert await store.load_customer(customer.hash) == customer


async def test_marks_move_with_the_snapshot_and_forward_only(store, scribe):
    """In the same transaction; a stale one's marks stay where they are."""
    await store.commit([scribe.first(1), scribe.turn(1, 3), scribe.first(2, customer=1)])
    assert await derived(store, scribe) == 0
    assert await store.commit([scribe.facts(1, 0, (1, 2), (2, 2))]) == ["written"]
    assert await derived(store, scribe) == await derived(store, scribe, 2) == 2
    assert await store.commit([scribe.facts(1, 0, (1, 4))]) == ["stale"]
    assert await derived(store, scribe) == 2
    assert await store.commit([scribe.facts(1, 1, (1, 4), (1, 3))]) == ["written"]
    assert await store.commit([scribe.facts(1, 2, (1, 2))]) == ["written"]
    assert await derived(store, scribe) == 4


async def test_marks_stay_within_what_was_recorded_and_whose_it_is(store, scribe):
    """Not past the newest message, not for another's session, not for one that isn't there."""
    await store.commit([scribe.first(1), scribe.first(2)])
    assert await store.commit([scribe.facts(1, 0, (1, 99), (2, 2), (9, 2))]) == ["written"]
    assert await derived(store, scribe) == 2
    assert await derived(store, scribe, 2) == 0


async def test_a_turn_and_what_was_derived_from_it_can_come_in_one_batch(store, scribe):
    """Turns are applied first, marks last."""
    await store.commit([scribe.first(1)])
    writes = [scribe.facts(1, 0, (1, 4)), scribe.turn(1, 3), scribe.snapshot(1, 2, 0)]
    assert await store.commit(writes) == ["written"] * 3
    assert await derived(store, scribe) == 4
    assert await store.commit([scribe.turn(1, 3), scribe.facts(1, 1, (1, 4))]) == [
        "stale",
        "written",
    ]


async def test_what_is_left_to_derive_is_found(store, scribe):
    """Sessions by rising reference, in pages, with their customers; done ones are left out."""
    await store.commit([scribe.first(ref, customer=1 + ref % 2) for ref in range(1, 6)])
    await store.commit([scribe.facts(2, 0, (3, 2)), scribe.snapshot(4, 2, 0)])
    everyone = {customer.ref: customer for customer in await store.customers(after=0, limit=9)}
    found = await store.underived(after=0, limit=9)
    assert [waiting.session.ref for waiting in found] == [1, 2, 4, 5]
    for waiting in found:
        assert waiting.session in await store.sessions_of(waiting.session.customer)
        assert waiting.customer == everyone[waiting.session.customer]
        assert waiting.last == 2
    assert everyone[2].snapshot is not None
    assert await store.underived(after=0, limit=2) == found[:2]
    assert await store.underived(after=2, limit=1) == found[2:3]
    assert await store.underived(after=5, limit=9) == []
    await store.commit([scribe.turn(3, 3)])
    assert (await store.underived(after=2, limit=1))[0].last == 4


async def test_a_stale_owners_facts_are_refused(doors, scribe):
    """By the epoch, like every write."""
    stale, fresh = doors(), doors()
    await stale.open(scribe.root, owner=OWNER, lease_s=0.0)
    await stale.commit([scribe.first(1)])
    await fresh.open(scribe.root, owner="there/2", lease_s=MINUTE_S)
    with pytest.raises(Fenced):
        await stale.commit([scribe.facts(1, 0, (1, 2))])
    assert (await fresh.underived(after=0, limit=9))[0].customer.version == 0
    await stale.close()
    await fresh.close()
