"""What an answer says, beside the question without which it says nothing.

The agent's words are no evidence: of a question only what it asks for is read, to
know which slot the visitor's answer fills. Only where the question names what it
asks ("still 5 High Street?") does a yes make it the visitor's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from interturn.actors.guard import TRIM, Guard
from interturn.actors.language import Language
from interturn.actors.private import MASK
from interturn.actors.rules import Ask, Tongue, flat
from interturn.actors.sentences import cut, sentences

_QUESTION: Final = 90  # characters
_ANSWER: Final = 120  # characters
_ANSWER_WORDS: Final = 14
_SHORTEST: Final = 2


class Answer(NamedTuple):
    """An answer: which sentence gave it, and the facts that it is, by slot."""

    place: int
    facts: tuple[tuple[str, str], ...]


def last_question(text: str, language: Language) -> str:
    """Return the last question of the agent's ``text``, or ``""``."""
    if "?" not in text:
        return ""
    for sentence in reversed(sentences(text, language)):
        if sentence.endswith("?"):
            begin = sentence.rfind("¿")
            return sentence[begin:] if begin > 0 else sentence
    return ""


def answer(
    question: str, said: Sequence[str], plains: Sequence[str], tongues: Sequence[Tongue]
) -> tuple[Ask, Answer] | None:
    """Return what was asked and how the first of the sentences ``said`` answers it, if it does.

    Where the first only says yes or no and another follows, that one answers.
    """
    if not said or len(plains[0].split()) > _ANSWER_WORDS:
        return None
    plain_question = flat(question)
    for tongue in tongues:
        for ask in tongue.asks:
            if ask.ask.search(plain_question):
                answered = _answered(ask, question, tongue, said, plains, tongues)
                if answered:
                    return ask, answered
    return None


def _answered(
    ask: Ask,
    question: str,
    tongue: Tongue,
    said: Sequence[str],
    plains: Sequence[str],
    tongues: Sequence[Tongue],
) -> Answer | None:
    place = 0
    if len(plains) > 1 and not tongue.leads.sub("", plains[0]).strip(TRIM):
        place = 1
    sentence, plain = said[place], plains[place]
    rest = tongue.leads.sub("", plain)
    if plain.rstrip().endswith("?") or len(plain.split()) > _ANSWER_WORDS or MASK in sentence:
        return None
    asked = cut(question, _QUESTION)
    if tongue.assents.search(plain):
        if not _names_something(question) or not ask.answer.search(flat(question)):
            return None
        return Answer(place, ((ask.slot, f"{asked} — {sentence.strip(TRIM)}"),))
    found = ask.answer.search(rest)
    if not found or tongue.unknowing.search(rest):
        return None
    if Guard(sentence, plain, tongues).doubtful(len(plain)):
        return None
    if sum(map(str.isdigit, rest)) < ask.digits:
        return None
    told = sentence[len(plain) - len(rest) :].strip(TRIM)
    if ask.digits:
        told = found.group().strip(TRIM)
    if not ask.subslot:
        return Answer(place, ((ask.slot, f"{asked} — {cut(told, _ANSWER)}"),))
    items = (
        (tongue.articles.sub("", flat(item).lower()).strip(TRIM), item)
        for item in tongue.both.split(told)
    )
    return Answer(
        place,
        tuple(
            (f"{ask.slot}:{bare}", f"{asked} — {item}")
            for bare, item in items
            if len(bare) > _SHORTEST
        ),
    )


def _names_something(question: str) -> bool:
    """Return whether a question names something that can be said yes to: a number, a name."""
    return any(any(map(str.isdigit, word)) or word[:1].isupper() for word in question.split()[1:])
