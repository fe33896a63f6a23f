"""Which of the visitor's sentences are worth keeping for months.

A statement is kept in the visitor's own words when it says something of their own
and something that can't be guessed back. How telling a sentence is, is read as the
summary reads it (`interturn.actors.telling`); here it counts besides who it is
about. What speaks of the other ("you did great") or only thanks loses; a question, a
hypothesis and what only makes sense in the moment give nothing. Of one message the
telling sentences are kept together, since they explain each other.

It is extraction by sentence weight, as in Luhn, "The automatic creation of literature
abstracts", 1958, with cue words as in Edmundson, "New methods in automatic
extracting", 1969.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from interturn.actors.excerpt import trimmed
from interturn.actors.language import (
    ASKED,
    ASSENT,
    IDENTITY,
    PERSONAL,
    REPLACEMENT,
    TROUBLE,
    VITAL,
    Language,
    detect,
    library,
)
from interturn.actors.message import Message
from interturn.actors.sentences import QUESTION_MARKS, clauses, cut, parts, sentences
from interturn.actors.telling import Reading, read
from interturn.actors.terms import UNTOLD, entries, recalling
from interturn.actors.words import WORD, fold

STATEMENT_CHARACTERS: Final = 300
"""The longest statement: what a person would say in one breath."""

_HEARD: Final = 4_000  # characters of a message: what is pasted is no statement
_QUESTION_CHARACTERS: Final = 90
_WHOLE: Final = 0.9  # what all telling sentences of a message must weigh together
_EACH: Final = 0.26  # and what each of them must

# Found by trying on real conversations; only their signs and order matter much.
_MINE: Final = 0.6
_YOURS: Final = 0.5
_THANKS: Final = 0.5
_ANSWER: Final = 1.0
_VAGUE_TERMS: Final = 2  # "I have a problem"
_TELLING: Final = 1.8
_TOLD: Final = 0.5  # of what a sentence carries, in facts


class _Voice(NamedTuple):
    """What a language says of who is spoken of, and of what isn't meant to last.

    Attributes:
        mine: words for the speaker.
        my_endings: endings that say as much.
        yours: words for the one spoken to.
        theirs: words for who or what was spoken of before.
        doubts: phrases of what may not be so.
        thanks: phrases of what is said for manners.
        asks: how questions begin that are typed without their mark.
    """

    mine: frozenset[str]
    my_endings: tuple[str, ...]
    yours: frozenset[str]
    theirs: frozenset[str]
    doubts: tuple[str, ...]
    thanks: tuple[str, ...]
    asks: tuple[str, ...]


class _Sentence(NamedTuple):
    text: str
    reading: Reading
    weight: float
    vouches: bool  # it is about who says it, or what they spoke of, or answers a question


def statements(turn: Sequence[Message], *, told: Sequence[str] = ()) -> list[str]:
    """Return what the visitor says in ``turn`` that is worth keeping, in their own words.

    At most one statement for each message of theirs, of at most
    `STATEMENT_CHARACTERS` characters; most small talk gives none. An agent's message
    before the visitor's is no evidence, but a short answer is kept with the question
    it answers. The work is bounded whatever the length of the messages.

    Args:
        turn: messages in the order they were said. What must never be remembered is
            masked before.
        told: facts known of this turn already. A sentence that says little more isn't
            told again, nor one that says what a fact replaced ("I no longer live in …").
    """
    kept: list[str] = []
    known = frozenset(word for text in told for word in WORD.findall(fold(text)))
    question = ""
    for message in turn:
        if message.role == "agent":
            question = _question(message.text)
            continue
        text = _statement(message.text[:_HEARD], question, known)
        question = ""
        if text:
            kept.append(text)
    return kept


def _question(text: str) -> str:
    """Return the question about the visitor with which an agent's message ends, or ``""``."""
    tail = text[-_HEARD:]
    language = detect(tail)
    said = sentences(tail, language)
    if not said or not said[-1].endswith(QUESTION_MARKS):
        return ""
    reading = read(said[-1], language)
    voice = _voice(language.code)
    asks_them = reading.kinds & ASKED or _speaks(said[-1], voice.yours, language)
    return said[-1] if asks_them else ""


def _statement(text: str, question: str, known: frozenset[str]) -> str:
    language = detect(text, detect(question) if question else None)
    weighed = _weighed(text, question, language)
    telling = [said for said in weighed if said.weight >= _EACH and not _is_told(said, known)]
    if not any(said.vouches for said in telling) or _weight_of(telling) < _WHOLE:
        return ""
    glue = " " if language.spaced else ""
    while len(telling) > 1 and _length(telling) > STATEMENT_CHARACTERS:
        telling.remove(min(telling, key=lambda said: said.weight))
    return cut(glue.join(said.text for said in telling), STATEMENT_CHARACTERS)


