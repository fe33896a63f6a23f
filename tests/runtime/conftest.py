"""What the runtime's tests share: a clock moved by hand, a cheap counter, watched stores.

Nothing sleeps. What happens in the event loop is waited for by `until`, which gives the
loop away and looks again; time passes when a test says `await clock.advance(seconds)`.
"""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import types
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

import anyio
import hypothesis
import pytest

from interturn.actors import FactChange
from interturn.runtime import Keyring, Runtime
from interturn.storage import Faulty, SqliteStore

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
_TICKS = 300_000  # a loop that is given away this often and changes nothing hangs


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio, which aiosqlite needs."""
    return "asyncio"


class ByteCounter:
    """Counts a token for each started four bytes, and how often it was asked for each text."""

    name = "bytes/4"
    byte_level = True

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        return self.asked.total()

    def count(self, text: str) -> int:
        self.asked[text] += 1
        return (len(text.encode()) + 3) // 4


@pytest.fixture
def counter() -> ByteCounter:
    """A cheap exact counter that remembers what it was asked."""
    return ByteCounter()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring.generate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database is, or will be."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "memory.db"


class Hurried(Runtime):
    """A runtime that closes at once where a test has failed, though its clock stands still."""

    async def __aexit__(self, kind, error, trace):
        hurry = None
        if kind is not None and isinstance(self._clock, ManualClock):
            hurry = asyncio.create_task(self._clock.advance(100_000))
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if hurry is not None:
                hurry.cancel()


@pytest.fixture
def opened(path, keyring, counter):
    """Make runtimes with a cheap counter, each in its test's file or the store that is given."""

    def make(store=None, **given):
        given = {"keyring": keyring, "counter": counter} | given
        return Hurried.open(path if store is None else store, **given)

    return make


async def _until(condition: Callable[[], object]) -> None:
    for _ in range(_TICKS):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("what was waited for never came")


@pytest.fixture
def until():
    """Give the loop away until a condition holds."""
    return _until


async def _settle(ticks: int = 30) -> None:
    for _ in range(ticks):
        await asyncio.sleep(0)


@pytest.fixture
def settle():
    """Let everything in the loop that can go on without disk or time go on."""
    return _settle


