"""What visitors said and nobody has answered yet: the contract that every backend keeps."""

from __future__ import annotations

import msgspec
import pytest

from interturn.storage import Adoption, Erased, Fenced, Known, WriteUnanswered

pytestmark = pytest.mark.anyio

OWNER = "here/1"
MINUTE_S = 60.0


@pytest.fixture
def again(doors, store, scribe):
    """Return what opens the same contents as the next owner, after the first one's end."""

    async def reopen():
        await store.close()
        await store.open(scribe.root, owner=OWNER, lease_s=MINUTE_S)
        return store

    return reopen


async def left(store):
    return [(found.session.ref, found.sealed) for found in await store.unanswered(after=0, limit=9)]


async def load(store, scribe, ref):
    return await store.load_session(scribe.hasher.session(f"s{ref}"), recent=9)


async def test_the_next_owner_finds_what_was_left(store, scribe, again):
    """The newest words of each session, with its row and its customer's; pages by reference."""
    await store.commit([scribe.first(1), scribe.first(2), scribe.first(3)])
    await store.commit([scribe.asked(1), scribe.asked(2), scribe.asked(3)])
    words = [scribe.asked(1), scribe.asked(3)]
    assert await store.commit(words) == ["written", "written"]
    assert await left(store) == []  # they are in this owner's hands
    await again()
    found = await store.unanswered(after=0, limit=9)
    assert [(one.session.ref, one.sealed) for one in found][::2] == [
        (write.session, write.sealed) for write in words
    ]
    for one in found:
        loaded = await load(store, scribe, one.session.ref)
        assert (one.session, one.customer) == (loaded.session, loaded.customer)
    assert await store.unanswered(after=1, limit=1) == found[1:2]
    assert await store.unanswered(after=3, limit=9) == []


async def test_words_bring_a_new_session_and_customer(store, scribe, again):
    """A session without a message is there with its key; its first turn follows as any other."""
    words = scribe.asked(1, new=True)
    assert await store.commit([words, scribe.asked(2, new=True, customer=1)]) == ["written"] * 2
    loaded = await load(store, scribe, 1)
    assert (loaded.session, loaded.customer) == (words.new_session, words.new_customer)
    assert (loaded.last, loaded.rows) == (0, [])
    assert [row.ref for row in await store.sessions_of(1)] == [1, 2]
    await again()
    assert len(await left(store)) == 2
    assert await store.commit([scribe.turn(1, 1)]) == ["written"]
    assert [ref for ref, _ in await left(store)] == [2]


async def test_a_turn_takes_its_sessions_words_away(store, scribe, again):
    """In its own transaction, with other writes in the batch and without; others' words stay."""
    await store.commit([scribe.first(ref) for ref in (1, 2, 3)])
    await store.commit([scribe.asked(ref) for ref in (1, 2, 3)])
    assert await store.commit([scribe.turn(1, 3)]) == ["written"]
    assert await store.commit([scribe.turn(2, 3), scribe.snapshot(2, 2, 0)]) == ["written"] * 2
    await again()
    assert [ref for ref, _ in await left(store)] == [3]
    assert len(await store.rows(1, after=0, limit=9)) == 4


async def test_a_known_delivery_takes_the_words_away(store, scribe, again):
    """The turn is there already: nothing waits for an answer."""
    await store.commit([scribe.first(1, "d"), scribe.first(2)])
    await store.commit([scribe.asked(1), scribe.asked(2)])
    assert await store.commit([scribe.turn(1, 3, "d"), scribe.turn(2, 9)]) == [Known(1), "stale"]
    await again()
    assert [ref for ref, _ in await left(store)] == [2]


