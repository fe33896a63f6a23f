"""Retention: messages that are old, folded and learnt from go; what they taught stays.

Only what the summary holds can go, never the window nor the surplus; and not the
newest turn that was folded or learnt from, so that the rows still say how far a
session has come. Each message is opened before it goes: what was changed on disk
is loud and destroys nothing.

Rows that are missing are `Tampered`. So that pruned ones aren't, a session's row
carries a mark, sealed with the session's key, that says up to where they went. It
moves in the transaction that removes them, and only from the mark that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from interturn.actors.commands import Snapshot
from interturn.actors.message import Message
from interturn.runtime.events import log
from interturn.runtime.keeping import SessionKeeping, microseconds
from interturn.runtime.vault import Vault, check_chain, check_sequence
from interturn.storage import LoadedSession, Prune, SessionRow, sealing
from interturn.storage.errors import Tampered, WrongKey

if TYPE_CHECKING:
    from interturn.runtime.supervisor import Supervisor

_SESSIONS: Final = 256
"""Sessions looked at in one go."""

_ROWS: Final = 512
"""Messages after which a transaction is full: some 10 ms in which others wait."""


class Pruned(msgspec.Struct, frozen=True):
    """What `Runtime.prune` removed.

    Attributes:
        sessions: how many sessions lost messages.
        messages: how many messages went.
        refused: sessions left as they are, since something in them doesn't open.
        bytes: by how much the database shrank; what is only free in it isn't counted.
    """

    sessions: int
    messages: int
    refused: int
    bytes: int


class Pruning:
    """One pruning of a runtime's store.

    Args:
        supervisor: of the runtime.
        retain_days: how old messages may be.
    """

    def __init__(self, supervisor: Supervisor, retain_days: float) -> None:
        self._supervisor = supervisor
        self._vault = supervisor.vault
        self._cutoff = supervisor.utc() - timedelta(days=retain_days)
        self._pruned: set[bytes] = set()
        self._refused = 0
        self._messages = 0

    async def carry_out(self) -> Pruned:
        """Remove what can go, a little in each transaction, and give the space back.

        Raises:
            RuntimeClosed: the runtime is closing; what went is gone, the rest stays.
            StorageError: the store failed; likewise.
        """
        # What was learnt may rest in memory for ``snapshot_s`` yet; on disk it lets go.
        await self._supervisor.customers.rest_all()
        store, before = self._vault.store, microseconds(self._cutoff)
        for first in range(0, self._vault.last_session, _SESSIONS):
            aged = await store.aged(before=before, after=first, upto=first + _SESSIONS)
            while aged:
                aged = await self._cut_all(aged)
        given_back = await store.shrink()
        return Pruned(len(self._pruned), self._messages, self._refused, given_back)

    async def _cut_all(self, aged: Sequence[bytes]) -> list[bytes]:
        """Cut each of these sessions once; return those that may have more to go."""
        cuts: list[Prune] = []
        more: list[bytes] = []
        rows = 0
        for session_hash in aged:
            if self._supervisor.closing:
                raise self._supervisor.refusal()
            try:
                cut, count = await self._cut(session_hash)
            except (Tampered, WrongKey) as error:
                log.error("pruning_refused", error=type(error).__name__)
                self._refused += 1
                continue
            if cut is not None:
                self._pruned.add(session_hash)
                cuts.append(cut)
                rows += count
            if count >= _ROWS:
                more.append(session_hash)
            if rows >= _ROWS:
                self._messages += await self._vault.store.prune(cuts)
                cuts, rows = [], 0
        if cuts:
            self._messages += await self._vault.store.prune(cuts)
        return more

    async def _cut(self, session_hash: bytes) -> tuple[Prune | None, int]:
        """Return what is to go from a session next, and how many messages that is."""
        found = await self._vault.found(session_hash)
        if found is None:
            return None, 0
        keeping, loaded = found
        check_chain(loaded)
        mark = pruned_through(keeping, loaded.session)
        rows = await self._vault.store.rows(keeping.ref, after=mark, limit=_ROWS)
        messages = await self._vault.messages(keeping, rows)
        check_sequence(keeping.ref, messages, after=mark)
        bound = min(_folded_through(keeping, loaded), loaded.session.derived) - 2
        through = mark
        for said, reply in zip(messages[::2], messages[1::2], strict=False):
            if reply.seq > bound or max(said.at, reply.at) >= self._cutoff:
                break
            through = reply.seq
        if through == mark:
            return None, 0
        self._supervisor.pruned(keeping.open_name(loaded.session), through)
        place = sealing.session_pruned_place(keeping.hash)
        sealed = keeping.sealer.seal(msgspec.msgpack.encode(through), place)
        return Prune(keeping.ref, through, loaded.session.pruned, sealed), through - mark


def pruned_through(keeping: SessionKeeping, row: SessionRow) -> int:
    """Return the number up to which a session's oldest messages were pruned, 0 if none were.

    Raises:
        Tampered: the mark isn't this session's, or was changed.
    """
    if row.pruned is None:
        return 0
    place, where = sealing.session_pruned_place(keeping.hash), f"mark {keeping.ref}"
    opened = keeping.sealer.open(row.pruned, place, table="sessions", where=where)
    return msgspec.msgpack.decode(opened, type=int)


async def only_pruned(vault: Vault, keeping: SessionKeeping, *, after: int, first: int) -> bool:
    """Whether all messages between these two numbers were pruned, as the store says now.

    Raises:
        Tampered: its mark isn't this session's, or was changed.
    """
    if first <= after + 1:
        return first == after + 1
    found = await vault.found(keeping.hash)
    return found is not None and first - 1 <= pruned_through(found[0], found[1].session)


async def check_page(
    vault: Vault, keeping: SessionKeeping, page: Sequence[Message], *, after: int
) -> None:
    """Hold a page of messages to follow each other and what came before, or was pruned.

    Raises:
        Tampered: one is missing.
    """
    if page and await only_pruned(vault, keeping, after=after, first=page[0].seq):
        after = page[0].seq - 1
    check_sequence(keeping.ref, page, after=after)


def _folded_through(keeping: SessionKeeping, loaded: LoadedSession) -> int:
    """Return the cursor as the sealed snapshot has it.

    Raises:
        Tampered: the snapshot doesn't open, or the cursor beside it is another.
    """
    sealed, cursor = loaded.session.snapshot, 0
    if sealed is not None:
        cursor = msgspec.msgpack.decode(keeping.open_snapshot(sealed), type=Snapshot).cursor
    if cursor != loaded.session.cursor:
        raise Tampered("sessions", f"cursor {keeping.ref}")
    return cursor
