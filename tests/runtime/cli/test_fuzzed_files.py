"""Files that people hand over, damaged in every way: read, or refused with a clear error.

Transcripts, key files, settings and their variables. ``FUZZ_INPUTS=100000`` makes a
long run of it.
"""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interturn.runtime import InvalidSettings, Keyring, Settings
from interturn.runtime.cli.records import TranscriptError
from interturn.runtime.cli.refusals import sentence
from interturn.runtime.cli.texts import Texts
from interturn.runtime.cli.transcripts import read

FUZZ = settings(settings.get_profile("fuzz"))
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
WORD = "Zanahoria-4711"

SHAPES = [
    {"messages": [{"role": "user", "content": WORD}, {"role": "assistant", "content": WORD}]},
    [{"role": "user", "content": [{"type": "text", "text": WORD}]}, {"role": "assistant"}],
    {
        "sample_id": "a",
        "conversation": {
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": WORD},
                {"speaker": "Bea", "dia_id": "D1:2", "text": WORD},
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
        },
    },
    {
        "dialogue_id": "1_00000",
        "source": "train/x.json",
        "turns": [
            {"speaker": "USER", "utterance": WORD, "frames": []},
            {"speaker": "SYSTEM", "utterance": WORD},
        ],
    },
    {
        "question_id": "q",
        "haystack_session_ids": ["1"],
        "haystack_dates": ["2023/05/21 (Sun) 19:50"],
        "haystack_sessions": [
            [{"role": "user", "content": WORD}, {"role": "assistant", "content": WORD}]
        ],
    },
]
ODD = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.just(10**400),
        st.sampled_from(["user", "assistant", "tool", "", "99:99 pm on 8 May, 2023"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


def _places(value, path=()):
    """Yield the path of every value within."""
    yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(inner, (*path, key))


@st.composite
def mutated(draw):
    """Return a transcript of some shape with a value replaced, removed, doubled or moved."""
    whole = [copy.deepcopy(draw(st.sampled_from(SHAPES)))]
    for _ in range(draw(st.integers(0, 4))):
        path = draw(st.sampled_from([path for path in _places(whole) if path]))
        *way, last = path
        parent = whole
        for key in way:
            parent = parent[key]
        match draw(st.sampled_from(["replace", "remove", "double", "nest", "rename"])):
            case "replace":
                parent[last] = draw(ODD)
            case "remove":
                del parent[last]
            case "double" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[last]))
            case "nest":
                parent[last] = [parent[last]]
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(["messages", "turns", "session_2", "text", "x"]))] = (
                    parent.pop(last)
                )
            case _:
                parent[last] = None
        if not whole:
            break
    return whole


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]
INSERTED = [
    *(b"\0", b"\\ud800", b"[" * 5_000, b"9" * 6_000, b"1e999", b"NaN", b"//", b"\xff\xfe"),
    *(b'"a":1,', b'"messages":[],', b'"x":{},'),
]


def hurt(draw, data):
    """Return the bytes with one changed, some put between, or the end gone."""
    at = draw(st.integers(0, max(0, len(data) - 1)))
    match draw(st.sampled_from(["flip", "cut", "insert"])):
        case "flip":
            return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case _:
            return data[:at] + draw(st.sampled_from(INSERTED)) + data[at:]


@st.composite
def files(draw):
    """Return the bytes of a file: a mutated transcript, written in some way, then damaged."""
    dumped = [
        json.dumps(record, ensure_ascii=draw(st.booleans()))
        for record in draw(mutated()) * draw(st.integers(1, 3))
    ]
    text = draw(st.sampled_from(["\n", "", ",", "\r\n\r\n"])).join(dumped)
    data = text.encode(draw(st.sampled_from(ENCODINGS)), "surrogatepass")
    match draw(st.sampled_from(["whole", "hurt", "gzip", "hurt gzip"])):
        case "hurt":
            return hurt(draw, data)
        case "gzip":
            return gzip.compress(data)
        case "hurt gzip":
            return hurt(draw, gzip.compress(data))
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def _read(path):
    """Read a transcript: it is whole, or refused in one line that quotes nothing."""
    try:
        for transcript in read(path):
            assert transcript.session_id
            for turn in transcript.turns:
                assert turn.visitor.strip()
                assert turn.agent.strip()
                assert turn.at is None or turn.at.tzinfo is not None
    except TranscriptError as error:
        assert error.__cause__ is None
        assert error.__context__ is None
        for language in ("en", "es"):
            said = sentence(error, Texts(language))
            assert "\n" not in said
            assert WORD not in said


@FUZZ
@given(
    st.one_of(files(), files(), st.binary(max_size=200)),
    st.sampled_from(["a.json", "a.jsonl", "a.json.gz", "a"]),
)
def test_any_file_is_read_as_transcripts_or_refused(folder, data, name):
    """Whatever a file holds, it is read whole, or a `TranscriptError` that quotes nothing."""
    path = folder / name
    path.write_bytes(data)
    _read(path)


