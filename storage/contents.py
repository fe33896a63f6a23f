"""What rests in a store in memory: the state that all doors to it share."""

from __future__ import annotations

from collections.abc import Sequence

from .lease import Lease
from .rows import CustomerRow, Root, Row, SessionRow


class Contents:
    """Everything that rests, by reference and by hash."""

    def __init__(self) -> None:
        self.root: Root | None = None
        self.lease = Lease(0, None, 0.0, 0.0, 0.0, locked=False)
        self.customers: dict[int, CustomerRow] = {}
        self.customer_refs: dict[bytes, int] = {}
        self.sessions: dict[int, SessionRow] = {}
        self.session_refs: dict[bytes, int] = {}
        self.rows: dict[int, list[Row]] = {}
        self.deliveries: dict[tuple[int, bytes], int] = {}
        self.unanswered: dict[int, tuple[int, bytes]] = {}

    def last(self, session: int) -> int:
        """Return a session's highest sequence number, 0 before any."""
        rows = self.rows.get(session)
        return rows[-1].seq if rows else 0

    def after(self, session: int, seq: int) -> list[Row]:
        """Return a session's rows with a higher number; they have no gaps."""
        rows = self.rows.get(session, [])
        return rows[max(0, seq + 1 - rows[0].seq) :] if rows else []

    def drop_session(self, ref: int) -> int:
        """Remove a session; return how many messages went."""
        session = self.sessions.pop(ref, None)
        if session is None:
            return 0
        del self.session_refs[session.hash]
        self.unanswered.pop(ref, None)
        return self.drop_rows(ref, self.rows.pop(ref))

    def drop_rows(self, session: int, rows: Sequence[Row]) -> int:
        """Forget the deliveries of rows that go; return how many rows that is."""
        for row in rows:
            if row.delivery is not None:
                del self.deliveries[session, row.delivery]
        return len(rows)

    def drop_customer(self, ref: int) -> None:
        """Remove a customer, if they are there."""
        customer = self.customers.pop(ref, None)
        if customer is not None:
            del self.customer_refs[customer.hash]


def prunable(session: SessionRow) -> int:
    """Return up to where a session's messages may go: before the newest folded and learnt turn."""
    return min(session.cursor, session.derived) - 2
