"""Pruning: old messages go, with every trace, and the file gets smaller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3

import msgspec
import pytest

from interturn.storage import Fenced, Prune, Row, StoreFailed, WriteTurn

pytestmark = pytest.mark.anyio

OWNER = "here/1"
MINUTE_S = 60.0


def turn(scribe, session, seq, size=50):
    """Return a turn whose rows are ``seq`` microseconds old, in order."""
    made = scribe.first(session) if seq == 1 else scribe.turn(session, seq)
    said = msgspec.structs.replace(made.visitor, at=seq, sealed=os.urandom(size))
    reply = msgspec.structs.replace(made.agent, at=seq + 1, sealed=os.urandom(size))
    return msgspec.structs.replace(made, visitor=said, agent=reply)


async def talk(store, scribe, session, turns, cursor, derived, size=50):
    """Record turns, fold them up to the cursor and learn from them."""
    made = [turn(scribe, session, 2 * n + 1, size) for n in range(turns)]
    await store.commit(made)
    await store.commit(
        [scribe.snapshot(session, cursor, 0), scribe.facts(session, 0, (session, derived))]
    )
    return made


async def load(store, scribe, ref):
    return await store.load_session(scribe.hasher.session(f"s{ref}"), recent=64)


async def aged(store, before, **refs):
    return await store.aged(before=before, **({"after": 0, "upto": 99} | refs))


async def test_old_messages_go_and_the_mark_moves(store, scribe):
    """Up to the number and no further; numbers go on; what is left loads as before."""
    turns = await talk(store, scribe, 1, turns=10, cursor=12, derived=20)
    assert await store.prune([Prune(1, 6, None, b"six")]) == 6
    assert await store.prune([Prune(1, 10, b"six", b"ten")]) == 4
    loaded = await load(store, scribe, 1)
    assert (loaded.session.pruned, loaded.last, loaded.session.cursor) == (b"ten", 20, 12)
    assert loaded.rows == [row for turn in turns[6:] for row in (turn.visitor, turn.agent)]
    kept = [row for turn in turns[5:] for row in (turn.visitor, turn.agent)]
    assert await store.rows(1, after=0, limit=99) == kept
    assert await store.rows(1, after=12, limit=3) == kept[2:5]
    [listed] = await store.sessions_of(1)
    assert listed.pruned == b"ten"
    assert await store.commit([scribe.turn(1, 21)]) == ["written"]
    assert await store.undo(1, 21) is True
    assert await store.underived(after=0, limit=9) == []
    assert await store.delete_session(1) == 10


@pytest.mark.parametrize(
    ("through", "seen", "cursor", "derived"),
    [
        (12, None, 12, 20),
        (11, None, 12, 20),
        (20, None, 20, 12),
        (6, b"x", 12, 20),
        (2, None, 2, 2),
    ],
)
async def test_a_cut_that_may_not_be_leaves_all(store, scribe, through, seen, cursor, derived):
    """The newest folded or learnt turn, the window, another mark: nothing goes, others' cuts do."""
    await talk(store, scribe, 1, turns=10, cursor=cursor, derived=derived)
    await talk(store, scribe, 2, turns=4, cursor=4, derived=4)
    before = await load(store, scribe, 1), await store.rows(1, after=0, limit=99)
    cuts = [Prune(1, through, seen, b"m"), Prune(2, 2, None, b"n"), Prune(7, 2, None, b"o")]
    assert await store.prune(cuts) == 2
    assert (await load(store, scribe, 1), await store.rows(1, after=0, limit=99)) == before
    assert (await load(store, scribe, 2)).session.pruned == b"n"


async def test_who_has_old_messages_is_told(store, scribe):
    """Whose oldest message is from before and can go; a session pruned as far as can be isn't."""
    for ref in (1, 2, 3):
        await talk(store, scribe, ref, turns=6, cursor=4 * (ref > 1), derived=8)
    hashes = [scribe.hasher.session(f"s{ref}") for ref in (1, 2, 3)]
    assert await aged(store, 1) == []
    assert await aged(store, 2) == hashes[1:]
    assert await aged(store, 2, after=2) == hashes[2:]
    assert await aged(store, 2, upto=2) == hashes[1:2]
    assert await store.prune([Prune(2, 2, None, b"m")]) == 2
    assert await aged(store, 99) == hashes[2:]


async def test_the_delivery_of_a_pruned_turn_is_known_no_more(store, scribe):
    """Redelivered, it is a new turn; those that are kept are known as before."""
    first, second = scribe.first(1, "d1"), scribe.turn(1, 3, "d3")
    await store.commit([first, second])
    await store.commit([scribe.snapshot(1, 4, 0), scribe.facts(1, 0, (1, 4))])
    assert await store.prune([Prune(1, 2, None, b"m")]) == 2
    again = WriteTurn(1, msgspec.structs.replace(first.visitor, seq=5), Row(6, 1, 1, b"a"))
    assert await store.commit([again]) == ["written"]
    assert (await load(store, scribe, 1)).deliveries[-1] == (first.visitor.delivery, 5)


async def test_a_stale_owner_prunes_nothing(doors, scribe):
    """Nor does it shrink anything."""
    stale, fresh = doors(), doors()
    await stale.open(scribe.root, owner=OWNER, lease_s=0.0)
    await talk(stale, scribe, 1, turns=4, cursor=4, derived=4)
    await fresh.open(scribe.root, owner="there/2", lease_s=MINUTE_S)
    for call in (stale.prune([Prune(1, 2, None, b"m")]), stale.shrink()):
        with pytest.raises(Fenced):
            await call
    assert len(await fresh.rows(1, after=0, limit=99)) == 8
    await stale.close()
    for call in (stale.prune([Prune(1, 2, None, b"m")]), stale.shrink()):
        with pytest.raises(StoreFailed):
            await call
    await fresh.close()


