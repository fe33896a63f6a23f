from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors.message import Message
from interturn.actors.summary import Line, Refused, Summary

AT = datetime(2025, 3, 3, tzinfo=UTC)
FAMILY = "👨‍👩‍👧‍👦"
LEAVING = (
    Message(1, "visitor", "Soy Lucía, mi pedido es el 48213.", AT, 0),
    Message(2, "agent", "Sale mañana.", AT, 0),
)


def by_words(text):
    """Count words."""
    return len(text.split())


def by_characters(text):
    """Count characters."""
    return len(text)


def by_bytes(text):
    """Count bytes of UTF-8."""
    return len(text.encode())


def perverse(text):
    """Count more for less: parts and wholes have nothing to do with each other."""
    return (len(text) * 7919 + text.count("\n") * 31) % 97


COUNTERS = (by_words, by_characters, by_bytes, perverse, lambda text: 10**6 if text else 0)


def lay(summary, addition, *, cap=400, count=by_words, through=2, leaving=LEAVING):
    """Lay one addition."""
    return summary.lay(addition, through=through, cap_tokens=cap, count=count, leaving=leaving)


def laid(*additions, cap=400, count=by_words):
    """Lay additions one above the other, a fold each."""
    summary = Summary()
    for place, addition in enumerate(additions, 1):
        summary = lay(summary, addition, cap=cap, count=count, through=2 * place)
    return summary


def test_an_empty_summary_has_no_text():
    """A session without folds has the empty text as its summary."""
    assert Summary().text == ""


def test_a_layer_lies_on_top_of_what_is_there():
    """What a fold returned is laid on top, and each line knows how far its fold went."""
    summary = laid("Visitante: mi pedido es el 48213.", "Visitante: vivo en Madrid.")
    assert summary.text == "Visitante: mi pedido es el 48213.\nVisitante: vivo en Madrid."
    assert [line.through for line in summary.lines] == [2, 4]


pieces = st.sampled_from([*"abcdefghij áéñ 0123456789 .,?!¿ \n", FAMILY, "北", "京", "ش", "ك"])
lines = st.lists(st.lists(pieces, min_size=1, max_size=120).map("".join), min_size=1, max_size=12)


@given(additions=lines, cap=st.integers(1, 80), which=st.sampled_from(COUNTERS))
def test_what_lay_in_the_summary_stays_word_for_word_or_goes_whole(additions, cap, which):
    """P7: whatever is laid, old lines stay word for word, in order, or go whole, under the cap."""
    summary = Summary()
    for place, addition in enumerate(additions, 1):
        before = summary
        try:
            summary = lay(summary, addition, cap=cap, count=which, through=2 * place)
        except Refused:
            assert summary is before
            continue
        assert not summary.text or which(summary.text) <= cap
        old = [line.text for line in summary.lines if line.through < 2 * place]
        remaining = iter([line.text for line in before.lines])
        assert all(text in remaining for text in old)
        assert all("\n" not in line.text and line.text for line in summary.lines)
        assert len(summary.text.splitlines()) == len(summary.lines)


@given(additions=lines, cap=st.integers(1, 300), lower=st.integers(0, 60))
def test_shortened_only_leaves_lines_out(additions, cap, lower):
    """For a request that needs it, the summary gives up whole lines and rewords none."""
    summary = Summary()
    for place, addition in enumerate(additions, 1):
        try:
            summary = lay(summary, addition, cap=cap, count=by_bytes, through=2 * place)
        except Refused:
            continue
    shorter = summary.shortened(lower, by_bytes)
    assert by_bytes(shorter.text) <= lower
    remaining = iter(summary.lines)
    assert all(line in remaining for line in shorter.lines)


def test_lines_go_only_by_the_cap():
    """Below the cap nothing goes, also what was replaced."""
    summary = laid(
        "Visitante: vivo en Madrid.", "Visitante: me mudé a Valencia, ya no vivo en Madrid."
    )
    assert len(summary.lines) == 2


def test_the_least_telling_goes_first_wherever_it_lies():
    """At the cap the least telling line goes, not the oldest."""
    summary = laid(
        "Visitante: mi pedido es el 48213 y mi teléfono el 11-5550-0002.",
        "Visitante: el cielo estaba muy bonito ayer tarde.",
        "Visitante: soy alérgica al látex desde niña.",
        cap=22,
    )
    assert "48213" in summary.text
    assert "látex" in summary.text
    assert "cielo" not in summary.text


def test_the_newest_layer_goes_last():
    """A new line stays through its own fold, though it tells less than all below it."""
    telling = "Visitante: mi pedido 48213 llegó roto el martes 18 de marzo."
    summary = laid(telling, "Visitante: me gusta mucho el azul claro.", cap=12)
    assert summary.text == "Visitante: me gusta mucho el azul claro."


