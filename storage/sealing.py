"""Sealing: everything with words or ids rests encrypted, bound to its place.

What is sealed opens only with its key *and* at its place. The cipher is
AES-256-GCM, which refuses any changed bit; what it can't see by itself is a row
that was moved whole: swapped with another, copied into another session, put
back after it was replaced by one of another role. So the place (table, session,
sequence, role) is part of what is authenticated, though not of what is stored:
the reader says where it reads, and only the bytes sealed for there open.

A sealed value is::

    version (1 byte) | key generation (1 byte) | nonce (12 bytes) | ciphertext | tag (16 bytes)

The associated data is the two header bytes and the place. The nonce is random:
with 96 bits and one key for each session the birthday bound (2^32 values, NIST
SP 800-38D) is far beyond what one conversation holds, and no counter has to
survive a crash or a restored backup.

Places start with a tag of eight bytes that names their kind, and go on with
fields of fixed width, so no two places share an encoding. Wrapping a key is
sealing it at its place.

Ids of sessions and customers may be phone numbers or mail addresses, so they
are looked up by keyed hashes (HMAC-SHA256 cut to 128 bits, one key for each
kind, derived from the store's secret): without the secret nobody can test a
guess against the file.
"""

from __future__ import annotations

import hmac
import os
import struct
import weakref
from collections import deque
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import Tampered

KEY_BYTES: Final = 32
HASH_BYTES: Final = 16
OVERHEAD_BYTES: Final = 30
"""What sealing adds: 2 of header, 12 of nonce, 16 of tag."""

_VERSION: Final = 1
_HEADER_BYTES: Final = 2
_NONCE_BYTES: Final = 12
_WARM_CIPHERS: Final = 512
"""Ciphers kept ready. One costs 2.5 KB, so these cost 1.3 MB; making one anew costs 2 µs."""

_MESSAGE = struct.Struct(">8s16sQB")
_OWN = struct.Struct(">8s16s")


def new_key() -> bytes:
    """Return a fresh random 256-bit key."""
    return os.urandom(KEY_BYTES)


def message_place(session_hash: bytes, seq: int, role: int) -> bytes:
    """Return the place of one message: its session, sequence number and role."""
    return _MESSAGE.pack(b"message", _hash(session_hash), seq, role)


def session_place(session_hash: bytes) -> bytes:
    """Return the place of a session's snapshot."""
    return _OWN.pack(b"s.state", _hash(session_hash))


def session_name_place(session_hash: bytes) -> bytes:
    """Return the place of a session's sealed id."""
    return _OWN.pack(b"s.name", _hash(session_hash))


def session_key_place(session_hash: bytes) -> bytes:
    """Return the place of a session's key, wrapped with its customer's."""
    return _OWN.pack(b"s.key", _hash(session_hash))


def session_unanswered_place(session_hash: bytes) -> bytes:
    """Return the place of what a session's visitor said and nobody has answered yet."""
    return _OWN.pack(b"s.asked", _hash(session_hash))


def session_pruned_place(session_hash: bytes) -> bytes:
    """Return the place of the mark up to which a session's oldest messages were pruned."""
    return _OWN.pack(b"s.prune", _hash(session_hash))


def customer_place(customer_hash: bytes) -> bytes:
    """Return the place of a customer's snapshot."""
    return _OWN.pack(b"c.state", _hash(customer_hash))


def customer_name_place(customer_hash: bytes) -> bytes:
    """Return the place of a customer's sealed id."""
    return _OWN.pack(b"c.name", _hash(customer_hash))


def customer_key_place(customer_hash: bytes) -> bytes:
    """Return the place of a customer's key, wrapped with a master key."""
    return _OWN.pack(b"c.key", _hash(customer_hash))


def root_place() -> bytes:
    """Return the place of the store's secret, wrapped with a master key."""
    return b"root".ljust(8, b"\0")


def _hash(value: bytes) -> bytes:
    # struct would pad a short value or cut a long one, and two places could meet.
    if len(value) != HASH_BYTES:
        raise ValueError(f"a keyed hash has {HASH_BYTES} bytes, not {len(value)}")
    return value


