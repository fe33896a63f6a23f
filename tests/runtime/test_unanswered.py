"""Unanswered turns: what a visitor said outlives a crash, and nothing but a crash."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from interturn.runtime import (
    BudgetExceeded,
    Forgotten,
    Keyring,
    MemoryStore,
    Settings,
    StoreFailed,
    TurnExpired,
    Unanswered,
)
from interturn.runtime.archive import Archive
from interturn.storage import WriteTurn, WriteUnanswered

pytestmark = pytest.mark.anyio

KEEP = Settings(keep_unanswered=True)
CUT_OFF = Settings(keep_unanswered=True, drain_s=0)  # closing waits for no held turn

CHILD = textwrap.dedent('''
    """Takes turns, answers one, and dies of kill -9 while it thinks about the others."""
    import asyncio, os, signal, sys
    from interturn.runtime import Keyring, Runtime, Settings

    class Bytes:
        name, byte_level = "bytes/4", True
        def count(self, text):
            return (len(text.encode()) + 3) // 4

    async def main(path, key):
        keyring = Keyring.from_file(key, create=True)
        given = {"settings": Settings(keep_unanswered=True), "counter": Bytes()}
        async with Runtime.open(path, keyring=keyring, **given) as runtime:
            for session in (runtime.session("web", customer="ana"), runtime.session("anon")):
                async with session.turn("hola", delivery_id="d1") as turn:
                    await turn.reply("buenas")
            asked = runtime.session("web").turn("¿y el segundo?", delivery_id="d2")
            new = runtime.session("tel", customer="ana").turn("¿hay alguien?")
            async with asked, new:
                os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main(*sys.argv[1:]))
''')


def kept(store) -> list[WriteUnanswered | WriteTurn]:
    """Return the words and turns that a watched store was given, in order."""
    kinds = WriteUnanswered, WriteTurn
    return [write for writes in store.commits for write in writes if isinstance(write, kinds)]


async def left(runtime) -> list[tuple[str, str]]:
    return [(found.session_id, found.text) for found in await runtime.unanswered()]


async def cut_off(opened, session_id="s", text="hola", customer=None, store=None, **given):
    """Leave the words of a turn behind, as a process does that ends while it is held."""
    runtime = opened(store, settings=CUT_OFF)
    async with runtime:
        turn = runtime.session(session_id, customer=customer).turn(text, **given)
        await turn.__aenter__()
    await turn.__aexit__(None, None, None)


async def test_what_a_killed_process_was_asked_is_found_and_answered(opened, tmp_path, pairs):
    """After kill -9: who, where, what, when, which delivery; answered, it is a turn like any."""
    path, key, script = tmp_path / "memory.db", tmp_path / "master.key", tmp_path / "child.py"
    script.write_text(CHILD)
    command = [sys.executable, str(script), str(path), str(key)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: ASYNC221, S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    keyring = Keyring.from_file(key)
    async with opened(path, keyring=keyring, settings=KEEP) as runtime:
        first, second = await runtime.unanswered()
        assert first == Unanswered("web", "ana", "¿y el segundo?", first.at, "d2")
        assert second == Unanswered("tel", "ana", "¿hay alguien?", second.at, None)
        assert first.at <= second.at
        assert "segundo" not in repr(first)
        for found in (first, second):
            session = runtime.session(found.session_id, customer=found.customer_id)
            async with session.turn(found.text, delivery_id=found.delivery_id) as turn:
                assert turn.already is None
                await turn.reply("disculpe la espera")
        assert await runtime.unanswered() == []
        async with runtime.session("web").turn("¿y el segundo?", delivery_id="d2") as turn:
            assert turn.already.text == "disculpe la espera"
        assert await pairs(runtime.session("web")) == [
            ("hola", "buenas"),
            ("¿y el segundo?", "disculpe la espera"),
        ]
    async with opened(path, keyring=keyring) as runtime:
        assert await runtime.unanswered() == []


async def test_words_are_on_disk_before_the_turn_is_handed_out(opened, watched, path, say):
    """Sealed, by themselves; the turn is two rows more, and takes them away in its commit."""
    async with opened(watched, settings=KEEP) as runtime:
        session = runtime.session("s", customer="ana")
        async with session.turn("un secreto") as turn:
            [words] = kept(watched)
            assert words.sealed is not None
            assert words.new_session is not None
            for file in path.parent.iterdir():
                assert b"secreto" not in file.read_bytes()
            assert await runtime.unanswered() == []  # it is in somebody's hands
            await turn.reply("shh")
        assert isinstance(kept(watched)[1], WriteTurn)
        await say(session, "otra cosa")
        assert [type(write).__name__ for write in kept(watched)] == [
            "WriteUnanswered",
            "WriteTurn",
        ] * 2
        assert [m.seq async for m in session.transcript()] == [1, 2, 3, 4]
    async with opened() as runtime:
        assert await runtime.unanswered() == []


async def test_switched_off_nothing_is_kept_and_nothing_costs(opened, watched, say):
    """The default: a turn is one commit, and one that is left is none."""
    async with opened(watched) as runtime:
        session = runtime.session("s")
        await say(session, "hola")
        assert watched.calls["commit"] == 1
        async with session.turn("nada"):
            pass
        assert watched.calls["commit"] == 1
        assert len(kept(watched)) == 1


@pytest.mark.parametrize("new", [True, False])
async def test_a_turn_that_is_left_leaves_nothing(opened, watched, say, new, balanced):
    """No words, and no session that was never answered: it is still nobody's."""
    async with opened(watched, settings=KEEP) as runtime:
        session = runtime.session("s", customer="ana")
        if not new:
            await say(session, "hola")
        with pytest.raises(ZeroDivisionError):
            async with session.turn("¿?"):
                raise ZeroDivisionError
        with pytest.raises(BudgetExceeded):
            async with session.turn("¿?", budget=1):
                pass
        await runtime._inside._writer.quiet()
        assert await runtime.customer("ana").sessions() == ["s"] * (not new)
        if new:  # the first to be answered is whose it is
            await say(runtime.session("s", customer="eva"), "soy Eva")
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        assert await runtime.unanswered() == []
        assert await runtime.session("s", customer="eva" if new else "ana").layers()


