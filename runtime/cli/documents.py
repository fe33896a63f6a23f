"""Conversations as documents: lines for a program, Markdown and a page for a person.

The conversation and nothing else: who, when with its zone, and what, in order.
JSON lines hold every text exactly as it was said. In the two for people a
message can't pass for another's, nor for the document's own words: Markdown
quotes it line by line, the page escapes it, and control characters are spelled.
"""

from __future__ import annotations

import html
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from interturn.actors.message import Message
from interturn.runtime.cli.terminal import Terminal, plain
from interturn.runtime.cli.texts import Texts


async def write_conversations(
    terminal: Terminal,
    conversations: Iterable[tuple[str, AsyncIterator[Message]]],
    kind: str,
    title: str,
    customer: str | None,
    output: Path | None,
) -> None:
    """Write conversations, message by message as they are read.

    A file is written beside its place and put there when it is whole, readable
    by its owner alone: what rests sealed in the database is in the clear here.

    Args:
        terminal: for its language, and its output where there is no file.
        conversations: session ids with their messages.
        kind: ``jsonl``, ``md`` or ``html``.
        title: of the document.
        customer: the id of whose conversations they are, None for an anonymous visitor.
        output: the file; None for standard output.
    """
    document = _DOCUMENTS[kind](title, customer, terminal.texts)
    with _written(terminal, output) as write:
        write(document.head())
        for session_id, messages in conversations:
            write(document.session(session_id))
            async for message in messages:
                write(document.message(session_id, message))
        write(document.foot())


class Lines:
    """JSON lines, one a message; `interturn` and anything else can read them back."""

    def __init__(self, title: str, customer: str | None, texts: Texts) -> None:
        del title, texts
        self._customer = customer

    def head(self) -> str:
        """Return what stands before the first session."""
        return ""

    def session(self, session_id: str) -> str:
        """Return what stands before a session's messages."""
        del session_id
        return ""

    def message(self, session_id: str, message: Message) -> str:
        """Return one message."""
        line = {
            "customer": self._customer,
            "session": session_id,
            "seq": message.seq,
            "role": message.role,
            "at": message.at,
            "text": message.text,
        }
        encoded = msgspec.json.encode(line).decode()
        # Escapes are the same JSON, and no terminal obeys them.
        return re.sub("[\x7f-\x9f\u2028\u2029]", _json_escape, encoded) + "\n"

    def foot(self) -> str:
        """Return what stands after the last message."""
        return ""


class Markdown(Lines):
    """Markdown: each message a quotation under who said it and when."""

    def __init__(self, title: str, customer: str | None, texts: Texts) -> None:
        del customer  # a person knows whose they asked for
        self._title = title
        self._texts = texts

    def head(self) -> str:
        """Return the title."""
        return f"# {_quotable(self._title)}\n"

    def session(self, session_id: str) -> str:
        """Return the session's heading."""
        return f"\n## {_quotable(self._texts('export.session', session=session_id))}\n"

    def message(self, session_id: str, message: Message) -> str:
        """Return one message as a quotation."""
        del session_id
        quoted = "\n".join(f"> {line}".rstrip() for line in _quotable(message.text).split("\n"))
        return f"\n**{self._texts(message.role)}** · {_when(message)}\n\n{quoted}\n"


class Page(Lines):
    """One HTML page that loads nothing and runs nothing."""

    def __init__(self, title: str, customer: str | None, texts: Texts) -> None:
        del customer  # a person knows whose they asked for
        self._title = title
        self._texts = texts

    def head(self) -> str:
        """Return the page down to its title."""
        title = html.escape(plain(self._title))
        return _PAGE_HEAD.format(language=self._texts.language, title=title, style=_STYLE)

    def session(self, session_id: str) -> str:
        """Return the session's heading."""
        name = self._texts("export.session", session=session_id)
        return f'<h2 dir="auto">{html.escape(plain(name))}</h2>\n'

    def message(self, session_id: str, message: Message) -> str:
        """Return one message."""
        del session_id
        return (
            f'<article class="{message.role}"><header>{html.escape(self._texts(message.role))} '
            f'<time datetime="{message.at.isoformat()}">{_when(message)}</time></header>'
            f'<p dir="auto">{html.escape(plain(message.text))}</p></article>\n'
        )

    def foot(self) -> str:
        """Return the end of the page."""
        return "</main></body></html>\n"


_DOCUMENTS: dict[str, Callable[[str, str | None, Texts], Lines]] = {
    "jsonl": Lines,
    "md": Markdown,
    "html": Page,
}

_PAGE_HEAD = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><main><h1 dir="auto">{title}</h1>
"""

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#f6f5f1;color:#222}"
    "main{max-width:46rem;margin:auto;padding:1rem}"
    "article{margin:.8rem 0;padding:.6rem .9rem;border-radius:.6rem;background:#fff}"
    "article.visitor{margin-right:3rem;background:#e8f1e4}article.agent{margin-left:3rem}"
    "header{font-size:.8rem;color:#666}p{margin:.2rem 0;white-space:pre-wrap;"
    "overflow-wrap:anywhere}"
)


def _when(message: Message) -> str:
    return f"{message.at:%Y-%m-%d %H:%M:%S} UTC"


def _quotable(text: str) -> str:
    """Return text whose HTML, where Markdown would pass it on, is only text."""
    return re.sub(r"<(?=[A-Za-z/!?])", r"\\<", plain(text))


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@contextmanager
def _written(terminal: Terminal, output: Path | None) -> Iterator[Callable[[str], object]]:
    """Give a function that writes; the file appears when all is written, or not at all."""
    if output is None or str(output) == "-":
        yield terminal.data
        return
    if output.exists() and not output.is_file():
        # A pipe or a device is written to; it can't be put in its place.
        with output.open("w", encoding="utf-8", newline="\n") as device:
            yield device.write
        return
    target = output.resolve()
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.")
    except OSError as error:
        error.filename = str(output)  # what was asked for, not the draft beside it
        raise
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