def test_one_wordy_layer_cant_wash_away_what_lies_below():
    """Of a layer over half the cap, the excess competes with what lies below."""
    chatter = "\n".join(f"una tarde de nubes con viento {word}" for word in "abcdefghij")
    summary = laid("Visitante: mi pedido es el 48213.", chatter, cap=40)
    assert "48213" in summary.text


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Visitante: vivo en Madrid, en la calle Encina.", "Visitante: me mudé a Valencia."),
        (
            "Visitante: mi teléfono es el 11-5550-0001.",
            "Visitante: ya no es ese teléfono, ahora es el 11-5550-0002.",
        ),
        ("Visitante: tengo el plan de 100 megas.", "Visitante: al final pasame al de 300 megas."),
        ("Visitor: I live in Boston.", "Visitor: I moved to Denver last week."),
        ("Visitor: my phone is 555-0101.", "Visitor: my new phone is 555-0199."),
        ("Visitor: I drink coffee with milk.", "Visitor: I no longer drink coffee with milk."),
    ],
)
def test_a_later_statement_makes_the_one_it_replaces_less_telling(earlier, later):
    """A replaced statement weighs less than before, the one that replaced it doesn't."""
    first = laid(earlier)
    both = lay(first, later, through=4)
    assert both.lines[0].text == earlier
    assert both.lines[0].weight < first.lines[0].weight
    assert both.lines[1].weight == laid(later).lines[0].weight


def test_two_orders_dont_replace_each_other():
    """Another order's number is another order, not a correction."""
    summary = laid("Visitante: el pedido 48213 llegó roto.", "Visitante: quiero devolver el 51877.")
    assert summary.lines[0].weight == laid("Visitante: el pedido 48213 llegó roto.").lines[0].weight


def test_the_same_is_not_laid_twice():
    """A line that is there already is not laid again, though a word or two differ."""
    summary = laid("Visitante: mi pedido es el 48213.")
    again = (Message(3, "visitor", "Mi pedido es el 48213.", AT, 0),)
    assert lay(summary, "Visitante: mi pedido es el 48213.", leaving=again).lines == summary.lines
    assert lay(summary, "Visitante: Mi pedido, es el 48213!", leaving=again).lines == summary.lines


def test_one_other_number_or_a_denial_is_not_the_same():
    """A near-identical line with another number, or denied, is laid."""
    summary = laid(
        "Visitante: quiero el turno del martes 18 a las 17:00 en Centro.",
        "Visitante: quiero el turno del martes 18 a las 18:00 en Centro.",
        "Visitante: no quiero el turno del martes 18 a las 17:00 en Centro.",
    )
    assert len(summary.lines) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("—", "empty"),
        ("```\n```", "empty"),
        ("NONE", "none"),
        ("None.", "none"),
        ("N/A", "none"),
        ("null", "none"),
        ("- none", "none"),
        ("Summary: none", "none"),
        ("Ninguno.", "none"),
        ("Nada nuevo", "none"),
        ("No hay nada que añadir.", "none"),
        ("No hay información nueva en estos mensajes.", "none"),
        ("Nothing to add", "none"),
        ("There is nothing new to add to the summary.", "none"),
        ("Nada a acrescentar.", "none"),
        ("Rien à ajouter.", "none"),
        ("Nichts Neues.", "none"),
        ("Niente da aggiungere", "none"),
        ("无", "none"),
        ("なし", "none"),
        ("Error: rate limit", "error"),
        ("error 429: too many requests", "error"),
        ("HTTP 503 Service Unavailable", "error"),
        ("Internal server error", "error"),
        ("openai.RateLimitError: slow down", "error"),
        ('Traceback (most recent call last):\n  File "x.py"', "error"),
        ('{"error": {"message": "overloaded"}}', "error"),
        ("<html><body>502 Bad Gateway</body></html>", "error"),
        ("I'm sorry, I can't help with that.", "error"),
        (
            "I\N{RIGHT SINGLE QUOTATION MARK}m sorry, but I can\N{RIGHT SINGLE QUOTATION MARK}t.",
            "error",
        ),
        ("As an AI language model, I have no memory.", "error"),
        ("Lo siento, no puedo ayudar con eso.", "error"),
        ("Ha ocurrido un error al procesar la solicitud.", "error"),
        ("palabra " * 801, "over-long"),
        ("hola \ud83d", "unencodable"),
    ],
)
def test_no_answer_is_taken_for_an_addition(answer, reason):
    """P7: an empty, error-like or over-long answer is refused, and says why."""
    with pytest.raises(Refused) as refused:
        lay(laid("Visitante: mi pedido es el 48213."), answer)
    assert refused.value.reason == reason
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    "answer",
    [
        "Visitante: me sale error 500: al pagar.",
        "El cliente dice que le sale un error al pagar con tarjeta.",
        "None of the visitor's three cards works since Monday.",
        "Nada funciona desde el martes, según el cliente.",
        "Sin cambios en el pedido 48213.",
    ],
)
def test_speaking_of_errors_is_no_error(answer):
    """An answer that tells of an error, or begins as a refusal might, is laid."""
    assert lay(Summary(), answer).text == answer


