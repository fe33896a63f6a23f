"""Stored bytes with random damage: what can't be trusted is refused, and the rest serves.

A real database, with sessions, facts, snapshots, keys and unanswered words, is damaged:
one cell of one row, or bytes of its raw pages. Then all of it is read and written to,
by the runtime and by the command line. ``FUZZ_INPUTS=100000`` makes a long run of it.
"""

# ruff: noqa: S608 - statements are put together from the test's own names

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interturn.runtime import InterturnError, Keyring, Runtime, Settings
from interturn.runtime.archive import Archive, Remembered
from interturn.runtime.cli import main

FUZZ = settings(settings.get_profile("fuzz"))
SETTINGS = Settings(window=4, keep_unanswered=True, snapshot_s=0)
TURNS = 8
OWNERS = {"s0": "ana", "s1": "ana", "s2": "bea", "s3": None}
WAITING = "¿Sigue ahí?"


class Bytes:
    """Counts bytes."""

    name = "bytes"
    byte_level = True

    def count(self, text):
        return len(text.encode())


class Whole(NamedTuple):
    """The database before it was damaged, and what it holds."""

    image: bytes
    key: Path
    turns: dict[str, list[tuple[str, str]]]
    facts: dict[str, dict[str, str]]

    def __repr__(self):
        return f"Whole({len(self.image)} bytes)"


def _open(path, key):
    keyring = Keyring.from_file(key, create=not path.exists())
    return Runtime.open(path, keyring=keyring, settings=SETTINGS, counter=Bytes())


async def _turns(messages):
    texts = [message.text async for message in messages]
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make the database, with a turn that is held while it is copied."""
    folder = tmp_path_factory.mktemp("whole")
    path, copy, key = (folder / name for name in ("first.db", "copy.db", "memory.key"))

    async def fill():
        async with _open(path, key) as runtime:
            for session_id, customer in OWNERS.items():
                session = runtime.session(session_id, customer=customer)
                for number in range(TURNS):
                    await session.record(f"{session_id} pide {number}.", f"Va {number}.")
            for customer in ("ana", "bea"):
                await runtime.customer(customer).remember(f"Vive en {customer}polis.", slot="home")
            await runtime.flush()
            turns = {s: await _turns(runtime.session(s).transcript()) for s in OWNERS}
            facts = {
                c: {fact.slot: fact.text for fact in await runtime.customer(c).facts()}
                for c in ("ana", "bea")
            }
            async with runtime.session("s3").turn(WAITING):
                with (
                    contextlib.closing(sqlite3.connect(path)) as database,
                    contextlib.closing(sqlite3.connect(copy)) as target,
                ):
                    database.backup(target)
            return turns, facts

    turns, facts = asyncio.run(fill())
    assert all(len(said) == TURNS for said in turns.values())
    assert all(facts.values())
    return Whole(copy.read_bytes(), key, turns, facts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def _placed(folder, image):
    for file in folder.iterdir():
        file.unlink()
    path = folder / "memory.db"
    path.write_bytes(image)
    return path


# What is damaged


class Cell(NamedTuple):
    """One value of one row: which, by numbers that are taken modulo; and how."""

    table: int
    row: int
    column: int
    how: str
    where: int
    value: object


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 30),
    st.floats(),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.binary(max_size=64),
)
CELLS = st.builds(
    Cell,
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(["flip", "cut", "swap", "value", "copy"]),
    st.integers(0, 10_000),
    VALUES,
)
TABLES = ("messages", "sessions", "customers", "customer_keys", "unanswered", "root", "lease")
ADDRESSES = {
    ("sessions", "hash"), ("sessions", "ref"), ("customers", "hash"), ("customer_keys", "hash")
}  # fmt: skip
LINKS = {"ref", "session", "customer", "id", "hash"}


def _loosened(database, *, strict):
    """Take the types off the schema, or put them back: damage knows none."""
    database.execute("PRAGMA writable_schema = ON")
    if strict is None:
        strict = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        for name, sql in strict:
            loose = sql.replace("STRICT, WITHOUT", "WITHOUT").replace("STRICT", "")
            loose = loose.replace("NOT NULL", "").replace("CHECK (role = 1 - seq % 2)", "")
            database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, name))
    else:
        for name, sql in strict:
            database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))
    database.commit()
    return strict


def _hurt(value, other, cell):
    """Return the damaged value of a cell."""
    if cell.how in ("swap", "copy"):
        return other
    if cell.how == "value" or value is None:
        return cell.value
    if isinstance(value, (int, float)):
        return value + cell.where % 7 - 3
    data = value.encode() if isinstance(value, str) else value
    at = cell.where % (len(data) or 1)
    hurt = data[:at] if cell.how == "cut" else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    return hurt.decode() if isinstance(value, str) else hurt


def _damage(path, cell):
    """Damage a cell; return its table, column and the sessions that it may be part of."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        strict = _loosened(database, strict=None)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        table = TABLES[cell.table % len(TABLES)]
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        column = columns[cell.column % len(columns)]
        key = "hash" if table == "customer_keys" else "rowid"
        rows = database.execute(f"SELECT {key}, {column} FROM {table} ORDER BY 1").fetchall()
        mine, value = rows[cell.row % len(rows)]
        theirs, other = rows[(cell.row + 1 + cell.where) % len(rows)]
        hit = _parts(database, table, mine) | _parts(database, table, theirs)
        update = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
        with contextlib.suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
            if cell.how == "swap" and (table, column) not in ADDRESSES | {("customers", "ref")}:
                database.execute(update, (value, theirs))
            database.execute(update, (_hurt(value, other, cell), mine))
            database.commit()
        database.rollback()
        _loosened(database, strict=strict)
    return table, column, hit


