"""What is known of a customer, drawn for a terminal or written for anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from interturn.actors.facts import Fact
from interturn.actors.profile import always_on
from interturn.runtime.archive import Remembered
from interturn.runtime.cli.terminal import Terminal, plain
from interturn.runtime.cli.texts import Texts

_NOTE: Final = "note:"


def show_remembered(
    terminal: Terminal, remembered: Remembered, *, limit: int | None = None, brief: bool = False
) -> None:
    """Put a customer's profile, facts and sessions on the screen.

    Args:
        terminal: where.
        remembered: what is known.
        limit: facts at most, the most telling; None for all.
        brief: without the sessions, and of each fact only what it says.
    """
    facts = remembered.facts if limit is None else _telling(remembered.facts)[:limit]
    more = len(remembered.facts) - len(facts)
    if terminal.drawn:
        drawing = _drawing(remembered, facts, more, terminal.texts, brief=brief)
        terminal.draw(drawing)
        return
    for line in _lines(remembered, facts, more, terminal.texts, brief=brief):
        terminal.line(line)


def _telling(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the facts: those that always stand, then the often and lately said, notes last."""
    standing = always_on(facts)
    rest = [fact for fact in facts if fact not in standing]
    rest.sort(
        key=lambda fact: (not fact.slot.startswith(_NOTE), fact.sightings, fact.last_seen),
        reverse=True,
    )
    return (*standing, *rest)


def _lines(
    remembered: Remembered, facts: Sequence[Fact], more: int, texts: Texts, *, brief: bool
) -> list[str]:
    profile = remembered.profile.splitlines() or [texts("facts.no_profile")]
    lines = [f"{texts('facts.profile')}:", *(f"  {line}" for line in profile)]
    lines.append(f"{texts('facts.title')}: {len(remembered.facts)}")
    for fact in facts:
        lines.append(f"  {_subject(fact, texts)}: {_flat(fact.text)}")
        if fact.was:
            lines.append(f"      {texts('facts.was', was=_flat(fact.was))}")
        if not brief:
            seen = texts(
                "facts.seen",
                since=f"{fact.since:%Y-%m-%d}",
                last=f"{fact.last_seen:%Y-%m-%d}",
                count=fact.sightings,
                source=_source(fact, texts),
            )
            lines.append(f"      {seen}")
    if more:
        lines.append(f"  {texts('facts.more', count=more)}")
    if not brief:
        lines.append(f"{texts('facts.sessions')}: {len(remembered.sessions)}")
        lines += [f"  {_flat(session)}" for session in remembered.sessions]
    return lines


def _drawing(
    remembered: Remembered, facts: Sequence[Fact], more: int, texts: Texts, *, brief: bool
) -> RenderableType:
    profile = Text(plain(remembered.profile) or texts("facts.no_profile"))
    known: list[RenderableType] = [_table(facts, texts, brief=brief)] if facts else []
    if more:
        known.append(Text(texts("facts.more", count=more), style="dim"))
    if not known:
        known.append(Text(texts("facts.none")))
    count = f" · {len(remembered.facts)}"
    panels = [
        _panel(texts("facts.profile"), "", profile, "cyan"),
        _panel(texts("facts.title"), count, Group(*known), "blue"),
    ]
    if not brief:
        names = Text("\n".join(_flat(session) for session in remembered.sessions))
        count = f" · {len(remembered.sessions)}"
        panels.append(_panel(texts("facts.sessions"), count, names, "green"))
    return Group(*panels)


def _table(facts: Sequence[Fact], texts: Texts, *, brief: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_header=not brief, header_style="bold")
    table.add_column(texts("facts.slot"), style="cyan", max_width=22, overflow="fold")
    table.add_column(texts("facts.fact"), ratio=1)
    if not brief:
        table.add_column(texts("facts.when"), no_wrap=True)
        table.add_column(texts("facts.times"), justify="right", no_wrap=True)
        table.add_column(texts("facts.session"), max_width=20, overflow="fold")
    for fact in facts:
        said = Text(_flat(fact.text))
        if fact.was:
            said.append("\n" + texts("facts.was", was=_flat(fact.was)), style="dim")
        cells: list[RenderableType] = [Text(_subject(fact, texts)), said]
        if not brief:
            days = dict.fromkeys(f"{at:%Y-%m-%d}" for at in (fact.since, fact.last_seen))
            cells += [
                Text("\n".join(days)),
                Text(str(fact.sightings)),
                Text(_flat(_source(fact, texts))),
            ]
        table.add_row(*cells)
    return table


def _subject(fact: Fact, texts: Texts) -> str:
    """Return what a fact is about, in words; what has no word stands as its slot."""
    family, colon, rest = fact.slot.partition(":")
    key = f"slot.{family}"
    if key not in texts:
        return _flat(fact.slot)
    # A note's slot tells it from other notes, and tells nobody anything.
    return (
        texts(key) if f"{family}:" == _NOTE else _flat(texts(key) + colon + " " * bool(rest) + rest)
    )


def _source(fact: Fact, texts: Texts) -> str:
    session, seq = fact.source
    return f"{session} ({seq})" if seq else texts("facts.told")


def _flat(text: str) -> str:
    return " ".join(plain(text).split())


def _panel(title: str, note: str, body: RenderableType, colour: str) -> Panel:
    heading = Text.assemble((title, f"bold {colour}"), note)
    return Panel(body, title=heading, title_align="left", border_style=colour, box=ROUNDED)
