"""Reading rows: what the owner and a reader beside it have in common.

Each load is one statement, so it sees one state of the database whatever is
committed meanwhile, and no transaction stays open between calls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

import aiosqlite

from .base import CustomerRow, LoadedSession, Row, SessionRow
from .connection import failure
from .errors import StoreFailed

LOST = "lost"
"""The key id of a customer whose wrapped key is nowhere, so that unwrapping it is `WrongKey`."""

_CUSTOMER = """
    customers.ref, customers.hash, customers.name, coalesce(held.key_id, '{lost}'),
    coalesce(held.wrapped, x''), customers.snapshot, customers.version
"""

# The customer's key is joined from the left: a key that is missing must be a
# loud error when it is used, never a conversation that seems not to exist.
_SESSION = """
WITH own AS MATERIALIZED (
    SELECT *, coalesce((SELECT max(seq) FROM messages WHERE session = ref), 0) AS last
    FROM sessions WHERE hash = ?1
)
SELECT 0, own.ref, own.hash, own.customer, own.name, own.wrapped, own.cursor, own.snapshot,
    own.version, own.last, {customer}
FROM own JOIN customers ON customers.ref = own.customer
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
UNION ALL
SELECT 1, messages.seq, messages.role, messages.at, messages.sealed, messages.delivery,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM own JOIN messages ON messages.session = own.ref AND messages.seq > own.cursor
UNION ALL
SELECT 2, messages.delivery, messages.seq,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM own JOIN messages ON messages.session = own.ref AND messages.seq > own.last - ?2
WHERE messages.delivery IS NOT NULL
"""

_CUSTOMERS = """
SELECT {customer} FROM customers
    LEFT JOIN {schema}.customer_keys AS held ON held.hash = customers.hash
"""


class Reading:
    """The loads of the store contract over one connection that only reads."""

    def __init__(self) -> None:
        self._reader: aiosqlite.Connection | None = None
        self._tell_where_keys_are(apart=False)

    async def load_session(self, session_hash: bytes, *, recent: int) -> LoadedSession | None:
        """Return a session with what is newer than its snapshot, as of one moment."""
        session, customer, last = None, None, 0
        rows: list[Row] = []
        deliveries: list[tuple[bytes, int]] = []
        for kind, *fields in await self._read(self._session_sql, (session_hash, recent)):
            if kind == 0:
                session = SessionRow(*fields[:8])
                last = fields[8]
                customer = CustomerRow(*fields[9:])
            elif kind == 1:
                rows.append(Row(*fields[:5]))
            else:
                deliveries.append((fields[0], fields[1]))
        if session is None or customer is None:
            return None
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
        return [Row(*fields) for fields in found]

    async def sessions_of(self, customer: int) -> list[SessionRow]:
        """Return a customer's sessions by rising `ref`, without their snapshots."""
        found = await self._read(
            "SELECT ref, hash, customer, name, wrapped, cursor, NULL, version FROM sessions"
            " WHERE customer = ? ORDER BY ref",
            (customer,),
        )
        return [SessionRow(*fields) for fields in found]

    async def customers(self, *, after: int, limit: int) -> list[CustomerRow]:
        """Return at most ``limit`` customers with a `ref` over ``after``, by rising `ref`."""
        found = await self._read(
            self._customers_sql + " WHERE customers.ref > ? ORDER BY customers.ref LIMIT ?",
            (after, limit),
        )
        return [CustomerRow(*fields) for fields in found]

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

    def _tell_where_keys_are(self, *, apart: bool) -> None:
        self._keys_schema = "keys" if apart else "main"
        customer = _CUSTOMER.format(lost=LOST)
        self._session_sql = _SESSION.format(customer=customer, schema=self._keys_schema)
        self._customers_sql = _CUSTOMERS.format(customer=customer, schema=self._keys_schema)

    async def _read(self, sql: str, values: Iterable[Any]) -> list[Any]:
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
