"""Floors: plain code that does the same work as a turn, with nothing around it.

A floor keeps the newest twelve messages of each session in memory, counts the tokens of
each new text, seals both with the session's own AES-256-GCM key under a random nonce,
and commits whatever came while the last commit was on its way in one transaction. It
has no turns that wait, no summary, no facts, no owner, no recovery and no limits: it is
a limit of the hardware, not a product.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import aiosqlite
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

WINDOW: Final = 12
BATCH: Final = 512
"""Turns that one transaction takes at most."""

_SCHEMA: Final = """
CREATE TABLE message (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL,
    role INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX message_place ON message (session, seq);
"""
_INSERT: Final = "INSERT INTO message (session, seq, role, at, body) VALUES (?, ?, ?, ?, ?)"
_MOST_ROWS: Final = 128  # rows of one statement

Rows = tuple[tuple[int, int, int, int, bytes], ...]
Waiting = tuple[Rows, asyncio.Future[None]]
Kind = Literal["executemany", "multi-row", "aiosqlite"]


class FloorSession:
    """One conversation: its window and its key."""

    __slots__ = ("cipher", "number", "seq", "window")

    def __init__(self, number: int) -> None:
        self.number = number
        self.seq = 0
        self.window: deque[tuple[str, str]] = deque(maxlen=WINDOW)
        self.cipher = AESGCM(os.urandom(32))


class Floor:
    """Sessions over one writer. Made within a running loop.

    Args:
        path: a database that doesn't exist yet.
        kind: how a transaction is written: ``executemany`` or one INSERT of many rows by
            a thread of its own, or the latter through aiosqlite.
        durability: ``full`` or ``normal``.
        count: counts the tokens of a text.
    """

    def __init__(
        self, path: Path, kind: Kind, durability: str, count: Callable[[str], int]
    ) -> None:
        self._count = count
        self._path = path
        self._durability = durability
        self._kind = kind
        self._writer: _Thread | _Aiosqlite | None = None

    async def open(self) -> None:
        """Make the database and start the writer."""
        loop = asyncio.get_running_loop()
        if self._kind == "aiosqlite":
            self._writer = _Aiosqlite(self._path, self._durability)
            await self._writer.open()
        else:
            self._writer = _Thread(self._path, self._durability, self._kind, loop)

    async def close(self) -> None:
        """Write what waits, and end."""
        if self._writer is not None:
            await self._writer.close()

    def assemble(self, session: FloorSession, text: str, head: str) -> list[dict[str, str]]:
        """Copy what a model needs: a system message, the window, the new text."""
        messages = [{"role": "system", "content": head}]
        messages += [{"role": role, "content": said} for role, said in session.window]
        messages.append({"role": "user", "content": text})
        return messages

    async def turn(self, session: FloorSession, text: str, reply: str) -> None:
        """Count, seal and commit both messages of a turn."""
        assert self._writer is not None
        rows: list[tuple[int, int, int, int, bytes]] = []
        for role, said in ((0, text), (1, reply)):
            self._count(said)
            session.seq += 1
            nonce = os.urandom(12)
            place = b"%d/%d" % (session.number, session.seq)
            sealed = nonce + session.cipher.encrypt(nonce, said.encode(), place)
            rows.append((session.number, session.seq, role, 0, sealed))
        await self._writer.write(tuple(rows))
        session.window.append(("user", text))
        session.window.append(("assistant", reply))


def _insert(rows: list[Any]) -> tuple[str, list[Any]]:
    values = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
    sql = f"INSERT INTO message (session, seq, role, at, body) VALUES {values}"  # noqa: S608
    return sql, [value for row in rows for value in row]


def _chunks(batch: list[Waiting]) -> list[tuple[str, list[Any]]]:
    rows = [row for rows, _ in batch for row in rows]
    return [_insert(rows[at : at + _MOST_ROWS]) for at in range(0, len(rows), _MOST_ROWS)]


class _Thread:
    """A thread that owns the connection, and commits all that waits at once."""

    def __init__(
        self, path: Path, durability: str, kind: Kind, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._loop = loop
        self._kind = kind
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {durability}")
        self._connection.executescript(_SCHEMA)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def write(self, rows: Rows) -> asyncio.Future[None]:
        done = self._loop.create_future()
        self._queue.put((rows, done))
        return done

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        more = True
        while more and (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < BATCH and not self._queue.empty():
                item = self._queue.get()
                if item is None:
                    more = False
                    break
                batch.append(item)
            self._connection.execute("BEGIN IMMEDIATE")
            if self._kind == "executemany":
                self._connection.executemany(_INSERT, [row for rows, _ in batch for row in rows])
            else:
                for sql, values in _chunks(batch):
                    self._connection.execute(sql, values)
            self._connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_done, batch)
        self._connection.close()


class _Aiosqlite:
    """The same through aiosqlite, a task instead of a thread."""

    def __init__(self, path: Path, durability: str) -> None:
        self._path = path
        self._durability = durability
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._ending = False

    async def open(self) -> None:
        self._connection = await aiosqlite.connect(self._path, isolation_level=None)
        await self._connection.execute("PRAGMA journal_mode = WAL")
        await self._connection.execute(f"PRAGMA synchronous = {self._durability}")
        await self._connection.executescript(_SCHEMA)
        self._task = asyncio.create_task(self._run())

    def write(self, rows: Rows) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, done))
        self._wake.set()
        return done

    async def close(self) -> None:
        self._ending = True
        self._wake.set()
        await self._task
        await self._connection.close()

    async def _run(self) -> None:
        while self._waiting or not self._ending:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._waiting[:BATCH]:
                del self._waiting[:BATCH]
                await self._connection.execute("BEGIN IMMEDIATE")
                for sql, values in _chunks(batch):
                    await self._connection.execute(sql, values)
                await self._connection.execute("COMMIT")
                _done(batch)


def _done(batch: list[Waiting]) -> None:
    for _, future in batch:
        if not future.done():
            future.set_result(None)
