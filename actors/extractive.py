"""The offline summarizer: it keeps people's own sentences, those that tell most.

Nothing is written anew, so nothing can be invented and the text stays in the
language it was said in. Each message is parted into sentences, each sentence is
read once (`interturn.actors.telling`), and the best few are returned in the
order they were said, each with who said it. The visitor's count most; the
agent's only where they decide, promise or date something the visitor's own words
lack. A short answer is kept with its question where the question is at hand.

The work is bounded whatever comes: of a very long message the head and the tail
are read, of very many sentences the first and the last, of pasted code or logs
the one line that tells most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from interturn.actors.excerpt import code_line, trimmed
from interturn.actors.language import (
    ASKED,
    ASSENT,
    DATE,
    DECISION,
    NUMBER,
    ODD,
    Language,
    detect,
    detect_all,
    speaker_of,
)
from interturn.actors.message import Message, Role
from interturn.actors.pace import breathe
from interturn.actors.ports import TokenCounter
from interturn.actors.sentences import QUESTION_MARKS, bounded, cut, cut_to, parts, sentences
from interturn.actors.summary import Summary
from interturn.actors.telling import AGENT_SHARE, Reading, read, read_line, same, within
from interturn.actors.words import fold

MOST_CHARACTERS: Final = 64_000  # read of all leaving messages together
MOST_SENTENCES: Final = 800  # scored of them
_LEAST_CHARACTERS: Final = 400  # read of each message, however many leave
_LEAST_SENTENCES: Final = 2
_TAIL: Final = 3  # one part in three is kept for the end of what is too long

_FLOOR: Final = 1.0  # what a sentence must carry to be kept
_ANSWER: Final = 1.0  # what a question at hand lends to the answer that needs it
_ASKED_SHARE: Final = 0.4  # of the question's own weight, lent too
_OPEN_QUESTION: Final = 0.5
_ECHO_SHARE: Final = 0.55  # an agent who decides with the visitor's own numbers
_LECTURE: Final = 6  # sentences; beyond, an agent explains more than it decides
_INFORMED_SHARE: Final = 0.9  # an agent who only tells a number or a date
_RECURRING: Final = 0.15
_MOST_RECURRING: Final = 0.6
_SHORTEST_TERM: Final = 4
_LINES_A_TURN: Final = 3
_MORE_LINES_EVERY: Final = 300  # characters a turn, beyond as many
_MOST_LINES_A_TURN: Final = 6
_MOST_LINES: Final = 24
_SHARE_OF_CAP: Final = 10  # a line may take a tenth of the cap, so a turn at most six
_LEAST_ROOM: Final = 48
_LONGEST_TOKEN: Final = 5  # characters, on average

_QUESTION_CHARACTERS: Final = 90
_JOINED_CHARACTERS: Final = 110


Known = list[tuple[str, tuple[int, ...] | None]]


class Candidate(NamedTuple):
    """A sentence that may be kept.

    Attributes:
        message: the place of its message among those that leave.
        place: its place within the message.
        role: who said it.
        text: what was said, on one line.
        reading: what it carries.
        weight: how telling it is here, by who said it and after what.
        question: the agent's question that it answers and needs, or ``""``.
    """

    message: int
    place: int
    role: Role
    text: str
    reading: Reading
    weight: float
    question: str = ""


class Extractive:
    """The default summarizer: extractive, deterministic, without a model or a network.

    What it returns is at most a few lines a turn and never exceeds ``cap_tokens``;
    ``""`` says that nothing was worth keeping, which is no failure.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def fold(self, summary: str, leaving: Sequence[Message], *, cap_tokens: int) -> str:
        """Return what ``leaving`` adds to ``summary``: a few sentences, or ``""``."""
        return self.extract(summary, leaving, cap_tokens)

    def extract(self, summary: str | Summary, leaving: Sequence[Message], cap_tokens: int) -> str:
        """Return the most telling sentences of ``leaving``, at most ``cap_tokens`` tokens.

        One line each, in the order they were said, each with who said it. What
        ``summary`` holds already is left out; given as a `Summary`, its lines need
        not be read again. Near-linear in the length of the messages up to
        `MOST_CHARACTERS`, constant beyond.
        """
        known = _known(summary)
        language, languages = _languages(known, leaving)
        candidates = list(_candidates(known, leaving, languages, sparing=_turns(leaving) <= 1))
        chosen = _choose(candidates, known, leaving)
        lines = _lines(chosen, language)
        turns = max(1, _turns(leaving))
        share = _lines_a_turn(leaving) * cap_tokens // _SHARE_OF_CAP
        room = min(cap_tokens, max(_LEAST_ROOM, share) * turns)
        return self._fitting(lines, room)

    def survey(self, summary: str, leaving: Sequence[Message]) -> list[Candidate]:
        """Return every sentence that was scored, in order: at most `MOST_SENTENCES`.

        (Or two a message, where the messages are more than half of that.)
        """
        known = _known(summary)
        return list(_candidates(known, leaving, _languages(known, leaving)[1]))

    def _fitting(self, lines: list[tuple[float, str]], room: int) -> str:
        count = self._counter.count
        text = "\n".join([line[1] for line in lines])
        # What has room needs no count of each line; what plainly has none, no first count.
        if len(text) <= room * _LONGEST_TOKEN and count(text) <= room:
            return text
        kept = [(weight, text, count(text)) for weight, text in lines]
        while kept:
            if len(kept) == 1 and kept[0][2] > room:
                return cut_to(kept[0][1], room, count, tokens=kept[0][2])
            text = "\n".join([line[1] for line in kept])
            if sum(line[2] for line in kept) <= room and count(text) <= room:
                return text
            kept.remove(min(kept, key=_standing))
        return ""


