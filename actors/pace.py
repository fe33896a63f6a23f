"""Long reading stops to breathe, where whoever runs it in a thread says how.

Reading is plain Python: in a thread of its own it still keeps the interpreter, and
the event loop beside it waits some milliseconds at each of its steps. A pause of a
moment at every few sentences lets the loop have its turn. What is read here knows
nothing of threads or time, so the pause is given from outside; without one there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_pause: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)


def breathe() -> None:
    """Pause, if that was asked for. Called once or more for each sentence."""
    pause = _pause.get()
    if pause is not None:
        pause()


@contextmanager
def breathing(pause: Callable[[], None]) -> Iterator[None]:
    """Have ``pause`` called at every sentence that is read within, in threads begun here too."""
    before = _pause.set(pause)
    try:
        yield
    finally:
        _pause.reset(before)
