"""Reads conversations that happened elsewhere, in the shapes people have them in.

Known by their keys, not by their names: LoCoMo conversations, dialogues of the
Schema-Guided Dialogue set (SGD), LongMemEval questions with their haystack
sessions, OpenAI-style ``{"messages": […]}`` objects or bare lists of messages,
and the lines that ``interturn export`` writes. How a file comes to its records
stands in `interturn.runtime.cli.records`.

What comes out is turns: what the visitor said and what the agent replied.
Whatever is no part of one is left out and counted, never guessed at: what the
agent says unasked is no turn, and neither is a question that nobody answered.
Anything unreadable is a `TranscriptError` with file, line and place. It never
holds, nor is chained to anything that holds, a word of the content.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from interturn.runtime.cli.exchanges import Transcript, Turns
from interturn.runtime.cli.exported import exported, is_exported
from interturn.runtime.cli.records import (
    Place,
    TranscriptError,
    converted,
    is_messages,
    records,
)


def read(path: Path) -> Iterator[Transcript]:
    """Yield the conversations of a file, in its order.

    Raises:
        TranscriptError: the file, or one of its lines, isn't readable.
        OSError: the disk says no.
    """
    if path.exists() and not path.is_file():
        # A pipe can't be read a second time, so a replay of it couldn't be continued.
        raise TranscriptError(str(path), "not_a_file")
    names: Counter[str] = Counter()
    for transcript in _named(path):
        times = names[transcript.session_id] = names[transcript.session_id] + 1
        yield (
            transcript
            if times == 1
            else msgspec.structs.replace(transcript, session_id=f"{transcript.session_id}#{times}")
        )


def _named(path: Path) -> Iterator[Transcript]:
    """Yield the conversations under the names that the file gives them, or its own."""
    found = records(path)
    first = list(itertools.islice(found, 1))
    found = itertools.chain(first, found)
    if any(is_exported(record) for _, record in first):
        yield from exported(found)
        return
    stem = _stem(path)
    number = 0
    for place, record in found:
        for transcript in _conversations(record, place, stem, number):
            number += 1
            yield transcript


def _stem(path: Path) -> str:
    name = path.name.removesuffix(".gz").encode(errors="replace").decode()
    return PurePosixPath(name).stem or name


# The record: which shape it has


def _conversations(record: object, place: Place, stem: str, number: int) -> Iterator[Transcript]:
    unnamed = f"{stem}/{number + 1}"
    if isinstance(record, list):
        if not is_messages(record):
            raise place.refusal("unknown_shape")
        yield _spoken(converted(record, list[_OpenaiMessage], place), place, "", unnamed)
    elif not isinstance(record, dict):
        raise place.refusal("unknown_shape")
    elif isinstance(record.get("conversation"), dict):
        yield _locomo(record, place, unnamed)
    elif "haystack_sessions" in record:
        yield from _longmemeval(record, place, stem)
    elif "messages" in record:
        yield _openai(record, place, unnamed)
    elif "turns" in record:
        yield _sgd(record, place, unnamed)
    else:
        raise place.refusal("unknown_shape")


# LoCoMo: two people over months, in dated sessions; here one long conversation


class _Locomo(msgspec.Struct):
    conversation: dict[str, Any]
    sample_id: str = ""


class _LocomoMessage(msgspec.Struct):
    speaker: str
    text: str


def _locomo(record: object, place: Place, unnamed: str) -> Transcript:
    whole = converted(record, _Locomo, place)
    numbers = sorted(
        int(found[1])
        for key in whole.conversation
        if (found := re.fullmatch(r"session_([0-9]{1,9})", key))
    )
    turns = Turns()
    visitor: str | None = None
    for number in numbers:
        key = f"session_{number}"
        # A key such as session_007 is another spelling: not ours to read.
        messages = converted(
            whole.conversation.get(key, []),
            list[_LocomoMessage],
            place,
            f".conversation.{key}",
        )
        at = _locomo_time(whole.conversation.get(f"{key}_date_time"))
        for message in messages:
            visitor = message.speaker if visitor is None else visitor
            turns.hear("visitor" if message.speaker == visitor else "agent", message.text, at)
    if not numbers:
        raise place.refusal("unknown_shape")
    name = whole.sample_id or unnamed
    return turns.transcript(name, f"{name}/{visitor}" if visitor else None)


def _locomo_time(value: object) -> datetime | None:
    """Read ``1:56 pm on 8 May, 2023``, whatever the process's locale."""
    if not isinstance(value, str):
        return None
    found = re.fullmatch(
        r"\s*(\d{1,2}):(\d{2})\s*([ap])m on (\d{1,2}) (\w+),? (\d{4})\s*", value, re.IGNORECASE
    )
    if not found:
        return None
    hour, minute, half, day, month, year = found.groups()
    if month[:3].lower() not in _MONTHS:
        return None
    return _time(
        int(year),
        _MONTHS.index(month[:3].lower()) + 1,
        int(day),
        int(hour) % 12 + (12 if half.lower() == "p" else 0),
        int(minute),
    )


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _time(year: int, month: int, day: int, hour: int, minute: int) -> datetime | None:
    try:
        return datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None


