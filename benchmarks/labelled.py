"""What is held against what is labelled: gold_es, Schema-Guided Dialogue, XPersona.

Texts are compared by their terms: stems of words of four letters or more, numbers, and
pairs of characters in scripts without spaces; this is no part of the library, so that
it isn't measured by itself. A text covers another if it has its numbers and at least
half of its other terms.

gold_es is lived through a runtime: every turn recorded, then the customer asked. Of a
label count the terms that its source turns said. A current label is held if the facts
cover it; a superseded one is stated as current if any fact has a term of it that the
label which replaced it lacks; what must never be a fact is one if a fact, not a
relative's, has all its terms but the customer's name.

SGD names no visitor. Of its slots only these are the visitor's own: the place they set
out from (`origin_city`, `from_city`, `from_location`), their account (`account_type`)
and the room of their own loudspeaker (`device`). Even so most are true for a trip, not
for months. All others are what is looked for, and a service's property. A value is held
if a fact has it as said. A fact agrees if it has a value of its dialogue, of whatever
slot.

XPersona's sentences are the truth. One is spoken of if an utterance of its speaker
covers it, where the 100 commonest terms of the language's dialogues don't count; it is
held if a fact does. A fact or an utterance speaks of the persona if it and a sentence
share half the terms of the shorter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import snowballstemmer  # type: ignore[import-untyped]
from data import POOLED, Dialogue, Turn, gold_es, pools, sgd, xpersona

from interturn.actors import Fact
from interturn.actors.retrieval import FactIndex
from interturn.runtime import Runtime

HALF = 0.5
COMMON = 100  # terms that say nothing of anybody
SHORTEST = 4  # letters
OWN = ("origin_city", "from_city", "from_location", "account_type", "device")
EMPTY = frozenset(("está", "tiene", "para", "como", "quiere", "llama"))

_STEMMERS = {"en": "english", "es": "spanish", "fr": "french", "it": "italian", "id": "indonesian"}
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_stemmers = {code: snowballstemmer.stemmer(name) for code, name in _STEMMERS.items()}
_stems: dict[tuple[str, str], str] = {}

Remember = Callable[[Sequence[Turn]], tuple[Fact, ...]]


def terms(text: str, language: str) -> set[str]:
    """Return what a text is compared by."""
    found: set[str] = set()
    for word in re.findall(r"\w+", text.lower()):
        if unspaced := _UNSPACED.findall(word):
            found.update(run[at : at + 2] for run in unspaced for at in range(len(run) - 1))
        elif any(map(str.isdigit, word)):
            found.add(word)
        elif len(word) >= SHORTEST and word not in EMPTY:
            stem = _stems.get((language, word))
            if stem is None:
                stem = _stemmers[language].stemWord(word) if language in _stemmers else word
                _stems[language, word] = stem
            found.add(stem)
    return found


def covers(text: set[str], label: set[str]) -> bool:
    """Return whether ``text`` has the numbers of ``label`` and half of its other terms."""
    numbers = {term for term in label if any(map(str.isdigit, term))}
    rest = label - numbers
    return bool(label) and numbers <= text and len(rest & text) >= HALF * len(rest)


def alike(one: set[str], other: set[str]) -> bool:
    """Return whether they share half the terms of the shorter."""
    return bool(one and other) and len(one & other) >= HALF * min(len(one), len(other))


class Tally(NamedTuple):
    """How many of how many."""

    of: int
    among: int

    @classmethod
    def of_all(cls, tried: Iterable[bool]) -> Tally:
        """Return how many of them are true."""
        every = list(tried)
        return cls(sum(every), len(every))

    @property
    def share(self) -> float:
        """Return the share, 0 of none."""
        return self.of / self.among if self.among else 0.0


# gold_es


async def record(runtime: Runtime, customer: str, turns: Sequence[Turn]) -> None:
    """Record ``turns`` as a customer's, each session's from its first on: sources stay."""
    for turn in turns:
        session = runtime.session(turn.source[0], customer=customer)
        recorded = await session.record(turn.said, turn.answered)
        assert recorded.seq == turn.source[1]


async def gold(runtime: Runtime, data: Path) -> dict[str, Tally]:
    """Live the labelled customers through ``runtime`` and compare what is held."""
    tried: dict[str, list[bool]] = {}
    for customer, turns, said in gold_es(data):
        await record(runtime, customer["customer_id"], turns)
        await runtime.flush()
        handle = runtime.customer(customer["customer_id"])
        facts = await handle.facts()
        _compare(customer, said, facts, tried)
        labels = {label["id"]: _label(label, said) for label in customer["facts_current"]}
        for query in customer["queries"]:
            found = [scored.fact.text for scored in await handle.recall(query["q"])]
            held = [terms(text, "es") for text in found]
            tried.setdefault("queries: expected found", []).extend(
                any(alike(fact, labels[name]) for fact in held) for name in query["expect"]
            )
            tried.setdefault("queries: rejected returned", []).extend(
                any(word in text for text in found) for word in query.get("reject", ())
            )
            if not query["expect"]:
                tried.setdefault("queries: answered that ask nothing", []).append(bool(found))
    return {name: Tally.of_all(of) for name, of in tried.items()}


def _compare(
    customer: dict[str, Any],
    said: dict[str, str],
    facts: Sequence[Fact],
    tried: dict[str, list[bool]],
) -> None:
    held = [terms(fact.text, "es") for fact in facts]
    every = set(chain.from_iterable(held))
    current = {label["id"]: _label(label, said) for label in customer["facts_current"]}
    tried.setdefault("current facts held", []).extend(
        covers(every, label) for label in current.values()
    )
    for label in customer["facts_superseded"]:
        gone = _label(label, said) - current.get(label["replaced_by"], set())
        tried.setdefault("superseded stated as current", []).append(bool(gone & every))
    own = [of for of, fact in zip(held, facts, strict=True) if not fact.slot.startswith("relative")]
    name = next(label for name, label in current.items() if name.endswith(".name"))
    tried.setdefault("never-facts held", []).extend(
        any(terms(never["text"], "es") - name <= fact for fact in own)
        for never in customer["never_facts"]
    )
    tried.setdefault("facts that are labelled", []).extend(
        any(alike(fact, label) for label in current.values()) for fact in held
    )


def _label(label: dict[str, Any], said: dict[str, str]) -> set[str]:
    sources = " ".join(said[name] for name in label["source"])
    return terms(label["text"], "es") & terms(sources, "es")


# SGD


class Slots(NamedTuple):
    """How SGD's labels and the facts agree."""

    own: Tally  # the visitor's own values, as said, in a fact of any kind
    own_slotted: Tally  # in a fact under a slot
    slotted: Tally  # facts under a slot that have a value of their dialogue
    noted: Tally  # facts under no slot that have one


