"""Which facts help with a query: the retriever that is asked, and what it reads beforehand.

A retriever that has to read first (`interturn.actors.IndexingRetriever`) has an index
for each customer, which lives as long as the customer's place in memory. Facts are read
into it by a job when they change. A query is made ready by a job as well, before a
request is assembled, and for no longer than `PATIENCE_S`. Whatever fails there or comes
late is found as it would be without: lexically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from interturn.actors.facts import Scored
from interturn.actors.ports import CustomerIndex, IndexingRetriever, Retriever
from interturn.runtime.clock import Alarms
from interturn.runtime.events import log
from interturn.runtime.jobs import Jobs, raise_if_called_off
from interturn.runtime.promise import Promise
from interturn.runtime.settings import Settings
from interturn.runtime.statistics import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from interturn.runtime.customers import CustomerCell

PATIENCE_S: Final = 0.5
"""Seconds that a turn waits for its query to be made ready: over ten times what it takes."""


class Reading:
    """A customer's index, and the job that reads their facts into it, while there is one."""

    __slots__ = ("index", "scope")

    def __init__(self, index: CustomerIndex) -> None:
        self.index = index
        self.scope: anyio.CancelScope | None = None


class Retrieving:
    """Asks the retriever of one runtime. See the module's head."""

    def __init__(
        self,
        retriever: Retriever | None,
        *,
        jobs: Jobs,
        alarms: Alarms,
        counters: Counters,
        settings: Settings,
        moved: Callable[[], None],
    ) -> None:
        self._indexing = retriever if isinstance(retriever, IndexingRetriever) else None
        self._retriever = None if self._indexing else retriever
        self._jobs = jobs
        self._alarms = alarms
        self._counters = counters
        self._settings = settings
        self._moved = moved
        self.under_way = 0

    def __repr__(self) -> str:
        return f"Retrieving(under_way={self.under_way})"

    @property
    def prepares(self) -> bool:
        """Whether queries are made ready beforehand."""
        return self._indexing is not None

    # When facts change.

    def changed(self, cell: CustomerCell) -> None:
        """Read a customer's facts, which have changed; nobody waits."""
        if self._indexing is None or cell.gone:
            return
        if cell.reading is None:
            if not cell.actor.view.facts:
                return
            cell.reading = Reading(self._indexing.customer_index())
        if cell.reading.scope is None:
            scope = cell.reading.scope = anyio.CancelScope()
            self.under_way += 1
            self._jobs.start(self._read, cell, cell.reading, scope=scope)

    async def _read(self, cell: CustomerCell, reading: Reading) -> None:
        try:
            facts = None
            while facts is not cell.actor.view.facts:
                facts = cell.actor.view.facts
                await reading.index.read(facts)
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._failed("reading_failed", error)
        finally:
            reading.scope = None
            self.under_way -= 1
            self._moved()

    def leave(self, cell: CustomerCell) -> None:
        """Let go of all that was read of a customer, and of what was asked about them."""
        if cell.reading is not None and cell.reading.scope is not None:
            cell.reading.scope.cancel()
        cell.reading = None

    # When something is asked.

    async def prepare(self, cell: CustomerCell, query: str) -> None:
        """Make a query ready to be asked, as far as that takes no longer than `PATIENCE_S`."""
        if cell.reading is None:
            return
        ready: Promise[None] = Promise()
        scope = anyio.CancelScope()
        self._jobs.start(self._prepare, cell.reading.index, query, ready, scope=scope)
        alarm = self._alarms.after(PATIENCE_S, lambda: ready.keep(None))
        try:
            await ready.wait()
        finally:
            alarm.cancel()
            scope.cancel()

    async def _prepare(self, index: CustomerIndex, query: str, ready: Promise[None]) -> None:
        try:
            await index.prepare(query)
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            raise_if_called_off(error)
            self._failed("query_failed", error)
        finally:
            ready.keep(None)

    def chosen(
        self,
        cell: CustomerCell,
        query: str,
        *,
        limit: int | None = None,
        tokens: int | None = None,
    ) -> tuple[Scored, ...]:
        """Return the facts that help with a query; a retriever that fails finds none."""
        limit = self._settings.facts_per_customer if limit is None else limit
        tokens = self._settings.facts_tokens if tokens is None else tokens
        view = cell.actor.view
        if not view.facts or limit <= 0:
            return ()
        try:
            return view.chosen(self._ranked(cell, query, limit), tokens=tokens, limit=limit)
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            # Nothing was awaited: a cancellation is the retriever's own, too.
            self._failed("retrieval_failed", error)
            return ()

    def _ranked(self, cell: CustomerCell, query: str, limit: int) -> Sequence[Scored]:
        view = cell.actor.view
        if cell.reading is not None:
            return cell.reading.index.rank(query, view.index, limit=limit)
        if self._retriever is None:
            return view.index.rank(query, limit=limit)
        return self._retriever.rank(query, view.facts, limit=limit)

    def _failed(self, event: str, error: BaseException) -> None:
        self._counters.failures += 1
        log.warning(event, error=type(error).__name__)
