"""How long to rest after failures before trying again."""

from __future__ import annotations

import random
from typing import Final

_REST_S: Final = (1.0, 60.0)


def back_off_s(attempt: int) -> float:
    """Return how long to rest after the ``attempt``-th failure in a row, in seconds.

    Doubling from 1 to 60 s, with full jitter in the upper half so that what
    failed together isn't tried together (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog 2015).
    """
    low, high = _REST_S
    ceiling = min(high, low * float(1 << min(attempt - 1, 16)))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
