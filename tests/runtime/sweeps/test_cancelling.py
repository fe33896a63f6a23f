"""A whole story cancelled wherever it waits: everything goes on at once, and is whole."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio

MOST = 200


@pytest.mark.parametrize("how", ["waiting", "woken", pytest.param("scope", marks=pytest.mark.long)])
async def test_a_story_cancelled_anywhere(stage, make_ports, interrupt, how):
    """Cancelled at each of its waits, by the task and by a scope, it hurts nobody."""
    for at in range(1, MOST):
        story, cancelled = await stage(make_ports(), lambda s, n=at: interrupt(s.tell(), n, how))
        if not cancelled:
            break
    assert story.complete(), story.seen
    assert at > 35
