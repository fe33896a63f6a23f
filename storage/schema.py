"""The tables, their versions, and how to look at a file without touching it.

What the schema itself holds, whoever writes to it:

- a session's sequence numbers have no gaps and no doubles (the trigger
  ``messages_follow`` and the unique index), so a turn lands whole after the
  newest one or not at all; only the oldest can be missing, once pruned;
- the visitor's rows are the odd ones;
- a delivery is recorded once in its session;
- the words in ``unanswered`` go in the transaction that writes the session's next
  turn (the trigger ``messages_answer``).

A customer's wrapped key rests in ``customer_keys``, by their hash. With a keys
file this table is in that file, and a backup of the data without it can't be
read. Each file of such a pair carries the same random name, so that no other
pair's half is taken for it.

A row in ``tombstones`` is an erasure under way; `erasing` tells how it goes.

Creation and every migration end with a checkpoint, so that the main file alone
tells whose it is, its version and its root.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import aiosqlite
import msgspec

from .connection import connected, failure, untouching_uri
from .errors import SchemaTooNew, StoreFailed
from .lease import Lease
from .rows import Root

MINIMUM_SQLITE: Final = (3, 37, 0)
"""For STRICT tables; UPDATE FROM came in 3.33, RETURNING in 3.35."""

APPLICATION_ID: Final = 0x6974726E
"""``itrn``: says in the header of a file that it is our database."""

KEYS_APPLICATION_ID: Final = 0x6974726B
"""``itrk``: says that it is our keys file."""

_HEADER_BYTES: Final = 512
"""No database of SQLite is smaller: it has at least one page."""

_KEYS = """
CREATE TABLE {schema}.customer_keys (
    hash BLOB PRIMARY KEY,
    key_id TEXT NOT NULL,
    wrapped BLOB NOT NULL
) STRICT, WITHOUT ROWID
"""

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """
        CREATE TABLE root (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            pair BLOB NOT NULL,
            keys_apart INTEGER NOT NULL,
            key_id TEXT NOT NULL,
            wrapped BLOB NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE lease (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            epoch INTEGER NOT NULL,
            owner TEXT,
            since REAL NOT NULL,
            renewed REAL NOT NULL,
            lease_s REAL NOT NULL,
            locked INTEGER NOT NULL
        ) STRICT
        """,
        "INSERT INTO lease VALUES (1, 0, NULL, 0.0, 0.0, 0.0, 0)",
        """
        CREATE TABLE customers (
            ref INTEGER PRIMARY KEY,
            hash BLOB NOT NULL UNIQUE,
            name BLOB NOT NULL,
            snapshot BLOB,
            version INTEGER NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE sessions (
            ref INTEGER PRIMARY KEY,
            hash BLOB NOT NULL UNIQUE,
            customer INTEGER NOT NULL REFERENCES customers (ref),
            name BLOB NOT NULL,
            wrapped BLOB NOT NULL,
            cursor INTEGER NOT NULL,
            snapshot BLOB,
            version INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX sessions_customer ON sessions (customer)",
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL REFERENCES sessions (ref),
            seq INTEGER NOT NULL,
            role INTEGER NOT NULL CHECK (role = 1 - seq % 2),
            at INTEGER NOT NULL,
            delivery BLOB,
            sealed BLOB NOT NULL,
            UNIQUE (session, seq)
        ) STRICT
        """,
        """
        CREATE UNIQUE INDEX messages_delivery
            ON messages (session, delivery) WHERE delivery IS NOT NULL
        """,
        """
        CREATE TRIGGER messages_follow BEFORE INSERT ON messages
        WHEN NEW.seq <> 1 + coalesce(
            (SELECT max(seq) FROM messages WHERE session = NEW.session), 0)
        BEGIN
            SELECT RAISE(ABORT, 'a message must follow the newest one');
        END
        """,
    ),
    (
        "ALTER TABLE sessions ADD COLUMN derived INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE tombstones (
            ref INTEGER,
            hash BLOB
        ) STRICT
        """,
    ),
    (
        "ALTER TABLE sessions ADD COLUMN pruned BLOB",
        """
        CREATE TABLE unanswered (
            session INTEGER PRIMARY KEY REFERENCES sessions (ref),
            epoch INTEGER NOT NULL,
            sealed BLOB NOT NULL
        ) STRICT
        """,
        """
        CREATE TRIGGER messages_answer AFTER INSERT ON messages WHEN NEW.role = 1
        BEGIN
            DELETE FROM unanswered WHERE session = NEW.session;
        END
        """,
    ),
)
"""Statements that lead from each version to the next; version 0 is the empty file."""

