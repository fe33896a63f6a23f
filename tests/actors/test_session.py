"""The session actor alone: decide changes nothing, apply does, folds come once and in order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from interturn.actors import Extractive, TurnClosed
from interturn.actors.commands import (
    WAIT,
    Answer,
    Asked,
    FoldDone,
    FoldFailed,
    Granted,
    Known,
    Now,
    Persist,
    Pruned,
    Record,
    Release,
    Released,
    SummaryLaid,
    Take,
    Taken,
    TurnRecorded,
)
from interturn.actors.message import Message
from interturn.actors.session import TAKEOVER, Limits, SessionActor
from interturn.actors.window import OutOfOrder

AT = datetime(2026, 3, 3, tzinfo=UTC)


@pytest.fixture
def actor(counter):
    """A session at its beginning, with room for three delivery ids."""
    return SessionActor(Limits(deliveries=3), counter, Extractive(counter))


def commit(actor, decision):
    """Do what the writer does: the turn is on disk, apply what follows."""
    turn = decision.what
    said = (
        Message(turn.seq, "visitor", turn.visitor, turn.at, actor.count(turn.visitor)),
        Message(turn.seq + 1, "agent", turn.agent, turn.at, actor.count(turn.agent)),
    )
    event = TurnRecorded(turn, said)
    actor.apply(event)
    return event


def record(actor, visitor, agent="vale", delivery=None):
    return commit(actor, actor.decide(Record(visitor, agent, AT, delivery)))


def fold(actor, task, addition):
    laid = task.summary.lay(
        addition,
        through=task.leaving[-1].seq,
        cap_tokens=400,
        count=actor.count,
        leaving=task.leaving,
    )
    decision = actor.decide(FoldDone(task, laid))
    assert isinstance(decision, Persist)
    actor.apply(decision.what)


def test_deciding_changes_nothing(actor):
    """Until its event is applied, a decision leaves no trace: memory never runs ahead of disk."""
    before = repr(actor)
    for command in (Take(1), Record("hola", "buenas", AT), Release(9)):
        actor.decide(command)
        actor.decide(command)
    assert repr(actor) == before
    assert actor.layers().window == ()


def test_a_turn_is_taken_answered_and_free_again(actor):
    """A held turn makes others wait; its reply is recorded after the newest and frees it."""
    taken = actor.decide(Take(1))
    assert taken == Now(Taken(1), Granted())
    actor.apply(taken.event)
    assert actor.decide(Take(2)) is WAIT
    assert actor.decide(Record("otra", "cosa", AT)) is WAIT
    decision = actor.decide(Answer(1, "hola", "buenas", AT))
    assert decision.what.seq == 1
    commit(actor, decision)
    assert [m.text for m in actor.layers().window] == ["hola", "buenas"]
    assert actor.decide(Take(2)) == Now(Taken(2), Granted())


def test_an_abandoned_turn_writes_nothing_and_frees_the_session(actor):
    """Leaving without a reply leaves the session as it was."""
    actor.apply(actor.decide(Take(1)).event)
    actor.apply(actor.decide(Release(1)).event)
    assert actor.held is None
    assert actor.last == 0


def test_what_is_asked_comes_to_rest_before_the_turn_is_taken(actor):
    """And is taken from the disk when the turn is left; once answered there is nothing to take."""
    asked = Asked(1, "hola", AT, "d")
    assert actor.decide(Take(1, None, asked)) == Persist(asked)
    actor.apply(Taken(1, kept=True))
    assert actor.decide(Take(2, None, Asked(2, "¿sí?", AT, None))) == WAIT
    assert actor.decide(Release(1)) == Persist(Released(1))
    commit(actor, actor.decide(Answer(1, "hola", "buenas", AT, b"d")))
    assert actor.decide(Take(3, b"d", asked)) == Now(reply=Known(1))
    actor.apply(Taken(3))
    assert actor.decide(Release(3)) == Now(Released(3))


def test_a_pruned_delivery_is_forgotten(actor):
    """What the store knows no more isn't known here; the window and the rest are as before."""
    for number in range(3):
        record(actor, "hola", delivery=b"%d" % number)
    actor.apply(Pruned(2))
    assert actor.decide(Take(1, b"0")).reply == Granted()
    assert actor.decide(Take(1, b"1")).reply == Known(3)
    assert actor.last == 6


def test_releasing_what_is_not_held_is_no_error(actor):
    """A late release never frees another's turn."""
    actor.apply(Taken(2))
    assert actor.decide(Release(1)) == Now()
    assert actor.held == 2
    actor.apply(Released(2))


def test_only_the_holder_may_answer(actor):
    """An answer under a ticket that isn't held is refused and nothing is written."""
    with pytest.raises(TurnClosed):
        actor.decide(Answer(1, "hola", "buenas", AT))
    actor.apply(Taken(2))
    with pytest.raises(TurnClosed):
        actor.decide(Answer(1, "hola", "buenas", AT))


def test_a_known_delivery_is_named_not_taken(actor):
    """P4: the same delivery id is answered with the turn that it was; the oldest ids go first."""
    for i in range(4):
        record(actor, f"v{i}", delivery=bytes([i]))
    assert actor.decide(Take(1, b"\3")) == Now(reply=Known(7))
    assert actor.decide(Record("v3", "x", AT, b"\3")) == Now(reply=Known(7))
    assert isinstance(actor.decide(Record("v0", "x", AT, b"\0")), Persist)


