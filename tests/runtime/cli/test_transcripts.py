"""What `interturn replay` reads, and what it refuses."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interturn.runtime.cli.exchanges import LeftOut, Transcript
from interturn.runtime.cli.records import TranscriptError
from interturn.runtime.cli.transcripts import read

DATA = Path(__file__).parents[3].parent / "shared" / "data"

WORD = "Zanahoria-4711"


def transcripts(path: Path) -> list[Transcript]:
    """Return all that a file holds."""
    return list(read(path))


def written(folder: Path, name: str, content: object) -> Path:
    """Write bytes or text as they are, anything else as JSON."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


def pairs(transcript: Transcript) -> list[tuple[str, str]]:
    """Return a transcript's words."""
    return [(turn.visitor, turn.agent) for turn in transcript.turns]


def user(content: object) -> dict[str, object]:
    """Return a message of the visitor."""
    return {"role": "user", "content": content}


def assistant(content: object, **more: object) -> dict[str, object]:
    """Return a message of the agent."""
    return {"role": "assistant", "content": content, **more}


# OpenAI-style


def test_messages_become_turns(tmp_path):
    """What the visitor said and what the agent replied is a turn; the name is stable."""
    path = written(
        tmp_path,
        "chat.json",
        {"messages": [user("Hola"), assistant("Buenas"), user("¿Y hoy?"), assistant("Sí")]},
    )
    (transcript,) = transcripts(path)
    assert pairs(transcript) == [("Hola", "Buenas"), ("¿Y hoy?", "Sí")]
    assert transcript.session_id == "chat/1"
    assert transcript.left_out == LeftOut()


def test_messages_of_one_side_in_a_row_are_one_joined_by_lines(tmp_path):
    """Several messages of one side in a row are one message, joined by newlines."""
    path = written(
        tmp_path, "a.json", [user("uno"), user("dos"), assistant("tres"), assistant("cuatro")]
    )
    (transcript,) = transcripts(path)
    assert pairs(transcript) == [("uno\ndos", "tres\ncuatro")]


def test_what_is_no_turn_is_left_out_and_counted(tmp_path):
    """Instructions, tools, other parts, an opening and last words are counted, never turns."""
    messages = [
        {"role": "system", "content": "sé amable"},
        {"role": "developer", "content": "y breve"},
        assistant("Bienvenida"),
        user(
            [
                {"type": "text", "text": "mira"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
                {"type": "input_text", "text": "esto"},
            ]
        ),
        assistant(None, tool_calls=[{"id": "1"}, {"id": "2"}]),
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "function", "content": "42", "name": "f"},
        assistant("Es bonito"),
        user([{"type": "tool_result", "content": "x"}]),
        user(""),
        user(None),
        user([{"type": "input_audio", "data": "…"}]),
        user("¿sigues ahí?"),
        user("¿hola?"),
    ]
    (transcript,) = transcripts(written(tmp_path, "a.json", {"messages": messages}))
    assert pairs(transcript) == [("mira\nesto", "Es bonito")]
    assert transcript.left_out == LeftOut(
        openings=1, last_words=2, instructions=2, tools=5, parts=2, empty=2
    )


