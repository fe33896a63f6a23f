"""`interturn import`, `stats` and `--keys`, over real databases."""

import json
import random
import shutil
import signal
import sqlite3

import pytest

ODD = "  a\r\nb\t\u2028\x07 ñ «ü» 👩‍👧\n"


def lines(text):
    """Decode JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def exported(interturn, session, *more):
    """Return a session's messages as `export` writes them."""
    return lines(interturn("export", "--session", session, *more).stdout)


def test_what_was_exported_comes_back_as_it_was(interturn):
    """Export, import elsewhere, export: the same customer, sessions, roles, texts and times."""
    said = interturn.conversation(20)
    said["messages"][4]["content"] = said["messages"][5]["content"] = ODD
    interturn.write("a.json", [said, interturn.conversation(3, name="Eva")])
    interturn("import", "a.json", "--customer", "ana")
    interturn("chat", "--session", "a/1", heard="¿Sigues ahí?\n")
    interturn("export", "--customer", "ana", "-o", "ana.jsonl")
    interturn("import", "ana.jsonl", "--db", "b.db")
    interturn("export", "--customer", "ana", "-o", "again.jsonl", "--db", "b.db")
    found = {}
    for name in ("ana.jsonl", "again.jsonl"):
        text = (interturn.folder / name).read_text(encoding="utf-8")
        found[name] = sorted(text.splitlines())
    assert found["again.jsonl"] == found["ana.jsonl"]
    texts = [line["text"] for line in map(json.loads, found["ana.jsonl"])]
    assert (len(texts), texts.count(ODD)) == (48, 2)
    interturn("doctor", "--db", "b.db")


def test_import_says_one_line_and_the_second_time_adds_nothing(interturn):
    """The line counts what was written, what was there, and what is no turn."""
    conversation = interturn.conversation(9)
    conversation["messages"].insert(0, {"role": "system", "content": "sé amable"})
    path = interturn.write("a.json", [conversation, interturn.conversation(2)])
    first = interturn("import", path).stdout
    assert first == "Sessions: 2. Turns recorded: 11; there already: 0. Left out: 1.\n"
    before = exported(interturn, "a/1"), exported(interturn, "a/2")
    again = json.loads(interturn("import", path, "--json").stdout)
    assert (again["sessions"], again["turns"], again["already"]) == (2, 0, 11)
    assert again["left_out"]["instructions"] == 1
    assert (exported(interturn, "a/1"), exported(interturn, "a/2")) == before
    spanish = interturn("import", path, "--lang", "es", "--session-prefix", "x-").stdout
    assert spanish == "Sesiones: 2. Turnos guardados: 11; ya estaban: 0. Excluidos: 1.\n"


def test_what_was_replayed_is_there_for_import(interturn):
    """Both name a turn by its place, so the one finds what the other wrote."""
    path = interturn.write("a.json", interturn.conversation(15))
    interturn("replay", path, "--db", "memory.db")
    done = json.loads(interturn("import", path, "--json").stdout)
    assert (done["turns"], done["already"]) == (0, 15)


@pytest.mark.parametrize("command", ["import", "replay"])
def test_a_session_of_others_is_refused_not_doubled(interturn, command):
    """An export that comes back to where it was taken from adds no turn a second time."""
    interturn("chat", "--session", "s", heard="Hola.\n¿Qué tal?\n")
    interturn("export", "--session", "s", "-o", "s.jsonl")
    before = exported(interturn, "s")
    refusal = interturn.refusal(command, "s.jsonl", "--db", "memory.db")
    assert "--session-prefix" in refusal
    assert exported(interturn, "s") == before


