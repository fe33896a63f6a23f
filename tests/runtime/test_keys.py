"""Keys and seals: a wrong key or a changed byte is a loud error, and destroys nothing."""

from __future__ import annotations

import random
import sqlite3

import pytest

from interturn.runtime import Keyring, Runtime, StoreFailed, Tampered, WrongKey

pytestmark = pytest.mark.anyio


def _bytes(folder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


async def _written(opened, say, sessions=("s", "other"), turns=8, **given) -> None:
    async with opened(**given) as runtime:
        for name in sessions:
            session = runtime.session(name, customer=f"c-{name}")
            for number in range(turns):
                await say(session, f"Ana pide el {number}.", "Vale.")
        await runtime.flush()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_wrong_key_is_told_at_open(opened, path, say, pairs, crashed, apart, keyring):
    """A wrong master key is `WrongKey` at open, which names the right one; no file changes."""
    given = {"keys": path.parent / "memory.keys"} if apart else {}
    await _written(opened, say, **given)
    if crashed:  # as kill -9 leaves it: a log beside it, and a lease that nobody gave back
        runtime = opened(**given)
        await runtime.__aenter__()
        await say(runtime.session("s"), "última")
        left = _bytes(path.parent)
        await runtime.close()
        for file in path.parent.iterdir():
            file.unlink()
        for name, content in left.items():
            path.with_name(name).write_bytes(content)
    before = _bytes(path.parent)
    for wrong in (Keyring.generate(), Keyring.generate()):
        with pytest.raises(WrongKey) as caught:
            async with opened(keyring=wrong, **given):
                raise AssertionError("opened")
        assert caught.value.key_id == keyring.active
        assert _bytes(path.parent) == before
    async with opened(**given) as runtime:
        assert len(await pairs(runtime.session("s"))) == 8 + crashed


async def test_a_key_file_is_made_only_with_a_new_database(opened, path, say, tmp_path):
    """A missing key file beside a database is `WrongKey`, and no key file is made."""
    file = tmp_path / "memory.key"
    async with opened(keyring=Keyring.from_file(file, create=True)) as runtime:
        await say(runtime.session("s"), "v")
    kept = file.read_bytes()
    file.unlink()
    before = _bytes(path.parent)
    with pytest.raises(WrongKey):
        async with opened(keyring=Keyring.from_file(file, create=True)):
            pass
    assert not file.exists()
    assert _bytes(path.parent) == before
    file.write_bytes(kept)
    file.chmod(0o600)
    async with opened(keyring=Keyring.from_file(file)) as runtime:
        assert (await runtime.session("s").layers()).window[0].text == "v"


async def test_an_added_master_key_opens_what_the_old_one_sealed(opened, say, keyring, pairs):
    """With a new active master key the old customers are read, and new ones are wrapped anew."""
    await _written(opened, say, sessions=("s",))
    keyring.new_key()
    async with opened() as runtime:
        assert len(await pairs(runtime.session("s"))) == 8
        await say(runtime.session("t", customer="nueva"), "v")
    async with opened() as runtime:
        assert len(await pairs(runtime.session("t"))) == 1


class Tamperer:
    """Changes stored values of a running runtime, and makes it read them again."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    async def run(self, sql: str, *values: object) -> list[tuple]:
        # Keys that are kept beside what they open would hide what is stored.
        return list(await self.runtime._store._writer.execute_fetchall(sql, values))

    async def read(self, table: str, column: str, where: str) -> bytes:
        [(value,)] = await self.run(f"SELECT {column} FROM {table} WHERE {where}")  # noqa: S608
        return value

    async def write(self, table: str, column: str, where: str, value: object) -> None:
        await self.run(f"UPDATE {table} SET {column} = ? WHERE {where}", value)  # noqa: S608
        self.forget()

    def forget(self) -> None:
        inside = self.runtime._inside
        for cell in list(inside._cells.values()):
            cell.leave()
        inside.vault._customers.clear()


async def _all(runtime, name: str, pairs):
    session = runtime.session(name)
    await session.layers()
    await pairs(session)
    return await session.customer.sessions()


SEALED = [
    ("messages", "sealed", "session = 1 AND seq = 1"),  # folded: read by the transcript
    ("messages", "sealed", "session = 1 AND seq = 15"),  # in the window
    ("messages", "sealed", "session = 1 AND seq = 16"),
    ("sessions", "name", "ref = 1"),
    ("sessions", "wrapped", "ref = 1"),
    ("sessions", "snapshot", "ref = 1"),
    ("customers", "name", "ref = 1"),
    ("customer_keys", "wrapped", "hash = (SELECT hash FROM customers WHERE ref = 1)"),
]


@pytest.mark.parametrize(("table", "column", "where"), SEALED)
async def test_every_changed_bit_is_noticed(opened, say, pairs, table, column, where):
    """Each single bit changed in a sealed column is `Tampered`; the rest serve; nothing is lost."""
    await _written(opened, say)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        whole = await tamperer.read(table, column, where)
        bits = range(len(whole) * 8)
        if len(bits) > 700:
            bits = sorted({*bits[:160], *bits[-160:], *random.Random(7).sample(bits, 200)})
        for bit in bits:
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            await tamperer.write(table, column, where, bytes(changed))
            with pytest.raises(Tampered) as caught:
                await _all(runtime, "s", pairs)
            assert caught.value.table in {table, "customers"}
        await _all(runtime, "other", pairs)
        await say(runtime.session("other"), "sigue")
        await tamperer.write(table, column, where, whole)
        assert await _all(runtime, "s", pairs) == ["s"]
        assert len(await pairs(runtime.session("s"))) == 8


@pytest.mark.parametrize(("table", "column", "where"), SEALED)
async def test_what_was_cut_or_emptied_is_noticed(opened, say, pairs, table, column, where):
    """A sealed value that was cut, lengthened or emptied is `Tampered`."""
    await _written(opened, say)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        whole = await tamperer.read(table, column, where)
        for changed in (b"", whole[:1], whole[:29], whole[:-1], whole + b"\0", b"\0" * len(whole)):
            await tamperer.write(table, column, where, changed)
            with pytest.raises(Tampered):
                await _all(runtime, "s", pairs)
        await tamperer.write(table, column, where, whole)
        await _all(runtime, "s", pairs)


@pytest.mark.parametrize(
    ("table", "column", "one", "two"),
    [
        ("messages", "sealed", "session = 1 AND seq = 13", "session = 1 AND seq = 15"),
        ("messages", "sealed", "session = 1 AND seq = 15", "session = 1 AND seq = 16"),
        ("messages", "sealed", "session = 1 AND seq = 16", "session = 2 AND seq = 16"),
        ("messages", "sealed", "session = 1 AND seq = 1", "session = 1 AND seq = 3"),
        ("sessions", "name", "ref = 1", "ref = 2"),
        ("sessions", "wrapped", "ref = 1", "ref = 2"),
        ("sessions", "snapshot", "ref = 1", "ref = 2"),
        ("sessions", "customer", "ref = 1", "ref = 2"),
        ("customers", "name", "ref = 1", "ref = 2"),
        (
            "customer_keys",
            "wrapped",
            "hash = (SELECT hash FROM customers WHERE ref = 1)",
            "hash = (SELECT hash FROM customers WHERE ref = 2)",
        ),
    ],
)
async def test_what_was_swapped_is_noticed(opened, say, pairs, table, column, one, two):
    """Two sealed values swapped, each whole, are `Tampered`: they aren't in their place."""
    await _written(opened, say)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        first, second = (
            await tamperer.read(table, column, one),
            await tamperer.read(table, column, two),
        )
        await tamperer.write(table, column, one, second)
        await tamperer.write(table, column, two, first)
        with pytest.raises(Tampered):
            await _all(runtime, "s", pairs)
        await tamperer.write(table, column, one, first)
        await tamperer.write(table, column, two, second)
        assert await _all(runtime, "s", pairs) == ["s"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM messages WHERE session = 1 AND seq = 16",  # half a turn is left
        "DELETE FROM messages WHERE session = 1 AND seq = 13",
        "UPDATE sessions SET cursor = 16 WHERE ref = 1",  # all seems to be folded
        "UPDATE sessions SET cursor = 8 WHERE ref = 1",
        "UPDATE sessions SET cursor = 0 WHERE ref = 1",
        "UPDATE sessions SET snapshot = NULL WHERE ref = 1",
        "UPDATE sessions SET snapshot = NULL, cursor = 16 WHERE ref = 1",
    ],
)
async def test_a_history_that_doesnt_agree_is_never_an_empty_one(opened, say, sql):
    """Rows, cursor and summary that don't agree are `Tampered`, and nothing is written to them."""
    await _written(opened, say)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        await tamperer.run(sql)
        tamperer.forget()
        for call in (
            lambda: runtime.session("s").layers(),
            lambda: say(runtime.session("s"), "x"),
            lambda: runtime.session("s").record("x", "y"),
            lambda: runtime.session("s").assemble("x"),
        ):
            with pytest.raises(Tampered):
                await call()
        await say(runtime.session("other"), "sigue")
        assert runtime.statistics().turns == 1


