"""Which files a command works on: the database, its keys, its settings."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.archive import Archive
from interturn.runtime.cli.refusals import Refusal

KEY_NAME = "memory.key"
KEYS_VARIABLE = "INTERTURN_KEYS"
DATABASE = Path("memory.db")

# The options that name them, the same in every command.
Database = Annotated[Path, typer.Option(help="help.db", envvar="INTERTURN_DB", metavar="PATH")]
Key = Annotated[Path | None, typer.Option(help="help.key", envvar="INTERTURN_KEY", metavar="PATH")]
Keys = Annotated[Path | None, typer.Option("--keys", help="help.keys_apart", metavar="FILE")]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="help.settings", metavar="PATH")
]
Json = Annotated[bool, typer.Option("--json", help="help.json")]


class Files(msgspec.Struct, frozen=True):
    """What a command was told to work on.

    Attributes:
        database: the database.
        key: of the master keys; None for the file beside the database.
        keys: where the customers' wrapped keys rest apart; None for in the database.
        settings: a TOML file, if any.
    """

    database: Path
    key: Path | None = None
    keys: Path | None = None
    settings: Path | None = None

    def runtime(self) -> AbstractAsyncContextManager[Runtime]:
        """Return the runtime to enter, making database and key file together where both are new.

        Raises:
            Refusal: the database is there and its key file isn't.
        """
        loaded = Settings.load(self.settings, os.environ)
        return Runtime.open(self.database, keyring=self._keyring(), keys=self.keys, settings=loaded)

    def temporary(self) -> AbstractAsyncContextManager[Runtime]:
        """Return a runtime over a new database whose key is never on disk.

        Nobody can read what a killed process leaves of it.
        """
        loaded = Settings.load(self.settings, os.environ)
        return Runtime.open(self.database, keyring=Keyring.generate(), settings=loaded)

    def archive(self) -> AbstractAsyncContextManager[Archive]:
        """Return a reader of the files to enter, which changes nothing in them.

        Raises:
            Refusal: there is no such database, or no key file for it.
        """
        self.check_there()
        loaded = Settings.load(self.settings, os.environ)
        return Archive.open(self.database, keyring=self._keyring(), keys=self.keys, settings=loaded)

    def check_there(self) -> None:
        """Refuse where there is no database: opening would make one."""
        if not self.database.exists() or not self.database.stat().st_size:
            raise Refusal("error.NoDatabase", path=self.database)

    def bytes(self) -> int:
        """Return how much the files take on disk, their journals included."""
        found = 0
        for file in (self.database, self.keys):
            for suffix in ("", "-wal"):
                path = None if file is None else file.with_name(file.name + suffix)
                found += path.stat().st_size if path is not None and path.exists() else 0
        return found

    def _keyring(self) -> Keyring:
        if self.key is None and os.environ.get(KEYS_VARIABLE):
            return Keyring.from_environment(KEYS_VARIABLE)
        if self.database.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.database))
        path = self.database.with_name(KEY_NAME) if self.key is None else self.key
        # The runtime writes a missing key file only when it makes the database.
        new = not self.database.exists() or self.database.stat().st_size == 0
        if not new and not path.exists():
            raise Refusal("error.NoKey", path=path)
        return Keyring.from_file(path, create=new)
