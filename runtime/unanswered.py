"""Unanswered turns: what a visitor said, kept while the bot is still thinking.

A turn is two rows or none, so a process that is killed between question and reply
leaves nothing, and the visitor waits for ever. With ``keep_unanswered`` the words
are on disk before the turn is handed out, sealed with the session's key, in a
place of their own. They go in the transaction that writes the turn, or when the
turn is left without a reply; so what the next owner finds is what a crash cut off.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from interturn.actors.commands import Asked
from interturn.actors.message import Discreet
from interturn.runtime.events import log
from interturn.runtime.keeping import SessionKeeping, microseconds, moment
from interturn.runtime.vault import Vault
from interturn.storage import WriteUnanswered, sealing
from interturn.storage.errors import Tampered

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, int, str | None]).decode


class Unanswered(Discreet, frozen=True):
    """What a visitor said before the process was killed, and nobody has answered.

    Attributes:
        session_id: where.
        customer_id: who, None for an anonymous visitor.
        text: the words.
        at: when they came (UTC).
        delivery_id: the transport's id of them, if it gave one.
    """

    session_id: str
    customer_id: str | None
    text: str
    at: datetime
    delivery_id: str | None


def seal(keeping: SessionKeeping, asked: Asked) -> WriteUnanswered:
    """Seal what is asked: the write for the store."""
    body = _encode((asked.text, microseconds(asked.at), asked.delivery_id))
    sealed = keeping.sealer.seal(body, sealing.session_unanswered_place(keeping.hash))
    customer = keeping.customer.new if keeping.new is not None else None
    return WriteUnanswered(keeping.ref, sealed, keeping.new, customer)


def open_words(keeping: SessionKeeping, sealed: bytes) -> tuple[str, datetime, str | None]:
    """Open what was asked: the words, when, and the delivery's id.

    Raises:
        Tampered: they aren't this session's, or were changed.
    """
    place = sealing.session_unanswered_place(keeping.hash)
    where = f"session {keeping.ref}"
    text, at, delivery_id = _decode(
        keeping.sealer.open(sealed, place, table="unanswered", where=where)
    )
    return text, moment(at), delivery_id


async def unanswered(vault: Vault) -> list[Unanswered]:
    """Return what earlier owners of the store left unanswered, the longest waiting first.

    What doesn't open is left out, and an event says so.
    """
    found = []
    async for left, keeping in vault.left(vault.store.unanswered):
        try:
            text, at, delivery_id = open_words(keeping, left.sealed)
            session_id = keeping.open_name(left.session)
        except Tampered as error:
            log.error("unanswered_unreadable", where=error.where)
            continue
        customer_id = keeping.customer.customer_id
        found.append(Unanswered(session_id, customer_id, text, at, delivery_id))
    return sorted(found, key=lambda words: words.at)
