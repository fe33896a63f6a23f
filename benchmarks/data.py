"""The real conversations that the benchmarks run against, read into turns and customers.

LoCoMo: each speaker as the visitor in turn, several messages of one side in a row
joined to one; categories 1 to 4; what the visitor said. LongMemEval: the user's turns
marked as evidence, in a question's own sessions. XPersona: the second of the two
speakers is who the persona describes, so they are the visitor.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from interturn.actors import Message

FOLDERS = ("locomo", "longmemeval", "sgd", "xpersona", "gold_es", "chatterbot_corpus")
POOLED = 25  # customers whose sessions are one customer's
CATEGORIES = (1, 2, 3, 4)  # of LoCoMo; the fifth asks for what was never said
PERSONAS = {"en": "En", "fr": "Fr", "it": "It", "zh": "Zh", "ja": "Jp", "ko": "Ko", "id": "Id"}
AT = datetime(2025, 1, 1, tzinfo=UTC)

Source = tuple[str, int]
"""A session, and the sequence number of the visitor's message in it."""
Row = tuple[bool, str, str]
"""Whether the visitor said it, what was said, and its id."""


def folder(description: str) -> Path:
    """Return the folder that the command line names; end with a clear error if it isn't whole."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", type=Path, help=f"a folder that holds {', '.join(FOLDERS)}")
    data: Path = parser.parse_args().data
    if missing := [name for name in FOLDERS if not (data / name).is_dir()]:
        parser.error(f"{data} has no {', '.join(missing)}")
    return data


class Turn(NamedTuple):
    """What was said at ``source``, with what the agent said just before it."""

    source: Source
    messages: tuple[Message, ...]

    @property
    def said(self) -> str:
        """What the visitor said."""
        return next(message.text for message in self.messages if message.role == "visitor")

    @property
    def answered(self) -> str:
        """What the agent answered, "Ok." where nothing was: a turn has two sides."""
        last = self.messages[-1]
        return last.text if last.role == "agent" and last.text.strip() else "Ok."


class Question(NamedTuple):
    """A question, and where the visitor said what answers it."""

    text: str
    evidence: tuple[Source, ...]
    kind: str = ""
    answer: str = ""


class Customer(NamedTuple):
    """The turns of one visitor in all their sessions, and what is asked afterwards."""

    turns: list[Turn]
    questions: list[Question]
    speakers: tuple[str, ...] = ()


class Dialogue(NamedTuple):
    """The turns of one conversation, and what is labelled as true of its visitor."""

    turns: list[Turn]
    labels: list[tuple[str, tuple[str, ...]]]  # a slot or nothing, and ways to say its value


def turns_of(session: str, rows: Sequence[Row]) -> Iterator[tuple[Turn, list[str]]]:
    """Yield the turns of a session, each with the ids of what the visitor said in it."""
    sides = [(mine, list(side)) for mine, side in itertools.groupby(rows, key=lambda row: row[0])]
    texts = ["\n".join(text for _, text, _ in side) for _, side in sides]
    seq = 1
    for place, (mine, side) in enumerate(sides):
        if not mine or not texts[place].strip():
            continue
        messages = [Message(seq, "visitor", texts[place], AT, 0)]
        if place:
            messages.insert(0, Message(seq - 1, "agent", texts[place - 1], AT, 0))
        if place + 1 < len(sides):
            messages.append(Message(seq + 1, "agent", texts[place + 1], AT, 0))
        yield Turn((session, seq), tuple(messages)), [name for _, _, name in side]
        seq += 2


def locomo(data: Path) -> Iterator[Customer]:
    """Yield each speaker of LoCoMo as the visitor."""
    for sample in json.loads((data / "locomo" / "locomo_first5.json").read_text("utf-8")):
        said: dict[str, Any] = sample["conversation"]
        names = [name for name in said if re.fullmatch(r"session_\d+", name)]
        names.sort(key=lambda name: int(name.removeprefix("session_")))
        speakers = (said["speaker_a"], said["speaker_b"])
        for speaker in speakers:
            turns: list[Turn] = []
            where: dict[str, Source] = {}
            for name in names:
                rows = [(r["speaker"] == speaker, r["text"], r["dia_id"]) for r in said[name]]
                for turn, ids in turns_of(name, rows):
                    turns.append(turn)
                    where.update(dict.fromkeys(ids, turn.source))
            asked = [qa for qa in sample["qa"] if qa["category"] in CATEGORIES]
            questions = [
                Question(qa["question"], tuple(where[e] for e in qa["evidence"] if e in where))
                for qa in asked
            ]
            yield Customer(turns, [q for q in questions if q.evidence], speakers)


def longmemeval(data: Path) -> Iterator[Customer]:
    """Yield the user of each question of LongMemEval that has evidence of theirs."""
    with gzip.open(data / "longmemeval" / "oracle_even.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            turns: list[Turn] = []
            evidence: list[Source] = []
            for place, rows in enumerate(record["haystack_sessions"]):
                marked = [
                    (r["role"] == "user", r["content"], "answer" if r.get("has_answer") else "")
                    for r in rows
                ]
                for turn, marks in turns_of(f"{number}/{place}", marked):
                    turns.append(turn)
                    evidence += [turn.source] if any(marks) else []
            if evidence:
                kind, answer = record["question_type"], str(record["answer"])
                asked = Question(record["question"], tuple(evidence), kind, answer)
                yield Customer(turns, [asked])


def pooled(customers: Sequence[Customer]) -> Iterator[Customer]:
    """Yield the sessions and the questions of `POOLED` customers as one customer's."""
    for group in pools(customers):
        yield Customer([t for c in group for t in c.turns], [q for c in group for q in c.questions])


