"""What can go wrong where things rest.

`StorageError` is the root in this room, which knows no other. The runtime
raises each of them again as its public twin under `InterturnError`, without
the cause chained to it. No error carries anyone's words or ids.
"""

from __future__ import annotations

from datetime import datetime


class StorageError(Exception):
    """The root of this room's errors."""


class StoreOwned(StorageError):
    """Another live process holds the database. Nothing was read or written.

    Attributes:
        owner: who holds it, as ``host/process id``.
        since: since when (UTC), or None where the owner didn't get to say.
    """

    def __init__(self, owner: str, since: datetime | None) -> None:
        super().__init__(owner, since)
        self.owner = owner
        self.since = since

    def __str__(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"the database is held by {self.owner}{since}"


class Fenced(StorageError):
    """Another process took the database over; our write was refused."""

    def __str__(self) -> str:
        return "the database was taken over by another process"


class WrongKey(StorageError):
    """The keyring can't open this database: the master key is wrong or missing.

    Attributes:
        key_id: the id of the master key that the database was written under.
    """

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id

    def __str__(self) -> str:
        return f"the keyring has no working master key {self.key_id}"


class Tampered(StorageError):
    """Sealed bytes don't open at their place: changed, moved or cut.

    Attributes:
        table: where they rest.
        where: their place in it, by number and never by id.
    """

    def __init__(self, table: str, where: str) -> None:
        super().__init__(table, where)
        self.table = table
        self.where = where

    def __str__(self) -> str:
        return f"sealed bytes were changed, moved or cut: {self.table} {self.where}"


class StoreFailed(StorageError):
    """The disk or the database refused: full, read-only, damaged, busy.

    Attributes:
        cause: the refusal in the database's own terms.
        unknown: whether the write may have been applied all the same.
    """

    def __init__(self, cause: str, *, unknown: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.unknown = unknown

    def __str__(self) -> str:
        return f"the store failed: {self.cause}"


class SchemaTooNew(StorageError):
    """The database was written by a newer interturn. It was left untouched.

    Attributes:
        found: the schema version in the file.
        known: the newest version that this interturn knows.
    """

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return f"the database has schema {self.found}, this interturn knows up to {self.known}"
