"""Looking at a SQLite file, refusing it, and setting it up."""

from __future__ import annotations

import os
import sqlite3

import pytest

from interturn.storage import (
    SchemaTooNew,
    SqliteStore,
    StoreFailed,
    schema,
    this_owner,
)

pytestmark = pytest.mark.anyio

MINUTE_S = 60.0


async def test_looking_at_nothing_makes_nothing(files, path):
    """A missing file, a missing folder and an empty file are all no database yet."""
    assert await SqliteStore(path).look() is None
    assert await SqliteStore(path.parent / "no" / "folder.db").look() is None
    path.touch()
    assert await SqliteStore(path).look() is None
    assert files.bytes() == {"memory.db": b""}


async def test_looking_at_a_closed_database_touches_nothing(files, path, scribe, opened):
    """Every byte stays, and no file appears."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
    before = files.bytes()
    assert set(before) == {"memory.db", "memory.db-lock"}
    assert await SqliteStore(path).look() == scribe.root
    assert files.bytes() == before


@pytest.mark.parametrize("spoil", ["junk", "short", "foreign", "newer", "folder"])
async def test_what_is_not_ours_is_refused_untouched(files, path, scribe, spoil, opened, edit):
    """No database, somebody else's, or a newer one: a clear error, and every byte stays."""
    error = StoreFailed
    match spoil:
        case "junk":
            path.write_bytes(os.urandom(5_000))
        case "short":
            path.write_bytes(b"not a database")
        case "foreign":
            edit(path, "CREATE TABLE notes (words)")
        case "newer":
            async with opened(path, scribe):
                pass
            edit(path, "PRAGMA user_version = 99", "PRAGMA wal_checkpoint(TRUNCATE)")
            error = SchemaTooNew
        case _:
            path.mkdir()
            (path / "memory.db").touch()
    before = files.bytes() if spoil != "folder" else None
    for attempt in (
        SqliteStore(path).look(),
        SqliteStore(path).open(scribe.root, owner=this_owner(), lease_s=MINUTE_S),
        SqliteStore(path).open_read_only(),
    ):
        with pytest.raises(error):
            await attempt
    if before is not None:
        assert files.bytes() == before


async def test_a_newer_schema_says_both_versions(path, scribe, opened, edit):
    """The one that was found, and the newest that is known."""
    async with opened(path, scribe):
        pass
    edit(path, "PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew) as told:
        await SqliteStore(path).look()
    assert (told.value.found, told.value.known) == (99, schema.VERSION)


async def test_a_missing_folder_is_a_failed_store(path, scribe):
    """Opening says so, and makes no folder."""
    store = SqliteStore(path.parent / "no" / "memory.db")
    with pytest.raises(StoreFailed, match="No such file or directory"):
        await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    await store.close()
    assert not (path.parent / "no").exists()


@pytest.mark.parametrize("cut", ["after journal_mode", "before anything"])
async def test_a_creation_that_was_cut_short_is_no_database(path, scribe, cut, opened, edit):
    """A file with no tables is what a crash leaves, and the next open fills it."""
    if cut == "after journal_mode":
        edit(path, "PRAGMA journal_mode = WAL")
        assert path.stat().st_size
    else:
        path.touch()
    assert await SqliteStore(path).look() is None
    async with opened(path, scribe) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]


def test_a_store_that_makes_no_sense_is_refused(path):
    """A durability that isn't one, and keys in the very file that they are to be apart from."""
    with pytest.raises(ValueError, match="'fast'"):
        SqliteStore(path, durability="fast")
    with pytest.raises(ValueError, match="own"):
        SqliteStore(path, keys=path)


async def test_an_old_sqlite_is_refused_by_version(path, files, scribe, monkeypatch):
    """The one that is needed and the one that is here are named; no file is made."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreFailed, match=r"3\.37\.0 is needed"):
        await SqliteStore(path).open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    assert files.bytes() == {}


@pytest.mark.parametrize("name", ["¿dónde? #1 100%.db", "a&b=c;mode=memory.db", "'; --.db"])
async def test_any_name_of_a_file_is_that_files_name(tmp_path, scribe, name, opened):
    """Characters that mean something in an address are part of the name."""
    keys = f"keys of {name}"
    async with opened(tmp_path / name, scribe, keys=tmp_path / keys) as store:
        assert await store.commit([scribe.first(1)]) == ["written"]
        assert len(await store.rows(1, after=0, limit=9)) == 2
    assert await SqliteStore(tmp_path / name, keys=tmp_path / keys).look() == scribe.root
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-lock", keys}


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
async def test_the_database_is_set_up_as_promised(path, scribe, durability, level, opened):
    """A write-ahead log of bounded size, synced as asked; foreign keys; deleted bytes zeroed."""
    async with opened(path, scribe, durability=durability) as store:
        told = {
            name: (await store._writer.execute_fetchall(f"PRAGMA {name}"))[0][0]
            for name in (
                "journal_mode",
                "synchronous",
                "foreign_keys",
                "secure_delete",
                "journal_size_limit",
                "application_id",
            )
        }
        [(busy_ms,)] = await store._writer.execute_fetchall("PRAGMA busy_timeout")
    assert told == {
        "journal_mode": "wal",
        "synchronous": level,
        "foreign_keys": 1,
        "secure_delete": 1,
        "journal_size_limit": 64 * 1024 * 1024,
        "application_id": schema.APPLICATION_ID,
    }
    assert 0 < busy_ms <= 10_000
