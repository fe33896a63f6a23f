"""Reads the lines of ``interturn export --format jsonl`` back, one message a line.

They are our own, so nothing is guessed at: a turn is a visitor's line and the
agent's next to it, and the texts stay as they are, blank ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Annotated, Literal

import msgspec

from interturn.runtime.cli.exchanges import Exchange, LeftOut, Transcript
from interturn.runtime.cli.records import Place, converted


class _Line(msgspec.Struct, kw_only=True):
    customer: str | None = None
    session: str
    seq: int
    role: Literal["visitor", "agent"]
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    text: str


def is_exported(record: object) -> bool:
    """Whether a record is a line of an export."""
    return isinstance(record, dict) and {"session", "seq", "role", "text"} <= record.keys()


def exported(lines: Iterable[tuple[Place, object]]) -> Iterator[Transcript]:
    """Yield the sessions of an export, in its order.

    Raises:
        TranscriptError: a line is no message, or no part of a turn.
    """
    read = ((place, converted(record, _Line, place)) for place, record in lines)
    sessions = groupby(read, key=lambda placed: (placed[1].session, placed[1].customer))
    for (session_id, customer), found in sessions:
        yield Transcript(session_id, customer, tuple(_turns(found)), LeftOut())


def _turns(lines: Iterator[tuple[Place, _Line]]) -> Iterator[Exchange]:
    for place, visitor in lines:
        _, agent = next(lines, (place, None))
        paired = agent is not None and (visitor.role, agent.role) == ("visitor", "agent")
        if agent is None or not paired or agent.seq != visitor.seq + 1:
            raise place.refusal("unpaired")
        yield Exchange(visitor.text, agent.text, visitor.at)