@pytest.mark.parametrize("apart", [False, True])
async def test_the_file_shrinks_and_no_trace_is_left(path, files, scribe, opened, size, apart):
    """What went is in no file; the bytes given back are those that the file lost; all agrees."""
    keys = path.with_suffix(".keys") if apart else None
    async with opened(path, scribe, keys=keys, durability="normal") as store:
        gone = await talk(store, scribe, 1, turns=400, cursor=790, derived=800, size=2_000)
        await talk(store, scribe, 2, turns=4, cursor=4, derived=4)
        assert await store.shrink() == 0
        assert await store.prune([Prune(1, 700, None, b"m")]) == 700
        await store._writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
        before = size(path)
        given_back = await store.shrink()
        assert given_back == before - size(path) > 1_000_000
        assert size(path.with_name("memory.db-wal")) < 10_000
        contents = files.bytes().values()
        for old in gone[:350]:
            assert not any(old.visitor.sealed in content for content in contents)
        assert any(gone[350].visitor.sealed in content for content in contents)
        assert await store.check() == []
        assert await store.commit([scribe.turn(1, 801), scribe.turn(2, 9)]) == ["written"] * 2
        assert await store._writer.execute_fetchall("SELECT * FROM main.tombstones") == []
    async with opened(path, scribe, keys=keys) as store:
        assert len(await store.rows(1, after=0, limit=999)) == 102


async def test_little_free_space_is_kept_for_what_comes(path, scribe, opened, size):
    """Under a quarter of the file it isn't written anew: the next turns fill what is free."""
    async with opened(path, scribe, durability="normal") as store:
        await talk(store, scribe, 1, turns=100, cursor=190, derived=200, size=2_000)
        assert await store.prune([Prune(1, 30, None, b"m")]) == 30
        assert await store.shrink() == 0
        before = size(path)
        await store.commit([turn(scribe, 1, seq, 2_000) for seq in range(201, 221, 2)])
        await store._writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
        assert size(path) == before


async def test_what_was_not_finished_is_finished_at_the_next_open(path, files, scribe, opened):
    """A pruning without its shrinking, as after a crash: no trace when the next open returns."""
    async with opened(path, scribe, durability="normal") as store:
        gone = await talk(store, scribe, 1, turns=20, cursor=30, derived=40, size=300)
        assert await store.prune([Prune(1, 20, None, b"m")]) == 20
    async with opened(path, scribe) as store:
        contents = files.bytes().values()
        for old in gone[:10]:
            assert not any(old.visitor.sealed in content for content in contents)
        assert await store._writer.execute_fetchall("SELECT * FROM main.tombstones") == []


async def test_a_full_disk_keeps_the_file_as_it_is(path, scribe, opened, monkeypatch):
    """No room to write it anew: told, nothing is lost, and turns and a later shrinking work."""
    async with opened(path, scribe, durability="normal") as store:
        await talk(store, scribe, 1, turns=100, cursor=190, derived=200, size=2_000)
        await store.prune([Prune(1, 160, None, b"m")])
        with monkeypatch.context() as patch:
            execute = store._writer.execute_fetchall
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorname = "SQLITE_FULL"

            async def refuse(sql, *values):
                if sql.startswith("VACUUM"):
                    raise full
                return await execute(sql, *values)

            patch.setattr(store._writer, "execute_fetchall", refuse)
            with pytest.raises(StoreFailed, match="FULL"):
                await store.shrink()
        assert await store.commit([scribe.turn(1, 201)]) == ["written"]
        assert await store.shrink() > 0


async def test_others_write_and_read_meanwhile(path, scribe, opened):
    """Prunings, turns and loads at once: each is whole, and nothing is locked."""
    async with opened(path, scribe, durability="normal") as store:
        for ref in range(1, 11):
            await talk(store, scribe, ref, turns=20, cursor=30, derived=40, size=500)
        told = await asyncio.gather(
            *(store.prune([Prune(ref, 28, None, b"%d" % ref)]) for ref in range(1, 11)),
            store.shrink(),
            *(store.commit([scribe.turn(ref, 41)]) for ref in range(1, 11)),
            *(load(store, scribe, ref) for ref in range(1, 11)),
        )
        assert told[:10] == [28] * 10
        assert told[11:21] == [["written"]] * 10
        assert await store.check() == []


async def test_a_pruning_whose_commit_fails_is_not_there(path, scribe, opened):
    """Mark and rows are as they were, never one without the other."""
    async with opened(path, scribe) as store:
        await talk(store, scribe, 1, turns=6, cursor=8, derived=12)
        execute = store._writer.execute_fetchall

        async def dying(sql, *values):
            if sql == "COMMIT":
                raise sqlite3.OperationalError("no")
            return await execute(sql, *values)

        store._writer.execute_fetchall = dying
        with contextlib.suppress(StoreFailed):
            await store.prune([Prune(1, 4, None, b"m")])
        store._writer.execute_fetchall = execute
        assert (await load(store, scribe, 1)).session.pruned is None
        assert len(await store.rows(1, after=0, limit=99)) == 12
