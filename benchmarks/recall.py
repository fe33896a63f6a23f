"""What is remembered of real conversations, offline: one table.

Run with ``python benchmarks/recall.py DATA``, the folder with the data sets that `data`
names: all of the table or none.

Evidence recall: a new session asks a question about earlier ones; the memory block holds
facts, best first, until its tokens (o200k_base) are used up. A turn that holds
evidence counts as recalled if a fact that it is the source of is in the block. Beside
it stand two rivals that hold the visitor's raw messages at the same tokens: the
newest ones, and those that plain BM25 over English stems ranks best. Recall is the mean
over questions. LongMemEval is asked twice: of a question's own sessions, and with the
sessions of 25 questions pooled as one customer's.

How the other rows are measured stands at the head of `labelled`, `updates`, `survival`
and `costs`; what is read of each data set, in `data`.
"""

from __future__ import annotations

import asyncio
import math
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import snowballstemmer  # type: ignore[import-untyped]
from costs import assembling_us, query_us
from data import (
    AT,
    PERSONAS,
    Customer,
    Source,
    Turn,
    folder,
    locomo,
    longmemeval,
    pooled,
    sgd,
    small_talk,
)
from labelled import Tally, gold, personas, slots
from survival import FOLDS, of_gold, of_locomo
from updates import counted, updates

from interturn.actors import Fact, TokenCounter
from interturn.actors.book import FactBook
from interturn.actors.deriver import derived
from interturn.actors.retrieval import FactIndex
from interturn.runtime import Keyring, Runtime
from interturn.runtime.tokens import load_counter

BUDGETS = (500, 1_000, 1_500, 3_000)  # tokens
UPDATED_AT = (500, 1_500)  # tokens
WIDTH = 56

Ranking = Callable[[str], Sequence[Fact]]


# What is remembered


def facts_of(turns: Sequence[Turn]) -> tuple[Fact, ...]:
    """Return the facts of ``turns``, as one customer's."""
    book = FactBook()
    for turn in turns:
        changes = derived(turn.messages, book.facts)
        book = book.apply(changes, source=turn.source, at=AT, limit=10_000)
    return book.facts


def raw_messages(turns: Sequence[Turn]) -> tuple[Fact, ...]:
    """Return the visitor's messages, whole, as if each were a fact."""
    return tuple(_raw(f"raw:{n}", turn.said, turn.source) for n, turn in enumerate(turns))


def _raw(slot: str, text: str, source: Source) -> Fact:
    return Fact(slot, slot, text, AT, AT, 1, source)


# Who ranks it


def lexical(facts: tuple[Fact, ...]) -> Ranking:
    """Rank as the library does."""
    index = FactIndex.of(facts)
    return lambda query: [scored.fact for scored in index.rank(query, limit=len(facts) or 1)]


def newest(facts: tuple[Fact, ...]) -> Ranking:
    """Rank the newest first."""
    return lambda _: facts[::-1]


_stemmer = snowballstemmer.stemmer("english")
_stems: dict[str, str] = {}


def _stemmed(text: str) -> list[str]:
    found = re.findall(r"\w+", text.lower())
    for word in found:
        if word not in _stems:
            _stems[word] = _stemmer.stemWord(word)
    return [_stems[word] for word in found]


def plain_bm25(facts: tuple[Fact, ...]) -> Ranking:
    """Rank by BM25 over English stems, k1 1.2 and b 0.75, with nothing else."""
    texts = [_stemmed(fact.text) for fact in facts]
    mean = sum(map(len, texts)) / max(1, len(texts))
    postings: dict[str, list[tuple[int, float]]] = {}
    for place, text in enumerate(texts):
        for stem, count in Counter(text).items():
            weight = count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(text) / mean))
            postings.setdefault(stem, []).append((place, weight))

    def rank(query: str) -> list[Fact]:
        scores: Counter[int] = Counter()
        for stem in set(_stemmed(query)):
            having = postings.get(stem, [])
            rarity = math.log(1 + (len(texts) - len(having) + 0.5) / (len(having) + 0.5))
            for place, weight in having:
                scores[place] += rarity * weight  # type: ignore[assignment]
        return [facts[place] for place, _ in scores.most_common()]

    return rank


WAYS = (
    ("facts by relevance", facts_of, lexical),
    ("raw turns by relevance", raw_messages, lexical),
    ("raw turns, plain BM25", raw_messages, plain_bm25),
    ("raw turns, the newest", raw_messages, newest),
)


def recall(
    customers: Sequence[Customer],
    remember: Callable[[Sequence[Turn]], tuple[Fact, ...]],
    ranked: Callable[[tuple[Fact, ...]], Ranking],
    counter: TokenCounter,
) -> list[float]:
    """Return the mean recall of evidence at each of `BUDGETS`."""
    shares: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    for customer in customers:
        facts = remember(customer.turns)
        tokens = {fact.id: counter.count(f"- {fact.text}\n") for fact in facts}
        rank = ranked(facts)
        for question in customer.questions:
            used = 0
            needed: dict[Source, int] = {}
            for fact in rank(question.text):
                used += tokens[fact.id]
                needed.setdefault(fact.source, used)
                if used > max(BUDGETS):
                    break
            for budget in BUDGETS:
                held = [needed.get(source, math.inf) <= budget for source in question.evidence]
                shares[budget].append(sum(held) / len(held))
    return [statistics.mean(shares[budget]) for budget in BUDGETS]


# The table


def heading(text: str, *columns: str) -> None:
    """Print the heading of a part of the table."""
    print(f"\n{text:{WIDTH}}{''.join(f'{column:>9}' for column in columns)}")


