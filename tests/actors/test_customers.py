"""Customers of many regions, as they type: what must be held of them, and what must not.

`customers.json` has what each said and was answered, session by session. ``current`` are
pairs of a slot (a pattern) and words that stand in its fact, ``stale`` and ``never`` what
no fact may state, ``queries`` what a question must find and must not. Each was written
before the deriver had seen it; ``open`` is what it still doesn't hold as it should.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interturn.actors.book import FactBook
from interturn.actors.deriver import derived
from interturn.actors.message import Message
from interturn.actors.retrieval import FactIndex

AT = datetime(2025, 3, 3, tzinfo=UTC)
CUSTOMERS = json.loads(Path(__file__).with_name("customers.json").read_text(encoding="utf-8"))


@pytest.fixture(params=CUSTOMERS, ids=[customer["customer"] for customer in CUSTOMERS])
def customer(request):
    """One customer, with the book of facts that their conversations leave."""
    book = FactBook()
    for name, turns in enumerate(request.param["sessions"]):
        before = []
        for number, (said, answered) in enumerate(turns):
            message = Message(2 * number + 1, "visitor", said, AT, 0)
            changes = derived([*before, message], book.facts)
            book = book.apply(changes, source=(f"s{name}", message.seq), at=AT)
            before = [Message(2 * number + 2, "agent", answered, AT, 0)]
    return request.param, book.facts


def test_what_is_current_is_held_under_a_fitting_slot(customer):
    """Each current fact stands under a slot that says what it is about, in their words."""
    labels, facts = customer
    for slot, words in labels["current"]:
        held = [fact.text for fact in facts if re.match(slot, fact.slot)]
        assert any(re.search(words, text, re.IGNORECASE) for text in held), (slot, words)


def test_nothing_superseded_and_nothing_private_is_stated(customer):
    """No former value, guess, joke, order, secret or other people's property is a fact."""
    labels, facts = customer
    stated = "\n".join(fact.text for fact in facts)
    for words in (*labels["stale"], *labels["never"]):
        assert not re.search(words, stated, re.IGNORECASE), words


def test_a_question_finds_what_it_asks_for(customer):
    """Each query returns what it expects and nothing that it rejects; small talk nothing."""
    labels, facts = customer
    index = FactIndex.of(facts)
    for query, expected, rejected in labels["queries"]:
        found = "\n".join(scored.fact.text for scored in index.rank(query, limit=8))
        assert (expected.lower() in found.lower()) if expected else not found, query
        assert not rejected or rejected.lower() not in found.lower(), query
