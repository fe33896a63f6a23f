"""`interturn chat`: talk in the terminal, with an agent that only remembers.

The terminal is read in the main thread, where Ctrl-C and the end of the input
arrive, and the runtime lives in another; neither waits for the other to leave.
"""

import contextlib
import functools
import sys
from typing import Annotated

import msgspec
import typer
from anyio.from_thread import start_blocking_portal

from interturn.actors.session import Layers
from interturn.runtime import BudgetExceeded, InvalidText, Runtime, Session
from interturn.runtime.archive import Remembered
from interturn.runtime.cli.drawing import show_layers
from interturn.runtime.cli.facts import show_remembered
from interturn.runtime.cli.places import DATABASE, Database, Files, Key, Keys, SettingsFile
from interturn.runtime.cli.refusals import sentence
from interturn.runtime.cli.terminal import Terminal, Work, plain
from interturn.runtime.cli.texts import Texts


def chat(
    *,
    db: Database = DATABASE,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    session: Annotated[str, typer.Option(help="help.session", metavar="ID")] = "terminal",
    customer: Annotated[str | None, typer.Option(help="help.customer", metavar="ID")] = None,
    instructions: Annotated[str, typer.Option(help="help.instructions", metavar="TEXT")] = "",
    budget: Annotated[int | None, typer.Option(help="help.budget", min=1, metavar="N")] = None,
) -> Work:
    """Return the work of talking."""
    talk = Talk(session, customer, instructions, budget)
    return functools.partial(_chat, talk=talk, files=Files(db, key, keys, settings))


class Talk(msgspec.Struct, frozen=True):
    """What is talked in.

    Attributes:
        session_id: which conversation.
        customer: whose; None for whoever owns it.
        instructions: for the agent.
        budget: tokens of a request at most; None for the settings' own.
    """

    session_id: str
    customer: str | None
    instructions: str
    budget: int | None


def _chat(terminal: Terminal, *, talk: Talk, files: Files) -> int:
    if terminal.drawn:
        # Without it a terminal gives at most 4,096 bytes a line, and no way to correct them.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, PLC0415
    try:
        _talk(terminal, files, talk)
    except KeyboardInterrupt:
        # While an answer was under way: a turn that was told of is on disk all the same.
        terminal.line()
    terminal.say("chat.bye")
    return 0


def _talk(terminal: Terminal, files: Files, talk: Talk) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(files.runtime()) as runtime,
    ):
        session = portal.call(
            functools.partial(runtime.session, talk.session_id, customer=talk.customer)
        )
        layers = portal.call(session.layers)
        terminal.say(
            "chat.welcome", db=files.database, session=talk.session_id, count=_count(layers)
        )
        while (text := _heard(terminal)) is not None and text != "/quit":
            if text == "/layers":
                show_layers(terminal, portal.call(session.layers))
            elif text == "/facts":
                show_remembered(terminal, portal.call(_remembered, runtime, session))
            elif text.startswith("/"):
                terminal.say("chat.unknown")
            elif text.strip():
                try:
                    answer = portal.call(_answered, session, text, talk, terminal.texts)
                except (BudgetExceeded, InvalidText) as error:
                    # Nothing was written; the next message may be better.
                    terminal.complain(
                        terminal.texts("refusal", message=sentence(error, terminal.texts))
                    )
                else:
                    terminal.line(terminal.texts("chat.agent") + answer)


def _heard(terminal: Terminal) -> str | None:
    """Return the next line, or None when the visitor leaves."""
    prompt = plain(terminal.texts("chat.prompt")) if terminal.drawn and sys.stdin.isatty() else ""
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        terminal.line()
        return None


async def _remembered(runtime: Runtime, session: Session) -> Remembered:
    """Return what is known of the visitor, once what was just said has been learnt from."""
    await runtime.flush()
    customer = session.customer
    facts, profile = await customer.facts(), await customer.profile()
    return Remembered(facts, profile, tuple(await customer.sessions()))


async def _answered(session: Session, text: str, talk: Talk, texts: Texts) -> str:
    """Take a turn and answer it with what a model would have been sent."""
    async with session.turn(text, instructions=talk.instructions, budget=talk.budget) as turn:
        layers = await session.layers()
        # The newest message is the visitor's own; a system message, if any, stands first.
        history = sum(message["role"] != "system" for message in turn.request.messages) - 1
        summary = (
            texts("chat.echo_summary", cursor=layers.cursor)
            if layers.cursor
            else texts("chat.echo_no_summary")
        )
        answer = texts("chat.echo", tokens=turn.request.tokens, history=history, summary=summary)
        await turn.reply(answer)
        return answer


def _count(layers: Layers) -> int:
    newest = (*layers.surplus, *layers.window)
    return newest[-1].seq if newest else layers.cursor
