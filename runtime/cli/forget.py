"""`interturn forget`: a customer's key and everything sealed with it, destroyed for good.

Who can answer is asked first, and until they have said yes no file is changed. A
script says ``--yes``. The database must be free, or its owner could write on what
is being destroyed.
"""

import functools
import sys
from typing import Annotated

import anyio
import msgspec
import typer

from interturn.runtime import Erasure
from interturn.runtime.archive import Remembered
from interturn.runtime.cli.drawing import show_table
from interturn.runtime.cli.places import (
    DATABASE,
    Database,
    Files,
    Json,
    Key,
    Keys,
    SettingsFile,
)
from interturn.runtime.cli.refusals import Refusal
from interturn.runtime.cli.terminal import Terminal, Work, plain


def forget(
    *,
    customer: Annotated[str, typer.Option(help="help.customer", metavar="ID")],
    yes: Annotated[bool, typer.Option("--yes", help="help.yes")] = False,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> Work:
    """Return the work of forgetting a customer."""
    return functools.partial(
        _forget, customer=customer, yes=yes, files=Files(db, key, keys, settings), json=json
    )


def _forget(
    terminal: Terminal,
    *,
    customer: str,
    yes: bool,
    files: Files,
    json: bool,
) -> int:
    files.check_there()
    if not (yes or (sys.stdin.isatty() and terminal.err.is_terminal)):
        raise Refusal("error.NotConfirmed")

    async def look() -> Remembered | None:
        async with files.archive() as archive:
            return await archive.customer(customer)

    async def erase() -> Erasure:
        async with files.runtime() as runtime:
            return await runtime.customer(customer).forget()

    if not yes:
        known = anyio.run(look)
        if known is not None and not _confirmed(terminal, customer, known):
            terminal.complain(terminal.texts("forget.kept"))
            return 1
    erasure = anyio.run(erase)
    if json:
        terminal.data(msgspec.json.encode(erasure).decode() + "\n")
    elif not (erasure.sessions or erasure.messages or erasure.facts):
        terminal.say("forget.nothing")
    else:
        _show(terminal, erasure)
    return 0


def _confirmed(terminal: Terminal, customer: str, known: Remembered) -> bool:
    """Ask on standard error, where it disturbs no one who reads the receipt."""
    texts = terminal.texts
    question = texts(
        "forget.question",
        customer=customer,
        sessions=len(known.sessions),
        facts=len(known.facts),
    )
    sys.stderr.write(plain(question) + " ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        sys.stderr.write("\n")
    return answer.strip().casefold() in texts("forget.yes").split()


def _show(terminal: Terminal, erasure: Erasure) -> None:
    texts = terminal.texts
    rows = [
        (texts("forget.sessions"), erasure.sessions),
        (texts("forget.messages"), erasure.messages),
        (texts("forget.facts"), erasure.facts),
    ]
    show_table(terminal, texts("forget.title", at=f"{erasure.at:%Y-%m-%d %H:%M:%S} UTC"), rows)
    terminal.say("forget.copies")
