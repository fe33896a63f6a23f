"""Which facts help with a query: lexical relevance over an index of the facts.

The ranking is BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond", 2009) over word stems, with what short statements of one person
need besides:

- A question and a fact often share a subject and no word ("any pets?", "my cat
  Moka"). Topics (`interturn.actors.terms`) are indexed like words and weigh less.
  A slot's name is looked up as well, so "any allergy?" finds "Es alérgica al látex".
- A statement rarely repeats what the sentence before it was about. So what was said
  beside a statement that matches is lent a share of its score, less the farther
  away: the idea of passage retrieval (Callan, "Passage-level evidence in document
  retrieval", 1994). Facts with a slot of their own need and get no such help.
- A word that no fact has is sought by its trigrams, which finds typing errors and
  parts of compounds.

Nothing is returned below a floor: the best fact must carry a share of what the query
asks in its own words, and every other a share of the best, or be said beside one that
does. Greetings ask nothing.

Facts are read when they change, never when a question is asked; an updated index
reads only what is new, and shares the rest with the one before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from interturn.actors.facts import Fact, Scored
from interturn.actors.language import SILENT, detect
from interturn.actors.postings import Tables
from interturn.actors.terms import STEMMERS, UNTOLD, keys, topics, words
from interturn.actors.words import fold

# Ten facts say little about how rare a word is, so others are imagined beside them.
_IMAGINED: Final = 40

_TOPIC: Final = 0.75  # of a word's weight
_ALIKE: Final = 0.6  # of a word's weight, for one that is only spelt alike
_FLOOR: Final = 0.15  # of what the query asks, in the best fact's own words
_BESIDE_THE_BEST: Final = 0.15  # of the best fact's score, in every other's own words

_LENDERS: Final = 24  # the best facts only lend: bounds the work

_MOST_QUERY_WORDS: Final = 64
_MOST_ASKED: Final = 1_024  # words of queries remembered in an index
_KEPT: Final = 8  # indexes kept by the port's `rank`
_LATIN: Final = re.compile(r"[a-z\u00c0-\u024f]", re.IGNORECASE)


class _Sought(NamedTuple):
    """A word of a query: the keys that stand for it, and its topics."""

    keys: tuple[str, ...]
    topics: tuple[str, ...]


class _Found(NamedTuple):
    """The facts that have a word: how much it counts in each, and how rare it is."""

    entries: dict[int, float]
    rarity: float


class LexicalRetriever:
    """The default retriever: lexical, deterministic, without a model or a network.

    It keeps the indexes of the last few tuples of facts it was given, known again
    by identity, so that asking twice about the same facts reads them once. Who
    holds a `FactIndex` beside the facts needs no retriever.
    """

    def __init__(self) -> None:
        self._kept: dict[int, FactIndex] = {}

    def __repr__(self) -> str:
        return f"LexicalRetriever(indexes={len(self._kept)})"

    def rank(self, query: str, facts: Sequence[Fact], *, limit: int) -> list[Scored]:
        """Return at most ``limit`` facts above the floor, best first; maybe none.

        A limit below 1 returns none. Only a tuple's index is kept: a list may change.
        """
        if limit < 1 or not facts:
            return []
        return self._index(facts).rank(query, limit=limit)

    def release(self) -> None:
        """Let go of every index, and so of every fact: when a customer is forgotten."""
        self._kept.clear()

    def _index(self, facts: Sequence[Fact]) -> FactIndex:
        if not isinstance(facts, tuple):
            return FactIndex.of(facts)
        index = self._kept.pop(id(facts), None)
        # An index holds its tuple, so while it is kept the identity is not used again.
        if index is None or index.facts is not facts:
            ours = set(map(id, facts))
            earlier = (old for old in self._kept.values() if _mostly(old.facts, ours))
            before = next(earlier, None)
            index = before.updated(facts) if before else FactIndex.of(facts)
        self._kept[id(facts)] = index
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return index


def _mostly(facts: Sequence[Fact], ours: set[int]) -> bool:
    """Return whether most of ``facts`` are among ``ours``, so that both are one customer's."""
    return 2 * sum(id(fact) in ours for fact in facts) > len(ours)


