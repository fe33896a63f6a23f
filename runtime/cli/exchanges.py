"""What a transcript is made of: turns, and the count of what is in none."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Literal

import msgspec

from interturn.actors.message import Discreet


class Exchange(Discreet, frozen=True):
    """One turn of a transcript.

    Attributes:
        visitor: what the visitor said.
        agent: what the agent replied.
        at: when, where the file says so (UTC unless it names a zone).
    """

    visitor: str
    agent: str
    at: datetime | None = None


class LeftOut(msgspec.Struct, frozen=True):
    """What a file holds that is no part of any turn, counted.

    Attributes:
        openings: messages of the agent with no visitor before them.
        last_words: messages of the visitor with no reply.
        instructions: system and developer messages.
        tools: tool and function messages, calls and results.
        parts: images, audio, files and other parts that are no text.
        empty: messages with no text at all.
    """

    openings: int = 0
    last_words: int = 0
    instructions: int = 0
    tools: int = 0
    parts: int = 0
    empty: int = 0

    def __add__(self, other: LeftOut) -> LeftOut:
        """Add count by count."""
        return LeftOut(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class Transcript(Discreet, frozen=True):
    """One conversation of a file.

    Attributes:
        session_id: its name; stable for this file, and unique in it.
        customer: whose it is, where the file says so.
        turns: in order.
        left_out: what is in the file and in no turn.
    """

    session_id: str
    customer: str | None
    turns: tuple[Exchange, ...]
    left_out: LeftOut


class Turns:
    """Pairs what is heard into turns: several messages of one side are one, joined by lines."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._turns: list[Exchange] = []
        self._visitor: list[str] = []
        self._agent: list[str] = []
        self._at: datetime | None = None

    def hear(self, side: Literal["visitor", "agent"], text: str, at: datetime | None) -> None:
        """Take the next message, said at ``at`` where that is known."""
        if not text.strip():
            self.counts["empty"] += 1
        elif side == "agent":
            if self._visitor:
                self._agent.append(text)
            else:
                self.counts["openings"] += 1
        else:
            if self._agent:
                self._close()
            if not self._visitor:
                self._at = at
            self._visitor.append(text)

    def _close(self) -> None:
        self._turns.append(Exchange("\n".join(self._visitor), "\n".join(self._agent), self._at))
        self._visitor, self._agent = [], []

    def transcript(self, session_id: str, customer: str | None) -> Transcript:
        """Return what was heard, as this session of this customer."""
        if self._agent:
            self._close()
        self.counts["last_words"] += len(self._visitor)
        return Transcript(session_id, customer, tuple(self._turns), LeftOut(**self.counts))
