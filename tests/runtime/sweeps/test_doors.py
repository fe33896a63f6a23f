"""The doors: whoever opens, lives in or leaves a runtime is cancelled wherever its host waits.

The host is the task in which a runtime lives. It is watched from inside: at each of its
waits either itself is cancelled, as a loop does that is torn down, or the caller is.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from interturn.runtime import Runtime, RuntimeClosed, Settings
from interturn.runtime.archive import Archive

pytestmark = pytest.mark.anyio

MOST = 100


class Interrupted(Runtime):
    """A runtime at the n-th wait of whose host something is cancelled.

    Attributes:
        at: the number of that wait.
        how: see `interrupt`.
        steps: how often its host has waited, in a list of one.
        cancel: what is called there; None stands for cancelling the host itself.
    """

    interrupted = staticmethod(lambda *_: None)
    at, how, cancel = 0, "waiting", None

    async def _live(self) -> None:
        self.steps = [0]
        cancel = self.cancel or asyncio.current_task().cancel
        await self.interrupted(super()._live(), self.at, self.how, self.steps, cancel)


@pytest.fixture
def visit(path, keyring, counter, interrupted, say):
    """Open, hold a turn and leave, in a task of its own, with something cancelled on the way.

    ``promised, reached = await visit(text, at, how, whom)``: whether the turn was promised,
    and whether the host has waited so often.
    """

    async def run(text: str, at: int, how: str, whom: str) -> tuple[bool, bool]:
        runtime = Interrupted.open(
            path, keyring=keyring, counter=counter, settings=Settings(drain_s=0)
        )
        runtime.interrupted = interrupted
        runtime.at, runtime.how = at, how
        promised = False

        async def call():
            nonlocal promised
            async with runtime:
                session = runtime.session("s", customer="ana")
                await say(session, text, delivery_id=text)
                promised = True

        caller = asyncio.create_task(call())
        if whom == "caller":
            runtime.cancel = caller.cancel
        with contextlib.suppress(asyncio.CancelledError, RuntimeClosed):
            await caller
        await runtime.close()
        return promised, runtime.steps[0] >= at

    return run


# A loop that is torn down says so of a runtime that was left open in it.
@pytest.mark.filterwarnings("ignore:a runtime was never closed:ResourceWarning")
@pytest.mark.parametrize("how", ["waiting", "woken"])
@pytest.mark.parametrize("whom", ["caller", "host"])
async def test_cancelled_at_every_step_of_the_host(
    visit, opened, path, keyring, counter, pairs, say, how, whom
):
    """The store is given back at once, a promised turn is there, any other whole or not at all."""
    kept, maybe = [], []
    for at in range(1, MOST):
        promised, reached = await visit(f"n {at}", at, how, whom)
        (kept if promised else maybe).append(f"n {at}")
        async with opened() as runtime:
            session = runtime.session("s", customer="ana")
            await say(session, f"luego {at}")
            said = [text for text, _ in await pairs(session)]
        assert said[-1] == f"luego {at}"
        assert [text for text in said if text in kept] == kept, "a promised turn is missing"
        assert {text for text in said if text.startswith("n ")} <= {*kept, *maybe}
        assert len(said) == len(set(said)), "a turn is doubled"
        async with Archive.open(path, keyring=keyring, counter=counter) as archive:
            assert (await archive.doctor()).findings == ()
        if not reached:
            break
    assert promised
    assert maybe
    assert at > 10
