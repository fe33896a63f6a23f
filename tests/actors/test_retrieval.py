"""Retrieval: what is relevant, above a floor, over an index that is made when facts change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors import Fact, postings
from interturn.actors.retrieval import FactIndex, LexicalRetriever
from interturn.actors.terms import UNTOLD, recalling, slot_topics, topics

AT = datetime(2026, 3, 3, tzinfo=UTC)
GOLD = Path(__file__).parents[3] / "shared" / "data" / "gold_es" / "gold_es.json"


def facts(*rows, session=None):
    """Facts of ``(slot, text)``, each of a session of its own unless one is named."""
    return tuple(
        Fact(f"f{n}", slot, text, AT, AT, 1, (session or f"s{n}", 2 * n + 1))
        for n, (slot, text) in enumerate(rows)
    )


def notes(*texts, session=None):
    return facts(*((f"note:{n}", text) for n, text in enumerate(texts)), session=session)


def found(query, known, limit=9):
    return [scored.fact.text for scored in FactIndex.of(known).rank(query, limit=limit)]


LUCIA = {
    "lu.name": ("name", "soy Lucía"),
    "lu.city": ("home", "me he mudado a Valencia en mayo, calle del Olmo 7"),
    "lu.slot": ("schedule", "mejor por la mañana, antes de las diez"),
    "lu.job": ("job", "soy enfermera y ahora trabajo de día"),
    "lu.allergy": ("allergy:latex", "soy alérgica al látex"),
    "lu.dog": ("pet:nube", "Mi perro Nube ladra al timbre, mejor que llamen al móvil"),
    "lu.order": ("order:48213", "pedido 48213: la bici azul llegó con la rueda doblada"),
}
MATEO = {
    "ma.name": ("name", "Preguntá por Mateo"),
    "ma.number": ("customer-number", "Cliente 7710-22"),
    "ma.plan": ("plan", "plan de 300 megas"),
    "ma.modem": ("device:modem", "módem Ferro X2"),
    "ma.phone": ("phone", "el teléfono ahora es el 11-5550-0002"),
    "ma.mother": ("relative:mother", "Mi vieja vive en Rosario y usa silla de ruedas"),
}
CARMEN = {
    "ca.name": ("name", "habla Carmen Ríos"),
    "ca.manner": ("form-of-address", "tráteme de usted"),
    "ca.self": ("condition:hipertensa", "yo soy hipertensa"),
    "ca.mother": ("relative:mother", "mi mamá Elvira es diabética"),
    "ca.pickup": ("pickup", "recojo en la sucursal del Centro"),
    "ca.pay": ("payment", "efectivo contra entrega"),
}
PEOPLE = {"c-lucia": LUCIA, "c-mateo": MATEO, "c-carmen": CARMEN}


@pytest.mark.skipif(not GOLD.is_file(), reason="the labelled customers are not here")
@pytest.mark.parametrize("customer", PEOPLE)
def test_a_query_returns_what_is_expected_and_nothing_rejected(customer):
    """The labelled queries find their facts, in another language too, and "hola" nothing."""
    (labels,) = [c for c in json.loads(GOLD.read_text("utf-8")) if c["customer_id"] == customer]
    names = {text: name for name, (_, text) in PEOPLE[customer].items()}
    for query in labels["queries"]:
        texts = found(query["q"], facts(*PEOPLE[customer].values()))
        assert {names[text] for text in texts} >= set(query["expect"]), query["q"]
        assert not any(bad in text for bad in query.get("reject", ()) for text in texts)
        assert texts or query["expect"] == []


@pytest.mark.parametrize(
    "query",
    [
        *("hola", "Hola, buenas tardes", "gracias!", "thanks a lot", "👍", "你好", "ok"),
        *("xyzzy qqqq", "", "   ", "\n\t", "?", "¿qué?", "the of and", "a"),
    ],
)
def test_what_asks_nothing_finds_nothing(query):
    """Below the floor nothing is returned: greetings, gibberish, blanks, grammar alone."""
    known = notes(*(text for person in PEOPLE.values() for _, text in person.values()))
    assert found(query, known) == []
    assert LexicalRetriever().rank(query, known, limit=5) == []


@pytest.mark.parametrize("limit", [0, -1, -(10**9)])
def test_a_limit_below_one_returns_none(limit):
    """No limit is ever read as "everything"."""
    known = facts(*LUCIA.values())
    assert FactIndex.of(known).rank("alergias", limit=limit) == []
    assert LexicalRetriever().rank("alergias", known, limit=limit) == []


def test_a_limit_bounds_and_a_huge_one_does_not_add():
    """At most ``limit``, best first, and never what is not relevant."""
    known = notes("my cat Moka", "my cat Tom and my dog Rex", "I live in Lisbon")
    assert len(found("which cat?", known, limit=1)) == 1
    ranked = FactIndex.of(known).rank("which cat?", limit=10**9)
    assert len(ranked) == 2
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)


SCRIPTS = (
    "Mi jefe es el señor Müller",
    "Tengo un niño de dos años",
    "Меня зовут Сергей, я живу в Москве",
    "我住在北京，喜欢喝茶",
    "اسمي كريم، شكرا على الهدية",
    "Me apellido Ñíguez",
    "Ich habe einen Fahrradhelm gekauft",
    "ฉันอาศัยอยู่ที่กรุงเทพ",
    "私は大阪に住んでいます",
    "저는 서울에서 일해요",
    "Les enfants vont à l'école à Genève",
)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("Müller", 0), ("muller", 0), ("MÜLLER", 0), ("niño", 1), ("nino", 1), ("niños", 1),
        ("Сергей", 2), ("Москва", 2), ("北京", 3), ("茶", 3), ("شكرا", 4), ("شكراً", 4),
        ("niguez", 5), ("NIGUEZ", 5), ("Ñi\u0301guez", 5), ("N\u0303íguez", 5),
        ("Helm", 6), ("fahrradhelme", 6),
        ("กรุงเทพ", 7), ("大阪", 8), ("서울", 9), ("enfant", 10), ("geneve", 10),
    ],
)  # fmt: skip
def test_a_word_is_found_in_any_script_however_it_is_typed(query, place):
    """Inflection, accents or none, case, compounds, decomposed letters, no spaces: it matches."""
    assert found(query, notes(*SCRIPTS))[:1] == [SCRIPTS[place]]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("any allergies?", "soy alérgica al látex"),
        ("¿es alérgico a algo?", "I can't have peanuts, I'm allergic"),
        ("does she have a pet?", "mi gata se llama Moka"),
        ("What is her job?", "I'm a nurse in Leeds"),
        ("¿a qué hora le llamo?", "mejor por las mañanas"),
        ("¿dónde vive?", "mi dirección es Olmo 7"),
        ("latex", "soy alérgica al látex"),
        ("48213", "pedido 48213"),
        ("alerjica", "soy alérgica al látex"),
    ],
)
def test_a_question_finds_what_it_is_about(query, text):
    """A topic is found whatever word and language each uses; so are numbers and misspellings."""
    others = notes("I sold the blue boat to Tom", "el grifo gotea", "we watched the eclipse")
    assert found(query, (*others, *facts(("note:x", text), session="another"))) == [text]


def test_a_slots_name_is_sought_too():
    """A fact whose text doesn't say what it is about is found by its slot."""
    known = facts(("size", "M"), ("allergy:látex", "mucho cuidado"), ("note:1", "I sold the boat"))
    assert found("¿qué talla usa?", known) == ["M"]
    assert found("látex", known) == ["mucho cuidado"]
    assert found("note", known) == []


