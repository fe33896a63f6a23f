"""What of a sentence is shown: without its courtesies, cut to what tells most.

The words that are shown are the speaker's own, in their order; only whole
clauses go, and where the cut is within what was meant, ``…`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interturn.actors.language import ASSENT, COURTESY, GRAMMAR, TROUBLE, WORD, Language, fold
from interturn.actors.message import Role
from interturn.actors.sentences import ELLIPSIS, clauses, cut
from interturn.actors.telling import Reading, read

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
_TAIL: Final = 3  # one part in three is kept for the end of what is too long


def trimmed(sentence: str, language: Language, role: Role) -> tuple[str, Reading]:
    """Return what of ``sentence`` is shown, and what that carries.

    Greetings before it and thanks after it go; of a very long one the clauses
    that tell most stay, with ``…`` where something was left out.
    """
    reading = read(sentence, language)
    if reading.weight and reading.kinds & COURTESY:
        shorter = _without_courtesy(sentence, language, role)
        if shorter != sentence:
            sentence, reading = shorter, read(shorter, language)
    if len(sentence) > _MOST_UNSPACED and reading.weight >= _WORTH_A_CUT:
        sentence = _clipped(sentence, language)
    return sentence, reading


def _without_courtesy(sentence: str, language: Language, role: Role) -> str:
    """Return the sentence without greetings before it and thanks after it."""
    pieces = clauses(sentence)
    while len(pieces) > 1 and _greets(pieces[0], language, role):
        del pieces[0]
    end = sentence[-1] if sentence[-1] in ".!?。！？" else ""  # noqa: RUF001
    while len(pieces) > 1 and _greets(pieces[-1], language, role):
        del pieces[-1]
        pieces[-1] = pieces[-1].rstrip(" ,;:，、；：") + end  # noqa: RUF001
    return "".join(pieces)


def _greets(clause: str, language: Language, role: Role) -> bool:
    if not language.spaced:
        return language.only_greets(clause)
    marks = language.marks(WORD.findall(fold(clause)))
    if not marks or not any(mark & COURTESY for mark in marks):
        return False
    others = sum(not mark & (COURTESY | GRAMMAR) for mark in marks)
    if not others:
        # A visitor's bare "yes" may answer; an agent's, or one with a name, joins in.
        return role == "agent" or not marks[0] & ASSENT
    return others <= _VOCATIVE_WORDS and _addresses(clause, marks)


def _addresses(clause: str, marks: list[int]) -> bool:
    """Return whether all that a greeting adds is whom it greets ("Hola Lucía,")."""
    words = WORD.findall(clause)
    return bool(marks[0] & COURTESY) and all(
        mark & (COURTESY | GRAMMAR) or word[0].isupper()
        for word, mark in zip(words, marks, strict=False)
    )


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