VERSION: Final = len(STEPS)

DERIVED_SINCE: Final = 2
"""The version in which a session's row began to say how far facts have been derived."""

PRUNED_SINCE: Final = 3
"""The version in which unanswered words and marks of pruning came."""

KEYS_VERSION: Final = 1
"""Of a keys file, which changes for other reasons than the data."""


_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]  # the year 9999
_Described: TypeAlias = tuple[
    str, bytes, bytes, int, Annotated[int, msgspec.Meta(ge=0)], str | None, _Time, _Time, _Time, int
]
"""The root's and the lease's row, of a file that isn't damaged."""


class Found(msgspec.Struct, frozen=True):
    """What an existing database says of itself.

    Attributes:
        version: of its schema.
        root: its root.
        pair: the random name that it shares with its keys file.
        keys_apart: whether the customers' keys rest in a file of their own.
        lease: who owns it.
    """

    version: int
    root: Root
    pair: bytes
    keys_apart: bool
    lease: Lease


async def look(path: Path, keys: Path | None) -> Found | None:
    """Return what a database says of itself, or None if there is none, touching nothing.

    Raises:
        SchemaTooNew: it was written by a newer interturn.
        StoreFailed: it isn't ours, can't be read, or its keys file isn't the right one.
    """
    found = await _look(path)
    if keys is not None or (found is not None and found.keys_apart):
        await _look_at_keys(keys, found)
    return found


async def found_by(connection: aiosqlite.Connection) -> Found | None:
    """Return what the database of this connection says of itself, or None if it is empty.

    Raises `SchemaTooNew`; `StoreFailed` if it isn't ours or is damaged; `sqlite3.Error`.
    """
    version = await _version(connection, APPLICATION_ID, VERSION, "an interturn database")
    if version is None:
        return None
    rows = await connection.execute_fetchall(
        "SELECT key_id, root.wrapped, pair, keys_apart,"
        " epoch, owner, since, renewed, lease_s, locked FROM root, lease"
    )
    try:
        [row] = msgspec.convert(rows, list[_Described], builtin_types=(bytes,))
    except (msgspec.ValidationError, ValueError):
        pass
    else:
        key_id, wrapped, pair, apart, epoch, owner, since, renewed, lease_s, locked = row
        lease = Lease(epoch, owner, since, renewed, lease_s, bool(locked))
        return Found(version, Root(key_id, wrapped), pair, bool(apart), lease)
    raise StoreFailed("what the database says of itself is damaged")


async def migrate(connection: aiosqlite.Connection, version: int) -> None:
    """Lead the schema from this version to the newest, within the open transaction."""
    for step in STEPS[version:]:
        for statement in step:
            await connection.execute_fetchall(statement)
    await connection.execute_fetchall(f"PRAGMA main.application_id = {APPLICATION_ID}")
    await connection.execute_fetchall(f"PRAGMA main.user_version = {VERSION}")


async def create(
    connection: aiosqlite.Connection, root: Root, pair: bytes, *, keys_apart: bool
) -> None:
    """Make all tables of a new database, within the open transaction."""
    await migrate(connection, 0)
    if not keys_apart:
        await connection.execute_fetchall(_KEYS.format(schema="main"))
    await connection.execute_fetchall(
        "INSERT INTO root (id, pair, keys_apart, key_id, wrapped) VALUES (1, ?, ?, ?, ?)",
        (pair, keys_apart, root.key_id, root.wrapped),
    )


async def create_keys(connection: aiosqlite.Connection, pair: bytes) -> None:
    """Make the attached keys file the other half of a new pair, within the open transaction.

    A half that was left alone by a crash is taken; one that holds keys never is.
    """
    version = await _keys_version(connection, "keys")
    if version is None:
        await connection.execute_fetchall(_KEYS.format(schema="keys"))
        await connection.execute_fetchall("CREATE TABLE keys.pair (name BLOB NOT NULL) STRICT")
        await connection.execute_fetchall(f"PRAGMA keys.application_id = {KEYS_APPLICATION_ID}")
        await connection.execute_fetchall(f"PRAGMA keys.user_version = {KEYS_VERSION}")
    else:
        await _check_vacant(connection, "keys")
        await connection.execute_fetchall("DELETE FROM keys.pair")
    await connection.execute_fetchall("INSERT INTO keys.pair VALUES (?)", (pair,))


