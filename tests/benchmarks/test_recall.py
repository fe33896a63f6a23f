"""The parts of `benchmarks/recall.py`, on conversations small enough to know the figures of."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from interturn.runtime import Keyring, Runtime

pytestmark = pytest.mark.anyio

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def part(monkeypatch):
    """Import a benchmark's module as its script does, and forget it afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def customer(data, *sessions, question):
    """A visitor who says these texts, a list a session."""
    turns = [
        turn
        for number, texts in enumerate(sessions)
        for turn, _ in data.turns_of(
            f"s{number}", [row for text in texts for row in ((True, text, ""), (False, "Ok.", ""))]
        )
    ]
    return data.Customer(turns, [question])


def test_a_turn_has_the_question_before_it_and_the_answer_after(part):
    """Messages of one side are joined, and the visitor's are counted by turns."""
    rows = [(False, "Name?", "a"), (True, "Ana", "b"), (True, "Ríos", "c"), (False, "Hi", "d")]
    rows += [(True, "Bye", "e")]
    (first, ids), (last, _) = part("data").turns_of("s", rows)
    assert ids == ["b", "c"]
    assert first.source == ("s", 1)
    assert [message.text for message in first.messages] == ["Name?", "Ana\nRíos", "Hi"]
    assert (last.source, last.said, last.answered) == (("s", 3), "Bye", "Ok.")


async def test_labels_are_compared_with_what_a_runtime_holds(part, tmp_path):
    """Held, superseded, never, found and rejected are told apart, and wrong labels show."""
    turns = [
        ("t1", "user", "Soy Ana y vivo en Madrid."),
        ("t2", "assistant", "Bien."),
        ("t3", "user", "Me he mudado a Valencia, ya no vivo en Madrid."),
    ]
    current = [
        {"id": "a.name", "text": "Se llama Ana; paga en Madrid", "source": ["t1"]},
        {"id": "a.city", "text": "Vive en Valencia", "source": ["t3"]},
    ]
    record = {
        "customer_id": "ana",
        "sessions": [
            {
                "session_id": "s",
                "turns": [dict(zip(("id", "role", "content"), t, strict=True)) for t in turns],
            }
        ],
        "facts_current": current,
        "facts_superseded": [
            {"text": "Vive en Madrid", "source": ["t1"], "replaced_by": "a.city"},
        ],
        "never_facts": [{"text": "Valencia"}, {"text": "Tiene un barco"}],
        "queries": [
            {"q": "¿Dónde vive?", "expect": ["a.city"], "reject": ["Madrid", "Valencia"]},
            {"q": "hola", "expect": []},
        ],
    }
    (tmp_path / "gold_es").mkdir()
    (tmp_path / "gold_es" / "gold_es.json").write_text(json.dumps([record]), encoding="utf-8")
    async with Runtime.open(tmp_path / "g.db", keyring=Keyring.generate()) as runtime:
        found = await part("labelled").gold(runtime, tmp_path)
    assert {name: tuple(tally) for name, tally in found.items()} == {
        "current facts held": (1, 2),  # Madrid is no longer so
        "superseded stated as current": (0, 1),
        "never-facts held": (1, 2),
        "facts that are labelled": (1, 2),
        "queries: expected found": (1, 1),
        "queries: rejected returned": (1, 2),
        "queries: answered that ask nothing": (0, 1),
    }


async def test_of_two_values_the_later_is_seen(part):
    """A value that another replaced isn't in the request; each case is counted as its own."""
    data, updates = part("data"), part("updates")
    question = data.Question(
        "What is my phone number?", (("s0", 1), ("s1", 1)), updates.KIND, "210-555-0199"
    )
    said = ["My phone number is 210-555-0147."], ["My phone number is 210-555-0199."]
    found = await updates.updates([customer(data, *said, question=question)], [500], as_one=False)
    assert updates.counted(found[500]) == (1, 0, 0, 0)
    other = question._replace(evidence=(("s1", 1), ("s0", 1)))
    found = await updates.updates([customer(data, *said, question=other)], [500], as_one=False)
    assert updates.counted(found[500]) == (0, 0, 1, 0)


def test_values_that_a_summary_lost_are_told_from_those_it_holds(part):
    """A value counts as surviving while the summary has it."""
    survival = part("survival")
    values = survival.marked("Ana met Nuria in Oslo last week, with 3 dogs.", ["Nuria"])
    assert values == {"dates": {"last week"}, "numbers": {"3"}, "names": {"oslo"}}
    seen = set(survival.survived("Oslo, 3 dogs", "3 dogs", values))
    assert seen == {
        ("dates", False, False),
        ("numbers", True, True),
        ("names", True, False),
    }
