"""Master keys: who can open a database.

A master key wraps the store's secret and each customer's key, and nothing
else; so it can be replaced without sealing a single message again. A keyring
holds several, of which one is active: new keys are wrapped under the active
one, old ones are unwrapped by whichever wrapped them, found by its id.

The id of a local key is a fingerprint derived from the key itself. It can be
told in errors and logs, and it can't lie: a key file whose ids and keys don't
belong together is refused when it is read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import Tampered, WrongKey
from .sealing import KEY_BYTES, Sealer, new_key

_ID_BYTES = 8
_FORMAT = 1


@runtime_checkable
class KeyWrapper(Protocol):
    """Wraps keys without showing its own: a key service, or a local key.

    Called outside the event loop where the keyring is not `local`. Whatever it
    raises on `unwrap` counts as a refusal.
    """

    @property
    def id(self) -> str:
        """Names the wrapping key; stored beside what it wrapped."""
        ...

    def wrap(self, key: bytes, place: bytes) -> bytes:
        """Return the key wrapped, bound to its place."""
        ...

    def unwrap(self, wrapped: bytes, place: bytes) -> bytes:
        """Return the key that was wrapped at this place, or raise."""
        ...


class LocalKey:
    """A master key in this process's memory.

    Args:
        key: 32 bytes.
    """

    __slots__ = ("_key", "_sealer", "id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sealer = Sealer(key)
        self.id = fingerprint(key)

    def __repr__(self) -> str:
        return f"<LocalKey {self.id}>"

    def wrap(self, key: bytes, place: bytes) -> bytes:
        """Return the key sealed at its place."""
        return self._sealer.seal(key, place)

    def unwrap(self, wrapped: bytes, place: bytes) -> bytes:
        """Return the key that was sealed at this place. Raises `Tampered`."""
        return self._sealer.open(wrapped, place, table="keys", where=self.id)

    def encoded(self) -> str:
        """Return the key itself in base64, for a key file and for nothing else."""
        return base64.b64encode(self._key).decode("ascii")


class _KeyFile(msgspec.Struct, forbid_unknown_fields=True):
    interturn_keys: int
    active: str
    keys: dict[str, str]


class Keyring:
    """Master keys by id, of which one is active.

    Args:
        wrappers: at least one; their ids differ.
        active: the id under which new keys are wrapped; the first one's if None.
    """

    def __init__(self, wrappers: Iterable[KeyWrapper], *, active: str | None = None) -> None:
        self._wrappers = {wrapper.id: wrapper for wrapper in wrappers}
        if not self._wrappers:
            raise ValueError("a keyring holds at least one key")
        self._active = next(iter(self._wrappers)) if active is None else active
        if self._active not in self._wrappers:
            raise ValueError(f"the keyring has no key {self._active} to make active")
        self._unsettled: Path | None = None

    def __repr__(self) -> str:
        return f"Keyring(ids={self.ids!r}, active={self._active!r})"

    @classmethod
    def generate(cls) -> Self:
        """Return a keyring with one fresh key, in memory only."""
        return cls([LocalKey(new_key())])

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, create: bool = False) -> Self:
        """Return the keyring that a key file holds.

        With ``create``, a missing file gives a fresh key that is written by
        `settle` and not before: a key file is only ever made together with a
        new database.

        Raises:
            FileNotFoundError: there is no such file, and ``create`` is False.
            PermissionError: others than the file's owner may read or write it.
            ValueError: it is no key file, or its ids and keys don't belong together.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                content = file.read()
        except FileNotFoundError:
            if not create:
                raise
            ring = cls.generate()
            ring._unsettled = path  # noqa: SLF001 - another of the same class
            return ring
        if os.name == "posix" and mode & 0o077:
            raise PermissionError(
                f"key file {path}: others may use it (mode {mode:04o}); chmod 600 it"
            )
        parsed = _parsed(content)
        if isinstance(parsed, str):
            raise ValueError(f"key file {path}: {parsed}")  # noqa: TRY004 - the content is wrong
        keys, active = parsed
        return cls(keys, active=active)

    @classmethod
    def from_environment(cls, variable: str = "INTERTURN_KEYS") -> Self:
        """Return the keyring that an environment variable holds.

        Its value: keys of 32 bytes in base64, separated by commas, the active
        one first.

        Raises:
            ValueError: the variable is not set, or holds something else.
        """
        keys = [_decoded(part.strip()) for part in os.environ.get(variable, "").split(",")]
        sound = [key for key in keys if key is not None]
        if len(sound) != len(keys):
            raise ValueError(
                f"{variable} must hold keys of {KEY_BYTES} bytes in base64, separated by commas"
            )
        return cls([LocalKey(key) for key in sound])

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, in the order in which they were added."""
        return tuple(self._wrappers)

    @property
    def active(self) -> str:
        """The id of the key that new keys are wrapped under."""
        return self._active

    @property
    def local(self) -> bool:
        """Whether every key is in this process, so that no call leaves it or blocks."""
        return all(isinstance(wrapper, LocalKey) for wrapper in self._wrappers.values())

    def new_key(self) -> str:
        """Add a fresh local key, make it active and return its id. `save` makes it last."""
        key = LocalKey(new_key())
        self._wrappers[key.id] = key
        self._active = key.id
        return key.id

    def wrap(self, key: bytes, place: bytes) -> tuple[str, bytes]:
        """Return the id of the active master key, and the key wrapped under it."""
        return self._active, self._wrappers[self._active].wrap(key, place)

    def unwrap(self, key_id: str, wrapped: bytes, place: bytes, *, table: str, where: str) -> bytes:
        """Return a key that was wrapped at this place.

        Raises:
            WrongKey: no key of this id is here, or a key service refused.
            Tampered: the key of this id is here, and the wrapped bytes don't open.
        """
        wrapper = self._wrappers.get(key_id)
        if wrapper is None:
            raise WrongKey(key_id)
        if isinstance(wrapper, LocalKey):
            with contextlib.suppress(Tampered):
                return wrapper.unwrap(wrapped, place)
            raise Tampered(table, where)
        try:
            key = wrapper.unwrap(wrapped, place)
        except Exception as error:
            raise WrongKey(key_id) from error
        if len(key) != KEY_BYTES:
            raise WrongKey(key_id)
        return key

    def settle(self) -> None:
        """Write the key that `from_file` made for a missing file, durably; else do nothing.

        Call it when, and only when, a new database is being made, before the
        first thing is wrapped. An existing file is never overwritten.

        Raises:
            FileExistsError: a key file has appeared there meanwhile.
            OSError: it can't be written. The keyring stays unsettled.
        """
        if self._unsettled is None:
            return
        _write(self._unsettled, self._file_content(), replace=False)
        self._unsettled = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all keys to a key file of mode 0600, durably, in one step.

        Raises:
            ValueError: a key is not local, so there is nothing to write for it.
            OSError: it can't be written; what was there before is untouched.
        """
        _write(Path(path), self._file_content(), replace=True)

    def _file_content(self) -> bytes:
        keys = {}
        for wrapper in self._wrappers.values():
            if not isinstance(wrapper, LocalKey):
                raise ValueError(f"key {wrapper.id} is not local and can't be saved to a file")  # noqa: TRY004 - the ring's content is at fault, no argument's type
            keys[wrapper.id] = wrapper.encoded()
        file = _KeyFile(interturn_keys=_FORMAT, active=self._active, keys=keys)
        return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def fingerprint(key: bytes) -> str:
    """Return the id of a local key: 16 hexadecimal digits that tell nothing of the key."""
    return HKDF(SHA256(), _ID_BYTES, salt=None, info=b"interturn key id").derive(key).hex()


def _parsed(content: bytes) -> tuple[Sequence[LocalKey], str] | str:
    """Return the keys and the active id, or what is wrong, in words without content."""
    try:
        file = msgspec.json.decode(content, type=_KeyFile)
    except msgspec.DecodeError:
        # Returned rather than raised here: nothing that has seen the content
        # may hang from the error.
        return "this is not a key file"
    if file.interturn_keys != _FORMAT:
        return f"its format is {file.interturn_keys}, this interturn knows {_FORMAT}"
    keys = []
    for key_id, encoded in file.keys.items():
        key = _decoded(encoded)
        if key is None or fingerprint(key) != key_id:
            return "an id and its key don't belong together"
        keys.append(LocalKey(key))
    if file.active not in file.keys:
        return "its active key is missing"
    return keys, file.active


def _decoded(encoded: str) -> bytes | None:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == KEY_BYTES else None


def _write(path: Path, content: bytes, *, replace: bool) -> None:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        error.filename = str(path)  # what was asked for, not the draft beside it
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            # Unlike a rename, a link refuses a name that is taken.
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
