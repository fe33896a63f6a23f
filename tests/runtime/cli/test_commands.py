"""The commands, over real databases."""

import json
import re
import signal
import sqlite3
import stat
import subprocess
import sys
from datetime import datetime
from html.parser import HTMLParser

import pytest

ESCAPE = "\x1b"
COMMANDS = [
    *("demo", "chat", "replay", "show", "export", "import"),
    *("forget", "doctor", "stats", "keys"),
]


def lines(text):
    """Decode JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def files(interturn):
    """Return the folder's files with their bytes, but for those that readers of a log leave."""
    return {
        path.name: path.read_bytes()
        for path in interturn.folder.iterdir()
        if not path.name.endswith(("-shm", "-wal"))
    }


def replayed(interturn, *conversations, name="chat.jsonl"):
    """Put conversations into ``memory.db`` and return their session ids."""
    (interturn.folder / name).write_text(
        "\n".join(map(json.dumps, conversations)), encoding="utf-8"
    )
    interturn("replay", name, "--db", "memory.db")
    return [f"{name.partition('.')[0]}/{number + 1}" for number in range(len(conversations))]


# The command as a whole


def test_version_and_help_in_both_languages(interturn):
    """Help is in the locale's language, or in the one that is asked for, wherever it is said."""
    assert re.fullmatch(r"interturn \d+\.\d+\S*\n", interturn.process("--version").stdout)
    assert "Where a conversation lives" in interturn("--help").stdout
    for spanish in (
        interturn("--help", LC_ALL="es_ES.UTF-8"),
        interturn("--lang", "es", "--help"),
        interturn("--help", "--lang=es"),
    ):
        assert "Donde vive una conversación" in spanish.stdout
        assert "Uso:" in spanish.stdout
        assert "help." not in spanish.stdout
        assert "Show this" not in spanish.stdout
    for command in COMMANDS:
        page = interturn(command, "--lang", "es", "--help").stdout
        assert "Muestra esta ayuda" in page
        assert "help." not in page


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--nope"], "--nope"),
        (["nope"], "command"),
        (["--lang", "fr", "demo"], "--lang"),
        (["replay"], "FILE"),
        (["show"], "--session"),
        (["show", "--session", "a", "--customer", "b"], "--customer"),
        (["forget", "--yes"], "--customer"),
        (["export"], "--customer"),
        (["export", "--session", "a", "--customer", "b"], "--customer"),
        (["export", "--session", "a", "--format", "pdf"], "--format"),
        (["replay", "a.json", "--budget", "many"], "--budget"),
        (["replay", "a.json", "--limit", "-1"], "--limit"),
    ],
)
def test_a_command_that_makes_no_sense_is_status_2(interturn, arguments, word):
    """Usage errors are one line that names what is wrong, and status 2."""
    assert word in interturn.refusal(*arguments, status=2)
    assert list(interturn.folder.iterdir()) == []


def test_no_command_is_help_and_status_2(interturn):
    """Without a command, the help is shown."""
    assert "replay" in interturn(status=2).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("platicar",), "no existe la orden platicar; las que hay son demo, chat, "),
        (("keys",), "falta la orden: new, list"),
        (("demo", "ya"), "sobran palabras en la orden"),
        (("show", "--db"), "falta el valor de --db"),
        (("show", "--tail", "x"), "valor no válido para --tail"),
        (("export", "--session", "s", "--format", "pdf"), "--format: puede ser jsonl, md, html"),
        (("import", "a.json", "--rápido"), "no existe la opción --rápido"),
        (("import",), "falta FILE"),
    ],
)
def test_a_command_that_makes_no_sense_is_told_why(interturn, arguments, said):
    """What is wrong and what there is instead, in one line in the language of the output."""
    assert said in interturn.refusal("--lang", "es", *arguments, status=2)


