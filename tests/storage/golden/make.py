"""Makes the golden database of the newest schema version, once, when that version is new.

A golden file is what a past version really wrote; it is never made again with
a later version's code. Run: python tests/storage/golden/make.py
"""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from pathlib import Path

from interturn.storage import (
    CustomerRow,
    Hasher,
    Keyring,
    LocalKey,
    Root,
    Row,
    Sealer,
    SessionRow,
    SqliteStore,
    WriteCustomer,
    WriteSession,
    WriteTurn,
    WriteUnanswered,
    customer_key_place,
    customer_name_place,
    customer_place,
    message_place,
    root_place,
    schema,
    session_key_place,
    session_name_place,
    session_place,
    session_unanswered_place,
    this_owner,
)

HERE = Path(__file__).parent
MASTER, SECRET, CUSTOMER, SESSION = (bytes([number]) * 32 for number in (1, 2, 3, 4))
TURNS = (("¿Cuánto cuesta?", "Cuarenta euros."), ("¿Y el segundo?", "Lo mismo."))


async def make(path: Path) -> None:
    """Write one customer, one session, two turns, what waits for a third, snapshots."""
    ring, hasher = Keyring([LocalKey(MASTER)]), Hasher(SECRET)
    ana, talk = hasher.customer("ana"), hasher.session("web-7f3a")
    hers, its = Sealer(CUSTOMER), Sealer(SESSION)
    customer = CustomerRow(
        1,
        ana,
        hers.seal(b"ana", customer_name_place(ana)),
        *ring.wrap(CUSTOMER, customer_key_place(ana)),
    )
    session = SessionRow(
        1,
        talk,
        1,
        its.seal(b"web-7f3a", session_name_place(talk)),
        hers.seal(SESSION, session_key_place(talk)),
    )

    def row(seq: int, role: int, text: str, delivery: bytes | None = None) -> Row:
        return Row(
            seq, role, seq, its.seal(text.encode(), message_place(talk, seq, role)), delivery
        )

    store = SqliteStore(path)
    root = Root(*ring.wrap(SECRET, root_place()))
    await store.open(root, owner=this_owner(), lease_s=15.0)
    for number, (visitor, agent) in enumerate(TURNS):
        seq = 2 * number + 1
        known = hasher.delivery(talk, f"d{seq}")
        first = number == 0
        await store.commit(
            [
                WriteTurn(
                    1,
                    row(seq, 0, visitor, known),
                    row(seq + 1, 1, agent),
                    session if first else None,
                    customer if first else None,
                )
            ]
        )
    await store.commit([WriteSession(1, 2, its.seal(b"state", session_place(talk)), 0)])
    await store.commit([WriteCustomer(1, hers.seal(b"facts", customer_place(ana)), 0, ((1, 2),))])
    asked = its.seal(b"asked", session_unanswered_place(talk))
    await store.commit([WriteUnanswered(1, asked)])
    await store.close()


def main() -> None:
    """Write the golden file of this version, unless it is there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        asyncio.run(make(path))
        with (HERE / f"v{schema.VERSION}.db.gz").open("xb") as file:
            file.write(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
