"""The customer actor: what outlives a session and crosses channels.

It owns the facts and the profile. What it holds is published as a `View`, an
immutable value that every session of the customer reads without a message: a
new one takes the place of the old when something has changed.

Derivation is at least once with the effect of once: each session's turns come in
order, and a turn at or before the session's mark was learnt already. Marks and
facts rest together (`CustomerState`), so after a crash what lies past the marks
is derived again from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from interturn.actors.book import FactBook
from interturn.actors.facts import Fact, FactChange, Scored
from interturn.actors.message import Discreet, Message
from interturn.actors.ports import TokenCounter
from interturn.actors.profile import render, same
from interturn.actors.retrieval import FactIndex

_FORMAT: Final = 1
_RECENT_MESSAGES: Final = 24


class CustomerLimits(msgspec.Struct, frozen=True):
    """The bounds of a customer: `interturn.runtime.Settings` names and explains them."""

    profile_tokens: int = 120
    facts_per_customer: int = 500
    profile_every: int = 10


# What happens to a customer.


class Learnt(Discreet, frozen=True):
    """A turn was read for what it says about the customer.

    Attributes:
        source: session id, and sequence number of the visitor's message.
        at: when it was said.
        changes: what the deriver found; maybe nothing.
        messages: the turn.
    """

    source: tuple[str, int]
    at: datetime
    changes: tuple[FactChange, ...]
    messages: tuple[Message, ...]


class Told(Discreet, frozen=True):
    """An operator or the application says what it knows, or that a fact must go.

    Attributes:
        change: the fact to set, or None.
        retract: the id of the fact to let go of, or None.
        at: when it was said.
    """

    change: FactChange | None
    retract: str | None
    at: datetime


class Refreshed(Discreet, frozen=True):
    """The profiler wrote a new standing description."""

    profile: str


class Unlearnt(Discreet, frozen=True):
    """A turn was taken back: what it alone taught goes too."""

    source: tuple[str, int]


class Joined(Discreet, frozen=True):
    """Another customer turned out to be this one."""

    other: CustomerState


CustomerEvent: TypeAlias = "Learnt | Told | Refreshed | Unlearnt | Joined"


class View(Discreet, frozen=True):
    """What sessions read of their customer: immutable, replaced when something changes.

    Attributes:
        profile: as it stands in a request.
        facts: all of them.
        tokens: of each fact, by its id.
        index: over the facts, made when they change and not when asked.
    """

    profile: str
    facts: tuple[Fact, ...]
    tokens: dict[str, int]
    index: FactIndex

    def chosen(self, ranked: Sequence[Scored], *, tokens: int, limit: int) -> tuple[Scored, ...]:
        """Return the first ``limit`` of ``ranked``, each once, in at most ``tokens`` tokens."""
        chosen: dict[str, Scored] = {}
        for scored in ranked[:limit]:
            if scored.fact.id in chosen:
                continue
            tokens -= self.tokens.get(scored.fact.id, tokens + 1)
            if tokens < 0:
                break
            chosen[scored.fact.id] = scored
        return tuple(chosen.values())


class CustomerState(msgspec.Struct, frozen=True, array_like=True):
    """The customer as it rests; a later format only adds fields."""

    format: int
    book: FactBook
    standing: str
    turns: int


EMPTY: Final = CustomerState(_FORMAT, FactBook(), "", 0)


class CustomerActor:
    """One customer's facts and profile. `after` decides, `apply` takes what was decided.

    Args:
        limits: the bounds.
        counter: counts tokens.
        state: what rested, or `EMPTY`.
    """

    __slots__ = ("_counter", "_limits", "_shown", "_view", "recent", "state")

    def __init__(
        self,
        limits: CustomerLimits,
        counter: TokenCounter,
        state: CustomerState = EMPTY,
    ) -> None:
        self._limits = limits
        self._counter = counter
        self.recent: tuple[Message, ...] = ()
        self.state = state
        self._shown = EMPTY  # the state that the view was made of
        self._view = View("", (), {}, FactIndex.of(()))

    def __repr__(self) -> str:
        return f"CustomerActor(facts={len(self.state.book.facts)}, turns={self.state.turns})"

    @property
    def view(self) -> View:
        """What sessions read, made now unless it was published; raises what a counter raises."""
        self.publish()
        return self._view

    @property
    def refresh_due(self) -> bool:
        """Whether it is time for the profiler."""
        return self.state.turns >= self._limits.profile_every

    def after(self, event: CustomerEvent) -> CustomerState:
        """Return the state that an event leaves, changing nothing."""
        state = self.state
        match event:
            case Learnt(source, at, changes, _):
                book = state.book.apply(changes, source=source, at=at, limit=self._bound)
                return msgspec.structs.replace(state, book=book, turns=state.turns + 1)
            case Told(change, retract, at):
                book = state.book if retract is None else state.book.retract(retract)
                if change is not None:
                    book = book.apply([change], source=("", 0), at=at, limit=self._bound)
                return msgspec.structs.replace(state, book=book)
            case Refreshed(profile):
                return msgspec.structs.replace(state, standing=profile, turns=0)
            case Unlearnt(source):
                return msgspec.structs.replace(state, book=state.book.without(source))
            case Joined(other):
                book = state.book.merge(other.book, limit=self._bound)
                standing = state.standing or other.standing
                return msgspec.structs.replace(state, book=book, standing=standing)

    def apply(self, event: CustomerEvent, state: CustomerState) -> bool:
        """Take up the state that `after` returned for this event. It asks no port: it can't fail.

        Returns:
            Whether facts or profile changed.
        """
        if isinstance(event, Learnt):
            self.recent = (*self.recent, *event.messages)[-_RECENT_MESSAGES:]
        changed = (state.book, state.standing) != (self.state.book, self.state.standing)
        if not changed and self._shown is self.state:
            self._shown = state
        self.state = state
        return changed

    def snapshot(self, state: CustomerState | None = None) -> bytes:
        """Encode the state as it rests, or another that is about to be."""
        return msgspec.msgpack.encode(self.state if state is None else state)

    def publish(self) -> None:
        """Make the view of the state as it is: the always-on slots are rendered by code.

        Raises:
            Exception: whatever the counter raised; the view is as it was, and made when asked.
        """
        before, view = self._shown, self._view
        if self.state is before:
            return
        facts = self.state.book.facts
        counted = {fact.text: view.tokens[fact.id] for fact in view.facts}
        tokens = {
            fact.id: counted[fact.text]
            if fact.text in counted
            else self._counter.count(f"- {fact.text}\n")
            for fact in facts
        }
        profile, standing = view.profile, self.state.standing
        if standing != before.standing or not same(standing, facts, before.book.facts):
            profile = render(
                standing, facts, cap_tokens=self._limits.profile_tokens, counter=self._counter
            )
        self._view = View(profile, facts, tokens, view.index.updated(facts))
        self._shown = self.state

    @property
    def _bound(self) -> int:
        return self._limits.facts_per_customer


def decode(snapshot: bytes) -> CustomerState:
    """Read a snapshot.

    Raises:
        msgspec.MsgspecError: it isn't one.
    """
    return msgspec.msgpack.decode(snapshot, type=CustomerState)
