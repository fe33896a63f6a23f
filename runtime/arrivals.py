"""Who comes into memory: a session's actor, made anew from what rests of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from interturn.actors.errors import Forgotten
from interturn.actors.session import SessionActor
from interturn.actors.window import OutOfOrder
from interturn.runtime.cell import Cell
from interturn.runtime.errors import ActorFailed, RuntimeClosed, Tampered, public
from interturn.runtime.keeping import SessionKeeping
from interturn.runtime.lessons import Lessons
from interturn.runtime.vault import Vault, check_chain
from interturn.storage.errors import StorageError


class Arrivals:
    """Brings session actors in for their cells.

    Args:
        vault: where they rest.
        lessons: told of turns that were recorded and never learnt from.
        make: returns an actor that knows nothing yet.
        deliveries: how many recent deliveries an actor knows of.
        failing: notes a failure; returns the seconds to rest if there were too many.
    """

    def __init__(
        self,
        vault: Vault,
        lessons: Lessons,
        make: Callable[[], SessionActor],
        deliveries: int,
        failing: Callable[[Cell, BaseException], float | None],
    ) -> None:
        self._vault = vault
        self._lessons = lessons
        self._make = make
        self._deliveries = deliveries
        self._failing = failing
        self._gates: set[bytes] = set()

    @contextlib.contextmanager
    def gate(self, customer_hash: bytes) -> Iterator[None]:
        """Let none of a customer's sessions come into memory meanwhile."""
        self._gates.add(customer_hash)
        try:
            yield
        finally:
            self._gates.discard(customer_hash)

    async def bring_in(self, cell: Cell) -> None:
        """Bring a session's actor in, or tell those who wait why not."""
        try:
            actor, keeping = await self._settled(cell)
        except StorageError as error:
            cell.refused(partial(public, error))
        except Forgotten:
            cell.refused(Forgotten)
        except Exception as error:  # noqa: BLE001 - those who wait are told, the rest serve
            rest_s = self._failing(cell, error)
            cell.refused(partial(ActorFailed, cell.key, type(error).__name__), rest_s)
        except BaseException:
            cell.refused(RuntimeClosed)
            raise
        else:
            cell.arrived(actor, keeping)

    async def _settled(self, cell: Cell) -> tuple[SessionActor, SessionKeeping]:
        while True:
            erasures = self._vault.erasures
            actor, keeping = await self._read_in(cell)
            if erasures == self._vault.erasures:
                break
            del actor, keeping  # they may be of somebody who was forgotten meanwhile
        if keeping.new is None:
            self._lessons.of_rest(cell.session_id, keeping, actor.last)
        return actor, keeping

    async def _read_in(self, cell: Cell) -> tuple[SessionActor, SessionKeeping]:
        recent = 2 * self._deliveries
        keeping, loaded = await self._vault.session(cell.session_id, cell.claimed, recent=recent)
        if keeping.customer.hash in self._gates:
            raise Forgotten
        actor = self._make()
        if loaded is not None:
            check_chain(loaded)
            sealed = loaded.session.snapshot
            snapshot = None if sealed is None else keeping.open_snapshot(sealed)
            messages = await self._vault.messages(keeping, loaded.rows)
            try:
                actor.restore(snapshot, messages, loaded.deliveries)
            except (OutOfOrder, msgspec.MsgspecError):
                raise Tampered("sessions", f"snapshot {loaded.session.ref}") from None
            if (actor.cursor, actor.last) != (loaded.session.cursor, loaded.last):
                raise Tampered("sessions", f"cursor {loaded.session.ref}")
        return actor, keeping