class ManualClock:
    """Time that passes only by `advance`; ``wall`` may also be set back."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall = NOON
        self.slept: list[float] = []
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def utc(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        woken = asyncio.Event()
        if seconds <= 0:
            woken.set()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Let the loop settle, then time pass, waking whoever sleeps when their time comes."""
        await _settle()
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            when, _, woken = heapq.heappop(self._sleepers)
            self._go_to(max(self.now, when))
            woken.set()
            await _settle()
        self._go_to(until)
        await _settle()

    def _go_to(self, when: float) -> None:
        self.wall += timedelta(seconds=when - self.now)
        self.now = when


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Watched(Faulty):
    """A real store under watch: it fails as a test says, and waits.

    Attributes:
        commits: the writes of each commit.
        gates: an event to wait for before a method goes on.
        reached: which methods have waited at their gate, and how often.
    """

    def __init__(self, store) -> None:
        super().__init__(store)
        self.commits: list[list[object]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: Counter[str] = Counter()
        self.before = self._wait

    async def _wait(self, method: str) -> None:
        if (gate := self.gates.get(method)) is not None:
            self.reached[method] += 1
            await gate.wait()

    async def commit(self, writes):
        async def commit():
            self.commits.append(list(writes))
            return await self.inner.commit(writes)

        return await self._call("commit", commit)


@pytest.fixture
def watched(path) -> Watched:
    """The test's SQLite file, under watch."""
    return Watched(SqliteStore(path))


@pytest.fixture
def watch():
    """Put any store under watch: ``watch(MemoryStore())``."""
    return Watched


class Recorder:
    """A summarizer that remembers what it was given, and answers as it is told.

    Attributes:
        leaving: sequence numbers of the messages of each call.
        prompts: the summary that each call saw.
        answer: from the messages and the number of the call to what is returned.
        gate: if set, awaited before answering.
    """

    def __init__(self, answer=None) -> None:
        self.leaving: list[list[int]] = []
        self.prompts: list[str] = []
        self.answer = answer or (lambda leaving, _: " ".join(m.text for m in leaving))
        self.gate: asyncio.Event | None = None

    async def fold(self, summary, leaving, *, cap_tokens):
        self.prompts.append(summary)
        self.leaving.append([message.seq for message in leaving])
        number = len(self.leaving)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answer(leaving, number)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def summarizer():
    """Make a recording summarizer: ``summarizer(lambda leaving, number: …)``."""
    return Recorder


async def _say(session, text: str, answer: str | None = None, **given):
    async with session.turn(text, **given) as turn:
        return await turn.reply(answer or f"re: {text}")


@pytest.fixture
def say():
    """Hold a whole turn with a session, a text and maybe a reply."""
    return _say


async def _pairs(session) -> list[tuple[str, str]]:
    messages = [message async for message in session.transcript()]
    assert [m.seq for m in messages] == list(range(1, len(messages) + 1))
    assert [m.role for m in messages] == ["visitor", "agent"] * (len(messages) // 2)
    texts = [message.text for message in messages]
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.fixture
def pairs():
    """Read a transcript as turns, each whole and in order, or fail."""
    return _pairs


def _balanced(statistics) -> None:
    s = statistics
    ended = s.replied + s.failed + s.withdrawn + s.expired
    assert s.accepted == ended + s.queued + s.in_flight, s


@pytest.fixture
def balanced():
    """Hold the books: accepted = replied + failed + withdrawn + expired (+ what is under way).

    ``balanced(runtime, at_rest=True)``: with nothing under way.
    """

    def check(runtime, *, at_rest: bool = False) -> None:
        statistics = runtime.statistics()
        _balanced(statistics)
        if at_rest:
            assert (statistics.queued, statistics.in_flight, statistics.held) == (0, 0, 0)

    return check


def _no_gap(layers, last: int, window: int = 12) -> None:
    """Each message is in the summary (up to the cursor), the surplus or the window."""
    seqs = [m.seq for m in (*layers.surplus, *layers.window)]
    assert seqs == list(range(layers.cursor + 1, last + 1))
    assert len(layers.window) == min(window, last - layers.cursor)
    assert all(a < b for a, b in pairwise(seqs))


@pytest.fixture
def no_gap():
    """Hold a session's layers to P6: ``no_gap(layers, last)``."""
    return _no_gap


@types.coroutine
def _interrupted(work, at: int, how: str, steps: list[int], cancel) -> Iterator[object]:
    """Run a coroutine and call ``cancel`` at the ``at``-th point where it waits.

    ``how``: "woken" calls it when what it waits for has come and it hasn't run yet, where an
    answer is easily lost; anything else as it begins to wait.
    """
    generator = work.__await__()
    step, value = generator.send, None
    while True:
        try:
            awaited = step(value)
        except StopIteration as stop:
            return stop.value
        steps[0] += 1
        if steps[0] == at:
            if how == "woken" and awaited is not None and not awaited.done():
                awaited.add_done_callback(lambda _: cancel())
            else:
                cancel()
        try:
            step, value = generator.send, (yield awaited)
        except BaseException as error:  # noqa: BLE001 - it is thrown where it belongs
            step, value = generator.throw, error


@pytest.fixture
def interrupted():
    """Run a coroutine in this task, and call something at its n-th wait."""
    return _interrupted


@pytest.fixture
def interrupt():
    """Cancel ``work`` at its n-th wait: True if it was, False if it ended before.

    ``await interrupt(session.record("a", "b"), 3, "woken")``; "scope" is a cancel scope of
    anyio's, which cancels again and again, and anything else the task's own cancellation.
    """

    async def run(work, at: int, how: str) -> bool:
        steps = [0]

        async def inside():
            with anyio.CancelScope() as scope:
                cancel = scope.cancel if how == "scope" else asyncio.current_task().cancel
                return await _interrupted(work, at, how, steps, cancel)

        task = asyncio.create_task(inside())
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return steps[0] >= at

    return run


class Words:
    """A deriver that keeps the visitor's words as one fact; ``gate``, if set, is awaited."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gate: asyncio.Event | None = None

    async def derive(self, turn, known):
        said = turn[-2].text
        self.seen.append(said)
        if self.gate is not None:
            await self.gate.wait()
        return [FactChange("set", f"said:{said}", said)]


@pytest.fixture
def words() -> Words:
    return Words()


def _fuzz_profile() -> None:
    inputs = os.environ.get("FUZZ_INPUTS")
    hypothesis.settings.register_profile(
        "fuzz",
        max_examples=int(inputs or 150),
        derandomize=inputs is None,  # the ordinary run tries the same inputs each time
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


_fuzz_profile()
