"""The few statements that write, each for any number of rows at once.

Each statement that runs hands the interpreter's lock over several times, so in
a busy process a batch costs by its statements and not by its rows: 128 rows
took over 100 ms as 128 statements beside a busy thread, and 8 ms as one. So
every kind of write is one statement over a list of VALUES.

Compiling a statement of 256 turns takes 1.7 ms, as long as running it. Lists
are therefore padded to a power of two with rows of NULL that the statement
skips: eleven texts of each kind are all there are, and the connection keeps
them compiled.

The condition on the lease's epoch stands inside each statement: a stale owner
changes no row, whenever it wakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

from .rows import (
    CustomerRow,
    Prune,
    SessionRow,
    WriteCustomer,
    WriteSession,
    WriteTurn,
    WriteUnanswered,
)

ROWS_AT_MOST: Final = 1_024
"""Rows in one statement. The widest has 9 values a row and one more: 9,217 of SQLite's 32,766."""

Value: TypeAlias = int | str | bytes | None
Statement: TypeAlias = tuple[str, list[Value]]
"""A statement's text and its values."""

_FENCE = "(SELECT epoch FROM main.lease) = ?"

_TURNS = """
INSERT INTO main.messages (session, seq, role, at, delivery, sealed)
SELECT turn.column1, turn.column2 + side.column1, side.column1,
    iif(side.column1, turn.column5, turn.column3),
    iif(side.column1, NULL, turn.column7),
    iif(side.column1, turn.column6, turn.column4)
FROM (VALUES {rows}) AS turn CROSS JOIN (VALUES (0), (1)) AS side
WHERE {fence} AND turn.column1 IS NOT NULL
"""

_SESSIONS = """
INSERT INTO main.sessions
    (ref, hash, customer, name, wrapped, cursor, snapshot, version, derived)
SELECT * FROM (VALUES {rows}) AS new
WHERE {fence} AND new.column1 IS NOT NULL
"""

_CUSTOMERS = """
INSERT INTO main.customers (ref, hash, name, snapshot, version)
SELECT * FROM (VALUES {rows}) AS new
WHERE {fence} AND new.column1 IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM main.customers WHERE ref = new.column1 AND hash = new.column2)
"""

_KEYS = """
INSERT INTO {schema}.customer_keys (hash, key_id, wrapped)
SELECT * FROM (VALUES {rows}) AS new
WHERE {fence} AND new.column1 IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM main.customers WHERE hash = new.column1)
ON CONFLICT (hash) DO UPDATE SET key_id = excluded.key_id, wrapped = excluded.wrapped
"""

_UNANSWERED = """
INSERT INTO main.unanswered (session, epoch, sealed)
SELECT new.column1, lease.epoch, new.column2
FROM (VALUES {rows}) AS new JOIN main.lease
WHERE {fence} AND new.column1 IS NOT NULL
ON CONFLICT (session) DO UPDATE SET epoch = excluded.epoch, sealed = excluded.sealed
"""

_ANSWERED = """
DELETE FROM main.unanswered WHERE session IN (VALUES {rows}) AND {fence}
"""

_EMPTY = """
DELETE FROM main.sessions WHERE ref IN (VALUES {rows}) AND {fence} AND NOT EXISTS (
    SELECT 1 FROM main.messages WHERE session = sessions.ref)
"""

_PRUNED = """
UPDATE main.sessions SET pruned = new.column4
FROM (VALUES {rows}) AS new
WHERE sessions.ref = new.column1 AND sessions.pruned IS new.column3
    AND min(sessions.cursor, sessions.derived) - 2 >= new.column2 AND {fence}
"""

_PRUNE = """
DELETE FROM main.messages WHERE id IN (
    SELECT messages.id FROM (VALUES {rows}) AS new
    JOIN main.sessions ON sessions.ref = new.column1 AND sessions.pruned = new.column4
    JOIN main.messages ON messages.session = new.column1 AND messages.seq <= new.column2
) AND {fence}
"""

_SNAPSHOTS = """
UPDATE main.sessions SET cursor = new.column2, snapshot = new.column3, version = new.column4 + 1
FROM (VALUES {rows}) AS new
WHERE sessions.ref = new.column1 AND sessions.version = new.column4
    AND sessions.cursor <= new.column2 AND {fence}
"""

_ADOPTED = """
UPDATE main.sessions SET customer = new.column3, wrapped = new.column2
FROM (VALUES {rows}) AS new
WHERE sessions.ref = new.column1 AND {fence}
"""

_CUSTOMER_SNAPSHOTS = """
UPDATE main.customers SET snapshot = new.column2, version = new.column3 + 1
FROM (VALUES {rows}) AS new
WHERE customers.ref = new.column1 AND customers.version = new.column3 AND {fence}
"""

_DERIVED = """
UPDATE main.sessions SET derived = min(new.column3, {newest})
FROM (VALUES {rows}) AS new
WHERE sessions.ref = new.column2 AND sessions.customer = new.column1
    AND sessions.derived < min(new.column3, {newest}) AND {fence}
"""

_NEWEST = "coalesce((SELECT max(seq) FROM main.messages WHERE session = sessions.ref), 0)"

_SAVED = """
SELECT stored.ref FROM (VALUES {rows}) AS new
JOIN main.{table} AS stored ON stored.ref = new.column1 AND stored.snapshot = new.column2
"""


