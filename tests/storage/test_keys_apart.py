"""Wrapped keys in a file of their own, and keys that are lost."""

from __future__ import annotations

import os

import msgspec
import pytest

from interturn.storage import (
    Keyring,
    SqliteStore,
    StoreFailed,
    WrongKey,
    customer_key_place,
    this_owner,
)

pytestmark = pytest.mark.anyio

MINUTE_S = 60.0


async def test_keys_rest_apart(tmp_path, scribe, opened):
    """No wrapped key is in the database, every one is in the keys file."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    firsts = [scribe.first(ref) for ref in range(1, 30)]
    async with opened(path, scribe, keys=keys) as store:
        await store.commit(firsts)
    data, apart = path.read_bytes(), keys.read_bytes()
    for first in firsts:
        assert first.new_customer.wrapped not in data
        assert first.new_customer.wrapped in apart
        assert first.new_customer.name not in apart


async def test_a_new_key_is_durable_before_what_is_sealed_with_it(tmp_path, scribe, opened):
    """The keys file is committed before the database is written to."""
    statements = []
    async with opened(tmp_path / "memory.db", scribe, keys=tmp_path / "memory.keys") as store:
        await store._writer.set_trace_callback(statements.append)
        await store.commit([scribe.first(1)])
        await store._writer.set_trace_callback(None)
    heads = [" ".join(statement.split()[:3]) for statement in statements]
    key = heads.index("INSERT INTO keys.customer_keys")
    assert heads[key + 1] == "COMMIT"
    assert key + 1 < heads.index("INSERT INTO main.customers")


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_a_tombstone_is_durable_before_the_key_goes(tmp_path, scribe, opened, durability):
    """The database is synced when it says what is to go, whatever its durability."""
    statements = []
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    async with opened(path, scribe, keys=keys, durability=durability) as store:
        await store.commit([scribe.first(1)])
        [(before,)] = await store._writer.execute_fetchall("PRAGMA main.synchronous")
        await store._writer.set_trace_callback(statements.append)
        await store.forget(1)
        await store._writer.set_trace_callback(None)
        [(after,)] = await store._writer.execute_fetchall("PRAGMA main.synchronous")
    heads = [" ".join(statement.split()[:4]) for statement in statements]
    tombstone = heads.index("INSERT INTO main.tombstones SELECT")
    assert heads[tombstone + 1] == "COMMIT"
    assert "PRAGMA main.synchronous = FULL" in statements[:tombstone]
    assert tombstone + 1 < heads.index("DELETE FROM keys.customer_keys WHERE")
    assert heads.index("DELETE FROM keys.customer_keys WHERE") < heads.index(
        "DELETE FROM main.messages WHERE"
    )
    assert before == after


async def test_a_database_without_its_keys_file_is_refused_untouched(
    tmp_path, files, scribe, opened
):
    """Not named, missing, emptied, or another's: a clear error, and every byte stays."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1)])
    async with opened(tmp_path / "other.db", scribe, keys=tmp_path / "other.keys") as store:
        await store.commit([scribe.first(1)])
    async with opened(tmp_path / "inside.db", scribe):
        pass
    (tmp_path / "empty.keys").touch()
    before = files.bytes()
    for database, named in (
        (path, None),
        (path, tmp_path / "missing.keys"),
        (path, tmp_path / "empty.keys"),
        (path, tmp_path / "other.keys"),
        (path, tmp_path / "inside.db"),
        (tmp_path / "inside.db", keys),
        (tmp_path / "new.db", keys),
    ):
        store = SqliteStore(database, keys=named)
        with pytest.raises(StoreFailed, match="key"):
            await store.look()
        with pytest.raises(StoreFailed, match="key"):
            await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
        with pytest.raises(StoreFailed, match="key"):
            await store.open_read_only()
    assert files.bytes() == before


async def test_a_keys_file_left_alone_by_a_crash_is_taken(tmp_path, scribe, opened):
    """A pair of which only the empty keys file was made is made again."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys"
    async with opened(path, scribe, keys=keys):
        pass
    path.unlink()
    assert await SqliteStore(path, keys=keys).look() is None
    async with opened(path, scribe, keys=keys) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]
    async with opened(path, scribe, keys=keys) as store:
        assert (await store.customers(after=0, limit=1))[0].key_id == "a master key"


async def test_a_key_whose_commit_failed_is_replaced(tmp_path, scribe, opened):
    """What a failed write left in the keys file never stands for the customer who comes later."""
    async with opened(tmp_path / "memory.db", scribe, keys=tmp_path / "memory.keys") as store:
        [(pages,)] = await store._writer.execute_fetchall("PRAGMA main.page_count")
        await store._writer.execute_fetchall(f"PRAGMA main.max_page_count = {pages}")
        big = scribe.first(1)
        big = msgspec.structs.replace(
            big, visitor=msgspec.structs.replace(big.visitor, sealed=os.urandom(100_000))
        )
        with pytest.raises(StoreFailed):
            await store.commit([big])
        await store._writer.execute_fetchall("PRAGMA main.max_page_count = 1000000")
        again = scribe.first(1)
        assert again.new_customer.wrapped != big.new_customer.wrapped
        assert await store.commit([again]) == ["written"]
        assert await store.load_customer(again.new_customer.hash) == again.new_customer


@pytest.mark.parametrize("apart", [False, True])
async def test_a_lost_key_is_wrong_key_and_not_an_empty_history(
    tmp_path, scribe, apart, opened, edit
):
    """The session is there with its rows; unwrapping fails, and for this customer only."""
    path, keys = tmp_path / "memory.db", tmp_path / "memory.keys" if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
    lost = scribe.hasher.customer("c1")
    edit(keys or path, f"DELETE FROM customer_keys WHERE hash = x'{lost.hex()}'")  # noqa: S608 - names and hashes of our own
    async with opened(path, scribe, keys=keys) as store:
        loaded = await store.load_session(scribe.hasher.session("s1"), recent=9)
        assert len(loaded.rows) == 2
        with pytest.raises(WrongKey):
            Keyring.generate().unwrap(
                loaded.customer.key_id,
                loaded.customer.wrapped,
                customer_key_place(lost),
                table="customers",
                where="1",
            )
        found = await store.customers(after=0, limit=9)
        assert [customer.key_id for customer in found] == ["lost", "a master key"]
