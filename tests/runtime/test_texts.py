"""Texts and ids: kept byte for byte, or refused at the door by a typed error."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from interturn.runtime import InvalidId, InvalidText, Settings

pytestmark = pytest.mark.anyio

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

SURROGATES = ["hola \ud83d", "\udb8d", "a\udc00b", json.loads('"\\udb8d"')]
OPAQUE = [
    "../../etc/x", "a/b", "C:\\x", "x'; DROP TABLE messages;--", "%", "_", "🙂", "ａ", "a", "A",
    "ñ", unicodedata.normalize("NFD", "ñ"), " ", " a", "a ", "x" * 512, "é" * 256, "None", "0",
]  # fmt: skip


def _data(name: str) -> Path:
    file = DATA / name
    if not file.exists():
        pytest.skip(f"{file} is not there")
    return file


async def test_every_naughty_string_round_trips_or_is_refused(opened, pairs):
    """Each string of the big list is kept byte for byte, or refused as the empty one is."""
    strings = json.loads(_data("blns/blns.json").read_text("utf-8"))
    kept = []
    async with opened() as runtime:
        session = runtime.session("s")
        for number, text in enumerate(strings):
            if not text:
                with pytest.raises(InvalidText):
                    await session.record(text, "r")
                continue
            if number % 2:
                async with session.turn(text, instructions=text, knowledge=[text]) as turn:
                    assert turn.request.messages[-1]["content"] == text
                    await turn.reply(text)
            else:
                await session.record(text, text)
            kept.append((text, text))
        await runtime.flush()
    async with opened() as runtime:
        assert await pairs(runtime.session("s")) == kept


async def test_every_naughty_string_is_an_id_or_refused(opened, say, pairs):
    """Each string of the big list finds its own session as an id, or is `InvalidId`."""
    strings = sorted(set(json.loads(_data("blns/blns.json").read_text("utf-8"))))
    async with opened() as runtime:
        taken = []
        for text in strings:
            try:
                session = runtime.session(text, customer=text)
            except InvalidId:
                control = any(unicodedata.category(c) == "Cc" for c in text)
                assert not text or control or len(text.encode()) > 512
                continue
            await say(session, text, delivery_id=text)
            taken.append(text)
        for text in taken:
            assert await pairs(runtime.session(text)) == [(text, f"re: {text}")]
            assert await runtime.customer(text).sessions() == [text]
    assert len(taken) > 400


async def test_a_very_long_paste(opened, pairs, say):
    """The opening of the Quijote, whole, is one message among others, and folds."""
    long = _data("long_text_es/quijote_excerpt.txt").read_text("utf-8")
    async with opened(counter=None) as runtime:
        session = runtime.session("s")
        await say(session, long, "Bonito.", budget=1_000_000)
        for number in range(8):
            await say(session, f"¿Y luego {number}?", "Sigue.")
        await runtime.flush()
        layers = await session.layers()
        assert layers.cursor == 6
        request = await session.assemble("Resume.", budget=2_000)
        assert request.tokens <= 2_000
        assert (await pairs(session))[0] == (long, "Bonito.")


async def test_special_tokens_are_ordinary_text(opened, pairs):
    """Text that looks like a special token is counted and kept as any other."""
    text = "¿qué hace <|endoftext|> y <|im_start|> y <|fim_prefix|>?"
    async with opened(counter=None) as runtime:
        session = runtime.session("s")
        for _ in range(10):
            async with session.turn(text, instructions=text, knowledge=[text]) as turn:
                assert turn.request.tokens > 0
                await turn.reply(text)
        await runtime.flush()
        assert await pairs(session) == [(text, text)] * 10


@pytest.mark.parametrize("text", SURROGATES)
async def test_half_a_character_is_refused_at_the_door(opened, text, pairs, say):
    """A lone surrogate is refused in any text or id before anything is written."""
    async with opened() as runtime:
        session = runtime.session("s")
        calls = [
            lambda: say(session, text),
            lambda: session.record(text, "r"),
            lambda: session.record("v", text),
            lambda: session.assemble(text),
            lambda: say(session, "v", instructions=text),
            lambda: session.assemble("v", knowledge=["good", text]),
        ]
        for call in calls:
            with pytest.raises(InvalidText):
                await call()
        for make in (runtime.session, runtime.customer):
            with pytest.raises(InvalidId):
                make(text)
        with pytest.raises(InvalidId):
            runtime.session("s", customer=text)
        with pytest.raises(InvalidId):
            await say(session, "v", delivery_id=text)
        await say(session, "bien")
        assert await pairs(session) == [("bien", "re: bien")]


@pytest.mark.parametrize(
    "text", ["ab\0cd", "\x1b[31mrojo", "\r\n\t", "\ufeffx", "\u202ex", "e\u0301"]
)
async def test_control_characters_are_kept_in_texts_and_refused_in_ids(opened, text, pairs, say):
    """NUL, escapes and the like round-trip in texts byte for byte; ids have none."""
    async with opened() as runtime:
        session = runtime.session("s")
        await say(session, text, text)
        assert await pairs(session) == [(text, text)]
        if any(unicodedata.category(c) == "Cc" for c in text):
            with pytest.raises(InvalidId):
                runtime.session(text)
            with pytest.raises(InvalidId):
                await session.record("v", "r", delivery_id=text)
        else:
            assert await pairs(runtime.session(text)) == []


async def test_ids_are_opaque(opened, say, pairs, path):
    """An id is matched exactly, whatever it looks like, and makes no file and no wildcard."""
    async with opened() as runtime:
        for id_ in OPAQUE:
            await say(runtime.session(id_, customer=id_), f"soy {id_}")
        for id_ in OPAQUE:
            assert await pairs(runtime.session(id_)) == [(f"soy {id_}", f"re: soy {id_}")]
            assert await runtime.customer(id_).sessions() == [id_]
        names = {file.name for file in path.parent.iterdir()}
    assert names <= {"memory.db", "memory.db-wal", "memory.db-shm", "memory.db-lock"}


@pytest.mark.parametrize(
    "bad", ["", "x" * 513, "é" * 257, "a\nb", "a\x7f", "a\x85", b"bytes", 7, None]
)
async def test_ids_that_cant_be_kept(opened, bad, say):
    """An id that is empty, over 512 bytes, no text or has control characters is `InvalidId`."""
    async with opened() as runtime:
        with pytest.raises(InvalidId) as caught:
            runtime.session(bad)
        assert isinstance(caught.value, ValueError)
        with pytest.raises(InvalidId):
            runtime.customer(bad)
        if bad is not None:
            with pytest.raises(InvalidId):
                runtime.session("s", customer=bad)
            with pytest.raises(InvalidId):
                await say(runtime.session("s"), "v", delivery_id=bad)
        assert runtime.statistics().accepted == 0


@pytest.mark.parametrize("bad", ["", None, 7, b"bytes", ["a"]])
async def test_texts_that_arent(opened, bad, pairs):
    """What is no text, or empty, is refused before anything is written."""
    async with opened() as runtime:
        session = runtime.session("s")
        for arguments in ((bad, "r"), ("v", bad)):
            with pytest.raises(InvalidText):
                await session.record(*arguments)
        with pytest.raises(InvalidText):
            async with session.turn(bad):
                pass
        assert await pairs(session) == []


async def test_a_text_over_its_bound_is_refused_up_front(opened, say, pairs):
    """A text just over `text_bytes` is refused, one of just that many bytes is kept."""
    async with opened(settings=Settings(text_bytes=1_000)) as runtime:
        session = runtime.session("s")
        for text in ("x" * 1_001, "é" * 501, "🙂" * 251):
            with pytest.raises(InvalidText, match=r"1,00\d bytes of UTF-8, 1,000 allowed"):
                await say(session, text)
            with pytest.raises(InvalidText):
                await session.assemble("v", knowledge=[text])
            with pytest.raises(InvalidText):
                await session.assemble("v", instructions=text)
        await say(session, "🙂" * 250, "r")
    async with opened() as runtime:
        with pytest.raises(InvalidText, match="allowed"):
            await runtime.session("s").record("x" * 50_000_000, "r")
        assert await pairs(runtime.session("s")) == [("🙂" * 250, "r")]