def _parts(database, table, key):
    """Return the sessions that a row is part of."""
    where = {
        "messages": "sessions.ref = (SELECT session FROM messages WHERE id = ?)",
        "unanswered": "sessions.ref = ?",
        "sessions": "sessions.ref = ?",
        "customers": "customers.ref = ?",
        "customer_keys": "customers.hash = ?",
    }.get(table, "? NOTNULL")
    found = database.execute(
        "SELECT sessions.ref FROM sessions JOIN customers ON customers.ref = sessions.customer"
        f" WHERE {where}",
        (key,),
    )
    return {list(OWNERS)[ref - 1] for (ref,) in found}


# What must hold


class Refused(NamedTuple):
    """A declared error."""

    error: InterturnError


async def _tried(work):
    """Return what comes of it, or the declared error; anything else is a fault."""
    try:
        return await work
    except InterturnError as error:
        return Refused(error)


def _sound(got, whole, *, lost):
    """Whether what was read is refused or whole; nothing at all only where it can't be found."""
    return isinstance(got, Refused) or got == whole or (lost and not got)


async def _served(path, whole, *, lost=False):
    """Read and write everything; return the sessions that served."""
    served = set()
    async with _open(path, whole.key) as runtime:
        for found in await runtime.unanswered():
            assert (found.session_id, found.text) == ("s3", WAITING)
        for session_id, turns in whole.turns.items():
            session = runtime.session(session_id)
            layers = await _tried(session.layers())
            got = await _tried(_turns(session.transcript()))
            assert _sound(got, turns, lost=lost)
            said = await _tried(session.record("¿Y?", "Ya."))
            async with contextlib.AsyncExitStack() as stack:
                turn = await _tried(stack.enter_async_context(session.turn("¿Y hoy?")))
                if not isinstance(turn, Refused):
                    turn = await _tried(turn.reply("Hoy sí."))
            await _tried(session.undo())
            if not any(isinstance(each, Refused) for each in (layers, got, said, turn)):
                served.add(session_id)
        for customer_id, facts in whole.facts.items():
            customer = runtime.customer(customer_id)
            got = await _tried(customer.facts())
            if not isinstance(got, Refused):  # of a slot, what was learnt last stands
                assert {fact.slot for fact in got} >= set(facts) or (lost and not got)
            for call in (
                customer.profile(),
                customer.sessions(),
                customer.recall("¿Dónde vive?"),
                customer.remember("Le gusta el té.", slot="tea"),
            ):
                await _tried(call)
        await runtime.flush()
    return served