def test_what_was_said_beside_a_match_comes_after_it():
    """A statement is lent relevance by its neighbour in the session, and ranks below it."""
    said = notes("We went camping by the lake.", "It was the best week of the year.", session="s")
    assert found("When did they go camping?", said) == [fact.text for fact in said]
    far = msgspec.structs.replace(said[1], source=("s", 99))
    other = msgspec.structs.replace(said[1], source=("t", 3))
    for stranger in (far, other):
        assert found("When did they go camping?", (said[0], stranger)) == [said[0].text]


def test_a_fact_with_a_slot_needs_no_company():
    """What has a slot of its own is returned for what it says, not for when it was said."""
    known = facts(("note:1", "We went camping by the lake."), ("name", "soy Ana"), session="s")
    assert found("camping", known) == ["We went camping by the lake."]


def test_among_equals_the_later_fact_comes_first():
    """Equal scores are ordered by the order of the facts, the last first."""
    known = notes("my cat is ill", "my cat is ill")
    ranked = FactIndex.of(known).rank("cat", limit=9)
    assert [scored.fact.id for scored in ranked] == ["f1", "f0"]


def test_an_updated_index_is_as_one_made_anew():
    """Whatever comes, changes and goes, the update finds what a new index would."""
    before = notes(*SCRIPTS, "We went camping by the lake.", "It was cold.", session="s")
    index = FactIndex.of(before)
    moved = msgspec.structs.replace(before[1], text="Vivo en Valencia con mi niño")
    seen = msgspec.structs.replace(before[2], sightings=9)
    for after in (
        (*before, *facts(("pet:x", "my cat Moka"))),
        (before[0], moved, *before[2:]),
        before[3:],
        (before[0], before[1], seen, *before[3:-2], before[-1]),
        (),
        before,
    ):
        index = index.updated(after)
        for query in ("niño", "valencia", "Сергей", "camping", "any cats?", "Helm"):
            anew = FactIndex.of(after).rank(query, limit=50)
            updated = index.rank(query, limit=50)
            assert {(s.fact, round(s.score, 9)) for s in updated} == {
                (s.fact, round(s.score, 9)) for s in anew
            }
    assert found("niño", before)[:1] == [before[1].text]