@pytest.mark.parametrize(
    "content",
    [
        {"messages": [user("a"), assistant("b")]},
        [user("a"), assistant("b")],
        [{"messages": [user("a"), assistant("b")]}],
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.txt", "a"])
def test_every_wrapping_of_messages_is_read(tmp_path, content, name):
    """An object, a bare list of messages and a list of objects are the same conversation."""
    (transcript,) = transcripts(written(tmp_path, name, content))
    assert pairs(transcript) == [("a", "b")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.txt"])
@pytest.mark.parametrize("zipped", [False, True])
def test_lines_are_read_whatever_the_file_is_called(tmp_path, name, zipped):
    """JSON lines are one conversation a line, gzipped or not, blank lines between them."""
    line = json.dumps({"messages": [user("a"), assistant("b")]})
    content = f"\ufeff{line}\n\n  \n{line}\r\n{line}".encode()
    path = written(tmp_path, name + (".gz" if zipped else ""), content)
    if zipped:
        path.write_bytes(gzip.compress(content))
    found = transcripts(path)
    assert [transcript.session_id for transcript in found] == ["a/1", "a/2", "a/3"]
    assert all(pairs(transcript) == [("a", "b")] for transcript in found)


def test_a_pretty_printed_document_is_read(tmp_path):
    """A document may span lines."""
    content = json.dumps({"messages": [user("a"), assistant("b")]}, indent=2)
    (transcript,) = transcripts(written(tmp_path, "a.json", content))
    assert pairs(transcript) == [("a", "b")]


def test_texts_come_byte_for_byte(tmp_path):
    """Spaces, NUL, escapes and every script come as they are in the file."""
    text = "  \x00 línea\r\n\t<b>👩‍👩‍👧 e\u0301 \u202e عربى \\u0041 "
    path = written(tmp_path, "a.json", [user(text), assistant(text)])
    assert pairs(transcripts(path)[0]) == [(text, text)]


# The public sets' shapes, with content made up here


def locomo() -> dict[str, object]:
    """Return a conversation in LoCoMo's shape."""

    def said(who: str, text: str) -> dict[str, str]:
        return {"speaker": who, "dia_id": "D1:1", "text": text}

    return {
        "sample_id": "conv-1",
        "qa": [{"question": "?", "answer": 3}],
        "conversation": {
            "speaker_a": "Ana",
            "speaker_b": "Luis",
            "session_10": [said("Ana", "e")],
            "session_1_date_time": "12:05 am on 3 May, 2023",
            "session_1": [said("Luis", "a"), said("Ana", "b")],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [said("Luis", "c"), said("Ana", "d")],
        },
    }


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: one])
def test_locomo_is_one_long_session_whose_first_speaker_is_the_visitor(tmp_path, wrap):
    """The sessions of a LoCoMo conversation follow each other in numeric order, with dates."""
    (transcript,) = transcripts(written(tmp_path, "l.json", wrap(locomo())))
    assert pairs(transcript) == [("a", "b"), ("c", "d\ne")]
    assert transcript.session_id == "conv-1"
    assert transcript.customer == "conv-1/Luis"
    assert [turn.at for turn in transcript.turns] == [
        datetime(2023, 5, 3, 0, 5, tzinfo=UTC),
        datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
    ]


def test_sgd_dialogues_keep_their_names_also_where_parts_share_them(tmp_path):
    """USER is the visitor; a name used twice is told apart in a way that stays the same."""
    turns = [
        {"speaker": "USER", "utterance": "a", "state": {}},
        {"speaker": "SYSTEM", "utterance": "b"},
    ]
    lines = [
        {"dialogue_id": "1_0", "source": "dev/x.json", "turns": turns},
        {"dialogue_id": "1_0", "source": "test/x.json", "turns": turns},
        {"dialogue_id": "1_0", "turns": turns},
        {"dialogue_id": "1_0", "turns": turns},
    ]
    path = written(tmp_path, "s.jsonl", "\n".join(map(json.dumps, lines)))
    found = transcripts(path)
    assert [transcript.session_id for transcript in found] == [
        "dev/1_0",
        "test/1_0",
        "1_0",
        "1_0#2",
    ]
    assert all(pairs(transcript) == [("a", "b")] for transcript in found)


def test_longmemeval_sessions_are_sessions_of_one_customer(tmp_path):
    """Each haystack session is a session, each question a customer, with its date."""
    row = {
        "question_id": "q1",
        "question": "?",
        "answer": 7,
        "haystack_dates": ["2023/05/21 (Sun) 19:50", "someday"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [user("a") | {"has_answer": True}, assistant("b")],
            [assistant("c"), user("d"), assistant("e")],
        ],
    }
    path = tmp_path / "m.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    first, second = transcripts(path)
    assert (first.session_id, first.customer) == ("q1/s1", "q1")
    assert (second.session_id, second.customer) == ("q1/s2", "q1")
    assert first.turns[0].at == datetime(2023, 5, 21, 19, 50, tzinfo=UTC)
    assert second.turns[0].at is None
    assert pairs(second) == [("d", "e")]
    assert second.left_out.openings == 1


@pytest.mark.parametrize(
    ("name", "sessions", "turns"),
    [
        ("locomo/locomo_first5.json", 5, 1_348),
        ("sgd/sgd_sample.jsonl", 640, 5_998),
        ("longmemeval/oracle_even.jsonl.gz", 468, 2_736),
    ],
)
def test_the_real_files_are_read_whole(name, sessions, turns):
    """The public sets give all their conversations, each with a name of its own."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} beside the repository")
    found = transcripts(path)
    assert len(found) == sessions
    assert len({transcript.session_id for transcript in found}) == sessions
    assert sum(len(transcript.turns) for transcript in found) == turns


# Refusals


@pytest.mark.parametrize(
    ("name", "content", "reason", "line", "where"),
    [
        ("a.json", "", "empty", None, None),
        ("a.jsonl", "\n \n", "empty", None, None),
        ("a.json", f"hola {WORD}", "not_json", 1, None),
        ("a.json", f'{{"a": 1,\n"b": {WORD}}}', "not_json", 2, None),
        ("a.jsonl", f'{{"messages": []}}\n{{"{WORD}', "not_json", 2, None),
        ("a.jsonl", f'{{"messages": []}}\n"{WORD}"', "unknown_shape", 2, None),
        ("a.json", {"a": WORD}, "unknown_shape", None, None),
        ("a.json", [WORD], "unknown_shape", None, "$[0]"),
        ("a.json", [[]], "unknown_shape", None, "$[0]"),
        ("a.json", {"messages": WORD}, "wrong_shape", None, "$.messages"),
        ("a.json", [{"messages": [user(7)]}], "wrong_shape", None, "$[0].messages[0].content"),
        ("a.json", [user([{"type": 1}])], "wrong_shape", None, "$[0].content[0]"),
        ("a.json", [user([{"type": "text"}])], "wrong_shape", None, "$[0].content[0].text"),
        ("a.json", [user("a"), {"role": WORD}], "unknown_role", None, "$[1].role"),
        ("a.json", {"turns": [{"speaker": WORD, "utterance": "a"}]}, "wrong_shape", None,
         "$.turns[0].speaker"),
        ("a.json", {"conversation": {}}, "unknown_shape", None, None),
        ("a.json", {"conversation": {"session_1": [{"speaker": "a", "text": 3}]}}, "wrong_shape",
         None, "$.conversation.session_1[0].text"),
        ("a.json", {"haystack_sessions": []}, "wrong_shape", None, "$"),
        ("a.json", {"haystack_sessions": [[]], "question_id": "q", "haystack_dates": ["", ""]},
         "wrong_shape", None, "$.haystack_dates"),
        ("a.jsonl", b'{"messages": []}\n{"a": "\xff' + WORD.encode() + b'"}', "not_utf8", 2,
         None),
        ("a.json", b'{"a":\n"\xc3(' + WORD.encode() + b'"}', "not_utf8", 2, None),
        ("a.json", '[{"role": "user", "content": "\\ud800"}]', "surrogate", None, None),
        ("a.json", '"\\udc00\\ud800"', "surrogate", 1, None),
        ("a.json", "[" * 100_000, "too_deep", None, None),
        ("a.jsonl.gz", gzip.compress(b"{}" * 999, mtime=0)[:-9], "not_gzip", None, None),
        ("a.json", b"\x1f\x8bnot really", "not_gzip", None, None),
    ],
)  # fmt: skip
def test_a_file_that_cant_be_read_is_refused_by_line_and_place(
    tmp_path, name, content, reason, line, where
):
    """The error names file, line and place; it holds no word of the content, nor chains any."""
    path = written(tmp_path, name, content)
    with pytest.raises(TranscriptError) as raised:
        transcripts(path)
    error = raised.value
    assert (error.file, error.reason, error.where) == (str(path), reason, where)
    assert line in (None, error.line)
    while error is not None:
        assert WORD not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
        assert error is None


def test_what_is_no_file_is_refused(tmp_path):
    """A folder is refused, a missing file is the system's own error."""
    with pytest.raises(TranscriptError, match="not a file"):
        transcripts(tmp_path)
    with pytest.raises(FileNotFoundError):
        transcripts(tmp_path / "none.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages", "role", "content", "type", "text", "conversation", "session_1",
                    "speaker", "turns", "utterance", "dialogue_id", "haystack_sessions",
                    "question_id", "haystack_dates", "tool_calls", "source", "sample_id",
                ]
            ) | st.text(max_size=3),
            inner | st.sampled_from(["user", "assistant", "tool", "USER", "SYSTEM"]),
            max_size=4,
        )
    ),
    max_leaves=25,
)  # fmt: skip


def only_declared(path: Path) -> None:
    """Read a file: sound turns, or the one error."""
    try:
        found = transcripts(path)
    except TranscriptError:
        return
    for transcript in found:
        for turn in transcript.turns:
            assert turn.visitor.strip()
            assert turn.agent.strip()
            turn.visitor.encode()
            turn.agent.encode()


@settings(max_examples=100, deadline=None)
@given(values=st.lists(JSON, max_size=4), document=st.booleans())
def test_any_json_gives_turns_or_a_declared_error(tmp_path_factory, values, document):
    """Whatever the JSON, the reader yields sound turns or raises its one error."""
    path = tmp_path_factory.mktemp("any") / "any.json"
    content = json.dumps(values) if document else "\n".join(map(json.dumps, values))
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    only_declared(path)


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=200),
    name=st.sampled_from(["a.json", "a.jsonl", "a.jsonl.gz"]),
    start=st.sampled_from([b"", b"\x1f\x8b\x08", b'{"messages":[', b'{"messages":[]}\n']),
)
def test_any_bytes_give_turns_or_a_declared_error(tmp_path_factory, data, name, start):
    """Whatever the bytes, the reader yields sound turns or raises its one error."""
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(start + data)
    only_declared(path)
