"""`interturn keys`: master keys, by their ids. Key material is never shown."""

import functools
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from interturn.runtime import Keyring
from interturn.runtime.cli.places import KEY_NAME
from interturn.runtime.cli.refusals import Refusal
from interturn.runtime.cli.terminal import Terminal, Work

KeyPath = Annotated[
    Path, typer.Argument(help="help.keys_path", envvar="INTERTURN_KEY", metavar="PATH")
]


def new(path: KeyPath = Path(KEY_NAME)) -> Work:
    """Return the work of making a key."""
    return functools.partial(_new, path=path)


def list_(
    path: KeyPath = Path(KEY_NAME),
    json: Annotated[bool, typer.Option("--json", help="help.json")] = False,
) -> Work:
    """Return the work of listing keys."""
    return functools.partial(_list, path=path, json=json)


def _new(terminal: Terminal, *, path: Path) -> int:
    keyring = Keyring.from_file(path, create=True)
    if path.exists():
        # Databases opened before still find the key that they were made under.
        key = keyring.new_key()
        keyring.save(path)
        terminal.say("keys.added", path=path, key=key)
    else:
        keyring.settle()
        terminal.say("keys.made", path=path, key=keyring.active)
    return 0


def _list(terminal: Terminal, *, path: Path, json: bool) -> int:
    if not path.exists():
        raise Refusal("error.NoKey", path=path)
    keyring = Keyring.from_file(path)
    if json:
        keys = [{"id": key, "active": key == keyring.active} for key in keyring.ids]
        terminal.data(msgspec.json.encode(keys).decode() + "\n")
        return 0
    for key in keyring.ids:
        terminal.line(f"{key} {terminal.texts('keys.active') if key == keyring.active else ''}")
    return 0
