"""Public calls with hostile arguments: a declared error, or the call does what it says.

``FUZZ_INPUTS=100000`` makes a long run of it.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from interturn.runtime import InterturnError, Keyring, MemoryStore, Runtime, Settings

FUZZ = settings(settings.get_profile("fuzz"))
CALLS_EACH = 8


class Vague(tzinfo):
    """A zone that doesn't know its offset: its times are naive all the same."""

    def utcoffset(self, dt):
        del dt

    dst = utcoffset


texts = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(), max_size=20),  # lone surrogates among them
    st.sampled_from(
        [
            "", " ", "\0", "a\0b", "\ud800", "x\udfff", "\u202eabc\u2066", "🙂" * 50, "é" * 3_000,
            "<|endoftext|>", "</knowledge>", "ａ", "\ufeff", "\r\n", "a" * 10_240, "x " * 40_000,
        ]
    ),
)  # fmt: skip
ids = st.one_of(
    texts,
    st.sampled_from(
        [
            "../../etc/x",
            "C:\\x",
            "x'; DROP TABLE messages;--",
            "%",
            "_",
            "s",
            "c",
            "🙂",
            "ａ",
            "None",
        ]
    ),
)
junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=8),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.none()),
    st.just(object()), st.just(...), st.builds(set), st.just(10**400), st.just(-(10**400)),
)  # fmt: skip
knowledge = st.one_of(
    st.lists(texts, max_size=4), st.tuples(texts), texts, junk, st.lists(junk, max_size=3)
)
numbers = st.one_of(
    st.integers(), st.integers(0, 10_000), st.floats(), st.just(math.nan), st.just(10**400), junk
)
times = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(),
    st.sampled_from(
        [
            datetime(1, 1, 1), datetime.min.replace(tzinfo=UTC),  # noqa: DTZ001 - naive
            datetime.max.replace(tzinfo=timezone(-timedelta(hours=20))),
            datetime(2026, 3, 3, tzinfo=Vague()), date(2026, 3, 3), timedelta(1), "2026-03-03", 0.0,
        ]
    ),
    junk,
)  # fmt: skip


def mostly(good, *bad):
    """Return a strategy that is good more often than not, so that calls come far."""
    return st.one_of(good, good, *bad)


class Call(NamedTuple):
    """A public call and its arguments."""

    name: str
    session: object
    customer: object
    given: dict[str, object]


def _call(name, required=(), **optional):
    given = st.fixed_dictionaries(dict(required), optional=optional)
    owner = st.one_of(st.none(), mostly(st.just("c"), ids, junk))
    return st.builds(Call, st.just(name), mostly(st.just("s"), ids, junk), owner, given)


text = mostly(st.just("hola"), texts, junk)
identity = mostly(st.just("d"), ids, junk)
request = {"instructions": text, "knowledge": knowledge, "budget": mostly(st.none(), numbers)}
calls = st.one_of(
    _call(
        "turn", {"text": text, "answer": text},
        **request, delivery_id=identity, timeout=mostly(st.none(), numbers), at=times,
    ),
    _call("assemble", {"text": text}, **request),
    _call("record", {"visitor": text, "agent": text}, delivery_id=identity, at=times),
    _call("identify", {"customer_id": identity}),
    _call("layers"), _call("undo"), _call("delete"), _call("forget"), _call("sessions"),
    _call("recall", {"query": text}, limit=numbers, tokens=numbers),
    _call("remember", {"text": text}, slot=identity),
    _call("retract", {"fact_id": identity}),
    _call("merge", {"other_id": identity}),
)  # fmt: skip

OF_CUSTOMER = {"recall", "remember", "retract", "merge", "forget", "sessions"}


async def _made(runtime, call):
    """Make a call; whatever isn't a declared error is a fault."""
    given = dict(call.given)
    try:
        if call.name in OF_CUSTOMER:
            customer = runtime.customer(call.customer)
            return await getattr(customer, call.name)(**given)
        session = runtime.session(call.session, customer=call.customer)
        if call.name != "turn":
            return await getattr(session, call.name)(**given)
        answer, at = given.pop("answer"), given.pop("at", None)
        async with session.turn(**given) as turn:
            if turn.already is None:
                assert turn.request.tokens >= 0
            return await turn.reply(answer, at=at)
    except InterturnError as error:
        assert error.__cause__ is None
        return error


class Bytes:
    """Counts bytes."""

    name = "bytes"
    byte_level = True

    def count(self, text):
        return len(text.encode())


async def _through(made):
    async with Runtime.open(
        MemoryStore(),
        keyring=Keyring.generate(),
        counter=Bytes(),
        settings=Settings(text_bytes=20_000),
    ) as runtime:
        await runtime.session("kept", customer="keeper").record("dicho", "hecho")
        for call in made:
            await _made(runtime, call)
        kept = runtime.session("kept", customer="keeper")
        assert [m.text async for m in kept.transcript()] == ["dicho", "hecho"]
        session = runtime.session("s")
        seqs = [message.seq async for message in session.transcript()]
        async with session.turn("¿Sirve?", timeout=0) as turn:
            assert (await turn.reply("Sirve.")).seq == len(seqs) + 1
        statistics = runtime.statistics()
        assert (statistics.failures, statistics.held, statistics.queued) == (0, 0, 0)


@FUZZ
@given(st.lists(calls, min_size=1, max_size=CALLS_EACH))
def test_hostile_arguments_are_refused_or_kept(made):
    """P16, P17: a call with any arguments ends declared, and everybody is served after it."""
    asyncio.run(_through(made))


@FUZZ
@given(
    st.dictionaries(st.sampled_from(Settings.__struct_fields__), st.one_of(junk, numbers, texts))
)
def test_settings_of_any_kind_are_refused_or_held(given_):
    """A setting of any type or size is `InvalidSettings`, or stands as it was given."""
    try:
        made = Settings(**given_)
    except InterturnError:
        return
    assert all(getattr(made, name) == value for name, value in given_.items())