def _samples():
    """Return a few real records of each kind, as they are."""
    found = []
    for name in ("locomo", "longmemeval", "sgd"):
        for file in sorted((DATA / name).glob("*.json*"))[:1]:
            with file.open("rb") as stream:
                head = stream.read(200_000)
            found.append(head)
    return found


@FUZZ
@given(st.data())
def test_real_files_with_damage_are_read_or_refused(folder, data):
    """Real transcripts, cut and with bytes changed, are read or refused the same way."""
    samples = _samples()
    if not samples:
        pytest.skip(f"{DATA} is not there")
    whole = data.draw(st.sampled_from(samples))
    start = data.draw(st.integers(0, 2_000))
    part = bytearray(whole[:start] if data.draw(st.booleans()) else whole)
    for _ in range(data.draw(st.integers(0, 3))):
        if part:
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    path = folder / data.draw(st.sampled_from(["real.json", "real.jsonl"]))
    path.write_bytes(bytes(part))
    _read(path)


# Key files and their variable


def _keys(value):
    try:
        return Keyring.from_file(value)
    except (ValueError, PermissionError) as error:
        assert error.__cause__ is None
        assert error.__context__ is None
        return None


@st.composite
def key_files(draw):
    ring = Keyring.generate()
    key = {"interturn_keys": 1, "active": ring.active, "keys": {ring.active: "A" * 43 + "="}}
    path = draw(st.sampled_from([p for p in _places(key) if p]))
    if draw(st.booleans()):
        parent = key
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = draw(ODD)
    return hurt(draw, json.dumps(key).encode())


@FUZZ
@given(st.one_of(key_files(), st.binary(max_size=300)))
def test_any_key_file_is_read_or_refused(folder, data):
    """A key file that is damaged in any way is a `ValueError` that quotes nothing of it."""
    path = folder / "memory.key"
    path.write_bytes(data)
    path.chmod(0o600)
    ring = _keys(path)
    assert ring is None or ring.active in ring.ids


@FUZZ
@given(st.data())
def test_a_real_key_file_with_damage_is_itself_or_refused(folder, data):
    """A real key file with bytes changed gives the same keys, or is refused."""
    path = folder / "real.key"
    path.unlink(missing_ok=True)
    ring = Keyring.from_file(path, create=True)
    ring.settle()
    path.write_bytes(hurt(data.draw, path.read_bytes()))
    read_back = _keys(path)
    assert read_back is None or read_back.ids == ring.ids


@FUZZ
@given(st.text(st.characters(exclude_characters="\0"), max_size=200))
def test_any_variable_of_keys_is_read_or_refused(value):
    """A variable that holds anything but keys is a `ValueError`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERTURN_KEYS", value.encode(errors="replace").decode())
        try:
            Keyring.from_environment()
        except ValueError as error:
            assert error.__cause__ is None
            assert error.__context__ is None


# Settings and their variables

NAMES = st.one_of(st.sampled_from(Settings.__struct_fields__), st.text(max_size=10))
TOML_VALUES = st.one_of(
    st.integers().map(str), st.floats().map(str), st.text(max_size=10).map(json.dumps),
    st.sampled_from(
        [
            "9" * 5_000, "1e400", "nan", "inf", "-inf", "true", "[1, 2]", "{a = 1}", "1979-05-27",
            "[" * 3_000 + "]" * 3_000, '"""a\nb"""', "0x_", "''", "= 1", "",
        ]
    ),
)  # fmt: skip


@st.composite
def toml_files(draw):
    lines = draw(st.lists(st.tuples(NAMES, TOML_VALUES), max_size=5))
    data = "\n".join(f"{name} = {value}" for name, value in lines).encode("utf-8", "surrogatepass")
    return hurt(draw, data) if draw(st.booleans()) else data


def _loaded(path, environ):
    try:
        loaded = Settings.load(path, environ)
    except InvalidSettings as error:
        assert error.__cause__ is None
        return
    assert isinstance(loaded, Settings)
    msgspec.json.encode(loaded)


@FUZZ
@given(st.one_of(toml_files(), toml_files(), st.binary(max_size=100)))
def test_any_settings_file_is_read_or_refused(folder, data):
    """A file of settings that holds anything is read, or is `InvalidSettings`."""
    path = folder / "interturn.toml"
    path.write_bytes(data)
    _loaded(path, {})


@FUZZ
@given(
    st.dictionaries(
        NAMES,
        st.one_of(
            st.text(max_size=12),
            st.text(st.characters(), max_size=4),
            st.floats().map(str),
            st.integers().map(str),
            st.sampled_from(["9" * 5_000, "1e400", "nan", "\udcff", "٣", "1_0", " 8 ", "True"]),
        ),
        max_size=4,
    )
)
def test_any_variables_are_read_or_refused(given_):
    """Variables of any content are settings, or `InvalidSettings`."""
    _loaded(None, {f"INTERTURN_{name.upper()}": value for name, value in given_.items()})