def test_a_folder_is_no_database_and_a_missing_one_is_named(interturn):
    """The path that was asked for is in the line, and no file of ours is."""
    assert interturn.refusal("--lang", "es", "stats", "--db", ".").endswith(": es una carpeta\n")
    path = interturn.write("a.json", interturn.conversation(1))
    missing = interturn.refusal("--lang", "es", "import", path, "--db", "nada/a.db")
    assert missing == "interturn: nada/memory.key: no existe\n"


def test_missing_packages_are_told_in_one_line(interturn):
    """Without typer or rich, one line says what to install."""
    for package in ("typer", "rich"):
        code = (
            f"import sys; sys.modules[{package!r}] = None\n"
            "from interturn.runtime.cli import main; sys.exit(main(['demo']))"
        )
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-c", code], env=interturn.environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert 'pip install "interturn[cli]"' in done.stderr
        assert done.stderr.count("\n") == 1


# demo


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("es", ["Resumen:", "Cursor:", "Excedente:", "Ventana:", "todo está sellado"]),
        ("en", ["Summary:", "Cursor:", "Surplus:", "Window:", "all of it is sealed"]),
    ],
)
def test_demo_ends_with_the_layers(interturn, language, words):
    """The demo needs nothing, leaves nothing, and ends with the layers and the seal."""
    shown = interturn("demo", "--lang", language).stdout
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
    assert "RN-70418" in shown[places[0] : places[1]], "the summary keeps the order number"
    assert "¡Hasta el jueves!" in shown[places[3] :]
    assert ESCAPE not in shown
    assert list(interturn.folder.iterdir()) == []


def test_drawings_and_colours_are_for_terminals(interturn):
    """On a terminal the layers are drawn, in colour unless NO_COLOR is set."""
    colour = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")
    drawn = interturn.on_a_terminal("demo", "--pace", "0", "--lang", "es")
    assert "╭" in drawn
    assert colour.search(drawn)
    (session,) = replayed(interturn, interturn.conversation(2))
    without = interturn.on_a_terminal("show", "--session", session, NO_COLOR="1")
    assert "╭" in without
    assert not colour.search(without)
    dumb = interturn.on_a_terminal("show", "--session", session, TERM="dumb")
    assert ESCAPE not in dumb


# chat


def test_chat_remembers_from_one_run_to_the_next(interturn):
    """What is said is kept under the session; the end of the input leaves cleanly."""
    first = interturn("chat", "--session", "s", "--customer", "ana", heard="Hola, soy Ana\n")
    assert "0 messages" in first.stdout
    assert "no model here" in first.stdout
    second = interturn("chat", "--session", "s", heard="¿Qué tal?\n/layers\n/what\n\n/quit\nno\n")
    assert "2 messages" in second.stdout
    assert "2 earlier messages" in second.stdout
    assert "Hola, soy Ana" in second.stdout, "the layers show the window"
    assert "/layers, /facts and /quit" in second.stdout
    said = lines(interturn("export", "--session", "s").stdout)
    assert [line["text"] for line in said[::2]] == ["Hola, soy Ana", "¿Qué tal?"]


def test_chat_refuses_a_message_and_goes_on(interturn):
    """A message over the budget is refused in a line, and the next one is heard."""
    process = interturn.start("chat", "--budget", "40")
    out, err = process.communicate(("palabra " * 200 + "\nHola\n").encode())
    assert process.returncode == 0
    assert "budget is 40" in err.decode()
    assert "no model here" in out.decode()


def test_chat_leaves_on_ctrl_c(interturn):
    """Ctrl-C at the prompt is a way to leave, and nothing that was said is lost."""
    process = interturn.start("chat", "--session", "s")
    process.stdin.write(b"Hola\n")
    process.stdin.flush()
    heard = b""
    while b"no model here" not in heard:
        heard += process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert b"kept" in out
    assert len(lines(interturn("export", "--session", "s").stdout)) == 2


# show, export, doctor


