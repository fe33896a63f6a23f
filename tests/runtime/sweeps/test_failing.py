"""A whole story in which one thing fails, whichever it is: what was promised holds."""

from __future__ import annotations

import pytest

from interturn.runtime import InterturnError
from interturn.storage import Faulty, SqliteStore

pytestmark = pytest.mark.anyio

MOST = 500


class Broken(RuntimeError):
    """What a port raises."""


@pytest.mark.parametrize("applied", [False, True], ids=["refused", "unknown"])
async def test_a_story_whose_nth_call_of_the_store_fails(stage, make_ports, path, applied):
    """Whichever call fails, or has its answer lost, what was promised is there and all goes on."""
    for nth in range(1, MOST):
        store = Faulty(SqliteStore(path, durability="normal"))
        calls = 0

        async def before(method, store=store, nth=nth):
            nonlocal calls
            calls += 1
            if calls == nth:
                store.fail(method, applied=applied)

        async def play(story, store=store, before=before):
            store.before = before
            await story.tell()
            await story.runtime.flush()
            store.before = None

        story, _ = await stage(make_ports(), play, store=store, passes_over=(InterturnError,))
        if calls < nth:
            break
    assert story.complete(), story.seen
    assert nth > 40


@pytest.mark.parametrize("port", ["fold", "derive", "refresh", "rank", "count"])
async def test_a_story_in_which_a_port_raises(stage, make_ports, port):
    """Whichever call of a port raises, no turn is lost for it, and what it was for comes yet."""
    for nth in range(1, MOST):
        ports = make_ports()

        async def play(story, ports=ports, nth=nth):
            ports.fail(port, nth, Broken())
            await story.tell()
            await story.runtime.flush()
            return ports.calm()

        story, failed = await stage(ports, play, passes_over=(InterturnError, Broken))
        if not failed:
            break
        if port != "count":
            assert story.identified, "a turn was lost"
    assert story.complete(), story.seen
    assert nth > 1
