"""Databases of every past version, as that version wrote them, open and read."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
from pathlib import Path

import pytest

from interturn.storage import (
    Hasher,
    Keyring,
    LocalKey,
    SchemaTooNew,
    Sealer,
    SqliteStore,
    StoreFailed,
    customer_key_place,
    customer_name_place,
    customer_place,
    message_place,
    root_place,
    schema,
    session_key_place,
    session_name_place,
    session_place,
    session_unanswered_place,
    this_owner,
)

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent / "golden"
MASTER = bytes([1]) * 32
WORDS = ["¿Cuánto cuesta?", "Cuarenta euros.", "¿Y el segundo?", "Lo mismo."]


@pytest.fixture
def unpack(path):
    """Return what puts a golden database where the test's database is."""

    def put(version):
        path.write_bytes(gzip.decompress((GOLDEN / f"v{version}.db.gz").read_bytes()))

    return put


def test_every_version_has_its_golden_file():
    """A new schema version comes with a database that it wrote."""
    names = {path.name for path in GOLDEN.glob("*.gz")}
    assert names == {f"v{version}.db.gz" for version in range(1, schema.VERSION + 1)}


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
async def test_a_golden_database_opens_with_every_word_in_place(path, scribe, unpack, version):
    """The keys unwrap, the ids are found, every row opens, and the next turn is written."""
    unpack(version)
    store = SqliteStore(path)
    root = await store.look()
    await store.open(root, owner=this_owner(), lease_s=15.0)
    ring = Keyring([LocalKey(MASTER)])
    secret = ring.unwrap(root.key_id, root.wrapped, root_place(), table="root", where="1")
    hasher = Hasher(secret)
    ana, talk = hasher.customer("ana"), hasher.session("web-7f3a")

    loaded = await store.load_session(talk, recent=64)
    customer, session = loaded.customer, loaded.session
    assert customer == await store.load_customer(ana)
    hers = Sealer(
        ring.unwrap(
            customer.key_id, customer.wrapped, customer_key_place(ana), table="keys", where="1"
        )
    )
    its = Sealer(hers.open(session.wrapped, session_key_place(talk), table="keys", where="1"))
    assert hers.open(customer.name, customer_name_place(ana), table="c", where="1") == b"ana"
    assert its.open(session.name, session_name_place(talk), table="s", where="1") == b"web-7f3a"
    assert its.open(session.snapshot, session_place(talk), table="s", where="1") == b"state"
    assert (session.cursor, session.version, loaded.last) == (2, 1, 4)
    if version == 1:
        assert (customer.snapshot, customer.version, session.derived) == (None, 0, 0)
    else:
        assert hers.open(customer.snapshot, customer_place(ana), table="c", where="1") == b"facts"
        assert (customer.version, session.derived) == (1, 2)
    [waiting] = await store.underived(after=0, limit=9)
    assert (waiting.session.ref, waiting.customer, waiting.last) == (1, customer, 4)
    left = await store.unanswered(after=0, limit=9)
    assert [(words.session.ref, words.customer) for words in left] == [(1, customer)] * (
        version > 2
    )
    place = session_unanswered_place(talk)
    assert all(its.open(words.sealed, place, table="u", where="1") == b"asked" for words in left)
    assert loaded.deliveries == [(hasher.delivery(talk, f"d{seq}"), seq) for seq in (1, 3)]
    assert [row.seq for row in loaded.rows] == [3, 4]
    words = [
        its.open(row.sealed, message_place(talk, row.seq, row.role), table="m", where="1").decode()
        for row in await store.rows(1, after=0, limit=9)
    ]
    assert words == WORDS

    assert await store.commit([scribe.turn(1, 5), scribe.first(2)]) == ["written", "written"]
    assert await store.unanswered(after=0, limit=9) == []
    await store.close()


async def test_a_past_version_is_brought_up_to_date_once(path, scribe, unpack):
    """A forward step runs in the transaction that takes the lease, and is on disk at once."""
    unpack(1)
    store = SqliteStore(path)
    await store.open(await store.look(), owner=this_owner(), lease_s=15.0)
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as tool:
        assert tool.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert await store.commit([scribe.turn(1, 5)]) == ["written"]
    await store.close()
    await store.open(await store.look(), owner=this_owner(), lease_s=15.0)
    await store.close()


async def test_a_past_version_is_looked_at_and_read_as_it_is(path, files, unpack):
    """Neither a look nor a reader brings it up to date: every byte stays, all loads work."""
    unpack(1)
    before = files.bytes()
    reader = SqliteStore(path)
    root = await reader.look()
    assert root is not None
    assert await reader.open_read_only() == root
    [customer] = await reader.customers(after=0, limit=9)
    [session] = await reader.sessions_of(customer.ref)
    loaded = await reader.load_session(session.hash, recent=64)
    assert (session.derived, loaded.session.derived, loaded.last) == (0, 0, 4)
    assert loaded.customer == customer == await reader.load_customer(customer.hash)
    [waiting] = await reader.underived(after=0, limit=9)
    assert (waiting.session, waiting.customer, waiting.last) == (session, customer, 4)
    assert await reader.unanswered(after=0, limit=9) == []
    assert await reader.check() == []
    await reader.close()
    assert files.bytes() == before


async def test_a_migration_that_fails_leaves_the_past_version(path, unpack, monkeypatch):
    """It is one transaction: the database is as it was, and opens when the cause is gone."""
    unpack(1)
    store = SqliteStore(path)
    root = await store.look()
    with monkeypatch.context() as patch:
        steps = (*schema.STEPS, ("CREATE TABLE more (n)", "CREATE TABLE more (n)"))
        patch.setattr(schema, "STEPS", steps)
        with pytest.raises(StoreFailed):
            await store.open(root, owner=this_owner(), lease_s=15.0)
    with contextlib.closing(sqlite3.connect(path)) as tool:
        assert tool.execute("PRAGMA user_version").fetchone() == (1,)
    await store.open(root, owner=this_owner(), lease_s=15.0)
    await store.close()


async def test_an_older_interturn_refuses_this_version(path, files, unpack, monkeypatch):
    """By both numbers, with every byte as it was."""
    unpack(2)
    before = files.bytes()
    monkeypatch.setattr(schema, "VERSION", 1)
    with pytest.raises(SchemaTooNew) as told:
        await SqliteStore(path).look()
    assert (told.value.found, told.value.known) == (2, 1)
    assert files.bytes() == before
