"""Privacy: no content and no id of any person rests unencrypted, wherever one looks."""

# ruff: noqa: ARG005 - a port's arguments have their names

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from interturn.runtime import (
    BudgetExceeded,
    CustomerMismatch,
    DeliveryConflict,
    InterturnError,
    InvalidId,
    InvalidText,
    Settings,
    StoreFailed,
)

pytestmark = pytest.mark.anyio

WORD = "Quetzalcóatl"
IDS = ("sesión-Xochimilco", "cliente-Xochimilco", "entrega-Xochimilco")
CANARIES = (WORD, "Xochimilco", "Tenochtitlan", "Popocatépetl", "Teotihuacan", "Iztaccíhuatl")
TEXT = f"Me llamo {WORD}, pedido {{}}, vivo en Tenochtitlan."
REPLY = "Anotado: Popocatépetl 12, el martes."
KNOWLEDGE = "Teotihuacan cierra los lunes."
INSTRUCTIONS = "Eres el agente de Iztaccíhuatl."


def _encodings():
    for canary in CANARIES:
        for text in (canary, canary.lower(), canary[3:]):
            for encoding in ("utf-8", "utf-16-le", "unicode_escape"):
                yield text.encode(encoding)
            yield ascii(text)[1:-1].encode()


NEEDLES = tuple(set(_encodings()))


def _shows(text: str) -> list[str]:
    folded = text.casefold()
    return [c for c in CANARIES if c.casefold() in folded or ascii(c)[1:-1].casefold() in folded]


def _clean_files(folder) -> int:
    size = 0
    for file in folder.rglob("*"):
        if file.is_file():
            raw = file.read_bytes()
            size += len(raw)
            found = [needle for needle in NEEDLES if needle in raw]
            assert not found, (file.name, found)
    return size


def _chain(error: BaseException | None, seen=()):
    if error is not None and error not in seen:
        yield error
        seen = (*seen, error)
        yield from _chain(error.__cause__, seen)
        yield from _chain(error.__context__, seen)
        for inner in getattr(error, "exceptions", ()):
            yield from _chain(inner, seen)


def _clean_error(error: BaseException) -> None:
    for link in _chain(error):
        for shown in (
            str(link),
            repr(link),
            repr(link.args),
            repr(vars(link)),
            repr(link.__notes__ if hasattr(link, "__notes__") else ""),
        ):
            assert not _shows(shown), (type(link), shown)
        for name in ("object", "doc", "filename"):
            assert not _shows(repr(getattr(link, name, ""))), (type(link), name)
    # Code lines of this very file name no canary: they use the names above.
    assert not _shows("".join(traceback.format_exception(error)))


@pytest.fixture
def heard(caplog):
    """Everything that any logger says, down to DEBUG, asyncio's and aiosqlite's too."""
    caplog.set_level(logging.DEBUG)
    for name in ("asyncio", "aiosqlite", "interturn", "anyio"):
        caplog.set_level(logging.DEBUG, logger=name)

    def check() -> int:
        for record in caplog.records:
            shown = f"{record.getMessage()} {vars(record)!r}"
            assert not _shows(shown), shown
            assert not any(id_ in shown for id_ in IDS)
        return len(caplog.records)

    return check


async def _talk(runtime, turns: int):
    session = runtime.session(IDS[0], customer=IDS[1])
    for number in range(turns):
        async with session.turn(
            TEXT.format(number),
            instructions=INSTRUCTIONS,
            knowledge=[KNOWLEDGE],
            delivery_id=f"{IDS[2]}-{number}",
        ) as turn:
            await turn.reply(REPLY)
    return session


async def test_the_raw_files_hold_nothing(opened, path, heard, capfd, keyring):
    """After writes, folds and drain no text and no id stands in any file, the log included."""
    keyring.save(path.parent / "memory.key")
    asyncio.get_running_loop().set_debug(True)
    async with opened(keys=path.parent / "memory.keys") as runtime:
        await _talk(runtime, 30)
        assert (path.parent / "memory.db-wal").stat().st_size > 0
        _clean_files(path.parent)
        await runtime.flush()
        assert WORD in (await runtime.session(IDS[0]).layers()).summary
        _clean_files(path.parent)
    assert _clean_files(path.parent) > 10_000
    async with opened(keys=path.parent / "memory.keys") as runtime:
        assert await runtime.customer(IDS[1]).sessions() == [IDS[0]]
        _clean_files(path.parent)
    assert heard() > 50
    shown = capfd.readouterr()
    assert not _shows(shown.out + shown.err)


async def test_a_needle_would_be_found(path):
    """The search itself works: what is written in clear is found."""
    path.write_bytes(b"\0" * 1_000 + TEXT.encode() + b"\0")
    with pytest.raises(AssertionError):
        _clean_files(path.parent)


