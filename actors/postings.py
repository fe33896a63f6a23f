"""The tables behind an index of facts: who has which key, and what was said beside what.

Tables are made from those before them at the cost of what changed. What is the same
in both is shared, so a container within a table is never changed once the tables are
made: it is replaced (path copying, as in persistent data structures; Driscoll,
Sarnak, Sleator & Tarjan, 1989).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from interturn.actors.facts import Fact
from interturn.actors.language import SILENT, detect
from interturn.actors.terms import STEMMERS, UNTOLD, keys, slot_topics, topics, words
from interturn.actors.words import fold

# BM25's saturation and length normalisation, at the customary values. The mean length
# is a constant, so that an entry depends on its own fact alone.
_K1: Final = 1.2
_B: Final = 0.75
_MEAN_WORDS: Final = 32
_MOST_WORDS: Final = 400  # read of one fact

_CURRENT: Final = 1.25  # a slot is updated in place; what is only noted may be outdated

_LENT: Final = 0.5  # of its score, to what was said beside a fact
_FADING: Final = 0.8  # for each turn between them
_REACH: Final = 4  # turns

_DICE: Final = 0.5
_SHORTEST_ALIKE: Final = 4

Name = tuple[str, int]
"""A fact's id, and how many facts before it have the same."""


class Read(NamedTuple):
    """What is held of one fact.

    Attributes:
        weights: how much each key counts in it.
        codes: the languages it was read in.
        alone: its slot says what it is about, so it needs no company.
    """

    weights: dict[str, float]
    codes: tuple[str, ...]
    alone: bool


class Tables:
    """What an index knows of its facts. Changed only while it is being made.

    Attributes:
        rows: the facts by number, later ones higher.
        postings: for each key the rows that have it, and how much it counts there.
        near: for each row those said within a few turns of it, and what it lends them.
        spelling: the keys by how they are spelt, shared with the tables before.
        codes: the languages that any fact was read in.
    """

    __slots__ = (
        "_next",
        "_own",
        "_reads",
        "_row_of",
        "_turns",
        "codes",
        "near",
        "postings",
        "rows",
        "spelling",
    )

    def __init__(self) -> None:
        self.rows: dict[int, Fact] = {}
        self.postings: dict[str, dict[int, float]] = {}
        self.near: dict[int, tuple[tuple[int, float], ...]] = {}
        self.spelling = Spelling()
        self.codes: tuple[str, ...] = ()
        self._reads: dict[int, Read] = {}
        self._row_of: dict[Name, int] = {}
        self._turns: dict[str, tuple[tuple[int, int], ...]] = {}  # of each session: turn, row
        self._next = 0
        self._own: set[str] = set()  # keys whose rows are shared with no other tables

    def updated(self, facts: Sequence[Fact]) -> Tables:
        """Return the tables of ``facts``; these stay as they are."""
        tables = Tables()
        tables.rows = dict(self.rows)
        tables.postings = dict(self.postings)
        tables.near = dict(self.near)
        tables.spelling = self.spelling
        tables._reads = dict(self._reads)
        tables._row_of = dict(self._row_of)
        tables._turns = dict(self._turns)
        tables._next = self._next
        tables.take(facts)
        return tables

    def take(self, facts: Sequence[Fact]) -> None:
        """Become the tables of ``facts``: take out what went, put in what came."""
        here = _named(facts)
        came: list[Name] = []
        gone = [name for name in self._row_of if name not in here]
        for name, fact in here.items():
            row = self._row_of.get(name)
            if row is None:
                came.append(name)
            elif self.rows[row] is not fact:
                old = self.rows[row]
                if (old.slot, old.text, old.source) == (fact.slot, fact.text, fact.source):
                    self.rows[row] = fact
                else:
                    gone.append(name)
                    came.append(name)
        for name in gone:
            self._take_out(self._row_of.pop(name))
        for name in came:
            self._row_of[name] = self._next
            self._put_in(self._next, here[name])
            self._next += 1
        if came:
            self.spelling = self.spelling.taught(self._own, self.postings)
        self.codes = tuple(sorted({code for read in self._reads.values() for code in read.codes}))

    def _take_out(self, row: int) -> None:
        fact, read = self.rows.pop(row), self._reads.pop(row)
        for key in read.weights:
            entries = self._entries(key)
            del entries[row]
            if not entries:
                del self.postings[key]
        if row in self.near:
            session = fact.source[0]
            for other, _ in self.near.pop(row):
                self.near[other] = tuple(loan for loan in self.near[other] if loan[0] != row)
            self._turns[session] = tuple(said for said in self._turns[session] if said[1] != row)

    def _put_in(self, row: int, fact: Fact) -> None:
        read = read_fact(fact)
        self.rows[row], self._reads[row] = fact, read
        for key, weight in read.weights.items():
            self._entries(key)[row] = weight
        session, seq = fact.source
        if read.alone or not session:
            return
        turn = seq // 2
        said = self._turns.get(session, ())
        loans: list[tuple[int, float]] = []
        for at, other in said:
            if abs(at - turn) <= _REACH:
                share = _LENT * _FADING ** max(abs(at - turn), 1)
                loans.append((other, share))
                self.near[other] = (*self.near[other], (row, share))
        self.near[row] = tuple(loans)
        self._turns[session] = (*said, (turn, row))

    def _entries(self, key: str) -> dict[int, float]:
        """Return the rows that have ``key``, these tables' own to change."""
        entries = self.postings.get(key)
        if entries is None or key not in self._own:
            self._own.add(key)
            entries = self.postings[key] = dict(entries) if entries else {}
        return entries


