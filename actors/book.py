"""The fact book: what is known of one customer, one fact a slot.

A fact is never added next to itself. What is said again is seen again; what is
said otherwise takes the place of what was said, which stays as its `was`. Two
things that can both be true have two slots, and whoever derives facts names them
so (`allergy:latex`, `allergy:nuts`).

Beside the facts the book keeps what each session's newest message did to them,
so that an undone turn also takes back what was learnt from it. What a customer
asked to forget is in neither.
"""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from interturn.actors.facts import Fact, FactChange
from interturn.actors.message import Discreet
from interturn.actors.private import is_private
from interturn.actors.sentences import cut
from interturn.actors.words import WORD, fold

FACT_CHARACTERS: Final = 400
"""The longest fact: a statement, not a letter."""
CHANGES: Final = 40
"""The most that one message may change: a deriver that answers with more is cut short."""
SLOT_CHARACTERS: Final = 80
UNDOABLE: Final = 32
"""Sessions whose newest message can be taken back."""
STANDING: Final = ("name", "language", "form-of-address", "allergy", "condition", "diet")
"""Slots that stand in every profile, in this order, and are the last to go at the bound."""

_NOTE: Final = "note"
_TELLING_WORD: Final = 4  # characters


class Step(Discreet, frozen=True):
    """What one message did to one slot.

    Attributes:
        source: session id and sequence number of the message.
        before: the fact as it stood, or ``None``.
        after: the fact as the message left it, or ``None``.
    """

    source: tuple[str, int]
    before: Fact | None
    after: Fact | None


class FactBook(Discreet, frozen=True):
    """The facts of one customer; each operation returns a new book.

    Attributes:
        facts: one a slot, in the order in which they were first said.
        steps: what the newest message of each of the last `UNDOABLE` sessions did.
    """

    facts: tuple[Fact, ...] = ()
    steps: tuple[Step, ...] = ()

    def apply(
        self,
        changes: Iterable[FactChange],
        *,
        source: tuple[str, int],
        at: datetime,
        limit: int = 500,
        private: bool = True,
    ) -> FactBook:
        """Return the book with ``changes`` made, in order; at most ``limit`` facts.

        The same slot is updated in place and keeps its ``id`` and ``since``; an equal
        statement (compared folded) only counts a sighting. Changes without a slot or a
        text, with lone surrogates, and with ``private`` those that hold what is never
        remembered, are passed over; over-long texts are cut.

        Args:
            changes: at most `CHANGES` of them count.
            source: session id and sequence number of the visitor's message.
            at: when it was said (UTC).
            limit: facts a customer; over it the least seen, and of those the longest
                unseen, go first, those in `STANDING` slots last.
            private: what is never remembered isn't.
        """
        steps = [
            step for step in self.steps if step.source[0] != source[0] or step.source == source
        ]
        changes = tuple(islice(changes, CHANGES))
        if not changes and len(steps) == len(self.steps) and len(self.facts) <= limit:
            return self
        held = {fact.slot: fact for fact in self.facts}
        for change in changes:
            slot = folded_slot(change.slot)
            if not slot:
                continue
            if change.kind == "retract":
                _retract(held, steps, slot, source, erases=change.erases)
                continue
            text = _text_of(change.text)
            if not text or (private and is_private(text)):
                continue
            before = held.get(slot)
            after = _seen(before, slot, text, source, at, refines=change.refines)
            held[slot] = after
            steps.append(Step(source, before, after))
        return _bounded(held, steps, limit, source)

    def get(self, slot: str) -> Fact | None:
        """Return the fact of a slot, compared folded, or ``None``."""
        slot = folded_slot(slot)
        return next((fact for fact in self.facts if fact.slot == slot), None)

    def retract(self, fact_id: str) -> FactBook:
        """Return the book without a fact, or this book if there is none of that id.

        Nothing of it stays to be undone: somebody decided that it must go.
        """
        kept = tuple(fact for fact in self.facts if fact.id != fact_id)
        if len(kept) == len(self.facts):
            return self
        steps = tuple(
            step for step in self.steps if fact_id not in {_id(step.before), _id(step.after)}
        )
        return FactBook(kept, steps)

    def without(self, source: tuple[str, int]) -> FactBook:
        """Return the book without what a message alone taught.

        A fact that only it taught goes; one that it changed is again what it was; one
        that others said too has a sighting less. What it retracted comes back, unless
        the customer had asked to forget it.
        """
        held = {fact.slot: fact for fact in self.facts}
        known = [step for step in self.steps if step.source == source]
        for step in reversed(known):
            _undo(held, step)
        if not known:
            held = {
                slot: fact
                for slot, fact in held.items()
                if fact.source != source or fact.sightings > 1
            }
        steps = tuple(step for step in self.steps if step.source != source)
        return FactBook(_ordered(held.values()), steps)

    def merge(self, other: FactBook, *, limit: int = 500) -> FactBook:
        """Return the facts of both books: two customers turned out to be one.

        Of the same slot the later seen stands, with the sightings of both and, where they
        differ, the other as its ``was``.
        """
        held = {fact.slot: fact for fact in self.facts}
        for theirs in other.facts:
            ours = held.get(theirs.slot)
            held[theirs.slot] = theirs if ours is None else _merged(ours, theirs)
        held = {fact.slot: fact for fact in _ordered(held.values())}
        return _bounded(held, [*self.steps, *other.steps], limit, None)


