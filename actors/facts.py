"""Facts about a customer: durable statements, one for each slot."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from interturn.actors.message import Discreet


class Fact(Discreet, frozen=True, gc=False):
    """A durable statement about the customer, in their language.

    Attributes:
        id: stable while the fact is updated in place.
        slot: what it is about, such as ``name``, ``home`` or ``allergy:nuts``.
        text: the statement.
        since: when it was first said (UTC).
        last_seen: when it was last said (UTC).
        sightings: how many times it was said.
        source: session id and sequence number of the message that said it last.
        was: the value that it replaced, if any.
    """

    id: str
    slot: str
    text: str
    since: datetime
    last_seen: datetime
    sightings: int
    source: tuple[str, int]
    was: str | None = None


class FactChange(Discreet, frozen=True, gc=False):
    """What a deriver wants done: ``set`` a slot to a text, or ``retract`` it.

    Attributes:
        kind: ``retract`` takes a slot and all that stands under it (``pet`` also ``pet:nube``).
        slot: what it is about.
        text: the statement, if ``set``.
        refines: the text says more of the same; what it replaces was never untrue, and
            doesn't become ``was``.
        erases: the customer asked to forget it: nothing of it stays, not even to be undone.
    """

    kind: Literal["set", "retract"]
    slot: str
    text: str = ""
    refines: bool = False
    erases: bool = False


class Scored(Discreet, frozen=True, gc=False):
    """A fact with its relevance to a query; higher is better."""

    fact: Fact
    score: float
