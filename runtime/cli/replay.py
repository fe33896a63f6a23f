"""`interturn replay`: real conversations through a database, turn by turn.

Every turn is a real one: the request is assembled, then the reply recorded. Its
delivery id is its place in its conversation, so a replay that was stopped, by
whatever means, can be run again: it finds how far each session got, checks that
the newest turn there is its own, and goes on after it.

Folds are awaited before the next turn, so that what each fold sees, and with it
the summary, is the same however often the replay was stopped and continued.
"""

import functools
import itertools
import statistics
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import msgspec
import typer
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interturn.actors.message import Message
from interturn.actors.session import Layers
from interturn.runtime import BudgetExceeded, Runtime, Session
from interturn.runtime.archive import Remembered
from interturn.runtime.cli.drawing import show_layers, show_table
from interturn.runtime.cli.facts import show_remembered
from interturn.runtime.cli.places import disk_bytes, open_runtime
from interturn.runtime.cli.refusals import Refusal
from interturn.runtime.cli.terminal import INTERRUPTED, Terminal, Work
from interturn.runtime.cli.transcripts import Exchange, LeftOut, Transcript, read

FACTS_SHOWN = 20
"""As many as are read at a glance; `show --customer` shows all."""

SESSIONS_AT_ONCE = 32
"""Enough for turns of many sessions to share a commit, few enough to keep memory flat."""


def replay(
    *,
    files: Annotated[list[Path], typer.Argument(help="help.files", metavar="FILE…")],
    db: Annotated[
        Path | None, typer.Option(help="help.db_replay", envvar="INTERTURN_DB", metavar="PATH")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="help.key", envvar="INTERTURN_KEY", metavar="PATH")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="help.settings", metavar="PATH")] = None,
    budget: Annotated[int | None, typer.Option(help="help.budget", min=1, metavar="N")] = None,
    session_prefix: Annotated[str, typer.Option(help="help.prefix", metavar="TEXT")] = "",
    limit: Annotated[int | None, typer.Option(help="help.limit", min=0, metavar="N")] = None,
    json: Annotated[bool, typer.Option("--json", help="help.json")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="help.verbose")] = False,
) -> Work:
    """Return the work of replaying files."""
    return functools.partial(
        _replay,
        files=files,
        database=db,
        key=key,
        settings=settings,
        plan=Plan(session_prefix, budget, limit, verbose),
        json=json,
    )


class Plan(msgspec.Struct, frozen=True):
    """How to replay.

    Attributes:
        prefix: put before each session id.
        budget: tokens of a request at most; None for the settings' own.
        limit: conversations at most; None for all.
        verbose: whether to tell of each turn that is on disk.
    """

    prefix: str = ""
    budget: int | None = None
    limit: int | None = None
    verbose: bool = False


class Tally(msgspec.Struct):
    """What a replay has seen so far; one of the totals is for each line of the table."""

    sessions: int = 0
    recorded: int = 0
    already: int = 0
    over_budget: int = 0
    compacting: int = 0
    compacted: int = 0
    folds: int = 0
    left_out: LeftOut = LeftOut()
    tokens: "array[int]" = msgspec.field(default_factory=lambda: array("L"))
    longest: tuple[int, str] = (0, "")
    facts: dict[str, int] = {}


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
    files: list[Path],
    database: Path | None,
    key: Path | None,
    settings: Path | None,
    plan: Plan,
    json: bool,
) -> int:
    # Read through before anything is written: a broken line 9,000 is told now.
    total = sum(len(transcript.turns) for transcript in _transcripts(files, plan.limit))
    tally = Tally()
    temporary = database is None
    with tempfile.TemporaryDirectory(prefix="interturn-") as folder:
        path = Path(folder, "memory.db") if database is None else database
        before = disk_bytes(path)
        with _progress(terminal, total) as advance:

            def told(session_id: str, turn: int) -> None:
                advance()
                if plan.verbose:
                    terminal.complain(f"{session_id} {turn}")

            try:
                outcome = anyio.run(
                    functools.partial(
                        _through,
                        _transcripts(files, plan.limit),
                        open_runtime(path, key, settings, temporary=temporary),
                        plan=plan,
                        tally=tally,
                        told=told,
                    )
                )
            except KeyboardInterrupt:
                outcome = None
                stopped = True
            else:
                stopped = False
        written = disk_bytes(path) - before
    if stopped:
        key_of_line = "replay.stopped_temporary" if temporary else "replay.stopped"
        terminal.complain(terminal.texts(key_of_line, turns=tally.recorded + tally.already))
        return INTERRUPTED
    report = _report(tally, outcome, written)
    if json:
        terminal.data(msgspec.json.encode(report).decode() + "\n")
        return 0
    _show(terminal, report)
    if temporary:
        terminal.say("replay.temporary")
    return 0


