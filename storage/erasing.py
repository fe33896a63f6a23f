"""What is removed is gone from every byte of every file, or will be.

Removing has two halves that no transaction can hold together: the content, in
one file or two, and its traces in logs and unused parts of pages. So a durable
note, the tombstone, is written with the first change and goes after the last;
whoever finds one does what is left. Each step can be done twice.

| tombstone | says | what is left to do |
|---|---|---|
| none | | nothing |
| ``ref``, ``hash`` | this customer is to go | their key, then their rows; then as below |
| no ``hash`` | something was removed | truncate the logs, scrub the files, drop the tombstone |

The key goes first, since without it everything else is noise, however long the
rest takes. With a keys file the tombstone is on disk before the key goes from
there; a key that is missing without a tombstone was lost, and nothing is
concluded from that. The hash goes from the tombstone with the rows, so that the
last thing to be dropped names nobody.

Between steps the writer is free for others, so an erasure holds nobody up for
longer than a slice of it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Final

import aiosqlite

from . import statements
from .connection import BUSY_S, failure
from .errors import StoreFailed
from .rows import Adoption, Erased, Prune, WriteCustomer
from .writing import Writing, check_epoch, parts, transaction

TRIES, PAUSE_S, TRY_BUSY_MS = 30, 0.05, 100
"""For how long an erasure waits for whoever is reading: 4.5 s, in which others write."""

FREE_SHARE: Final = 0.25
"""Of a file's pages, unused, from which on it is worth writing the rest of them anew."""

SCRUB: Final = "interturn_scrub"
"""The name under which a connection that writes can call `Scrubber.scrub`, in its own thread."""

LOG_IS_BACK: Final = -1
"""What it returns where somebody else has written to the log in between."""

_DESTROY_KEY = """
DELETE FROM {schema}.customer_keys WHERE hash = ?1
    AND NOT EXISTS (SELECT 1 FROM main.customers WHERE hash = ?1 AND ref <> ?2)
"""


