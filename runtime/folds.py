"""The fold as a job: ask a summarizer, look at its answer, lay it, tell the actor.

`Folding` touches no actor: what comes out is a new summary or the reason why there
is none. `Folds` runs it for cells, one fold a session at a time; the actor takes the
result only if it still waits for this very fold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import anyio

from interturn.actors.commands import FoldDone, FoldTask
from interturn.actors.errors import InterturnError
from interturn.actors.extractive import Extractive
from interturn.actors.ports import Summarizer
from interturn.actors.summary import Refused, Summary
from interturn.runtime.backoff import back_off_s
from interturn.runtime.cell import Cell
from interturn.runtime.clock import Alarm, Alarms
from interturn.runtime.events import log
from interturn.runtime.jobs import Jobs, raise_if_called_off
from interturn.runtime.statistics import Counters
from interturn.runtime.threads import in_thread
from interturn.runtime.tokens import INLINE_BYTES


class Folding:
    """Does folds with the runtime's summarizer, and with the offline one where it must."""

    def __init__(
        self,
        summarizer: Summarizer | None,
        extractive: Extractive,
        count: Callable[[str], int],
        cap_tokens: int,
    ) -> None:
        self._summarizer = summarizer
        self._extractive = extractive
        self._count = count
        self._cap_tokens = cap_tokens

    async def fold(self, task: FoldTask) -> tuple[Summary, bool]:
        """Return the summary with what ``task.leaving`` adds, and whether it stands in.

        It stands in where the offline summarizer did it and another was given.

        An answer that is too long is asked for once more, then left to the
        offline summarizer.

        Raises:
            Refused: the answer can't be laid.
            Exception: whatever the summarizer raised.
        """
        if self._summarizer is None:
            return await self._offline(task), False
        if task.offline:
            return await self._offline(task), True
        for _ in range(2):
            addition = await self._summarizer.fold(
                task.summary.text, task.leaving, cap_tokens=self._cap_tokens
            )
            try:
                return self._lay(task, addition), False
            except Refused as refusal:
                if refusal.reason != "over-long":
                    raise
        return await self._offline(task), True

    async def _offline(self, task: FoldTask) -> Summary:
        if sum(len(message.text) for message in task.leaving) > INLINE_BYTES:
            return await in_thread(lambda: self._extracted(task))
        return self._extracted(task)

    def _extracted(self, task: FoldTask) -> Summary:
        """Let the offline summarizer do it: that nothing is worth keeping is its right."""
        cap = self._cap_tokens
        addition = self._extractive.extract(task.summary, task.leaving, cap)
        return self._lay(task, addition) if addition else task.summary

    def _lay(self, task: FoldTask, addition: str) -> Summary:
        if not isinstance(addition, str):
            raise Refused("not-text")
        return task.summary.lay(
            addition,
            through=task.leaving[-1].seq,
            cap_tokens=self._cap_tokens,
            count=self._count,
            leaving=task.leaving,
        )


class Folds:
    """The folds of all sessions in memory: under way, or resting after a failure."""

    def __init__(
        self,
        folding: Folding,
        jobs: Jobs,
        alarms: Alarms,
        counters: Counters,
        moved: Callable[[], None],
    ) -> None:
        self._folding = folding
        self._jobs = jobs
        self._alarms = alarms
        self._counters = counters
        self._moved = moved
        self._running: dict[Cell, anyio.CancelScope] = {}
        self._resting: dict[Cell, Alarm] = {}

    def start_due(self, cell: Cell) -> None:
        """Start the fold that is due, if one is; it replaces one that hangs."""
        if cell.actor is not None and (task := cell.actor.fold_due()) is not None:
            self.stop(cell)
            self._counters.folding += 1
            scope = self._running[cell] = anyio.CancelScope()
            self._jobs.start(self._fold, cell, task, scope, scope=scope)

    def stop(self, cell: Cell) -> None:
        """Call a fold off that is under way; what it still says is of no effect."""
        if (scope := self._running.pop(cell, None)) is not None:
            scope.cancel()
            self._ended()

    def rest(self, cell: Cell) -> None:
        """Let a fold that failed rest before it is tried again."""
        cell.folds_failed += 1
        self._resting[cell] = self._alarms.after(
            back_off_s(cell.folds_failed), lambda: self.wake(cell)
        )

    def wake(self, cell: Cell) -> None:
        """Try again what rests after a failure."""
        self.leave(cell)
        if cell.actor is not None:
            cell.actor.rested()
            self.start_due(cell)

    def wake_all(self) -> None:
        """Try again at once whatever rests."""
        for cell in list(self._resting):
            self.wake(cell)

    def leave(self, cell: Cell) -> None:
        """Forget that a fold rests: it is tried again, or its cell is gone."""
        if (alarm := self._resting.pop(cell, None)) is not None:
            alarm.cancel()

    async def _fold(self, cell: Cell, task: FoldTask, scope: anyio.CancelScope) -> None:
        summary: Summary | None = None
        try:
            summary, stands_in = await self._folding.fold(task)
            self._counters.folds_offline += stands_in
        except (Exception, anyio.get_cancelled_exc_class()) as error:  # noqa: BLE001
            # A summarizer may raise anything, a cancellation of its own too.
            raise_if_called_off(error)
            self._counters.folds_failed += 1
            reason = error.reason if isinstance(error, Refused) else type(error).__name__
            log.warning("fold_failed", key=cell.key, reason=reason, messages=len(task.leaving))
        if scope.cancel_called:
            return
        with contextlib.suppress(InterturnError):  # the store's failure; the fold comes again
            await cell.tell(FoldDone(task, summary)).promise.wait()
        if not scope.cancel_called:
            del self._running[cell]
            self._ended()

    def _ended(self) -> None:
        self._counters.folding -= 1
        if not self._counters.folding:
            self._moved()
