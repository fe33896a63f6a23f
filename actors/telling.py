"""How telling a sentence is: what it would cost to forget it.

A sentence is read once, word by word, against its language's lists. What counts
is what can't be guessed back: numbers, names, dates, what was decided, asked,
denied, replaced or complained of, who somebody is, and what could harm them.
Greetings and fillers count nothing, however many. The same reading serves the
offline summarizer, which chooses sentences by it, and the summary, which at its
cap lets go of the line that tells least.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from interturn.actors.language import (
    ASSENT,
    CAPITAL,
    COURTESY,
    DATE,
    DECISION,
    ENDLESS,
    GRAMMAR,
    IDENTITY,
    INTENT,
    KINDS,
    NEGATION,
    NUMBER,
    ODD,
    PERSONAL,
    REPLACEMENT,
    REQUEST,
    SHIFT,
    SILENT,
    TOPIC_BITS,
    TROUBLE,
    UNIT,
    VITAL,
    Heard,
    Language,
    detect,
    speaker_of,
)
from interturn.actors.sentences import QUESTION_MARKS
from interturn.actors.words import STRONG, fingerprint

# What each kind of word adds, once a sentence. Found by reading what stayed and
# what went in real conversations; only their order matters much.
_WORTH: Final = (
    (VITAL, 2.4),
    (IDENTITY, 1.4),
    (TROUBLE, 0.8),
    (DECISION, 0.8),
    (REPLACEMENT, 0.8),
    (REQUEST, 0.6),
    (PERSONAL, 0.6),
    (INTENT, 0.4),
    (SHIFT, 0.2),
    (NEGATION, 0.2),
)
_CODE: Final = 2.8  # an order number, a phone: nobody can guess it back
_FIGURE: Final = 0.8
_UNIT: Final = 0.2
_MOST_FIGURES: Final = 4.4
_NAME: Final = 1.0
_MORE_OF_A_NAME: Final = 0.3
_MOST_NAMES: Final = 2.7
_DATE: Final = 0.6
_MOST_DATES: Final = 1.5
_TERM: Final = 0.1
_MOST_TERMS: Final = 1.0
_UNKNOWN_TERM: Final = 0.16  # with no word lists, length has to speak for the rest
_QUESTION: Final = 0.55
AGENT_SHARE: Final = 0.6  # the conversation is about the visitor

_CODE_DIGITS: Final = 4
_DENIED: Final = fingerprint("not") | STRONG
_TOPIC_KEYS: Final = tuple(
    (bit, fingerprint(f"topic {place}")) for place, bit in enumerate(TOPIC_BITS)
)
_TOPICAL: Final = NEGATION | sum(TOPIC_BITS)
_MEASURED: Final = DATE | NUMBER | UNIT
_SPECIAL: Final = _MEASURED | IDENTITY | ODD | CAPITAL  # what may make a word more than plain
UNTOLD: Final = SILENT | ENDLESS
# Of a sentence: figures, dates, names, how many strong words, NUMBER if any is one.
_Tally = tuple[float, float, float, int, int]
_PLAIN: Final[_Tally] = (0.0, 0.0, 0.0, 0, 0)
_LEANING_TERMS: Final = 3
_LEANING_WORDS: Final = 7
_SELF_STANDING: Final = VITAL | IDENTITY | TROUBLE | DECISION | REQUEST | PERSONAL | REPLACEMENT
_HARD: Final = VITAL | TROUBLE | DECISION | REQUEST | REPLACEMENT
_LEAST_TERMS: Final = 3
_VAGUE: Final = 0.6  # "I'll do my best": nothing named, next to nothing said
_IDEOGRAPH: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_TITLED: Final = re.compile(r"《[^》]{1,40}》|「[^」]{1,40}」|“[^”]{1,40}”")
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_LATIN: Final = re.compile(r"[A-Za-z\d][\w.\-]*")


class Reading(NamedTuple):
    """What a sentence carries.

    Attributes:
        weight: how telling it is; 0 for greetings and fillers.
        keys: its content, in order, as 16-bit fingerprints of word stems; odd
            ones are strong: numbers, names, dates, a denial.
        kinds: the kinds of word in it.
        terms: its content words, folded.
        leans: it is so short that it makes sense only after the question before it.
    """

    weight: float
    keys: tuple[int, ...]
    kinds: int
    terms: tuple[str, ...]
    leans: bool


NOTHING: Final = Reading(0.0, (), 0, (), leans=False)


def read(sentence: str, language: Language) -> Reading:
    """Return what ``sentence`` carries, read as ``language``."""
    if not language.spaced:
        return _read_unspaced(sentence, language)
    return weigh(sentence, language.hear(sentence), language)


def weigh(sentence: str, heard: Heard, language: Language) -> Reading:
    """Return what ``sentence`` carries, whose words are ``heard``."""
    words, marks, stems, every = heard
    kinds = every & KINDS
    if every & _SPECIAL:
        terms, keys, tally = _content(sentence, heard, language)
    else:
        # Many sentences have plain words only, and need no look at each.
        told = [place for place, mark in enumerate(marks) if not mark & UNTOLD]
        terms, keys = [words[place] for place in told], [stems[place] for place in told]
        tally = _PLAIN
    if not terms:
        return Reading(0.0, (), kinds, (), bool(kinds & ASSENT)) if words else NOTHING
    figures, dates, names, strong, numbered = tally
    kinds |= numbered
    plain = len(terms) - strong
    named = figures or dates or names
    weight = min(figures, _MOST_FIGURES) + min(dates, _MOST_DATES) if named else 0.0
    spoken_of = kinds & IDENTITY or (len(words) >= _LEAST_TERMS and not kinds & COURTESY)
    if plain or weight or spoken_of:
        weight += worth(kinds if named else kinds & ~IDENTITY) + min(names, _MOST_NAMES)
        weight += min(plain * (_TERM if language.code else _UNKNOWN_TERM), _MOST_TERMS)
    else:
        # Only a name: somebody was addressed.
        weight = names / 4
    if sentence.endswith(QUESTION_MARKS):
        weight *= _QUESTION
    if not named and plain < _LEAST_TERMS and not kinds & _HARD:
        weight *= _VAGUE
    leans = (
        len(terms) <= _LEANING_TERMS and len(words) <= _LEANING_WORDS and not kinds & _SELF_STANDING
    )
    if kinds & _TOPICAL:
        _add_topics(keys, kinds)
    return Reading(weight, tuple(keys), kinds, tuple(terms), leans)


def _content(
    sentence: str, heard: Heard, language: Language
) -> tuple[list[str], list[int], _Tally]:
    """Return the content words of a sentence that has more than plain ones, and their keys."""
    words, marks, stems, every = heard
    capital = CAPITAL if language.capitals_name and not sentence.isupper() else 0
    addressed = _addressed(sentence, words, marks) if every & capital else -1
    introduced = _introduced(marks) if every & IDENTITY else ()
    terms: list[str] = []
    keys: list[int] = []
    special: list[tuple[int, int, bool, bool]] = []
    last_name = -2
    for place, mark in enumerate(marks):
        if mark & UNTOLD:
            continue
        if mark & _SPECIAL or introduced:
            named = bool(mark & capital and place)
            if named and place == addressed and terms:
                continue
            named = named or place in introduced
            if named or mark & (_MEASURED | ODD):
                special.append((len(terms), mark, named, last_name == place - 1))
                last_name = place if named else last_name
        terms.append(words[place])
        keys.append(stems[place])
    return terms, keys, _tally(terms, keys, special) if special else _PLAIN


def _introduced(marks: Sequence[int]) -> set[int]:
    """Return the places of names without a capital: whoever types none says "my name is"."""
    places: set[int] = set()
    introduced = False
    for place, mark in enumerate(marks):
        if introduced and not mark & SILENT:
            introduced = False
            if not mark & (KINDS | ENDLESS):
                places.add(place)
        introduced = introduced or bool(mark & IDENTITY)
    return places


def _addressed(sentence: str, words: Sequence[str], marks: Sequence[int]) -> int:
    """Return the place of a name that only addresses somebody ("Not at all, Ana."), or -1."""
    if len(words) == 1 or not marks[-1:] or not marks[-1] & CAPITAL:
        return -1
    comma = sentence.rfind(", ")
    if comma < 0 or " " in sentence[comma + 2 :]:
        return -1
    # After another name or a number it goes on with it: a town after its street. (The
    # first word's capital says nothing.)
    goes_on = marks[-2] & CAPITAL and len(words) > 2  # noqa: PLR2004
    return -1 if goes_on or words[-2][-1:].isdigit() else len(words) - 1


def _tally(
    terms: list[str], keys: list[int], special: Iterable[tuple[int, int, bool, bool]]
) -> _Tally:
    """Count the words that may be more than plain, and mark the keys of those that are."""
    figures = dates = names = 0.0
    strong = numbered = 0
    for at, mark, named, goes_on in special:
        word = terms[at]
        digits = 0 if word.isalpha() else sum(map(str.isdigit, word))
        if digits:
            # "x2" and "7710-22" are codes like "48213"; "17:00" and "2.5" are figures.
            mixed = digits < len(word) and not word.replace(":", "").replace(".", "").isdigit()
            coded = mixed or (digits >= _CODE_DIGITS and not _YEAR.fullmatch(word))
            figures += _CODE if coded else _FIGURE
            numbered = NUMBER
            keys[at] = fingerprint(word)
        elif "@" in word:
            figures += _CODE
        elif mark & DATE:
            dates += _DATE
        elif mark & NUMBER:
            figures += _FIGURE / 2
        elif named:
            names += _MORE_OF_A_NAME if goes_on else _NAME
        else:
            figures += _UNIT if mark & UNIT else 0
            continue
        strong += 1
        keys[at] |= STRONG
    return figures, dates, names, strong, numbered


def _add_topics(keys: list[int], kinds: int) -> None:
    if kinds & NEGATION:
        keys.append(_DENIED)
    keys.extend([key for bit, key in _TOPIC_KEYS if kinds & bit])


@functools.lru_cache(maxsize=1024)
def worth(kinds: int) -> float:
    """Return what the kinds of word in a sentence add to its weight."""
    return sum(value for kind, value in _WORTH if kinds & kind)


def _read_unspaced(sentence: str, language: Language) -> Reading:
    kinds = 0
    rest = sentence
    dates = 0
    for _, entry, kind in language.entries_in(sentence):
        if entry not in rest:
            continue
        kinds |= kind
        dates += kind == DATE
        if kind & (COURTESY | GRAMMAR):
            rest = rest.replace(entry, " ")
    signs = _IDEOGRAPH.findall(rest)
    latin = _LATIN.findall(rest)
    if not signs and not latin:
        return Reading(0.0, (), kinds, (), leans=bool(kinds & ASSENT))
    titles = _TITLED.findall(rest)
    figures = [word for word in latin if any(map(str.isdigit, word))]
    pairs = [one + two for one, two in pairwise(signs)]
    weight = worth(kinds) + min(_DATE * dates, _MOST_DATES) + min(len(titles) * _NAME, _MOST_NAMES)
    codes = sum(_CODE if len(word) >= _CODE_DIGITS else _FIGURE for word in figures)
    weight += min(codes, _MOST_FIGURES) + min(len(signs) * _TERM / 2, _MOST_TERMS)
    if sentence.endswith(QUESTION_MARKS):
        weight *= _QUESTION
    keys = [fingerprint(pair) for pair in pairs]
    keys += [fingerprint(word) | STRONG for word in latin]
    leans = len(signs) <= _LEANING_WORDS and not kinds & _SELF_STANDING
    _add_topics(keys, kinds)
    return Reading(weight, tuple(keys), kinds, (*latin, *pairs), leans)


def read_line(line: str) -> Reading:
    """Return what a line of a summary carries, whoever wrote it."""
    role, said, language = speaker_of(line)
    reading = read(said, detect(said, language))
    if role == "agent":
        return reading._replace(weight=reading.weight * AGENT_SHARE)
    return reading


_SAME: Final = 0.8


def same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two sentences say the same in nearly the same words.

    One number, name or denial that only one of them has makes them different;
    so does another order, where something is denied ("not A but B").
    """
    if one == other:
        return bool(one)
    shorter, longer = len(one), len(other)
    if shorter > longer:
        shorter, longer = longer, shorter
    if longer - shorter > (1 - _SAME) * longer:
        return False
    left, right = set(one), set(other)
    apart = left ^ right
    if not apart:
        return _DENIED not in left
    if _any_strong(apart):
        return False
    return len(left & right) >= _SAME * len(left | right)