def turns(writes: Sequence[WriteTurn], epoch: int) -> Statement:
    """Insert turns, two rows each."""
    values: list[Value] = []
    for write in writes:
        visitor, agent = write.visitor, write.agent
        values += (write.session, visitor.seq, visitor.at, visitor.sealed)
        values += (agent.at, agent.sealed, visitor.delivery)
    return _over(_TURNS, 7, len(writes), values, epoch)


def sessions(rows: Sequence[SessionRow], epoch: int) -> Statement:
    """Insert sessions."""
    values: list[Value] = []
    for row in rows:
        values += (row.ref, row.hash, row.customer, row.name)
        values += (row.wrapped, row.cursor, row.snapshot, row.version, row.derived)
    return _over(_SESSIONS, 9, len(rows), values, epoch)


def customers(rows: Sequence[CustomerRow], epoch: int) -> Statement:
    """Insert those of these customers that are not there yet."""
    values: list[Value] = []
    for row in rows:
        values += (row.ref, row.hash, row.name, row.snapshot, row.version)
    return _over(_CUSTOMERS, 5, len(rows), values, epoch)


def keys(rows: Sequence[CustomerRow], epoch: int, *, schema: str) -> Statement:
    """Insert the keys of those of these customers that are not there yet.

    A key without its customer was left by a commit that failed or by an older
    copy of the data, and nothing here is sealed with it: the new one replaces it.
    """
    values: list[Value] = []
    for row in rows:
        values += (row.hash, row.key_id, row.wrapped)
    return _over(_KEYS, 3, len(rows), values, epoch, schema=schema)


def unanswered(writes: Sequence[WriteUnanswered], epoch: int) -> Statement:
    """Keep what visitors said; each session once."""
    values: list[Value] = [value for write in writes for value in (write.session, write.sealed)]
    return _over(_UNANSWERED, 2, len(writes), values, epoch)


def answered(sessions: Sequence[int], epoch: int) -> Statement:
    """Take away what the visitors of these sessions said."""
    return _over(_ANSWERED, 1, len(sessions), list(sessions), epoch)


def empty(sessions: Sequence[int], epoch: int) -> Statement:
    """Delete those of these sessions that have no message."""
    return _over(_EMPTY, 1, len(sessions), list(sessions), epoch)


def pruned(cuts: Sequence[Prune], epoch: int) -> Statement:
    """Move the marks of pruning whose stored ones are still those seen; each session once."""
    return _over(_PRUNED, 4, len(cuts), _cut(cuts), epoch)


def prune(cuts: Sequence[Prune], epoch: int) -> Statement:
    """Delete the messages of the sessions whose mark was moved."""
    return _over(_PRUNE, 4, len(cuts), _cut(cuts), epoch)


def _cut(cuts: Sequence[Prune]) -> list[Value]:
    return [value for cut in cuts for value in (cut.session, cut.through, cut.seen, cut.mark)]


def snapshots(writes: Sequence[WriteSession], epoch: int) -> Statement:
    """Replace the snapshots whose stored version is still the one seen; each session once."""
    values: list[Value] = []
    for write in writes:
        values += (write.session, write.cursor, write.snapshot, write.seen)
    return _over(_SNAPSHOTS, 4, len(writes), values, epoch)


def customer_snapshots(writes: Sequence[WriteCustomer], epoch: int) -> Statement:
    """Replace the snapshots whose stored version is still the one seen; each customer once."""
    values: list[Value] = []
    for write in writes:
        values += (write.customer, write.snapshot, write.seen)
    return _over(_CUSTOMER_SNAPSHOTS, 3, len(writes), values, epoch)


def adopted(rows: Sequence[tuple[int, bytes]], customer: int, epoch: int) -> Statement:
    """Give sessions, each with its newly wrapped key, to a customer."""
    values: list[Value] = [value for row in rows for value in (*row, customer)]
    return _over(_ADOPTED, 3, len(rows), values, epoch)


def derived(marks: Sequence[tuple[int, int, int]], epoch: int) -> Statement:
    """Move how far facts have been derived: customer, session and sequence number of each.

    Forward only, as far as there are messages, and for a customer's own
    sessions; each pair of customer and session once.
    """
    values: list[Value] = [value for mark in marks for value in mark]
    return _over(_DERIVED, 3, len(marks), values, epoch)


def saved(snapshots: Sequence[tuple[int, bytes]], *, table: str) -> Statement:
    """Select those of these rows whose stored snapshot is the one given, to the byte.

    No two snapshots share their bytes, since each is sealed under a fresh nonce.
    """
    values: list[Value] = [value for snapshot in snapshots for value in snapshot]
    return _over(_SAVED, 2, len(snapshots), values, None, table=table)


def _over(
    template: str,
    columns: int,
    count: int,
    values: list[Value],
    epoch: int | None,
    *,
    schema: str = "main",
    table: str = "",
) -> Statement:
    rows = 1 << (count - 1).bit_length()
    values += [None] * (columns * (rows - count))
    if epoch is not None:
        values.append(epoch)
    return _text(template, columns, rows, schema, table), values


@cache
def _text(template: str, columns: int, rows: int, schema: str, table: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return template.format(
        rows=", ".join([row] * rows), schema=schema, table=table, fence=_FENCE, newest=_NEWEST
    )
