"""What of a sentence is shown: without its courtesies, cut to what tells most.

The words that are shown are the speaker's own, in their order; only whole
clauses go, and where the cut is within what was meant, ``…`` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from interturn.actors.language import (
    ASSENT,
    CAPITAL,
    COURTESY,
    GRAMMAR,
    TROUBLE,
    Heard,
    Language,
    Word,
)
from interturn.actors.message import Role
from interturn.actors.sentences import ELLIPSIS, clauses, cut
from interturn.actors.telling import NOTHING, UNTOLD, Reading, read, weigh

MOST_CODE_LINES: Final = 60  # looked at in one pasted block
_MOST_WORDS: Final = 44
_KEPT_WORDS: Final = 32
_MOST_UNSPACED: Final = 120
_KEPT_UNSPACED: Final = 80
_SPACED_CHARACTERS: Final = 6  # of a word and its space, about
_CODE_CHARACTERS: Final = 120
_CODE_SHARE: Final = 0.7
_MOST_CODE_WEIGHT: Final = 2.5
_VOCATIVE_WORDS: Final = 2
_WORTH_A_CUT: Final = 0.5
_NO_WORD: Final = re.compile(r"(?<!\S)[^\w\s]+(?!\S)")
_TAIL: Final = 3  # one part in three is kept for the end of what is too long


def trimmed(
    sentence: str,
    language: Language,
    role: Role,
    may_tell: Callable[[str, int], bool] | None = None,
) -> tuple[str, Reading]:
    """Return what of ``sentence`` is shown, and what that carries.

    Greetings before it and thanks after it go; of a very long one the clauses
    that tell most stay, with ``…`` where something was left out.
    """
    if language.spaced:
        words = language.words(sentence)
        heard = language.heard(words)
        if may_tell is not None and not may_tell(sentence, heard[-1]):
            return sentence, NOTHING
        if heard[-1] & COURTESY and not all(mark & UNTOLD for mark in heard[1]):
            sentence, heard = _uncourteous(sentence, words, heard, language, role)
        reading = weigh(sentence, heard, language)
    else:
        reading = read(sentence, language)
        if reading.weight and reading.kinds & COURTESY:
            pieces = clauses(sentence)
            first, last = _telling(len(pieces), lambda one: language.only_greets(pieces[one]))
            if last - first < len(pieces):
                sentence = _joined(pieces, first, last)
                reading = read(sentence, language)
    if len(sentence) > _MOST_UNSPACED and reading.weight >= _WORTH_A_CUT:
        sentence = _clipped(sentence, language)
    return sentence, reading


def _uncourteous(
    sentence: str, words: list[Word], heard: Heard, language: Language, role: Role
) -> tuple[str, Heard]:
    """Return the sentence without greetings before it and thanks after it, and its words."""
    pieces = clauses(sentence)
    sizes = [piece.count(" ") for piece in pieces]
    # As a rule every clause ends with a blank and between blanks stands one word, so it has
    # as many words as blanks, the last one more. Where not, each has to be read for itself.
    regular = (
        sum(sizes) + 1 == len(words)
        and all(piece[-1] == " " for piece in pieces[:-1])
        and not _NO_WORD.search(sentence)
    )
    ends = [*accumulate(sizes, initial=0)]
    ends[-1] += 1

    def greets(place: int) -> bool:
        if not regular:
            return _greets(language.hear(pieces[place]), role)
        begin, end = ends[place], ends[place + 1]
        # The marks within the whole show most clauses not to greet.
        if not any([mark & COURTESY for mark in heard[1][begin:end]]):  # noqa: C419 - short
            return False
        return _greets(language.heard(words[begin:end]), role)

    first, last = _telling(len(pieces), greets)
    if last - first == len(pieces):
        return sentence, heard
    shorter = _joined(pieces, first, last)
    return shorter, language.heard(
        words[ends[first] : ends[last]] if regular else language.words(shorter)
    )


def _telling(clauses: int, greets: Callable[[int], bool]) -> tuple[int, int]:
    """Return where the clauses that do more than greet begin and end; one always stays."""
    first, last = 0, clauses
    while last - first > 1 and greets(first):
        first += 1
    while last - first > 1 and greets(last - 1):
        last -= 1
    return first, last


def _joined(pieces: list[str], first: int, last: int) -> str:
    *before, closing = pieces[first:last]
    if last < len(pieces):
        end = pieces[-1][-1]
        closing = closing.rstrip(" ,;:，、；：") + (end if end in ".!?。！？" else "")  # noqa: RUF001
    return "".join(before) + closing


def _greets(heard: Heard, role: Role) -> bool:
    _, marks, _, kinds = heard
    if not kinds & COURTESY:
        return False
    others = 0
    for mark in marks:
        if not mark & (COURTESY | GRAMMAR):
            others += 1
            # All that a greeting may add is whom it greets ("Hola Lucía,").
            if others > _VOCATIVE_WORDS or not mark & CAPITAL or not marks[0] & COURTESY:
                return False
    # A visitor's bare "yes" may answer; an agent's, or one with a name, joins in.
    return others > 0 or role == "agent" or not marks[0] & ASSENT


def _clipped(sentence: str, language: Language) -> str:
    """Return a long sentence cut down to the clauses that tell most, with ``…``."""
    most, kept = (_MOST_WORDS, _KEPT_WORDS) if language.spaced else (_MOST_UNSPACED, _KEPT_UNSPACED)
    if _length(sentence, language) <= most and len(sentence) <= most * _SPACED_CHARACTERS * 2:
        return sentence
    pieces = clauses(sentence)
    weights = [read(piece, language).weight for piece in pieces]
    lengths = [_length(piece, language) for piece in pieces]
    first = last = max(range(len(pieces)), key=lambda place: (weights[place], -place))
    size = lengths[first]
    while True:
        ways = [place for place in (first - 1, last + 1) if 0 <= place < len(pieces)]
        ways = [place for place in ways if size + lengths[place] <= kept]
        if not ways:
            break
        best = max(ways, key=lambda place: (weights[place], -place))
        size += lengths[best]
        first, last = min(first, best), max(last, best)
    text = "".join(pieces[first : last + 1]).strip(" ,;:–—，、；：")  # noqa: RUF001
    text = cut(text, kept * (_SPACED_CHARACTERS if language.spaced else 1) * 3 // 2)
    front = ELLIPSIS if first else ""
    back = ELLIPSIS if last + 1 < len(pieces) and not text.endswith(ELLIPSIS) else ""
    return front + text + back


def _length(text: str, language: Language) -> int:
    return text.count(" ") + 1 if language.spaced else len(text)


def code_line(block: str, language: Language) -> Iterator[tuple[str, Reading]]:
    """Yield the one line of a pasted block that tells most, if any does."""
    lines = [" ".join(line[:400].split()) for line in block.split("\n")]
    lines = [line for line in lines if line]
    if len(lines) > MOST_CODE_LINES:
        tail = MOST_CODE_LINES // _TAIL
        lines = lines[: MOST_CODE_LINES - tail] + lines[-tail:]
    best: tuple[str, Reading] | None = None
    for line in lines:
        reading = read(line, language)
        if not reading.kinds & TROUBLE and not any(map(str.isdigit, line)):
            continue
        if best is None or reading.weight > best[1].weight:
            best = line, reading
    if best is not None:
        line, reading = best
        weight = min(reading.weight * _CODE_SHARE, _MOST_CODE_WEIGHT)
        shown = cut(line.replace("`", "'"), _CODE_CHARACTERS)
        yield f"`{shown}`", reading._replace(weight=weight, leans=False)
