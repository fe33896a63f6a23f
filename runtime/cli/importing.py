"""`interturn import`: conversations that happened elsewhere, recorded as they were.

Nothing is assembled and nothing is shown but a line at the end. Run again, it adds
what is not there yet (see `interturn.runtime.cli.playing`).
"""

import functools
from typing import Annotated

import anyio
import msgspec
import typer

from interturn.actors.message import Message
from interturn.runtime import Session
from interturn.runtime.cli.exchanges import Exchange, LeftOut, Transcript
from interturn.runtime.cli.places import (
    DATABASE,
    Database,
    Files,
    Json,
    Key,
    Keys,
    SettingsFile,
)
from interturn.runtime.cli.playing import Plan, Tally, Told, play_all, play_turns, telling
from interturn.runtime.cli.replay import Limit, Paths, Prefix, Verbose
from interturn.runtime.cli.terminal import INTERRUPTED, Terminal, Work


def import_(
    *,
    files: Paths,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    customer: Annotated[str | None, typer.Option(help="help.customer_import", metavar="ID")] = None,
    session_prefix: Prefix = "",
    limit: Limit = None,
    json: Json = False,
    verbose: Verbose = False,
) -> Work:
    """Return the work of importing files."""
    plan = Plan(tuple(files), session_prefix, limit, verbose, customer)
    return functools.partial(_import, plan=plan, files=Files(db, key, keys, settings), json=json)


class Imported(msgspec.Struct, frozen=True):
    """What `import --json` writes.

    Attributes:
        sessions: conversations with a turn in them.
        turns: recorded by this run.
        already: that were there before it.
        left_out: what was in the files and is in no turn.
    """

    sessions: int
    turns: int
    already: int
    left_out: LeftOut


def _import(terminal: Terminal, *, plan: Plan, files: Files, json: bool) -> int:
    tally = Tally()
    with telling(terminal, plan) as told:
        try:
            anyio.run(_through, files, plan, tally, told)
        except KeyboardInterrupt:
            stopped = True
        else:
            stopped = False
    if stopped:
        turns = tally.recorded + tally.already
        terminal.complain(terminal.texts("replay.stopped", turns=turns))
        return INTERRUPTED
    done = Imported(tally.sessions, tally.recorded, tally.already, tally.left_out)
    if json:
        terminal.data(msgspec.json.encode(done).decode() + "\n")
        return 0
    left_out = sum(msgspec.structs.astuple(done.left_out))
    terminal.say(
        "import.done",
        sessions=done.sessions,
        turns=done.turns,
        already=done.already,
        left_out=left_out,
    )
    return 0


async def _through(files: Files, plan: Plan, tally: Tally, told: Told) -> None:
    async with files.runtime() as runtime:

        async def play(transcript: Transcript) -> None:
            await play_turns(runtime, transcript, tally, told, _record)

        await play_all(plan, tally, play)
        await runtime.flush()


async def _record(session: Session, exchange: Exchange, delivery_id: str) -> Message | None:
    recorded = await session.record(
        exchange.visitor, exchange.agent, delivery_id=delivery_id, at=exchange.at
    )
    return recorded.reply if recorded.duplicate else None