@pytest.mark.parametrize(("stop", "seed"), [(signal.SIGKILL, 0), (signal.SIGINT, 1)])
def test_import_killed_and_run_again_is_as_in_one_go(interturn, stop, seed):
    """Stopped at random turns and run again, every turn is there once, in order."""
    turns = 60
    path = interturn.write(
        "a.json", [interturn.conversation(turns), interturn.conversation(turns, name="Luis")]
    )
    chance = random.Random(seed)
    for _ in range(2):
        process = interturn.start("import", path, "-v")
        for _ in range(chance.randrange(1, turns)):
            process.stderr.readline()
        process.send_signal(stop)
        _, err = process.communicate()
        assert process.returncode in {-stop, 130, 0}, err
        assert b"Traceback" not in err
    done = json.loads(interturn("import", path, "--json").stdout)
    assert done["turns"] + done["already"] == 2 * turns
    assert done["already"] > 0
    for number, name in ((1, "Ana"), (2, "Luis")):
        expected = [m["content"] for m in interturn.conversation(turns, name=name)["messages"]]
        assert [m["text"] for m in exported(interturn, f"a/{number}")] == expected
    interturn("doctor")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda found: found.pop(1), "line 1"),
        (lambda found: found.pop(), "line 3"),
        (lambda found: found[2].update(role="agent"), "line 3"),
        (lambda found: found[3].update(seq=5), "line 3"),
        (lambda found: found[3].update(at="2024-01-01T00:00:00"), "line 4"),
        (lambda found: found[1].pop("text"), "line 2"),
    ],
)
def test_an_export_that_is_no_turns_is_refused_by_line(interturn, change, where):
    """Lines of which one is missing or changed are no conversation; nothing is written."""
    interturn("chat", "--session", "s", heard="Hola.\n¿Qué tal?\n")
    found = exported(interturn, "s")
    change(found)
    text = "\n".join(map(json.dumps, found))
    (interturn.folder / "s.jsonl").write_text(text, encoding="utf-8")
    assert where in interturn.refusal("import", "s.jsonl", "--db", "b.db")
    assert not (interturn.folder / "b.db").exists()


def test_stats_count_what_is_there(interturn):
    """Counts, times, schema and bytes agree with what was written; nobody owns it."""
    interturn.write(
        "a.jsonl",
        [
            {"role": "user", "content": "Hola, soy Ana."},
            {"role": "assistant", "content": "Hola, Ana."},
        ],
    )
    interturn("import", "a.jsonl")
    interturn.write("b.json", [interturn.conversation(20), interturn.conversation(1)])
    interturn("import", "b.json", "--customer", "ana")
    before = {path.name: path.read_bytes() for path in interturn.folder.iterdir()}
    found = json.loads(interturn("stats", "--json").stdout)
    assert {path.name: path.read_bytes() for path in interturn.folder.iterdir()} == before
    counted = [found[name] for name in ("customers", "sessions", "messages", "turns", "summaries")]
    assert counted == [2, 3, 44, 22, 1]
    examined = json.loads(interturn("doctor", "--json").stdout)
    assert found["facts"] == examined["facts"] > 0
    assert found["bytes"] == (interturn.folder / "memory.db").stat().st_size
    times = sorted(m["at"] for s in ("a/1", "b/1", "b/2") for m in exported(interturn, s))
    assert (found["oldest"], found["newest"]) == (times[0], times[-1])
    with sqlite3.connect(interturn.folder / "memory.db") as connection:
        [(version,)] = connection.execute("PRAGMA user_version")
    assert (found["schema"], found["owner"], found["since"]) == (version, None, None)
    shown = interturn("stats", "--lang", "es").stdout
    for row in ("Clientes: 2", "Mensajes: 44", "Resúmenes: 1", "Nadie la tiene abierta"):
        assert row in shown


def test_stats_list_the_sessions(interturn):
    """Each session with whose it is, how many messages, and the time of the newest."""
    interturn.write("b.json", [interturn.conversation(20), interturn.conversation(1)])
    interturn("import", "b.json", "--customer", "ana")
    interturn("chat", "--session", "s", heard="Hola.\n")
    found = lines(interturn("stats", "--sessions", "--json").stdout)
    listed = [(entry["session"], entry["customer"], entry["messages"]) for entry in found]
    assert sorted(listed) == [("b/1", "ana", 40), ("b/2", "ana", 2), ("s", None, 2)]
    for entry in found:
        assert entry["last"] == exported(interturn, entry["session"])[-1]["at"]
    shown = interturn("stats", "--sessions").stdout.splitlines()
    assert [line.count(" · ") for line in shown] == [3, 3, 3]
    assert any(line.startswith("s · anonymous · messages: 2 · last: ") for line in shown)


def test_stats_of_an_empty_database(interturn):
    """Nothing is zero and no times; and the doctor says that it had nothing to check."""
    interturn("chat", heard="")
    found = json.loads(interturn("stats", "--json").stdout)
    assert (found["messages"], found["oldest"], found["newest"]) == (0, None, None)
    assert interturn("stats", "--sessions").stdout == ""
    assert "nothing to check" in interturn("doctor").stdout
    assert "nada que comprobar" in interturn("doctor", "--lang", "es").stdout
    interturn("chat", heard="Hola, me llamo Ana.\n")
    assert "All in order" in interturn("doctor").stdout


