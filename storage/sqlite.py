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
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import aiosqlite

from . import schema, writing
from .batch import Batch, check_adoption
from .connection import (
    beside,
    connect,
    disconnect,
    failure,
    identity,
    prepare,
    reading_uri,
    writing_uri,
)
from .erasing import LOG_IS_BACK, SCRUB, Eraser
from .errors import Fenced, StoreFailed, StoreOwned
from .lease import Lease, LockState, host_of, this_owner
from .reading import Reading
from .rows import (
    Adoption,
    Erased,
    Opened,
    Outcome,
    Prune,
    Root,
    Write,
    WriteCustomer,
)
from .scrubbing import Scrubber

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
        if not Path(path).name:
            raise ValueError(f"{path} is no file's name")
        super().__init__(Path(path), None if keys is None else Path(keys))
        if self._path == self._keys:
            raise ValueError("the keys need a file of their own, not the database's")
        self._durability = durability
        self._writer: aiosqlite.Connection | None = None
        self._file: tuple[int, ...] | None = None
        self._scrubbers: dict[str, Scrubber] = {}
        self._writing = asyncio.Lock()
        self._erasing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

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
        Erasures that were cut off are finished first.

        Args:
            root: what `look` returned, or a new one if that was None.
            owner: ``host/process id``, as `this_owner` returns it.
            lease_s: for how many seconds a sign of life counts.

        Raises:
            StoreOwned, SchemaTooNew, StoreFailed: as for `look`; the latter also
                if the database was made with another root meanwhile, or if an
                erasure that was under way can't be finished yet.
        """
        if sqlite3.sqlite_version_info < schema.MINIMUM_SQLITE:
            needed = ".".join(map(str, schema.MINIMUM_SQLITE))
            raise StoreFailed(f"SQLite {needed} is needed, this is {sqlite3.sqlite_version}")
        found = await self._look(host_of(owner))
        await self._shut()
        self._writing, self._erasing = asyncio.Lock(), asyncio.Lock()
        self._prepare_loads(schema.VERSION)
        try:
            lock = await self._take_lock()
            lease = _NO_LEASE if found is None else found.lease
            _refuse(lease, lock, owner)
            self._writer = await connect(writing_uri(self._path))
            await prepare(self._writer, self._keys, full=self._durability == "full")
            self._file = identity(*self._paths)
            await self._writer.create_function(SCRUB, 2, self._scrub)
            opened = await self._take(root, owner, lease_s, lock)
            self._reader = await self._connect_reader(reading_uri)
        except BaseException as error:
            await self._shut()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise failure(error) from error
            raise
        return opened

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

    async def adopt(self, adoption: Adoption) -> None:
        """Give sessions to a customer, in one transaction; see `Store.adopt`.

        Raises `ValueError`, `Fenced`, `StoreFailed`.
        """
        check_adoption(adoption)
        await self._erase(lambda eraser: eraser.adopt(adoption))

    async def undo(self, session: int, seq: int, *, snapshot: WriteCustomer | None = None) -> bool:
        """Remove a session's newest turn, if it is this one and not folded; see `Store.undo`.

        Its bytes leave the log at the next checkpoint. Raises `Fenced`, `StoreFailed`.
        """
        return await self._erase(lambda eraser: eraser.undo(session, seq, snapshot=snapshot))

    async def delete_session(self, session: int) -> int:
        """Remove a session with every trace; return how many messages went.

        Raises `Fenced`; `StoreFailed` as `forget` does.
        """
        return await self._erase(lambda eraser: eraser.delete_session(session))

    async def prune(self, cuts: Sequence[Prune]) -> int:
        """Remove the oldest messages of sessions; see `Store.prune`."""
        return await self._erase(lambda eraser: eraser.prune(cuts))

    async def shrink(self) -> int:
        """Finish what `prune` began; see `Store.shrink`.

        Where a quarter of the file is free, the rest is written anew: others wait,
        about a second for each 200 MB, and the disk needs room for a second copy.
        """
        return await self._erase(lambda eraser: eraser.shrink())

    async def forget(self, customer: int) -> Erased:
        """Destroy a customer's key, and remove everything of theirs with every trace.

        Others write meanwhile, between its steps.

        Raises:
            Fenced: another process has taken over; what is left to do is its.
            StoreFailed: it was not begun, or the cause says that the erasure will
                be finished at the next open: also when somebody reads for so long
                that the log can't be emptied.
        """
        return await self._erase(lambda eraser: eraser.forget(customer))

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

    def _scrub(self, name: str, start: int) -> int:
        """Scrub a slice of a file, in the thread of the connection that writes."""
        path = self._path if name == "main" or self._keys is None else self._keys
        log = beside(path, "-wal")
        if log.exists() and log.stat().st_size:
            return LOG_IS_BACK
        if name not in self._scrubbers:
            # Not before there is something to scrub: closing it is not without cost.
            self._scrubbers[name] = Scrubber(path)
        return self._scrubbers[name].scrub(start)

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
        if found is None or found.version < schema.VERSION:
            await writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
        self._epoch = lease.epoch + 1
        await self._eraser().finish()
        [(sessions, customers)] = await writer.execute_fetchall(
            "SELECT coalesce((SELECT max(ref) FROM sessions), 0),"
            " coalesce((SELECT max(ref) FROM customers), 0)"
        )
        return Opened(self._epoch, sessions, customers)

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
        async with self._erasing, self._writing:
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
        writer, self._writer = self._writer, None
        self._epoch = 0
        try:
            await super()._shut()
        finally:
            try:
                if writer is not None:
                    await disconnect(writer)
            finally:
                while self._scrubbers:
                    self._scrubbers.popitem()[1].close()
                self._lock.release()

    async def _commit(self, batch: Batch) -> list[Outcome]:
        async with self._writing:
            return await writing.commit(
                self._owned(), batch, epoch=self._epoch, keys_apart=self._keys is not None
            )

    async def _erase(self, work: Callable[[Eraser], Coroutine[Any, Any, T]]) -> T:
        async def alone() -> T:
            async with self._erasing:
                try:
                    return await work(self._eraser())
                except sqlite3.Error as error:
                    raise failure(error) from error

        return await self._whole(alone())

    def _eraser(self) -> Eraser:
        return Eraser(self._owned(), self._epoch, self._writing, keys_apart=self._keys is not None)

    def _owned(self) -> aiosqlite.Connection:
        if self._writer is None:
            readable = self._reader is not None
            raise StoreFailed(f"the store is {'open for reading only' if readable else 'not open'}")
        if identity(*self._paths) != self._file:
            # SQLite would write on into a file that nobody will find again.
            raise StoreFailed("the database is not where it was")
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