async def test_the_newest_words_of_a_session_count(opened, pairs, say):
    """Left by two crashes: the second's; the next turn, whatever it says, ends the waiting."""
    await cut_off(opened, text="uno", delivery_id="d1")
    await cut_off(opened, text="dos")
    await cut_off(opened, "otra", "tres", customer="ana")
    async with opened() as runtime:  # also with the setting off by now
        assert await left(runtime) == [("s", "dos"), ("otra", "tres")]
        assert await pairs(runtime.session("s")) == []
        await say(runtime.session("s"), "cuatro")
        assert await left(runtime) == [("otra", "tres")]
        await runtime.session("otra").record("cinco", "seis")
        assert await left(runtime) == []


@pytest.mark.parametrize("memory", [True, False])
async def test_what_was_found_and_left_again_is_gone(opened, memory):
    """Whoever takes it and leaves without a reply has decided."""
    store = MemoryStore() if memory else None
    await cut_off(opened, store=store)
    async with opened(store, settings=KEEP) as runtime:
        [found] = await runtime.unanswered()
        async with runtime.session("s").turn(found.text):
            assert await runtime.unanswered() == []
        assert await runtime.unanswered() == []
    async with opened(store) as runtime:
        assert await runtime.unanswered() == []


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("applied", [True, False])
async def test_words_that_cannot_be_kept_fail_the_turn_at_once(
    opened, watched, say, new, applied, balanced, pairs
):
    """Nothing is held; the next turn of the session goes as if it had never been."""
    async with opened(watched, settings=KEEP) as runtime:
        session = runtime.session("s", customer="ana")
        if not new:
            await say(session, "antes")
        watched.fail("commit", applied=applied)
        with pytest.raises(StoreFailed) as told:
            async with session.turn("hola"):
                raise AssertionError("handed out")
        assert told.value.unknown == applied
        assert runtime.statistics().held == 0
        await say(session, "después")
        assert len(await pairs(session)) == 2 - new
        balanced(runtime, at_rest=True)
    async with opened() as runtime:
        assert await runtime.unanswered() == []


async def test_a_full_disk(opened, path, say, pairs):
    """A real one: a turn whose words find no room is refused; with room again, it goes on."""
    async with opened(settings=KEEP) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        writer = runtime._store._writer
        [(pages,)] = await writer.execute_fetchall("PRAGMA page_count")
        await writer.execute_fetchall(f"PRAGMA max_page_count = {pages}")
        for _ in range(2):
            with pytest.raises(StoreFailed, match="FULL"):
                await say(session, "x" * 20_000)
        await writer.execute_fetchall("PRAGMA max_page_count = 1000000")
        await say(session, "x" * 20_000)
        assert len(await pairs(session)) == 2


@pytest.mark.parametrize("reads", [0, 1])
async def test_a_reply_that_fails_is_tried_again_or_left(opened, watched, say, reads, until):
    """Its words stay while it is held, also over a state that is read again; left, they go."""
    async with opened(watched, settings=KEEP) as runtime:
        session = runtime.session("s")
        for answered in (True, False):
            async with session.turn("hola") as turn:
                watched.fail("commit")
                for _ in range(reads):
                    watched.gates["load_session"] = asyncio.Event()
                with pytest.raises(StoreFailed):
                    await turn.reply("buenas")
                if answered:
                    for gate in watched.gates.values():
                        gate.set()
                    await turn.reply("buenas")
            for gate in watched.gates.values():
                gate.set()
            await session.layers()
            await until(lambda: runtime.statistics().held == 0)
        await say(runtime.session("otra"), "hola")
    async with opened() as runtime:
        assert await runtime.unanswered() == []
        assert (await runtime.session("s").layers()).window[-1].seq == 2


async def test_a_delivery_known_only_to_the_store(opened, say):
    """Answered long ago and redelivered: nothing is written, and no words stay."""
    settings = Settings(keep_unanswered=True, deliveries=0)
    async with opened(settings=settings) as runtime:
        session = runtime.session("s")
        await say(session, "hola", delivery_id="d")
        assert (await say(session, "hola", delivery_id="d")).duplicate
    async with opened() as runtime:
        assert await runtime.unanswered() == []


