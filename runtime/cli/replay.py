"""`interturn replay`: real conversations through a database, turn by turn.

Every turn is a real one: the request is assembled, then the reply recorded. Run
again after it was stopped, it goes on (see `interturn.runtime.cli.playing`).

Folds are awaited before the next turn, so that what each fold sees, and with it
the summary, is the same however often the replay was stopped and continued.
"""

import functools
import statistics
import tempfile
from array import array
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer

from interturn.actors.message import Message
from interturn.actors.session import Layers
from interturn.runtime import BudgetExceeded, Runtime, Session
from interturn.runtime.archive import Remembered
from interturn.runtime.cli import playing
from interturn.runtime.cli.drawing import show_layers, show_table
from interturn.runtime.cli.exchanges import Exchange, LeftOut, Transcript
from interturn.runtime.cli.facts import show_remembered
from interturn.runtime.cli.places import Files, Json, Key, Keys, SettingsFile
from interturn.runtime.cli.playing import Plan, Told, play_all, play_turns, telling
from interturn.runtime.cli.terminal import INTERRUPTED, Terminal, Work

FACTS_SHOWN = 20
"""As many as are read at a glance; `show --customer` shows all."""

Paths = Annotated[list[Path], typer.Argument(help="help.files", metavar="FILE…")]
Prefix = Annotated[str, typer.Option(help="help.prefix", metavar="TEXT")]
Limit = Annotated[int | None, typer.Option(help="help.limit", min=0, metavar="N")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="help.verbose")]


def replay(
    *,
    files: Paths,
    db: Annotated[
        Path | None, typer.Option(help="help.db_replay", envvar="INTERTURN_DB", metavar="PATH")
    ] = None,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    budget: Annotated[int | None, typer.Option(help="help.budget", min=1, metavar="N")] = None,
    session_prefix: Prefix = "",
    limit: Limit = None,
    json: Json = False,
    verbose: Verbose = False,
) -> Work:
    """Return the work of replaying files."""
    return functools.partial(
        _replay,
        plan=Plan(tuple(files), session_prefix, limit, verbose),
        kept=None if db is None else Files(db, key, keys, settings),
        settings=settings,
        budget=budget,
        json=json,
    )


class Tally(playing.Tally):
    """What a replay has seen so far; one of the totals is for each line of the table."""

    over_budget: int = 0
    compacting: int = 0
    compacted: int = 0
    folds: int = 0
    tokens: "array[int]" = msgspec.field(default_factory=lambda: array("L"))
    longest: tuple[int, str] = (0, "")
    facts: dict[str, int] = msgspec.field(default_factory=dict)


class Report(msgspec.Struct, frozen=True):
    """The table at the end, as a program reads it.

    Attributes:
        sessions: conversations with a turn in them.
        turns: recorded by this run.
        already: that were there before it.
        over_budget: recorded with no request, since none would fit.
        folds: of this run.
        tokens_largest: of the requests.
        tokens_median: of the requests.
        compacting: requests that compacted turns.
        compacted: turns compacted in one request, at most.
        bytes_per_turn: on disk, for the turns of this run; None where there were none.
        facts: held of all customers of these conversations, at the end.
        facts_per_100_turns: of theirs, those of earlier runs included; None where
            there were no turns.
        left_out: what was in the files and is in no turn.
        longest: the session with the most turns.
        layers: of that session.
        remembered: of its customer.
    """

    sessions: int
    turns: int
    already: int
    over_budget: int
    folds: int
    tokens_largest: int
    tokens_median: int
    compacting: int
    compacted: int
    bytes_per_turn: int | None
    facts: int
    facts_per_100_turns: float | None
    left_out: LeftOut
    longest: str
    layers: Layers | None
    remembered: Remembered | None


class Outcome(msgspec.Struct, frozen=True):
    """What the longest session has become.

    Attributes:
        layers: its own.
        remembered: of its customer.
    """

    layers: Layers
    remembered: Remembered


def _replay(
    terminal: Terminal,
    *,
    plan: Plan,
    kept: Files | None,
    settings: Path | None,
    budget: int | None,
    json: bool,
) -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="interturn-") as folder:
        files = kept or Files(Path(folder, "memory.db"), settings=settings)
        before = files.bytes()
        with telling(terminal, plan) as told:
            try:
                opening = files.temporary() if kept is None else files.runtime()
                run = functools.partial(_through, opening, plan, tally, told, budget)
                outcome = anyio.run(run)
            except KeyboardInterrupt:
                outcome = None
                stopped = True
            else:
                stopped = False
        written = files.bytes() - before
    if stopped:
        key_of_line = "replay.stopped_temporary" if kept is None else "replay.stopped"
        terminal.complain(terminal.texts(key_of_line, turns=tally.recorded + tally.already))
        return INTERRUPTED
    report = _report(tally, outcome, written)
    if json:
        terminal.data(msgspec.json.encode(report).decode() + "\n")
        return 0
    _show(terminal, report)
    if kept is None:
        terminal.say("replay.temporary")
    return 0


