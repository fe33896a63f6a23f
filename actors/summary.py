"""The summary: sediment of what left the window, one layer a fold.

A summary is lines, and a line never changes once it is laid: it stays word for
word, or it goes whole. What a fold returns is laid on top as a new layer, after
it has been looked at: an empty answer, an error, an echo is refused. Only the
cap takes lines away, and the code chooses which: those that tell least for the
room they take, wherever they lie, the newest layer last. So no model can reword
or lose what was recorded early, and no number of folds wears a line away.

What makes a line telling is read once, when it is laid, and kept with it as
small numbers: its length in tokens, its weight, and fingerprints of its content.
With those, one fold costs the reading of its own lines and a few set operations
a line of the summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from interturn.actors.language import detect, library, speaker_of
from interturn.actors.message import Discreet, Message
from interturn.actors.sentences import QUESTION_MARKS, cut_to, sentences
from interturn.actors.telling import Reading, overruling, read, read_line, same
from interturn.actors.words import WORD, fold

Count = Callable[[str], int]

_MOST_OF_CAP: Final = 2  # an answer of over twice the cap isn't an addition
_GUARDED_SHARE: Final = 2  # a layer is safe from its own fold up to half the cap
_LONG_LINE: Final = 320  # characters; a paragraph parts into sentences, to be dropped singly
_SHORT_ANSWER: Final = 14  # words; a longer answer isn't "nothing to add"
_LONGEST_HEADING: Final = 60
_OPENING: Final = 400  # characters; an error or a refusal shows itself by then
_SAID: Final = 8_000  # characters of a message that an echo is compared with
_ECHO: Final = 0.8
_LEAST_LINES: Final = 2
_CARRIES: Final = 1.0
# Of two lines as telling, the shorter stays, though not by the whole of the difference.
_ROOM_EXPONENT: Final = 0.4
_LEAST_ROOM: Final = 12
# A line whose names and numbers all stand elsewhere too is worth this share.
_COMMON_SHARE: Final = 0.4
_NOTHING_NAMED: Final = 0.5
_ANSWERED: Final = 0.6

_CONTROLS: Final = dict.fromkeys([*range(0x20), 0x7F], " ")
_BULLET: Final = re.compile(r"^(?:[-*•▪●]\s+|\d{1,2}[.)]\s+|#+\s+)+")
_ERROR: Final = re.compile(
    r"\s*(?:\W{0,3}(?:fatal |internal |api |http )?(?:error|erreur|fehler|errore|erro|exception)"
    r"(?:\s+\d{3})?\s*[:\-–]|(?:http(?:/[\d.]+)?\s*)?[45]\d\d\s+[a-z]+(?:\s[a-z]+){0,3}\s*$"  # noqa: RUF001
    r"|traceback \(most recent|\w+(?:\.\w+)*(?:error|exception)\b\s*[:(]|<!doctype|<html"
    r"|(?:error|http|status)(?: code)?:? [45]\d\d\b\s*(?:$|[:\-({]))"
)
_ERROR_FIELD: Final = re.compile(
    r"\s*[\[{].{0,200}?[\"'](?:errors?|exception|traceback)[\"']\s*:", re.DOTALL
)
_EMPTY_VALUE: Final = re.compile(r"\W*(?:null|none|nil|n/?a|undefined|nan)?\W*")


class Refused(ValueError):
    """A summarizer's answer that is not laid. The summary is as it was.

    Attributes:
        reason: ``"empty"``, ``"none"``, ``"error"``, ``"repetition"``,
            ``"over-long"`` or ``"unencodable"``; never the answer's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Line(Discreet, frozen=True, array_like=True, gc=False):
    """One line of a summary, as it was laid.

    Attributes:
        text: without new lines.
        through: sequence number of the last message of the fold that laid it.
        tokens: its length by the counter it was laid with.
        weight: how telling it is; falls when a later line replaces what it says.
        keys: fingerprints of its content.
    """

    text: str
    through: int
    tokens: int
    weight: float
    keys: tuple[int, ...] = ()


