"""Connections to SQLite files: opened whole, closed on every path.

An aiosqlite connection is a thread. Two of its ways need care here. The thread
is no daemon, so a process that never closes would never exit, and `atexit`
comes too late, since the interpreter joins such threads first; so one daemon
thread for the whole process waits for the main thread to end and then stops
whatever is still open. And a cancelled ``connect`` would leave its SQLite
connection to the garbage collector; so connecting runs to its end, and is
undone afterwards.

Every statement here goes through `execute_fetchall`, whose cursor lives and
dies within one crossing to the thread: a cursor that lingers would keep its
read transaction open, and closing it would cost a second crossing. How many
rows a statement changed is then the difference of `total_changes`, which reads
a counter and crosses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiosqlite

from .errors import StoreFailed

LOG_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut back to after a checkpoint."""

BUSY_S = 5.0
"""How long a statement waits for a lock. Only a takeover or a foreign tool can hold one."""


def writing_uri(path: Path) -> str:
    """Return the address under which SQLite opens a file for writing, making it if need be."""
    return f"{path.absolute().as_uri()}?mode=rwc"


def reading_uri(path: Path) -> str:
    """Return the address under which SQLite reads a file beside others that may write it."""
    return f"{path.absolute().as_uri()}?mode=ro"


def immutable_uri(path: Path) -> str:
    """Return the address under which SQLite reads a file that nobody has open."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def untouching_uri(path: Path) -> str:
    """Return the address under which SQLite reads a file and changes not one byte beside it.

    A reader of a write-ahead log usually joins in the shared index, or makes it
    anew after a crash. ``readonly_shm`` forbids that: it uses the index of a
    live owner as it finds it, and after a crash builds one of its own in
    memory. Where the log has no index, nobody is alive, and the main file alone
    is read: what is looked for there (whose it is, its version, its root) is
    always checkpointed when it changes.
    """
    log, index = beside(path, "-wal"), beside(path, "-shm")
    if log.exists() and index.exists():
        return f"{path.absolute().as_uri()}?mode=ro&readonly_shm=1"
    return immutable_uri(path)


def at_rest(*paths: Path) -> tuple[int, ...] | None:
    """Return what changes when one of these files does, or None if one has a log.

    A log is there from the first that an owner reads until its last connection
    closes; what it changed in between shows in the file's time.
    """
    told: list[int] = []
    try:
        for path in paths:
            if beside(path, "-wal").exists():
                return None
            status = path.stat()
            told += (status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return None
    return tuple(told)


def identity(*paths: Path) -> tuple[int, ...] | None:
    """Return what tells these very files from any others, or None where one is gone."""
    told: list[int] = []
    try:
        for path in paths:
            status = path.stat()
            told += (status.st_dev, status.st_ino)
    except OSError:
        return None
    return tuple(told)


def beside(path: Path, suffix: str) -> Path:
    """Return the file of the same name with a suffix."""
    return path.with_name(path.name + suffix)


def failure(error: Exception, *, committing: bool = False) -> StoreFailed:
    """Return an error of SQLite or the system as `StoreFailed`, in its own terms.

    With ``committing``, an I/O error leaves the outcome unknown: the frames may
    have reached the log, the commit mark too, and only the sync failed. A full
    disk does not: it stops before the mark is written. Nor does a lock, a
    read-only file or a refused constraint.
    """
    if isinstance(error, OSError):
        return StoreFailed(error.strerror or type(error).__name__)
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    unknown = committing and name.startswith("SQLITE_IOERR")
    return StoreFailed(f"{name}: {error}", unknown=unknown)


class _Connection(sqlite3.Connection):
    """A connection to a file that may be damaged, and then says so in SQLite's own terms."""

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError:
            # SQLite's message quotes the damaged schema, and Python can't read it. Raised
            # outside: nothing that has seen the bytes may hang from the error.
            pass
        raise sqlite3.DatabaseError("the database is damaged")


async def connect(uri: str) -> aiosqlite.Connection:
    """Return an open connection in autocommit mode, watched until it is closed.

    A cancellation leaves nothing behind: the connection is stopped as soon as
    it is there. Raises `sqlite3.Error`.
    """
    _watch_main_thread()
    connection = aiosqlite.connect(
        uri, uri=True, isolation_level=None, timeout=BUSY_S, factory=_Connection
    )
    opening = asyncio.ensure_future(_opened(connection))
    try:
        await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_stop)
        raise
    _open.add(connection)
    return connection


async def prepare(writer: aiosqlite.Connection, keys: Path | None, *, full: bool) -> None:
    """Make a connection ready to write, with the keys file, if there is one, attached.

    ``full`` says that what was committed has to survive a power loss. Raises
    `sqlite3.Error`; `StoreFailed` where there can be no write-ahead log.
    """
    if keys is not None:
        await writer.execute_fetchall("ATTACH ? AS keys", (writing_uri(keys),))
    for name in ("main", "keys")[: 1 if keys is None else 2]:
        [(mode,)] = await writer.execute_fetchall(f"PRAGMA {name}.journal_mode = WAL")
        if mode != "wal":
            raise StoreFailed("this file system does not allow a write-ahead log")
        await writer.executescript(
            f"PRAGMA {name}.synchronous = {'FULL' if full or name == 'keys' else 'NORMAL'};"
            f"PRAGMA {name}.journal_size_limit = {LOG_BYTES};"
            # What is deleted must not stay legible in a free page.
            f"PRAGMA {name}.secure_delete = ON;"
        )
    await writer.execute_fetchall("PRAGMA foreign_keys = ON")
    if sys.platform == "darwin" and full:  # pragma: no cover - macOS
        # There a plain fsync stops at the drive's own cache.
        await writer.executescript("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")


@contextlib.asynccontextmanager
async def connected(uri: str) -> AsyncIterator[aiosqlite.Connection]:
    """Give a connection, and close it on every path. Raises `sqlite3.Error`."""
    connection = await connect(uri)
    try:
        yield connection
    finally:
        await disconnect(connection)


async def disconnect(connection: aiosqlite.Connection) -> None:
    """Close a connection and wait for its thread's last word, whatever state it is in."""
    _open.discard(connection)
    try:
        await connection.close()
    except asyncio.CancelledError:
        connection.stop()
        raise
    except (sqlite3.Error, ValueError):
        connection.stop()


async def _opened(connection: aiosqlite.Connection) -> aiosqlite.Connection:
    return await connection


def _stop(opening: asyncio.Future[aiosqlite.Connection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().stop()


_open: weakref.WeakSet[aiosqlite.Connection] = weakref.WeakSet()
_watching = threading.Lock()


def _watch_main_thread() -> None:
    # The lock is taken once and never given back: it says that the watch is on.
    if _watching.acquire(blocking=False):
        threading.Thread(target=_stop_what_is_left, name="interturn-exit", daemon=True).start()


def _stop_what_is_left() -> None:
    threading.main_thread().join()
    for connection in list(_open):
        warnings.warn(
            "a store was never closed: its lease stays until it expires or is taken over",
            ResourceWarning,
            stacklevel=1,
        )
        connection.stop()