async def test_words_are_taken_back(store, scribe, again):
    """With them goes a session that has no message, never one that has, nor its customer."""
    await store.commit([scribe.first(1), scribe.asked(2, new=True)])
    await store.commit([scribe.asked(1)])
    taken = [WriteUnanswered(ref, None) for ref in (1, 2, 7)]
    assert await store.commit(taken) == ["written"] * 3
    assert (await load(store, scribe, 1)).last == 2
    assert await load(store, scribe, 2) is None
    assert [row.ref for row in await store.customers(after=0, limit=9)] == [1, 2]
    assert await store.commit([scribe.asked(2)]) == ["stale"]
    words = msgspec.structs.replace(scribe.asked(2, new=True), new_customer=None)
    assert await store.commit([words]) == ["written"]
    await again()
    assert await left(store) == [(2, words.sealed)]
    await store.commit([scribe.asked(3, new=True)])
    await store.commit([WriteUnanswered(3, None, lasting=True)])
    assert (await load(store, scribe, 3)).last == 0


async def test_words_that_cannot_be_kept_take_nothing_with_them(store, scribe):
    """Of no session, of one that is there under another number: stale, and the rest is written."""
    await store.commit([scribe.first(1)])
    twin = scribe.asked(3, new=True)
    twin = msgspec.structs.replace(
        twin, new_session=msgspec.structs.replace(twin.new_session, hash=scribe.session(1, 1).hash)
    )
    writes = [scribe.asked(9), scribe.turn(1, 3), twin, scribe.asked(1), scribe.first(4)]
    assert await store.commit(writes) == ["stale", "written", "stale", "written", "written"]
    assert [row.ref for row in await store.customers(after=0, limit=9)] == [1, 4]


@pytest.mark.parametrize("case", ["twice", "another session", "another customer", "no session"])
async def test_words_that_make_no_sense_are_refused(store, scribe, case):
    """Before anything of the batch is written."""
    new = scribe.asked(2, new=True)
    writes = {
        "twice": [scribe.asked(1), WriteUnanswered(1, None)],
        "another session": [msgspec.structs.replace(new, session=3)],
        "another customer": [msgspec.structs.replace(new, new_customer=scribe.customer(3))],
        "no session": [msgspec.structs.replace(new, new_session=None)],
    }[case]
    with pytest.raises(ValueError, match="session"):
        await store.commit([scribe.first(1), *writes])
    assert await store.customers(after=0, limit=9) == []


async def test_words_go_with_their_session_and_with_their_customer(store, scribe, again):
    """Deleting, forgetting: the counts are of sessions and messages; adopting: they stay."""
    await store.commit([scribe.first(ref) for ref in (1, 2, 3)])
    await store.commit([scribe.asked(1), scribe.asked(2), scribe.asked(3)])
    await store.commit([scribe.asked(4, new=True, customer=2)])
    assert await store.delete_session(1) == 2
    assert await store.forget(2) == Erased(sessions=2, messages=2)
    await store.adopt(
        Adoption(sessions=[(3, b"w")], customer=9, new_customer=scribe.customer(9), leaving=3)
    )
    await again()
    [found] = await store.unanswered(after=0, limit=9)
    assert (found.session.ref, found.session.wrapped, found.customer.ref) == (3, b"w", 9)


async def test_a_stale_owner_keeps_and_takes_nothing(doors, scribe):
    """Its words are refused, and those that the new owner found stay."""
    stale, fresh = doors(), doors()
    await stale.open(scribe.root, owner=OWNER, lease_s=0.0)
    words = scribe.asked(1)
    await stale.commit([scribe.first(1)])
    await stale.commit([words])
    await fresh.open(scribe.root, owner="there/2", lease_s=MINUTE_S)
    for write in (scribe.asked(1), WriteUnanswered(1, None), scribe.asked(2, new=True)):
        with pytest.raises(Fenced):
            await stale.commit([write])
    assert await left(fresh) == [(1, words.sealed)]
    await stale.close()
    await fresh.close()


async def test_no_turn_costs_more_statements_for_it(path, scribe, opened, monkeypatch):
    """A turn that answers kept words is one statement, its own transaction, like any other."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        await store.commit([scribe.asked(1)])
        run = []
        execute = store._writer.execute_fetchall
        monkeypatch.setattr(
            store._writer,
            "execute_fetchall",
            lambda *given: run.append(given[0]) or execute(*given),
        )
        await store.commit([scribe.turn(1, 3)])
        assert len(run) == 1
