"""A store that fails on demand: it fails as it was told, and is itself again."""

from __future__ import annotations

import pytest

from interturn.storage import Fenced, Known, StoreFailed, faults
from interturn.storage.base import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def faulty(store):
    """Return a faulty store around one of each kind."""
    return faults.Faulty(store)


async def written(store, ref=1):
    return len(await store.rows(ref, after=0, limit=99)) // 2


async def test_it_has_every_call_of_a_store():
    """What the contract has, it has; a call that writes is known to."""
    calls = {name for name in vars(Store) if not name.startswith("_")}
    assert calls <= set(vars(faults.Faulty))
    assert calls > faults.WRITES


async def test_the_nth_write_fails_and_writes_nothing(faulty, scribe):
    """Whichever method it is; those before and after are the store's own."""
    faulty.fail("write", nth=3)
    assert await faulty.commit([scribe.first(1)]) == ["written"]
    await faulty.renew()
    with pytest.raises(StoreFailed) as told:
        await faulty.commit([scribe.turn(1, 3)])
    assert not told.value.unknown
    assert await written(faulty) == 1
    assert await faulty.commit([scribe.turn(1, 3)]) == ["written"]


async def test_the_outcome_of_a_write_is_lost(faulty, scribe):
    """It is done, and the caller is told that it may be."""
    await faulty.commit([scribe.first(1)])
    faulty.fail("write", applied=True)
    with pytest.raises(StoreFailed) as told:
        await faulty.commit([scribe.turn(1, 3, "d")])
    assert told.value.unknown
    assert await faulty.commit([scribe.turn(1, 5, "d")]) == [Known(3)]


async def test_a_method_of_its_own_fails_with_an_error_of_ones_own(faulty, scribe):
    """Several in a row: each counts from the one before; nothing else fails."""
    await faulty.commit([scribe.first(1)])
    faulty.fail("forget", Fenced())
    faulty.fail("forget", OSError("gone"), nth=2)
    with pytest.raises(Fenced):
        await faulty.forget(1)
    assert await faulty.forget(7) is not None
    with pytest.raises(OSError, match="gone"):
        await faulty.forget(1)
    assert (await faulty.forget(1)).sessions == 1
    assert faulty.calls["forget"] == 4


async def test_a_full_store_reads_and_works_again_with_room(faulty, scribe):
    """Every write fails while it is full, and counts for no other fault."""
    await faulty.commit([scribe.first(1)])
    faulty.fail("write")
    faulty.full = True
    for call in (lambda: faulty.commit([scribe.turn(1, 3)]), faulty.renew, faulty.shrink):
        with pytest.raises(StoreFailed, match="FULL"):
            await call()
    assert await written(faulty) == 1
    faulty.full = False
    with pytest.raises(StoreFailed, match="on demand"):
        await faulty.renew()
    assert await faulty.commit([scribe.turn(1, 3)]) == ["written"]


async def test_reads_fail(faulty, scribe):
    """Any that loads, and no write."""
    await faulty.commit([scribe.first(1)])
    faulty.fail("read", nth=2)
    assert await written(faulty) == 1
    assert await faulty.commit([scribe.turn(1, 3)]) == ["written"]
    with pytest.raises(StoreFailed):
        await faulty.load_session(scribe.hasher.session("s1"), recent=9)
    assert await written(faulty) == 2


async def test_what_comes_before_is_awaited(faulty, scribe):
    """Before each call, with its name: a delay, a gate, a fault of one's own making."""
    seen = []

    async def before(method):
        seen.append((method, await written(faulty.inner)))

    faulty.before = before
    await faulty.commit([scribe.first(1)])
    assert await written(faulty) == 1
    assert seen == [("commit", 0), ("rows", 1)]
    assert "Faulty(" in repr(faulty)
