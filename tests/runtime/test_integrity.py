"""What rests beside the seals is held to them, and wrong arguments hold nobody up."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
from datetime import date, datetime, tzinfo

import pytest

from interturn.runtime import (
    InvalidText,
    Runtime,
    StoreFailed,
    Tampered,
    TurnTimeout,
    WrongKey,
)
from interturn.runtime.archive import Archive

pytestmark = pytest.mark.anyio


def _change(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


async def _filled(opened, turns):
    async with opened() as runtime:
        for number in range(turns):
            await runtime.session("s").record(f"v{number}", f"a{number}", delivery_id=f"d{number}")


@pytest.mark.parametrize("column", ["at = at + 86400000000", "delivery = x'00'"])
async def test_a_changed_time_or_delivery_is_tampered(column, opened, path):
    """P14: the time and the delivery of a message are bound to its seal."""
    await _filled(opened, 3)
    _change(path, f"UPDATE messages SET {column} WHERE seq = 1")  # noqa: S608 - the test's own
    async with opened() as runtime:
        with pytest.raises(Tampered):
            await runtime.session("s").layers()


@pytest.mark.parametrize("gone", ["(3, 4)", "(11, 12)"])
async def test_a_conversation_with_a_hole_is_never_a_shorter_one(gone, opened, path, keyring):
    """P14: rows that are missing are a loud error, for the owner and for who only reads."""
    await _filled(opened, 30)
    _change(path, f"DELETE FROM messages WHERE seq IN {gone}")  # noqa: S608 - the test's own
    async with opened() as runtime:
        with pytest.raises(Tampered):
            [m async for m in runtime.session("s").transcript()]
    async with Archive.open(path, keyring=keyring) as archive:
        with pytest.raises(Tampered):
            [m async for m in archive.transcript("s")]


@pytest.mark.parametrize("store", [7, None, object()])
def test_what_is_no_store_is_refused_at_once(store, keyring):
    """A store of another type is a TypeError, and nothing waits."""
    with pytest.raises(TypeError):
        Runtime.open(store, keyring=keyring)


@pytest.mark.parametrize("seconds", ["5", True, -1, math.nan, 10**400])
async def test_a_timeout_that_is_no_time_holds_nobody_up(seconds, opened, clock, say):
    """A wrong timeout is an error of that call alone: sessions are free, and alarms ring."""
    async with opened(clock=clock) as runtime, runtime.session("s").turn("x") as turn:
        with pytest.raises(InvalidText, match="timeout"):
            await say(runtime.session("t"), "y", timeout=seconds)
        waiting = asyncio.create_task(say(runtime.session("s"), "y", timeout=60))
        await clock.advance(61)
        with pytest.raises(TurnTimeout):
            await waiting
        await turn.reply("z")
        await say(runtime.session("t"), "y", timeout=math.inf)
        assert runtime.statistics().held == 0


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("knowledge", lambda s: s.assemble("x", knowledge="letters")),
        ("knowledge", lambda s: s.assemble("x", knowledge=b"bytes")),
        ("knowledge", lambda s: s.assemble("x", knowledge=None)),
        ("knowledge", lambda s: s.assemble("x", knowledge={"a": "b"})),
        ("knowledge", lambda s: s.assemble("x", knowledge=(n for n in "ab"))),
        ("knowledge", lambda s: s.assemble("x", knowledge=["fine", 7])),
        ("knowledge", lambda s: s.turn("x", knowledge="letters").__aenter__()),
        ("knowledge", lambda s: s.turn("x", knowledge=None).__aenter__()),
        ("instructions", lambda s: s.assemble("x", instructions=None)),
        ("instructions", lambda s: s.assemble("x", instructions=())),
        ("budget", lambda s: s.assemble("x", budget="many")),
        ("budget", lambda s: s.assemble("x", budget=100.5)),
        ("budget", lambda s: s.assemble("x", budget=math.nan)),
        ("budget", lambda s: s.turn("x", budget=True).__aenter__()),
        ("query", lambda s: s.customer.recall(None)),
        ("limit", lambda s: s.customer.recall("x", limit="3")),
        ("tokens", lambda s: s.customer.recall("x", tokens=math.nan)),
        ("at", lambda s: s.record("x", "y", at="2026-03-03")),
        ("at", lambda s: s.record("x", "y", at=date(2026, 3, 3))),
        ("at", lambda s: s.record("x", "y", at=datetime(2026, 3, 3, tzinfo=Vague()))),
    ],
)
async def test_a_wrong_argument_is_named(field, call, opened):
    """An argument of a wrong kind is `InvalidText` with its name, and nothing is written."""
    async with opened() as runtime:
        session = runtime.session("s", customer="c")
        with pytest.raises(InvalidText) as caught:
            await call(session)
        assert caught.value.field == field
        assert [message async for message in session.transcript()] == []


class Vague(tzinfo):
    """A zone that doesn't know its offset: its times are naive all the same."""

    def utcoffset(self, dt):
        del dt