async def _examined(path, whole, *, lost=False):
    """Examine it from outside, as the command line does; then read everything.

    Returns:
        Whether something was found to be wrong.
    """
    async with Archive.open(path, keyring=Keyring.from_file(whole.key), counter=Bytes()) as archive:
        diagnosis = await _tried(archive.doctor())
        wrong = isinstance(diagnosis, Refused) or bool(diagnosis.findings)
        for session_id, turns in whole.turns.items():
            got = await _tried(_turns(archive.transcript(session_id)))
            assert _sound(got, turns, lost=lost and wrong)
            await _tried(archive.session(session_id))
        for customer_id, facts in whole.facts.items():
            got = await _tried(archive.customer(customer_id))
            if isinstance(got, Remembered):
                got = {fact.slot: fact.text for fact in got.facts}
            assert _sound(got, facts, lost=lost and wrong)
            await _tried(archive.sessions(customer_id))
        return wrong


@FUZZ
@given(CELLS)
def test_a_damaged_cell_is_refused_and_the_others_serve(whole, folder, cell):
    """P14, P17: only declared errors, never a shorter history, and who isn't hit serves.

    Where the keyed hash is damaged that a session or a customer is found by, they can't be
    found: then it is the doctor who says so.
    """
    path = _placed(folder, whole.image)
    table, column, hit = _damage(path, cell)
    asyncio.run(_check(path, whole, table, column, hit))


async def _check(path, whole, table, column, hit):
    lost = (table, column) in ADDRESSES
    wrong = await _tried(_examined(path, whole, lost=lost))
    served = await _tried(_served(path, whole, lost=lost and wrong))
    if table not in ("root", "lease") and column not in LINKS:
        assert not isinstance(served, Refused), served.error
        assert served >= set(OWNERS) - hit


COMMANDS = [
    ("doctor",),
    ("doctor", "--json"),
    ("stats",),
    ("stats", "--sessions"),
    *(("export", "--session", session_id) for session_id in OWNERS),
    ("export", "--customer", "ana", "--format", "md"),
    ("show", "--session", "s0"),
    ("show", "--customer", "bea", "--json"),
]


@settings(FUZZ, max_examples=max(10, FUZZ.max_examples // 8))
@given(CELLS, st.sampled_from(COMMANDS))
def test_the_command_line_refuses_damage_in_one_line(whole, interturn, cell, command):
    """P14: over a damaged database each command does its work, or ends with one line."""
    path = interturn.folder / "memory.db"
    path.write_bytes(whole.image)
    path.with_name("memory.key").write_bytes(whole.key.read_bytes())
    path.with_name("memory.key").chmod(0o600)
    _damage(path, cell)
    with interturn._streams("", {"INTERTURN_WINDOW": "4"}) as (_, err):
        status = main(command)
    complaint = err.getvalue().decode()
    assert "Traceback" not in complaint
    assert (status, complaint.count("\n")) in ((0, 0), (1, 1))


FLIPS = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8)


@FUZZ
@given(FLIPS, st.one_of(st.just(0), st.integers(0, 2**20)))
def test_damaged_pages_are_refused(whole, folder, flips, cut):
    """P14: with bytes of the raw file changed, or its end gone, only declared errors come."""
    image = bytearray(whole.image)
    for at, byte in flips:
        image[at % len(image)] = byte
    if cut:
        del image[1 + cut % len(image) :]
    path = _placed(folder, bytes(image))
    asyncio.run(_pages(path, whole))


async def _pages(path, whole):
    wrong = await _tried(_examined(path, whole, lost=True))
    await _tried(_served(path, whole, lost=wrong))
