"""Reading rows: what the owner and a reader beside it have in common.

Each load is one statement, so it sees one state of the database whatever is
committed meanwhile, and no transaction stays open between calls.

A reader that joins a write-ahead log makes the log's files where there are
none, and leaves them. So a database that nobody has open is read *at rest*: as
a file that doesn't change, with nothing made beside it. Whether that was true
is seen after each load: an owner who has come has made a log, and one who has
come and gone has changed the file's time. Then the reader joins the log after
all, and the load is made again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import aiosqlite

from . import schema
from .connection import (
    at_rest,
    beside,
    connect,
    disconnect,
    failure,
    immutable_uri,
    reading_uri,
)
from .errors import StoreFailed, StoreOwned, Tampered
from .lease import LockFile, host_of, this_owner
from .rows import (
    CustomerRow,
    LoadedSession,
    Root,
    Row,
    SessionRow,
    Totals,
    Unanswered,
    Underived,
    check_row,
    check_values,
)

LOST = "lost"
"""The key id of a customer whose wrapped key is nowhere, so that unwrapping it is `WrongKey`."""

_CUSTOMER = """
    customers.ref, customers.hash, customers.name, coalesce(held.key_id, '{lost}'),
    coalesce(held.wrapped, x''), customers.snapshot, customers.version
"""

# The customer and their key are joined from the left: what is missing must be a
# loud error when it is used, never a conversation that seems not to exist.
_SESSION = """
WITH own AS MATERIALIZED (
    SELECT *, coalesce((SELECT max(seq) FROM messages WHERE session = ref), 0) AS last
    FROM sessions WHERE hash = ?1
)
SELECT 0, own.ref, own.hash, own.customer, own.name, own.wrapped, own.cursor, own.snapshot,
    own.version, {derived}, {pruned}, own.last, {customer}
FROM own LEFT JOIN customers ON customers.ref = own.customer
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
UNION ALL
SELECT 1, messages.seq, messages.role, messages.at, messages.sealed, messages.delivery,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM own JOIN messages ON messages.session = own.ref AND messages.seq > own.cursor
UNION ALL
SELECT 2, messages.delivery, messages.seq,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM own JOIN messages ON messages.session = own.ref AND messages.seq > own.last - ?2
WHERE messages.delivery IS NOT NULL
"""

_CUSTOMERS = """
SELECT {customer} FROM customers
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
"""

_SESSIONS = """
SELECT own.ref, own.hash, own.customer, own.name, own.wrapped, own.cursor, NULL, own.version,
    {derived}, {pruned}
FROM sessions AS own
"""

_UNDERIVED = """
SELECT own.ref, own.hash, own.customer, own.name, own.wrapped, own.cursor, NULL, own.version,
    {derived}, {pruned}, own.last, {customer}
FROM (
    SELECT *, coalesce((SELECT max(seq) FROM messages WHERE session = ref), 0) AS last
    FROM sessions WHERE ref > ?
) AS own
JOIN customers ON customers.ref = own.customer
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
WHERE {derived} < own.last ORDER BY own.ref LIMIT ?
"""

_UNANSWERED = """
SELECT own.ref, own.hash, own.customer, own.name, own.wrapped, own.cursor, NULL, own.version,
    own.derived, own.pruned, unanswered.sealed, {customer}
FROM unanswered JOIN sessions AS own ON own.ref = unanswered.session
JOIN customers ON customers.ref = own.customer
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
WHERE unanswered.session > ? AND unanswered.epoch <> ? ORDER BY own.ref LIMIT ?
"""

_TOTALS = """
SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM sessions), count(*),
    (SELECT count(*) FROM sessions WHERE cursor > 0), min(at), max(at),
    (SELECT user_version FROM pragma_user_version)
FROM messages
"""

_TOTALS_SHAPE: Any = tuple[int, int, int, int, int | None, int | None, int]

_AGED = """
SELECT hash FROM sessions WHERE ref > ? AND ref <= ? AND ? > (
    SELECT at FROM messages
    WHERE session = ref AND seq <= min(cursor, derived) - 2 ORDER BY seq LIMIT 1)
