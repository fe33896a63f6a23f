"""What the storage tests share: keys, rows and the two backends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from interturn.storage import (
    CustomerRow,
    Faulty,
    Hasher,
    Keyring,
    MemoryStore,
    Root,
    Row,
    SessionRow,
    SqliteStore,
    Store,
    WriteCustomer,
    WriteSession,
    WriteTurn,
    WriteUnanswered,
    new_key,
    root_place,
    this_owner,
)


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio, which aiosqlite needs."""
    return "asyncio"


@dataclass
class Scribe:
    """Writes down turns as a runtime would, with random bytes for what is sealed."""

    hasher: Hasher = field(default_factory=lambda: Hasher(new_key()))
    root: Root = field(init=False)

    def __post_init__(self) -> None:
        self.root = Root(*Keyring.generate().wrap(new_key(), root_place()))

    def customer(self, ref: int) -> CustomerRow:
        """Return a new customer."""
        return CustomerRow(
            ref, self.hasher.customer(f"c{ref}"), os.urandom(40), "a master key", os.urandom(62)
        )

    def session(self, ref: int, customer: int) -> SessionRow:
        """Return a new session of a customer."""
        return SessionRow(
            ref, self.hasher.session(f"s{ref}"), customer, os.urandom(40), os.urandom(62)
        )

    def turn(self, session: int, seq: int, delivery: str | None = None) -> WriteTurn:
        """Return a turn of a session that is there."""
        known = delivery and self.hasher.delivery(self.hasher.session(f"s{session}"), delivery)
        return WriteTurn(
            session,
            Row(seq, 0, 1_000 + seq, os.urandom(50), known),
            Row(seq + 1, 1, 1_001 + seq, os.urandom(50)),
        )

    def first(self, session: int, delivery: str | None = None, customer: int = 0) -> WriteTurn:
        """Return the first turn of a session, which brings it and its customer."""
        turn = self.turn(session, 1, delivery)
        ref = customer or session
        return WriteTurn(
            turn.session, turn.visitor, turn.agent, self.session(session, ref), self.customer(ref)
        )

    def snapshot(self, session: int, cursor: int, seen: int) -> WriteSession:
        """Return a snapshot of a session."""
        return WriteSession(session, cursor, os.urandom(50), seen)

    def asked(self, session: int, *, new: bool = False, customer: int = 0) -> WriteUnanswered:
        """Return what a visitor said, with its session and customer if they are new."""
        ref = customer or session
        brought = (self.session(session, ref), self.customer(ref)) if new else ()
        return WriteUnanswered(session, os.urandom(50), *brought)

    def facts(self, customer: int, seen: int, *derived: tuple[int, int]) -> WriteCustomer:
        """Return a snapshot of a customer."""
        return WriteCustomer(customer, os.urandom(50), seen, derived)


@pytest.fixture
def scribe() -> Scribe:
    """Return somebody who writes turns down."""
    return Scribe()


class Files:
    """A database's files, as bytes on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bytes(self) -> dict[str, bytes]:
        """Return every file of the folder with its content, each opened for this only."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Return the files beside the test's database."""
    return Files(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the test's database is, or will be."""
    return tmp_path / "memory.db"


@pytest.fixture(params=["memory", "faulty, with no fault", "sqlite", "sqlite with a keys file"])
def doors(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Return a maker of stores over the same contents, one for each process that might come."""
    match request.param:
        case "memory":
            first = MemoryStore()
            return lambda: MemoryStore(beside=first)
        case "faulty, with no fault":
            first = MemoryStore()
            return lambda: Faulty(MemoryStore(beside=first))
        case "sqlite":
            return lambda: SqliteStore(tmp_path / "memory.db")
        case _:
            return lambda: SqliteStore(tmp_path / "memory.db", keys=tmp_path / "memory.keys")


@pytest.fixture
async def store(doors: Callable[[], Store], scribe: Scribe) -> AsyncIterator[Store]:
    """Return an open store of each kind."""
    opened = doors()
    await opened.open(scribe.root, owner="here/1", lease_s=60.0)
    yield opened
    await opened.close()


@pytest.fixture
def opened():
    """Return what gives an open store and closes it."""

    @contextlib.asynccontextmanager
    async def give(path, scribe, **options):
        store = SqliteStore(path, **options)
        await store.open(scribe.root, owner=this_owner(), lease_s=60.0)
        try:
            yield store
        finally:
            await store.close()

    return give


@pytest.fixture
def edit():
    """Return what changes a database as a foreign tool would."""

    def change(path, *statements):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
            for statement in statements:
                tool.execute(statement)

    return change


@pytest.fixture
def size():
    """Return what tells the bytes of a file, 0 if there is none."""
    return lambda path: Path(path).stat().st_size if Path(path).exists() else 0


@pytest.fixture
def everything():
    """Return what reads all rows of all tables of a database."""

    def read(path):
        with contextlib.closing(sqlite3.connect(path)) as tool:
            tables = [
                name
                for (name,) in tool.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            return {name: tool.execute(f"SELECT * FROM {name}").fetchall() for name in tables}  # noqa: S608 - names of our own

    return read


class CancelledAt:
    """Runs a coroutine and cancels it where it waits for the nth time."""

    def __init__(self, coroutine, nth):
        self.coroutine, self.nth = coroutine, nth

    def __await__(self):
        waits = 0
        running = self.coroutine.__await__()
        try:
            future = running.send(None)
            while True:
                waits += 1
                if waits == self.nth:
                    if future is not None:
                        future._asyncio_future_blocking = False
                        future.cancel()
                    future = running.throw(asyncio.CancelledError())
                    continue
                try:
                    yield future
                except BaseException as error:  # noqa: BLE001 - passed on to whom it is for
                    future = running.throw(error)
                else:
                    future = running.send(None)
        except StopIteration as done:
            return done.value


@pytest.fixture
def cancelled_at():
    """Return what runs a coroutine and cancels it where it waits for the nth time."""
    return CancelledAt