def slots(data: Path, remember: Remember) -> Slots:
    """Compare what is held of SGD's dialogues with their labels."""
    own: list[bool] = []
    own_slotted: list[bool] = []
    agree: dict[bool, list[bool]] = {True: [], False: []}
    for dialogue in sgd(data):
        said = "\n".join(turn.said for turn in dialogue.turns).casefold()
        facts = [
            (not fact.slot.startswith("note"), fact.text.casefold())
            for fact in remember(dialogue.turns)
        ]
        values = [
            (slot, [way.casefold() for way in ways if way.casefold() in said])
            for slot, ways in dialogue.labels
        ]
        for slot, ways in values:
            if slot in OWN and ways:
                having = [slotted for slotted, text in facts if any(way in text for way in ways)]
                own.append(bool(having))
                own_slotted.append(any(having))
        for slotted, text in facts:
            agree[slotted].append(any(way in text for _, ways in values for way in ways))
    return Slots(*map(Tally.of_all, (own, own_slotted, agree[True], agree[False])))


# XPersona


class Personas(NamedTuple):
    """How XPersona's sentences and the facts agree, in one language."""

    turns: int
    facts: int
    held: Tally  # sentences that their speaker spoke of, those that a fact covers
    right: Tally  # facts that speak of the persona
    uttered: Tally  # utterances that do
    first: Tally  # sentences spoken of that rank a fact of their dialogue first
    five: Tally  # or among the first five


def personas(data: Path, language: str, remember: Remember) -> Personas:
    """Compare what is held of one language's dialogues with their personas."""
    dialogues = list(xpersona(data, language))
    common = _common(dialogues, language)
    turns = count = 0
    held: list[bool] = []
    right: list[bool] = []
    uttered: list[bool] = []
    ranks: list[int] = []
    for group in pools(dialogues):
        about: dict[str, set[str]] = {}
        asked: list[str] = []
        pool: list[Fact] = []
        for dialogue in group:
            facts = remember(dialogue.turns)
            pool += facts
            turns += len(dialogue.turns)
            told = [terms(turn.said, language) - common for turn in dialogue.turns]
            known = [terms(fact.text, language) - common for fact in facts]
            truth = {ways[0]: terms(ways[0], language) - common for _, ways in dialogue.labels}
            for sentence, label in truth.items():
                about.setdefault(sentence, set()).add(dialogue.turns[0].source[0])
                if any(covers(of, label) for of in told):
                    held.append(any(covers(fact, label) for fact in known))
                    asked.append(sentence)
            right += [any(alike(fact, label) for label in truth.values()) for fact in known]
            uttered += [any(alike(of, label) for label in truth.values()) for of in told]
        count += len(pool)
        ranks += _ranks(pool, [(sentence, about[sentence]) for sentence in asked])
    tallies = (held, right, uttered, (rank == 0 for rank in ranks), (rank < 5 for rank in ranks))  # noqa: PLR2004
    return Personas(turns, count, *map(Tally.of_all, tallies))


def _common(dialogues: Sequence[Dialogue], language: str) -> set[str]:
    counted: Counter[str] = Counter()
    for dialogue in dialogues:
        for turn in dialogue.turns:
            counted.update(terms(turn.said, language))
    return {term for term, _ in counted.most_common(COMMON)}


def _ranks(pool: Sequence[Fact], asked: Iterable[tuple[str, set[str]]]) -> list[int]:
    index = FactIndex.of(pool)
    ranks: list[int] = []
    for sentence, sessions in asked:
        ranked = index.rank(sentence, limit=POOLED)
        right = (n for n, scored in enumerate(ranked) if scored.fact.source[0] in sessions)
        ranks.append(next(right, POOLED))
    return ranks
