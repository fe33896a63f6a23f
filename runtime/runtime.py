"""The runtime: opens a store, owns the tasks, hands out sessions, drains at the end.

All that runs, runs in one *host task* with one task group: the writer, the
alarms, activations and folds. `open` and `close` may be called from any task,
since callers only signal and wait. Cancelling a caller never cancels the host; a
loop that is torn down does, and the host then drains all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import warnings
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio

from interturn.actors.extractive import Extractive
from interturn.actors.ports import Deriver, Profiler, Retriever, Summarizer, TokenCounter
from interturn.runtime.clock import Alarms, Clock, SystemClock
from interturn.runtime.customer import Customer
from interturn.runtime.errors import Fenced, RuntimeClosed, WrongLoop, public_errors
from interturn.runtime.events import log
from interturn.runtime.folds import Folding
from interturn.runtime.jobs import Job, Jobs
from interturn.runtime.pruning import Pruned, Pruning
from interturn.runtime.session import Session
from interturn.runtime.settings import Settings
from interturn.runtime.statistics import Counters, Statistics
from interturn.runtime.supervisor import Supervisor
from interturn.runtime.texts import check_id
from interturn.runtime.tokens import load_counter
from interturn.runtime.unanswered import Unanswered, unanswered
from interturn.runtime.vault import Vault
from interturn.runtime.writer import Writer
from interturn.storage import (
    Hasher,
    Keyring,
    MemoryStore,
    Root,
    SqliteStore,
    Store,
    sealing,
    this_owner,
)

_RENEWALS: Final = 3
"""Signs of life in each ``lease_s``."""


class Ports(NamedTuple):
    """What the actors need from outside; None stands for the offline default."""

    summarizer: Summarizer | None
    deriver: Deriver | None
    profiler: Profiler | None
    retriever: Retriever | None
    counter: TokenCounter | None


class Runtime:
    """The runtime in one process, over one store. Made by `Runtime.open`."""

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        ports: Ports,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._ports = ports
        self._settings = settings
        self._clock = clock
        self._counters = Counters()
        self._inside: Supervisor | None = None
        self._host: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._error: BaseException | None = None
        self._left_open = False
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | Store,
        *,
        keyring: Keyring,
        keys: str | os.PathLike[str] | None = None,
        summarizer: Summarizer | None = None,
        deriver: Deriver | None = None,
        profiler: Profiler | None = None,
        counter: TokenCounter | None = None,
        retriever: Retriever | None = None,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        clock: Clock | None = None,
    ) -> Runtime:
        """Open a runtime: ``async with Runtime.open(path, keyring=…) as runtime``.

        Entering takes the store; leaving drains and gives it back.

        Args:
            store: a path (SQLite), ``":memory:"``, or a `Store`.
            keyring: the master keys.
            keys: a file of its own for the customers' wrapped keys; None keeps
                them in the database.
            summarizer: folds what leaves the window; None means offline.
            deriver: finds what a turn says about the customer; None means offline.
            profiler: keeps the customer's standing description; None means offline.
            counter: counts tokens; None means tiktoken with ``settings.encoding``.
            retriever: ranks facts by relevance; None means offline.
            settings: the bounds.
            clock: the time; None means the machine's.

        Raises:
            WrongKey: on entering: the keyring has no key for this store.
            StoreOwned: another live process holds it.
            SchemaTooNew: it was written by a newer version.
            Tampered: its root was changed.
            StoreFailed: it can't be opened.
        """
        if not isinstance(keyring, Keyring):
            raise TypeError(f"keyring must be a Keyring, not {type(keyring).__name__}")
        if not isinstance(settings, Settings):
            raise TypeError(f"settings must be Settings, not {type(settings).__name__}")
        if isinstance(store, (str, os.PathLike)):
            if os.fspath(store) == ":memory:":
                store = MemoryStore()
            else:
                store = SqliteStore(
                    Path(store),
                    keys=None if keys is None else Path(keys),
                    durability=settings.durability,
                )
        elif not hasattr(store, "look"):
            raise TypeError(f"store must be a path or a Store, not {type(store).__name__}")
        ports = Ports(summarizer, deriver, profiler, retriever, counter)
        return cls(store, keyring, ports, settings, clock or SystemClock())

    def __repr__(self) -> str:
        living = self._host is not None and not self._host.done()
        state = "closed" if not living else "closing" if self._ending else "open"
        return f"Runtime({state})"

    # What an application calls.

    def session(self, session_id: str, *, customer: str | None = None) -> Session:
        """Return a handle of a session. No I/O.

        Args:
            session_id: at most 512 bytes of UTF-8, no control characters.
            customer: whom it belongs to; None means whoever owns it already, else
                an anonymous visitor.

        Raises:
            InvalidId: an id can't be kept.
        """
        return Session(self._supervisor, session_id, customer)

    def customer(self, customer_id: str) -> Customer:
        """Return a handle of a customer. No I/O.

        Raises:
            InvalidId: the id can't be kept.
        """
        check_id("customer_id", customer_id)
        return Customer(self._supervisor, customer_id)

    def statistics(self) -> Statistics:
        """Return the runtime's numbers as they stand. Never content."""
        inside = self._inside
        return self._counters.statistics(
            sessions=0 if inside is None else inside.sessions,
            held=0 if inside is None else inside.held,
        )

    async def flush(self) -> None:
        """Return when no fold, derivation, profile refresh or reading of facts is outstanding.

        What rests after a failure is tried once more at once; if it fails again,
        it is left to its back-off. It waits for ports as long as they take, so bound
        it with a timeout of your own (``asyncio.timeout``): it may be cancelled at any
        time, and what it waited for goes on.

        Raises:
            Reentered: a port asks for it, while it would be waited for.
        """
        await self._supervisor().flush()

    async def unanswered(self) -> list[Unanswered]:
        """Return what visitors said before a crash and no turn has answered, oldest first.

        With the setting ``keep_unanswered`` the words of a turn rest until it is
        recorded or left. Those that an earlier owner of the store left there are
        returned, each until the session's next turn: to answer, hold
        ``runtime.session(found.session_id).turn(found.text,
        delivery_id=found.delivery_id)``. Turns that are held now are not among them.

        Raises:
            StoreFailed: they can't be read.
        """
        supervisor = self._supervisor()
        with public_errors():
            return await unanswered(supervisor.vault)

    async def prune(self) -> Pruned:
        """Remove messages older than ``retain_days`` that are folded and learnt from.

        Whole turns, the oldest of each session first. The window, what waits for
        its fold or to be learnt from (see `flush`), the newest folded turn, summaries
        and facts stay. With ``retain_days=0`` all else goes, however new. What went is in
        no file when this returns, and `Session.transcript` begins after it. Its
        delivery ids are known no more: redelivered, it would be a new turn.

        Turns go on meanwhile. Only where a quarter of the database is free in the
        end, it is written anew to give the space back: turns then wait, about a
        second for each 200 MB, and the disk needs room for a second copy.

        Returns:
            How much went; nothing with ``retain_days`` off.

        Raises:
            StoreFailed: what went is gone, the rest stays: call again.
            RuntimeClosed: likewise.
        """
        supervisor, days = self._supervisor(), self._settings.retain_days
        if days is None:
            return Pruned(0, 0, 0, 0)
        return await supervisor.moves.carried_out(Pruning(supervisor, days).carry_out)

    async def close(self) -> None:
        """Drain and close. The same as leaving the ``async with``; safe to call twice.

        Raises:
            WrongLoop: it is open in another event loop.
        """
        if self._host is not None and self._host.done():
            return
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise WrongLoop
        self._closing.set()
        if self._host is not None:
            await asyncio.wait([self._host])

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise RuntimeClosed
        self._loop = asyncio.get_running_loop()
        self._host = self._loop.create_task(
            self._live(), name="interturn", context=contextvars.Context()
        )
        try:
            await self._opened.wait()
        except BaseException:
            self._closing.set()
            raise
        if self._error is not None:
            await asyncio.wait([self._host])
            raise self._error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        if self._error is not None and kind is None:
            raise self._error

    # Living.

    @property
    def _ending(self) -> bool:
        return self._closing.is_set()

    def _supervisor(self, *, closing: bool = False) -> Supervisor:
        """Return what is inside an open runtime.

        Raises:
            RuntimeClosed: it isn't open, or closing and the caller can't do with that.
            WrongLoop: the caller is in another event loop or thread.
        """
        if self._inside is None or (self._ending and not closing):
            raise self._inside.refusal() if self._inside is not None else RuntimeClosed()
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop
        return self._inside

    async def _live(self) -> None:
        """Be the host: open, live, drain, close, in this one task."""
        try:
            with public_errors():
                await self._run()
        except BaseException as error:  # noqa: BLE001 - whoever opened it is told
            self._error = error if isinstance(error, Exception) else RuntimeClosed()
        finally:
            with anyio.CancelScope(shield=True):
                await self._give_back()
            self._closing.set()
            self._opened.set()
            if self._left_open:
                warnings.warn(
                    "a runtime was never closed: its loop ended, and what it held was let go",
                    ResourceWarning,
                    stacklevel=1,
                )

    async def _give_back(self) -> None:
        """Close the store. A shield stops no loop that is torn down: then it is closed again."""
        try:
            with public_errors():
                try:
                    await self._store.close()
                except asyncio.CancelledError:
                    await self._store.close()  # what is under way goes on, and this waits for it
        except Exception as error:  # noqa: BLE001 - whoever opened it is told
            self._error = self._error or error

    async def _run(self) -> None:
        counter = self._ports.counter or await load_counter(self._settings.encoding)
        vault = await self._unlocked(counter)
        jobs = Jobs(self._spawn, self._end)
        async with anyio.create_task_group() as group:
            alarms = Alarms(self._clock)
            writer = Writer(self._store, self._clock, self._counters, self._fenced)
            extractive = Extractive(counter)
            inside = self._inside = Supervisor(
                vault=vault,
                writer=writer,
                folding=Folding(
                    self._ports.summarizer,
                    extractive,
                    counter.count,
                    self._settings.summary_tokens,
                ),
                counter=counter,
                extractive=extractive,
                settings=self._settings,
                clock=self._clock,
                alarms=alarms,
                counters=self._counters,
                jobs=jobs,
                deriver=self._ports.deriver,
                profiler=self._ports.profiler,
                retriever=self._ports.retriever,
            )
            group.start_soon(alarms.ring)
            group.start_soon(writer.run)
            self._renew(writer, alarms)
            self._opened.set()
            log.info("opened", epoch=vault.epoch)
            patience_s = 0.0  # in a loop that is torn down nobody is left to wait for
            try:
                await self._closing.wait()
                patience_s = self._settings.drain_s
            finally:
                with anyio.CancelScope(shield=True):
                    self._left_open = not self._ending
                    self._closing.set()
                    await inside.drain(patience_s)
                    inside.abandon()
                    await jobs.end()
                group.cancel_scope.cancel()
        log.info("closed", turns=self._counters.turns)

    def _spawn(self, job: Job, *args: object) -> None:
        """Start a task and keep it: nobody else does, and the loop only holds it weakly."""
        task = asyncio.get_running_loop().create_task(job(*args))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # if there is one, `_end` knows; the loop needn't complain

    def _end(self, _: BaseException) -> None:
        """Close: something asked for the end of everything."""
        self._error = self._error or RuntimeClosed()
        self._closing.set()

    async def _unlocked(self, counter: TokenCounter) -> Vault:
        """Prove the key, take the lease, and only then write anything."""
        root = await self._store.look()
        place = sealing.root_place()
        if root is None:
            self._keyring.settle()
            secret = sealing.new_key()
            key_id, wrapped = self._keyring.wrap(secret, place)
            root = Root(key_id, wrapped)
        else:
            secret = self._keyring.unwrap(
                root.key_id, root.wrapped, place, table="root", where="secret"
            )
        lease_s = self._settings.lease_s
        opened = await self._store.open(root, owner=this_owner(), lease_s=lease_s)
        return Vault(self._store, self._keyring, Hasher(secret), counter, opened)

    def _renew(self, writer: Writer, alarms: Alarms) -> None:
        """Say that the owner lives, and again and again."""
        writer.renew()
        pause = self._settings.lease_s / _RENEWALS
        alarms.after(pause, lambda: self._renew(writer, alarms))

    def _fenced(self) -> None:
        """Another process has the store: nothing of ours may be believed any more."""
        if self._inside is not None:
            self._inside.refusal = Fenced
        log.error("fenced")
        self._closing.set()
