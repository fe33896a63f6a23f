"""`interturn replay`: stopped anywhere and continued, it is as if it had run in one go."""

import itertools
import json
import random
import signal
from pathlib import Path

import pytest

from interturn.runtime.cli.transcripts import read

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def standing(interturn, session, database):
    """Return a session's layers and all its messages, without the times."""
    command = ["show", "--session", session, "--db", database, "--tail", "999", "--json"]
    found = json.loads(interturn(*command).stdout)
    for message in (*found["layers"]["window"], *found["layers"]["surplus"], *found["tail"]):
        del message["at"]
    return found


def transcript(interturn, session, database):
    """Return a session's messages, without the times."""
    out = interturn("export", "--session", session, "--db", database).stdout
    return [(line["seq"], line["role"], line["text"]) for line in map(json.loads, out.splitlines())]


def test_replay_shows_the_layers_and_a_table(interturn):
    """The longest session's layers, then what happened, what was left out among it."""
    conversation = interturn.conversation(9)
    conversation["messages"].insert(0, {"role": "system", "content": "sé amable"})
    path = interturn.write("a.json", [conversation, interturn.conversation(2)])
    shown = interturn("replay", path, "--lang", "es").stdout
    assert "Sesión a/1" in shown
    for row in (
        "Sesiones: 2",
        "Turnos guardados: 11",
        "Ampliaciones del resumen: 3",
        "Fuera: instrucciones: 1",
    ):
        assert row in shown
    assert "Base de datos temporal" in shown
    assert [found.name for found in interturn.folder.iterdir()] == ["a.json"]
    report = json.loads(interturn("replay", path, "--json").stdout)
    assert (report["sessions"], report["turns"], report["folds"]) == (2, 11, 3)
    assert report["layers"]["cursor"] == 6
    assert 0 < report["tokens_median"] <= report["tokens_largest"]
    assert report["bytes_per_turn"] > 0


def test_replay_twice_is_the_same_transcript(interturn):
    """The second time finds every turn there and writes none."""
    path = interturn.write("a.json", [interturn.conversation(40), interturn.conversation(3)])
    interturn("replay", path, "--db", "m.db", "--key", "m.key")
    before = interturn("export", "--session", "a/1", "--db", "m.db", "--key", "m.key").stdout
    report = json.loads(
        interturn("replay", path, "--db", "m.db", "--key", "m.key", "--json").stdout
    )
    assert (report["turns"], report["already"]) == (0, 43)
    after = interturn("export", "--session", "a/1", "--db", "m.db", "--key", "m.key").stdout
    assert after == before


def test_replay_of_a_longer_file_goes_on_where_it_stood(interturn):
    """What a file has gained since is recorded; what was there stays as it was."""
    interturn.write("a.json", interturn.conversation(40))
    interturn("replay", "a.json", "--db", "m.db")
    interturn.write("a.json", interturn.conversation(45))
    report = json.loads(interturn("replay", "a.json", "--db", "m.db", "--json").stdout)
    assert (report["turns"], report["already"]) == (5, 40)
    assert len(transcript(interturn, "a/1", "m.db")) == 90


def test_replay_goes_on_after_turns_of_others(interturn):
    """Turns said in between by others are kept; those of the file are still there once."""
    interturn.write("a.json", interturn.conversation(40))
    interturn("replay", "a.json", "--db", "memory.db")
    interturn("chat", "--session", "a/1", heard="¿Sigues ahí?\n")
    interturn.write("a.json", interturn.conversation(41))
    report = json.loads(interturn("replay", "a.json", "--db", "memory.db", "--json").stdout)
    assert (report["turns"], report["already"]) == (1, 40)
    said = transcript(interturn, "a/1", "memory.db")
    assert len(said) == 84
    assert len({text for _, _, text in said}) == 84


def test_another_conversation_under_the_same_name_is_refused(interturn):
    """A session that holds other words is refused, and a prefix makes it a new one."""
    interturn.write("a.json", interturn.conversation(20))
    interturn("replay", "a.json", "--db", "m.db")
    before = transcript(interturn, "a/1", "m.db")
    other = interturn.conversation(20)
    other["messages"][-1]["content"] = "Otra respuesta."
    interturn.write("a.json", other)
    assert "--session-prefix" in interturn.refusal("replay", "a.json", "--db", "m.db")
    interturn.write("a.json", interturn.conversation(20, name="Eva"))
    assert "--session-prefix" in interturn.refusal("replay", "a.json", "--db", "m.db")
    assert transcript(interturn, "a/1", "m.db") == before
    interturn("replay", "a.json", "--db", "m.db", "--session-prefix", "new-")
    assert len(transcript(interturn, "new-a/1", "m.db")) == 40