async def _through(
    opening: AbstractAsyncContextManager[Runtime],
    plan: Plan,
    tally: Tally,
    told: Told,
    budget: int | None,
) -> Outcome | None:
    """Play all conversations; return what the longest has become."""
    async with opening as runtime:
        await play_all(plan, tally, functools.partial(_play, runtime, tally, told, budget))
        await runtime.flush()
        tally.folds = runtime.statistics().folds
        if not tally.longest[0]:
            return None
        session = runtime.session(tally.longest[1])
        customer = session.customer
        facts, profile = await customer.facts(), await customer.profile()
        remembered = Remembered(facts, profile, tuple(await customer.sessions()))
        return Outcome(await session.layers(), remembered)


async def _play(
    runtime: Runtime, tally: Tally, told: Told, budget: int | None, transcript: Transcript
) -> None:
    session_id, customer = transcript.session_id, transcript.customer
    tally.longest = max(tally.longest, (len(transcript.turns), session_id))
    say = functools.partial(_say, runtime, tally, budget)
    session = await play_turns(runtime, transcript, tally, told, say)
    await runtime.flush()
    # A customer of several sessions is counted again after each.
    whose = session_id if customer is None else f"customer {customer}"
    tally.facts[whose] = len(await session.customer.facts())


async def _say(
    runtime: Runtime,
    tally: Tally,
    budget: int | None,
    session: Session,
    exchange: Exchange,
    delivery_id: str,
) -> Message | None:
    await runtime.flush()
    try:
        async with session.turn(exchange.visitor, budget=budget, delivery_id=delivery_id) as turn:
            if turn.already is not None:
                return turn.already
            tally.tokens.append(turn.request.tokens)
            compacted = turn.request.receipt.compacted
            tally.compacting += compacted > 0
            tally.compacted = max(tally.compacted, compacted)
            recorded = await turn.reply(exchange.agent, at=exchange.at)
    except BudgetExceeded:
        # No model could have been asked, yet it was said: it belongs to the conversation.
        recorded = await session.record(
            exchange.visitor, exchange.agent, delivery_id=delivery_id, at=exchange.at
        )
        tally.over_budget += not recorded.duplicate
    return recorded.reply if recorded.duplicate else None


def _report(tally: Tally, outcome: Outcome | None, written: int) -> Report:
    facts, turns = sum(tally.facts.values()), tally.recorded + tally.already
    return Report(
        sessions=tally.sessions,
        turns=tally.recorded,
        already=tally.already,
        over_budget=tally.over_budget,
        folds=tally.folds,
        tokens_largest=max(tally.tokens, default=0),
        tokens_median=int(statistics.median(tally.tokens)) if tally.tokens else 0,
        compacting=tally.compacting,
        compacted=tally.compacted,
        bytes_per_turn=round(written / tally.recorded) if tally.recorded else None,
        facts=facts,
        facts_per_100_turns=round(100 * facts / turns, 1) if turns else None,
        left_out=tally.left_out,
        longest=tally.longest[1],
        layers=None if outcome is None else outcome.layers,
        remembered=None if outcome is None else outcome.remembered,
    )


def _show(terminal: Terminal, report: Report) -> None:
    texts = terminal.texts
    if report.layers is not None:
        terminal.say("replay.session", session=report.longest)
        show_layers(terminal, report.layers)
        terminal.line()
    if report.remembered is not None:
        terminal.say("replay.remembered")
        show_remembered(terminal, report.remembered, limit=FACTS_SHOWN, brief=True)
        terminal.line()
    rows: list[tuple[str, int | float]] = [
        ("replay.sessions", report.sessions),
        ("replay.turns", report.turns),
        ("replay.folds", report.folds),
        ("replay.largest", report.tokens_largest),
        ("replay.median", report.tokens_median),
        ("replay.compacting", report.compacting),
        ("replay.compacted", report.compacted),
    ]
    if report.facts_per_100_turns is not None:
        rows.append(("replay.facts", report.facts_per_100_turns))
    if report.bytes_per_turn is not None:
        rows.append(("replay.bytes", report.bytes_per_turn))
    rows += [
        (f"replay.{name}", count)
        for name, count in (
            ("already", report.already),
            ("over_budget", report.over_budget),
            *msgspec.structs.asdict(report.left_out).items(),
        )
        if count
    ]
    show_table(terminal, texts("replay.title"), [(texts(key), count) for key, count in rows])