class Sealer:
    """Seals with one key, and opens only what was sealed with it at the same place.

    Args:
        key: 32 bytes.
        generation: of the key, from 0 to 255; rests in clear in what is sealed.
    """

    __slots__ = ("__weakref__", "_cipher", "_generation", "_key")

    def __init__(self, key: bytes, *, generation: int = 0) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._generation = generation
        self._cipher: AESGCM | None = None

    def __repr__(self) -> str:
        return f"<Sealer generation {self._generation}>"

    def seal(self, plaintext: bytes, place: bytes) -> bytes:
        """Return the plaintext sealed at this place, under a fresh nonce."""
        header = bytes((_VERSION, self._generation))
        nonce = os.urandom(_NONCE_BYTES)
        cipher = self._cipher or self._warm_up()
        return header + nonce + cipher.encrypt(nonce, plaintext, header + place)

    def open(self, sealed: bytes, place: bytes, *, table: str, where: str) -> bytes:
        """Return what was sealed at this place with this key.

        Args:
            sealed: what `seal` returned.
            place: where it was read.
            table: named in the error.
            where: its place in the table, by number; named in the error.

        Raises:
            Tampered: any bit is another, or it was sealed elsewhere or with another key.
        """
        if (
            isinstance(sealed, bytes)  # a damaged file gives any type
            and len(sealed) >= OVERHEAD_BYTES
            and sealed[0] == _VERSION
        ):
            header = sealed[:_HEADER_BYTES]
            nonce = sealed[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
            cipher = self._cipher or self._warm_up()
            try:
                return cipher.decrypt(nonce, sealed[_HEADER_BYTES + _NONCE_BYTES :], header + place)
            except InvalidTag:
                pass
        raise Tampered(table, where)

    def _warm_up(self) -> AESGCM:
        # First in, first out: a hot cipher that is pushed out comes back for 2 µs,
        # which costs less than to keep an order of use. The references are weak,
        # so that a key is gone when the actor that held its sealer is.
        cipher = self._cipher = AESGCM(self._key)
        _warm.append(weakref.ref(self))
        if len(_warm) > _WARM_CIPHERS:
            oldest = _warm.popleft()()
            if oldest is not None and oldest is not self:
                oldest._cipher = None  # noqa: SLF001 - another of the same class
        return cipher


_warm: deque[weakref.ref[Sealer]] = deque()


class Hasher:
    """Hashes ids under the store's secret; the kinds of id can't collide with each other.

    Args:
        secret: the store's, at least 32 bytes.
    """

    __slots__ = ("_anonymous", "_customer", "_delivery", "_session", "_token")

    def __init__(self, secret: bytes) -> None:
        if len(secret) < KEY_BYTES:
            raise ValueError(f"a store secret has at least {KEY_BYTES} bytes, not {len(secret)}")
        self._customer = _derived(secret, b"customer")
        self._anonymous = _derived(secret, b"anonymous")
        self._session = _derived(secret, b"session")
        self._delivery = _derived(secret, b"delivery")
        self._token = _derived(secret, b"token")

    def __repr__(self) -> str:
        return "<Hasher>"

    def customer(self, customer_id: str) -> bytes:
        """Return the hash by which a customer is found, 16 bytes."""
        return _keyed(self._customer, _utf8(customer_id))

    def anonymous(self, session_id: str) -> bytes:
        """Return the hash of a session's own anonymous customer, whom no customer id meets."""
        return _keyed(self._anonymous, _utf8(session_id))

    def session(self, session_id: str) -> bytes:
        """Return the hash by which a session is found, 16 bytes."""
        return _keyed(self._session, _utf8(session_id))

    def delivery(self, session_hash: bytes, delivery_id: str) -> bytes:
        """Return the hash of a delivery of this session; in another it has another."""
        return _keyed(self._delivery, _hash(session_hash) + _utf8(delivery_id))

    def token(self, any_id: str) -> str:
        """Return 12 hexadecimal digits that stand for an id in log events."""
        return _keyed(self._token, _utf8(any_id))[:6].hex()


def _derived(secret: bytes, kind: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"interturn hash " + kind).derive(secret)


def _keyed(key: bytes, value: bytes) -> bytes:
    return hmac.digest(key, value, "sha256")[:HASH_BYTES]


def _utf8(value: str) -> bytes:
    # A strict encoder would raise an error that carries the whole id.
    return value.encode("utf-8", "surrogatepass")
