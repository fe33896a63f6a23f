"""Jobs: what the runtime does in tasks of its own, and never in a caller's.

A job starts in a clean context, so that none of a caller's variables leak in, and
whatever it raises stays with it. A job may be called off: its scope is cancelled, and
nobody waits for it nor takes what it still says, since what a port does with a
cancellation is its own affair. At the end all are called off and
waited for, though not for ever: a port that swallows every cancellation would
otherwise keep the process.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias

import anyio

from interturn.runtime.events import log

_JOBS: Final[contextvars.ContextVar[object]] = contextvars.ContextVar("interturn.jobs")
"""Whose job the code that asks is part of; a clean context has none."""

PATIENCE_S: Final = 5.0
"""Seconds that jobs are given to end when all are called off."""


Job: TypeAlias = Callable[..., Coroutine[Any, Any, None]]
"""What a job runs, with arguments."""


class Spawn(Protocol):
    """Starts a task that somebody keeps: a nursery's ``start_soon`` will do."""

    def __call__(self, job: Job, /, *args: object) -> object:
        """Start it."""


class Jobs:
    """The jobs of one runtime. See the module's head.

    Args:
        spawn: starts a task.
        fatal: told of what nothing may swallow, such as an exit asked for in a port.
    """

    def __init__(self, spawn: Spawn, fatal: Callable[[BaseException], None]) -> None:
        self._spawn = spawn
        self._fatal = fatal
        self._scopes: set[anyio.CancelScope] = set()
        self._none_left = anyio.Event()

    def __repr__(self) -> str:
        return f"Jobs(running={len(self._scopes)})"

    def __len__(self) -> int:
        return len(self._scopes)

    @property
    def inside(self) -> bool:
        """Whether whoever asks runs in one of these jobs, or in a task that one has started."""
        return _JOBS.get(None) is self

    def start(
        self,
        job: Job,
        *args: object,
        scope: anyio.CancelScope | None = None,
    ) -> None:
        """Start a job. Cancelling ``scope``, if one is given, calls it off, begun or not."""
        scope = anyio.CancelScope() if scope is None else scope
        self._scopes.add(scope)
        contextvars.Context().run(self._spawn, self._run, scope, job, args)

    async def _run(self, scope: anyio.CancelScope, job: Job, args: tuple[object, ...]) -> None:
        _JOBS.set(self)
        try:
            with scope:
                await job(*args)
        except Exception as error:  # noqa: BLE001 - one job's failure is nobody else's
            if not scope.cancel_called:
                log.error("job_failed", error=type(error).__name__)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._fatal(error)
            raise
        finally:
            self._scopes.discard(scope)
            if not self._scopes:
                self._none_left.set()

    async def end(self) -> None:
        """Call all jobs off, and return when they have ended, or after `PATIENCE_S`."""
        for scope in list(self._scopes):
            scope.cancel()
        with anyio.move_on_after(PATIENCE_S):
            while self._scopes:
                self._none_left = anyio.Event()
                await self._none_left.wait()
        if self._scopes:
            log.error("jobs_abandoned", jobs=len(self._scopes))


def raise_if_called_off(error: BaseException) -> None:
    """Raise whatever a port raised in a job that was called off: it is of no effect.

    Otherwise it is the port's failure, a cancellation of its own included.
    """
    if anyio.current_effective_deadline() < 0:
        raise error
