"""`interturn stats`: how much a database holds, or which sessions there are.

Reads only, beside a running owner too.
"""

import functools
from datetime import datetime
from typing import Annotated

import anyio
import msgspec
import typer

from interturn.runtime.archive import Holdings, SessionEntry
from interturn.runtime.cli.drawing import show_table
from interturn.runtime.cli.places import DATABASE, Database, Files, Json, Key, Keys
from interturn.runtime.cli.terminal import Terminal, Work


def stats(
    *,
    sessions: Annotated[bool, typer.Option("--sessions", help="help.sessions")] = False,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
    json: Json = False,
) -> Work:
    """Return the work of counting, or of listing sessions."""
    work = _list if sessions else _count
    return functools.partial(work, files=Files(db, key, keys), json=json)


def _count(terminal: Terminal, *, files: Files, json: bool) -> int:
    async def look() -> Holdings:
        async with files.archive() as archive:
            return await archive.holdings()

    found = anyio.run(look)
    if json:
        terminal.data(msgspec.json.encode(found).decode() + "\n")
        return 0
    texts = terminal.texts
    rows = [
        (texts("stats.customers"), found.customers),
        (texts("stats.sessions"), found.sessions),
        (texts("stats.messages"), found.messages),
        (texts("stats.turns"), found.turns),
        (texts("stats.facts"), found.facts),
        (texts("stats.summaries"), found.summaries),
        (texts("stats.bytes"), found.bytes),
        (texts("stats.schema"), found.schema),
    ]
    show_table(terminal, str(files.database), rows)
    if found.oldest is not None and found.newest is not None:
        terminal.say("stats.times", oldest=_when(found.oldest), newest=_when(found.newest))
    if found.owner is None:
        terminal.say("stats.free")
    elif found.since is None:
        terminal.say("stats.owner", owner=found.owner)
    else:
        terminal.say("stats.owner_since", owner=found.owner, since=_when(found.since))
    return 0


def _list(terminal: Terminal, *, files: Files, json: bool) -> int:
    async def look() -> None:
        async with files.archive() as archive:
            async for entry in archive.entries():
                if json:
                    terminal.data(msgspec.json.encode(entry).decode() + "\n")
                else:
                    terminal.line(_told(terminal, entry))

    anyio.run(look)
    return 0


def _told(terminal: Terminal, entry: SessionEntry) -> str:
    texts = terminal.texts
    return texts(
        "stats.session",
        session=entry.session,
        customer=texts("stats.anonymous") if entry.customer is None else entry.customer,
        count=entry.messages,
        last="—" if entry.last is None else _when(entry.last),
    )


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