def folded_slot(slot: str) -> str:
    """Return a slot as it is compared and kept, or ``""`` if it can't be one.

    NFKC, lower case, no Latin accents, single spaces, at most `SLOT_CHARACTERS`.
    """
    folded = " ".join(fold(unicodedata.normalize("NFKC", slot)).split())[:SLOT_CHARACTERS]
    return folded.strip() if _encodes(folded) and folded.isprintable() else ""


def fact_id(slot: str) -> str:
    """Return the id of a slot's fact: the same for the same slot, always."""
    return hashlib.blake2b(slot.encode(), digest_size=6).hexdigest()


def equal(one: str, other: str) -> bool:
    """Return whether two statements are the same but for case, accents, spaces and form."""
    return one == other or folded(one) == folded(other)


def folded(text: str) -> str:
    """Return what two statements have in common that are `equal`."""
    return " ".join(fold(unicodedata.normalize("NFKC", text)).split()).rstrip(" .!,;")


def _encodes(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _text_of(text: str) -> str:
    if not _encodes(text):
        return ""
    return cut(" ".join(text.split()), FACT_CHARACTERS)


def _id(fact: Fact | None) -> str:
    return fact.id if fact else ""


def _seen(
    before: Fact | None,
    slot: str,
    text: str,
    source: tuple[str, int],
    at: datetime,
    *,
    refines: bool,
) -> Fact:
    if before is None:
        return Fact(fact_id(slot), slot, text, at, at, 1, source)
    # A clock that goes back doesn't make a fact older.
    latest = max(at, before.last_seen)
    seen = msgspec.structs.replace(
        before, last_seen=latest, sightings=before.sightings + 1, source=source
    )
    if equal(before.text, text):
        return seen
    was = before.was if refines else before.text
    return msgspec.structs.replace(seen, text=text, was=was)


def _retract(
    held: dict[str, Fact],
    steps: list[Step],
    slot: str,
    source: tuple[str, int],
    *,
    erases: bool,
) -> None:
    under = slot + ":"
    gone = [fact for fact in held.values() if fact.slot == slot or fact.slot.startswith(under)]
    if erases:
        gone += [note for note in held.values() if any(_repeats(note, fact) for fact in gone)]
    ids = set()
    for fact in gone:
        if held.pop(fact.slot, None) is None:
            continue
        ids.add(fact.id)
        if not erases:
            steps.append(Step(source, fact, None))
    if erases:
        steps[:] = [step for step in steps if ids.isdisjoint((_id(step.before), _id(step.after)))]


def _repeats(note: Fact, fact: Fact) -> bool:
    """Return whether a note says again what a fact says, or what it said before."""
    if not note.slot.startswith(_NOTE):
        return False
    telling = {
        word
        for word in WORD.findall(fold(f"{fact.text} {fact.was or ''}"))
        if len(word) >= _TELLING_WORD or word.isdigit()
    }
    shared = telling.intersection(WORD.findall(fold(note.text)))
    return bool(shared) and (note.source == fact.source or 2 * len(shared) >= len(telling))


def _undo(held: dict[str, Fact], step: Step) -> None:
    before, after = step.before, step.after
    if after is None:
        if before is not None:
            held.setdefault(before.slot, before)
        return
    now = held.get(after.slot)
    if now is None:
        return
    if now == after:
        if before is None:
            del held[after.slot]
        else:
            held[after.slot] = before
        return
    # Others spoke of it since: it stays, without this message's part.
    was = now.was
    if was is not None and equal(was, after.text):
        was = before.text if before else None
    held[after.slot] = msgspec.structs.replace(now, sightings=max(1, now.sightings - 1), was=was)


def _merged(one: Fact, other: Fact) -> Fact:
    earlier, later = sorted((one, other), key=lambda fact: fact.last_seen)
    was = later.was or earlier.was if equal(one.text, other.text) else earlier.text
    return msgspec.structs.replace(
        later,
        since=min(one.since, other.since),
        sightings=one.sightings + other.sightings,
        was=was,
    )


def _bounded(
    held: dict[str, Fact], steps: list[Step], limit: int, source: tuple[str, int] | None
) -> FactBook:
    over = len(held) - limit
    if over > 0:
        order = heapq.nsmallest(
            over,
            held.values(),
            key=lambda fact: (
                # What was just said has had no chance to be said again.
                fact.source == source and fact.sightings == 1,
                fact.slot.partition(":")[0] in STANDING,
                fact.sightings,
                fact.last_seen,
            ),
        )
        for fact in order:
            del held[fact.slot]
    sessions = list(dict.fromkeys(step.source[0] for step in reversed(steps)))[:UNDOABLE]
    return FactBook(
        tuple(held.values()), tuple(step for step in steps if step.source[0] in sessions)
    )


def _ordered(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple(sorted(facts, key=lambda fact: (fact.since, fact.slot)))