@pytest.mark.parametrize(("stop", "seed"), [(signal.SIGKILL, 0), (signal.SIGINT, 1)])
def test_replay_stopped_and_continued_is_as_in_one_go(interturn, stop, seed):
    """Killed at random acknowledged turns and run again: same transcript, cursor, summary."""
    turns = 18
    path = interturn.write(
        "a.json", [interturn.conversation(turns), interturn.conversation(turns, name="Luis")]
    )
    interturn("replay", path, "--db", "whole.db", "--key", "k.key")
    chance = random.Random(seed)
    for _ in range(2):
        process = interturn.start("replay", path, "--db", "cut.db", "--key", "k.key", "-v")
        acknowledged = 0
        last = chance.randrange(1, 2 * turns)
        while acknowledged < last and process.stderr.readline():
            acknowledged += 1
        process.send_signal(stop)
        _, err = process.communicate()
        # The last lines may have been on their way when the signal came.
        assert process.returncode in ({-9, 0} if stop == signal.SIGKILL else {130, 0}), err
        assert b"Traceback" not in err
    report = json.loads(
        interturn("replay", path, "--db", "cut.db", "--key", "k.key", "--json").stdout
    )
    assert report["turns"] + report["already"] == 2 * turns
    interturn.environ["INTERTURN_KEY"] = "k.key"
    for session in ("a/1", "a/2"):
        assert standing(interturn, session, "cut.db") == standing(interturn, session, "whole.db")
    interturn("doctor", "--db", "cut.db")


def test_every_acknowledged_turn_is_on_disk(interturn):
    """A turn that was told of before the kill is there after it."""
    path = interturn.write("a.json", interturn.conversation(200))
    process = interturn.start("replay", path, "--db", "m.db", "-v")
    told = [process.stderr.readline().decode().split() for _ in range(57)]
    process.kill()
    process.communicate()
    session, turn = told[-1]
    assert len(transcript(interturn, session, "m.db")) >= 2 * int(turn)


def test_turns_over_the_budget_are_recorded_and_counted(interturn):
    """What no request could hold was said all the same: it is in the transcript."""
    conversation = interturn.conversation(3)
    conversation["messages"][2]["content"] = "palabra " * 500
    path = interturn.write("a.json", conversation)
    report = json.loads(
        interturn("replay", path, "--budget", "100", "--db", "m.db", "--json").stdout
    )
    assert (report["turns"], report["over_budget"]) == (3, 1)
    assert len(transcript(interturn, "a/1", "m.db")) == 6
    assert report["tokens_largest"] <= 100


def test_a_small_budget_compacts(interturn):
    """What the budget drops is compacted, and the table says how much."""
    report = json.loads(
        interturn(
            "replay",
            interturn.write("a.json", interturn.conversation(20)),
            "--budget",
            "160",
            "--json",
        ).stdout
    )
    assert report["compacting"] > 0
    assert report["compacted"] > 0
    assert report["tokens_largest"] <= 160


def test_a_broken_line_is_told_before_anything_is_written(interturn):
    """The whole file is read first: a broken line near its end leaves no database behind."""
    good = json.dumps(interturn.conversation(2))
    (interturn.folder / "a.jsonl").write_text(f"{good}\n{good}\n{{zanahoria", encoding="utf-8")
    refusal = interturn.refusal("replay", "a.jsonl", "--db", "m.db", "--lang", "es")
    assert "a.jsonl, línea 3: no es JSON" in refusal
    assert "zanahoria" not in refusal
    assert not (interturn.folder / "m.db").exists()


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("locomo/locomo_first5.json", 1),
        ("sgd/sgd_sample.jsonl", 40),
        ("longmemeval/oracle_even.jsonl.gz", 40),
    ],
)
def test_real_conversations_go_through_whole(interturn, name, limit):
    """Of each public set the first are replayed to their end, and the doctor finds nothing."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} beside the repository")
    there = [len(found.turns) for found in itertools.islice(read(path), limit)]
    command = ["replay", str(path), "--limit", str(limit), "--db", "m.db", "--json"]
    report = json.loads(interturn(*command).stdout)
    assert (report["sessions"], report["turns"]) == (sum(map(bool, there)), sum(there))
    assert report["facts_per_100_turns"] >= 0
    examined = json.loads(interturn("doctor", "--db", "m.db", "--json").stdout)
    assert examined["findings"] == []
    assert examined["sessions"] == report["sessions"]
    assert examined["messages"] == 2 * report["turns"]
    assert examined["facts"] == report["facts"]
