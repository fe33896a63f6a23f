"""What was removed is in no byte of any file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import struct

import msgspec
import pytest

from interturn.storage import (
    Adoption,
    Erased,
    Row,
    SqliteStore,
    StoreFailed,
    WriteTurn,
    erasing,
    this_owner,
)
from interturn.storage.scrubbing import Scrubber

pytestmark = pytest.mark.anyio

APART = pytest.mark.parametrize("apart", [False, True])


class Diary:
    """Writes to a store, and remembers every sealed byte by customer and by session."""

    def __init__(self, scribe, seed):
        self.scribe, self.random = scribe, random.Random(seed)
        self.of_customer, self.of_session = {}, {}
        self.owner, self.last, self.versions = {}, {}, {}

    def bytes(self, most=600):
        return self.random.randbytes(self.random.randint(40, most))

    def turn(self, session, customer):
        """Return the next turn of a session, of any size."""
        seq = self.last.get(session, 0) + 1
        self.last[session] = seq + 1
        rows = [
            Row(seq + side, side, 1, self.bytes(9_000 if self.random.random() < 0.1 else 600))
            for side in (0, 1)
        ]
        sealed = self.of_session.setdefault(session, [])
        sealed += [row.sealed for row in rows]
        if seq > 1:
            return WriteTurn(session, *rows)
        row, owner = self.scribe.session(session, customer), self.scribe.customer(customer)
        self.owner[session] = customer
        sealed += [row.wrapped, row.name]
        if customer not in self.of_customer:
            self.of_customer[customer] = [owner.wrapped, owner.name, owner.hash]
        return WriteTurn(session, *rows, row, owner)

    def facts(self, customer):
        """Return the next snapshot of a customer, of any size."""
        seen = self.versions.get(customer, 0)
        self.versions[customer] = seen + 1
        facts = msgspec.structs.replace(self.scribe.facts(customer, seen), snapshot=self.bytes())
        self.of_customer[customer].append(facts.snapshot)
        return facts

    def all_of(self, customer):
        """Return every sealed byte that is a customer's."""
        found = list(self.of_customer[customer])
        for session, owner in self.owner.items():
            if owner == customer:
                found += self.of_session[session]
        return found


def traces(files, sealed):
    """Return in which files any of these bytes are."""
    return [name for name, content in files.bytes().items() for value in sealed if value in content]


async def write_much(store, diary, *, customers=40, rounds=8):
    for _ in range(rounds):
        for customer in range(1, customers + 1):
            await store.commit([diary.turn(2 * customer + diary.random.randint(0, 1), customer)])
        await store.commit([diary.facts(n) for n in range(1, customers + 1)])


@APART
async def test_who_is_forgotten_is_in_no_file(files, path, scribe, opened, apart):
    """Keys, ids, messages, snapshots, old and new: in none while the store is open."""
    diary = Diary(scribe, 7)
    keys = path.with_suffix(".keys") if apart else None
    async with opened(path, scribe, keys=keys, durability="normal") as store:
        await write_much(store, diary)
        order = list(range(1, 41))
        diary.random.shuffle(order)
        for customer in order[:20]:
            await store.forget(customer)
            assert traces(files, diary.all_of(customer)) == []
        rest = {row.hash for row in await store.customers(after=0, limit=99)}
        assert rest == {scribe.hasher.customer(f"c{customer}") for customer in order[20:]}
        assert await store.check() == []
        for session, sealed in diary.of_session.items():
            if diary.owner[session] in order[20:]:
                rows = await store.rows(session, after=0, limit=99)
                assert {row.sealed for row in rows} <= set(sealed)
                assert len(rows) == diary.last[session]
        for customer in order[:20]:
            assert traces(files, diary.all_of(customer)) == []


async def test_a_deleted_session_is_in_no_file(files, path, scribe, opened):
    """Its key, its id, its messages; its neighbours stay."""
    diary = Diary(scribe, 8)
    async with opened(path, scribe, durability="normal") as store:
        await write_much(store, diary)
        for session in diary.random.sample(sorted(diary.of_session), 20):
            assert await store.delete_session(session) == diary.last[session]
            assert traces(files, diary.of_session[session]) == []
        assert await store.check() == []