class Summary(Discreet, frozen=True):
    """What left the window, in lines, oldest first."""

    lines: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """The lines as one text for a model and for a person; ``""`` when there are none."""
        return "\n".join([line.text for line in self.lines])

    def lay(
        self,
        addition: str,
        *,
        through: int,
        cap_tokens: int,
        count: Count,
        leaving: Sequence[Message],
    ) -> Summary:
        """Return the summary with ``addition`` on top, at most ``cap_tokens`` tokens.

        Lines already there stay word for word or go whole, and go only where the
        cap is exceeded: first those that tell least for their room, a replaced
        statement before the one that replaced it, the new layer last. (Of a layer
        over half the cap the excess competes like the rest, so that one wordy
        answer can't wash away what lies below.) A line that is there already is
        not laid twice. A new line longer than the cap is cut, visibly.

        That a fold found nothing worth keeping is no answer to lay: the offline
        summarizer says so with ``""``, and the caller, who holds the cursor, moves
        it and keeps the summary. Here ``""`` is refused, as a model's failure.

        Args:
            addition: what the fold returned.
            through: sequence number of the last message of the fold.
            cap_tokens: tokens that ``count`` may give for the whole text.
            count: counts tokens; called once for each new line and for
                the joined text, again only while that is over the cap.
            leaving: the messages that were folded: an answer that only repeats
                the summary is refused unless they say the same again.

        Raises:
            Refused: the answer is empty, says none, is an error, repeats the
                summary, is longer than twice the cap, or can't be encoded.
        """
        pieces = _pieces(_checked(addition))
        tokens = {piece: count(piece) for piece in pieces}
        if sum(tokens.values()) > _MOST_OF_CAP * cap_tokens:
            raise Refused("over-long")
        fresh = self._fresh(list(tokens), leaving)
        kept = list(self.lines)
        laid = [
            Line(text, through, tokens[text], round(reading.weight, 2), reading.keys)
            for text, reading in fresh
        ]
        for _, reading in fresh:
            ours = frozenset(reading.keys)
            kept = [line if ours.isdisjoint(line.keys) else _after(line, reading) for line in kept]
        _answer(kept, laid)
        return _within([*kept, *laid], cap_tokens, count, newest=len(laid))

    def shortened(self, cap_tokens: int, count: Count) -> Summary:
        """Return the summary within ``cap_tokens``: whole lines go, the least telling first."""
        return _within(list(self.lines), cap_tokens, count, newest=0)

    def _fresh(
        self, pieces: Sequence[str], leaving: Sequence[Message]
    ) -> list[tuple[str, Reading]]:
        fresh: list[tuple[str, Reading]] = []
        echoes: list[str] = []
        known = [line.keys for line in self.lines]
        for piece in pieces:
            reading = read_line(piece)
            ours = frozenset(reading.keys)
            if self._holds(piece) or any(
                same(reading.keys, keys) for keys in known if not ours.isdisjoint(keys)
            ):
                echoes.append(piece)
                continue
            fresh.append((piece, reading))
            known.append(reading.keys)
        if echoes and not fresh and not _said_again(echoes, leaving):
            raise Refused("repetition")
        if self.lines and fresh and self._echoed([reading for _, reading in fresh], leaving):
            raise Refused("repetition")
        return fresh

    def _holds(self, piece: str) -> bool:
        """Return whether ``piece`` is nothing but lines that lie here, however joined."""
        rest = piece
        for line in self.lines:
            if line.text in rest:
                rest = rest.replace(line.text, "")
        return rest != piece and not any(map(str.isalnum, rest))

    def _echoed(self, fresh: Sequence[Reading], leaving: Sequence[Message]) -> bool:
        """Return whether new lines hold the summary again, only broken otherwise."""
        ours = set().union(*[line.keys for line in self.lines])
        theirs = set().union(*[reading.keys for reading in fresh])
        if len(self.lines) < _LEAST_LINES or len(ours & theirs) < _ECHO * len(ours):
            return False
        new = theirs - ours
        if len(new) > (1 - _ECHO) * len(theirs) or any(key & 1 for key in new):
            return False
        return not _keys_of(leaving).issuperset(_weak(theirs))


def _checked(addition: str) -> str:
    """Return the answer without its wrapping, or refuse it."""
    try:
        addition.encode()
    except UnicodeEncodeError:
        raise Refused("unencodable") from None
    answer = _unlabelled(addition.strip())
    if not answer:
        raise Refused("empty")
    opening = answer[:_OPENING].lower()
    if _EMPTY_VALUE.fullmatch(opening):
        raise Refused("none" if any(map(str.isalnum, opening)) else "empty")
    if speaker_of(answer)[0] is not None:
        # Somebody is quoted: whatever they said of errors is what was said.
        return answer
    words = WORD.findall(fold(opening))
    plain = " ".join(words)
    shelf = library()
    short = len(words) <= _SHORT_ANSWER and not any(map(str.isdigit, plain))
    if plain in shelf.nothing or (short and plain.startswith(shelf.nothing_more)):
        raise Refused("none")
    if plain.startswith(shelf.refusals) or _ERROR.match(opening) or _ERROR_FIELD.match(opening):
        raise Refused("error")
    return answer


def _unlabelled(answer: str) -> str:
    """Return the answer without a heading such as "Summary:" and without its fence."""
    if answer.startswith("```"):
        answer = "\n".join(
            line for line in answer.split("\n") if not line.lstrip().startswith("```")
        ).strip()
    head, colon, rest = answer[:_OPENING].partition(":")
    if colon and len(head) < _LONGEST_HEADING:
        rest = answer[len(head) + 1 :]
        heading = " ".join(WORD.findall(fold(head)))
        if heading in library().labels:
            return rest.lstrip(" *\n\t")
    return answer


def _pieces(answer: str) -> list[str]:
    pieces: list[str] = []
    for raw in answer.splitlines():
        line = " ".join((raw if raw.isprintable() else raw.translate(_CONTROLS)).split())
        line = _BULLET.sub("", line)
        if len(line) <= _LONG_LINE:
            pieces.append(line)
        else:
            pieces.extend(sentences(line, detect(line)))
    return [piece for piece in pieces if any(map(str.isalnum, piece))] or [
        " ".join(answer.translate(_CONTROLS).split())
    ]