def _named(facts: Sequence[Fact]) -> dict[Name, Fact]:
    seen: Counter[str] = Counter()
    named: dict[Name, Fact] = {}
    for fact in facts:
        named[fact.id, seen[fact.id]] = fact
        seen[fact.id] += 1
    return named


def read_fact(fact: Fact) -> Read:
    """Return what is held of ``fact``: what is sought for in its text and its slot.

    The slot ``allergy:latex`` is sought for by the topic it names and by "latex". A
    slot that names no topic says nothing.
    """
    language = detect(fact.text)
    codes = (language.code,) if language.code in STEMMERS else UNTOLD
    counts: dict[str, float] = {}
    about: dict[str, None] = {}
    length = 0
    for word, mark in words(fact.text, language, _MOST_WORDS):
        length += 1
        for key in keys(word, codes):
            counts[key] = counts.get(key, 0) + 1
        if not mark & SILENT:
            about.update(dict.fromkeys(topics(fold(word), codes)))
    slot = slot_topics(fact.slot)
    if slot:
        about.update(dict.fromkeys(slot))
        tail = fact.slot.partition(":")[2]
        for key in keys(tail, codes) if tail else ():
            counts.setdefault(key, 1)
    scale = _K1 * (1 - _B + _B * length / _MEAN_WORDS)
    weights = {key: count * (_K1 + 1) / (count + scale) for key, count in counts.items()}
    weights |= dict.fromkeys(about, (_K1 + 1) / (1 + scale))
    if slot:
        weights = {key: weight * _CURRENT for key, weight in weights.items()}
    return Read(weights, codes, bool(slot))


class Spelling:
    """Keys by their trigrams. It only grows, and is made anew when most of it is gone."""

    __slots__ = ("_grams", "_known")

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._grams: dict[str, list[str]] = {}

    def taught(self, new: Iterable[str], postings: dict[str, dict[int, float]]) -> Spelling:
        """Return one that has the keys ``new`` too: this one, unless it is outworn."""
        if len(self._known) > 2 * len(postings):
            return Spelling().taught(postings, postings)
        for key in new:
            if key not in self._known and _is_long_enough(key):
                self._known.add(key)
                for gram in _trigrams(key):
                    self._grams.setdefault(gram, []).append(key)
        return self

    def like(self, wanted: Sequence[str], postings: dict[str, dict[int, float]]) -> list[str]:
        """Return the keys that share most trigrams with the shortest of ``wanted``, or hold it."""
        key = min(filter(_is_long_enough, wanted), key=len, default="")
        if not key:
            return []
        shared = Counter(chain.from_iterable(self._grams.get(gram, ()) for gram in _trigrams(key)))
        return [
            other
            for other, count in shared.items()
            if (2 * count >= _DICE * (len(key) + len(other)) or key in other) and other in postings
        ]


def _is_long_enough(key: str) -> bool:
    return len(key) >= _SHORTEST_ALIKE and key.isalpha()


def _trigrams(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[start : start + 3] for start in range(len(padded) - 2)}