def _standing(line: tuple[float, str, int]) -> float:
    return line[0] / math.sqrt(max(line[2], 1))


def _turns(leaving: Sequence[Message]) -> int:
    return (len(leaving) + 1) // 2


def _known(summary: str | Summary) -> Known:
    """Return the lines of a summary, with their keys where they were read before."""
    if isinstance(summary, str):
        return [(line, None) for line in summary.split("\n")]
    return [(line.text, line.keys) for line in summary.lines] or [("", None)]


def _languages(known: Known, leaving: Sequence[Message]) -> tuple[Language, list[Language]]:
    """Return the conversation's language, and each message's; the summary's on a tie."""
    _, _, before = speaker_of(known[-1][0])
    return detect_all([message.text for message in leaving], before)


def _candidates(
    known: Known,
    leaving: Sequence[Message],
    languages: Sequence[Language],
    *,
    sparing: bool = False,
) -> Iterator[Candidate]:
    characters = max(_LEAST_CHARACTERS, MOST_CHARACTERS // max(1, len(leaving)))
    most = max(_LEAST_SENTENCES, MOST_SENTENCES // max(1, len(leaving)))
    role, asked, _ = speaker_of(known[-1][0])
    question = asked if role == "agent" and asked.endswith(QUESTION_MARKS) else ""
    at_hand = False
    for message, spoken in enumerate(leaving):
        said = _said(spoken, characters, most, languages[message], sparing=sparing)
        if spoken.role == "visitor":
            yield from _visitor(message, said, question, at_hand=at_hand)
            question, at_hand = "", True
        else:
            yield from _agent(message, said, last=message == len(leaving) - 1)
            closing = said[-1][0] if said else ""
            question = closing if closing.endswith(QUESTION_MARKS) else ""


def _said(
    message: Message, characters: int, most: int, language: Language, *, sparing: bool
) -> list[tuple[str, Reading]]:
    """Return the message's sentences and what they carry, courtesies cut off.

    Where ``sparing``, an agent's that can't be kept are heard but not weighed.
    """
    found: list[tuple[str, Reading]] = []
    pieces: list[tuple[bool, str]] = []
    for is_code, part in parts(bounded(message.text, characters)):
        if is_code:
            pieces.append((True, part))
        else:
            pieces.extend((False, sentence) for sentence in sentences(part, language))
    if len(pieces) > most:
        tail = most // _TAIL
        pieces = pieces[: most - tail] + pieces[len(pieces) - tail :]
    read_once: dict[str, tuple[str, Reading]] = {}
    may_tell = None
    if sparing and message.role == "agent":
        lectures = len(pieces) > _LECTURE and not any(is_code for is_code, _ in pieces)
        may_tell = _decides if lectures else _informs
    for is_code, piece in pieces:
        breathe()
        if is_code:
            found.extend(code_line(piece, language))
        else:
            # Whoever pastes one thing many times has it read once.
            if piece not in read_once:
                read_once[piece] = trimmed(piece, language, message.role, may_tell)
            found.append(read_once[piece])
    return found


def _decides(sentence: str, marks: int) -> bool:
    return bool(marks & DECISION and marks & DATE) or sentence.endswith(QUESTION_MARKS)


def _informs(sentence: str, marks: int) -> bool:
    return bool(marks & (DECISION | DATE | NUMBER | ODD)) or sentence.endswith(QUESTION_MARKS)


def _visitor(
    message: int, said: list[tuple[str, Reading]], question: str, *, at_hand: bool
) -> Iterator[Candidate]:
    awaited = question
    for place, (text, reading) in enumerate(said):
        weight, shown = reading.weight, ""
        if awaited and (reading.terms or reading.kinds & ASSENT):
            # The first words after a question are its answer; a bare "yes" is worth
            # what was asked.
            asked = read(awaited, detect(awaited)).weight
            weight += (_ANSWER if reading.terms else 0.0) + _ASKED_SHARE * asked
            if reading.leans:
                weight -= 0.0 if at_hand or reading.terms else _FLOOR
                shown = cut(awaited, _QUESTION_CHARACTERS) if at_hand else ""
            awaited = ""
        elif reading.leans and not reading.keys:
            weight = 0.0
        yield Candidate(message, place, "visitor", text, reading, weight, shown)


def _agent(message: int, said: list[tuple[str, Reading]], *, last: bool) -> Iterator[Candidate]:
    lectures = len(said) > _LECTURE
    for place, (text, reading) in enumerate(said):
        weight = reading.weight * AGENT_SHARE
        if lectures and not (reading.kinds & DECISION and reading.kinds & DATE):
            weight = 0.0
        if text.endswith(QUESTION_MARKS):
            # Kept only where the visitor's next words may need it to be understood.
            open_still = last and place == len(said) - 1 and reading.kinds & ASKED
            weight = _OPEN_QUESTION if open_still and reading.terms else 0.0
        yield Candidate(message, place, "agent", text, reading, weight)


def _choose(
    candidates: Sequence[Candidate], known: Known, leaving: Sequence[Message]
) -> list[Candidate]:
    """Return the few candidates to keep, in the order they were said."""
    turns = _turns(leaving)
    folded = [fold(line) for line, _ in known]
    together = "\n".join(folded)
    recurring = _recurring(candidates) if turns > 1 else set[str]()
    # What a sentence gains by what the talk comes back to is sought only for those that
    # may be next with it: until then each stands where at best it would.
    ranked = [
        (-weight - _MOST_RECURRING, candidate.message, candidate.place, weight, candidate)
        for candidate, weight in _weighty(candidates)
    ]
    heapify(ranked)
    chosen: list[Candidate] = []
    most = min(_lines_a_turn(leaving) * max(1, turns), _MOST_LINES)
    while ranked and len(chosen) < most:
        breathe()
        rank, message, place, weight, candidate = heappop(ranked)
        reading = candidate.reading
        ours = frozenset(reading.keys)
        if any(
            not ours.isdisjoint(other.reading.keys) and _repeats(reading.keys, other.reading.keys)
            for other in chosen
        ):
            continue
        if -rank != weight:
            weight += _coming_back(reading, together, recurring)
            asks = candidate.role == "agent" and candidate.text.endswith(QUESTION_MARKS)
            if asks or weight >= _FLOOR:
                heappush(ranked, (-weight, message, place, weight, candidate))
        elif not _held(reading, known, folded, together):
            chosen.append(candidate._replace(weight=weight))
    chosen.sort(key=lambda candidate: (candidate.message, candidate.place))
    return chosen


def _weighty(candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, float]]:
    """Yield the candidates that may be kept, with their weights."""
    visitors: set[int] = set()
    visitors.update(*[one.reading.keys for one in candidates if one.role == "visitor"])
    for candidate in candidates:
        breathe()
        weight = candidate.weight
        if candidate.role == "agent" and not candidate.text.endswith(QUESTION_MARKS):
            weight = _as_agent(candidate, visitors)
        if weight >= _OPEN_QUESTION:
            yield candidate, weight


def _lines_a_turn(leaving: Sequence[Message]) -> int:
    """Return how many lines a turn may add: few, or more where turns are long."""
    length = sum(len(message.text) for message in leaving) // max(1, _turns(leaving))
    return min(max(_LINES_A_TURN, 1 + length // _MORE_LINES_EVERY), _MOST_LINES_A_TURN)


def _as_agent(candidate: Candidate, visitors: set[int]) -> float:
    """Return an agent's weight: nothing unless it decides, or dates or numbers anew."""
    anew = any(key & 1 and key not in visitors for key in candidate.reading.keys)
    kinds = candidate.reading.kinds
    if kinds & DECISION:
        return candidate.weight if anew else candidate.weight * _ECHO_SHARE
    return candidate.weight * _INFORMED_SHARE if anew and kinds & (DATE | NUMBER) else 0.0


def _recurring(candidates: Sequence[Candidate]) -> set[str]:
    """Return the terms of more than one message."""
    by_message: dict[int, set[str]] = {}
    for candidate in candidates:
        by_message.setdefault(candidate.message, set()).update(candidate.reading.terms)
    seen: set[str] = set()
    recurring: set[str] = set()
    for terms in by_message.values():
        recurring |= seen & terms
        seen |= terms
    return recurring


def _coming_back(reading: Reading, known: str, recurring: set[str]) -> float:
    """Return what a sentence gains by speaking of what the talk keeps coming back to."""
    back = 0
    for term in reading.terms:
        if len(term) >= _SHORTEST_TERM and (term in recurring or term in known):
            back += 1
            if back * _RECURRING >= _MOST_RECURRING:
                return _MOST_RECURRING
    return back * _RECURRING


def _repeats(keys: tuple[int, ...], others: tuple[int, ...]) -> bool:
    return same(keys, others) or within(keys, others)


def _held(reading: Reading, known: Known, folded: Sequence[str], together: str) -> bool:
    """Return whether one line of the summary says it already."""
    if not reading.terms or not all(map(together.__contains__, reading.terms)):
        return False
    first = reading.terms[0]
    for (line, keys), plain in zip(known, folded, strict=True):
        # A question holds nothing, though its answer repeats its words.
        if first in plain and not line.endswith(QUESTION_MARKS):
            there = read_line(line).keys if keys is None else keys
            if _repeats(reading.keys, there):
                return True
    return False


def _lines(chosen: Sequence[Candidate], language: Language) -> list[tuple[float, str]]:
    """Return the lines with their weights, short neighbours of one message on one line."""
    lines: list[tuple[float, str]] = []
    before: Candidate | None = None
    for candidate in chosen:
        joins = (
            before is not None
            and before.message == candidate.message
            and before.place + 1 == candidate.place
            and not candidate.question
            and len(lines[-1][1]) + len(candidate.text) <= _JOINED_CHARACTERS
        )
        if joins:
            weight, text = lines[-1]
            glue = " " if language.spaced else ""
            lines[-1] = (max(weight, candidate.weight), text + glue + candidate.text)
        else:
            said = language.speakers[candidate.role] + candidate.text
            if candidate.question:
                said = f"{language.speakers['agent']}{candidate.question} — {said}"
            lines.append((candidate.weight, said))
        before = candidate
    return lines
