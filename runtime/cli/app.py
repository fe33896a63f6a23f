"""The command line as a whole: understood here, then carried out in one place.

Typer only parses. Each command returns the work to do, and `run` does it where
every way in which it can end is turned into an exit status and, at most, one
line: 0, 1 for a refusal, 2 for a command that makes no sense, 130 after Ctrl-C,
141 where whoever read the output has gone.

The words of ``--help`` stand in the commands as keys of the texts; `_translate`
puts the chosen language in their place.
"""

import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import metadata
from typing import Annotated, Any

import structlog
import typer

from interturn.runtime.cli import bench, chat, demo, forget, importing, keys, reading, replay, stats
from interturn.runtime.cli.refusals import EXPECTED, Misuse, sentence
from interturn.runtime.cli.terminal import INTERRUPTED, Terminal
from interturn.runtime.cli.texts import LANGUAGES, Texts, language_of

REFUSED, MISUSED, PIPE_CLOSED = 1, 2, 141
# What typer raises for a command that makes no sense; it has no public name of its own.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Language(StrEnum):
    """The languages of the output."""

    ES = "es"
    EN = "en"


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"interturn {metadata.version('interturn')}\n")
        raise typer.Exit


def run(arguments: Sequence[str]) -> int:
    """Carry out a command and return its exit status."""
    arguments, language = _language(list(arguments), os.environ)
    _no_logs()
    for name in ("stdout", "stderr"):
        # None where whoever started us closed it.
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    terminal = Terminal(Texts(language))
    try:
        status = _run(arguments, terminal)
        sys.stdout.flush()
    except KeyboardInterrupt:
        terminal.complain(terminal.texts("refusal", message=terminal.texts("stopped")))
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes once more at exit, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Misuse as error:
        terminal.complain(terminal.texts("usage", message=sentence(error, terminal.texts)))
        return MISUSED
    except EXPECTED as error:
        terminal.complain(terminal.texts("refusal", message=sentence(error, terminal.texts)))
        return REFUSED
    return status


def _run(arguments: list[str], terminal: Terminal) -> int:
    command = typer.main.get_command(_app())
    _translate(command, terminal.texts)
    try:
        work = command.main(arguments or ["--help"], prog_name="interturn", standalone_mode=False)
    except UsageError as error:
        message = _usage(error, terminal.texts)
        terminal.complain(terminal.texts("usage", message=message))
        return MISUSED
    if callable(work):
        return int(work(terminal))
    return int(work or 0) if arguments else MISUSED


def _app() -> typer.Typer:
    app = typer.Typer(
        help="help.interturn",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    app.command(help="help.demo")(demo.demo)
    app.command(help="help.chat")(chat.chat)
    app.command(help="help.replay")(replay.replay)
    app.command(help="help.show")(reading.show)
    app.command(help="help.export")(reading.export)
    app.command("import", help="help.import")(importing.import_)
    app.command(help="help.forget")(forget.forget)
    app.command(help="help.doctor")(reading.doctor)
    app.command(help="help.stats")(stats.stats)
    app.command(help="help.bench")(bench.bench)
    keyring = typer.Typer(help="help.keys")
    keyring.command("new", help="help.keys_new")(keys.new)
    keyring.command("list", help="help.keys_list")(keys.list_)
    app.add_typer(keyring, name="keys")
    return app


def _options(
    lang: Annotated[
        Language | None, typer.Option("--lang", help="help.lang", metavar="|".join(Language))
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="help.version", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Take what stands before the command."""
    del lang, version  # both have had their effect


def _language(arguments: list[str], environ: Any) -> tuple[list[str], str]:
    """Take ``--lang`` out from wherever it stands: help needs it before anything is parsed.

    A language that isn't one stays, in front, for the parser to refuse.
    """
    language = language_of(environ)
    rest: list[str] = []
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            return [*rest, argument, *arguments], language
        if argument == "--lang" and arguments:
            argument += "=" + arguments.pop(0)
        if argument.startswith("--lang="):
            chosen = argument.removeprefix("--lang=")
            if chosen in LANGUAGES:
                language = chosen
            else:
                rest.insert(0, argument)
        else:
            rest.append(argument)
    return rest, language


def _translate(command: Any, texts: Texts) -> None:
    """Put words in the place of keys, in a command, its parameters and its subcommands."""
    command.help = _word(command.help, texts)
    command.short_help = _word(command.short_help, texts)
    for parameter in command.params:
        parameter.help = _word(getattr(parameter, "help", None), texts)
    parsers_own = command.get_help

    def help_in_language(context: Any) -> str:
        return _framed(parsers_own(context), texts)

    command.get_help = help_in_language
    for subcommand in getattr(command, "commands", {}).values():
        _translate(subcommand, texts)


def _word(key: str | None, texts: Texts) -> str | None:
    return texts(key) if key is not None and key in texts else key


_FRAME = (
    (r"^Usage: ", "help.usage"),
    (r"\[OPTIONS\]", "help.options_here"),
    (r"\bCOMMAND \[ARGS\]\.\.\.", "help.command_here"),
    (r"^Options:$", "help.options"),
    (r"^Arguments:$", "help.arguments"),
    (r"^Commands:$", "help.commands"),
    (r"\bShow\s+this\s+message\s+and\s+exit\.", "help.help"),
    (r"\bdefault:", "help.default"),
    (r"\benv\s+var:", "help.envvar"),
    (r"\brequired(?=\])", "help.required"),
)


def _framed(page: str, texts: Texts) -> str:
    """Put the words that the parser adds to a help page into the language."""
    for pattern, key in _FRAME:
        page = re.sub(pattern, texts(key), page, flags=re.MULTILINE)
    return page


def _usage(error: Any, texts: Texts) -> str:
    """Say what is wrong with the command, by the kind of error and what it is about."""
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return texts("usage.no_option", option=error.option_name)
    parameter = getattr(error, "param", None)
    if parameter is not None:
        name = next((opt for opt in parameter.opts if opt.startswith("--")), None)
        name = name or parameter.metavar or parameter.name
        if kind == "MissingParameter":
            return texts("usage.missing", name=name)
        choices = (parameter.metavar or "").split("|")
        if len(choices) > 1:
            return texts("usage.bad_choice", name=name, choices=", ".join(choices))
        return texts("usage.bad_value", name=name)
    if kind == "BadOptionUsage":
        return texts("usage.missing_value", name=error.option_name)
    commands = getattr(error.ctx and error.ctx.command, "commands", None)
    if commands:
        asked = re.fullmatch(r"No such command '(.*)'\.", error.format_message())
        known = ", ".join(commands)
        if asked:
            return texts("usage.no_such_command", name=asked[1], commands=known)
        return texts("usage.no_command", commands=known)
    return texts("usage.other")


def _no_logs() -> None:
    """Keep the library's events off the screen: what they tell, the errors and tables tell."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
