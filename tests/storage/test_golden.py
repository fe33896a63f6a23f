"""Databases of every past version, as that version wrote them, open and read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from interturn.storage import (
    Hasher,
    Keyring,
    LocalKey,
    Sealer,
    SqliteStore,
    customer_key_place,
    customer_name_place,
    message_place,
    root_place,
    schema,
    session_key_place,
    session_name_place,
    session_place,
    this_owner,
)

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent / "golden"
MASTER = bytes([1]) * 32
WORDS = ["¿Cuánto cuesta?", "Cuarenta euros.", "¿Y el segundo?", "Lo mismo."]


def test_every_version_has_its_golden_file():
    """A new schema version comes with a database that it wrote."""
    names = {path.name for path in GOLDEN.glob("*.gz")}
    assert names == {f"v{version}.db.gz" for version in range(1, schema.VERSION + 1)}


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
async def test_a_golden_database_opens_with_every_word_in_place(path, scribe, version):
    """The keys unwrap, the ids are found, every row opens, and the next turn is written."""
    path.write_bytes(gzip.decompress((GOLDEN / f"v{version}.db.gz").read_bytes()))
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
    assert loaded.deliveries == [(hasher.delivery(talk, f"d{seq}"), seq) for seq in (1, 3)]
    assert [row.seq for row in loaded.rows] == [3, 4]
    words = [
        its.open(row.sealed, message_place(talk, row.seq, row.role), table="m", where="1").decode()
        for row in await store.rows(1, after=0, limit=9)
    ]
    assert words == WORDS

    assert await store.commit([scribe.turn(1, 5), scribe.first(2)]) == ["written", "written"]
    await store.close()
