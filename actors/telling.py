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
import operator
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

from interturn.actors.language import (
    ASSENT,
    COURTESY,
    DATE,
    DECISION,
    GRAMMAR,
    IDENTITY,
    INTENT,
    NEGATION,
    NUMBER,
    PERSONAL,
    REPLACEMENT,
    REQUEST,
    SHIFT,
    SILENT,
    TOPIC_BITS,
    TROUBLE,
    UNIT,
    VITAL,
    WORD,
    Language,
    detect,
    fold,
    speaker_of,
)
from interturn.actors.sentences import QUESTION_MARKS

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
_STEM: Final = 6
_KEY_SPACE: Final = 0xFFFE
_STRONG: Final = 1
_DENIED: Final = (crc32(b"not") & _KEY_SPACE) | _STRONG
_TOPIC_KEYS: Final = tuple(
    (bit, crc32(b"topic %d" % place) & _KEY_SPACE) for place, bit in enumerate(TOPIC_BITS)
)
_MEASURED: Final = DATE | NUMBER | UNIT
_LEANING_TERMS: Final = 3
_LEANING_WORDS: Final = 7
_SELF_STANDING: Final = VITAL | IDENTITY | TROUBLE | DECISION | REQUEST | PERSONAL | REPLACEMENT
_HARD: Final = VITAL | TROUBLE | DECISION | REQUEST | REPLACEMENT
_LEAST_TERMS: Final = 3
_VAGUE: Final = 0.6  # "I'll do my best": nothing named, next to nothing said
_LONGEST_WORD: Final = 40  # longer is a token, a hash, a pasted blob
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
    written = WORD.findall(sentence)
    if not written:
        return NOTHING
    words = fold(" ".join(written)).split(" ")
    marks = language.marks(words)
    kinds = functools.reduce(operator.or_, marks)
    places = [
        place
        for place, mark in enumerate(marks)
        if not mark & SILENT and len(words[place]) <= _LONGEST_WORD
    ]
    if not places:
        return Reading(0.0, (), kinds, (), leans=bool(kinds & ASSENT))
    named = _named(sentence, written, marks, places, language)
    terms = [words[place] for place in places]
    tally = _Tally([crc32(term[:_STEM].encode("utf-8", "replace")) & _KEY_SPACE for term in terms])
    for at, place in enumerate(places):
        term, mark = terms[at], marks[place]
        if place in named or mark & _MEASURED or not term.isalpha():
            tally.take(at, term, mark, named=place in named, goes_on=place - 1 in named)
    return tally.reading(sentence, kinds, terms, len(words), language)


def _named(
    sentence: str, written: list[str], marks: list[int], places: list[int], language: Language
) -> set[int]:
    """Return the places of names; the name of who is only spoken to leaves ``places``."""
    named: set[int] = set()
    if language.capitals_name and not sentence.isupper():
        named = {place for place in places if place and written[place][0].isupper()}
        addressed = _addressed(sentence, written)
        if addressed in named and len(places) > 1:
            named.discard(addressed)
            places.remove(addressed)
    introduced = False
    for place, mark in enumerate(marks):
        # Whoever types no capitals still says "my name is".
        if introduced and not mark & SILENT:
            introduced = False
            if not mark and place in places:
                named.add(place)
        introduced = introduced or bool(mark & IDENTITY)
    return named


def _addressed(sentence: str, written: list[str]) -> int:
    """Return the place of a name that only addresses somebody ("Not at all, Ana."), or -1."""
    comma = sentence.rfind(", ")
    if comma < 0 or len(written) == 1 or " " in sentence[comma + 2 :]:
        return -1
    # The first word's capital says nothing.
    before = written[-2] if len(written) > 2 else written[0].lower()  # noqa: PLR2004
    # After another name or a number it goes on with it: a town after its street.
    return -1 if before[0].isupper() or before[-1].isdigit() else len(written) - 1


