"""The fold as a job: ask a summarizer, look at its answer, lay it.

Nothing here touches the actor. What comes out is a new summary or the reason why
there is none; the actor takes it only if it still waits for this very fold.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio.to_thread

from interturn.actors.commands import FoldTask
from interturn.actors.extractive import Extractive
from interturn.actors.ports import Summarizer
from interturn.actors.summary import Refused, Summary
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
            return await anyio.to_thread.run_sync(self._extracted, task)
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
