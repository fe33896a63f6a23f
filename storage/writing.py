"""A batch into SQLite: one transaction, few statements, and only the offender left out.

A batch of turns is one statement that is its own transaction. With new
sessions, customers or snapshots it is a few statements between BEGIN IMMEDIATE
and COMMIT: a deferred transaction would fail at once, whatever the timeout, if
another wrote between its first read and its first write.

If a constraint refuses one write, the batch is tried again in halves, each
within a savepoint, down to the offender: with one among a thousand that is some
twenty attempts, where write by write it would be a thousand.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias, TypeVar

import aiosqlite

from . import statements
from .batch import Batch, new_customers
from .connection import failure
from .errors import Fenced
from .rows import (
    CustomerRow,
    Known,
    Outcome,
    WriteCustomer,
    WriteSession,
    WriteTurn,
    WriteUnanswered,
)

T = TypeVar("T")
Refusable: TypeAlias = WriteTurn | WriteUnanswered
"""A write that a constraint can refuse."""


async def commit(
    connection: aiosqlite.Connection, batch: Batch, *, epoch: int, keys_apart: bool
) -> list[Outcome]:
    """Make a batch durable; an outcome for each write, in order.

    Whatever happens, no transaction stays open. Raises `Fenced`, `StoreFailed`.
    """
    writing = Writing(connection, epoch, keys_apart=keys_apart)
    try:
        try:
            return await writing.at_once(batch)
        except sqlite3.IntegrityError:
            return await writing.in_halves(batch)
    except sqlite3.Error as error:
        raise failure(error) from error


@contextlib.asynccontextmanager
async def transaction(connection: aiosqlite.Connection) -> AsyncIterator[aiosqlite.Connection]:
    """Commit what is written within, or undo it on any error or cancellation.

    Raises `StoreFailed` if the commit itself fails; `sqlite3.Error` before it.
    """
    try:
        await connection.execute_fetchall("BEGIN IMMEDIATE")
        yield connection
        try:
            await connection.execute_fetchall("COMMIT")
        except sqlite3.Error as error:
            raise failure(error, committing=True) from error
    except BaseException:
        # The thread works in order, so this comes after whatever was handed to
        # it, be it a BEGIN that nobody waited for; with nothing open it fails.
        with contextlib.suppress(sqlite3.Error):
            await connection.execute_fetchall("ROLLBACK")
        raise


async def check_epoch(connection: aiosqlite.Connection, epoch: int) -> None:
    """Raise `Fenced` unless the lease still has this epoch; for the open transaction."""
    [(found,)] = await connection.execute_fetchall("SELECT epoch FROM main.lease")
    if found != epoch:
        raise Fenced


class Writing:
    """The writes of one owner over the connection that writes."""

    def __init__(self, connection: aiosqlite.Connection, epoch: int, *, keys_apart: bool) -> None:
        self._connection = connection
        self._epoch = epoch
        self._keys_apart = keys_apart

    async def at_once(self, batch: Batch) -> list[Outcome]:
        """Commit a batch with every turn of it, or raise `sqlite3.IntegrityError`."""
        snapshots: list[Outcome] = []
        customers: list[Outcome] = []
        await self._keys_first([*batch.turns, *batch.unanswered])
        if batch.plain and len(batch.turns) <= statements.ROWS_AT_MOST:
            try:
                await self._insert(batch.turns)
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise failure(error, committing=True) from error
        else:
            async with transaction(self._connection):
                await self._insert([*batch.turns, *batch.unanswered])
                snapshots = await self._save(batch.snapshots)
                customers = await self._save_customers(batch.customers)
        turns: list[Outcome] = ["written"] * len(batch.turns)
        unanswered: list[Outcome] = ["written"] * len(batch.unanswered)
        return batch.outcomes(turns, unanswered, snapshots, customers)

    async def in_halves(self, batch: Batch) -> list[Outcome]:
        """Commit those writes of a batch that can be, and say of each other one why not."""
        writes: list[Refusable] = [*batch.turns, *batch.unanswered]
        if self._keys_apart:
            # Only a trial tells whose customers will be there, and so whose keys
            # must be durable first: a refused turn's key must not stand for another's.
            tried = await self._tried(writes)
            await self._keys_first(
                [write for write, told in zip(writes, tried, strict=True) if told == "written"]
            )
        async with transaction(self._connection):
            told = await self._sift(writes)
            snapshots = await self._save(batch.snapshots)
            customers = await self._save_customers(batch.customers)
        turns = len(batch.turns)
        return batch.outcomes(told[:turns], told[turns:], snapshots, customers)

    async def _keys_first(self, writes: Sequence[Refusable]) -> None:
        """Make keys that rest apart durable before anything that is sealed with them."""
        customers = new_customers(writes) if self._keys_apart else []
        if customers:
            async with transaction(self._connection):
                for part in parts(customers):
                    await self._run(statements.keys(part, self._epoch, schema="keys"))

    async def _tried(self, writes: Sequence[Refusable]) -> list[Outcome]:
        """Return what would become of these writes."""
        await self._connection.execute_fetchall("BEGIN IMMEDIATE")
        try:
            return await self._sift(writes)
        finally:
            with contextlib.suppress(sqlite3.Error):
                await self._connection.execute_fetchall("ROLLBACK")

    async def _insert(self, writes: Sequence[Refusable]) -> None:
        """Insert writes with the customers and sessions that they bring; all, or raise."""
        await self._insert_customers(new_customers(writes))
        new = [write.new_session for write in writes if write.new_session is not None]
        for sessions in parts(new):
            await self._run(statements.sessions(sessions, self._epoch))
        for part in parts([write for write in writes if isinstance(write, WriteTurn)]):
            # Nothing but the fence can keep a turn out without an error. What
            # it answers is one row more that has changed.
            if await self._run(statements.turns(part, self._epoch)) < 2 * len(part):
                raise Fenced
        await self._keep([write for write in writes if isinstance(write, WriteUnanswered)])

    async def _keep(self, writes: Sequence[WriteUnanswered]) -> None:
        """Keep what visitors said, or take it away."""
        for part in parts([write for write in writes if write.sealed is not None]):
            if await self._run(statements.unanswered(part, self._epoch)) < len(part):
                raise Fenced
        for part in parts([write for write in writes if write.sealed is None]):
            await check_epoch(self._connection, self._epoch)
            await self._run(statements.answered([write.session for write in part], self._epoch))
            if passing := [write.session for write in part if not write.lasting]:
                await self._run(statements.empty(passing, self._epoch))

    async def _insert_customers(self, rows: Sequence[CustomerRow]) -> None:
        """Insert those customers who are not there, with their keys where these rest inside."""
        for customers in parts(rows):
            if not self._keys_apart:
                await self._run(statements.keys(customers, self._epoch, schema="main"))
            await self._run(statements.customers(customers, self._epoch))

    async def _sift(self, writes: Sequence[Refusable]) -> list[Outcome]:
        if not writes:
            return []
        await self._connection.execute_fetchall("SAVEPOINT sift")
        try:
            await self._insert(writes)
        except sqlite3.IntegrityError:
            await self._connection.execute_fetchall("ROLLBACK TO sift")
            await self._connection.execute_fetchall("RELEASE sift")
        else:
            await self._connection.execute_fetchall("RELEASE sift")
            return ["written"] * len(writes)
        if len(writes) == 1:
            return [await self._refusal(writes[0])]
        half = len(writes) // 2
        return [*await self._sift(writes[:half]), *await self._sift(writes[half:])]

    async def _refusal(self, write: Refusable) -> Outcome:
        delivery = write.visitor.delivery if isinstance(write, WriteTurn) else None
        found = await self._connection.execute_fetchall(
            "SELECT seq FROM main.messages WHERE session = ? AND delivery = ?",
            (write.session, delivery),
        )
        for (seq,) in found:
            await self._run(statements.answered([write.session], self._epoch))
            return Known(seq)
        return "stale"

    async def _save(self, snapshots: Sequence[WriteSession]) -> list[Outcome]:
        """Replace the sessions' snapshots that are not stale, and say which were."""
        outcomes: list[Outcome] = []
        for part in _waves(snapshots, lambda write: write.session):
            changed = await self._run(statements.snapshots(part, self._epoch))
            given = [(write.session, write.snapshot) for write in part]
            outcomes += await self._saved(changed, given, "sessions")
        return outcomes

    async def _save_customers(self, snapshots: Sequence[WriteCustomer]) -> list[Outcome]:
        """Replace the customers' snapshots that are not stale, and move their marks."""
        outcomes: list[Outcome] = []
        for part in _waves(snapshots, lambda write: write.customer):
            changed = await self._run(statements.customer_snapshots(part, self._epoch))
            given = [(write.customer, write.snapshot) for write in part]
            outcomes += await self._saved(changed, given, "customers")
        furthest: dict[tuple[int, int], int] = {}
        for write, outcome in zip(snapshots, outcomes, strict=True):
            for session, seq in write.derived if outcome == "written" else ():
                place = write.customer, session
                furthest[place] = max(seq, furthest.get(place, 0))
        for marks in parts([(*place, seq) for place, seq in furthest.items()]):
            await self._run(statements.derived(marks, self._epoch))
        return outcomes

    async def _saved(
        self, changed: int, given: Sequence[tuple[int, bytes]], table: str
    ) -> list[Outcome]:
        if changed == len(given):
            return ["written"] * len(given)
        await check_epoch(self._connection, self._epoch)
        found = await self._connection.execute_fetchall(*statements.saved(given, table=table))
        refs = {ref for (ref,) in found}
        return ["written" if ref in refs else "stale" for ref, _ in given]

    async def _run(self, statement: statements.Statement) -> int:
        """Run a statement and return how many rows it changed."""
        before = self._connection.total_changes
        await self._connection.execute_fetchall(*statement)
        return self._connection.total_changes - before


def parts(rows: Sequence[T]) -> list[Sequence[T]]:
    """Cut a list into what one statement takes."""
    most = statements.ROWS_AT_MOST
    return [rows[start : start + most] for start in range(0, len(rows), most)]


def _waves(writes: Sequence[T], ref_of: Callable[[T], int]) -> list[list[T]]:
    """Cut a list where it is full or a row comes again: one statement sets a row once."""
    waves: list[list[T]] = []
    refs: set[int] = set()
    for write in writes:
        ref = ref_of(write)
        if not waves or ref in refs or len(refs) == statements.ROWS_AT_MOST:
            waves.append([])
            refs.clear()
        waves[-1].append(write)
        refs.add(ref)
    return waves
