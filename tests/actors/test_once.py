"""What is read once is one object for all threads: none works with a copy of its own."""

# ruff: noqa: S603 - the processes are this very interpreter

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from interturn.actors.once import once

THREADS = 4

FIRST_READERS = """
import sys, threading
from datetime import UTC, datetime
from interturn.actors import language, private, rules, terms
from interturn.actors.deriver import derived
from interturn.actors.message import Message

AT = datetime(2026, 3, 3, tzinfo=UTC)
LOADERS = (rules.shelf, language.library, private._announced, terms.recalling, terms._lists)
sys.setswitchinterval(1e-5)

def read(number):
    turn = (Message(1, "visitor", "Me llamo Ana.", AT, 1), Message(2, "agent", "Bien", AT, 1))
    together.wait()
    slots.append([change.slot for change in derived(turn, [])])

def load(number):
    together.wait()
    seen.append([loader() for loader in LOADERS])

slots, seen = [], []
together = threading.Barrier(int(sys.argv[1]))
work = {"derive": read, "load": load}[sys.argv[2]]
threads = [threading.Thread(target=work, args=(n,)) for n in range(together.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if work is read:
    assert slots == [["name"]] * len(threads), slots
else:
    assert len(seen) == len(threads)
    assert all(mine is first for all_mine in seen for mine, first in zip(all_mine, seen[0]))
"""


def test_whoever_asks_first_loads_and_the_others_wait_for_it():
    """Threads that ask at once get the one object that was loaded, and it is loaded once."""
    loads, got = [], []
    together = threading.Barrier(THREADS)

    @once
    def load():
        loads.append(threading.get_ident())
        return object()

    def ask():
        together.wait()
        got.append(load())

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(got) == THREADS
    assert set(got) == {load()}


def test_a_load_that_fails_is_tried_again():
    """What couldn't be read is no answer, and keeps nobody waiting."""
    answers = [OSError("gone"), "read"]

    @once
    def load():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    outcomes = []
    for _ in range(3):
        try:
            outcomes.append(load())
        except OSError:
            outcomes.append("failed")
    assert outcomes == ["failed", "read", "read"]


@pytest.mark.parametrize("work", ["derive", "load"])
def test_first_readers_at_once_have_the_same_languages(work):
    """In a new process, threads that read before any language is loaded miss no fact by it."""
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", FIRST_READERS, str(THREADS), work],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
