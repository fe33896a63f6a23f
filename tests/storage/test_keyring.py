"""Who can open a database: master keys, where they rest, and what they refuse."""

from __future__ import annotations

import base64
import json
import os
import traceback

import pytest

from interturn.storage import (
    Keyring,
    KeyWrapper,
    LocalKey,
    Sealer,
    Tampered,
    WrongKey,
    customer_key_place,
    new_key,
    root_place,
)

PLACE = root_place()


class Service:
    """A key service as somebody else would write it."""

    id = "kms/eu/7"

    def __init__(self, *, refuses=False):
        self._sealer = Sealer(new_key())
        self.refuses = refuses

    def wrap(self, key, place):
        return self._sealer.seal(key, place)

    def unwrap(self, wrapped, place):
        if self.refuses:
            raise ConnectionError
        return self._sealer.open(wrapped, place, table="keys", where="service")


def test_what_a_ring_wraps_it_unwraps():
    """A wrapped key comes with its master's id, and opens at its place only."""
    ring, key = Keyring.generate(), new_key()
    key_id, wrapped = ring.wrap(key, PLACE)
    assert key_id == ring.active
    assert ring.unwrap(key_id, wrapped, PLACE, table="root", where="1") == key
    for bad, place in ((wrapped, customer_key_place(b"h" * 16)), (wrapped[:-1], PLACE)):
        with pytest.raises(Tampered) as told:
            ring.unwrap(key_id, bad, place, table="root", where="1")
        assert told.value.table == "root"


def test_a_missing_master_key_is_wrong_key():
    """The error names the id that was looked for."""
    key_id, wrapped = Keyring.generate().wrap(new_key(), PLACE)
    with pytest.raises(WrongKey) as told:
        Keyring.generate().unwrap(key_id, wrapped, PLACE, table="root", where="1")
    assert told.value.key_id == key_id


def test_an_id_is_its_keys_fingerprint():
    """The same key has the same id everywhere, and the id is no part of the key."""
    key = new_key()
    assert LocalKey(key).id == LocalKey(key).id != LocalKey(new_key()).id
    assert bytes.fromhex(LocalKey(key).id) not in key


def test_a_new_key_is_active_and_the_old_one_still_opens():
    """That is what rotating needs."""
    ring = Keyring.generate()
    old = ring.wrap(new_key(), PLACE)
    added = ring.new_key()
    assert ring.active == added
    assert ring.ids == (old[0], added)
    assert len(ring.unwrap(*old, PLACE, table="root", where="1")) == 32


def test_a_saved_ring_is_read_back(tmp_path):
    """All keys, in order, and which one is active, in a file that is its owner's alone."""
    ring = Keyring.generate()
    ring.new_key()
    wrapped = ring.wrap(b"k" * 32, PLACE)
    path = tmp_path / "memory.key"
    ring.save(path)
    ring.new_key()
    ring.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["memory.key"]
    again = Keyring.from_file(path)
    assert (again.ids, again.active) == (ring.ids, ring.active)
    assert again.unwrap(*wrapped, PLACE, table="root", where="1") == b"k" * 32


def test_a_missing_file_is_missing(tmp_path):
    """Without `create` there is no key, and none is made up."""
    with pytest.raises(FileNotFoundError):
        Keyring.from_file(tmp_path / "memory.key")
    assert list(tmp_path.iterdir()) == []


def test_a_created_key_is_written_when_it_is_settled_and_not_before(tmp_path):
    """A key file is only ever made together with a new database."""
    path = tmp_path / "memory.key"
    ring = Keyring.from_file(path, create=True)
    wrapped = ring.wrap(b"k" * 32, PLACE)
    assert list(tmp_path.iterdir()) == []
    ring.settle()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["memory.key"]
    content = path.read_bytes()
    ring.settle()
    assert path.read_bytes() == content
    again = Keyring.from_file(path, create=True)
    again.settle()
    assert again.unwrap(*wrapped, PLACE, table="root", where="1") == b"k" * 32


def test_settling_never_overwrites(tmp_path):
    """A key file that appeared meanwhile stays as it is, and ours stays unsettled."""
    path = tmp_path / "memory.key"
    late = Keyring.from_file(path, create=True)
    Keyring.from_file(path, create=True).settle()
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(FileExistsError):
            late.settle()
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["memory.key"]


def test_a_key_that_cannot_be_written_is_an_os_error(tmp_path):
    """A folder that isn't there is no place for a key."""
    ring = Keyring.from_file(tmp_path / "no" / "memory.key", create=True)
    with pytest.raises(FileNotFoundError):
        ring.settle()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    """Its path is named, and what to do."""
    path = tmp_path / "memory.key"
    Keyring.generate().save(path)
    path.chmod(mode)
    with pytest.raises(PermissionError, match=r"memory\.key.*chmod 600"):
        Keyring.from_file(path)