def test_the_summary_given_back_is_refused():
    """P7: an answer that only repeats the summary is refused, however it is broken."""
    summary = laid(
        "Visitante: mi pedido 48213 no ha llegado todavía.",
        "Visitante: vivo en Madrid, en la calle Encina 14.",
    )
    leaving = (Message(5, "visitor", "Soy alérgica al látex y quiero un cambio.", AT, 0),)
    for echo in (summary.text, summary.text.replace("\n", " "), f"Resumen:\n{summary.text}"):
        with pytest.raises(Refused, match="repetition"):
            lay(summary, echo, leaving=leaving)


def test_an_echo_with_something_new_adds_only_the_new():
    """Of an answer that gives the summary back and goes on, what is new is laid."""
    summary = laid("Visitante: mi pedido 48213 no ha llegado todavía.")
    both = lay(summary, summary.text + "\nVisitante: soy alérgica al látex.", through=4)
    assert [line.through for line in both.lines] == [2, 4]


def test_a_heading_and_bullets_are_left_out():
    """What a model wraps its answer in is not laid."""
    summary = lay(Summary(), "Summary:\n- The visitor lives in Madrid.\n* Order 48213 is late.")
    assert summary.text == "The visitor lives in Madrid.\nOrder 48213 is late."


def test_a_new_line_longer_than_the_cap_is_cut_visibly():
    """Only a new line is ever cut, at a word, with an ellipsis, under the cap."""
    summary = lay(Summary(), "palabra " * 60, cap=40)
    assert by_words(summary.text) <= 40
    assert summary.text.endswith("palabra…")


@pytest.mark.parametrize("cap", range(32, 64))
def test_a_cut_never_splits_an_emoji_family(cap):
    """A cut falls between graphemes, so a family stays together or goes."""
    summary = lay(Summary(), "a" + FAMILY * 9, cap=cap, count=by_characters)
    kept = summary.text.removesuffix("…").removeprefix("a")
    assert kept == FAMILY * (len(kept) // len(FAMILY))


def test_an_answer_stands_as_long_as_its_question():
    """A short answer laid right above its question weighs more than alone."""
    asked = laid("Agente: ¿Forma de pago?")
    both = lay(asked, "Visitante: Efectivo.", through=4)
    assert both.lines[1].weight > laid("Visitante: Efectivo.").lines[0].weight
    assert both.lines[0].weight > asked.lines[0].weight


def test_each_new_line_is_counted_once():
    """A fold counts its own lines and the joined text, nothing that lay there before."""
    counted = []

    def count(text):
        counted.append(text)
        return by_words(text)

    summary = laid(*(f"Visitante: pedido {number} roto." for number in range(1000, 1020)))
    counted.clear()
    summary = lay(summary, "Visitante: soy Ana.\nVisitante: vivo en Lugo.", count=count)
    assert counted == ["Visitante: soy Ana.", "Visitante: vivo en Lugo.", summary.text]


def test_early_values_survive_hundreds_of_chatty_layers():
    """Names, numbers, dates and decisions laid first are there after 300 chatty folds."""
    early = (
        "Visitante: soy Lucía Prado y mi pedido es el 48213.\n"
        "Visitante: soy alérgica al látex.\n"
        "Agente: Queda programado el cambio para el martes 18 de marzo de 17:00 a 20:00."
    )
    skies = (
        "gris suave húmedo raro claro seco tibio denso bajo alto turbio limpio pálido fino manso"
    )
    moods = (
        "fresco ventoso triste largo pesado dulce vivo lento ligero quieto leve tenue bronco áspero"
        " hondo blando terco vago hosco ralo"
    )
    chatter = [
        f"Visitante: hoy el tiempo parece {sky} y algo {mood}."
        for sky in skies.split()
        for mood in moods.split()
    ]
    summary = laid(early, *chatter, cap=120)
    assert len(chatter) == 300
    for line in early.split("\n"):
        assert line in summary.text


def test_lines_travel_compactly():
    """A line is an array in a snapshot and comes back equal."""
    summary = laid("Visitante: mi pedido es el 48213.")
    packed = msgspec.msgpack.encode(summary.lines)
    assert msgspec.msgpack.decode(packed, type=tuple[Line, ...]) == summary.lines
    assert len(packed) < len(summary.text.encode()) + 60


def test_a_repr_shows_no_words():
    """P12: what a summary shows of itself is counts."""
    summary = laid("Visitante: mi pedido es el 48213.")
    assert "48213" not in repr(summary) + repr(summary.lines[0]) + repr(Refused("none"))


def test_the_same_fold_gives_the_same_summary():
    """Laying is deterministic: the same layers give the same lines."""
    layers = ["Visitante: soy Ana.", "Visitante: vivo en Lugo.", "Visitante: pedido 48213 roto."]
    one, other = laid(*layers, cap=9), laid(*layers, cap=9)
    assert one == other
    assert all(a.through <= b.through for a, b in pairwise(one.lines))
