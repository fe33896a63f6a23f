"""Which of the visitor's sentences are worth keeping for months."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors import Message
from interturn.actors.statements import STATEMENT_CHARACTERS, statements
from interturn.actors.terms import recalling

AT = datetime(2026, 3, 3, tzinfo=UTC)
DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the conversations are not here")


def turn(*texts, first="visitor"):
    """Messages of the two in turns, as they were said."""
    roles = ("visitor", "agent") if first == "visitor" else ("agent", "visitor")
    return [Message(n + 1, roles[n % 2], text, AT, 0) for n, text in enumerate(texts)]


def kept(*texts, first="visitor"):
    return statements(turn(*texts, first=first))


@pytest.mark.parametrize(
    "text",
    [
        "I adopted two kittens from the shelter last Friday.",
        "My sister Emily lives in Denver with her husband.",
        "Tengo dos hijos y trabajo de noche en el hospital.",
        "Mi perro Nube ladra al timbre.",
        "我住在北京，在医院工作。",
        "Ich wohne seit drei Jahren in Leipzig und arbeite im Krankenhaus.",
        "Я живу в Москве и работаю в больнице.",
    ],
)
def test_what_is_the_speakers_own_is_kept_in_their_words(text):
    """A telling statement about who says it is kept, word for word."""
    assert kept(text, "OK") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Hola, ¿qué tal?",
        "Perfecto, gracias 😊",
        "Thanks so much, you did an amazing job!",
        "Wow, that's awesome! Your painting looks great.",
        "¿Os quedan cascos de la talla M?",
        "Qué tarjeta gráfica me compro",
        "Can you recommend a hotel in Paris?",
        "If I were rich I would buy a house in Paris.",
        "Maybe I should move to Berlin next year.",
        "Me lo pienso, quizá el mes que viene.",
        "Si fuera rico viviría en Mallorca.",
        "The Hubble telescope was launched in 1990.",
        "Tengo un problema",
        "👍",
        "",
        "   ",
        "```\n11:02:13 WAN down\n11:02:40 WAN up\n```",
    ],
)
def test_talk_praise_thanks_questions_and_hypotheses_give_none(text):
    """Not every sentence is a statement: small talk, praise, a question, a guess give none."""
    assert kept(text, "Claro.") == []


def test_of_a_message_only_what_tells_is_kept():
    """The greeting, the question and the thanks around a statement go."""
    said = "Hey Mel! How are you? I started a pottery class in July. Thanks for asking!"
    assert kept(said, "Great!") == ["I started a pottery class in July."]


def test_a_short_answer_is_kept_with_its_question():
    """What makes sense only after the agent's question stands behind it."""
    assert kept("¿Qué día le viene bien?", "El martes por la tarde.", first="agent") == [
        "¿Qué día le viene bien? — El martes por la tarde."
    ]
    assert kept("Where did you grow up?", "In Lisbon.", "Nice!", first="agent") == [
        "Where did you grow up? — In Lisbon."
    ]


def test_a_question_about_the_world_lends_nothing():
    """An answer in a quiz is no statement of the visitor's."""
    assert kept("What is the capital of France?", "Paris.", first="agent") == []


def test_what_the_agent_says_is_no_statement():
    """The visitor's words are the only evidence."""
    assert kept("Sí", "Vivo en Madrid y tengo tres hijos.") == []


def test_a_doubt_after_a_statement_leaves_it():
    """Only what begins in doubt is doubtful."""
    text = "I sold my car in May, so I might need a bus pass."
    assert kept(text, "OK") == [text]


def test_what_a_fact_says_already_is_not_told_again():
    """A sentence that other facts hold, or whose denial they replace, isn't kept beside them."""
    told = ["me he mudado a Valencia", "calle del Olmo 7"]
    said = turn("Me he mudado a Valencia, calle del Olmo 7. Ya no vivo en calle Encina.", "OK")
    assert statements(said, told=told) == []
    assert statements(said) != []


def test_a_statement_is_short_and_its_work_bounded():
    """However much is said, one statement of at most `STATEMENT_CHARACTERS` is kept."""
    said = " ".join(f"I bought boat number {n} in Lisbon for my sister." for n in range(900))
    (only,) = kept(said, "OK")
    assert len(only) <= STATEMENT_CHARACTERS


@given(st.lists(st.text(max_size=200), max_size=4), st.lists(st.text(max_size=20), max_size=2))
def test_any_text_is_read(texts, told):
    """Whatever is said, at most one bounded line comes back for each message."""
    found = statements(turn(*texts), told=told)
    assert len(found) <= (len(texts) + 1) // 2
    assert all(0 < len(text) <= STATEMENT_CHARACTERS for text in found)


def test_every_language_has_words_for_who_speaks():
    """Each file says who is spoken of, and no list is empty."""
    for data in recalling().values():
        for field in ("mine", "yours", "theirs", "doubts", "thanks"):
            assert str(data[field]).split(), (data["code"], field)


@needs_data
def test_chatterbot_small_talk_gives_none():
    """Of the exchanges of the Spanish small-talk corpus none yields a statement."""
    opened = []
    for file in sorted((DATA / "chatterbot_corpus" / "spanish").glob("*.yml")):
        lines = file.read_text("utf-8").splitlines()
        opened += [line[4:].strip("'\" ") for line in lines if line.startswith("- - ")]
    assert len(opened) > 200
    assert [text for text in opened if text and kept(text, "Sí.")] == []


@needs_data
def test_at_most_sixty_statements_for_a_hundred_turns():
    """Of two people's long talk at most six turns in ten yield one."""
    turns = told = 0
    for sample in json.loads((DATA / "locomo" / "locomo_first5.json").read_text("utf-8")):
        sessions = [rows for rows in sample["conversation"].values() if isinstance(rows, list)]
        for before, row in itertools.chain.from_iterable(map(itertools.pairwise, sessions)):
            turns += 1
            told += len(statements(turn(before["text"], row["text"], first="agent")))
    assert turns > 2_000
    assert told <= 0.6 * turns
