"""The window: the newest messages and the surplus, with no gap between them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors import Message
from interturn.actors.window import OutOfOrder, Window


def turns(count):
    return [(f"pregunta {i}", f"respuesta {i}") for i in range(count)]


def test_the_window_is_the_newest_twelve_word_for_word(counter, said):
    """P5: the window is the newest 12 messages, the surplus whatever is older."""
    messages = said(counter, *turns(10))
    window = Window(12, 0, messages)
    assert window.newest == messages[-12:]
    assert window.surplus == messages[:8]
    assert window.surplus_count == 8


def test_few_messages_are_all_window(counter, said):
    """P5: before there are 12, the window is all there is and there is no surplus."""
    window = Window(12, 0, said(counter, *turns(2)))
    assert (len(window.newest), window.surplus, window.last) == (4, (), 4)


@given(st.integers(0, 30), st.integers(0, 70))
def test_a_message_is_in_exactly_one_place(count, cursor):
    """P6: folded, surplus or window: each message in one, at any cursor that is allowed."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    messages = [
        Message(seq, "visitor" if seq % 2 else "agent", f"{seq}", at, 1)
        for seq in range(1, 2 * count + 1)
    ]
    window = Window(12, 0, messages)
    if cursor > window.surplus_count:
        with pytest.raises(OutOfOrder):
            window.fold_through(cursor)
        cursor = 0
    else:
        window.fold_through(cursor)
    held = [m.seq for m in (*window.surplus, *window.newest)]
    assert held == list(range(cursor + 1, 2 * count + 1))
    assert window.tokens == len(held)
    assert window.last == 2 * count


def test_the_cursor_never_goes_back(counter, said):
    """P6: a fold that ends before the cursor is refused."""
    window = Window(2, 0, said(counter, *turns(5)))
    window.fold_through(6)
    with pytest.raises(OutOfOrder):
        window.fold_through(4)
    assert window.cursor == 6


def test_a_gap_is_refused(counter, said):
    """P6: a message that doesn't follow the one before it is never taken in."""
    window = Window(12, 0, said(counter, *turns(1)))
    with pytest.raises(OutOfOrder):
        window.extend(said(counter, ("tarde", "ya"), after=3))
    assert window.last == 2


def test_find_reads_only_what_is_not_folded(counter, said):
    """A message is found by its number while it is held, and not before or after."""
    window = Window(2, 0, said(counter, *turns(4)))
    window.fold_through(4)
    assert window.find(4) is None
    assert window.find(5).text == "pregunta 2"
    assert window.find(9) is None