def pools(several: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield them by `POOLED`."""
    for start in range(0, len(several), POOLED):
        yield several[start : start + POOLED]


def small_talk(data: Path) -> Iterator[Turn]:
    """Yield a turn for each exchange of the Spanish chatterbot corpus: what opens it."""
    for file in sorted((data / "chatterbot_corpus" / "spanish").glob("*.yml")):
        lines = file.read_text("utf-8").splitlines()
        for line, following in itertools.pairwise([*lines, ""]):
            if line.startswith("- - "):
                asked, answered = (part.lstrip("- ").strip("'\" ") for part in (line, following))
                if asked:
                    visitor = Message(1, "visitor", asked, AT, 0)
                    yield Turn(("talk", 1), (visitor, Message(2, "agent", answered, AT, 0)))


def gold_es(data: Path) -> Iterator[tuple[dict[str, Any], list[Turn], dict[str, str]]]:
    """Yield each labelled Spanish customer: the record, the turns, what was said by its id."""
    for record in json.loads((data / "gold_es" / "gold_es.json").read_text("utf-8")):
        turns: list[Turn] = []
        said: dict[str, str] = {}
        for session in record["sessions"]:
            rows = [(t["role"] == "user", t["content"], t["id"]) for t in session["turns"]]
            said |= {name: text for _, text, name in rows}
            turns += [turn for turn, _ in turns_of(session["session_id"], rows)]
        yield record, turns, said


def sgd(data: Path) -> Iterator[Dialogue]:
    """Yield the dialogues of SGD, each slot with the ways in which its last value was said."""
    with (data / "sgd" / "sgd_sample.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            rows = [(t["speaker"] == "USER", t["utterance"], "") for t in record["turns"]]
            turns = [turn for turn, _ in turns_of(record["dialogue_id"], rows)]
            values: dict[tuple[str, str], tuple[str, ...]] = {}
            for turn in record["turns"]:
                for service, state in (turn.get("state") or {}).items():
                    for slot, ways in state["slot_values"].items():
                        values[service, slot] = tuple(ways)
            yield Dialogue(turns, [(slot, ways) for (_, slot), ways in values.items()])


def xpersona(data: Path, language: str) -> Iterator[Dialogue]:
    """Yield the dialogues of XPersona in ``language``, labelled with the persona's sentences."""
    name = PERSONAS[language]
    (file,) = (data / "xpersona").glob(f"{name}_persona*test*.json")
    for number, record in enumerate(json.loads(file.read_text("utf-8"))):
        rows = [(place == 1, text, "") for pair in record["dialogue"]
                for place, text in enumerate(pair)]  # fmt: skip
        turns = [turn for turn, _ in turns_of(f"{language}/{number}", rows)]
        yield Dialogue(turns, [("", (sentence,)) for sentence in record["persona"]])