_PAGES = """
SELECT page_count, freelist_count, page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""


class Eraser(Writing):
    """Removes things over the connection that writes, taking its turns at it.

    Nothing here may run beside itself: the store lets one erasure in at a time.
    """

    def __init__(
        self,
        connection: aiosqlite.Connection,
        epoch: int,
        turns: asyncio.Lock,
        *,
        keys_apart: bool,
    ) -> None:
        super().__init__(connection, epoch, keys_apart=keys_apart)
        self._turns = turns

    async def forget(self, customer: int) -> Erased:
        """Remove a customer and all that is theirs."""
        async with self._turns, self._synced():
            await self._condemn(customer)
        return (await self.finish()).get(customer, Erased(0, 0))

    async def delete_session(self, session: int) -> int:
        """Remove a session; return how many messages went."""
        async with self._turns, transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            messages = await self._change("DELETE FROM main.messages WHERE session = ?", session)
            await self._change("DELETE FROM main.unanswered WHERE session = ?", session)
            if await self._change("DELETE FROM main.sessions WHERE ref = ?", session):
                await self._change("INSERT INTO main.tombstones VALUES (NULL, NULL)")
        await self.finish()
        return messages

    async def adopt(self, adoption: Adoption) -> None:
        """Give sessions to a customer, and remove the one who is leaving."""
        new_customer = adoption.new_customer
        async with self._turns, self._synced():
            if new_customer is not None and self._keys_apart:
                async with transaction(self._connection):
                    await check_epoch(self._connection, self._epoch)
                    await self._run(statements.keys([new_customer], self._epoch, schema="keys"))
            try:
                async with transaction(self._connection):
                    await check_epoch(self._connection, self._epoch)
                    if new_customer is not None:
                        await self._insert_customers([new_customer])
                    if not await self._connection.execute_fetchall(
                        "SELECT 1 FROM main.customers WHERE ref = ?", (adoption.customer,)
                    ):
                        raise StoreFailed("stale: the customer isn't there")
                    await self._move(adoption)
                    if adoption.snapshot is not None:
                        await self._replace(adoption.snapshot)
                    if adoption.sessions or adoption.leaving is not None:
                        await self._leave(adoption.leaving)
            except sqlite3.IntegrityError:
                raise StoreFailed("stale: a reference or hash is somebody else's") from None
        await self.finish()

    async def undo(self, session: int, seq: int, *, snapshot: WriteCustomer | None) -> bool:
        """Remove a session's newest turn, if it is this one and not folded."""
        async with self._turns, transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            found = await self._connection.execute_fetchall(
                "SELECT customer FROM main.sessions WHERE ref = ?1 AND cursor < ?2 AND ?2 > 0"
                " AND (SELECT max(seq) FROM main.messages WHERE session = ?1) = ?2 + 1",
                (session, seq),
            )
            for (owner,) in found:
                await self._change(
                    "DELETE FROM main.messages WHERE session = ? AND seq >= ?", session, seq
                )
                if snapshot is not None:
                    if snapshot.customer != owner:
                        raise StoreFailed("stale: the session is another customer's")
                    await self._replace(snapshot)
                await self._change(
                    "UPDATE main.sessions SET derived = min(derived, ?) WHERE ref = ?",
                    seq - 1,
                    session,
                )
                return True
            return False

    async def prune(self, cuts: Sequence[Prune]) -> int:
        """Remove the oldest messages of sessions; `shrink` removes their traces."""
        messages = 0
        async with self._turns, transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            for part in parts(cuts):
                await self._run(statements.pruned(part, self._epoch))
                messages += await self._run(statements.prune(part, self._epoch))
            if messages:
                await self._change("INSERT INTO main.tombstones VALUES (NULL, NULL)")
        return messages

    async def shrink(self) -> int:
        """Write the database anew if much of it is free, and do what the tombstones say.

        Nothing less makes the file smaller: free pages are kept for later content.
        Incremental vacuuming would need a map of pages in every database and
        would move content that `Scrubber` then couldn't tell apart.
        """
        async with self._turns:
            async with transaction(self._connection):
                await check_epoch(self._connection, self._epoch)
                [(pages, free, page_bytes)] = await self._connection.execute_fetchall(_PAGES)
                worth = free > pages * FREE_SHARE
                if worth:
                    await self._change("INSERT INTO main.tombstones VALUES (NULL, NULL)")
            if worth:
                await self._connection.execute_fetchall("VACUUM main")
            [(left, _, _)] = await self._connection.execute_fetchall(_PAGES)
        await self.finish()
        return int(page_bytes * (pages - left))

    async def finish(self) -> dict[int, Erased]:
        """Do what the tombstones say, and return what went with each customer.

        Raises `Fenced`; `StoreFailed`, which says that the next open goes on.
        """
        try:
            async with self._turns:
                found = await self._connection.execute_fetchall(
                    "SELECT ref, hash FROM main.tombstones"
                )
                erased = {}
                for ref, customer_hash in found:
                    if customer_hash is not None:
                        erased[ref] = await self._destroy(ref, customer_hash)
            if found:
                await self._cleanse()
        except (sqlite3.Error, StoreFailed, ValueError) as error:
            # With a ValueError aiosqlite says that the connection was closed meanwhile.
            cause = error.cause if isinstance(error, StoreFailed) else failure(error).cause
            raise StoreFailed(f"{cause}; the erasure will be finished at the next open") from error
        return erased

    @contextlib.asynccontextmanager
    async def _synced(self) -> AsyncIterator[None]:
        """Have the disk hold what the database commits, before another file follows it."""
        if not self._keys_apart:
            yield
            return
        [(before,)] = await self._connection.execute_fetchall("PRAGMA main.synchronous")
        await self._connection.execute_fetchall("PRAGMA main.synchronous = FULL")
        try:
            yield
        finally:
            await self._connection.execute_fetchall(f"PRAGMA main.synchronous = {before}")

    async def _condemn(self, customer: int) -> None:
        async with transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            await self._change(
                "INSERT INTO main.tombstones SELECT ref, hash FROM main.customers"
                " WHERE ref = ? AND hash NOT IN"
                " (SELECT hash FROM main.tombstones WHERE hash IS NOT NULL)",
                customer,
            )
            if not self._keys_apart:
                await self._change(
                    "DELETE FROM main.customer_keys"
                    " WHERE hash = (SELECT hash FROM main.customers WHERE ref = ?)",
                    customer,
                )

    async def _destroy(self, ref: int, customer_hash: bytes) -> Erased:
        schema = "keys" if self._keys_apart else "main"
        async with transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            await self._change(_DESTROY_KEY.format(schema=schema), customer_hash, ref)
        async with transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            messages = await self._change(
                "DELETE FROM main.messages"
                " WHERE session IN (SELECT ref FROM main.sessions WHERE customer = ?)",
                ref,
            )
            await self._change(
                "DELETE FROM main.unanswered"
                " WHERE session IN (SELECT ref FROM main.sessions WHERE customer = ?)",
                ref,
            )
            sessions = await self._change("DELETE FROM main.sessions WHERE customer = ?", ref)
            await self._change("DELETE FROM main.customers WHERE ref = ?", ref)
            await self._change("UPDATE main.tombstones SET hash = NULL WHERE ref = ?", ref)
        return Erased(sessions, messages)

    async def _move(self, adoption: Adoption) -> None:
        for part in parts(adoption.sessions):
            moved = await self._run(statements.adopted(part, adoption.customer, self._epoch))
            if moved != len(part):
                raise StoreFailed("stale: a session isn't there")
        for new in parts(adoption.new_sessions):
            await self._run(statements.sessions(new, self._epoch))

    async def _replace(self, snapshot: WriteCustomer) -> None:
        if await self._save_customers([snapshot]) != ["written"]:
            raise StoreFailed("stale: the customer's snapshot is of another version")

    async def _leave(self, leaving: int | None) -> None:
        """Remove a customer without sessions, and note what that leaves to do."""
        if await self._connection.execute_fetchall(
            "SELECT 1 FROM main.sessions WHERE customer = ? LIMIT 1", (leaving,)
        ):
            raise StoreFailed("stale: the customer who is leaving still owns a session")
        if not await self._change(
            "INSERT INTO main.tombstones SELECT ref, hash FROM main.customers WHERE ref = ?",
            leaving,
        ):
            await self._change("INSERT INTO main.tombstones VALUES (NULL, NULL)")
            return
        if not self._keys_apart:
            await self._change(
                "DELETE FROM main.customer_keys"
                " WHERE hash = (SELECT hash FROM main.customers WHERE ref = ?)",
                leaving,
            )
        await self._change("DELETE FROM main.customers WHERE ref = ?", leaving)

    async def _cleanse(self) -> None:
        """Empty the logs and scrub the files, slice by slice; then drop the tombstones."""
        for schema in ("keys", "main") if self._keys_apart else ("main",):
            start: int | None = 0
            while start is not None:
                start = await self._slice(schema, start)
        async with self._turns, transaction(self._connection):
            await check_epoch(self._connection, self._epoch)
            await self._change("DELETE FROM main.tombstones WHERE hash IS NULL")

    async def _slice(self, schema: str, start: int) -> int | None:
        """Scrub a slice of a file whose log is empty; return where the next starts, if any."""
        for _ in range(TRIES):
            async with self._turns:
                if await self._truncated(schema):
                    async with transaction(self._connection):
                        await check_epoch(self._connection, self._epoch)
                        await self._connection.execute_fetchall("PRAGMA shrink_memory")
                        [(following,)] = await self._connection.execute_fetchall(
                            f"SELECT {SCRUB}(?, ?)", (schema, start)
                        )
                    if following != LOG_IS_BACK:
                        return following or None
            await asyncio.sleep(PAUSE_S)
        raise StoreFailed("somebody who reads keeps the log from being emptied")

    async def _truncated(self, schema: str) -> bool:
        await self._connection.execute_fetchall(f"PRAGMA busy_timeout = {TRY_BUSY_MS}")
        try:
            [(busy, _, _)] = await self._connection.execute_fetchall(
                f"PRAGMA {schema}.wal_checkpoint(TRUNCATE)"
            )
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            return False
        finally:
            await self._connection.execute_fetchall(f"PRAGMA busy_timeout = {int(BUSY_S * 1_000)}")
        return not busy

    async def _change(self, sql: str, *values: statements.Value) -> int:
        return await self._run((sql, list(values)))