class _Tally:
    """The running account of one sentence: its keys, and what is numbered, dated, named."""

    __slots__ = ("dates", "figures", "keys", "names", "numbered", "plain")

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys
        self.plain = len(keys)
        self.figures = self.names = self.dates = 0.0
        self.numbered = 0

    def take(self, at: int, word: str, mark: int, *, named: bool, goes_on: bool) -> None:
        """Count a word that may be more than plain."""
        if not word.isalpha() and (digits := sum(map(str.isdigit, word))):
            # "x2" and "7710-22" are codes like "48213"; "17:00" and "2.5" are figures.
            mixed = digits < len(word) and not word.replace(":", "").replace(".", "").isdigit()
            coded = mixed or (digits >= _CODE_DIGITS and not _YEAR.fullmatch(word))
            self.figures += _CODE if coded else _FIGURE
            self.numbered = NUMBER
            self.keys[at] = crc32(word.encode("utf-8", "replace")) & _KEY_SPACE
        elif "@" in word:
            self.figures += _CODE
        elif mark & DATE:
            self.dates += _DATE
        elif mark & NUMBER:
            self.figures += _FIGURE / 2
        elif named:
            self.names += _MORE_OF_A_NAME if goes_on else _NAME
        else:
            self.figures += _UNIT if mark & UNIT else 0
            return
        self.plain -= 1
        self.keys[at] |= _STRONG

    def reading(
        self, sentence: str, kinds: int, terms: list[str], words: int, language: Language
    ) -> Reading:
        """Close the account."""
        kinds |= self.numbered
        term = _TERM if language.code else _UNKNOWN_TERM
        weight = min(self.figures, _MOST_FIGURES) + min(self.dates, _MOST_DATES)
        named = weight or self.names
        spoken_of = kinds & IDENTITY or (words >= _LEAST_TERMS and not kinds & COURTESY)
        if self.plain or weight or spoken_of:
            weight += worth(kinds if named else kinds & ~IDENTITY) + min(self.names, _MOST_NAMES)
            weight += min(self.plain * term, _MOST_TERMS)
        else:
            # Only a name: somebody was addressed.
            weight = self.names / 4
        if sentence.endswith(QUESTION_MARKS):
            weight *= _QUESTION
        if not named and self.plain < _LEAST_TERMS and not kinds & _HARD:
            weight *= _VAGUE
        leans = (
            len(terms) <= _LEANING_TERMS and words <= _LEANING_WORDS and not kinds & _SELF_STANDING
        )
        return Reading(weight, _with_topics(self.keys, kinds), kinds, tuple(terms), leans)


def _with_topics(keys: list[int], kinds: int) -> tuple[int, ...]:
    if kinds & NEGATION:
        keys.append(_DENIED)
    for bit, key in _TOPIC_KEYS:
        if kinds & bit:
            keys.append(key)
    return tuple(keys)


@functools.lru_cache(maxsize=1024)
def worth(kinds: int) -> float:
    """Return what the kinds of word in a sentence add to its weight."""
    return sum(value for kind, value in _WORTH if kinds & kind)


def _read_unspaced(sentence: str, language: Language) -> Reading:
    kinds = 0
    rest = sentence
    dates = 0
    for entry, kind in language.entries:
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
    keys = [crc32(pair.encode("utf-8", "replace")) & _KEY_SPACE for pair in pairs]
    keys += [crc32(word.encode("utf-8", "replace")) & _KEY_SPACE | _STRONG for word in latin]
    leans = len(signs) <= _LEANING_WORDS and not kinds & _SELF_STANDING
    return Reading(weight, _with_topics(keys, kinds), kinds, (*latin, *pairs), leans)


def read_line(line: str) -> Reading:
    """Return what a line of a summary carries, whoever wrote it."""
    role, said, language = speaker_of(line)
    reading = read(said, detect(said, language))
    if role == "agent":
        return reading._replace(weight=reading.weight * AGENT_SHARE)
    return reading


def strong(keys: Iterable[int]) -> frozenset[int]:
    """Return the keys of numbers, names, dates and denials."""
    return frozenset(key for key in keys if key & _STRONG)


_SAME: Final = 0.8


def same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two sentences say the same in nearly the same words.

    One number, name or denial that only one of them has makes them different;
    so does another order, where something is denied ("not A but B").
    """
    if one == other:
        return bool(one)
    if abs(len(one) - len(other)) > (1 - _SAME) * max(len(one), len(other)):
        return False
    left, right = set(one), set(other)
    apart = left ^ right
    if not apart:
        return _DENIED not in left
    if any(key & _STRONG for key in apart):
        return False
    return len(left & right) >= _SAME * len(left | right)


def within(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether all that a sentence carries stands in another, denials included.

    Never of a single word: "the exchange" says more than that it is mentioned.
    """
    there = set(whole)
    return len(part) > 1 and (_DENIED in part) == (_DENIED in there) and there.issuperset(part)


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
    ours, theirs = frozenset(new.keys), frozenset(old)
    shared = ours & theirs
    shared -= {_DENIED}
    if not shared or ours == theirs:
        return _STANDS
    smaller = min(_plain_keys(ours), _plain_keys(theirs)) or 1
    plain = _plain_keys(shared)
    if new.kinds & REPLACEMENT and (
        any(key & _STRONG for key in shared)
        or plain > 1
        or plain / smaller >= _STRONGER_SHARE
        or any(key in shared for _, key in _TOPIC_KEYS)
    ):
        return REPLACED
    if new.kinds & SHIFT and plain / smaller >= _STRONGER_SHARE:
        return REPLACED
    left, right = strong(ours - shared), strong(theirs - shared)
    if left and right and plain / smaller >= _SUBJECT_SHARE and len(shared) > 1:
        return OUTDATED
    return _STANDS


def _plain_keys(keys: Iterable[int]) -> int:
    return sum(not key & _STRONG for key in keys)
