"""What is sealed opens at its place and nowhere else."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.storage import (
    Hasher,
    Sealer,
    Tampered,
    customer_key_place,
    customer_name_place,
    customer_place,
    message_place,
    new_key,
    root_place,
    sealing,
    session_key_place,
    session_name_place,
    session_place,
)

HERE, THERE = b"h" * 16, b"t" * 16
PLACE = message_place(HERE, 7, 0)


@given(st.binary(max_size=2_000))
def test_what_was_sealed_opens(plaintext):
    """Sealing adds thirty bytes and keeps the rest."""
    sealer = Sealer(new_key())
    sealed = sealer.seal(plaintext, PLACE)
    assert len(sealed) == len(plaintext) + sealing.OVERHEAD_BYTES
    assert sealer.open(sealed, PLACE, table="messages", where="7") == plaintext


def test_every_changed_bit_is_tampered():
    """Header, generation, nonce, ciphertext and tag: no bit of them can be another."""
    sealer = Sealer(new_key(), generation=3)
    sealed = sealer.seal("¿Y el segundo, cuánto cuesta?".encode(), PLACE)
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Tampered) as told:
            sealer.open(bytes(changed), PLACE, table="messages", where="7")
        assert (told.value.table, told.value.where) == ("messages", "7")


def test_what_was_cut_or_grew_is_tampered():
    """No length but the right one opens."""
    sealer = Sealer(new_key())
    sealed = sealer.seal(b"words", PLACE)
    for changed in (*(sealed[:n] for n in range(len(sealed))), sealed + b"\0"):
        with pytest.raises(Tampered):
            sealer.open(changed, PLACE, table="messages", where="7")


def test_what_was_moved_is_tampered():
    """A row opens neither in another's place, nor does another in its own."""
    sealer = Sealer(new_key())
    places = [
        *(message_place(s, n, role) for s in (HERE, THERE) for n in (1, 2) for role in (0, 1)),
        *(
            place(whose)
            for place in (
                session_place,
                session_name_place,
                session_key_place,
                customer_place,
                customer_name_place,
                customer_key_place,
            )
            for whose in (HERE, THERE)
        ),
        root_place(),
    ]
    assert len(set(places)) == len(places)
    sealed = {place: sealer.seal(b"words", place) for place in places}
    for at, of in itertools.permutations(places, 2):
        with pytest.raises(Tampered):
            sealer.open(sealed[of], at, table="messages", where="7")


def test_another_key_does_not_open():
    """What one customer's key sealed is tampered for every other."""
    with pytest.raises(Tampered):
        Sealer(new_key()).open(
            Sealer(new_key()).seal(b"words", PLACE), PLACE, table="messages", where="7"
        )


def test_no_nonce_comes_twice():
    """A hundred thousand seals have a hundred thousand nonces."""
    sealer = Sealer(new_key())
    assert len({sealer.seal(b"", PLACE)[2:14] for _ in range(100_000)}) == 100_000


def test_a_place_needs_a_whole_hash():
    """A short or long hash would let two places meet, so it is refused."""
    for wrong in (b"", b"h" * 15, b"h" * 17):
        with pytest.raises(ValueError, match="16 bytes"):
            session_place(wrong)


def test_a_key_has_its_length():
    """A short key is refused, and the refusal doesn't show it."""
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        Sealer(b"short")
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        Hasher(b"short")


def test_a_sealer_shows_nothing_of_its_key():
    """Its repr tells the generation."""
    assert repr(Sealer(b"k" * 32, generation=2)) == "<Sealer generation 2>"
    assert repr(Hasher(b"k" * 32)) == "<Hasher>"


def test_kept_ciphers_are_bounded_and_die_with_their_sealers():
    """Sealers beyond the bound still work, and a dropped one keeps nothing alive."""
    sealers = [Sealer(new_key()) for _ in range(sealing._WARM_CIPHERS + 100)]
    sealed = [sealer.seal(b"words", PLACE) for sealer in sealers]
    assert len(sealing._warm) <= sealing._WARM_CIPHERS
    assert sum(sealer._cipher is not None for sealer in sealers) <= sealing._WARM_CIPHERS
    for sealer, blob in zip(sealers, sealed, strict=True):
        assert sealer.open(blob, PLACE, table="messages", where="7") == b"words"
    gone = weakref.ref(sealers[-1])
    del sealers, sealer
    gc.collect()
    assert gone() is None


def test_hashes_are_keyed_and_their_kinds_apart():
    """One id gives another hash for each kind, and under each secret."""
    one, other = Hasher(b"1" * 32), Hasher(b"2" * 32)
    hashes = [
        hasher_of("ana")
        for hasher in (one, other)
        for hasher_of in (hasher.customer, hasher.anonymous, hasher.session)
    ]
    hashes += [one.delivery(HERE, "ana"), one.delivery(THERE, "ana"), other.delivery(HERE, "ana")]
    assert len(set(hashes)) == len(hashes)
    assert {len(found) for found in hashes} == {16}
    assert one.customer("ana") == Hasher(b"1" * 32).customer("ana")
    assert one.token("ana") != other.token("ana")
    assert len(one.token("ana")) == 12


def test_hashes_stay_what_they_are():
    """A database written today is found tomorrow: these values may never change."""
    hasher = Hasher(bytes(range(32)))
    assert hasher.customer("ana").hex() == "d97b7784ce3352e1e61b1df9c8cbff00"
    assert hasher.session("web-7f3a").hex() == "1d52c8144a61fd91701ece2d296cc458"
    assert hasher.anonymous("web-7f3a").hex() == "72556a3f9f147c264f1f672bada8b358"
    assert hasher.delivery(HERE, "wamid.1").hex() == "54b679803ddf6733fdb1909f1d447ef4"


def test_ids_are_kept_apart_byte_by_byte():
    """Composed and decomposed accents are two ids, and a broken one is still hashed."""
    hasher = Hasher(new_key())
    assert hasher.customer("jos\u00e9") != hasher.customer("jose\u0301")
    assert len(hasher.customer("half an emoji \ud83d")) == 16
