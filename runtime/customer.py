"""The handle of a customer: the owner of keys and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from interturn.runtime.errors import public_errors
from interturn.runtime.keeping import CustomerKeeping

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

    async def sessions(self) -> list[str]:
        """Return the ids of the customer's sessions, oldest first; none for a stranger."""
        vault = self._supervisor().vault
        keeping = await self._keeping()
        with public_errors():
            rows = await vault.store.sessions_of(keeping.ref)
            return [vault.opened(row, keeping).open_name(row) for row in rows]

    async def _keeping(self) -> CustomerKeeping:
        if self.customer_id is None and self._session is not None:
            return await self._session.owner()
        assert self.customer_id is not None
        vault = self._supervisor().vault
        with public_errors():
            return await vault.customer(vault.hasher.customer(self.customer_id), self.customer_id)