def secret_of(path):
    """Return a key that a file holds, as it stands there."""
    return next(iter(json.loads(path.read_bytes())["keys"].values()))


def changed(path, change):
    """Change a key file's content."""
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-6]),
        lambda path: path.write_bytes(b"\xff\xfe\x00"),
        lambda path: path.write_bytes(secret_of(path).encode()),
        lambda path: changed(path, lambda it: it.update(interturn_keys=2)),
        lambda path: changed(path, lambda it: it.update(active="another")),
        lambda path: changed(path, lambda it: it.update(more=1)),
        lambda path: changed(path, lambda it: it["keys"].clear()),
        lambda path: changed(path, lambda it: it["keys"].update({it["active"]: "AAAA"})),
        lambda path: changed(path, lambda it: it["keys"].update({it["active"]: "no base64!"})),
        lambda path: changed(
            path,
            lambda it: it["keys"].update({it["active"]: base64.b64encode(new_key()).decode()}),
        ),
        lambda path: changed(path, lambda it: it["keys"].update({it["active"]: 7})),
    ],
)
def test_a_malformed_file_is_a_clear_error_without_its_content(tmp_path, spoil):
    """Its path is named; no key is in the error or in what is chained to it."""
    path = tmp_path / "memory.key"
    Keyring.generate().save(path)
    secret = secret_of(path)
    spoil(path)
    with pytest.raises(ValueError, match=r"memory\.key") as told:
        Keyring.from_file(path)
    shown = "".join(traceback.format_exception(told.value, chain=True))
    assert told.value.__context__ is None
    assert secret not in shown
    assert secret not in repr(vars(told.value))


def test_keys_come_from_the_environment(monkeypatch):
    """The first is active; all open."""
    keys = [new_key(), new_key()]
    monkeypatch.setenv("INTERTURN_KEYS", ", ".join(base64.b64encode(key).decode() for key in keys))
    ring = Keyring.from_environment()
    assert ring.ids == tuple(LocalKey(key).id for key in keys)
    assert ring.active == ring.ids[0]


@pytest.mark.parametrize("value", [None, "", "no base64!", "AAAA", "{}"])
def test_a_bad_environment_is_named_and_not_shown(monkeypatch, value):
    """The variable's name is in the error, its value is not."""
    monkeypatch.delenv("BOT_KEYS", raising=False)
    if value is not None:
        monkeypatch.setenv("BOT_KEYS", value)
    with pytest.raises(ValueError, match="BOT_KEYS") as told:
        Keyring.from_environment("BOT_KEYS")
    assert not value or value not in str(told.value)
    assert told.value.__context__ is None


def test_a_key_service_is_a_wrapper_like_any_other():
    """It wraps and unwraps; the ring is no longer local, and can't be saved."""
    service = Service()
    assert isinstance(service, KeyWrapper)
    ring, key = Keyring([service]), new_key()
    assert not ring.local
    assert Keyring.generate().local
    key_id, wrapped = ring.wrap(key, PLACE)
    assert key_id == "kms/eu/7"
    assert ring.unwrap(key_id, wrapped, PLACE, table="root", where="1") == key
    with pytest.raises(ValueError, match="kms/eu/7"):
        ring.save("unused.key")


def test_a_key_service_that_refuses_is_wrong_key():
    """Whatever it raises or returns, it is not an opened key."""
    ring = Keyring([Service(refuses=True)])
    key_id, wrapped = ring.wrap(new_key(), PLACE)
    with pytest.raises(WrongKey):
        ring.unwrap(key_id, wrapped, PLACE, table="root", where="1")
    ring = Keyring([Service()])
    key_id, wrapped = ring.wrap(b"short", PLACE)
    with pytest.raises(WrongKey):
        ring.unwrap(key_id, wrapped, PLACE, table="root", where="1")


def test_a_ring_holds_a_key_and_knows_its_active_one():
    """An empty ring, or one whose active key is elsewhere, can't be made."""
    with pytest.raises(ValueError, match="at least one"):
        Keyring([])
    with pytest.raises(ValueError, match="active"):
        Keyring([LocalKey(new_key())], active="another")


def test_a_ring_shows_its_ids_only(tmp_path):
    """No key is in any repr."""
    key = new_key()
    ring = Keyring([LocalKey(key)])
    shown = repr(ring) + repr(LocalKey(key))
    assert ring.active in shown
    assert base64.b64encode(key).decode() not in shown
    assert repr(key) not in shown
    assert os.fspath(tmp_path) not in shown
