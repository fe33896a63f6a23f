"""Which files a command works on: the database, its keys, its settings."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.archive import Archive
from interturn.runtime.cli.refusals import Refusal

KEY_NAME = "memory.key"
KEYS_VARIABLE = "INTERTURN_KEYS"


def key_beside(database: Path, key: Path | None) -> Path:
    """Return the key file: the one that was named, or the one beside the database."""
    return database.with_name(KEY_NAME) if key is None else key


def open_runtime(
    database: Path, key: Path | None, settings: Path | None, *, temporary: bool = False
) -> AbstractAsyncContextManager[Runtime]:
    """Return the runtime to enter, making database and key file together where both are new.

    A ``temporary`` database has a key that is never on disk: nobody can read what
    a killed process leaves of it.

    Raises:
        Refusal: the database is there and its key file isn't.
    """
    loaded = Settings.load(settings, os.environ)
    keyring = Keyring.generate() if temporary else _keyring(database, key)
    return Runtime.open(database, keyring=keyring, settings=loaded)


def open_archive(
    database: Path, key: Path | None, settings: Path | None = None
) -> AbstractAsyncContextManager[Archive]:
    """Return a reader of the files to enter, which changes nothing in them.

    Raises:
        Refusal: there is no such database, or no key file for it.
    """
    if not database.exists():
        raise Refusal("error.NoDatabase", path=database)
    loaded = Settings.load(settings, os.environ)
    return Archive.open(database, keyring=_keyring(database, key), settings=loaded)


def disk_bytes(database: Path) -> int:
    """Return how much the database takes on disk, its journal included."""
    found = 0
    for name in (database.name, f"{database.name}-wal"):
        path = database.with_name(name)
        found += path.stat().st_size if path.exists() else 0
    return found


def _keyring(database: Path, key: Path | None) -> Keyring:
    if key is None and os.environ.get(KEYS_VARIABLE):
        return Keyring.from_environment(KEYS_VARIABLE)
    path = key_beside(database, key)
    # The runtime writes a missing key file only when it makes the database.
    new = not database.exists() or database.stat().st_size == 0
    if not new and not path.exists():
        raise Refusal("error.NoKey", path=path)
    return Keyring.from_file(path, create=new)
