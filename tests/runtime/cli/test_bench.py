"""`interturn bench`: measures, counts, cleans up, and ends when it is told to."""

import json
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

SHORT = ("bench", "--seconds", "0.3", "--warmup", "0.1", "--rate", "100")


def test_a_report_for_programs(interturn):
    """The figures as JSON: every turn that was asked for is recorded, refused or cut."""
    report = json.loads(interturn.process(*SHORT, "--seed", "3", "--json").stdout)
    assert report["plan"]["seed"] == 3
    assert report["finished"] is True
    assert report["asked"] == report["recorded"] + sum(report["errors"].values()) + report["cut"]
    assert report["recorded"] > 0
    for name in ("hold", "assemble", "reply", "whole", "failed"):
        assert set(report[name]) == {"count", "p50_us", "p95_us", "p99_us", "max_us"}
    whole = report["whole"]
    assert 0 < whole["p50_us"] <= whole["p95_us"] <= whole["p99_us"] <= whole["max_us"]
    assert report["commits"] > 0
    assert list(interturn.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ("Asked a second: ", "Whole turn, without the model, p99: ", "Transactions: ")),
        ("es", ("Pedidos por segundo: ", "Turno entero, sin el modelo, p99: ", "Transacciones: ")),
    ],
)
def test_a_report_for_people(interturn, language, words):
    """The same figures in words, in both languages."""
    shown = interturn(*SHORT, "--lang", language).stdout
    for word in words:
        assert word in shown


def test_refusals_are_shown_by_name(interturn):
    """Settings come from the environment too; a full mailbox stands in the report by name."""
    busy = ("--sessions", "1", "--customers", "1", "--reply-ms", "20", "--burst", "20")
    command = (*SHORT, *busy, "--warmup", "0", "--seconds", "1")
    shown = interturn(*command, INTERTURN_MAILBOX="1").stdout
    assert int(re.search(r"Error MailboxFull: (\d+)", shown)[1]) > 0


def test_a_database_of_ones_own_is_left_as_it_was(interturn):
    """After a run on a real database only its own are there; with --keep the made-up ones too."""
    path = interturn.write("a.json", interturn.conversation(3))
    files = ("--db", "m.db", "--key", "m.key")
    interturn("replay", path, *files)
    before = interturn("export", "--session", "a/1", *files).stdout
    interturn(*SHORT, *files)
    assert "Sessions: 1\n" in interturn("doctor", *files).stdout
    kept = interturn.start(*SHORT, *files, "--keep", "--json")
    out, err = kept.communicate()
    report = json.loads(out)
    assert kept.returncode == 0
    assert report["plan"]["prefix"] in err.decode()
    assert report["left_behind"] > 0
    assert "Sessions: 1\n" not in interturn("doctor", *files).stdout
    assert interturn("export", "--session", "a/1", *files).stdout == before


def test_a_value_out_of_its_range_is_refused(interturn):
    """A plan that makes no sense is refused by name, and makes no database."""
    assert "rate" in interturn.refusal("bench", "--rate", "0", "--db", "m.db")
    assert list(interturn.folder.iterdir()) == []


def test_interrupted_it_tells_what_it_has_and_leaves_nobody(interturn):
    """Ctrl-C while turns go to disk, seen on a terminal: the report so far, and clean files."""
    reader, terminal = pty.openpty()
    command = ("bench", "--seconds", "3600", "--warmup", "0", "--rate", "50", "--json")
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*interturn.command, *command, "--db", "m.db", "--key", "m.key"],
        cwd=interturn.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=interturn.environ | {"TERM": "xterm-256color", "COLUMNS": "200"},
    )
    os.close(terminal)
    seen = b""
    while not re.search(rb"on disk [1-9]", seen):
        seen += os.read(reader, 65_536)
    process.send_signal(signal.SIGINT)
    seen = b""
    try:
        while data := os.read(reader, 65_536):
            seen += data
    except OSError:  # Linux says so when the other side is closed
        pass
    os.close(reader)
    with process:
        report = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert b"stopped: " in seen
    assert report["finished"] is False
    assert report["recorded"] > 0
    assert report["asked"] == report["recorded"] + sum(report["errors"].values()) + report["cut"]
    assert report["left_behind"] == 0
    assert "Customers: 0\n" in interturn("doctor", "--db", "m.db", "--key", "m.key").stdout


def test_a_profile_of_every_task(interturn):
    """--profile writes frames of the runtime's own tasks, for speedscope or as a page."""
    pytest.importorskip("pyinstrument")
    interturn.process(*SHORT, "--profile", "p.json")
    frames = json.loads((interturn.folder / "p.json").read_text())["shared"]["frames"]
    assert any("runtime/session.py" in (frame["file"] or "") for frame in frames)
    interturn.process(*SHORT, "--profile", "p.html")
    assert "<html" in (interturn.folder / "p.html").read_text()


def test_without_the_profiler_it_says_what_to_add(interturn, monkeypatch):
    """The profiler is an extra: where it isn't installed, one line names it; nothing runs."""
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    assert "interturn[profile]" in interturn.refusal(*SHORT, "--profile", "p.json")
    assert list(interturn.folder.iterdir()) == []