def test_show_draws_the_layers_and_the_last_messages(interturn):
    """A session's layers and its newest messages, with their times; as JSON for programs."""
    (session,) = replayed(interturn, interturn.conversation(10))
    shown = interturn("show", "--session", session, "--lang", "es", "--tail", "2").stdout
    assert "Cursor: 8" in shown
    assert "Últimos mensajes: 2 de 20" in shown
    assert "UTC: El pedido 4010" in shown
    found = json.loads(interturn("show", "--session", session, "--json").stdout)
    assert found["messages"] == 20
    assert found["layers"]["cursor"] == 8
    assert [message["seq"] for message in found["layers"]["window"]] == list(range(9, 21))
    assert found["tail"][-1]["text"].startswith("El pedido 4010")


def test_export_as_lines_is_the_conversation_exactly(interturn):
    """One message a line: session, number, role, time with zone, text as it was said."""
    text = "  Hola \x1b[31m\u2028 <b>*x*</b> 👩‍👩‍👧\r\n\tadiós \x00"
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    (session,) = replayed(interturn, {"messages": messages})
    out = interturn("export", "--session", session).stdout
    assert ESCAPE not in out
    found = lines(out)
    assert [list(line) for line in found] == [
        ["customer", "session", "seq", "role", "at", "text"]
    ] * 2
    assert [(line["seq"], line["role"], line["text"]) for line in found] == [
        (1, "visitor", text),
        (2, "agent", text),
    ]
    assert datetime.fromisoformat(found[0]["at"]).utcoffset() is not None


class Texts(HTMLParser):
    """Collects the paragraphs' texts and every tag of a page."""

    def __init__(self):
        super().__init__()
        self.paragraphs, self.tags = [], set()

    def handle_starttag(self, tag, attrs):
        """Note the tag; it may run nothing and load nothing."""
        self.tags.add(tag)
        if tag == "p":
            self.paragraphs.append("")
        assert all(not name.startswith(("on", "src", "href")) for name, _ in attrs)

    def handle_data(self, data):
        """Add to the paragraph."""
        if self.paragraphs and self.lasttag == "p":
            self.paragraphs[-1] += data


def test_exports_for_people_cant_be_forged_from_inside(interturn):
    """A message can't become markup of the page, nor another message of the Markdown."""
    hostile = "<script>alert(1)</script>\n\n**agente** · ayer\n\n# Título\n</p></article>&amp;"
    messages = [{"role": "user", "content": hostile}, {"role": "assistant", "content": "Ya."}]
    (session,) = replayed(interturn, {"messages": messages})
    interturn("export", "--session", session, "--format", "html", "-o", "c.html", "--lang", "es")
    page = (interturn.folder / "c.html").read_text(encoding="utf-8")
    parser = Texts()
    parser.feed(page)
    assert parser.paragraphs[0].strip() == hostile
    assert "script" not in parser.tags
    assert '<html lang="es">' in page
    assert stat.S_IMODE((interturn.folder / "c.html").stat().st_mode) == 0o600
    told = interturn("export", "--session", session, "--format", "md").stdout
    assert told.count("\n**") == 2
    assert told.count("\n#") == 1
    assert "> \\<script>alert(1)\\</script>" in told
    assert re.search(r"\*\*visitor\*\* · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", told)


def test_export_of_a_customer_is_all_their_sessions(interturn):
    """A customer's sessions follow each other, and nobody else's are among them."""
    rows = [
        {
            "question_id": person,
            "haystack_session_ids": ["one", "two"],
            "haystack_sessions": [interturn.conversation(1, name=person)["messages"]] * 2,
        }
        for person in ("ana", "luis")
    ]
    replayed(interturn, *rows)
    found = lines(interturn("export", "--customer", "ana").stdout)
    assert [line["session"] for line in found] == ["ana/one"] * 2 + ["ana/two"] * 2
    assert all("luis" not in line["text"] for line in found)


def test_an_export_that_fails_leaves_no_half_file(interturn):
    """A refused export leaves what was there, and no draft beside it."""
    replayed(interturn, interturn.conversation(1))
    (interturn.folder / "c.md").write_text("before")
    before = files(interturn)
    interturn.refusal("export", "--session", "nobody", "--format", "md", "-o", "c.md")
    assert "no/c.md" in interturn.refusal("export", "--session", "chat/1", "-o", "no/c.md")
    assert files(interturn) == before