async def test_failures_hold_nothing(opened, watched, path, heard, summarizer, clock, until):
    """What fails, on any path, tells nothing in its error, its chain, the log or the files."""
    answers = [
        RuntimeError(f"{TEXT} {REPLY}"),
        ValueError(TEXT),
        f"Error: {TEXT}",
        f"{TEXT} \ud83d",
        "",
        TEXT * 2_000,
    ]
    recorder = summarizer(lambda leaving, number: answers[number % len(answers)])
    settings = Settings(window=2, text_bytes=500)
    errors: list[BaseException] = []

    async def fails(kind, call) -> None:
        with pytest.raises(kind) as caught:
            await call
        assert isinstance(caught.value, InterturnError)
        errors.append(caught.value)

    async def turn(text=TEXT, **given):
        async with runtime.session(IDS[0]).turn(text, **given) as held:
            await held.reply(REPLY)

    async with opened(watched, summarizer=recorder, clock=clock, settings=settings) as runtime:
        session = await _talk(runtime, 8)
        await fails(InvalidText, turn(f"{TEXT} \ud83d"))
        await fails(InvalidText, turn(TEXT * 50))
        await fails(InvalidText, session.record(TEXT, f"{REPLY}\udc00"))
        await fails(InvalidText, turn(instructions=f"{INSTRUCTIONS}\ud83d"))
        await fails(InvalidText, turn(knowledge=[f"{KNOWLEDGE}\ud83d"]))
        await fails(InvalidId, turn(delivery_id=f"{IDS[2]}\ud83d"))
        await fails(InvalidId, turn(delivery_id=f"{IDS[2]}\n"))
        await fails(InvalidId, turn(delivery_id=IDS[2] * 40))
        for make in (runtime.session, runtime.customer):
            for id_ in (f"{IDS[0]}\ud83d", f"{IDS[0]}\0", IDS[0] * 40):
                with pytest.raises(InvalidId) as caught:
                    make(id_)
                errors.append(caught.value)
        await fails(BudgetExceeded, turn(budget=3))
        await fails(DeliveryConflict, turn("otras palabras", delivery_id=f"{IDS[2]}-7"))
        await fails(CustomerMismatch, runtime.session(IDS[0], customer="eve").layers())
        for error in (
            StoreFailed("SQLITE_FULL"),
            StoreFailed("SQLITE_IOERR", unknown=True),
            RuntimeError(f"INSERT {TEXT}"),
            KeyError(IDS[0]),
        ):
            watched.fail("commit", error)
            await fails(StoreFailed, session.record(TEXT, REPLY))
        await runtime.flush()
        runtime._inside.cell(IDS[0]).leave()
        watched.fail("load_session", RuntimeError(f"{IDS[0]} {TEXT}"))
        await fails(InterturnError, session.layers())
        await session.record(TEXT, REPLY)
        async with session.turn("held"):
            late = asyncio.create_task(turn(timeout=1))
            await until(lambda: runtime.statistics().queued == 1)
            await clock.advance(2)
            await fails(TimeoutError, late)
            await fails(InterturnError, turn())
        await clock.advance(100)
        await runtime.flush()
        _clean_files(path.parent)
    await fails(InterturnError, session.layers())
    assert len(errors) > 20
    for error in errors:
        _clean_error(error)
    _clean_files(path.parent)
    assert heard() > 0


async def test_every_repr_is_discreet(opened, heard, clock):
    """The `repr` and `str` of every value and handle tells counts, never words or ids."""
    async with opened(clock=clock) as runtime:
        session = await _talk(runtime, 20)
        await runtime.flush()
        recorded = await session.record(TEXT, REPLY)
        layers = await session.layers()
        held = session.turn(
            TEXT, delivery_id=IDS[2], instructions=INSTRUCTIONS, knowledge=[KNOWLEDGE]
        )
        async with held as turn:
            request = turn.request
            tight = await session.assemble(TEXT, budget=150)
            inside = runtime._inside
            cell = inside.cell(IDS[0])
            actor = cell.actor
            values = [
                runtime, session, session.customer, runtime.customer(IDS[1]), turn, held,
                request, request.draft, request.receipt, tight, tight.receipt, recorded,
                recorded.reply, layers, layers.window, layers.window[0], runtime.statistics(),
                inside, inside._writer, inside.vault, cell, cell.keeping, cell.keeping.customer,
                actor, actor.memory(), actor._window, actor._summary,
                actor._summary.lines, actor._deliveries, runtime._settings, runtime._store,
                runtime._keyring, runtime._host, inside.folds, inside.jobs, inside.lessons,
                inside.arrivals, request.draft._memory,
            ]  # fmt: skip
            for value in values:
                for shown in (repr(value), str(value), f"{value}", f"{value!a}"):
                    assert not _shows(shown), type(value)
            assert f"<{len(TEXT.format(15))} characters>" in repr(layers.window[0])


async def test_where_an_id_would_stand_stands_a_keyed_hash(
    opened, heard, say, keyring, path, caplog
):
    """Errors and events name an actor by a keyed hash: the same here, another in another store."""
    keys = []
    for store in (path, path.with_name("other.db")):
        async with opened(store, settings=Settings(mailbox=1)) as runtime:
            keys.append(runtime._inside.cell(IDS[0]).key)
            assert runtime._inside.cell(IDS[0]).key == keys[-1]
    assert keys[0] != keys[1]
    assert all(key.startswith("session/") and len(key) == 20 for key in keys)