def test_only_what_is_new_is_read(monkeypatch):
    """A fact more, or one seen again, doesn't read the others again; asking reads none."""
    read = []
    reader = postings.read_fact
    monkeypatch.setattr(postings, "read_fact", lambda fact: read.append(fact) or reader(fact))
    known = notes(*(f"I own boat number {number}" for number in range(500)))
    index = FactIndex.of(known)
    assert len(read) == 500
    (cat,) = facts(("pet:x", "my cat Moka"))
    again = msgspec.structs.replace(known[7], sightings=2, last_seen=AT)
    index = index.updated((*known[:7], again, *known[8:], msgspec.structs.replace(cat, id="cat")))
    assert len(read) == 501
    index.rank("boat 77", limit=5)
    assert len(read) == 501


def test_the_port_keeps_indexes_by_identity(monkeypatch):
    """The same tuple is read once; a list, which may change, each time; `release` forgets."""
    read = []
    reader = postings.read_fact
    monkeypatch.setattr(postings, "read_fact", lambda fact: read.append(fact) or reader(fact))
    retriever = LexicalRetriever()
    known = facts(*LUCIA.values())
    for _ in range(3):
        assert retriever.rank("alergias", known, limit=3)
    assert len(read) == len(known)
    (sold,) = facts(("note:1", "I sold the boat"))
    changed = (*known, msgspec.structs.replace(sold, id="new"))
    assert retriever.rank("boat", changed, limit=3)
    assert len(read) == len(changed)
    listed = list(known)
    assert retriever.rank("alergias", listed, limit=3)
    listed.clear()
    assert retriever.rank("alergias", listed, limit=3) == []
    retriever.release()
    assert repr(retriever) == "LexicalRetriever(indexes=0)"


def test_a_repr_tells_counts_only():
    """P12: neither words nor ids show."""
    shown = repr(FactIndex.of(facts(*LUCIA.values())))
    assert "Luc" not in shown
    assert "facts=7" in shown


def test_a_score_shows_how_much_of_what_was_asked_is_there():
    """A fact that carries all of a query scores above one that carries a part."""
    known = notes("I sold the blue boat", "the blue sky over Leeds")
    first, second = FactIndex.of(known).rank("blue boat", limit=2)
    assert first.fact is known[0]
    assert first.score > second.score > 0


@given(
    st.text(max_size=120),
    st.lists(st.tuples(st.text(max_size=20), st.text(max_size=80)), max_size=6),
    st.integers(-2, 9),
)
def test_any_text_may_be_asked_of_any_facts(query, rows, limit):
    """Whatever is stored and asked, at most ``limit`` facts come back, each once."""
    known = facts(*rows)
    ranked = LexicalRetriever().rank(query, known, limit=limit)
    assert len(ranked) <= max(0, limit)
    assert len({scored.fact.id for scored in ranked}) == len(ranked)
    assert all(scored.score > 0 for scored in ranked)


def test_no_fact_is_no_answer():
    """Without facts nothing is found."""
    assert LexicalRetriever().rank("anything", (), limit=5) == []


def test_topics_have_one_name_in_every_language():
    """A topic of one language that another has too goes by the same name."""
    assert topics("perro", ("es",)) == topics("dog", ("en",)) == ("#pet",)
    assert "#home" in topics("direccion", ("es",))
    assert "#home" in topics("address", ("en",))
    assert slot_topics("allergy:latex")[0] == "#allergy"
    assert slot_topics("note:1") == slot_topics("") == ()
    spanish, english = (set(recalling()[code]["topics"]) for code in ("es", "en"))
    assert spanish <= english
    assert all(topic in {name[1:] for name in topics(topic, UNTOLD)} for topic in english)
