"""What is read once: one object for everybody, whichever thread asks first.

`functools.cache` alone reads twice where two threads ask at once, and gives each its
own. What compares by identity, as a rule with its language, would then find nothing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def once(load: Callable[[], T]) -> Callable[[], T]:
    """Return a function that loads at its first call; who asks meanwhile waits for it."""
    lock = threading.Lock()
    loaded: list[T] = []

    @functools.cache
    @functools.wraps(load)
    def get() -> T:
        with lock:
            if not loaded:
                loaded.append(load())
            return loaded[0]

    return get
