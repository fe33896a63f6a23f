"""What a customer takes back, jokes about, moves from and moves to.

Each story is what one customer said, message by message; ``holds`` are pairs of slot and
words of which each must stand, ``never`` what no fact may say afterwards.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from interturn.actors.book import FactBook
from interturn.actors.deriver import derived
from interturn.actors.message import Message

AT = datetime(2025, 3, 3, tzinfo=UTC)

STORIES: list[tuple[str, list[str], list[str]]] = [
    # denied
    ("Soy celíaca / Me equivoqué, no soy celíaca", [], ["cel[ií]aca"]),
    ("Tengo alergia al polen / No tengo alergia al polen", [], ["polen"]),
    ("Tengo alergia al polen / No soy alérgico a nada", [], ["polen", "nada"]),
    ("Soy diabético / Al final no soy diabético", [], ["diab"]),
    ("Soy alérgica al látex / Era broma, no soy alérgica al látex", [], ["látex"]),
    ("Soy alérgica al látex / Era broma", [], ["látex"]),
    ("Vivo en Cuenca / Soy alérgica al látex / jaja era broma", ["home: .*Cuenca"], ["látex"]),
    ("Soy alérgica al látex y al níquel / Al níquel ya no", ["allergy:latex: "], ["níquel"]),
    ("Mi hija es alérgica al huevo / Mi hija ya no es alérgica al huevo", [], [": es alérgica"]),
    ("Mi madre tiene cáncer / Mi madre ya está curada", [], ["tiene cáncer"]),
    ("Mi madre tiene cáncer / Mi madre ha fallecido", [": .*ha fallecido"], ["tiene cáncer"]),
    ("I'm allergic to nuts / Actually I'm not allergic to nuts", [], ["nuts"]),
    ("I'm diabetic / I was wrong, I'm not diabetic", [], ["diab"]),
    ("I'm allergic to latex / Just kidding", [], ["latex"]),
    ("I'm allergic to latex / I'm not allergic to anything", [], ["latex", "anything"]),
    ("I'm vegan / I'm not vegan any more", [], ["vegan"]),
    ("Soy vegana / No soy vegana", [], ["vegana"]),
    ("Soy vegana / No soy vegana, soy vegetariana", ["diet: .*vegetariana"], ["vegana$"]),
    ("No como carne / Ya como carne otra vez", [], ["[Nn]o como carne"]),
    ("Tengo un perro, Toby / No tengo perro", [], ["Toby"]),
    ("Soy alérgica al látex / No soy enfermera", ["allergy:latex: "], ["enfermera"]),
    (
        "Soy alérgica al látex / No soy alérgica a los gatos",
        ["allergy:latex: "],
        ["^allergy.*gatos"],
    ),
    # in jest
    ("Soy alérgico a los lunes, jaja", [], ["lunes", "jaja"]),
    ("Soy alérgico a madrugar, ja ja ja", [], ["madrugar"]),
    ("Soy alérgica a las matemáticas 😂", [], ["matem"]),
    ("Me llamo Nadie, xd", [], ["Nadie"]),
    ("I'm allergic to Mondays lol", [], ["Mondays"]),
    ("Jaja gracias, soy alérgica al látex de verdad", ["allergy:latex: "], []),
    ("Me llamo Ana jaja, no Anna", ["name: .*Ana"], []),
    # moved
    ("Vivo en Madrid / Ya no vivo en Madrid, ahora estoy en Cuenca", ["home: .*Cuenca"], []),
    ("Ya no vivo en Madrid, ahora estoy en Cuenca", ["home: .*Cuenca"], ["^home: .*Madrid"]),
    ("Me mudé a Soria pero volví a León", ["home: .*León"], ["^home: [^,]*Soria$"]),
    (
        "Vivo en León / Nos mudamos a Cádiz la semana que viene",
        ["home: .*León"],
        ["^home: .*Cádiz"],
    ),
    ("Vivo en León / Me voy a vivir a Soria", ["Soria"], []),
    ("Estoy casada / Me he divorciado", ["marital: .*divorciado"], ["casada"]),
    ("Tengo un perro, Toby / Mi perro murió", [], ["Tengo un perro, Toby$"]),
    (
        "Soy de Buenos Aires pero vivo acá en Rosario, che",
        ["home: .*Rosario", "origin: .*Buenos Aires"],
        [],
    ),
    ("I live in Leeds / I moved to York but I'm back in Leeds", ["home: .*Leeds"], []),
    # called
    ("Me llamo como mi abuela", [], ["^name: "]),
    ("Me dicen Nacho", ["(?:nick)?name: .*Nacho"], []),
    ("Aquí Paco, de nuevo", ["name: .*Paco"], []),
    ("Buenas, Marisa al habla", ["name: .*Marisa"], []),
    ("Mi marido se llama Andrés", ["relative:husband.*Andrés"], ["^name: "]),
    ("A mi hijo le da alergia el huevo", ["relative:son.*alergia el huevo"], ["^allergy"]),
    ("Creo que soy intolerante a la lactosa", [], ["^(?:allergy|condition|diet)"]),
    ("No me gusta el café, prefiero el té", ["taste:.*café", "taste:.*té"], []),
    ("Cambiad mi email a nuevo@correo.example", ["mail: .*nuevo@correo.example"], ["mi email a$"]),
]


@pytest.mark.parametrize(("story", "holds", "never"), STORIES, ids=[s[0] for s in STORIES])
def test_what_stands_after_all_was_said(story, holds, never):
    """A denial takes back, a joke was never so, a move replaces, and the rest stands."""
    book = FactBook()
    for number, said in enumerate(story.split(" / ")):
        message = Message(2 * number + 1, "visitor", said, AT, 0)
        changes = derived([message], book.facts)
        book = book.apply(changes, source=("s", message.seq), at=AT)
    stand = [f"{fact.slot}: {fact.text}" for fact in book.facts]
    for words in holds:
        assert any(re.search(words, fact) for fact in stand), (words, stand)
    for words in never:
        assert not any(re.search(words, fact) for fact in stand), (words, stand)