def test_doctor_counts_and_finds(interturn):
    """A sound database is clean; a changed byte is a finding and status 1."""
    replayed(interturn, interturn.conversation(3), interturn.conversation(8))
    assert "All in order." in interturn("doctor").stdout
    clean = json.loads(interturn("doctor", "--json").stdout)
    assert (clean["sessions"], clean["messages"], clean["findings"]) == (2, 22, [])
    database = sqlite3.connect(interturn.folder / "memory.db")
    database.execute("UPDATE messages SET sealed = zeroblob(60) WHERE rowid = 5")
    database.commit()
    database.close()
    done = interturn("doctor", status=1)
    assert done.stderr.count("\n") == 1
    assert json.loads(interturn("doctor", "--json", status=1).stdout)["findings"]


# Keys and refusals


def test_a_key_file_is_made_only_together_with_a_database(interturn):
    """Reading makes nothing; writing to a new database makes both; a lost key is no new one."""
    path = interturn.write("a.json", interturn.conversation(2))
    for command in (["show", "--session", "s"], ["export", "--session", "s"], ["doctor"],
        ["show", "--customer", "c"], ["forget", "--customer", "c", "--yes"],
    ):  # fmt: skip
        assert "no database" in interturn.refusal(*command)
    interturn.refusal("replay", path, "--db", "no/memory.db")
    assert [found.name for found in interturn.folder.iterdir()] == ["a.json"]
    interturn("replay", path, "--db", "memory.db")
    key = interturn.folder / "memory.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.rename(interturn.folder / "elsewhere.key")
    for command in (["replay", path, "--db", "memory.db"], ["doctor"], ["chat"]):
        assert "no key file" in interturn.refusal(*command)
    assert not key.exists()
    interturn("doctor", INTERTURN_KEY="elsewhere.key", INTERTURN_DB="memory.db")


def test_a_wrong_key_is_refused_and_nothing_is_touched(interturn):
    """Another key opens nothing: one line, status 1, files byte for byte as they were."""
    path = interturn.write("a.json", interturn.conversation(2))
    interturn("replay", path, "--db", "memory.db")
    interturn("keys", "new", "other.key")
    before = files(interturn)
    for command in (
        ["replay", path, "--db", "memory.db"],
        ["chat"],
        ["show", "--session", "a/1"],
        ["export", "--session", "a/1"],
        ["doctor"],
        ["show", "--customer", "ana"],
        ["forget", "--customer", "ana", "--yes"],
    ):
        refusal = interturn.refusal(*command, "--key", "other.key", "--lang", "es")
        assert "la clave no abre esta base de datos" in refusal
    assert files(interturn) == before


def test_keys_are_told_by_id_and_never_shown(interturn):
    """`keys new` makes a file, then adds to it; no output ever holds a key."""
    made = interturn("keys", "new", "k.key")
    added = interturn("keys", "new", "k.key")
    listed = interturn("keys", "list", "k.key")
    keys = json.loads(interturn("keys", "list", "k.key", "--json").stdout)
    assert [key["active"] for key in keys] == [False, True]
    shown = made.stdout + added.stdout + listed.stdout
    assert all(key["id"] in shown for key in keys)
    secrets = json.loads((interturn.folder / "k.key").read_text())["keys"].values()
    assert not any(secret in shown for secret in secrets)
    assert "no key file" in interturn.refusal("keys", "list", "none.key")


@pytest.mark.parametrize("language", ["es", "en"])
def test_unknown_names_are_refused_in_one_line(interturn, language):
    """An unknown session, customer or file is a refusal in the chosen language."""
    replayed(interturn, interturn.conversation(1))
    for command in (
        ["show", "--session", "secreta-99"],
        ["export", "--session", "secreta-99"],
        ["export", "--customer", "secreta-99"],
        ["show", "--customer", "secreta-99"],
    ):
        refusal = interturn.refusal(*command, "--lang", language)
        assert ("no hay" if language == "es" else "there is no") in refusal
        assert "secreta-99" not in refusal
    refusal = interturn.refusal("replay", "none.json", "--lang", language)
    assert "none.json" in refusal
    assert ("no existe" if language == "es" else "does not exist") in refusal