def _transcripts(files: list[Path], limit: int | None) -> Iterator[Transcript]:
    return itertools.islice(itertools.chain.from_iterable(map(read, files)), limit)


async def _through(
    transcripts: Iterator[Transcript],
    opening: AbstractAsyncContextManager[Runtime],
    *,
    plan: Plan,
    tally: Tally,
    told: Callable[[str, int], None],
) -> Outcome | None:
    """Play all conversations; return what the longest has become."""
    async with opening as runtime:
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                send, receive = anyio.create_memory_object_stream[Transcript](0)
                tasks.start_soon(_feed, transcripts, send)
                async with receive:
                    for _ in range(SESSIONS_AT_ONCE):
                        tasks.start_soon(_play_some, runtime, receive.clone(), plan, tally, told)
        except ExceptionGroup as group:
            failure = _first(group)
        if failure is not None:
            raise failure
        await runtime.flush()
        tally.folds = runtime.statistics().folds
        if not tally.longest[0]:
            return None
        session = runtime.session(tally.longest[1])
        customer = session.customer
        facts, profile = await customer.facts(), await customer.profile()
        remembered = Remembered(facts, profile, tuple(await customer.sessions()))
        return Outcome(await session.layers(), remembered)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that isn't a group itself."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _feed(
    transcripts: Iterator[Transcript], send: MemoryObjectSendStream[Transcript]
) -> None:
    """Read on as the players ask for more, away from the event loop."""
    async with send:
        while (transcript := await anyio.to_thread.run_sync(next, transcripts, None)) is not None:
            await send.send(transcript)


async def _play_some(
    runtime: Runtime,
    receive: MemoryObjectReceiveStream[Transcript],
    plan: Plan,
    tally: Tally,
    told: Callable[[str, int], None],
) -> None:
    async with receive:
        async for transcript in receive:
            tally.left_out += transcript.left_out
            if transcript.turns:
                tally.sessions += 1
                await _play(runtime, transcript, plan, tally, told)


async def _play(
    runtime: Runtime,
    transcript: Transcript,
    plan: Plan,
    tally: Tally,
    told: Callable[[str, int], None],
) -> None:
    """Play one conversation from where it stands to its end."""
    session_id = plan.prefix + transcript.session_id
    session = runtime.session(session_id, customer=transcript.customer)
    tally.longest = max(tally.longest, (len(transcript.turns), session_id))
    start = await _standing(session, transcript)
    tally.already += start
    for number in range(start):
        told(session_id, number + 1)
    await runtime.flush()
    for number, exchange in enumerate(transcript.turns[start:], start + 1):
        delivery_id = f"replay:{number}"
        stored: Message | None
        try:
            async with session.turn(
                exchange.visitor, budget=plan.budget, delivery_id=delivery_id
            ) as turn:
                stored = turn.already
                if stored is None:
                    tally.tokens.append(turn.request.tokens)
                    compacted = turn.request.receipt.compacted
                    tally.compacting += compacted > 0
                    tally.compacted = max(tally.compacted, compacted)
                    recorded = await turn.reply(exchange.agent, at=exchange.at)
                    stored = recorded.reply if recorded.duplicate else None
        except BudgetExceeded:
            # No model could have been asked, yet it was said: it belongs to the conversation.
            recorded = await session.record(
                exchange.visitor, exchange.agent, delivery_id=delivery_id, at=exchange.at
            )
            stored = recorded.reply if recorded.duplicate else None
            tally.over_budget += not recorded.duplicate
        if stored is None:
            tally.recorded += 1
        else:
            _same(stored, exchange)
            tally.already += 1
        told(session_id, number)
        await runtime.flush()
    # A customer of several sessions is counted again after each.
    whose = session_id if transcript.customer is None else f"customer {transcript.customer}"
    tally.facts[whose] = len(await session.customer.facts())


async def _standing(session: Session, transcript: Transcript) -> int:
    """Return how many turns of the transcript are there already, from one look at the newest.

    0 where the newest turn isn't this transcript's: then each turn finds out for itself.
    """
    layers = await session.layers()
    newest = (*layers.surplus, *layers.window)
    turns = (newest[-1].seq if newest else layers.cursor) // 2
    if not 0 < turns <= len(transcript.turns):
        return 0
    exchange = transcript.turns[turns - 1]
    try:
        async with session.turn(exchange.visitor, delivery_id=f"replay:{turns}") as turn:
            if turn.already is None:
                return 0
            _same(turn.already, exchange)
            return turns
    except BudgetExceeded:
        return 0


def _same(stored: Message, exchange: Exchange) -> None:
    if stored.text != exchange.agent:
        raise Refusal("error.ReplayDiffers")


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


@contextmanager
def _progress(terminal: Terminal, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error while turns go by, if that is a terminal."""
    if not terminal.progress:
        yield lambda: None
        return
    with Progress(
        TextColumn(terminal.texts("replay.progress")),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal.err,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