def _said_again(echoes: Sequence[str], leaving: Sequence[Message]) -> bool:
    """Return whether the messages repeat what the summary holds, or carry nothing."""
    said = _keys_of(leaving)
    carries = any(
        read(sentence, language).weight >= _CARRIES
        for message in leaving
        for language in (detect(message.text),)
        for sentence in sentences(message.text[:2_000], language)[:20]
    )
    if not carries:
        return True
    return all(said.issuperset(_weak(read_line(echo).keys)) for echo in echoes)


def _keys_of(leaving: Sequence[Message]) -> set[int]:
    return {
        key
        for message in leaving
        for key in _weak(read(message.text[:_SAID], detect(message.text)).keys)
    }


def _weak(keys: Iterable[int]) -> list[int]:
    """Return keys whatever their strength: where a name stands decides its capital."""
    return [key | 1 for key in keys]


def _answer(kept: list[Line], laid: list[Line]) -> None:
    """Let the answer to a question that is the last line stand as long as its question."""
    if not kept or not laid or not kept[-1].text.endswith(QUESTION_MARKS):
        return
    asked, answer = kept[-1], laid[0]
    if speaker_of(asked.text)[0] == "agent" and speaker_of(answer.text)[0] == "visitor":
        kept[-1] = _weighing(asked, max(asked.weight, answer.weight / 2, _ANSWERED))
        laid[0] = _weighing(answer, answer.weight + _ANSWERED)


def _weighing(line: Line, weight: float) -> Line:
    return Line(line.text, line.through, line.tokens, round(weight, 2), line.keys)


def _after(line: Line, reading: Reading) -> Line:
    """Return ``line`` as it weighs once a later one was laid; its words don't change."""
    if not line.weight:
        return line
    left = overruling(reading, line.keys)
    if left == 1:
        return line
    return _weighing(line, line.weight * left)


_Entry = tuple[bool, float, list[int], Line]


class _Load:
    """Lines on their way under a cap, and which of them goes next."""

    __slots__ = ("entries", "seen", "standings", "total")

    def __init__(self, lines: Sequence[Line], newest: int, cap: int) -> None:
        guarded: set[int] = set()
        room = cap // _GUARDED_SHARE
        for line in sorted(lines[len(lines) - newest :], key=_by_weight):
            room -= line.tokens + 1
            if room >= 0 or not guarded:
                guarded.add(id(line))
        self.entries = [
            (
                id(line) in guarded,
                line.weight / max(line.tokens, _LEAST_ROOM) ** _ROOM_EXPONENT,
                [key for key in line.keys if key & 1],
                line,
            )
            for line in lines
        ]
        self.total = sum([line.tokens + 1 for line in lines])
        self.seen = Counter([key for entry in self.entries for key in entry[2]])
        self.standings = [self._standing(entry) for entry in self.entries]

    def drop(self) -> None:
        """Let one line go: the least telling, a guarded one only when there is no other."""
        least = self.standings.index(min(self.standings))
        del self.standings[least]
        _, _, gone, line = self.entries.pop(least)
        self.total -= line.tokens + 1
        self.seen.subtract(gone)
        # Only where it shared a name or a number does another line stand otherwise now.
        keys = frozenset(gone)
        for place, entry in enumerate(self.entries):
            if not keys.isdisjoint(entry[2]):
                self.standings[place] = self._standing(entry)

    def text(self) -> str:
        """Return the lines that are left, joined."""
        return "\n".join([entry[3].text for entry in self.entries])

    def _standing(self, entry: _Entry) -> tuple[bool, float]:
        guarded, worth, keys, _ = entry
        if not keys:
            return guarded, worth * _NOTHING_NAMED
        alone = [self.seen[key] for key in keys].count(1)
        return guarded, worth * (_COMMON_SHARE + (1 - _COMMON_SHARE) * alone / len(keys))


def _by_weight(line: Line) -> float:
    return -line.weight


def _within(lines: list[Line], cap: int, count: Count, *, newest: int) -> Summary:
    """Return the lines that fit: the least telling go first, of the newest layer last."""
    old = len(lines) - newest
    fresh = [line if line.tokens <= cap else _cut_line(line, cap, count) for line in lines[old:]]
    fresh = [line for line in fresh if line.text]
    load = _Load([*lines[:old], *fresh], len(fresh), cap)
    # A new line costs a token at most, so the sum decides for all but a few tokens...
    while load.total - 1 > cap and len(load.entries) > 1:
        load.drop()
    # ...and the joined text for those: tokens of parts don't add up to those of the whole.
    while load.entries and count(load.text()) > cap:
        load.drop()
    return Summary(tuple([entry[3] for entry in load.entries]))


def _cut_line(line: Line, cap: int, count: Count) -> Line:
    """Return a new line cut to ``cap`` tokens, or an empty one if nothing fits."""
    text = cut_to(line.text, cap, count, tokens=line.tokens)
    return Line(text, line.through, count(text) if text else 0, line.weight, line.keys)