async def test_a_lost_customers_key_is_loud(opened, say, pairs):
    """A customer's key that isn't there is `WrongKey` for their sessions; others serve."""
    await _written(opened, say)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        await tamperer.run(
            "DELETE FROM customer_keys WHERE hash = (SELECT hash FROM customers WHERE ref = 1)"
        )
        tamperer.forget()
        for call in (
            lambda: runtime.session("s").layers(),
            lambda: runtime.session("s").record("x", "y"),
            lambda: runtime.session("new", customer="c-s").record("x", "y"),
        ):
            with pytest.raises(WrongKey):
                await call()
        await say(runtime.session("other"), "sigue")
        assert len(await pairs(runtime.session("other"))) == 9


async def test_a_changed_root_is_told_at_open(opened, path, say):
    """A changed store secret is `Tampered` at open, for any bit, and nothing is touched."""
    await _written(opened, say, sessions=("s",), turns=1)
    async with opened() as runtime:
        tamperer = Tamperer(runtime)
        whole = await tamperer.read("root", "wrapped", "id = 1")
    for bit in range(0, len(whole) * 8, 5):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        with sqlite3.connect(path) as database:
            database.execute("UPDATE root SET wrapped = ?", (bytes(changed),))
        database.close()
        before = _bytes(path.parent)
        with pytest.raises(Tampered):
            async with opened():
                pass
        after = _bytes(path.parent)
        assert after["memory.db"] == before["memory.db"]


async def test_a_keys_file_of_another_database_is_refused(opened, path, say):
    """A database opens only with the keys file it was made with."""
    keys, others = path.with_name("a.keys"), path.with_name("b.keys")
    await _written(opened, say, keys=keys, turns=1)
    async with opened(path.with_name("b.db"), keys=others) as runtime:
        await say(runtime.session("s"), "v")
    for wrong in (others, None, path.with_name("none.keys")):
        with pytest.raises(StoreFailed):
            async with opened(keys=wrong):
                pass
    async with opened(keys=keys) as runtime:
        assert len((await runtime.session("s").layers()).window) == 2