def within(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether all that a sentence carries stands in another, denials included.

    Never of a single word: "the exchange" says more than that it is mentioned.
    """
    return (
        len(part) > 1
        and part[0] in whole
        and set(whole).issuperset(part)
        and (_DENIED in part) == (_DENIED in whole)
    )


_STRONGER_SHARE: Final = 0.5
_SUBJECT_SHARE: Final = 0.6
REPLACED: Final = 0.3
OUTDATED: Final = 0.6
_STANDS: Final = 1.0


def overruling(new: Reading, old: tuple[int, ...]) -> float:
    """Return what is left of an earlier sentence's weight once ``new`` is said.

    ``REPLACED`` where ``new`` says that something changed and shares with the
    earlier one its subject; ``OUTDATED`` where it says the same of the same
    subject with another number; else 1.
    """
    ours, theirs = set(new.keys), set(old)
    shared = ours & theirs
    shared.discard(_DENIED)
    changes = new.kinds & (REPLACEMENT | SHIFT)
    if not shared or not (changes or len(shared) > 1) or ours == theirs:
        return _STANDS
    smaller = min(_plain_keys(ours), _plain_keys(theirs)) or 1
    plain = _plain_keys(shared)
    if new.kinds & REPLACEMENT and (
        plain < len(shared)
        or plain > 1
        or plain / smaller >= _STRONGER_SHARE
        or any(key in shared for _, key in _TOPIC_KEYS)
    ):
        return REPLACED
    if new.kinds & SHIFT and plain / smaller >= _STRONGER_SHARE:
        return REPLACED
    if len(shared) > 1 and plain / smaller >= _SUBJECT_SHARE:
        return OUTDATED if _any_strong(ours - shared) and _any_strong(theirs - shared) else _STANDS
    return _STANDS


def _plain_keys(keys: Iterable[int]) -> int:
    return sum([not key & STRONG for key in keys])


def _any_strong(keys: Iterable[int]) -> bool:
    return any([key & STRONG for key in keys])  # noqa: C419 - sets of a few, quicker so
