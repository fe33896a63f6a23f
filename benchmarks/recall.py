"""What is remembered of real conversations, offline: evidence, facts and small talk.

Run with ``python benchmarks/recall.py [--data ../shared/data]``.
One table. A new session asks a question about earlier ones; the memory block holds
facts, best first, until its tokens (o200k_base) are used up. A turn that holds
evidence counts as recalled if a fact that it is the source of is in the block. Beside
it stand two rivals that hold the visitor's raw messages at the same tokens: the
newest ones, and those that plain BM25 over English stems ranks best.

LoCoMo: each speaker as the visitor in turn, several messages of one side in a row
joined to one; categories 1 to 4; what the visitor said. LongMemEval: the user's turns
marked as evidence, in a question's own sessions, and with the sessions of 25
questions pooled as one customer's. Recall is the mean over questions.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import snowballstemmer  # type: ignore[import-untyped]

from interturn.actors import Fact, Message, TokenCounter
from interturn.actors.retrieval import FactIndex
from interturn.actors.statements import statements
from interturn.runtime.tokens import load_counter

try:
    from interturn.actors.book import FactBook
    from interturn.actors.deriver import derived
    from interturn.actors.facts import FactChange
except ImportError:  # statements alone are the facts
    DERIVES = False
else:
    DERIVES = True

BUDGETS = (500, 1_000, 1_500, 3_000)  # tokens
FACTS = 500  # in the index whose queries are timed
POOLED = 25  # questions whose sessions are one customer's
CATEGORIES = (1, 2, 3, 4)  # of LoCoMo; the fifth asks for what was never said
AT = datetime(2025, 1, 1, tzinfo=UTC)

Source = tuple[str, int]
"""A session, and the sequence number of the visitor's message in it."""
Ranking = Callable[[str], Sequence[Fact]]


class Turn(NamedTuple):
    """What was said at ``source``, with what the agent said just before it."""

    source: Source
    messages: tuple[Message, ...]

    @property
    def said(self) -> str:
        """What the visitor said."""
        return next(message.text for message in self.messages if message.role == "visitor")


class Question(NamedTuple):
    """A question, and where the visitor said what answers it."""

    text: str
    evidence: tuple[Source, ...]


class Customer(NamedTuple):
    """The turns of one visitor in all their sessions, and what is asked afterwards."""

    turns: list[Turn]
    questions: list[Question]


# The data


Row = tuple[bool, str, str]
"""Whether the visitor said it, what was said, and its id."""


def turns_of(session: str, rows: Sequence[Row]) -> Iterator[tuple[Turn, list[str]]]:
    """Yield the turns of a session, each with the ids of what the visitor said in it."""
    sides = [(mine, list(side)) for mine, side in itertools.groupby(rows, key=lambda row: row[0])]
    texts = ["\n".join(text for _, text, _ in side) for _, side in sides]
    seq = 1
    for place, (mine, side) in enumerate(sides):
        if not mine or not texts[place].strip():
            continue
        messages = [Message(seq, "visitor", texts[place], AT, 0)]
        if place:
            messages.insert(0, Message(seq - 1, "agent", texts[place - 1], AT, 0))
        if place + 1 < len(sides):
            messages.append(Message(seq + 1, "agent", texts[place + 1], AT, 0))
        yield Turn((session, seq), tuple(messages)), [name for _, _, name in side]
        seq += 2


def locomo(data: Path) -> Iterator[Customer]:
    """Yield each speaker of LoCoMo as the visitor."""
    for sample in json.loads((data / "locomo" / "locomo_first5.json").read_text("utf-8")):
        said: dict[str, Any] = sample["conversation"]
        names = [name for name in said if re.fullmatch(r"session_\d+", name)]
        names.sort(key=lambda name: int(name.removeprefix("session_")))
        for speaker in (said["speaker_a"], said["speaker_b"]):
            turns: list[Turn] = []
            where: dict[str, Source] = {}
            for name in names:
                rows = [(r["speaker"] == speaker, r["text"], r["dia_id"]) for r in said[name]]
                for turn, ids in turns_of(name, rows):
                    turns.append(turn)
                    where.update(dict.fromkeys(ids, turn.source))
            asked = [qa for qa in sample["qa"] if qa["category"] in CATEGORIES]
            questions = [
                Question(qa["question"], tuple(where[e] for e in qa["evidence"] if e in where))
                for qa in asked
            ]
            yield Customer(turns, [question for question in questions if question.evidence])