async def _look(path: Path) -> Found | None:
    # A live owner that closes between our look at the folder and SQLite's takes
    # the log away, and the address no longer fits; then a second look does.
    for attempt in (1, 2, 3):
        if _missing(path):
            return None
        try:
            async with connected(untouching_uri(path)) as connection:
                # One state for all questions: the owner may be making the tables.
                await connection.execute_fetchall("BEGIN")
                return await found_by(connection)
        except sqlite3.Error as error:
            if attempt == 3 or getattr(error, "sqlite_errorname", "") != "SQLITE_CANTOPEN":  # noqa: PLR2004 - the last of three
                raise failure(error) from error
    raise AssertionError  # pragma: no cover - the loop returns or raises


async def _look_at_keys(keys: Path | None, found: Found | None) -> None:
    if keys is None:
        raise StoreFailed(
            "this database keeps its keys in a file of their own, which was not named"
        )
    if found is not None and not found.keys_apart:
        raise StoreFailed("this database keeps its keys inside; a keys file was named")
    if _missing(keys):
        if found is not None:
            raise StoreFailed("the keys file of this database is missing")
        return
    try:
        async with connected(untouching_uri(keys)) as connection:
            if await _keys_version(connection, "main") is None:
                if found is not None:
                    raise StoreFailed("the keys file of this database is empty")
            elif found is None:
                await _check_vacant(connection, "main")
            elif await _pair(connection, "main") != found.pair:
                raise StoreFailed("the keys file belongs to another database")
    except sqlite3.Error as error:
        raise failure(error) from error


async def check_pair(connection: aiosqlite.Connection, pair: bytes) -> None:
    """Raise `StoreFailed` unless the attached keys file is the other half of this pair."""
    if await _pair(connection, "keys") != pair:
        raise StoreFailed("the keys file belongs to another database")


async def _pair(connection: aiosqlite.Connection, schema: str) -> bytes | None:
    rows = list(await connection.execute_fetchall(f"SELECT name FROM {schema}.pair"))  # noqa: S608 - one of two constants
    return rows[0][0] if rows else None


async def _check_vacant(connection: aiosqlite.Connection, schema: str) -> None:
    if await connection.execute_fetchall(f"SELECT 1 FROM {schema}.customer_keys LIMIT 1"):  # noqa: S608 - one of two constants
        raise StoreFailed("the keys file belongs to another database")


async def _keys_version(connection: aiosqlite.Connection, schema: str) -> int | None:
    return await _version(
        connection, KEYS_APPLICATION_ID, KEYS_VERSION, "an interturn keys file", schema=schema
    )


async def _version(
    connection: aiosqlite.Connection,
    application_id: int,
    known: int,
    kind: str,
    *,
    schema: str = "main",
) -> int | None:
    """Return the schema's version, or None for a file that holds nothing yet."""
    [(found_id,)] = await connection.execute_fetchall(f"PRAGMA {schema}.application_id")
    [(version,)] = await connection.execute_fetchall(f"PRAGMA {schema}.user_version")
    if found_id == application_id:
        if version > known:
            raise SchemaTooNew(version, known)
        return int(version)
    # A crash between making the file and filling it leaves a file of no tables.
    tables = await connection.execute_fetchall(f"SELECT 1 FROM {schema}.sqlite_master LIMIT 1")  # noqa: S608 - one of two constants
    if found_id == 0 and version == 0 and not tables:
        return None
    raise StoreFailed(f"this file is not {kind}")


def _missing(path: Path) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise failure(error) from error
    if stat.S_ISDIR(status.st_mode):
        raise StoreFailed(os.strerror(errno.EISDIR))
    if 0 < status.st_size < _HEADER_BYTES:
        # SQLite takes it for a new file, and would write over what is left of it.
        raise StoreFailed("the file is cut short")
    return status.st_size == 0