class FactIndex:
    """The facts of a customer, read: made when they change, asked often, never changed.

    Attributes:
        facts: what it was made of, in the order given.
    """

    __slots__ = ("_asked", "_found", "_tables", "facts")

    def __init__(
        self, facts: tuple[Fact, ...], tables: Tables, asked: dict[tuple[str, str], _Sought]
    ) -> None:
        self.facts: Final = facts
        self._tables: Final = tables
        # Words of queries, so that a name asked about again isn't stemmed again, and what
        # they found here. They are kept here, and nowhere else, because here they go when
        # the facts go.
        self._asked: Final = asked
        self._found: Final[dict[_Sought, _Found]] = {}

    def __repr__(self) -> str:
        return f"FactIndex(facts={len(self.facts)}, keys={len(self._tables.postings)})"

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> FactIndex:
        """Return the index of ``facts``, each read once: some tenths of a millisecond each."""
        facts = facts if isinstance(facts, tuple) else tuple(facts)
        tables = Tables()
        tables.take(facts)
        return cls(facts, tables, {})

    def updated(self, facts: Iterable[Fact]) -> FactIndex:
        """Return the index of ``facts``, at the cost of what differs; this one stays.

        A fact is the same as before if id, slot, text and source are.
        """
        facts = facts if isinstance(facts, tuple) else tuple(facts)
        tables = self._tables.updated(facts)
        asked = self._asked if tables.codes == self._tables.codes else {}
        return FactIndex(facts, tables, asked)

    def rank(self, query: str, *, limit: int) -> list[Scored]:
        """Return at most ``limit`` facts above the floor, best first; maybe none.

        A score is about the share of what was asked that a fact carries; among
        equals the later fact comes first. A limit below 1 returns none.
        """
        if limit < 1:
            return []
        scores = self._scores(query)
        best = sorted(_foremost(scores, limit), reverse=True)
        best.sort(key=scores.__getitem__, reverse=True)
        rows = self._tables.rows
        return [Scored(rows[row], scores[row]) for row in best[:limit]]

    def _scores(self, query: str) -> dict[int, float]:
        """Return the rows above the floor with their scores, in no order."""
        scores: dict[int, float] = {}
        asked = 0.0
        subjects: dict[str, None] = {}
        for word in self._sought(query):
            found = self._found.get(word) or self._find(word)
            asked += found.rarity
            _add(found.entries, scores)
            if word.topics:
                subjects.update(dict.fromkeys(word.topics))
        for topic in subjects:
            if topic in self._tables.postings:
                entries = self._tables.postings[topic]
                _add(_times(entries, self._rarity(len(entries)) * _TOPIC), scores)
        best = max(scores.values(), default=0.0)
        if best < asked * _FLOOR or not scores:
            return {}
        least = best * _BESIDE_THE_BEST
        scores = {row: score / asked for row, score in scores.items() if score >= least}
        return self._with_company(scores)

    def _find(self, word: _Sought) -> _Found:
        """Return the facts that have a word; several keys count by the best of them.

        A word that no fact has counts as what is asked all the same.
        """
        postings = self._tables.postings
        keys = [key for key in word.keys if key in postings]
        share = 1.0
        if not keys and not word.topics:
            keys = self._tables.spelling.like(word.keys, postings)
            share = _ALIKE
        entries: dict[int, float] = {}
        for key in keys:
            for row, weight in postings[key].items():
                if weight > entries.get(row, 0.0):
                    entries[row] = weight
        rarity = self._rarity(len(entries))
        if entries:
            found = _Found(_times(entries, rarity * share), rarity)
        else:
            found = _Found({}, rarity * (_TOPIC if word.topics else 1.0))
        if len(self._found) >= _MOST_ASKED:
            self._found.clear()
        self._found[word] = found
        return found

    def _rarity(self, having: int) -> float:
        everyone = len(self.facts) + _IMAGINED
        return math.log(1 + (everyone - having + 0.5) / (having + 0.5))

    def _with_company(self, scores: dict[int, float]) -> dict[int, float]:
        """Lend a share of the best facts' scores to what was said beside them."""
        lent: dict[int, float] = {}
        lent_to = lent.get
        near = self._tables.near.get
        lenders = _foremost(scores, _LENDERS)
        lenders.sort(key=scores.__getitem__, reverse=True)
        for place in lenders[:_LENDERS]:
            score = scores[place]
            for other, share in near(place, ()):
                loan = score * share
                if loan > lent_to(other, 0.0):
                    lent[other] = loan
        for place, loan in lent.items():
            scores[place] = scores.get(place, 0.0) + loan
        return scores

    def _sought(self, query: str) -> list[_Sought]:
        """Return the words of ``query`` that ask something, each once."""
        language = detect(query)
        told = language.code in STEMMERS
        spoken = (language.code,) if told else UNTOLD
        every = tuple(dict.fromkeys((*self._tables.codes, *spoken)))
        asked = self._asked
        found: dict[tuple[str, ...], _Sought] = {}
        for word, mark in words(query, language, _MOST_QUERY_WORDS):
            if mark & SILENT and _LATIN.search(word):
                continue
            name = language.code, word
            sought = asked.get(name)
            if sought is None:
                sought = _Sought(keys(word, every), topics(fold(word), spoken))
                if len(asked) >= _MOST_ASKED:
                    asked.clear()
                asked[name] = sought
            found.setdefault(sought.keys, sought)
        return list(found.values())


def _times(entries: dict[int, float], factor: float) -> dict[int, float]:
    return {row: factor * weight for row, weight in entries.items()}


def _add(entries: dict[int, float], scores: dict[int, float]) -> None:
    """Add what a word counts in each fact to the scores."""
    if not scores:
        scores.update(entries)
        return
    score_of = scores.get
    for row, weight in entries.items():
        scores[row] = score_of(row, 0.0) + weight


def _foremost(scores: dict[int, float], limit: int) -> list[int]:
    """Return the ``limit`` rows that score best, and all that equal the last of them.

    Floats alone sort several times as fast as rows by their scores.
    """
    if len(scores) <= limit:
        return list(scores)
    least = sorted(scores.values(), reverse=True)[limit - 1]
    return [row for row, score in scores.items() if score >= least]