def longmemeval(data: Path) -> Iterator[Customer]:
    """Yield the user of each question of LongMemEval that has evidence of theirs."""
    with gzip.open(data / "longmemeval" / "oracle_even.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            turns: list[Turn] = []
            evidence: list[Source] = []
            for place, rows in enumerate(record["haystack_sessions"]):
                marked = [
                    (r["role"] == "user", r["content"], "answer" if r.get("has_answer") else "")
                    for r in rows
                ]
                for turn, marks in turns_of(f"{number}/{place}", marked):
                    turns.append(turn)
                    evidence += [turn.source] if any(marks) else []
            if evidence:
                yield Customer(turns, [Question(record["question"], tuple(evidence))])


def pooled(customers: Sequence[Customer]) -> Iterator[Customer]:
    """Yield the sessions and the questions of `POOLED` customers as one customer's."""
    for start in range(0, len(customers), POOLED):
        group = customers[start : start + POOLED]
        yield Customer([t for c in group for t in c.turns], [q for c in group for q in c.questions])


def small_talk(data: Path) -> Iterator[tuple[Message, ...]]:
    """Yield a turn for each exchange of the Spanish chatterbot corpus: what opens it."""
    for file in sorted((data / "chatterbot_corpus" / "spanish").glob("*.yml")):
        lines = file.read_text("utf-8").splitlines()
        for line, following in itertools.pairwise([*lines, ""]):
            if line.startswith("- - "):
                texts = [part.lstrip("- ").strip("'\" ") for part in (line, following)]
                asked, answered = texts
                if asked:
                    visitor = Message(1, "visitor", asked, AT, 0)
                    yield visitor, Message(2, "agent", answered, AT, 0)


# What is remembered


def facts_of(turns: Sequence[Turn]) -> tuple[Fact, ...]:
    """Return the facts of ``turns``: the deriver's, and statements where it has no slot."""
    if not DERIVES:
        noted = [(turn, text) for turn in turns for text in statements(turn.messages)]
        return tuple(_fact(f"note:{n}", text, turn.source) for n, (turn, text) in enumerate(noted))
    book = FactBook()
    for number, turn in enumerate(turns):
        changes = list(derived(turn.messages, book.facts))
        if not any(change.slot.startswith("note") for change in changes):
            told = [change.text for change in changes]
            noted_too = statements(turn.messages, told=told)
            changes += [FactChange("set", f"note:{number}.{n}", t) for n, t in enumerate(noted_too)]
        book = book.apply(changes, source=turn.source, at=AT, limit=10_000)
    return book.facts


def raw_messages(turns: Sequence[Turn]) -> tuple[Fact, ...]:
    """Return the visitor's messages, whole, as if each were a fact."""
    return tuple(_fact(f"raw:{n}", turn.said, turn.source) for n, turn in enumerate(turns))


def _fact(slot: str, text: str, source: Source) -> Fact:
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


# What is measured


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


def query_us(customers: Sequence[Customer]) -> tuple[int, float, float, float]:
    """Return how many facts were indexed, and a query's and an update's median in µs.

    Each query is asked once, then the times are taken: its words are known, as those
    of a conversation are after a while. The third figure is the first time's.
    """
    turns = [turn._replace(source=(f"{n}/{turn.source[0]}", turn.source[1]))
             for n, customer in enumerate(customers) for turn in customer.turns]  # fmt: skip
    facts = tuple(itertools.islice(facts_of(turns), FACTS))
    index = FactIndex.of(facts)
    queries = [question.text for customer in customers[:2] for question in customer.questions]

    def timed() -> list[float]:
        times = []
        for query in queries:
            started = time.perf_counter()
            index.rank(query, limit=20)
            times.append(time.perf_counter() - started)
        return times

    first, again = timed(), timed()
    updates = []
    for number in range(50):
        new = _fact(f"note:new{number}", f"I sold boat {number} to a friend.", ("new", number))
        started = time.perf_counter()
        index.updated((*facts, new))
        updates.append(time.perf_counter() - started)
    medians = [statistics.median(times) * 1e6 for times in (again, first, updates)]
    return len(facts), medians[0], medians[1], medians[2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data: Path = parser.parse_args().data
    counter = asyncio.run(load_counter("o200k_base"))
    chats, questions = list(locomo(data)), list(longmemeval(data))
    sets = {
        "LoCoMo": chats,
        "LongMemEval": questions,
        "LongMemEval, pooled": list(pooled(questions)),
    }
    ways = (
        ("facts by relevance", facts_of, lexical),
        ("raw turns by relevance", raw_messages, lexical),
        ("raw turns, plain BM25", raw_messages, plain_bm25),
        ("raw turns, the newest", raw_messages, newest),
    )
    heads = "".join(f"{budget:>8,}" for budget in BUDGETS)
    print(f"{'evidence recall at tokens of memory':48}{heads}")
    for name, customers in sets.items():
        asked = sum(len(customer.questions) for customer in customers)
        for way, remember, ranked in ways:
            shares = recall(customers, remember, ranked, counter)
            figures = "".join(f"{share:>8.3f}" for share in shares)
            print(f"{f'{name} ({asked}): {way}':48}{figures}", flush=True)
    turns = sum(len(chat.turns) for chat in chats)
    facts = [fact for chat in chats for fact in facts_of(chat.turns)]
    talk = list(small_talk(data))
    told = sum(bool(facts_of([Turn(("talk", 1), turn)])) for turn in talk)
    indexed, again_us, first_us, update_us = query_us(chats)
    print(f"{'facts for 100 visitor turns, LoCoMo':48}{100 * len(facts) / turns:>8.1f}")
    slotted = sum(not fact.slot.startswith("note") for fact in facts)
    print(f"{'  of them with a slot of their own':48}{100 * slotted / turns:>8.1f}")
    print(f"{'small-talk turns that yield a fact, chatterbot':48}{told:>8} of {len(talk)}")
    print(f"{f'a query over {indexed} facts, µs: first, again':48}{first_us:>8.0f}{again_us:>8.0f}")
    print(f"{f'a fact more among {indexed}, µs':48}{update_us:>8.0f}")


if __name__ == "__main__":
    main()
