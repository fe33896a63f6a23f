"""Long reading pauses where that was asked for, and nowhere else."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest

from interturn.actors import Extractive, Message, Summary
from interturn.actors.deriver import derived
from interturn.actors.pace import breathe, breathing

AT = datetime(2026, 3, 3, tzinfo=UTC)
SENTENCES = 40
TEXT = " ".join(f"Vivo en la calle Betis {number} de Sevilla." for number in range(SENTENCES))
TURN = (Message(1, "visitor", TEXT, AT, 500), Message(2, "agent", "Vale.", AT, 2))


class Bytes:
    name = "bytes"
    byte_level = True

    def count(self, text):
        return len(text.encode())


@pytest.mark.parametrize(
    "read",
    [lambda: derived(TURN, ()), lambda: Extractive(Bytes()).extract(Summary(), TURN, 4_000)],
    ids=["deriving", "summarizing"],
)
def test_reading_pauses_at_every_sentence(read):
    """What reads a long text pauses at least once for each sentence, and finds the same."""
    pauses = []
    with breathing(lambda: pauses.append(1)):
        found = read()
    assert len(pauses) >= SENTENCES
    assert found == read()


def test_outside_nobody_pauses():
    """A pause ends with its block, also after an error."""
    pauses = []

    with contextlib.suppress(KeyError), breathing(lambda: pauses.append(1)):
        breathe()
        raise KeyError
    breathe()
    assert pauses == [1]