def row(text: str, *figures: object) -> None:
    """Print one row: shares with three digits, other figures as they are."""
    shown = (f"{figure:.3f}" if isinstance(figure, float) else str(figure) for figure in figures)
    print(f"  {text:{WIDTH - 2}}{''.join(f'{figure:>9}' for figure in shown)}", flush=True)


def evidence(sets: Mapping[str, Sequence[Customer]], counter: TokenCounter) -> None:
    """Print how much evidence is recalled."""
    heading("evidence recall at tokens of memory", *(f"{budget:,}" for budget in BUDGETS))
    for name, customers in sets.items():
        asked = sum(len(customer.questions) for customer in customers)
        for way, remember, ranked in WAYS:
            row(f"{name} ({asked}): {way}", *recall(customers, remember, ranked, counter))


def amounts(sets: Mapping[str, Sequence[Customer]], data: Path) -> None:
    """Print how much is held."""
    heading("facts for 100 visitor turns", "all", "slotted", "turns")
    served = [Customer(dialogue.turns, []) for dialogue in sgd(data)]
    for name, customers in (*sets.items(), ("SGD", served)):
        turns = sum(len(customer.turns) for customer in customers)
        facts = [fact for customer in customers for fact in facts_of(customer.turns)]
        slotted = sum(not fact.slot.startswith("note") for fact in facts)
        row(name, f"{100 * len(facts) / turns:.1f}", f"{100 * slotted / turns:.1f}", turns)
    talk = list(small_talk(data))
    told = sum(bool(facts_of([turn])) for turn in talk)
    row("small talk that yields a fact, chatterbot (Spanish)", told, "of", len(talk))


async def labelled(data: Path) -> None:
    """Print how facts and labels agree."""
    heading("gold_es, lived through a runtime", "right", "of")
    with tempfile.TemporaryDirectory() as folder:
        async with Runtime.open(Path(folder) / "g.db", keyring=Keyring.generate()) as runtime:
            for name, tally in (await gold(runtime, data)).items():
                row(name, *tally)
    heading("SGD", "share", "of")
    held = slots(data, facts_of)
    row("the visitor's own values, as said, in any fact", held.own.share, held.own.among)
    row("  in a fact under a slot", held.own_slotted.share, held.own_slotted.among)
    row("facts under a slot that have a labelled value", held.slotted.share, held.slotted.among)
    row("notes that have a labelled value", held.noted.share, held.noted.among)
    heading("XPersona", *PERSONAS)
    every = [personas(data, language, facts_of) for language in PERSONAS]
    row("facts for 100 turns", *(f"{100 * each.facts / each.turns:.1f}" for each in every))
    row("persona sentences spoken of", *(each.held.among for each in every))
    row("  of them held in a fact", *(each.held.share for each in every))
    row("  sought in 25 dialogues' facts: right one first", *(e.first.share for e in every))
    row("  among the first five", *(each.five.share for each in every))
    row("facts that speak of the persona", *(each.right.share for each in every))
    row("  utterances that do", *(each.uttered.share for each in every))


async def updated(customers: Sequence[Customer]) -> None:
    """Print which of two values is in the request."""
    heading("knowledge updates, LongMemEval: in the request", "later", "both", "earlier", "neither")
    for name, as_one in (("own sessions", False), ("all as one customer's", True)):
        for budget, asked in (await updates(customers, UPDATED_AT, as_one=as_one)).items():
            row(f"{name} ({len(asked)}), {budget:,} tokens", *counted(asked))


def survivals(chats: Sequence[Customer], data: Path, counter: TokenCounter) -> None:
    """Print what summaries still hold."""
    heading("early values in the summary", "at once", f"+{FOLDS}", "of")
    sets = {"gold_es": of_gold(data, counter), "LoCoMo": of_locomo(chats, counter)}
    kinds: dict[str, list[tuple[bool, bool]]] = {}
    for name, values in sets.items():
        for kind, early, late in values:
            kinds.setdefault(f"{name}: {kind}", []).append((early, late))
    for kind, seen in kinds.items():
        at_once, after = (Tally.of_all(each) for each in zip(*seen, strict=True))
        row(kind, at_once.share, after.share, len(seen))


async def costs(chats: Sequence[Customer]) -> None:
    """Print what a query costs."""
    heading("time, µs (medians)", "first", "again")
    query = query_us(chats, facts_of)
    row(f"a query over {query.facts} facts", f"{query.first:.0f}", f"{query.again:.0f}")
    row(f"a fact more among {query.facts}", f"{query.update:.0f}")
    cost = await assembling_us(chats)
    heading("assemble, µs (medians)", "0 facts", str(cost.facts), "adds", "ratio")
    adds, ratio = cost.having - cost.without, cost.having / cost.without
    row("an active session, a fresh query each time", f"{cost.without:.0f}",
        f"{cost.having:.0f}", f"{adds:.0f}", f"{ratio:.2f}")  # fmt: skip


async def main() -> None:
    """Measure and print."""
    data = folder(__doc__.splitlines()[0])
    counter = await load_counter("o200k_base")
    chats, questions = list(locomo(data)), list(longmemeval(data))
    sets = {"LoCoMo": chats, "LongMemEval": questions}
    evidence(sets | {"LongMemEval, pooled": list(pooled(questions))}, counter)
    amounts(sets, data)
    await labelled(data)
    await updated(questions)
    survivals(chats, data, counter)
    await costs(chats)


if __name__ == "__main__":
    asyncio.run(main())
