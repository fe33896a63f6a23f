"""What actors need from outside, as protocols: anyone's object that fits will do.

Each port has an offline default that needs no network and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from interturn.actors.facts import Fact, FactChange, Scored
from interturn.actors.message import Message


class Summarizer(Protocol):
    """Says what messages that leave the window add to the summary."""

    async def fold(self, summary: str, leaving: Sequence[Message], *, cap_tokens: int) -> str:
        """Return what ``leaving`` adds to ``summary``, at most ``cap_tokens`` tokens.

        ``summary`` is context: it is neither returned nor reworded. ``leaving``
        is whole turns, oldest first. The answer is checked by the caller and may
        be refused; an exception leaves summary and cursor as they are.
        """
        ...


class Deriver(Protocol):
    """Finds what a turn says about the customer."""

    async def derive(self, turn: Sequence[Message], known: Sequence[Fact]) -> Sequence[FactChange]:
        """Return facts to set and to retract; the visitor's words are the only evidence.

        ``turn`` is the visitor's message and the agent's reply, and before them, if
        the agent had spoken before, that message: the question that an answer needs.
        ``known`` is what is known by now. An exception is tried again later.
        """
        ...


class Profiler(Protocol):
    """Keeps the short standing description of a customer."""

    async def refresh(
        self, profile: str, recent: Sequence[Message], facts: Sequence[Fact], *, cap_tokens: int
    ) -> str:
        """Return the new profile, at most ``cap_tokens`` tokens."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as the model's provider would."""

    @property
    def name(self) -> str:
        """Identify the counting: stored counts of another name are counted again."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text``, special-token text as ordinary text."""
        ...


class Retriever(Protocol):
    """Ranks facts by how much they help with a query."""

    def rank(self, query: str, facts: Sequence[Fact], *, limit: int) -> Sequence[Scored]:
        """Return at most ``limit`` facts above the floor, best first; maybe none."""
        ...
