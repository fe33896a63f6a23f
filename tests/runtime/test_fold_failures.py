"""Folds that fail, hang or answer nonsense: no turn notices, and nothing is lost or laid twice."""

# ruff: noqa: ARG002, ARG005 - a port's arguments have their names

from __future__ import annotations

import asyncio
from itertools import chain, pairwise

import pytest

from interturn.runtime import MemoryStore, Settings, StoreFailed

pytestmark = pytest.mark.anyio


def _text(number: int) -> str:
    return f"Ana cambió el pedido {40_000 + number} para el día {number % 28 + 1}."


async def _spoken(say, session, turns, start=0):
    for number in range(start, start + turns):
        await say(session, _text(number), "De acuerdo.")


class Oddity(BaseException):
    """What no library should raise."""


FAILURES = {
    "an error": lambda: RuntimeError("the model is down: 503"),
    "a timeout": TimeoutError,
    "a cancellation of its own": asyncio.CancelledError,
    "a group": lambda: ExceptionGroup("several", [ValueError("a"), OSError("b")]),
    "an exit of a generator": StopAsyncIteration,
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_summarizer_that_raises_three_times(
    opened, summarizer, clock, say, no_gap, failure, balanced
):
    """Summary and cursor stay after each failure; after success each message went in once."""
    recorder = summarizer(
        lambda leaving, number: failure() if number <= 3 else " ".join(m.text for m in leaving)
    )
    async with opened(MemoryStore(), summarizer=recorder, clock=clock) as runtime:
        session = runtime.session("s")
        await _spoken(say, session, 10)
        while len(recorder.leaving) < 4:
            layers = await session.layers()
            assert (layers.summary, layers.cursor) == ("", 0)
            no_gap(layers, 20)
            await say(runtime.session(f"other at {clock.now}"), "sigue")
            await clock.advance(0.4)
        await runtime.flush()
        assert runtime.statistics().folds_failed == 3
        assert (await session.layers()).cursor == 8
        assert _text(0) in (await session.layers()).summary
        balanced(runtime, at_rest=True)
    assert recorder.leaving[-1][0] == 1
    assert list(chain.from_iterable(recorder.leaving[3:])) == list(range(1, 9))


async def test_a_failed_fold_rests_longer_each_time(opened, summarizer, clock, say):
    """A fold that fails is tried again with back-off: from 1 s, doubling, at most 60 s."""
    tried = []
    recorder = summarizer(lambda *_: tried.append(clock.now) or RuntimeError())
    stays = Settings(idle_s=3_600)
    given = {"summarizer": recorder, "clock": clock, "settings": stays}
    async with opened(MemoryStore(), **given) as runtime:
        await _spoken(say, runtime.session("s"), 7)
        await clock.advance(400)
    rests = [later - earlier for earlier, later in pairwise(tried)]
    assert len(rests) > 10
    for attempt, rest in enumerate(rests):
        ceiling = min(60, 2**attempt)
        assert ceiling / 2 <= rest <= ceiling
    assert len(set(rests)) == len(rests), "no jitter"


async def test_a_flush_tries_what_rests_once(opened, summarizer, clock, say):
    """`flush` tries a fold that rests once more at once, and leaves it to its back-off."""
    recorder = summarizer(lambda *_: RuntimeError())
    async with opened(MemoryStore(), summarizer=recorder, clock=clock) as runtime:
        await _spoken(say, runtime.session("s"), 7)
        await runtime.flush()
        asked = len(recorder.leaving)
        await runtime.flush()
        assert len(recorder.leaving) == asked + 1


NONSENSE = {
    "empty": "",
    "blank": " \n\t ",
    "none": "NONE",
    "none, politely": "No new information to add.",
    "null": "null",
    "an error": "Error: 503 Service Unavailable",
    "an exception": "Traceback (most recent call last):\n  File",
    "json error": '{"error": {"message": "rate limited"}}',
    "a lone surrogate": "Ana pidió \ud83d",
    "no text": 7,
    "bytes": b"Ana",
    "None": None,
    "a list": ["Ana"],
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_is_refused_and_the_surplus_waits(
    opened, summarizer, clock, say, no_gap, answer
):
    """An answer that is empty, none, an error or no text is refused; the surplus waits."""
    recorder = summarizer(lambda leaving, number: answer)
    async with opened(MemoryStore(), summarizer=recorder, clock=clock) as runtime:
        session = runtime.session("s")
        await _spoken(say, session, 12)
        await runtime.flush()
        layers = await session.layers()
        assert (layers.summary, layers.cursor) == ("", 0)
        no_gap(layers, 24)
        assert runtime.statistics().folds == 0
        recorder.answer = lambda leaving, _: " ".join(m.text for m in leaving)
        await clock.advance(60)
        await runtime.flush()
        assert (await session.layers()).cursor == 12


async def test_a_repetition_is_refused(opened, summarizer, clock, say, no_gap):
    """An answer that only repeats the summary, or the messages' prompt, adds nothing."""
    recorder = summarizer()
    recorder.answer = lambda leaving, number: (
        f"{leaving[0].text}" if number == 1 else recorder.prompts[-1]
    )
    async with opened(MemoryStore(), summarizer=recorder, clock=clock) as runtime:
        session = runtime.session("s")
        await _spoken(say, session, 7)
        await runtime.flush()
        first = await session.layers()
        assert first.cursor == 2
        await _spoken(say, session, 4, start=7)
        await runtime.flush()
        layers = await session.layers()
        assert (layers.summary, layers.cursor) == (first.summary, 2)
        no_gap(layers, 22)


async def test_five_thousand_words_fifty_times(opened, summarizer, say, counter, no_gap):
    """A model that always answers 5,000 words never gets the summary over its cap."""
    recorder = summarizer(
        lambda leaving, number: " ".join(f"palabra{number}-{i}" for i in range(5_000))
    )
    settings = Settings(summary_tokens=300)
    async with opened(MemoryStore(), summarizer=recorder, settings=settings) as runtime:
        session = runtime.session("s")
        for number in range(50):
            await say(session, _text(number), "De acuerdo.")
            await runtime.flush()
            layers = await session.layers()
            assert counter.count(layers.summary) <= 300
            layers.summary.encode()
            no_gap(layers, 2 * number + 2)
        assert layers.cursor == 100 - 12
        assert "palabra" not in layers.summary  # asked once more, then left to the offline one
        assert runtime.statistics().folds_offline == runtime.statistics().folds > 40
    folds = recorder.leaving
    assert folds[::2] == folds[1::2]


async def test_a_model_that_hangs_is_replaced_at_four_windows(
    opened, recorder, say, no_gap, balanced, until, clock
):
    """At four windows of surplus the offline summarizer takes over: memory is bounded."""
    recorder.gate = asyncio.Event()
    async with opened(MemoryStore(), summarizer=recorder, clock=clock) as runtime:
        session = runtime.session("s")
        most = 0
        for number in range(200):
            await say(session, _text(number), "De acuerdo.")
            layers = await session.layers()
            no_gap(layers, 2 * number + 2)
            most = max(most, len(layers.surplus))
            if len(layers.surplus) >= 48:
                await until(lambda: runtime.statistics().folds_offline)
        statistics = runtime.statistics()
        assert most <= 50
        assert statistics.folds_offline == statistics.folds >= 3
        recorder.gate.set()
        await runtime.flush()
        no_gap(await session.layers(), 400)
        balanced(runtime, at_rest=True)


async def test_what_a_replaced_fold_answers_later_counts_no_more(opened, say, no_gap, until):
    """A fold that was replaced and answers all the same, late, is not laid."""
    late = asyncio.Event()

    class Stubborn:
        calls = 0

        async def fold(self, summary, leaving, *, cap_tokens):
            self.calls += 1
            if self.calls > 1:
                return "Ana pidió algo el 3 de mayo."
            try:
                await late.wait()
            except asyncio.CancelledError:
                return "Luis canceló todo el 4 de mayo."
            return "Luis canceló todo el 4 de mayo."

    async with opened(MemoryStore(), summarizer=Stubborn()) as runtime:
        session = runtime.session("s")
        await _spoken(say, session, 31)
        late.set()
        await runtime.flush()
        layers = await session.layers()
        no_gap(layers, 62)
        assert "Luis" not in layers.summary


async def test_no_fold_fails_a_turn(opened, summarizer, say, pairs):
    """Whatever folds do, 100 turns are recorded, each in its place."""
    answers = list(FAILURES.values()) + [lambda a=a: a for a in NONSENSE.values()]
    recorder = summarizer(lambda leaving, number: answers[number % len(answers)]())
    async with opened(summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        for number in range(100):
            await say(session, _text(number), "De acuerdo.")
            if number % 3 == 0:
                await runtime.flush()
        assert [said for said, _ in await pairs(session)] == [_text(n) for n in range(100)]


@pytest.mark.parametrize("applied", [False, True])
async def test_a_fold_that_cant_be_written_is_folded_again(
    opened, watched, recorder, say, no_gap, applied, pairs
):
    """A fold whose write failed, or may have, is read back: nothing is folded twice or lost."""
    async with opened(watched, summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        await say(session, _text(0))
        watched.fail("commit", StoreFailed("disk", unknown=applied), nth=2, applied=applied)
        await say(session, _text(1))
        await runtime.flush()
        layers = await session.layers()
        await runtime.flush()
        layers = await session.layers()
        no_gap(layers, 4, window=2)
        assert layers.cursor == 2
        assert _text(0) in layers.summary
        assert recorder.leaving == ([[1, 2]] if applied else [[1, 2], [1, 2]])
        assert len(await pairs(session)) == 2


async def test_a_turn_held_while_a_fold_cant_be_written_is_kept(
    opened, watched, recorder, say, until, pairs
):
    """A fold's failed write drops the actor's state, and not the turn that is held."""
    recorder.gate = asyncio.Event()
    async with opened(watched, summarizer=recorder, settings=Settings(window=2)) as runtime:
        session = runtime.session("s")
        await say(session, _text(0))
        await say(session, _text(1))
        await until(lambda: recorder.leaving)
        async with session.turn(_text(2)) as turn:
            waiting = asyncio.create_task(say(session, _text(3)))
            await until(lambda: runtime.statistics().queued == 1)
            watched.fail("commit", StoreFailed("disk"))
            recorder.gate.set()
            await until(lambda: runtime.statistics().activations == 2)
            assert not waiting.done()
            await turn.reply("bien")
        await waiting
        assert [said for said, _ in await pairs(session)] == [_text(n) for n in range(4)]


async def test_an_exit_asked_for_in_a_summarizer_is_obeyed(opened, summarizer, say):
    """Only what nothing may swallow passes through a fold, and the runtime still drains."""
    recorder = summarizer(lambda *_: Oddity())
    runtime = opened(MemoryStore(), summarizer=recorder, settings=Settings(window=2))
    await runtime.__aenter__()
    session = runtime.session("s")
    await say(session, _text(0))
    await say(session, _text(1))
    await asyncio.wait([runtime._host])
    with pytest.raises(BaseException):  # noqa: B017, PT011 - closed, with whatever cause
        await say(session, _text(2))
