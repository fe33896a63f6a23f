"""The store in a SQLite file.

One connection writes, and everything that writes takes its turn at it; another
only reads, so that activations and exports wait for no commit.

What writes runs in a task of its own: whoever awaits it may be cancelled, and
the transaction still ends. That is also how SQLite behaves here without our
doing: a statement that has been handed to its thread lands, whoever waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite

from . import schema, writing
from .base import Opened, Outcome, Root, Write
from .batch import Batch
from .connection import (
    beside,
    connect,
    disconnect,
    failure,
    immutable_uri,
    reading_uri,
    writing_uri,
)
from .errors import Fenced, StoreFailed, StoreOwned
from .lease import Lease, LockFile, LockState, host_of, this_owner
from .reading import Reading

LOG_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut back to after a checkpoint."""

_LOCK_TRIES, _LOCK_PAUSE_S = 10, 0.01
"""For how long somebody who only looks, opens or closes may be in the way."""

_CLOSING_BUSY_MS = 500
"""How long the last checkpoint waits for readers; the log it leaves then is no loss."""

T = TypeVar("T")


class SqliteStore(Reading):
    """Keeps rows, snapshots, keys and the lease in a SQLite file. Makes no file until `open`.

    Args:
        path: of the database.
        keys: of a file of its own for the customers' wrapped keys, without which
            a copy of the database can't be read; None keeps them inside.
        durability: ``"full"``: what was committed survives a power loss;
            ``"normal"``: a crash of the process, while a power loss may take the
            newest commits. Keys in a file of their own are always ``"full"``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: str | os.PathLike[str] | None = None,
        durability: Literal["full", "normal"] = "full",
    ) -> None:
        if durability not in ("full", "normal"):
            raise ValueError(f"durability is 'full' or 'normal', not {durability!r}")
        super().__init__()
        self._path = Path(path)
        self._keys = None if keys is None else Path(keys)
        if self._path == self._keys:
            raise ValueError("the keys need a file of their own, not the database's")
        self._durability = durability
        self._tell_where_keys_are(apart=keys is not None)
        self._lock = LockFile(beside(self._path, "-lock"))
        self._writer: aiosqlite.Connection | None = None
        self._writing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._epoch = 0

    def __repr__(self) -> str:
        if self._writer is not None:
            return f"<SqliteStore open, epoch {self._epoch}>"
        return f"<SqliteStore {'closed' if self._reader is None else 'open, read-only'}>"

    async def look(self) -> Root | None:
        """Return the root of the database, or None if there is none, touching nothing.

        Raises:
            StoreOwned: a live process holds it.
            SchemaTooNew: it was written by a newer interturn.
            StoreFailed: the file is not ours or can't be read, or its keys file
                is not the right one.
        """
        found = await self._look(host_of(this_owner()))
        return None if found is None else found.root

    async def open(self, root: Root, *, owner: str, lease_s: float) -> Opened:
        """Take the lease, making the database with ``root`` if there is none.

        A refusal touches no file. A failure or a cancellation closes what was opened.

        Args:
            root: what `look` returned, or a new one if that was None.
            owner: ``host/process id``, as `this_owner` returns it.
            lease_s: for how many seconds a sign of life counts.

        Raises:
            StoreOwned, SchemaTooNew, StoreFailed: as for `look`; the latter also
                if the database was made with another root meanwhile.
        """
        if sqlite3.sqlite_version_info < schema.MINIMUM_SQLITE:
            needed = ".".join(map(str, schema.MINIMUM_SQLITE))
            raise StoreFailed(f"SQLite {needed} is needed, this is {sqlite3.sqlite_version}")
        found = await self._look(host_of(owner))
        await self._shut()
        self._writing = asyncio.Lock()
        try:
            lock = await self._take_lock()
            lease = _NO_LEASE if found is None else found.lease
            _refuse(lease, lock, owner)
            self._writer = await connect(writing_uri(self._path))
            await self._prepare(self._writer)
            opened = await self._take(root, owner, lease_s, lock)
            self._reader = await self._connect_reader(reading_uri)
        except BaseException as error:
            await self._shut()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise failure(error) from error
            raise
        return opened

    async def open_read_only(self) -> Root | None:
        """Open for loading only, beside whoever owns the database, without a lease.

        Works where the folder can't be written, too. Returns None, and opens
        nothing, if there is no database.

        Raises:
            SchemaTooNew: it was written by a newer interturn.
            StoreFailed: the file is not ours or can't be read, has an older schema,
                or its keys file is not the right one.
        """
        found = await schema.look(self._path, self._keys)
        if found is None:
            return None
        if found.version < schema.VERSION:
            raise StoreFailed("the database has an older schema; its owner must open it first")
        await self._shut()
        try:
            self._reader = await self._connect_reader(reading_uri)
        except sqlite3.Error:
            # Joining the log needs files beside the database. In a folder where
            # none can be made, nobody else is making any either.
            try:
                self._reader = await self._connect_reader(immutable_uri)
            except sqlite3.Error as error:
                raise failure(error) from error
        return found.root

    async def renew(self) -> None:
        """Say that the owner lives. Raises `Fenced`, `StoreFailed`."""
        await self._whole(self._renew())

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        """Make a batch durable in one transaction; an outcome for each write, in order.

        Turns are applied before snapshots. A cancelled caller doesn't stop it.

        Raises:
            ValueError: a turn is malformed. Nothing was written.
            Fenced: another process has taken over. Nothing was written.
            StoreFailed: nothing was written, unless it says ``unknown``.
        """
        batch = Batch(writes)
        return await self._whole(self._commit(batch)) if writes else []

    async def close(self) -> None:
        """Give the lease back and close. Safe to call twice, and after any failure."""
        await self._whole(self._close())

    async def _look(self, host: str) -> schema.Found | None:
        for last in (*[False] * (_LOCK_TRIES - 1), True):
            before = self._lock.look()
            try:
                found = await schema.look(self._path, self._keys)
            except StoreFailed:
                # A database that is just being made looks like many things.
                if "held" not in (before, self._lock.look()):
                    raise
                if last:
                    raise StoreOwned("another process", None) from None
                await asyncio.sleep(_LOCK_PAUSE_S)
                continue
            lock = self._lock.look()
            lease = _NO_LEASE if found is None else found.lease
            refusal = lease.refusal(lock, host=host, now=time.time())
            if refusal is None:
                return found
            if last or lease.owner is not None:
                raise refusal
            await asyncio.sleep(_LOCK_PAUSE_S)
        raise AssertionError  # pragma: no cover - the loop returns or raises

    async def _take_lock(self) -> LockState:
        for _ in range(_LOCK_TRIES):
            if (state := self._lock.take()) != "held":
                break
            await asyncio.sleep(_LOCK_PAUSE_S)
        return state

    async def _prepare(self, writer: aiosqlite.Connection) -> None:
        if self._keys is not None:
            await writer.execute_fetchall("ATTACH ? AS keys", (writing_uri(self._keys),))
        for name in ("main", "keys")[: 1 if self._keys is None else 2]:
            [(mode,)] = await writer.execute_fetchall(f"PRAGMA {name}.journal_mode = WAL")
            if mode != "wal":
                raise StoreFailed("this file system does not allow a write-ahead log")
            full = self._durability == "full" or name == "keys"
            await writer.executescript(
                f"PRAGMA {name}.synchronous = {'FULL' if full else 'NORMAL'};"
                f"PRAGMA {name}.journal_size_limit = {LOG_BYTES};"
                # What is deleted must not stay legible in a free page.
                f"PRAGMA {name}.secure_delete = ON;"
            )
        await writer.execute_fetchall("PRAGMA foreign_keys = ON")
        if sys.platform == "darwin" and self._durability == "full":  # pragma: no cover
            # There a plain fsync stops at the drive's own cache.
            await writer.executescript("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")

    async def _take(self, root: Root, owner: str, lease_s: float, lock: LockState) -> Opened:
        pair = secrets.token_bytes(16)
        if self._keys is not None:
            # A transaction over two files is not atomic with a write-ahead log, so
            # the keys come first: alone they are harmless, their absence is not.
            async with writing.transaction(self._owned()) as writer:
                if await schema.found_by(writer) is None:
                    await schema.create_keys(writer, pair)
        async with writing.transaction(self._owned()) as writer:
            # Everything is looked at again: only now can nobody else change it.
            found = await schema.found_by(writer)
            if found is None:
                await schema.create(writer, root, pair, keys_apart=self._keys is not None)
                lease = _NO_LEASE
            else:
                pair, lease = found.pair, found.lease
                if found.root != root:
                    raise StoreFailed("another process made the database with another root")
                _refuse(lease, lock, owner)
                await schema.migrate(writer, found.version)
            if self._keys is not None:
                await schema.check_pair(writer, pair)
            now = time.time()
            await writer.execute_fetchall(
                "UPDATE lease SET epoch = ?, owner = ?, since = ?, renewed = ?,"
                " lease_s = ?, locked = ?",
                (lease.epoch + 1, owner, now, now, lease_s, self._lock.held),
            )
            [(sessions, customers)] = await writer.execute_fetchall(
                "SELECT coalesce((SELECT max(ref) FROM sessions), 0),"
                " coalesce((SELECT max(ref) FROM customers), 0)"
            )
        if found is None or found.version < schema.VERSION:
            await writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
        self._epoch = lease.epoch + 1
        return Opened(self._epoch, sessions, customers)

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

    async def _renew(self) -> None:
        async with self._writing:
            writer = self._owned()
            # Whoever took over by the epoch alone gets the lock as soon as it is free.
            with contextlib.suppress(OSError):
                self._lock.take()
            before = writer.total_changes
            try:
                await writer.execute_fetchall(
                    "UPDATE lease SET renewed = ?, locked = ? WHERE epoch = ?",
                    (time.time(), self._lock.held, self._epoch),
                )
            except sqlite3.Error as error:
                raise failure(error, committing=True) from error
            if writer.total_changes == before:
                raise Fenced

    async def _close(self) -> None:
        async with self._writing:
            try:
                if self._writer is not None and self._epoch:
                    with contextlib.suppress(sqlite3.Error, ValueError):
                        await self._give_back(self._writer)
            finally:
                await self._shut()

    async def _give_back(self, writer: aiosqlite.Connection) -> None:
        before = writer.total_changes
        await writer.execute_fetchall(f"PRAGMA busy_timeout = {_CLOSING_BUSY_MS}")
        await writer.execute_fetchall(
            "UPDATE lease SET owner = NULL, locked = 0 WHERE epoch = ?", (self._epoch,)
        )
        if writer.total_changes > before:
            # A log that is left would be found by whoever copies the file alone.
            # Fenced, it is the new owner's log, and theirs to checkpoint.
            await writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _shut(self) -> None:
        reader, self._reader = self._reader, None
        writer, self._writer = self._writer, None
        self._epoch = 0
        try:
            if reader is not None:
                await disconnect(reader)
        finally:
            try:
                if writer is not None:
                    await disconnect(writer)
            finally:
                self._lock.release()

    async def _commit(self, batch: Batch) -> list[Outcome]:
        async with self._writing:
            return await writing.commit(
                self._owned(), batch, epoch=self._epoch, keys_apart=self._keys is not None
            )

    def _owned(self) -> aiosqlite.Connection:
        if self._writer is None:
            readable = self._reader is not None
            raise StoreFailed(f"the store is {'open for reading only' if readable else 'not open'}")
        return self._writer

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, also when the caller is cancelled meanwhile."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)


_NO_LEASE = Lease(0, None, 0.0, 0.0, 0.0, locked=False)


def _refuse(lease: Lease, lock: LockState, owner: str) -> None:
    refusal = lease.refusal(lock, host=host_of(owner), now=time.time())
    if refusal is not None:
        raise refusal
