from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors.book import FactBook
from interturn.actors.facts import FactChange
from interturn.actors.profile import OfflineProfiler, always_on, render, same

START = datetime(2025, 3, 3, tzinfo=UTC)


class Letters:
    """Counts a token a letter."""

    name = "letters"

    def count(self, text):
        """Count a text."""
        return len(text)


def facts(*pairs):
    """Facts of these slots and texts, a minute apart."""
    book = FactBook()
    for n, (slot, text) in enumerate(pairs):
        at = START + timedelta(minutes=n)
        change = FactChange("set", slot, text)
        book = book.apply([change], source=("s", n), at=at, private=False)
    return book.facts


KNOWN = facts(
    ("note:1", "me gusta el campo"),
    ("home", "vivo en León"),
    ("allergy:latex", "soy alérgica al látex"),
    ("name", "soy Ana"),
)


def test_what_always_stands_is_first_whatever_the_profiler_wrote():
    """P11: an allergy told in turn 2 is in the next session, whatever the refresh."""
    text = render("Clienta amable.", KNOWN, cap_tokens=200, counter=Letters())
    assert text.split("\n") == ["Soy Ana", "Soy alérgica al látex", "Clienta amable."]
    assert [fact.slot for fact in always_on(KNOWN)] == ["name", "allergy:latex"]


def test_the_offline_profile_is_the_facts_the_telling_first():
    """Extractive: in the customer's words and language (P20), notes last."""

    async def refresh():
        return await OfflineProfiler(Letters()).refresh("viejo", (), KNOWN, cap_tokens=200)

    assert anyio.run(refresh).split("\n") == [
        "Soy Ana",
        "Soy alérgica al látex",
        "Vivo en León",
        "Me gusta el campo",
    ]


def test_a_line_that_a_fact_has_replaced_is_left_out():
    """A profile never states as current what has changed since it was written."""
    known = facts(("home", "vivo en Madrid"), ("home", "me mudé a Valencia"))
    text = render("Vivo en Madrid\nMuy puntual", known, cap_tokens=200, counter=Letters())
    assert text == "Muy puntual"
    assert "Valencia" in render("Vivo en Madrid", known, cap_tokens=200, counter=Letters())


def test_what_is_never_remembered_is_not_in_the_profile():
    """The filter holds in the profile too."""
    known = facts(("name", "soy Ana"), ("x", "mi tarjeta es 4111 1111 1111 1111"))
    text = render("PIN: 4821\nAmable", known, cap_tokens=200, counter=Letters())
    assert text == "Soy Ana\nAmable"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["name", "home", "note:1", "allergy:x", "order:1", "z"]),
            st.text("abc é👍", min_size=1, max_size=60).filter(str.strip),
        ),
        min_size=1,
    ),
    st.integers(4, 150),
    st.text(max_size=80),
)
def test_the_cap_always_holds_and_no_profile_is_empty_while_facts_exist(pairs, cap, text):
    """The profile never exceeds `profile_tokens`, and is never empty while facts exist."""
    known = facts(*pairs)
    profile = render(text, known, cap_tokens=cap, counter=Letters())
    assert len(profile) <= cap
    assert profile
    assert profile == render(text, known, cap_tokens=cap, counter=Letters())


PAIRS = st.lists(
    st.tuples(
        st.sampled_from(["name", "allergy:nuts", "home", "order:7", "note:1", "note:2"]),
        st.sampled_from(["soy Ana", "nueces no", "vivo en León", "me mudé a Vigo", "PIN: 4821"]),
    ),
    max_size=5,
)


@given(PAIRS, PAIRS, st.sampled_from(["", "Amable", "Vivo en León\nMuy puntual", "PIN: 4821"]))
def test_what_is_said_to_be_the_same_profile_is(earlier, later, text):
    """A profile that isn't rendered again is byte for byte what rendering would give."""
    before, after = facts(*earlier), facts(*earlier, *later)
    if same(text, after, before):
        profile = render(text, before, cap_tokens=200, counter=Letters())
        assert render(text, after, cap_tokens=200, counter=Letters()) == profile


def test_most_changes_leave_a_written_profile():
    """A note more changes no profile; a new allergy, or a replaced home, does."""
    text = "Amable\nVivo en León"
    assert same(text, KNOWN, KNOWN[1:])
    assert not same(text, KNOWN, KNOWN[:2])
    moved = facts(("home", "vivo en León"), ("home", "me mudé a Vigo"))
    assert not same(text, moved, moved[:0])


def test_with_no_facts_and_no_text_there_is_no_profile():
    """Nothing known, nothing said."""
    assert render("", (), cap_tokens=100, counter=Letters()) == ""
