from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors.book import FACT_CHARACTERS, STANDING, FactBook, fact_id, folded_slot
from interturn.actors.facts import FactChange

START = datetime(2025, 3, 3, tzinfo=UTC)


def put(slot, text, **more):
    """A change that sets a slot."""
    return FactChange("set", slot, text, **more)


def gone(slot, **more):
    """A change that retracts a slot."""
    return FactChange("retract", slot, **more)


def told(book, *changes, session="s", seq=1, minutes=0, **more):
    """Apply changes as said by one message."""
    at = START + timedelta(minutes=minutes)
    return book.apply(changes, source=(session, seq), at=at, **more)


def test_the_same_fact_five_times_from_two_sessions_is_one_with_five_sightings():
    """P10: an equal statement, compared folded, only counts a sighting."""
    book = FactBook()
    texts = ("Vivo en León", "vivo en  leon", "VIVO EN LEÓN", "Vivo en León.", "vivo en leo\u0301n")
    for place, text in enumerate(texts):
        book = told(book, put("home", text), session=f"s{place % 2}", seq=place, minutes=place)
    (fact,) = book.facts
    assert (fact.sightings, fact.text, fact.was) == (5, "Vivo en León", None)
    assert (fact.since, fact.last_seen) == (START, START + timedelta(minutes=4))
    assert fact.source == ("s0", 4)


def test_a_changed_fact_is_updated_in_place_and_keeps_what_it_was():
    """P10: Madrid, then Valencia: one fact, Valencia, was Madrid, with the same id."""
    before = told(FactBook(), put("home", "vivo en Madrid"))
    after = told(before, put("Home ", "me mudé a Valencia"), seq=3, minutes=5)
    (fact,) = after.facts
    assert (fact.text, fact.was, fact.sightings) == ("me mudé a Valencia", "vivo en Madrid", 2)
    assert fact.id == before.facts[0].id == fact_id("home")
    assert fact.since == START


def test_what_only_refines_does_not_become_was():
    """A fuller statement of the same was never untrue before."""
    book = told(FactBook(), put("home", "vivo en Madrid"))
    book = told(book, put("home", "vivo en Madrid, calle Encina 14", refines=True), seq=3)
    assert book.facts[0].was is None
    assert book.facts[0].text == "vivo en Madrid, calle Encina 14"


def test_two_things_that_can_both_be_true_stay_two():
    """Two allergies have two slots and two facts."""
    book = told(FactBook(), put("allergy:látex", "al látex"), put("allergy:nueces", "a las nueces"))
    assert [fact.slot for fact in book.facts] == ["allergy:latex", "allergy:nueces"]


def test_retracting_takes_a_slot_and_what_stands_under_it():
    """A retracted family goes whole, and nothing whose name only begins alike."""
    book = told(FactBook(), put("pet:nube", "Nube"), put("pet", "un perro"), put("pets", "otro"))
    assert [fact.slot for fact in told(book, gone("pet"), seq=3).facts] == ["pets"]


def test_what_a_customer_asks_to_forget_leaves_no_trace_in_the_book():
    """Erased: not in `was`, not in what can be undone, not in a note that repeats it."""
    book = told(
        FactBook(),
        put("home", "Avenida Jacaranda 220"),
        put("note:1", "mándelo a Avenida Jacaranda 220"),
        put("note:2", "prefiero el café molido"),
    )
    book = told(book, put("home", "Calle Lima 3"), seq=3)
    book = told(book, gone("home", erases=True), seq=5)
    left = msgspec.json.encode(book).decode()
    assert "Jacaranda" not in left
    assert "Lima" not in left
    assert [fact.slot for fact in book.facts] == ["note:2"]
    assert told(book, put("home", "Calle Sol 1"), seq=7).get("home").was is None
    assert book.without(("s", 5)) == book.without(("s", 99))


