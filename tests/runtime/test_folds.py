"""Folds: each message folded exactly once, in order, with no gap and no turn held up."""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import random
from itertools import chain

import pytest

from interturn.runtime import MemoryStore, Settings, SqliteStore

pytestmark = pytest.mark.anyio

TURNS = 1_000


def _text(number: int) -> str:
    words = ["pedido", "factura", "cita", "reserva", "entrega", "visita", "llamada", "devolución"]
    names = ("Ana", "Luis", "Marta", "Íñigo", "Zoë")
    what = f"{words[number % 8]} {10_000 + number}"
    return f"{names[number % 5]} pidió la {what} para el día {number % 28 + 1}."


def _folded(recorder) -> list[int]:
    return list(chain.from_iterable(recorder.leaving))


class Witness:
    """Looks at a session's layers after each step, and holds them to what must always hold."""

    def __init__(self, cap_tokens, counter, no_gap, window=12) -> None:
        self.cap_tokens = cap_tokens
        self.count = counter.count
        self.no_gap = no_gap
        self.window = window
        self.cursor = 0
        self.lines: list[str] = []
        self.gone: set[str] = set()

    async def look(self, session, last: int) -> None:
        layers = await session.layers()
        self.no_gap(layers, last, self.window)
        assert layers.cursor >= self.cursor, "the cursor went back"
        self.cursor = layers.cursor
        assert self.count(layers.summary) <= self.cap_tokens
        lines = layers.summary.split("\n") if layers.summary else []
        # What lay there stays word for word and in order, or is gone whole.
        stays = [line for line in self.lines if line in lines]
        assert lines[: len(stays)] == stays
        gone = set(self.lines) - set(stays)
        if gone:
            added = [line for line in lines if line not in self.lines]
            before = self.count("\n".join([*self.lines, *added]))
            assert before > self.cap_tokens * 0.8, "a line went though there was room"
        self.lines = lines


@pytest.mark.parametrize("fold_at", [2, 6])
async def test_each_message_is_folded_exactly_once_in_order(
    opened, recorder, say, no_gap, counter, fold_at, balanced
):
    """Over 1,000 turns each message is folded once, in order; nothing is ever between."""
    settings = Settings(summary_tokens=300, fold_at=fold_at, durability="normal")
    async with opened(summarizer=recorder, settings=settings) as runtime:
        session = runtime.session("s")
        witness = Witness(300, counter, no_gap)
        for number in range(TURNS):
            await say(session, _text(number), "De acuerdo.")
            await witness.look(session, 2 * number + 2)
        await runtime.flush()
        await witness.look(session, 2 * TURNS)
        balanced(runtime, at_rest=True)
    folded = _folded(recorder)
    assert folded == list(range(1, len(folded) + 1))
    assert 2 * TURNS - 12 - len(folded) < fold_at
    assert all(len(leaving) % 2 == 0 for leaving in recorder.leaving)
    assert max(map(len, recorder.leaving)) <= 48


async def test_folds_that_are_slow(opened, summarizer, say, no_gap, counter, until, balanced):
    """With folds that end long after, in bursts, each message is still folded once, in order."""
    chance = random.Random(2)
    recorder = summarizer()
    recorder.gate = asyncio.Event()
    async with opened(MemoryStore(), summarizer=recorder) as runtime:
        session = runtime.session("s")
        witness = Witness(400, counter, no_gap)
        for number in range(TURNS):
            await say(session, _text(number), "De acuerdo.")
            await witness.look(session, 2 * number + 2)
            if chance.random() < 0.1:
                gate, recorder.gate = recorder.gate, asyncio.Event()
                gate.set()
                for _ in range(chance.randrange(10)):
                    await asyncio.sleep(0)
                    await witness.look(session, 2 * number + 2)
        recorder.gate.set()
        recorder.gate = None
        await runtime.flush()
        await witness.look(session, 2 * TURNS)
        assert witness.cursor == 2 * TURNS - 12
        balanced(runtime, at_rest=True)
        offline = runtime.statistics().folds_offline
    folded = _folded(recorder)
    assert folded == sorted(folded)
    assert len(folded) == len(set(folded))
    if not offline:
        assert folded == list(range(1, 2 * TURNS - 11))


async def test_a_turn_recorded_meanwhile_waits_for_the_next_fold(opened, recorder, say, until):
    """A turn recorded while a fold is under way isn't lost to it, nor folded twice."""
    recorder.gate = asyncio.Event()
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(2):
            await say(session, _text(number))
        await until(lambda: recorder.leaving == [[1, 2]])
        await say(session, _text(2))
        assert runtime.statistics().folding == 1
        layers = await session.layers()
        assert ([m.seq for m in layers.surplus], layers.cursor) == ([1, 2, 3, 4], 0)
        recorder.gate.set()
        await runtime.flush()
        assert recorder.leaving == [[1, 2], [3, 4]]
        assert recorder.prompts[1] != ""