def test_each_message_is_folded_once_in_order(actor):
    """P6: what leaves the window is handed out once, whole turns, oldest first."""
    folded = []
    for i in range(60):
        record(actor, f"El pedido {4_000 + i} es mío", f"Queda anotado el {4_000 + i}")
        while (task := actor.fold_due()) is not None:
            folded += [m.seq for m in task.leaving]
            fold(actor, task, f"Visitante: el pedido {task.leaving[0].seq + 4_000}")
        layers = actor.layers()
        assert layers.cursor == len(folded)
        assert len(layers.window) <= 12
        assert not layers.surplus
        assert folded == list(range(1, len(folded) + 1))
        seen = [m.seq for m in (*layers.surplus, *layers.window)]
        assert seen == list(range(layers.cursor + 1, actor.last + 1))
    assert len(folded) == 120 - 12


def test_one_fold_at_a_time_and_what_comes_meanwhile_waits(actor):
    """A turn recorded while a fold is under way waits for the next fold, word for word."""
    for i in range(7):
        record(actor, f"v{i}")
    task = actor.fold_due()
    assert [m.seq for m in task.leaving] == [1, 2]
    record(actor, "v7")
    assert actor.fold_due() is None
    assert len(actor.layers().surplus) == 4
    fold(actor, task, "Visitante: v0 trajo el pedido 77")
    assert [m.seq for m in actor.fold_due().leaving] == [3, 4]


def test_a_late_result_is_ignored(actor):
    """A result whose fold isn't waited for any more changes nothing."""
    for i in range(7):
        record(actor, f"v{i}")
    task = actor.fold_due()
    actor.apply(actor.decide(FoldDone(task, None)).event)
    assert actor.decide(FoldDone(task, task.summary)) == Now()
    assert actor.cursor == 0


def test_a_failed_fold_rests_until_told(actor):
    """P7: after a failure summary and cursor are as they were, and the surplus waits."""
    for i in range(7):
        record(actor, f"v{i}")
    task = actor.fold_due()
    decision = actor.decide(FoldDone(task, None))
    assert decision.event == FoldFailed(task)
    actor.apply(decision.event)
    assert actor.fold_due() is None
    assert (actor.cursor, actor.layers().summary) == (0, "")
    actor.rested()
    assert actor.fold_due().leaving == task.leaving


def test_the_offline_summarizer_takes_over_at_four_windows(actor):
    """Memory stays bounded: at 4 windows of surplus the offline fold replaces one that hangs."""
    for i in range(7):
        record(actor, f"v{i}")
    hung = actor.fold_due()
    assert not hung.offline
    while (task := actor.fold_due()) is None:
        record(actor, "y esto también lo dije")
    assert task.offline
    assert len(task.leaving) == TAKEOVER * 12
    assert actor.decide(FoldDone(hung, hung.summary)) == Now()
    assert actor.fold_due() is None, "one takeover at a time"


def test_state_comes_back_as_it_was(actor, counter):
    """P6: snapshot and newer messages restore the same layers, to the byte (case B28)."""
    for i in range(30):
        record(actor, f"El pedido {5_000 + i} sale mañana", delivery=bytes([i]))
        while (task := actor.fold_due()) is not None:
            laid = task.summary.lay(
                f"Visitante: pedido {5_000 + i}", through=task.leaving[-1].seq,
                cap_tokens=400, count=actor.count, leaving=task.leaving,
            )  # fmt: skip
            event = actor.decide(FoldDone(task, laid)).what
            snapshot = event.snapshot()
            actor.apply(event)
    layers = actor.layers()
    again = SessionActor(Limits(deliveries=3), counter, Extractive(counter))
    again.restore(snapshot, (*layers.surplus, *layers.window), [(bytes([29]), 59)])
    assert again.layers() == layers
    assert again.decide(Take(1, bytes([29]))) == Now(reply=Known(59))
    one, two = (
        a.request("¿y?", a.memory(), instructions="Eres…", budget=300) for a in (actor, again)
    )
    assert one.messages == two.messages


def test_messages_that_do_not_follow_the_snapshot_are_refused(actor, counter, said):
    """A gap between cursor and rows is an error, never a shorter history."""
    with pytest.raises(OutOfOrder):
        actor.restore(None, said(counter, ("hola", "buenas"), after=2))


def test_an_active_session_counts_each_text_once(actor, counter):
    """A message is counted when recorded; assembling counts only what is new (case A7)."""
    for i in range(200):
        record(actor, f"mensaje número {i}", f"respuesta número {i}")
        while (task := actor.fold_due()) is not None:
            actor.apply(SummaryLaid(task, task.summary, task.leaving[-1].seq))
    counter.asked.clear()
    request = actor.request("¿qué dije?", actor.memory(), instructions="Eres…", budget=8_000)
    assert request.tokens
    assert request.receipt.blocks["history"].kept == 12
    texts = {m.text for m in actor.layers().window}
    assert not texts & set(counter.asked)
    assert set(counter.asked.values()) == {1}
    actor.request("¿qué dije?", actor.memory(), instructions="Eres…", budget=8_000).receipt  # noqa: B018
    assert set(counter.asked.values()) == {1}


def test_compaction_is_remembered_while_the_same_turns_are_dropped(actor, counter):
    """A second look at the same budget reads no dropped text again."""
    for i in range(6):
        record(actor, f"El pedido {6_000 + i} sale el martes. " * 6, "Queda anotado. " * 8)
    calls = []
    extract = actor._extractive.extract

    class Counting:
        def extract(self, *args):
            calls.append(args)
            return extract(*args)

    actor._extractive = Counting()
    one = actor.request("¿y?", actor.memory(), budget=400)
    assert one.receipt.compacted
    made = len(calls)
    two = actor.request("¿y?", actor.memory(), budget=400)
    assert one.messages == two.messages
    assert len(calls) == made