def test_undoing_a_message_takes_back_what_it_alone_taught():
    """A fact of it alone goes, a changed one is what it was, a retracted one comes back."""
    book = told(FactBook(), put("home", "Madrid"), put("likes", "té"))
    after = told(book, put("home", "Valencia"), put("job", "médica"), gone("likes"), seq=3)
    assert after.without(("s", 3)).facts == book.facts
    assert after.without(("s", 99)).facts == after.facts


def test_undoing_leaves_what_others_said_since():
    """What another session said too stays, with a sighting less."""
    book = told(FactBook(), put("home", "Valencia"), session="a")
    book = told(book, put("home", "Valencia"), session="b", minutes=1)
    (fact,) = book.without(("a", 1)).facts
    assert (fact.text, fact.sightings) == ("Valencia", 1)


def test_at_the_bound_the_least_seen_and_longest_unseen_go_first():
    """P18: facts are bounded; what always stands and what was just said go last."""
    book = FactBook()
    for n in range(5):
        book = told(book, put(f"note:{n}", f"cosa {n}"), seq=n, minutes=n, limit=5)
    book = told(book, put("note:0", "cosa 0"), seq=10, minutes=10, limit=5)
    book = told(book, put("allergy:soja", "a la soja"), seq=11, minutes=11, limit=5)
    book = told(book, put("note:9", "cosa 9"), seq=12, minutes=12, limit=5)
    assert {fact.slot for fact in book.facts} == {
        "note:0",
        "note:3",
        "note:4",
        "note:9",
        "allergy:soja",
    }
    assert "allergy" in STANDING


def test_merging_keeps_the_later_and_adds_the_sightings():
    """Two customers turn out to be one: union, the later stands, the other is its `was`."""
    one = told(FactBook(), put("home", "Madrid"), put("job", "médica"))
    other = told(FactBook(), put("home", "Lima"), put("pet", "Toto"), session="z", minutes=9)
    for merged in (one.merge(other), other.merge(one)):
        home = merged.get("home")
        assert (home.text, home.was, home.sightings, home.since) == ("Lima", "Madrid", 2, START)
        assert {fact.slot for fact in merged.facts} == {"home", "job", "pet"}


@pytest.mark.parametrize(
    "change",
    [
        put("", "x"),
        put("x", "   "),
        put("x", "hola \ud83d"),
        put("\ud83d", "hola"),
        put("pay", "mi tarjeta es 4111 1111 1111 1111"),
    ],
)
def test_what_cannot_or_must_not_be_kept_is_passed_over(change):
    """Nothing empty, not encodable or never to be remembered enters the book."""
    assert told(FactBook(), change) == FactBook()


def test_a_deriver_that_answers_too_much_is_cut_short():
    """The code enforces both caps: facts a message, and the length of each."""
    changes = [put(f"x:{n}", "palabra " * 2_000) for n in range(500)]
    book = told(FactBook(), *changes)
    assert len(book.facts) < 100
    assert all(len(fact.text) <= FACT_CHARACTERS for fact in book.facts)


def test_a_book_survives_its_snapshot():
    """Every snapshot is encodable, and comes back equal."""
    book = told(FactBook(), put("home", "Madrid"))
    book = told(book, put("home", "Lima"), gone("nada"), seq=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(book), type=FactBook) == book


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["home", "job", "pet:a", "pet", "note:1"]),
            st.sampled_from(["uno", "dos", "tres", ""]),
            st.sampled_from(["a", "b"]),
        ),
        max_size=30,
    )
)
def test_no_slot_is_ever_held_twice(said):
    """One fact a slot, whatever is said, retracted and undone."""
    book = FactBook()
    for seq, (slot, text, session) in enumerate(said):
        change = put(slot, text) if text else gone(slot)
        book = told(book, change, session=session, seq=seq, minutes=seq, limit=3)
        slots = [fact.slot for fact in book.facts]
        assert len(slots) == len(set(slots)) <= 3
        undone = book.without((session, seq))
        assert len({fact.slot for fact in undone.facts}) == len(undone.facts)


def test_slots_are_compared_folded():
    """NFKC, case, accents and spaces don't make another slot."""
    assert folded_slot("  Ａllergy:LÁTEX  x ") == "allergy:latex x"