@APART
async def test_what_an_adoption_replaces_is_in_no_file(files, path, scribe, opened, apart):
    """The old wrapped keys, and whoever left with key, id and snapshot; the new are there."""
    diary = Diary(scribe, 9)
    keys = path.with_suffix(".keys") if apart else None
    async with opened(path, scribe, keys=keys, durability="normal") as store:
        await write_much(store, diary, rounds=3)
        for leaving in range(1, 11):
            rows = await store.sessions_of(leaving)
            moved = [(row.ref, os.urandom(62)) for row in rows]
            await store.adopt(
                Adoption(
                    sessions=moved, customer=50, new_customer=scribe.customer(50), leaving=leaving
                )
            )
            gone = [*(row.wrapped for row in rows), *diary.of_customer[leaving]]
            assert traces(files, gone) == []
            assert [row.wrapped for row in await store.sessions_of(50)][-len(moved) :] == [
                wrapped for _, wrapped in moved
            ]
        assert await store.check() == []


def gaps(path):
    """Return where the unused middle of each b-tree page begins and ends."""
    content, found = path.read_bytes(), []
    for place in range(0, len(content), 4_096):
        head = place or 100
        size = {2: 12, 5: 12, 10: 8, 13: 8}.get(content[head])
        if size:
            cells, start = struct.unpack(">HH", content[head + 3 : head + 7])
            found.append((head + size + 2 * cells, place + start))
    return found


async def test_what_lies_in_the_gaps_of_pages_is_zeroed_and_nothing_else(path, scribe, opened):
    """What SQLite leaves there when it moves live cells: in tables and indexes, leaf or not."""
    diary = Diary(scribe, 3)
    async with opened(path, scribe, durability="normal") as store:
        await write_much(store, diary)
    clean = bytearray(path.read_bytes())
    for start, end in gaps(path):
        clean[start:end] = bytes(end - start)
    marked = bytearray(clean)
    for start, end in gaps(path):
        marked[start:end] = os.urandom(end - start)
    assert sum(a != b for a, b in zip(clean, marked, strict=True)) > 10_000
    path.write_bytes(marked)
    scrubber = Scrubber(path)
    assert scrubber.scrub(0) == 0
    scrubber.close()
    assert path.read_bytes() == clean
    async with opened(path, scribe) as store:
        assert await store.check() == []


async def test_what_lay_in_a_gap_is_not_written_again(files, path, scribe, opened):
    """The connection that writes has read it: its cache goes too."""
    diary, canary = Diary(scribe, 4), os.urandom(24)
    async with opened(path, scribe, durability="normal") as store:
        await write_much(store, diary)
    content = bytearray(path.read_bytes())
    for start, end in gaps(path):
        # The first page holds the schema and nobody's content, and stays in the cache.
        if start >= 4_096 and end - start >= len(canary):
            content[start : start + len(canary)] = canary
    path.write_bytes(content)
    async with opened(path, scribe, durability="normal") as store:
        rows = "SELECT count(*), max(sealed), max(delivery) FROM messages"
        await store._writer.execute_fetchall(rows)
        assert traces(files, [canary]) != []
        await store.forget(1)
        assert traces(files, [canary]) == []
        await write_much(store, diary, rounds=1)
        assert traces(files, [canary]) == []


def test_a_file_whose_pages_cannot_be_told_apart_is_left_alone(tmp_path):
    """No database at all, and one with pages of a kind that we never make."""
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as tool:
        tool.executescript(
            "PRAGMA auto_vacuum = FULL; CREATE TABLE t (n); INSERT INTO t VALUES (1)"
        )
    (tmp_path / "junk").write_bytes(bytes(5_000))
    for path in (other, tmp_path / "junk"):
        before, scrubber = path.read_bytes(), Scrubber(path)
        with pytest.raises(ValueError, match="told apart"):
            scrubber.scrub(0)
        scrubber.close()
        assert path.read_bytes() == before


async def test_a_large_file_is_scrubbed_in_slices(files, path, scribe, opened, monkeypatch):
    """Others write between two of them, and nothing is left either."""
    monkeypatch.setattr("interturn.storage.scrubbing.SLICE_BYTES", 8_192)
    diary = Diary(scribe, 10)
    async with opened(path, scribe, durability="normal") as store:
        await write_much(store, diary, customers=10)
        forgetting = asyncio.create_task(store.forget(3))
        written = 0
        while not forgetting.done():
            assert await store.commit([diary.turn(10, 5)]) == ["written"]
            written += 1
        await forgetting
        assert written > 10
        assert traces(files, diary.all_of(3)) == []