# SGD: customer service dialogues, one a line


class _SgdTurn(msgspec.Struct):
    speaker: Literal["USER", "SYSTEM"]
    utterance: str


class _Sgd(msgspec.Struct):
    turns: list[_SgdTurn]
    dialogue_id: str = ""
    source: str = ""


def _sgd(record: object, place: Place, unnamed: str) -> Transcript:
    whole = converted(record, _Sgd, place)
    turns = Turns()
    for turn in whole.turns:
        turns.hear("visitor" if turn.speaker == "USER" else "agent", turn.utterance, None)
    # The train, dev and test parts count their dialogues from the same number.
    part = str(PurePosixPath(whole.source).parent) if whole.source else "."
    name = f"{part}/{whole.dialogue_id}" if part != "." else whole.dialogue_id
    return turns.transcript(name if whole.dialogue_id else unnamed, None)


# LongMemEval: a question and the sessions that hold its answer, all of one person


class _LongMemEval(msgspec.Struct):
    haystack_sessions: list[list[_OpenaiMessage]]
    question_id: str
    haystack_session_ids: list[str] | None = None
    haystack_dates: list[str] | None = None


def _longmemeval(record: object, place: Place, stem: str) -> Iterator[Transcript]:
    row = converted(record, _LongMemEval, place)
    if not row.question_id:
        raise place.refusal("wrong_shape", where=".question_id")
    sessions = row.haystack_sessions
    ids: Sequence[str] = row.haystack_session_ids or [str(n + 1) for n in range(len(sessions))]
    dates: Sequence[str | None] = row.haystack_dates or [None] * len(sessions)
    if len(ids) != len(sessions):
        raise place.refusal("wrong_shape", where=".haystack_session_ids")
    if len(dates) != len(sessions):
        raise place.refusal("wrong_shape", where=".haystack_dates")
    for number, (session, session_id, date) in enumerate(zip(sessions, ids, dates, strict=True)):
        turns = Turns()
        where = f".haystack_sessions[{number}]"
        _hear_messages(turns, session, _longmemeval_time(date), place, where)
        yield turns.transcript(f"{row.question_id}/{session_id or stem}", row.question_id)


def _longmemeval_time(value: str | None) -> datetime | None:
    """Read ``2023/05/21 (Sun) 19:50``."""
    found = re.fullmatch(r"(\d{4})/(\d{2})/(\d{2}) \(\w+\) (\d{2}):(\d{2})", value or "")
    return _time(*(int(part) for part in found.groups())) if found else None


# OpenAI-style: what chat APIs send and fine-tuning files hold


class _OpenaiMessage(msgspec.Struct):
    role: str
    content: str | list[Any] | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None


class _Openai(msgspec.Struct):
    messages: list[_OpenaiMessage]


def _openai(record: object, place: Place, unnamed: str) -> Transcript:
    return _spoken(converted(record, _Openai, place).messages, place, ".messages", unnamed)


def _spoken(
    messages: Iterable[_OpenaiMessage], place: Place, where: str, unnamed: str
) -> Transcript:
    turns = Turns()
    _hear_messages(turns, messages, None, place, where)
    return turns.transcript(unnamed, None)


def _hear_messages(
    turns: Turns,
    messages: Iterable[_OpenaiMessage],
    at: datetime | None,
    place: Place,
    where: str,
) -> None:
    for number, message in enumerate(messages):
        if message.role in {"system", "developer"}:
            turns.counts["instructions"] += 1
        elif message.role in {"tool", "function"}:
            turns.counts["tools"] += 1
        elif message.role in {"user", "assistant"}:
            here = f"{where}[{number}]"
            calls = len(message.tool_calls or ()) + (message.function_call is not None)
            text, tools, parts = _content(message.content, place, here)
            turns.counts["tools"] += calls + tools
            turns.counts["parts"] += parts
            if text.strip() or not (calls + tools + parts):
                turns.hear("visitor" if message.role == "user" else "agent", text, at)
        else:
            raise place.refusal("unknown_role", where=f"{where}[{number}].role")


def _content(content: str | list[Any] | None, place: Place, where: str) -> tuple[str, int, int]:
    """Return the text of a message's content; with it, how many tool and other parts it had."""
    if content is None or isinstance(content, str):
        return content or "", 0, 0
    texts: list[str] = []
    tools = parts = 0
    for number, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise place.refusal("wrong_shape", where=f"{where}.content[{number}]")
        if kind in {"text", "input_text", "output_text"}:
            text = part.get("text")
            if not isinstance(text, str):
                raise place.refusal("wrong_shape", where=f"{where}.content[{number}].text")
            texts.append(text)
        elif kind.startswith(("tool_", "function_")):
            tools += 1
        else:
            parts += 1
    return "\n".join(text for text in texts if text), tools, parts