"""


_NEWEST = tuple[int, list[tuple[bytes, int]]]
"""The highest sequence number of a session, and its deliveries."""


class Reading:
    """The loads of the store contract over one connection that only reads.

    Args:
        path: of the database.
        keys: of the file where the customers' keys rest apart, if they do.
    """

    def __init__(self, path: Path, keys: Path | None) -> None:
        self._path = path
        self._keys = keys
        self._paths = (path,) if keys is None else (path, keys)
        self._lock = LockFile(beside(path, "-lock"))
        self._reader: aiosqlite.Connection | None = None
        self._resting: tuple[int, ...] | None = None
        self._joining = asyncio.Lock()
        self._epoch = 0
        self._prepare_loads(schema.VERSION)

    async def open_read_only(self) -> Root | None:
        """Open for loading only, beside whoever owns the database, without a lease.

        Works where the folder can't be written, too, and for a database of any
        past version, which stays as it is. Where nobody has the database open no
        file is made or changed. Returns None, and opens nothing, if there is no
        database.

        Raises:
            SchemaTooNew: it was written by a newer interturn.
            StoreFailed: the file is not ours or can't be read, or its keys file is
                not the right one.
        """
        found = await schema.look(self._path, self._keys)
        if found is None:
            return None
        await self._shut()
        self._joining = asyncio.Lock()
        self._prepare_loads(found.version)
        try:
            resting = self._at_rest()
            if resting is None or self._lock.look() != "free":
                await self._join()
            else:
                self._reader = await self._connect_reader(immutable_uri)
                self._resting = resting
        except sqlite3.Error as error:
            raise failure(error) from error
        return found.root

    async def load_session(self, session_hash: bytes, *, recent: int) -> LoadedSession | None:
        """Return a session with what is newer than its snapshot, as of one moment.

        Raises `Tampered` where that is none that was ever written; `StoreFailed`.
        """
        session, customer, last = None, None, 0
        rows: list[Row] = []
        deliveries: list[tuple[bytes, int]] = []
        for kind, *fields in await self._read(self._session_sql, (session_hash, recent)):
            if kind == 0:
                session = SessionRow(*fields[:10])
                last = fields[10]
                customer = CustomerRow(*fields[11:])
            elif kind == 1:
                rows.append(_row(*fields[:5]))
            else:
                deliveries.append((fields[0], fields[1]))
        if session is None or customer is None:
            return None
        where = f"session {session.ref}"
        if customer.ref is None:
            raise Tampered("sessions", f"{where}, its customer")
        check_values((last, deliveries), _NEWEST, "messages", where)
        # SQL promises no order across UNION ALL, whatever it does.
        rows.sort(key=lambda row: row.seq)
        deliveries.sort(key=lambda delivery: delivery[1])
        return LoadedSession(session, customer, last, rows, deliveries)

    async def load_customer(self, customer_hash: bytes) -> CustomerRow | None:
        """Return a customer."""
        found = await self._read(
            self._customers_sql + " WHERE customers.hash = ?", (customer_hash,)
        )
        return CustomerRow(*found[0]) if found else None

    async def rows(self, session: int, *, after: int, limit: int) -> list[Row]:
        """Return at most ``limit`` rows with a sequence number over ``after``, oldest first."""
        found = await self._read(
            "SELECT seq, role, at, sealed, delivery FROM messages"
            " WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
            (session, after, limit),
        )
        return [_row(*fields) for fields in found]

    async def sessions_of(self, customer: int) -> list[SessionRow]:
        """Return a customer's sessions by rising `ref`, without their snapshots."""
        found = await self._read(
            self._sessions_sql + " WHERE own.customer = ? ORDER BY own.ref",
            (customer,),
        )
        return [SessionRow(*fields) for fields in found]

    async def underived(self, *, after: int, limit: int) -> list[Underived]:
        """Return at most ``limit`` sessions that facts are still to be derived from.

        By rising `ref`, with a `ref` over ``after``.
        """
        found = await self._read(self._underived_sql, (after, limit))
        return [
            Underived(SessionRow(*fields[:10]), CustomerRow(*fields[11:]), fields[10])
            for fields in found
        ]

    async def unanswered(self, *, after: int, limit: int) -> list[Unanswered]:
        """Return at most ``limit`` sessions with words that an earlier owner left unanswered.

        By rising `ref`, with a `ref` over ``after``. A reader without a lease is
        told of the owner's own, too.
        """
        if not self._keeps_unanswered:
            return []
        found = await self._read(self._unanswered_sql, (after, self._epoch, limit))
        return [
            Unanswered(SessionRow(*fields[:10]), CustomerRow(*fields[11:]), fields[10])
            for fields in found
        ]

    async def aged(self, *, before: int, after: int, upto: int) -> list[bytes]:
        """Return the hashes of the sessions that a pruning would take something from.

        Looks at a `ref` over ``after``, up to ``upto``; see `Store.aged`.
        """
        return [found for (found,) in await self._read(_AGED, (after, upto, before))]

    async def customers(self, *, after: int, limit: int) -> list[CustomerRow]:
        """Return at most ``limit`` customers with a `ref` over ``after``, by rising `ref`."""
        found = await self._read(
            self._customers_sql + " WHERE customers.ref > ? ORDER BY customers.ref LIMIT ?",
            (after, limit),
        )
        return [CustomerRow(*fields) for fields in found]

    async def totals(self) -> Totals:
        """Return how much there is. Reads every message's row, but for what is sealed in it."""
        [fields] = await self._read(_TOTALS, ())
        check_values(fields, _TOTALS_SHAPE, "messages", "times")
        return Totals(*fields)

    async def extent(self, session: int) -> tuple[int, int | None]:
        """Return how many messages a session has, and the time of the newest, if any.

        In microseconds since 1970 UTC.
        """
        [(count, last)] = await self._read(
            "SELECT count(*), (SELECT at FROM messages WHERE session = ?1"
            " ORDER BY seq DESC LIMIT 1) FROM messages WHERE session = ?1",
            (session,),
        )
        check_values(last, int | None, "messages", f"session {session}")
        return count, last

    async def owned(self) -> StoreOwned | None:
        """Return who holds the database, as the refusal that a newcomer would get; None if nobody.

        Raises:
            StoreFailed, SchemaTooNew: it can't be read any more.
        """
        lock = self._lock.look()
        found = await schema.look(self._path, self._keys)
        if found is None:
            return None
        return found.lease.refusal(lock, host=host_of(this_owner()), now=time.time())

    async def check(self) -> list[str]:
        """Return what the database itself finds wrong, by number and never by id.

        Damaged pages and indexes, and rows whose session, customer or key is missing.
        """
        problems = [
            str(problem)
            for (problem,) in await self._read("PRAGMA integrity_check(20)", ())
            if problem != "ok"
        ]
        for table, row, parent, _ in await self._read("PRAGMA foreign_key_check", ()):
            problems.append(f"{table} row {row} has no {parent}")
        keyless = await self._read(
            f"SELECT ref FROM customers WHERE hash NOT IN"  # noqa: S608 - a schema's name
            f" (SELECT hash FROM {self._keys_schema}.customer_keys)",
            (),
        )
        return problems + [f"customers row {ref} has no key" for (ref,) in keyless]

    def _prepare_loads(self, version: int) -> None:
        self._keys_schema = "main" if self._keys is None else "keys"
        fields = {
            "customer": _CUSTOMER.format(lost=LOST),
            "schema": self._keys_schema,
            "derived": "own.derived" if version >= schema.DERIVED_SINCE else "0",
            "pruned": "own.pruned" if version >= schema.PRUNED_SINCE else "NULL",
        }
        self._session_sql = _SESSION.format(**fields)
        self._customers_sql = _CUSTOMERS.format(**fields)
        self._sessions_sql = _SESSIONS.format(**fields)
        self._underived_sql = _UNDERIVED.format(**fields)
        self._unanswered_sql = _UNANSWERED.format(**fields)
        self._keeps_unanswered = version >= schema.PRUNED_SINCE

    def _at_rest(self) -> tuple[int, ...] | None:
        """Return what tells a change of the files, None where somebody reads or writes a log."""
        return at_rest(*self._paths)

    async def _join(self) -> None:
        """Read beside whoever writes, by the log. Raises `sqlite3.Error`."""
        try:
            self._reader = await self._connect_reader(reading_uri)
        except sqlite3.Error:
            # Joining the log needs files beside the database. In a folder where
            # none can be made, nobody else is making any either.
            self._reader = await self._connect_reader(immutable_uri)

    async def _connect_reader(self, uri: Callable[[Path], str]) -> aiosqlite.Connection:
        reader = await connect(uri(self._path))
        try:
            if self._keys is not None:
                await reader.execute_fetchall("ATTACH ? AS keys", (uri(self._keys),))
                await reader.execute_fetchall("SELECT 1 FROM keys.pair")
            await reader.execute_fetchall("SELECT 1 FROM root")
        except BaseException:
            await disconnect(reader)
            raise
        return reader

    async def _shut(self) -> None:
        reader, self._reader = self._reader, None
        self._resting = None
        if reader is not None:
            await disconnect(reader)

    async def _read(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        resting = self._resting
        if resting is None:
            return await self._fetch(sql, values)
        try:
            found = await self._fetch(sql, values)
        except StoreFailed:
            if self._at_rest() == resting:
                raise
        else:
            if self._at_rest() == resting:
                return found
        async with self._joining:
            if self._resting is resting:
                await self._shut()
                try:
                    await self._join()
                except sqlite3.Error as error:
                    raise failure(error) from error
        return await self._fetch(sql, values)

    async def _fetch(self, sql: str, values: Iterable[Any]) -> list[Any]:
        if self._reader is None:
            raise StoreFailed("the store is not open")
        try:
            return list(await self._reader.execute_fetchall(sql, values))
        except sqlite3.Error as error:
            raise failure(error) from error
        except ValueError:
            # So aiosqlite says that the connection was closed meanwhile.
            pass
        raise StoreFailed("the store was closed")


def _row(*fields: Any) -> Row:
    row = Row(*fields)
    check_row(row, "messages", f"message {row.seq if isinstance(row.seq, int) else '?'}")
    return row
