"""Ports that learn nothing, so that what is measured is the conversation itself."""

# ruff: noqa: ARG002 - a port's arguments have their names

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interturn.actors import Fact, FactChange, Message

NO_FOLDS: Final = 48
"""Surplus messages that start a fold, where there should be none: more than a session has."""


class Silent:
    """A deriver that finds no fact, and a profiler that leaves the profile."""

    async def derive(self, turn: Sequence[Message], known: Sequence[Fact]) -> Sequence[FactChange]:
        """Find no fact."""
        return ()

    async def refresh(
        self, profile: str, recent: Sequence[Message], facts: Sequence[Fact], *, cap_tokens: int
    ) -> str:
        """Leave the profile."""
        return profile
