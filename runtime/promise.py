"""A promise: one answer, given once, waited for by whoever asked."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import anyio

T = TypeVar("T")


class Promise(Generic[T]):
    """The answer to a message. Given in the loop's thread; the first answer counts.

    Nothing is made for a waiter unless somebody waits: most answers are there
    before anyone could.
    """

    __slots__ = ("_error", "_event", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._event: anyio.Event | None = None

    def keep(self, value: T) -> bool:
        """Answer with a value; False if there was an answer already."""
        return self._settle(value, None)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; False if there was an answer already."""
        return self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> bool:
        if self.done:
            return False
        self.done = True
        self._value = value
        self._error = error
        if self._event is not None:
            self._event.set()
        return True

    async def wait(self) -> T:
        """Return the answer, or raise the error, when it is there."""
        if not self.done:
            self._event = self._event or anyio.Event()
            await self._event.wait()
        return self.result()

    def result(self) -> T:
        """Return the answer that is there, or raise its error."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)
