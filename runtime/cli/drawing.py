"""The three layers, drawn for a terminal or written for anything else."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from interturn.actors.message import Message
from interturn.actors.session import Layers
from interturn.runtime.cli.terminal import Terminal, plain
from interturn.runtime.cli.texts import Texts


def show_layers(terminal: Terminal, layers: Layers) -> None:
    """Put the layers on the screen: a drawing on a terminal, lines elsewhere."""
    if terminal.drawn:
        terminal.draw(layers_drawing(layers, terminal.texts))
    else:
        for line in layers_lines(layers, terminal.texts):
            terminal.line(line)


def show_table(terminal: Terminal, title: str, rows: Sequence[tuple[str, int | float]]) -> None:
    """Put counts on the screen, one a line."""
    if not terminal.drawn:
        terminal.line(f"{title}:")
        for name, count in rows:
            terminal.line(f"  {name}: {terminal.texts.number(count)}")
        return
    terminal.draw(Text(title, style="bold"))
    table = Table(box=ROUNDED)
    table.add_column()
    table.add_column(justify="right")
    for name, count in rows:
        table.add_row(Text(name), terminal.texts.number(f"{count:,}"))
    table.show_header = False
    terminal.draw(table)


def layers_drawing(
    layers: Layers, texts: Texts, *, summary_lines: int | None = None
) -> RenderableType:
    """Return the layers as panels, oldest on top, with the cursor between them.

    Args:
        layers: what to draw.
        texts: in which language.
        summary_lines: for a drawing that must fit a screen, how many lines the
            summary may take, its newest; messages then take one line each.
    """
    brief = summary_lines is not None
    summary = Text(plain(layers.summary))
    if summary_lines is not None:
        newest = plain(layers.summary).split("\n")[-summary_lines:]
        summary = Text("\n".join(newest), no_wrap=True, overflow="ellipsis")
    cursor = Text(
        f"{texts('layer.cursor')}: {texts('layer.cursor_note', cursor=layers.cursor)}",
        style="bold yellow",
        justify="center",
    )
    surplus = _messages(layers.surplus, texts, brief=brief)
    window = _messages(layers.window, texts, brief=brief)
    return Group(
        _panel(texts("layer.summary"), _summary_note(layers, texts), summary, "yellow"),
        cursor,
        _panel(texts("layer.surplus"), _surplus_note(layers, texts), surplus, "magenta"),
        _panel(texts("layer.window"), _window_note(layers, texts), window, "green"),
    )


def layers_lines(layers: Layers, texts: Texts) -> list[str]:
    """Return the layers as lines, each layer under its title."""
    return [
        f"{texts('layer.summary')}: {_summary_note(layers, texts)}",
        *(f"  {line}" for line in layers.summary.splitlines()),
        f"{texts('layer.cursor')}: {layers.cursor}",
        f"{texts('layer.surplus')}: {_surplus_note(layers, texts)}",
        *message_lines(layers.surplus, texts),
        f"{texts('layer.window')}: {_window_note(layers, texts)}",
        *message_lines(layers.window, texts),
    ]


def message_lines(
    messages: Sequence[Message], texts: Texts, *, with_time: bool = False
) -> list[str]:
    """Return each message as lines: its number, who, perhaps when, and what."""
    lines = []
    for message in messages:
        who = texts(message.role)
        when = f" {message.at:%Y-%m-%d %H:%M:%S} UTC" if with_time else ""
        first, *more = plain(message.text).split("\n")
        lines.append(f"  {message.seq:>4} {who}{when}: {first}")
        lines += [f"       {line}" for line in more]
    return lines


def _panel(title: str, note: str, body: RenderableType, colour: str) -> Panel:
    heading = Text.assemble((title, f"bold {colour}"), f" · {note}")
    return Panel(body, title=heading, title_align="left", border_style=colour, box=ROUNDED)


def _messages(messages: Sequence[Message], texts: Texts, *, brief: bool) -> RenderableType:
    # Widths are said outright: lines cut to fit would cut these first.
    numbers = [str(message.seq) for message in messages]
    names = [texts(message.role) for message in messages]
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", min_width=max(map(len, numbers), default=0))
    table.add_column(no_wrap=True, min_width=max(map(len, names), default=0))
    table.add_column(ratio=1, no_wrap=brief, overflow="ellipsis")
    for message, number, name in zip(messages, numbers, names, strict=True):
        colour = "cyan" if message.role == "visitor" else "blue"
        text = plain(message.text)
        table.add_row(
            number,
            Text(name, style=colour),
            Text(" ".join(text.split()) if brief else text),
        )
    return table


def _summary_note(layers: Layers, texts: Texts) -> str:
    if layers.cursor:
        return texts("layer.summary_note", cursor=layers.cursor)
    return texts("layer.summary_none")


def _surplus_note(layers: Layers, texts: Texts) -> str:
    if layers.surplus:
        return texts("layer.surplus_note", count=len(layers.surplus))
    return texts("layer.surplus_none")


def _window_note(layers: Layers, texts: Texts) -> str:
    if layers.window:
        return texts("layer.window_note", count=len(layers.window))
    return texts("layer.window_none")
