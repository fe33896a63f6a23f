"""Knowledge updates: of two values that the visitor gave in turn, is the later in the request?

LongMemEval's questions of type knowledge-update whose evidence lies in two sessions.
All turns are recorded through a runtime, in order; then a new session asks. A turn's
value is the sentence of it that shares most terms with the answer, and of those most
with the question, a statement before a question. It is present if the facts in the
request that this turn is the source of cover that sentence (`labelled.covers`): every
number of it, and half of its other terms. A former value that a fact only was isn't in
the request.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from data import Customer, Question, Source
from labelled import covers, record, terms

from interturn.runtime import Keyring, Runtime, Session, Settings

KIND = "knowledge-update"
_ENDS = re.compile(r"(?<=[.!?])\s+")


class Asked(NamedTuple):
    """Which values are in the request for a question."""

    later: bool
    earlier: bool


async def updates(
    customers: Sequence[Customer], budgets: Sequence[int], *, as_one: bool
) -> dict[int, list[Asked]]:
    """Return for each budget (tokens of facts) what is in the requests.

    ``as_one``: all sessions are one customer's.
    """
    asked: dict[int, list[Asked]] = {budget: [] for budget in budgets}
    updating = [c for c in customers if c.questions[0].kind == KIND]
    names = ["one" if as_one else f"customer {number}" for number in range(len(updating))]
    with tempfile.TemporaryDirectory() as folder:
        path, keyring = Path(folder) / "updates.db", Keyring.generate()
        async with Runtime.open(path, keyring=keyring) as runtime:
            for name, customer in zip(names, updating, strict=True):
                await record(runtime, name, customer.turns)
            await runtime.flush()
        for budget in budgets:
            settings = Settings(facts_tokens=budget)
            async with Runtime.open(path, keyring=keyring, settings=settings) as runtime:
                for number, (name, customer) in enumerate(zip(names, updating, strict=True)):
                    session = runtime.session(f"{budget}/{number}", customer=name)
                    asked[budget].append(await _ask(session, customer))
    return asked


async def _ask(session: Session, customer: Customer) -> Asked:
    (question,) = customer.questions
    request = await session.assemble(question.text)
    facts = {fact.id: fact for fact in await session.customer.facts()}
    held: dict[Source, set[str]] = {}
    for chosen in request.receipt.facts:
        held.setdefault(chosen.source, set()).update(terms(facts[chosen.id].text, "en"))
    said = {turn.source: turn.said for turn in customer.turns}

    def present(source: Source) -> bool:
        return covers(held.get(source, set()), terms(value_in(said[source], question), "en"))

    later = question.evidence[-1]
    earlier = [source for source in question.evidence if source[0] != later[0]]
    return Asked(present(later), any(map(present, earlier)))


def value_in(said: str, question: Question) -> str:
    """Return the sentence of ``said`` that is about what ``question`` asks."""
    asked, answer = terms(question.text, "en"), terms(question.answer, "en")

    def about(sentence: str) -> tuple[int, int, bool]:
        told = terms(sentence, "en")
        return len(told & answer), len(told & asked), not sentence.endswith("?")

    return max(_ENDS.split(said), key=about)


def counted(asked: Sequence[Asked]) -> tuple[int, int, int, int]:
    """Return how often the later alone is present, both, the earlier alone, and neither."""
    seen = Counter((each.later, each.earlier) for each in asked)
    return seen[True, False], seen[True, True], seen[False, True], seen[False, False]