async def test_a_turn_that_is_lost_to_another_leaves_its_place(opened, clock, say):
    """Held over its time: the words that rest are those of the turn that took the session."""
    settings = Settings(keep_unanswered=True, turn_s=10)
    async with opened(settings=settings, clock=clock) as runtime:
        session = runtime.session("s")
        await say(session, "antes")
        async with session.turn("lento") as slow:
            waiting = asyncio.create_task(say(session, "rápido", timeout=60))
            await clock.advance(11)
            assert (await waiting).seq == 3
            with pytest.raises(TurnExpired):
                await slow.reply("tarde")
    async with opened() as runtime:
        assert await runtime.unanswered() == []


@pytest.mark.parametrize("how", ["waiting", "woken"])
@pytest.mark.parametrize("new", [True, False])
async def test_a_caller_cancelled_anywhere(opened, say, interrupt, how, new, balanced, settle):
    """No turn stays held, no words stay, and the session goes on."""
    async with opened(MemoryStore(), settings=KEEP) as runtime:
        session = runtime.session("s")
        at, going = 1, True
        while going:
            if not new:
                await say(session, "antes")
            going = await interrupt(say(session, "hola"), at, how)
            await settle()
            await runtime._inside._writer.quiet()
            assert runtime.statistics().held == 0
            assert runtime._store._contents.unanswered == {}
            balanced(runtime, at_rest=True)
            if new:
                await session.delete()
            at += 1
        assert at > 2


async def test_forgetting_while_words_are_being_kept(opened, watched, until):
    """The words come to rest first and go with the rest; the turn ends with `Forgotten`."""
    async with opened(watched, settings=KEEP) as runtime:
        session, gate = runtime.session("s", customer="ana"), asyncio.Event()
        watched.gates["commit"] = gate
        turn = session.turn("hola")
        entering = asyncio.create_task(turn.__aenter__())
        await until(lambda: watched.reached["commit"])
        forgetting = asyncio.create_task(runtime.customer("ana").forget())
        await until(lambda: runtime._inside.moves.under_way)
        gate.set()
        assert (await forgetting).messages == 0
        with pytest.raises(Forgotten):
            await entering
        assert kept(watched)[0].new_customer is not None
        assert await watched.customers(after=0, limit=9) == []
    async with opened() as runtime:
        assert await runtime.unanswered() == []


async def test_they_follow_their_session(opened, say):
    """Identified, they are the customer's; deleted or forgotten, they are gone."""
    for session_id in ("anon", "gone", "web"):
        await cut_off(opened, session_id, customer=None if session_id == "anon" else "ana")
    async with opened() as runtime:
        await runtime.session("anon").identify("eva")
        assert await runtime.session("gone").delete() == 0
        found = await runtime.unanswered()
        assert [(one.session_id, one.customer_id) for one in found] == [
            ("anon", "eva"),
            ("web", "ana"),
        ]
        assert (await runtime.customer("ana").forget()).sessions == 1
        assert await left(runtime) == [("anon", "hola")]


async def test_whoever_was_identified_early_stays(opened, say):
    """A turn that is left doesn't undo an identify that came before any message."""
    settings = Settings(keep_unanswered=True)
    async with opened(settings=settings) as runtime:
        web = runtime.session("web")
        await web.identify("ana")
        async with web.turn("hola"):
            pass
    async with opened(settings=settings) as runtime:
        web = runtime.session("web")
        assert (await web.layers()).customer == "ana"
        async with web.turn("hola"):
            pass
        await say(runtime.session("other"), "sigue")
    async with opened(settings=settings) as runtime:
        assert (await runtime.session("web").layers()).customer == "ana"


async def test_many_at_once_share_their_commits(opened, watched, say):
    """Words go with whatever else is on its way to the disk."""
    async with opened(watched, settings=KEEP) as runtime:
        sessions = [runtime.session(f"s{n}") for n in range(50)]
        await asyncio.gather(*(say(session, "hola") for session in sessions))
        assert len(kept(watched)) == 100
        assert watched.calls["commit"] < 20


async def test_changed_words_are_left_out_and_the_doctor_tells(opened, path, keyring):
    """One that doesn't open hides no other, and is no history."""
    for session_id in ("uno", "dos"):
        await cut_off(opened, session_id, "palabras muy largas de verdad")
    async with Archive.open(path, keyring=keyring) as archive:
        diagnosis = await archive.doctor()
        assert (diagnosis.unanswered, diagnosis.findings) == (2, ())
        assert [m async for m in archive.transcript("uno")] == []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute("UPDATE unanswered SET sealed = (SELECT max(sealed) FROM unanswered)")
    async with opened() as runtime:
        assert len(await runtime.unanswered()) == 1
    async with Archive.open(path, keyring=keyring) as archive:
        [finding] = (await archive.doctor()).findings
        assert finding.kind == "tampered"
        assert finding.where.startswith("unanswered")
