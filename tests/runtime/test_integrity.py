"""What rests beside the seals is held to them, and wrong arguments hold nobody up."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from interturn.runtime import Runtime, Tampered
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


async def test_a_timeout_that_is_no_number_holds_nobody_up(opened):
    """A wrong timeout is an error of that call alone: the session is free afterwards."""
    async with opened() as runtime, runtime.session("s").turn("x") as turn:
        with pytest.raises(TypeError):
            async with runtime.session("t").turn("y", timeout="5"):
                pass
        await turn.reply("z")
        async with runtime.session("t").turn("y") as other:
            await other.reply("z")
        assert runtime.statistics().held == 0
