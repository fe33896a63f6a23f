"""The handle of a customer: their facts, their profile, their sessions, and their erasure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from interturn.actors.book import fact_id
from interturn.actors.customer import Told
from interturn.actors.facts import Fact, FactChange, Scored
from interturn.runtime.customers import CustomerCell
from interturn.runtime.errors import InvalidText, public_errors
from interturn.runtime.keeping import CustomerKeeping
from interturn.runtime.moves import Erasure
from interturn.runtime.texts import check_id, check_text, check_whole

if TYPE_CHECKING:
    from interturn.runtime.session import Session
    from interturn.runtime.supervisor import Supervisor


class Customer:
    """A person, across sessions and channels. A handle costs nothing: no I/O, no state.

    Attributes:
        customer_id: None for the anonymous visitor of a session, or for whoever
            owns it where the session's handle named nobody.
    """

    __slots__ = ("_session", "_supervisor", "customer_id")

    def __init__(
        self,
        supervisor: Callable[..., Supervisor],
        customer_id: str | None,
        *,
        session: Session | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._session = session
        self.customer_id = customer_id

    def __repr__(self) -> str:
        return f"Customer({'named' if self.customer_id else 'by session'})"

    async def facts(self) -> tuple[Fact, ...]:
        """Return what is known of the customer, oldest first; nothing for a stranger."""
        return (await self._cell()).actor.view.facts

    async def profile(self) -> str:
        """Return the customer's profile as it stands in a request."""
        return (await self._cell()).actor.view.profile

    async def recall(
        self, query: str, *, limit: int | None = None, tokens: int | None = None
    ) -> tuple[Scored, ...]:
        """Return the facts that help with a query, best first; maybe none.

        Args:
            query: a question, or what the visitor says.
            limit: facts at most; None means as many as the tokens admit.
            tokens: of all of them together at most; None means ``facts_tokens``.

        Raises:
            InvalidText: the query can't be read, or a bound is negative or not whole.
        """
        supervisor = self._supervisor()
        for name, bound in (("limit", limit), ("tokens", tokens)):
            check_whole(name, bound)
            if bound is not None and bound < 0:
                raise InvalidText(name, "is negative")
        if query == "":
            return ()
        check_text("query", query, supervisor.settings.text_bytes)
        if not query.strip():
            return ()
        retrieving = supervisor.retrieving
        if retrieving.prepares:
            await retrieving.prepare(await self._cell(), query)
        return retrieving.chosen(await self._cell(), query, limit=limit, tokens=tokens)

    async def remember(self, text: str, *, slot: str | None = None) -> Fact:
        """Keep what an operator or the application knows; it is on disk when this returns.

        Args:
            text: the statement.
            slot: what it is about, such as ``home``: then it replaces what was there.
                None keeps it as a note of its own.

        Raises:
            InvalidText: it can't be kept, or is of the kind that is never remembered.
            MailboxFull: too much is being written of this customer. Retry later.
            StoreFailed: it isn't on disk, and nothing has changed.
        """
        supervisor = self._supervisor()
        check_text("text", text, supervisor.settings.text_bytes)
        if not text.strip():
            raise InvalidText("text", "is empty")
        if slot is not None:
            check_id("slot", slot)
        cell = await self._cell()
        change = FactChange("set", slot or f"note:{fact_id(text)}", text)
        told = Told(change, None, supervisor.utc())
        kept = cell.actor.after(told).book.get(change.slot)
        if kept is None or kept == cell.actor.state.book.get(change.slot):
            raise InvalidText("text", "is of the kind that is never remembered")
        await self._commit(cell, told)
        return kept

    async def retract(self, fact_id: str) -> bool:
        """Let go of a fact; it is gone from disk when this returns.

        Returns:
            Whether there was one of this id.
        """
        cell = await self._cell()
        if all(fact.id != fact_id for fact in cell.actor.view.facts):
            return False
        await self._commit(cell, Told(None, fact_id, self._supervisor().utc()))
        return True

    async def sessions(self) -> list[str]:
        """Return the ids of the customer's sessions, oldest first; none for a stranger."""
        vault = self._supervisor().vault
        keeping = await self._keeping()
        with public_errors():
            rows = await vault.store.sessions_of(keeping.ref)
            return [vault.opened(row, keeping).open_name(row) for row in rows]

    async def merge(self, other_id: str) -> None:
        """Make all that is another customer's this one's: they turned out to be one.

        Sessions and facts move in one transaction; of the same slot the later said
        stands. It waits for the turns that are held.
        """
        check_id("other_id", other_id)
        supervisor = self._supervisor()
        moves = supervisor.moves
        into = await self._keeping()
        task = asyncio.current_task()
        await moves.carried_out(lambda: moves.merge(into, other_id, task))

    async def forget(self) -> Erasure:
        """Destroy the customer's key and everything sealed with it, in memory and on disk.

        Held turns end with `Forgotten`. Others notice nothing. A stranger is fine:
        nothing is destroyed, and the receipt says so.

        Raises:
            StoreFailed: the disk refused; what was begun is finished at the next open.
        """
        moves = self._supervisor().moves
        keeping = await self._keeping()
        return await moves.carried_out(lambda: moves.forget(keeping))

    async def _commit(self, cell: CustomerCell, told: Told) -> None:
        supervisor = self._supervisor()
        await supervisor.moves.carried_out(lambda: supervisor.customers.commit(cell, told), cell)

    async def _cell(self) -> CustomerCell:
        keeping = await self._keeping()
        with public_errors():
            return self._supervisor().customers.cell(keeping)

    async def _keeping(self) -> CustomerKeeping:
        if self.customer_id is None and self._session is not None:
            return await self._session.owner()
        assert self.customer_id is not None
        vault = self._supervisor().vault
        with public_errors():
            return await vault.named(self.customer_id)
