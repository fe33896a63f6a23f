"""Who may take over, and the lock that tells."""

from __future__ import annotations

import os

import pytest

from interturn.storage.lease import Lease, LockFile

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks are POSIX's")

NOW = 1_000.0


def lease(**changes):
    """Return a live lease of an owner on this host who holds the lock."""
    fields = {
        "epoch": 1,
        "owner": "here/1",
        "since": NOW,
        "renewed": NOW,
        "lease_s": 10.0,
        "locked": True,
    }
    return Lease(**{**fields, **changes})


@pytest.mark.parametrize(
    ("row", "lock", "after_s", "free"),
    [
        (lease(owner=None), "free", 1, True),
        (lease(owner=None), "absent", 1, True),
        (lease(owner=None), "held", 1, False),
        (lease(), "free", 1, True),
        (lease(locked=False), "free", 1, False),
        (lease(owner="there/1"), "free", 1, False),
        (lease(owner="there/1"), "free", 10, True),
        (lease(), "held", 9.9, False),
        (lease(), "held", 10, True),
        (lease(), "absent", 1, False),
        (lease(), "absent", 10, True),
        (lease(), "held", -5, False),
        (lease(owner="he/re/1"), "free", 1, False),
    ],
)
def test_who_may_take_over(row, lock, after_s, free):
    """The table at the head of the module, row by row."""
    assert (row.refusal(lock, host="here", now=NOW + after_s) is None) is free


def test_a_lock_that_is_looked_at_is_not_taken(tmp_path):
    """Looking makes no file and keeps nobody out."""
    one, other = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    assert one.look() == "free"
    assert list(tmp_path.iterdir()) == []
    assert one.take() == "free"
    assert one.look() == other.look() == other.take() == "held"
    one.release()
    one.release()
    assert other.look() == "free"
    assert other.take() == "free"
    other.release()
    assert (tmp_path / "lock").exists()
