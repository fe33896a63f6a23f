"""Whoever waits may be cancelled anywhere, and closing ends everything."""

from __future__ import annotations

import asyncio
import threading

import pytest

from interturn.storage import (
    SqliteStore,
    StoreFailed,
    this_owner,
)

pytestmark = pytest.mark.anyio

MINUTE_S = 60.0


def database_threads():
    """Return the threads of connections, after giving each that was stopped time to end."""
    threads = [thread for thread in threading.enumerate() if "_connection_worker" in thread.name]
    for thread in threads:
        thread._started.wait(timeout=10)
        thread.join(timeout=10)
    return [thread for thread in threads if thread.is_alive()]


@pytest.mark.parametrize("apart", [False, True])
async def test_an_opening_that_is_cancelled_anywhere_leaves_nothing_open(
    tmp_path, scribe, apart, opened, cancelled_at
):
    """Every connection is stopped, the lock is free, and the next open succeeds at once."""
    for made_before in (False, True):
        for nth in range(1, 200):
            folder = tmp_path / f"{made_before}-{nth}"
            folder.mkdir()
            path, keys = folder / "memory.db", folder / "memory.keys" if apart else None
            if made_before:
                async with opened(path, scribe, keys=keys):
                    pass
            store = SqliteStore(path, keys=keys)
            opening = store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
            try:
                await cancelled_at(opening, nth)
            except asyncio.CancelledError:
                assert await asyncio.to_thread(database_threads) == []
                async with opened(path, scribe, keys=keys) as again:
                    assert await again.commit([scribe.first(1)]) == ["written"]
            else:
                await store.close()
                break
        else:
            pytest.fail("opening never came to its end")
        assert nth > 15


async def test_a_commit_that_is_cancelled_is_whole(path, scribe, opened, cancelled_at):
    """Whoever waited is gone; the batch lands, no transaction stays open, the next is written."""
    async with opened(path, scribe) as store:
        await store.commit([scribe.first(1)])
        for seq in (3, 5, 7):
            with pytest.raises(asyncio.CancelledError):
                await cancelled_at(
                    store.commit(
                        [scribe.turn(1, seq), scribe.first(seq), scribe.snapshot(1, 2, 0)]
                    ),
                    1,
                )
        assert await store.commit([scribe.turn(1, 9)]) == ["written"]
        assert not store._writer.in_transaction
        assert len(await store.rows(1, after=0, limit=99)) == 10


async def test_closing_ends_every_thread(path, scribe, cancelled_at):
    """Also when it is cancelled, called twice, or called on what never opened."""
    await SqliteStore(path).close()
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    with pytest.raises(asyncio.CancelledError):
        await cancelled_at(store.close(), 1)
    await store.close()
    assert await asyncio.to_thread(database_threads) == []
    assert not store._lock.held


@pytest.mark.parametrize("lost", ["writer", "reader"])
async def test_closing_goes_on_past_a_broken_connection(path, scribe, lost, opened):
    """Whatever state a connection is in, the other is closed and the lock is free."""
    store = SqliteStore(path)
    await store.open(scribe.root, owner=this_owner(), lease_s=MINUTE_S)
    await getattr(store, f"_{lost}").close()
    if lost == "reader":
        with pytest.raises(StoreFailed, match="closed"):
            await store.rows(1, after=0, limit=1)
    await store.close()
    assert await asyncio.to_thread(database_threads) == []
    async with opened(path, scribe):
        pass
