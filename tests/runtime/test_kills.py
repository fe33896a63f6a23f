"""Killed at any moment, round after round over one database: every promise that was given holds.

A child process serves turns and says what it has promised; this one kills it and reads
what is there. Most rounds are read without opening the runtime, so that a crash often
meets what a crash has left; the others let it catch up and close.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest

from interturn.runtime import Settings
from interturn.runtime.archive import Archive

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("kills_child.py")
CUSTOMERS = (("web", "tel"), ("mail",), ("shop",), ("anon",), ("stray",))
NAMES = tuple(chain.from_iterable(CUSTOMERS))
HOUR_S = 3_600


class Ledger:
    """What children have promised so far, for each session.

    Attributes:
        recorded: the text of each turn that was acknowledged, by its sequence number.
        cursors: the newest cursor that anybody has seen.
        left: what was left without a reply, and is in no transcript.
        held: what a child that keeps unanswered words held when it died.
        pending: deliveries handed out and not acknowledged, to be delivered again.
        brought: deliveries that were brought again. Those that are no
            longer known in memory are found out at the commit, and held till then.
        said: what visitors said, for each session, as it was read last.
    """

    def __init__(self) -> None:
        self.recorded: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.cursors: defaultdict[str, int] = defaultdict(int)
        self.left: set[str] = set()
        self.held: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self.brought: set[str] = set()
        self.said: dict[str, list[str]] = {}
        self.turns = self.again = self.kept = 0

    def take(self, line: str, *, keep: bool) -> str:
        """Take in what a child says, and return its kind."""
        said = json.loads(line)
        kind = said.pop("kind")
        match kind:
            case "open":
                self.opened(said["unanswered"])
            case "held":
                self.left.discard(said["text"])  # it was brought again
                if keep:
                    self.held[said["session"]] = said["text"]
                if said["delivery"] is not None:
                    self.pending[said["text"]] = said["session"]
            case "left":
                if said["text"] not in self.said[said["session"]]:
                    self.left.add(said["text"])
                self.held.pop(said["session"], None)
                self.pending.pop(said["text"], None)
            case "recorded":
                self.record(**said)
        return kind

    def opened(self, unanswered) -> None:
        """Hold what the next owner finds unanswered to what was held and to what was recorded."""
        found = {(session, text) for session, text in unanswered}
        for session, text in self.held.items():
            assert (session, text) in found or text in self.said[session], "kept words are gone"
        for session, text in found:
            answered = text in self.said[session]
            assert not answered or text in self.brought, "an answered turn's words are still there"
            self.left.discard(text)  # it died before the words were gone: they are answered yet
        self.held.clear()
        self.kept += len(found)

    def record(self, session, text, seq, cursor, again):
        known = self.recorded[session].setdefault(seq, text)
        assert known == text, "two turns at one place"
        assert cursor >= self.cursors[session], "a cursor went back"
        self.cursors[session] = cursor
        self.pending.pop(text, None)
        if self.held.get(session) == text:
            del self.held[session]
        self.turns += not again
        self.again += again

    def redelivered(self, chance: random.Random) -> list[tuple[str, str]]:
        """What a transport would bring again: all that had no answer, and some that had."""
        answered = [
            (name, text)
            for name, turns in self.recorded.items()
            for text in turns.values()
            if _number(text) % 2
        ]
        some = chance.sample(answered, min(3, len(answered)))
        again = [(name, text) for text, name in self.pending.items()] + some
        self.brought.update(text for _, text in again)
        return again


def _number(text: str) -> int:
    return int(text.rpartition("(")[2].rstrip(")"))


def _live_and_die(path, key, number, chance, ledger) -> str:
    """Let a child live for a round; return how it came to its end."""
    moment = chance.choices(("opening", "talking", "closing"), (2, 8, 2))[0]
    plan = {
        "round": number,
        "seed": chance.randrange(1 << 32),
        "keep": number % 2 == 0,
        "turns": chance.randrange(1, 25) if moment == "closing" else 5_000,
        "again": ledger.redelivered(chance),
    }
    command = [sys.executable, str(SCRIPT), str(path), str(key), json.dumps(plan)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - its own script
    with child:
        awaited = "recorded" if moment == "talking" else moment
        for _ in range(chance.randrange(1, 60) if moment == "talking" else 1):
            while line := child.stdout.readline():
                if ledger.take(line, keep=plan["keep"]) == awaited:
                    break
        for _ in range(chance.randrange(1 << chance.randrange(10, 19))):
            pass  # so that it dies at any point of what it does now, not only after a promise
        child.kill()
        for line in child.stdout:
            moment = ledger.take(line, keep=plan["keep"])
    assert child.returncode == (0 if moment == "closed" else -9)
    return moment


async def _check(archive, ledger) -> None:
    """Hold what rests to what was promised."""
    for name in NAMES:
        messages = [message async for message in archive.transcript(name)]
        assert [m.seq for m in messages] == list(range(1, len(messages) + 1))
        assert [m.role for m in messages] == ["visitor", "agent"] * (len(messages) // 2)
        texts = ledger.said[name] = [m.text for m in messages[::2]]
        assert [m.text for m in messages[1::2]] == [f"re: {text}" for text in texts]
        assert len(texts) == len(set(texts)), "a turn is doubled"
        recorded = ledger.recorded[name]
        assert {seq: texts[seq // 2] for seq in recorded} == recorded
        assert not ledger.left & set(texts)
        layers = await archive.session(name)
        if layers is not None:
            assert layers.cursor >= ledger.cursors[name], "a cursor went back"
            ledger.cursors[name] = layers.cursor
    diagnosis = await archive.doctor()
    assert diagnosis.findings == ()
    assert not diagnosis.messages or diagnosis.looked_for


async def _catch_up(runtime, ledger, balanced) -> None:
    """Let the runtime learn what is left over: each turn has taught once, whoever died."""
    ledger.opened([(found.session_id, found.text) for found in await runtime.unanswered()])
    await runtime.flush()
    for names in CUSTOMERS:
        told = sum(text.startswith("Me llamo") for name in names for text in ledger.said[name])
        facts = {f.slot: f for f in await runtime.session(names[0]).customer.facts()}
        assert (facts["name"].sightings if "name" in facts else 0) == told
    balanced(runtime, at_rest=True)


@pytest.mark.parametrize(
    ("rounds", "seed"), [(20, 1), pytest.param(200, 2, marks=pytest.mark.long)]
)
async def test_killed_round_after_round(opened, path, keyring, tmp_path, rounds, seed, balanced):
    """No promised turn is missing or doubled, none is half, no cursor goes back, all is sound."""
    key = tmp_path / "memory.key"
    keyring.save(key)
    chance, ledger = random.Random(seed), Ledger()
    ends: Counter[str] = Counter()
    async with opened(settings=Settings(lease_s=HOUR_S)):
        pass  # so that there is a database to read, however early the first child dies
    for number in range(1, rounds + 1):
        print(f"seed {seed}, round {number}")  # noqa: T201 - shown where a round fails
        ends[_live_and_die(path, key, number, chance, ledger)] += 1
        async with Archive.open(path, keyring=keyring) as archive:
            await _check(archive, ledger)
        if chance.random() < 0.3:
            # The dead owner's lease has most of an hour to go: the lock tells that it is dead.
            async with opened(settings=Settings(window=4, lease_s=HOUR_S)) as runtime:
                await _catch_up(runtime, ledger, balanced)
    print(f"{dict(ends)}, {ledger.turns} turns, {ledger.again} again, {ledger.kept} kept")  # noqa: T201
    assert ledger.turns > 10 * rounds
    assert ledger.again
    assert ledger.kept
