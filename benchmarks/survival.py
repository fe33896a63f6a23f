"""What a summary still holds of early values after a hundred more folds.

Folded as a runtime does with the offline summarizer: a turn leaves the window at a
time, and the summary stays under its cap. A value survives if the summary's text has it.

gold_es: the values that its customers' summaries must keep, their sessions taken as one
and followed by small talk. LoCoMo: the names, numbers and dates of a visitor's first 20
turns, found by their form: capitals within a sentence (neither speaker's own name), digits
and number words, days, months and "last week". The conversation itself goes on and names
more, so not all can stay.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from data import AT, Customer, Turn, gold_es, small_talk

from interturn.actors import Extractive, Message, Summary, TokenCounter
from interturn.runtime import Settings

EARLY = 20  # turns
FOLDS = 100
_NUMBER = re.compile(
    r"\b\d(?:[\d.,:/-]*\d)?|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|"
    r"twenty|thirty|forty|fifty|hundreds?|thousands?|millions?)\b"
)
_NAME = re.compile(r"(?<![.!?:\"'\n] )(?<!^)(?<!\n)\b[A-Z][a-z]{2,}\b")
_DAY = "(?:[Mm]on|[Tt]ues|[Ww]ednes|[Tt]hurs|[Ff]ri|[Ss]atur|[Ss]un)day"
_DATE = re.compile(
    rf"\b(?:{_DAY}s?|Mon|Tue|Wed|Thu|Fri|Sat|Sun|January|February|March|April|May|June|July|August"
    rf"|September|October|November|December|yesterday|tomorrow"
    rf"|(?:last|next) (?:{_DAY}|week|weekend|month|year|night|summer|fall|winter|spring))\b"
)


class Folded:
    """A summary as turns leave the window one by one."""

    def __init__(self, counter: TokenCounter) -> None:
        self._count = counter.count
        self._extractive = Extractive(counter)
        self._cap = Settings().summary_tokens
        self._seq = 0
        self.summary = Summary()

    def fold(self, turns: Sequence[Turn]) -> str:
        """Fold ``turns``, each by itself; return the summary's text."""
        for turn in turns:
            leaving = (
                Message(self._seq + 1, "visitor", turn.said, AT, 0),
                Message(self._seq + 2, "agent", turn.answered, AT, 0),
            )
            self._seq += 2
            addition = self._extractive.extract(self.summary, leaving, self._cap)
            if addition:
                self.summary = self.summary.lay(
                    addition,
                    through=self._seq,
                    cap_tokens=self._cap,
                    count=self._count,
                    leaving=leaving,
                )
        return self.summary.text


def marked(text: str, speakers: Sequence[str] = ()) -> dict[str, set[str]]:
    """Return the names, numbers and dates of an English text, in lower case."""
    found = {
        "dates": {date.lower() for date in _DATE.findall(text)},
        "numbers": set(_NUMBER.findall(text)),
        "names": {name.lower() for name in _NAME.findall(text)},
    }
    found["names"] -= {word for date in found["dates"] for word in date.split()}
    short = tuple(speaker[:3].lower() for speaker in speakers)
    found["names"] = {name for name in found["names"] if not name.startswith(short or "\0")}
    return found


def survived(
    early: str, late: str, values: dict[str, set[str]]
) -> Iterator[tuple[str, bool, bool]]:
    """Yield each value's kind, and whether it is in the early and in the late summary."""
    for kind, said in values.items():
        for value in said:
            yield kind, value in early.lower(), value in late.lower()


def of_gold(data: Path, counter: TokenCounter) -> Iterator[tuple[str, bool, bool]]:
    """Yield what became of the labelled values: as folded, and after `FOLDS` of small talk."""
    talk = list(itertools.islice(small_talk(data), FOLDS))
    for customer, turns, _ in gold_es(data):
        folded = Folded(counter)
        early, late = folded.fold(turns), folded.fold(talk)
        values = {"values": {value.lower() for value in customer["must_keep_in_summary"]}}
        yield from survived(early, late, values)


def of_locomo(chats: Sequence[Customer], counter: TokenCounter) -> Iterator[tuple[str, bool, bool]]:
    """Yield what became of the early values of each visitor who goes on long enough."""
    for chat in chats:
        if len(chat.turns) < EARLY + FOLDS:
            continue
        folded = Folded(counter)
        early = folded.fold(chat.turns[:EARLY])
        late = folded.fold(chat.turns[EARLY : EARLY + FOLDS])
        said = "\n".join(turn.said for turn in chat.turns[:EARLY])
        yield from survived(early, late, marked(said, chat.speakers))
