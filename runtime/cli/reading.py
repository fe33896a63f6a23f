"""`interturn show`, `export` and `doctor`: what rests in the files, read and never changed.

They read beside a running owner, too: nothing is locked, nothing is written.
"""

import functools
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer

from interturn.actors.message import Message
from interturn.actors.session import Layers
from interturn.runtime.archive import Archive, Remembered
from interturn.runtime.cli.documents import write_conversations
from interturn.runtime.cli.drawing import message_lines, show_layers, show_table
from interturn.runtime.cli.facts import show_remembered
from interturn.runtime.cli.places import (
    DATABASE,
    Database,
    Files,
    Json,
    Key,
    Keys,
    SettingsFile,
)
from interturn.runtime.cli.refusals import Misuse, Refusal
from interturn.runtime.cli.terminal import Terminal, Work
from interturn.runtime.examination import Diagnosis


class Format(StrEnum):
    """How a conversation is written out."""

    JSONL = "jsonl"
    MD = "md"
    HTML = "html"


def show(
    *,
    session: Annotated[str | None, typer.Option(help="help.session", metavar="ID")] = None,
    customer: Annotated[str | None, typer.Option(help="help.customer_show", metavar="ID")] = None,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    tail: Annotated[int, typer.Option(help="help.tail", min=0, metavar="N")] = 4,
    json: Json = False,
) -> Work:
    """Return the work of showing a session or a customer."""
    files = Files(db, key, keys, settings)
    if session is not None and customer is None:
        return functools.partial(_show, files=files, session=session, tail=tail, json=json)
    if customer is not None and session is None:
        return functools.partial(_show_customer, files=files, customer=customer, json=json)
    raise Misuse("usage.session_or_customer")


def export(
    *,
    session: Annotated[str | None, typer.Option(help="help.session", metavar="ID")] = None,
    customer: Annotated[str | None, typer.Option(help="help.customer_export", metavar="ID")] = None,
    format: Annotated[  # noqa: A002
        Format, typer.Option(help="help.format", metavar="|".join(Format))
    ] = Format.JSONL,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="help.output", metavar="FILE")
    ] = None,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
) -> Work:
    """Return the work of writing conversations out."""
    if (session is None) == (customer is None):
        raise Misuse("usage.session_or_customer")
    return functools.partial(
        _export,
        session=session,
        customer=customer,
        kind=format.value,
        output=output,
        files=Files(db, key, keys),
    )


def doctor(db: Database = DATABASE, key: Key = None, keys: Keys = None, json: Json = False) -> Work:
    """Return the work of examining a database."""
    return functools.partial(_doctor, files=Files(db, key, keys), json=json)


class Shown(msgspec.Struct, frozen=True):
    """What `show --session --json` writes; of a customer it writes a `Remembered`."""

    session: str
    messages: int
    layers: Layers
    tail: list[Message]


def _show(terminal: Terminal, *, files: Files, session: str, tail: int, json: bool) -> int:
    async def look() -> Shown:
        async with files.archive() as archive:
            layers = await archive.session(session)
            if layers is None:
                raise Refusal("error.UnknownSession")
            count = 0
            newest: deque[Message] = deque(maxlen=tail)
            async for message in archive.transcript(session):
                newest.append(message)
                count += 1
            return Shown(session, count, layers, list(newest))

    shown = anyio.run(look)
    if json:
        terminal.data(msgspec.json.encode(shown).decode() + "\n")
        return 0
    show_layers(terminal, shown.layers)
    if shown.tail:
        terminal.line()
        terminal.say("show.tail", shown=len(shown.tail), count=shown.messages)
        for line in message_lines(shown.tail, terminal.texts, with_time=True):
            terminal.line(line)
    return 0


def _show_customer(terminal: Terminal, *, files: Files, customer: str, json: bool) -> int:
    async def look() -> Remembered:
        async with files.archive() as archive:
            remembered = await archive.customer(customer)
            if remembered is None:
                raise Refusal("error.UnknownCustomer")
            return remembered

    remembered = anyio.run(look)
    if json:
        terminal.data(msgspec.json.encode(remembered).decode() + "\n")
    else:
        show_remembered(terminal, remembered)
    return 0


def _export(
    terminal: Terminal,
    *,
    session: str | None,
    customer: str | None,
    kind: str,
    output: Path | None,
    files: Files,
) -> int:
    async def copy() -> None:
        async with files.archive() as archive:
            sessions, owner = await _chosen(archive, session, customer)
            title = terminal.texts("export.title", session=session or customer)
            conversations = ((name, archive.transcript(name)) for name in sessions)
            await write_conversations(terminal, conversations, kind, title, owner, output)

    anyio.run(copy)
    return 0


async def _chosen(
    archive: Archive, session: str | None, customer: str | None
) -> tuple[list[str], str | None]:
    """Return which sessions were asked for, and whose they are."""
    if customer is not None:
        sessions = await archive.sessions(customer)
        if not sessions:
            raise Refusal("error.UnknownCustomer")
        return sessions, customer
    layers = None if session is None else await archive.session(session)
    if session is None or layers is None:
        raise Refusal("error.UnknownSession")
    return [session], layers.customer


def _doctor(terminal: Terminal, *, files: Files, json: bool) -> int:
    async def examine() -> Diagnosis:
        async with files.archive() as archive:
            return await archive.doctor()

    diagnosis = anyio.run(examine)
    texts = terminal.texts
    if json:
        terminal.data(msgspec.json.encode(diagnosis).decode() + "\n")
    else:
        rows = [
            (texts("doctor.customers"), diagnosis.customers),
            (texts("doctor.sessions"), diagnosis.sessions),
            (texts("doctor.messages"), diagnosis.messages),
            (texts("doctor.facts"), diagnosis.facts),
            (texts("doctor.unanswered"), diagnosis.unanswered),
            (texts("doctor.looked_for"), diagnosis.looked_for),
        ]
        show_table(terminal, str(files.database), rows)
        for finding in diagnosis.findings:
            key_of_kind = f"finding.{finding.kind}"
            kind = texts(key_of_kind) if key_of_kind in texts else finding.kind
            terminal.say("doctor.finding", kind=kind, where=finding.where)
    if diagnosis.findings:
        line = texts("doctor.findings", count=len(diagnosis.findings))
        terminal.complain(texts("refusal", message=line))
        return 1
    if not json:
        terminal.say("doctor.clean" if diagnosis.looked_for else "doctor.nothing")
    return 0