def test_stats_beside_an_owner_tell_who_it_is(interturn):
    """Reads beside a live owner, names it, and sees what it wrote; another key is refused."""
    process = interturn.start("chat", "--session", "s")
    process.stdout.readline()
    found = json.loads(interturn("stats", "--json").stdout)
    assert found["owner"].endswith(f"/{process.pid}")
    assert found["since"] is not None
    assert f"/{process.pid} since" in interturn("stats").stdout
    process.communicate(b"Hola.\n")
    assert json.loads(interturn("stats", "--json").stdout)["owner"] is None
    interturn("keys", "new", "other.key")
    for more in ((), ("--sessions",)):
        assert "doesn't open" in interturn.refusal("stats", "--key", "other.key", *more)


@pytest.mark.parametrize("more", [(), ("--sessions",)])
def test_a_time_that_is_none_is_refused(interturn, more):
    """Times are read without their seal; one that no calendar has is told in one line."""
    interturn("chat", "--session", "s", heard="Hola.\n")
    with sqlite3.connect(interturn.folder / "memory.db") as connection:
        connection.execute("UPDATE messages SET at = ?", (2**62,))
    assert "were changed" in interturn.refusal("stats", *more)


COMMANDS = [
    ("chat",),
    ("import", "a.json"),
    ("replay", "a.json"),
    ("show", "--session", "a/1"),
    ("export", "--session", "a/1"),
    ("stats",),
    ("doctor",),
    ("forget", "--customer", "ana", "--yes"),
]


@pytest.fixture
def apart(interturn):
    """Return `interturn` beside two databases with keys apart, one with keys inside, and a file."""
    interturn.write("a.json", interturn.conversation(9))
    for name in ("a", "b"):
        files = ("--db", f"{name}.db", "--keys", f"{name}.keys")
        interturn("import", "a.json", "--customer", "ana", *files)
    interturn("import", "a.json", "--customer", "ana", "--db", "inside.db")
    return interturn


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_keys_apart(apart, command):
    """With its keys file a database opens, and the customers' keys are in no other."""
    done = apart(*command, "--db", "a.db", "--keys", "a.keys")
    assert done.stdout
    with sqlite3.connect(apart.folder / "a.db") as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "customer_keys" not in tables


@pytest.mark.parametrize("command", [COMMANDS[1], COMMANDS[3]])
@pytest.mark.parametrize(
    ("database", "keys", "english", "spanish"),
    [
        ("a.db", None, "name it with --keys", "indíquelo con --keys"),
        ("a.db", "b.keys", "belong to another database", "son de otra base de datos"),
        ("a.db", "gone.keys", "is missing or empty", "falta el archivo"),
        ("a.db", "empty.keys", "is missing or empty", "falta el archivo"),
        ("a.db", "a.json", "not a file of interturn", "no es un archivo de interturn"),
        ("a.db", "a.db", "a file of their own", "un archivo propio"),
        ("inside.db", "a.keys", "without --keys", "sin --keys"),
    ],
)
def test_the_wrong_keys_file_is_refused(apart, command, database, keys, english, spanish):
    """Without its keys file, or with another, nothing opens, changes or appears."""
    (apart.folder / "empty.keys").touch()
    before = {path.name: path.read_bytes() for path in apart.folder.iterdir()}
    named = () if keys is None else ("--keys", keys)
    for language, words in (("en", english), ("es", spanish)):
        assert words in apart.refusal(*command, "--db", database, *named, "--lang", language)
    assert {path.name: path.read_bytes() for path in apart.folder.iterdir()} == before


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_opens_without_the_keys_file(apart, command):
    """Each of them refuses a database with keys apart when no file is named, or another's."""
    assert "name it with --keys" in apart.refusal(*command, "--db", "a.db")
    refusal = apart.refusal(*command, "--db", "a.db", "--keys", "b.keys")
    assert "belong to another database" in refusal


def test_a_copy_without_its_keys_cant_be_read(apart):
    """What `--keys` is for: a copy of the database is nothing after the customer is forgotten."""
    shutil.copy(apart.folder / "a.db", apart.folder / "copy.db")
    apart("forget", "--customer", "ana", "--yes", "--db", "a.db", "--keys", "a.keys")
    refusal = apart.refusal("export", "--session", "a/1", "--db", "copy.db", "--keys", "a.keys")
    assert "doesn't open" in refusal