def _is_told(said: _Sentence, known: frozenset[str]) -> bool:
    """Return whether other facts hold most of a sentence, or replace what it denies."""
    shared = sum(term in known for term in said.reading.terms)
    if said.reading.kinds & REPLACEMENT and shared:
        return True
    return shared > _TOLD * len(said.reading.terms)


def _weight_of(telling: Sequence[_Sentence]) -> float:
    return sum(said.weight for said in telling)


def _length(telling: Sequence[_Sentence]) -> int:
    return sum(len(said.text) + 1 for said in telling)


def _weighed(text: str, question: str, language: Language) -> Iterator[_Sentence]:
    """Yield the sentences of a message that aren't questions, with what they weigh."""
    voice = _voice(language.code)
    for is_code, part in parts(text):
        if is_code:
            continue
        for sentence in sentences(part, language):
            if _asks(sentence, voice):
                question = ""
                continue
            shown, reading = trimmed(sentence, language, "visitor")
            weight, vouches = _weight(shown, reading, voice, language)
            if question and reading.terms:
                if reading.leans and weight > 0:
                    shown = f"{cut(question, _QUESTION_CHARACTERS)} — {shown}"
                    weight += _ANSWER
                    vouches = True
                question = ""
            elif reading.leans and not reading.keys and not reading.kinds & ASSENT:
                continue
            yield _Sentence(shown, reading, weight, vouches)


def _weight(
    sentence: str, reading: Reading, voice: _Voice, language: Language
) -> tuple[float, bool]:
    """Return what ``sentence`` weighs as a lasting statement, and if it is the speaker's own."""
    weight = reading.weight
    # A doubt that follows a statement ("…, so I might") doesn't touch it.
    opening = _spoken(clauses(sentence)[0], language)
    if any(doubt in opening for doubt in voice.doubts):
        return 0.0, False
    if reading.kinds & TROUBLE and len(reading.terms) <= _VAGUE_TERMS and not reading.kinds & VITAL:
        return 0.0, False
    yours = _speaks(sentence, voice.yours, language)
    mine = (
        bool(reading.kinds & (PERSONAL | IDENTITY | VITAL) and not yours)
        or _speaks(sentence, voice.mine, language)
        or any(word.endswith(voice.my_endings) for word in WORD.findall(sentence.lower()))
    )
    if mine != yours:
        weight += _MINE if mine else -_YOURS
    spoken = _spoken(sentence, language)
    if any(thanks in spoken for thanks in voice.thanks):
        weight -= _THANKS
    # In a language without words to go by, what it carries has to vouch for it.
    own = mine or _speaks(sentence, voice.theirs, language)
    return weight, own or (not language.code and weight >= _TELLING)


def _spoken(text: str, language: Language) -> str:
    """Return ``text`` folded, its words between single spaces, to seek phrases in."""
    plain = fold(text)
    return f" {' '.join(WORD.findall(plain))} " if language.spaced else plain


def _asks(sentence: str, voice: _Voice) -> bool:
    """Return whether ``sentence`` is a question, as many are typed without their mark."""
    if sentence.endswith(QUESTION_MARKS) or sentence.startswith("¿"):
        return True
    return sentence.lower().startswith(voice.asks)


def _speaks(sentence: str, of: frozenset[str], language: Language) -> bool:
    plain = fold(sentence)
    if language.spaced:
        return not of.isdisjoint(WORD.findall(plain))
    return any(word in plain for word in of)


@functools.cache
def _voice(code: str) -> _Voice:
    """Return a language's voice; of a text that gives none away, the likeliest ones'."""
    shelf = recalling()
    listed = [shelf[known] for known in ((code,) if code else UNTOLD) if known in shelf]
    language = library().by_code.get(code)
    around = " " if language is None or language.spaced else ""

    def said(field: str) -> list[str]:
        return [entry for data in listed for entry in entries(data.get(field))]

    mine = said("mine")
    return _Voice(
        frozenset(word for word in mine if not word.startswith("*")),
        tuple(word[1:] for word in mine if word.startswith("*")),
        frozenset(said("yours")),
        frozenset(said("theirs")),
        tuple(f"{around}{phrase}{around}" for phrase in said("doubts")),
        tuple(f"{around}{phrase}{around}" for phrase in said("thanks")),
        tuple(f"{phrase} " for phrase in said("asks")),
    )
