"""How transcripts come into a database, turn by turn: what `replay` and `import` share.

A turn's delivery id is its place in its conversation, so what was stopped, by
whatever means, can be run again: it finds how far each session got, checks that
the newest turn there is its own, and goes on after it.
"""

import functools
import itertools
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interturn.actors.message import Message
from interturn.runtime import Runtime, Session
from interturn.runtime.cli.exchanges import Exchange, LeftOut, Transcript
from interturn.runtime.cli.refusals import Refusal
from interturn.runtime.cli.terminal import Terminal
from interturn.runtime.cli.transcripts import read

SESSIONS_AT_ONCE = 32
"""Enough for turns of many sessions to share a commit, few enough to keep memory flat."""


class Plan(msgspec.Struct, frozen=True):
    """What to play.

    Attributes:
        files: with the conversations.
        prefix: put before each session id.
        limit: conversations at most; None for all.
        verbose: whether to tell of each turn that is on disk.
        customer: whose the conversations are of which the file doesn't say it.
    """

    files: tuple[Path, ...]
    prefix: str = ""
    limit: int | None = None
    verbose: bool = False
    customer: str | None = None

    def transcripts(self) -> Iterator[Transcript]:
        """Yield the conversations under the ids of their sessions."""
        found = itertools.chain.from_iterable(map(read, self.files))
        for transcript in itertools.islice(found, self.limit):
            yield msgspec.structs.replace(
                transcript,
                session_id=self.prefix + transcript.session_id,
                customer=self.customer if transcript.customer is None else transcript.customer,
            )


class Tally(msgspec.Struct):
    """What has been played so far.

    Attributes:
        sessions: conversations with a turn in them.
        recorded: turns that this run wrote.
        already: turns that were there before it.
        left_out: what was in the files and is in no turn.
    """

    sessions: int = 0
    recorded: int = 0
    already: int = 0
    left_out: LeftOut = LeftOut()


Told: TypeAlias = Callable[[str, int], None]
"""Is called with a session's id and the number of a turn of it that is on disk."""

Play: TypeAlias = Callable[[Transcript], Awaitable[None]]
"""Plays one conversation that has turns."""

Say: TypeAlias = Callable[[Session, Exchange, str], Awaitable[Message | None]]
"""Records one turn under a delivery id; returns the reply that was there already, if one was."""


@contextmanager
def telling(terminal: Terminal, plan: Plan) -> Iterator[Told]:
    """Show how far it is: a bar on standard error if that is a terminal, lines if asked for.

    All files are read through first, before anything is written: a broken line
    9,000 is told now.
    """
    total = sum(len(transcript.turns) for transcript in plan.transcripts())
    with _progress(terminal, total) as advance:

        def told(session_id: str, turn: int) -> None:
            advance()
            if plan.verbose:
                terminal.complain(f"{session_id} {turn}")

        yield told


async def play_all(plan: Plan, tally: Tally, play: Play) -> None:
    """Play all conversations, some at once; raise the first failure as it was."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            send, receive = anyio.create_memory_object_stream[Transcript](0)
            tasks.start_soon(_feed, plan.transcripts(), send)
            async with receive:
                for _ in range(SESSIONS_AT_ONCE):
                    tasks.start_soon(_play_some, receive.clone(), tally, play)
    except ExceptionGroup as group:
        failure = _first(group)
    if failure is not None:
        raise failure


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that isn't a group itself."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _feed(
    transcripts: Iterator[Transcript], send: MemoryObjectSendStream[Transcript]
) -> None:
    """Read on as the players ask for more, away from the event loop."""
    async with send:
        following = functools.partial(next, transcripts, None)
        while (transcript := await anyio.to_thread.run_sync(following)) is not None:
            await send.send(transcript)


async def _play_some(
    receive: MemoryObjectReceiveStream[Transcript], tally: Tally, play: Play
) -> None:
    async with receive:
        async for transcript in receive:
            tally.left_out += transcript.left_out
            if transcript.turns:
                tally.sessions += 1
                await play(transcript)


async def play_turns(
    runtime: Runtime, transcript: Transcript, tally: Tally, told: Told, say: Say
) -> Session:
    """Play one conversation from where it stands to its end; return its session.

    Raises:
        Refusal: the session holds another conversation.
    """
    session = runtime.session(transcript.session_id, customer=transcript.customer)
    start = await _standing(session, transcript)
    tally.already += start
    for number in range(start):
        told(transcript.session_id, number + 1)
    for number, exchange in enumerate(transcript.turns[start:], start + 1):
        stored = await say(session, exchange, _delivery_id(number))
        if stored is None:
            tally.recorded += 1
        else:
            _check_same(stored, exchange)
            tally.already += 1
        told(transcript.session_id, number)
    return session


async def _standing(session: Session, transcript: Transcript) -> int:
    """Return how many turns of the transcript are there already, from a look at the newest.

    0 where the newest turn isn't this transcript's, but its first is there: then
    others have spoken since, and each turn finds out for itself.

    Raises:
        Refusal: turns are there, and none of this transcript's.
    """
    layers = await session.layers()
    newest = (*layers.surplus, *layers.window)
    turns = (newest[-1].seq if newest else layers.cursor) // 2
    if not turns:
        return 0
    if turns <= len(transcript.turns) and await _is_there(session, transcript, turns):
        return turns
    if not await _is_there(session, transcript, 1):
        raise Refusal("error.ReplayDiffers")
    return 0


async def _is_there(session: Session, transcript: Transcript, number: int) -> bool:
    exchange = transcript.turns[number - 1]
    # Nothing is sent to a model, so any size will do.
    async with session.turn(
        exchange.visitor, budget=sys.maxsize, delivery_id=_delivery_id(number)
    ) as turn:
        if turn.already is not None:
            _check_same(turn.already, exchange)
        return turn.already is not None


def _delivery_id(number: int) -> str:
    return f"replay:{number}"


def _check_same(stored: Message, exchange: Exchange) -> None:
    if stored.text != exchange.agent:
        raise Refusal("error.ReplayDiffers")


@contextmanager
def _progress(terminal: Terminal, total: int) -> Iterator[Callable[[], None]]:
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