async def test_knowledge_is_what_it_was_when_the_turn_began(opened):
    """A list that is changed while a turn is held changes nothing of its request."""
    known = ["Abre a las nueve."]
    async with opened() as runtime, runtime.session("s").turn("x", knowledge=known) as turn:
        known.append("Cierra a las dos.")
        assert "Cierra" not in str(turn.request.messages)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET role = 300 WHERE seq = 1",
        "UPDATE messages SET sealed = 'text' WHERE seq = 1",
        "UPDATE messages SET sealed = 7 WHERE seq = 1",
        "UPDATE messages SET seq = 'first' WHERE seq = 1",
        "UPDATE messages SET delivery = 3.5 WHERE seq = 1",
        "UPDATE sessions SET wrapped = NULL",
        "UPDATE sessions SET name = 'text'",
        "UPDATE sessions SET cursor = 'far'",
        "UPDATE sessions SET version = x'00'",
        "UPDATE sessions SET customer = 99",
        "UPDATE customers SET name = 1",
        "UPDATE customer_keys SET wrapped = NULL",
        "UPDATE customer_keys SET key_id = x'ff'",
    ],
)
async def test_a_value_of_another_type_is_a_declared_error(statement, opened, path, keyring):
    """P14: what no writer ever wrote is refused, by the owner and by who only reads."""
    await _filled(opened, 3)
    async with opened() as runtime:
        await runtime.session("other").record("v", "a")
    _retyped(path, f"{statement} {'AND' if 'WHERE' in statement else 'WHERE'} rowid = 1")
    async with opened() as runtime:
        for call in (runtime.session("s").layers, lambda: runtime.session("s").record("v", "a")):
            with pytest.raises((Tampered, WrongKey)):
                await call()
        await runtime.session("other").record("v", "a")
    async with Archive.open(path, keyring=keyring) as archive:
        with pytest.raises((Tampered, WrongKey)):
            [m async for m in archive.transcript("s")]
        assert (await archive.doctor()).findings


def _retyped(path, statement):
    """Run a statement on tables that have lost their types, as damaged pages have."""
    if "customer_keys" in statement:
        statement = statement.replace(
            "rowid = 1", "hash = (SELECT hash FROM customers WHERE ref = 1)"
        )
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        for name, sql in database.execute(tables).fetchall():
            loose = sql.replace("STRICT, WITHOUT", "WITHOUT").replace("STRICT", "")
            loose = loose.replace("NOT NULL", "").replace("CHECK (role = 1 - seq % 2)", "")
            database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, name))
        database.commit()
    _change(path, statement)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM lease", "UPDATE lease SET since = 1e300, owner = 'x/1'", "DELETE FROM root"],
)
async def test_a_damaged_description_is_a_declared_error(statement, opened, path, keyring):
    """P14: without a sound root and lease the database isn't opened, and stays as it is."""
    await _filled(opened, 1)
    _change(path, statement)
    image = path.read_bytes()
    with pytest.raises(StoreFailed):
        async with opened():
            pass
    with pytest.raises(StoreFailed):
        async with Archive.open(path, keyring=keyring):
            pass
    assert path.read_bytes() == image


async def test_a_schema_that_is_no_text_is_a_declared_error(opened, path):
    """P14: SQLite's own message quotes the damaged schema; that it can't be read is no matter."""
    await _filled(opened, 1)
    image = path.read_bytes()
    path.write_bytes(image.replace(b"CREATE TABLE root", b"CREATE TABLE \xff\xfeot", 1))
    with pytest.raises(StoreFailed):
        async with opened():
            pass


@pytest.mark.parametrize("size", [1, 100, 511])
async def test_a_file_cut_short_is_never_made_anew(size, opened, path, keyring):
    """P14: what is left of a database isn't taken for an empty one, and not written over."""
    await _filled(opened, 1)
    left = path.read_bytes()[:size]
    path.write_bytes(left)
    with pytest.raises(StoreFailed):
        async with opened():
            pass
    with pytest.raises(StoreFailed):
        async with Archive.open(path, keyring=keyring):
            pass
    assert path.read_bytes() == left


async def test_a_session_without_its_rows_is_never_empty_to_a_reader(opened, path, keyring):
    """P14: a session that has folded and has no rows is a loud error, not an empty transcript."""
    await _filled(opened, 20)
    _change(path, "PRAGMA foreign_keys = OFF", "UPDATE sessions SET ref = 77")
    async with Archive.open(path, keyring=keyring) as archive:
        with pytest.raises(Tampered):
            [m async for m in archive.transcript("s")]


async def test_facts_whose_snapshot_is_gone_are_never_no_facts(opened, path, keyring):
    """P14: a customer whose facts rested and are there no more is a loud error."""
    async with opened() as runtime:
        await runtime.customer("c").remember("Vive en Cádiz.", slot="home")
    _change(path, "UPDATE customers SET snapshot = NULL")
    async with opened() as runtime:
        with pytest.raises(Tampered):
            await runtime.customer("c").facts()
    async with Archive.open(path, keyring=keyring) as archive:
        with pytest.raises(Tampered):
            await archive.customer("c")
        assert [finding.kind for finding in (await archive.doctor()).findings] == ["tampered"]
