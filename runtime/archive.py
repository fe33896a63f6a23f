"""The archive: a database read from outside, with no lease and nothing written.

For the command line, beside a running owner too. It opens the same seals as the
runtime does, so a wrong key or a changed byte is as loud here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from interturn.actors.customer import CustomerState, decode
from interturn.actors.extractive import Extractive
from interturn.actors.facts import Fact
from interturn.actors.message import Discreet, Message
from interturn.actors.ports import TokenCounter
from interturn.actors.profile import render
from interturn.actors.session import Layers, SessionActor
from interturn.actors.window import OutOfOrder
from interturn.runtime.errors import public_errors
from interturn.runtime.examination import Diagnosis, Examination, holding
from interturn.runtime.keeping import CustomerKeeping, SessionKeeping, moment
from interturn.runtime.pruning import check_page, only_pruned, pruned_through
from interturn.runtime.settings import Settings
from interturn.runtime.tokens import load_counter
from interturn.runtime.unanswered import open_words
from interturn.runtime.vault import Vault, check_chain
from interturn.storage import (
    CustomerRow,
    Hasher,
    Keyring,
    Opened,
    SessionRow,
    SqliteStore,
    check_row,
    sealing,
)
from interturn.storage.errors import Tampered
from interturn.storage.rows import ROLE_VISITOR

_PAGE_ROWS: Final = 500


class Holdings(Discreet, frozen=True):
    """How much a database holds, without anyone's words or ids.

    Attributes:
        customers: customers, anonymous visitors included.
        sessions: sessions.
        messages: messages that were not pruned.
        turns: of these messages.
        facts: facts of all customers.
        summaries: sessions of which something was folded.
        bytes: of the files, their logs included.
        oldest: when the first message was said, by its time (UTC); None where there is none.
        newest: when the last was.
        schema: the version of the database's tables.
        owner: the live process that holds it, as ``host/process id``, if any.
        since: since when it does (UTC).
    """

    customers: int
    sessions: int
    messages: int
    turns: int
    facts: int
    summaries: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None
    schema: int
    owner: str | None
    since: datetime | None


class SessionEntry(Discreet, frozen=True):
    """A session in the list of all.

    Attributes:
        session: its id.
        customer: the id of whose it is, None for an anonymous visitor.
        messages: messages that were not pruned.
        last: when the newest was said (UTC); None where there is none.
    """

    session: str
    customer: str | None
    messages: int
    last: datetime | None


class Remembered(Discreet, frozen=True):
    """What rests of a customer.

    Attributes:
        facts: what is known of them, oldest first.
        profile: as it stands in a request.
        sessions: ids of their sessions, oldest first.
    """

    facts: tuple[Fact, ...]
    profile: str
    sessions: tuple[str, ...]


class _AsStored:
    """Stands in for a counter where nothing is counted: stored counts are shown as they are."""

    name = "as stored"

    def count(self, text: str) -> int:
        """Return an upper bound for any byte-level counter."""
        return len(text.encode())


class Archive:
    """A database, for reading only. Made by `Archive.open`."""

    def __init__(
        self,
        store: SqliteStore,
        vault: Vault,
        files: tuple[Path, ...],
        settings: Settings,
        counter: TokenCounter | None,
    ) -> None:
        self._store = store
        self._vault = vault
        self._files = files
        self._settings = settings
        self._counter = counter
        # A summary is shown as it rests; whether it fits another cap isn't counted here.
        self._limits = msgspec.structs.replace(settings.limits, summary_tokens=sys.maxsize)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        keyring: Keyring,
        keys: str | os.PathLike[str] | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        counter: TokenCounter | None = None,
    ) -> AsyncIterator[Archive]:
        """Open a database for reading, whoever owns it.

        Args:
            path: the database.
            keyring: the master keys.
            keys: the file of the wrapped keys, where they rest apart.
            settings: the owner's, for the sizes of the window and the profile.
            counter: the owner's; None means tiktoken's, loaded only if a profile
                comes near its size.

        Raises:
            FileNotFoundError: there is no such database.
            WrongKey, Tampered, SchemaTooNew, StoreFailed: it can't be read.
        """
        path, apart = Path(path), None if keys is None else Path(keys)
        store = SqliteStore(path, keys=apart)
        try:
            with public_errors():
                root = await store.open_read_only()
                if root is None:
                    raise FileNotFoundError(2, "no such database", str(path))
                secret = keyring.unwrap(
                    root.key_id, root.wrapped, sealing.root_place(), table="root", where="secret"
                )
            vault = Vault(store, keyring, Hasher(secret), None, Opened(0, 0, 0))
            files = tuple(
                file.with_name(file.name + suffix)
                for file in (path, apart)
                if file is not None
                for suffix in ("", "-wal")
            )
            yield cls(store, vault, files, settings, counter)
        finally:
            await store.close()

    async def session(self, session_id: str) -> Layers | None:
        """Return a session's layers, or None if there is no such session."""
        with public_errors():
            loaded = await self._load(self._vault.hasher.session(session_id))
        if loaded is None:
            return None
        actor, keeping = loaded
        return actor.layers(keeping.customer.customer_id)

    async def transcript(self, session_id: str) -> AsyncIterator[Message]:
        """Iterate over a session's messages, oldest first; none if there is no such session.

        What was pruned is not among them.
        """
        with public_errors():
            found = await self._store.load_session(self._vault.hasher.session(session_id), recent=0)
            if found is None:
                return
            keeping = self._vault.opened(found.session, await self._keeping(found.customer))
            check_chain(found)
        after = 0
        while True:
            with public_errors():
                rows = await self._store.rows(keeping.ref, after=after, limit=_PAGE_ROWS)
                page = await self._vault.messages(keeping, rows)
                await check_page(self._vault, keeping, page, after=after)
                if len(page) < _PAGE_ROWS and (page[-1].seq if page else after) < found.last:
                    raise Tampered("messages", f"session {keeping.ref}, message {found.last}")
            for message in page:
                yield message
            if len(page) < _PAGE_ROWS:
                return
            after = page[-1].seq

    async def sessions(self, customer_id: str) -> list[str]:
        """Return the ids of a customer's sessions, oldest first; none for a stranger."""
        with public_errors():
            row = await self._store.load_customer(self._vault.hasher.customer(customer_id))
            return [] if row is None else await self._sessions(await self._keeping(row))

    async def customer(self, customer_id: str) -> Remembered | None:
        """Return what rests of a customer, or None for a stranger.

        Beside a running owner it may lack what was learnt in the last ``snapshot_s``
        seconds.

        Raises:
            WrongKey, Tampered, StoreFailed: it can't be read.
        """
        with public_errors():
            row = await self._store.load_customer(self._vault.hasher.customer(customer_id))
            if row is None:
                return None
            keeping = await self._keeping(row)
            state = _state(row, keeping)
            sessions = await self._sessions(keeping)
        if state is None:
            return Remembered((), "", tuple(sessions))
        return Remembered(state.book.facts, await self._profile(state), tuple(sessions))

    async def _keeping(self, row: CustomerRow) -> CustomerKeeping:
        """Unwrap a customer's key; their snapshot is opened apart, as it rests now."""
        return await self._vault.known(msgspec.structs.replace(row, snapshot=None, version=0))

    async def _sessions(self, customer: CustomerKeeping) -> list[str]:
        rows = await self._store.sessions_of(customer.ref)
        return [self._vault.opened(row, customer).open_name(row) for row in rows]

    async def _profile(self, state: CustomerState) -> str:
        """Render the profile as the owner does: what it leaves out depends on token counts."""
        cap, facts = self._settings.profile_tokens, state.book.facts
        counter = self._counter
        if counter is None:
            # Bytes are never fewer than tokens, so what
            # fits by bytes fits, and the vocabulary need not be loaded.
            stored = _AsStored()
            whole = render(state.standing, facts, cap_tokens=sys.maxsize, counter=stored)
            if stored.count(whole) <= cap:
                return whole
            counter = await load_counter(self._settings.encoding)
        return render(state.standing, facts, cap_tokens=cap, counter=counter)

    async def _load(self, session_hash: bytes) -> tuple[SessionActor, SessionKeeping] | None:
        loaded = await self._store.load_session(session_hash, recent=0)
        if loaded is None:
            return None
        keeping = self._vault.opened(loaded.session, await self._keeping(loaded.customer))
        check_chain(loaded)
        sealed = loaded.session.snapshot
        snapshot = None if sealed is None else keeping.open_snapshot(sealed)
        messages = await self._vault.messages(keeping, loaded.rows)
        counter = _AsStored()
        actor = SessionActor(self._limits, counter, Extractive(counter))
        try:
            actor.restore(snapshot, messages)
        except (OutOfOrder, msgspec.MsgspecError):
            raise Tampered("sessions", f"snapshot {loaded.session.ref}") from None
        if actor.cursor != loaded.session.cursor:
            raise Tampered("sessions", f"cursor {loaded.session.ref}")
        return actor, keeping

    async def holdings(self) -> Holdings:
        """Count what is there.

        Raises:
            WrongKey, Tampered, StoreFailed: it can't be read.
        """
        facts = 0
        with public_errors():
            async for row in self._customers():
                state = _state(row, await self._keeping(row))
                facts += 0 if state is None else len(state.book.facts)
            totals = await self._store.totals()
            owned = await self._store.owned()
            oldest, newest = _moment(totals.oldest), _moment(totals.newest)
        return Holdings(
            customers=totals.customers,
            sessions=totals.sessions,
            messages=totals.messages,
            turns=totals.messages // 2,
            facts=facts,
            summaries=totals.folded,
            bytes=sum(file.stat().st_size for file in self._files if file.exists()),
            oldest=oldest,
            newest=newest,
            schema=totals.version,
            owner=None if owned is None else owned.owner,
            since=None if owned is None else owned.since,
        )

    async def entries(self) -> AsyncIterator[SessionEntry]:
        """Iterate over all sessions, customer by customer, oldest first.

        Raises:
            WrongKey, Tampered, StoreFailed: it can't be read.
        """
        customers = self._customers()
        while True:
            with public_errors():
                row = await anext(customers, None)
                if row is None:
                    return
                keeping = await self._keeping(row)
                entries = [
                    await self._entry(session, keeping)
                    for session in await self._store.sessions_of(row.ref)
                ]
            for entry in entries:
                yield entry

    async def _entry(self, row: SessionRow, customer: CustomerKeeping) -> SessionEntry:
        messages, last = await self._store.extent(row.ref)
        return SessionEntry(
            self._vault.opened(row, customer).open_name(row),
            customer.customer_id,
            messages,
            _moment(last),
        )

    async def _customers(self) -> AsyncGenerator[CustomerRow, None]:
        after = 0
        while page := await self._store.customers(after=after, limit=_PAGE_ROWS):
            for row in page:
                yield row
            after = page[-1].ref

    async def doctor(self) -> Diagnosis:
        """Open every row and check that all agree.

        Every sealed value opens at its place; sequences have no gap but what was
        pruned before their first row; each turn is a visitor's row and an agent's;
        cursors agree with their snapshots and stand between turns; customers' facts can
        be read, and no more turns were learnt from than there are; unanswered words
        open; the database's own checks pass; and a fragment of each of the last 256
        texts, facts and ids that were read is nowhere in the raw files.
        """
        examination = Examination()
        with public_errors():
            for problem in await self._store.check():
                examination.found("database", problem)
            async for row in self._customers():
                examination.customers += 1
                with examination.noting():
                    await self._examine_customer(row, examination)
            after = 0
            while left := await self._store.unanswered(after=after, limit=_PAGE_ROWS):
                for words in left:
                    examination.unanswered += 1
                    with examination.noting():
                        keeping = self._vault.opened(
                            words.session, await self._keeping(words.customer)
                        )
                        examination.look_for(open_words(keeping, words.sealed)[0])
                after = left[-1].session.ref
        fragments = tuple(examination.fragments)
        for file in await anyio.to_thread.run_sync(holding, self._files, fragments):
            examination.found("plaintext", file.name)
        return examination.diagnosis()

    async def _examine_customer(self, row: CustomerRow, examination: Examination) -> None:
        customer = await self._keeping(row)
        with examination.noting():
            state = _state(row, customer)
            for fact in () if state is None else state.book.facts:
                examination.facts += 1
                examination.look_for(fact.text)
        if customer.customer_id is not None:
            examination.look_for(customer.customer_id)
        for session in await self._store.sessions_of(customer.ref):
            examination.sessions += 1
            with examination.noting():
                await self._examine_session(session, customer, examination)

    async def _examine_session(
        self, row: SessionRow, customer: CustomerKeeping, examination: Examination
    ) -> None:
        keeping = self._vault.opened(row, customer)
        examination.look_for(keeping.open_name(row))
        await self._load(row.hash)
        pruned_through(keeping, row)
        last = 0
        while rows := await self._store.rows(row.ref, after=last, limit=_PAGE_ROWS):
            examination.messages += len(rows)
            where = f"session {row.ref}, message {rows[0].seq}"
            follows = await only_pruned(self._vault, keeping, after=last, first=rows[0].seq)
            if not follows or any(b.seq != a.seq + 1 for a, b in pairwise(rows)):
                examination.found("gap", where)
            if any((r.seq % 2 == 1) != (r.role == ROLE_VISITOR) for r in rows):
                examination.found("pair", where)
            for message in await self._vault.messages(keeping, rows):
                examination.look_for(message.text)
            last = rows[-1].seq
        if last % 2:
            examination.found("pair", f"session {row.ref}, message {last}")
        if row.cursor % 2 or row.cursor > last:
            examination.found("cursor", f"session {row.ref}")
        if row.derived % 2 or row.derived > last:
            examination.found("mark", f"session {row.ref}")


def _state(row: CustomerRow, customer: CustomerKeeping) -> CustomerState | None:
    """Open a customer's snapshot, if there is one.

    Raises:
        Tampered: it isn't this customer's, or was changed.
    """
    check_row(row, "customers", f"snapshot {row.ref}")
    if row.snapshot is None:
        return None
    opened = customer.open_state(row.snapshot)
    try:
        return decode(opened)
    except msgspec.MsgspecError:
        raise Tampered("customers", f"snapshot {row.ref}") from None


def _moment(microseconds: int | None) -> datetime | None:
    """Return a time that was read from a row without its seal.

    Raises:
        Tampered: it is none.
    """
    if microseconds is None:
        return None
    try:
        return moment(microseconds)
    except OverflowError:
        raise Tampered("messages", "times") from None