async def test_what_waits_for_its_fold_is_sent_word_for_word(opened, recorder, say, until):
    """A surplus message is in the request, above the window, until its fold is in."""
    recorder.gate = asyncio.Event()
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(3):
            await say(session, _text(number), "Vale.")
        sent = (await session.assemble("?")).messages
        said = [m["content"] for m in sent if m["role"] != "system"]
        assert said == [_text(0), "Vale.", _text(1), "Vale.", _text(2), "Vale.", "?"]
        recorder.gate.set()
        await runtime.flush()
        messages = (await session.assemble("?")).messages
        assert messages[0]["role"] == "system"
        assert _text(0) in messages[0]["content"]
        assert _text(1) in messages[0]["content"]
        assert [m["content"] for m in messages[1:]] == [_text(2), "Vale.", "?"]


async def test_the_newest_is_never_in_the_summary(opened, recorder, say, no_gap):
    """With the smallest window, what is folded and what is in the window never overlap."""
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(30):
            await say(session, _text(number))
            await runtime.flush()
            layers = await session.layers()
            no_gap(layers, 2 * number + 2, window=2)
            assert layers.window[0].text == _text(number)
            assert _text(number) not in layers.summary


async def test_a_long_import_is_folded_in_batches(opened, recorder, say, no_gap):
    """After 500 imported turns the first answer waits for no fold, and nothing is missed."""
    recorder.gate = asyncio.Event()
    async with opened(MemoryStore(), summarizer=recorder) as runtime:
        session = runtime.session("s")
        for number in range(500):
            await session.record(_text(number), "Vale.")
        await say(session, "Hola")
        no_gap(await session.layers(), 1_002)
        recorder.gate.set()
        await runtime.flush()
        assert (await session.layers()).cursor == 990
    assert max(map(len, recorder.leaving)) <= 48


async def test_a_backlog_at_once_hangs_nothing(opened, no_gap, balanced):
    """A burst of over four windows, while the first fold hangs: it is replaced, and ends."""

    class HangsOnce:
        calls = 0

        async def fold(self, summary, leaving, *, cap_tokens):
            self.calls += 1
            if self.calls == 1:
                await asyncio.Event().wait()
            return " ".join(message.text for message in leaving)

    async with opened(MemoryStore(), summarizer=HangsOnce()) as runtime:
        session = runtime.session("s")
        await session.layers()
        await asyncio.gather(*(session.record(_text(n), "Vale.") for n in range(60)))
        await runtime.flush()
        layers = await session.layers()
        no_gap(layers, 120)
        assert layers.cursor == 108
        assert runtime.statistics().folding == 0
        balanced(runtime, at_rest=True)


async def test_nothing_new_makes_no_call(opened, recorder, say):
    """Flushing, looking and reopening with nothing new asks the summarizer nothing."""
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        for number in range(10):
            await say(runtime.session("s"), _text(number))
        await runtime.flush()
        asked, summary = len(recorder.leaving), (await runtime.session("s").layers()).summary
        for _ in range(5):
            await runtime.flush()
            await runtime.session("s").assemble("¿?")
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        assert (await runtime.session("s").layers()).summary == summary
        await runtime.flush()
    assert len(recorder.leaving) == asked


async def test_a_smaller_window_folds_the_rest(opened, recorder, say, no_gap):
    """Reopened with another window, the surplus is what lies before it, and is folded."""
    async with opened(summarizer=recorder) as runtime:
        for number in range(6):
            await say(runtime.session("s"), _text(number))
    async with opened(summarizer=recorder, settings=Settings(window=4)) as runtime:
        await runtime.session("s").layers()
        await runtime.flush()
        no_gap(await runtime.session("s").layers(), 12, window=4)
        assert recorder.leaving == [list(range(1, 9))]
    async with opened(summarizer=recorder, settings=Settings(window=12)) as runtime:
        no_gap(await runtime.session("s").layers(), 12, window=12)
        for number in range(6, 20):
            await say(runtime.session("s"), _text(number))
        await runtime.flush()
        no_gap(await runtime.session("s").layers(), 40)
    assert _folded(recorder) == list(range(1, 29))


async def test_the_summary_never_exceeds_a_smaller_cap(opened, recorder, say, counter):
    """Reopened with a smaller cap, the summary is within it."""
    async with opened(summarizer=recorder) as runtime:
        for number in range(40):
            await say(runtime.session("s"), _text(number))
    async with opened(summarizer=recorder, settings=Settings(summary_tokens=100)) as runtime:
        assert counter.count((await runtime.session("s").layers()).summary) <= 100
        await say(runtime.session("s"), _text(40))
        await runtime.flush()
        assert counter.count((await runtime.session("s").layers()).summary) <= 100


@pytest.mark.parametrize("sqlite", [False, True])
async def test_the_offline_summarizer_over_a_thousand_turns(
    opened, say, no_gap, counter, sqlite, path
):
    """With no model at all, the same holds over 1,000 turns."""
    store = SqliteStore(path, durability="normal") if sqlite else MemoryStore()
    async with opened(store) as runtime:
        session = runtime.session("s")
        witness = Witness(400, counter, no_gap)
        for number in range(TURNS if sqlite else 200):
            await say(session, _text(number), "De acuerdo, queda anotado.")
            await witness.look(session, 2 * number + 2)
        await runtime.flush()
        layers = await session.layers()
        assert layers.cursor == layers.window[0].seq - 1
        assert runtime.statistics().folds_offline == 0
