"""What the tests of actors share: a cheap exact counter, and messages."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from interturn.actors import Message

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)


class ByteCounter:
    """Counts a token for each started four bytes, and how often it was asked for each text."""

    name = "bytes/4"
    byte_level = True

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def count(self, text: str) -> int:
        """Count a text's tokens."""
        self.asked[text] += 1
        return (len(text.encode()) + 3) // 4


@pytest.fixture
def counter() -> ByteCounter:
    """A counter that remembers what it was asked."""
    return ByteCounter()


@pytest.fixture
def said():
    """Make the messages of whole turns: ``said(counter, ("hola", "buenas"), …)``."""

    def make(counter, *turns: tuple[str, str], after: int = 0) -> tuple[Message, ...]:
        messages = []
        for visitor, agent in turns:
            for role, text in (("visitor", visitor), ("agent", agent)):
                seq = after + len(messages) + 1
                at = NOON + timedelta(minutes=seq)
                messages.append(Message(seq, role, text, at, counter.count(text)))
        return tuple(messages)

    return make
