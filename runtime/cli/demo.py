"""`interturn demo`: a bundled conversation through a temporary database, layer by layer.

Offline, with no key of the user's and no model. Each turn is a real one, on a
real file; at the end the file's own bytes are searched for what was said.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from interturn.actors.session import Layers
from interturn.runtime import Keyring, Runtime
from interturn.runtime.archive import Remembered
from interturn.runtime.cli.drawing import layers_drawing, show_layers
from interturn.runtime.cli.exchanges import Transcript
from interturn.runtime.cli.facts import show_remembered
from interturn.runtime.cli.terminal import Terminal, Work
from interturn.runtime.cli.transcripts import read

CONVERSATION = Path(__file__).with_name("conversation.es.json")
SESSION, CUSTOMER = "web-7f3a", "marta"
INSTRUCTIONS = (
    "Eres Bruno, del servicio de atención de Refugio Norte, una tienda de montaña de Gijón. "
    "Contesta con amabilidad y al grano."
)
QUESTION = "Hola, ¿en qué tienda lo recojo?"
FACTS_SHOWN = 12
MOMENTS = (1, 6, 7, 12)
"""Turns after which lines are printed where nothing can be drawn: the first, the last before
the window is full, the first fold, and one on the way."""

AROUND_SUMMARY = 23
"""Lines of the drawing beside the summary's own: a full window, a surplus of one turn, frames."""


def demo(
    pace: Annotated[
        float, typer.Option(help="help.pace", min=0.0, max=60.0, metavar="SECONDS")
    ] = 0.35,
) -> Work:
    """Return the work of showing the bundled conversation."""
    return functools.partial(_demo, pace=pace)


class Moment(msgspec.Struct, frozen=True):
    """Where the conversation stands after a turn.

    Attributes:
        turn: from 1.
        layers: after it, with the fold that it started.
        tokens: of its request.
        whole_tokens: of the conversation so far.
    """

    turn: int
    layers: Layers
    tokens: int
    whole_tokens: int


def _demo(terminal: Terminal, *, pace: float) -> int:
    (transcript,) = read(CONVERSATION)
    with tempfile.TemporaryDirectory(prefix="interturn-") as folder:
        terminal.say("demo.title", turns=len(transcript.turns))
        with _stage(terminal) as show:
            wait_s = pace if terminal.drawn else 0.0
            last, remembered, recalled = anyio.run(_play, transcript, Path(folder), show, wait_s)
        files = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    terminal.line()
    show_layers(terminal, last.layers)
    terminal.line()
    terminal.say("demo.remembered")
    show_remembered(terminal, remembered, limit=FACTS_SHOWN, brief=True)
    terminal.say("demo.next", question=QUESTION, fact=recalled)
    terminal.line()
    terminal.say("demo.request", tokens=last.tokens, whole=last.whole_tokens)
    texts = [text for turn in transcript.turns for text in (turn.visitor, turn.agent)]
    texts += [fact.text for fact in remembered.facts]
    readable = sum(any(text.encode() in data for data in files) for text in texts)
    if readable:
        terminal.complain(terminal.texts("demo.readable", count=readable))
        return 1
    terminal.say("demo.sealed", bytes=sum(map(len, files)), texts=len(texts))
    return 0


async def _play(
    transcript: Transcript, folder: Path, show: Callable[[Moment], None], wait_s: float
) -> tuple[Moment, Remembered, str]:
    """Play the conversation, showing each moment; return the last, what stays, what is recalled."""
    # The key is never on disk, so nobody can read what a killed demo leaves behind.
    async with Runtime.open(folder / "memory.db", keyring=Keyring.generate()) as runtime:
        session = runtime.session(SESSION, customer=CUSTOMER)
        for number, exchange in enumerate(transcript.turns, 1):
            async with session.turn(
                exchange.visitor, instructions=INSTRUCTIONS, delivery_id=f"demo:{number}"
            ) as turn:
                await turn.reply(exchange.agent)
            whole = sum([message.tokens async for message in session.transcript()])
            if wait_s:
                # What left the window, on its way into the summary.
                leaving = await session.layers()
                show(Moment(number, leaving, turn.request.tokens, whole))
                await anyio.sleep(wait_s / 2)
            await runtime.flush()
            moment = Moment(number, await session.layers(), turn.request.tokens, whole)
            show(moment)
            await anyio.sleep(wait_s / 2)
        customer = runtime.customer(CUSTOMER)
        facts, profile = await customer.facts(), await customer.profile()
        remembered = Remembered(facts, profile, tuple(await customer.sessions()))
        recalled = await customer.recall(QUESTION, limit=1)
        return moment, remembered, "".join(f"«{scored.fact.text}»" for scored in recalled) or "—"


@contextmanager
def _stage(terminal: Terminal) -> Iterator[Callable[[Moment], None]]:
    """Give what shows a moment: a drawing that changes in place, or a line now and then."""

    def said(moment: Moment) -> str:
        return terminal.texts(
            "layer.moment",
            turn=moment.turn,
            window=len(moment.layers.window),
            surplus=len(moment.layers.surplus),
            cursor=moment.layers.cursor,
            tokens=moment.tokens,
        )

    def print_line(moment: Moment) -> None:
        if moment.turn in MOMENTS:
            terminal.line(said(moment))

    if not terminal.drawn:
        yield print_line
        return
    with Live(console=terminal.out, transient=True, auto_refresh=False) as live:

        def draw(moment: Moment) -> None:
            room = max(1, terminal.out.height - AROUND_SUMMARY)
            drawing = layers_drawing(moment.layers, terminal.texts, summary_lines=room)
            live.update(Group(Text(said(moment), style="bold"), drawing), refresh=True)

        yield draw
