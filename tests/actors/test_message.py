"""Values with words are discreet."""

from __future__ import annotations

from datetime import UTC, datetime

from interturn.actors import Fact, Message, Scored
from interturn.actors.session import Layers


def test_a_repr_tells_sizes_and_never_words():
    """P12: the repr of a message, a fact or layers holds no word and no id."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    message = Message(3, "visitor", "mi clave es canario", at, 5)
    fact = Fact("f-canario", "home", "vive en canario", at, at, 1, ("canario", 3), "canario")
    layers = Layers((message,), (), "resumen canario", 0, "ana-canario")
    shown = f"{message!r} {fact!r} {Scored(fact, 0.5)!r} {layers!r} {message}"
    assert "canario" not in shown
    assert "<19 characters>" in repr(message)
    assert "seq=3" in repr(message)