async def test_a_reader_that_stays_delays_the_end_and_not_the_key(
    files, path, scribe, opened, monkeypatch, edit
):
    """It says so, others go on; the key is gone at once, the rest with the next erasure or open."""
    monkeypatch.setattr(erasing, "TRIES", 2)
    diary = Diary(scribe, 11)
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=60.0)
    await write_much(store, diary, customers=3, rounds=2)
    tool = sqlite3.connect(path, isolation_level=None)
    tool.execute("BEGIN")
    tool.execute("SELECT count(*) FROM messages").fetchall()
    with pytest.raises(StoreFailed, match="finished at the next open") as told:
        await store.forget(1)
    assert not told.value.unknown
    assert await store.load_customer(scribe.hasher.customer("c1")) is None
    assert await store.commit([diary.turn(4, 2)]) == ["written"]
    tool.execute("COMMIT")
    assert await store.forget(1) == Erased(0, 0)
    assert traces(files, diary.all_of(1)) == []
    tool.execute("BEGIN")
    tool.execute("SELECT count(*) FROM messages").fetchall()
    with pytest.raises(StoreFailed, match="finished at the next open"):
        await store.forget(2)
    await store.close()
    with pytest.raises(StoreFailed, match="finished at the next open"):
        await store.open(scribe.root, owner=this_owner(), lease_s=60.0)
    tool.close()
    async with opened(path, scribe) as again:
        assert traces(files, diary.all_of(2)) == []
        assert await again.check() == []


@APART
async def test_a_forgetting_that_fails_halfway_goes_on_when_it_is_called_again(
    files, path, scribe, opened, monkeypatch, apart
):
    """The key went; the rows, which a full disk held back, go with the next call and are told."""
    diary = Diary(scribe, 12)
    keys = path.with_suffix(".keys") if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await write_much(store, diary, customers=3, rounds=2)
        change = erasing.Eraser._change

        async def full(self, sql, *values):
            if sql.startswith("DELETE FROM main.messages"):
                raise sqlite3.OperationalError("database or disk is full")
            return await change(self, sql, *values)

        with monkeypatch.context() as patch:
            patch.setattr(erasing.Eraser, "_change", full)
            with pytest.raises(StoreFailed, match="full; the erasure will be finished"):
                await store.forget(1)
        assert (await store.load_customer(scribe.hasher.customer("c1"))).key_id == "lost"
        sessions = len(await store.sessions_of(1))
        assert await store.forget(1) == Erased(sessions, 4)
        assert traces(files, diary.all_of(1)) == []
        assert await store.check() == []


async def test_a_customer_who_comes_back_before_an_erasure_ends_keeps_the_new_key(
    path, scribe, opened, monkeypatch
):
    """Merged away, with the old key still to be destroyed: it is not the new one that goes."""
    keys = path.with_suffix(".keys")
    async with opened(path, scribe, keys=keys) as store:
        await store.commit([scribe.first(1), scribe.first(2)])
        with monkeypatch.context() as patch:
            patch.setattr(erasing, "_DESTROY_KEY", "DELETE FROM no_table")
            with pytest.raises(StoreFailed):
                await store.adopt(Adoption(sessions=[(1, b"w")], customer=2, leaving=1))
        back = scribe.first(3, customer=3)
        row = msgspec.structs.replace(back.new_customer, hash=scribe.hasher.customer("c1"))
        back = msgspec.structs.replace(back, new_customer=row)
        assert await store.commit([back]) == ["written"]
    async with opened(path, scribe, keys=keys) as store:
        assert await store.load_customer(row.hash) == row
        assert len(await store.rows(3, after=0, limit=9)) == 2
        assert await store.check() == []


@APART
async def test_an_erasure_that_is_cancelled_anywhere_is_whole(
    files, path, scribe, opened, cancelled_at, apart
):
    """Whoever waited is gone; what was asked for is done when the next call returns."""
    diary = Diary(scribe, 13)
    keys = path.with_suffix(".keys") if apart else None
    async with opened(path, scribe, keys=keys) as store:
        await write_much(store, diary, customers=3, rounds=2)
        for call in (
            store.forget(1),
            store.delete_session(next(s for s, c in diary.owner.items() if c == 2)),
            store.adopt(Adoption(customer=3)),
            store.undo(next(s for s, c in diary.owner.items() if c == 3), 1),
        ):
            with pytest.raises(asyncio.CancelledError):
                await cancelled_at(call, 1)
        assert await store.forget(1) == Erased(0, 0)
        assert not store._writer.in_transaction
        assert traces(files, diary.all_of(1)) == []
        assert await store.check() == []


async def test_closing_waits_for_an_erasure(files, path, scribe):
    """What is under way ends first."""
    diary = Diary(scribe, 14)
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=60.0)
    await write_much(store, diary, customers=2, rounds=2)
    told = await asyncio.gather(store.forget(1), store.close())
    assert told[0].messages == 4
    assert traces(files, diary.all_of(1)) == []
