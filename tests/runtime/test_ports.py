"""Ports that call back: whatever a model's adapter asks of its runtime, nobody waits for ever."""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from interturn.runtime import Forgotten, Reentered, Settings

pytestmark = pytest.mark.anyio

WORDS = "Ana pide dos mesas de roble para el martes."


async def _turn(runtime):
    async with runtime.session("s", customer="ana").turn("desde dentro") as turn:
        await turn.reply("r")


CALLS = {
    "turn": _turn,
    "record": lambda runtime: runtime.session("s", customer="ana").record("desde dentro", "r"),
    "assemble": lambda runtime: runtime.session("s").assemble("?"),
    "layers": lambda runtime: runtime.session("s").layers(),
    "undo": lambda runtime: runtime.session("s").undo(),
    "delete": lambda runtime: runtime.session("s").delete(),
    "identify": lambda runtime: runtime.session("s").identify("ana"),
    "facts": lambda runtime: runtime.customer("ana").facts(),
    "recall": lambda runtime: runtime.customer("ana").recall("mesas"),
    "remember": lambda runtime: runtime.customer("ana").remember("Es clienta", slot="since"),
    "retract": lambda runtime: runtime.customer("ana").retract("nada"),
    "merge": lambda runtime: runtime.customer("ana").merge("eva"),
    "forget": lambda runtime: runtime.customer("ana").forget(),
    "prune": lambda runtime: runtime.prune(),
    "unanswered": lambda runtime: runtime.unanswered(),
}


class Caller:
    """Every port at once, one of which calls its own runtime, the first time that it is asked."""

    def __init__(self, port: str, call) -> None:
        self.port = port
        self.call = call
        self.outcome: list[object] = []
        self.runtime = None

    async def _asked(self, port: str) -> None:
        if port == self.port and not self.outcome:
            self.outcome.append("asked")
            try:
                await self.call(self.runtime)
            except BaseException as error:
                self.outcome.append(type(error))
                raise
            self.outcome.append("answered")

    async def fold(self, summary, leaving, *, cap_tokens):
        await self._asked("summarizer")
        return f"Ana pidió el {leaving[0].seq}."

    async def derive(self, turn, known):
        await self._asked("deriver")
        return []

    async def refresh(self, profile, recent, facts, *, cap_tokens):
        await self._asked("profiler")
        return profile


def _opened(opened, caller, **given):
    ports = {"summarizer": caller, "deriver": caller, "profiler": caller}
    given["settings"] = Settings(window=2, profile_every=1, retain_days=1)
    return opened(**ports, **given)


@pytest.mark.parametrize("port", ["summarizer", "deriver", "profiler"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_port_that_calls_its_own_session_or_customer(
    opened, port, call, say, balanced, until
):
    """Each call from within a port ends, or ends the port; turns go on, and all comes to rest."""
    caller = Caller(port, CALLS[call])
    async with _opened(opened, caller) as runtime:
        caller.runtime = runtime
        session = runtime.session("s", customer="ana")
        for number in range(3):
            with contextlib.suppress(Forgotten):  # by a port, just now
                await say(session, f"{WORDS} {number}")
        await runtime.flush()
        await until(lambda: not runtime._inside.moves.under_way)
        # What is taken back or destroyed under a port's feet calls the port off.
        assert caller.outcome in (["asked", "answered"], ["asked", asyncio.CancelledError])
        await say(session, "sigue")
        await runtime.flush()
        balanced(runtime, at_rest=True)


@pytest.mark.parametrize("port", ["summarizer", "deriver", "profiler"])
@pytest.mark.parametrize("how", ["itself", "in a task of its own"])
async def test_a_port_that_waits_for_itself_is_refused_at_once(opened, port, how, say, clock):
    """`flush` from within what it would wait for is `Reentered`, also from a task of the port's."""

    async def flush(runtime):
        await (runtime.flush() if how == "itself" else asyncio.gather(runtime.flush()))

    caller = Caller(port, flush)
    async with _opened(opened, caller, clock=clock) as runtime:
        caller.runtime = runtime
        for number in range(3):
            await say(runtime.session("s", customer="ana"), f"{WORDS} {number}")
        await runtime.flush()
        assert caller.outcome == ["asked", Reentered]
        await runtime.flush()  # what failed with it is tried again at once
        assert (await runtime.session("s").layers()).cursor == 4


async def test_a_port_may_flush_another_runtime(opened, say):
    """Only what would wait for itself is refused: another runtime's flush is another's."""
    async with opened(":memory:") as other:
        caller = Caller("summarizer", lambda _: other.flush())
        async with _opened(opened, caller) as runtime:
            for number in range(2):
                await say(runtime.session("s"), f"{WORDS} {number}")
            await runtime.flush()
            assert caller.outcome == ["asked", "answered"]


@pytest.mark.parametrize("port", ["summarizer", "deriver", "profiler"])
async def test_a_port_that_closes_its_runtime(opened, port, clock, until, say):
    """Closing from within a port waits for that port as for any: `drain_s`, and no longer."""
    caller = Caller(port, lambda runtime: runtime.close())
    async with _opened(opened, caller, clock=clock) as runtime:
        caller.runtime = runtime
        session = runtime.session("s", customer="ana")
        for number in range(2):
            await say(session, f"{WORDS} {number}")
        await until(lambda: repr(runtime) == "Runtime(closing)")
        await clock.advance(10)
        await until(lambda: repr(runtime) == "Runtime(closed)")
    assert caller.outcome == ["asked", asyncio.CancelledError]


@pytest.mark.parametrize("port", ["summarizer", "deriver", "profiler"])
async def test_a_flush_that_waits_for_a_port_that_hangs_may_be_left(opened, port, say, until):
    """A timeout around `flush` ends it at once; the port goes on, and a later flush waits again."""
    gate = asyncio.Event()
    caller = Caller(port, lambda _: gate.wait())
    async with _opened(opened, caller) as runtime:
        session = runtime.session("s", customer="ana")
        for number in range(2):
            await say(session, f"{WORDS} {number}")
        await until(lambda: caller.outcome)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await runtime.flush()
        assert caller.outcome == ["asked"]
        await say(session, "sigue")
        gate.set()
        await runtime.flush()
        assert caller.outcome == ["asked", "answered"]
        assert (await session.layers()).cursor == 4


async def test_work_under_way_is_kept(opened, say, until):
    """A port that waits for what only itself knows isn't collected: its task has an owner."""
    waits = []

    async def wait(_):
        future = asyncio.get_running_loop().create_future()
        waits.append(weakref.ref(future))
        await future

    caller = Caller("summarizer", wait)
    async with _opened(opened, caller) as runtime:
        for number in range(2):
            await say(runtime.session("s"), f"{WORDS} {number}")
        await until(lambda: waits)
        for _ in range(3):
            gc.collect()
        future = waits[0]()
        assert future is not None
        future.set_result(None)
        await runtime.flush()
        assert (await runtime.session("s").layers()).cursor == 2
