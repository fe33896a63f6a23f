"""A whole story in which one thing fails, each in turn: it goes on, and is whole."""

from __future__ import annotations

import pytest

from interturn.storage import Faulty, SqliteStore

pytestmark = pytest.mark.anyio

MOST = 200


@pytest.mark.parametrize("applied", [False, True], ids=["refused", "unknown"])
async def test_a_story_whose_nth_write_fails(stage, ports, path, failures, applied):
    """Refused, or done and reported as failed: nothing promised is lost, nothing doubled."""
    for nth in range(1, MOST):
        store = Faulty(SqliteStore(path))

        async def tell(story, store=store, nth=nth):
            # Counted from here: what opening writes is not the story's.
            store.fail("write", nth=nth, applied=applied)
            before = sum(store.calls[method] for method in WRITES)
            await story.tell()
            store._faults.clear()  # one that wasn't reached is not for what comes after
            return sum(store.calls[method] for method in WRITES) - before

        story, writes = await stage(ports, tell, store, failures)
        if writes < nth:
            break
    assert story.complete(), story.seen
    assert nth > 20


WRITES = ("renew", "commit", "adopt", "undo", "delete_session", "prune", "shrink", "forget")


@pytest.mark.parametrize("port", ["fold", "derive", "refresh", "rank"])
async def test_a_story_in_which_a_port_raises(stage, ports, failures, port):
    """The nth call of each port raises: no turn fails for it, and what it missed comes after."""
    for nth in range(1, MOST):
        ports.calls.clear()
        ports.failing = (port, nth)

        async def tell(story):
            await story.tell()
            return ports.calls[port]

        story, calls = await stage(ports, tell, None, failures)
        if calls < nth:
            break
    assert nth > 1
    assert story.complete(), story.seen