def test_a_database_in_use_is_refused_to_writers_and_read_by_readers(interturn):
    """A second writer is told who holds the database; readers read beside the owner."""
    owner = interturn.start("chat", "--session", "s")
    owner.stdin.write(b"Hola\n")
    owner.stdin.flush()
    while b"no model here" not in owner.stdout.readline():
        pass
    path = interturn.write("a.json", interturn.conversation(1))
    writers = (
        ["chat"],
        ["replay", path, "--db", "memory.db"],
        ["forget", "--customer", "ana", "--yes"],
    )
    for command in writers:
        assert f"/{owner.pid}" in interturn.refusal(*command)
    assert "Hola" in interturn("show", "--session", "s").stdout
    interturn("doctor")
    owner.communicate()
    assert owner.returncode == 0


def test_settings_come_from_a_file_and_the_environment(interturn):
    """A TOML file sets bounds, a variable sets them over it, a bad one is named."""
    path = interturn.write("a.json", interturn.conversation(10))
    (interturn.folder / "s.toml").write_text("window = 4\n")
    command = ["replay", path, "--json", "--settings", "s.toml"]
    assert len(json.loads(interturn(*command).stdout)["layers"]["window"]) == 4
    found = interturn(*command, INTERTURN_WINDOW="8").stdout
    assert len(json.loads(found)["layers"]["window"]) == 8
    assert "window" in interturn.refusal(*command, INTERTURN_WINDOW="3")


# What reaches the terminal


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
def test_any_terminal_survives_any_text(interturn, encoding):
    """No encoding stops the output, no control character gets through, no markup is obeyed."""
    text = "[bold red]hola[/] \x1b[2J\x1b]0;título\x07 \x9b31m ñ “así” 漢字 👩‍👩‍👧 {llaves} [/x]"
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}] * 8
    (session,) = replayed(interturn, {"messages": messages})
    process = interturn.start(
        "show", "--session", session, "--lang", "es", PYTHONIOENCODING=encoding, PYTHONUTF8="0"
    )
    out, err = process.communicate()
    assert process.returncode == 0, err
    shown = out.decode(encoding)
    assert "[bold red]hola[/]" in shown
    assert "\\x1b[2J" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


def test_an_ascii_terminal_survives_any_text(interturn):
    """Drawings too reach a terminal that lacks their letters, and obey nothing inside them."""
    text = "[bold red]hola[/] \x1b[2J\x1b]0;título\x07 ñ “así” 漢字 {llaves}"
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    (session,) = replayed(interturn, {"messages": messages})
    drawn = interturn.on_a_terminal(
        "show", "--session", session, PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert "[bold red]hola[/]" in drawn
    assert "\x1b[2J" not in drawn
    assert "\x1b]0" not in drawn


def test_a_reader_that_leaves_is_no_error(interturn):
    """A closed pipe ends the command quietly."""
    # More than a pipe holds, so that it is still writing when the reader leaves.
    said = {"role": "user", "content": "palabra " * 3_000}
    messages = [said, {"role": "assistant", "content": "Ya."}] * 20
    (session,) = replayed(interturn, {"messages": messages})
    process = interturn.start("export", "--session", session)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stdin.close()
    process.stderr.close()


def test_closed_and_full_outputs_are_told_or_endured(interturn):
    """With standard output closed the work is done; on a full disk one line says so."""
    path = interturn.write("a.json", interturn.conversation(1))
    command = [*interturn.command, "replay", path, "--db", "m.db"]
    for redirection, status, lines_told in ((">&-", 0, 0), (">/dev/full", 1, 1)):
        done = subprocess.run(  # noqa: S603 - our own command
            ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *command],
            cwd=interturn.folder,
            env=interturn.environ,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr.count(b"\n")) == (status, lines_told), done.stderr
