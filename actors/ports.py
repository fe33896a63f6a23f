"""What actors need from outside, as protocols: anyone's object that fits will do.

Each port has an offline default that needs no network and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from interturn.actors.facts import Fact, FactChange, Scored
from interturn.actors.message import Message
from interturn.actors.retrieval import FactIndex


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


class CustomerIndex(Protocol):
    """What a retriever has read of one customer: it goes when they leave memory.

    No method may block the event loop.
    """

    async def read(self, facts: Sequence[Fact]) -> None:
        """Read these facts, and let go of all others. They are the customer's only ones.

        Called when they have changed, never twice at once. What isn't read yet is
        ranked all the same.
        """
        ...

    async def prepare(self, query: str) -> None:
        """Make a query ready for `rank`, which follows, whether this came to its end or not."""
        ...

    def rank(self, query: str, facts: FactIndex, *, limit: int) -> Sequence[Scored]:
        """Return at most ``limit`` of ``facts.facts`` above the floor, best first; maybe none.

        ``facts.rank`` ranks them lexically.
        """
        ...


@runtime_checkable
class IndexingRetriever(Retriever, Protocol):
    """A retriever that reads facts when they change, and queries before they are asked.

    The runtime asks its indexes; its own `rank` is for who has none.
    """

    def customer_index(self) -> CustomerIndex:
        """Return an index for a customer, with nothing read."""
        ...
