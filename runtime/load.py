"""A load generator: made-up visitors on a runtime, at a rate that doesn't wait for it.

Visitors of a real bot don't wait for each other, so turns fall due at their own times
(an open loop: a Poisson process, in bursts if asked), whatever became of those before.
Each latency counts from the moment at which its turn was due, not from the moment at
which somebody got round to it. Otherwise a stall of a second would be one slow turn,
and the hundreds that were due meanwhile would be missing: Gil Tene's *coordinated
omission*, which his wrk2 avoids in the same way. Latencies go into buckets of a fixed
relative width, as in his HdrHistogram; `Latencies` does so in a few lines, so that the
installed package needs no extension module for it.

Sessions are chosen by a Zipf law, and so are their customers. The agent takes as long
as a model does (a log-normal delay), or is the bot's own. What was refused is counted
by name. The customers that were made up are forgotten at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from interturn.actors import Request
from interturn.runtime.clock import Clock, SystemClock
from interturn.runtime.errors import InterturnError, InvalidSettings
from interturn.runtime.runtime import Runtime

__all__ = [
    "NOT_STARTED",
    "Agent",
    "Arrival",
    "Latencies",
    "Load",
    "LoadPlan",
    "LoadReport",
    "Percentiles",
    "run",
]

Agent: TypeAlias = Callable[[Request], Awaitable[str]]
"""A bot's own answer to a request. Its time is left out of the whole turn's."""

NOT_STARTED: Final = "NotStarted"
"""The name in a report of turns that weren't begun: ``under_way`` others were."""

INSTRUCTIONS: Final = "Eres el agente de una tienda de bicicletas. Responde con brevedad."

_EXACT_BITS: Final = 11  # a bucket is at most 1/1,024 of its values wide
_BETWEEN_CHECKPOINTS: Final = 256


class Arrival(NamedTuple):
    """One turn of a plan.

    Attributes:
        number: from 0.
        at: seconds from the start at which it is due.
        session: its number, by rank: 0 is the busiest.
        reply_s: seconds that the made-up agent takes.
    """

    number: int
    at: float
    session: int
    reply_s: float


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask of a runtime. The same plan asks for the same turns at the same times.

    A session has one turn at a time, so the busiest one can't have more turns a second
    than the agent's delay allows: with ``skew=0.5``, one of 1,000 sessions gets 1.6 %.

    Attributes:
        rate: turns a second, on average.
        seconds: how long it is measured.
        warmup_s: seconds before that, asked in the same way and not measured.
        sessions: how many conversations there are.
        customers: how many people have them.
        skew: the exponent of the Zipf law for both; 0 makes all alike.
        burst: turns that fall due in the same moment.
        reply_ms: median of the made-up agent's delay, in ms.
        reply_spread: standard deviation of the logarithm of that delay; 0 makes all alike.
        under_way: turns under way at most. What falls due beyond it is refused, and counted.
        seed: of everything that is drawn.
        prefix: before each session's and customer's id. The default is another one each time.
        keep: whether the made-up customers stay in the database.

    Raises:
        InvalidSettings: a value out of its range.
    """

    rate: float = 200.0
    seconds: float = 30.0
    warmup_s: float = 3.0
    sessions: int = 1_000
    customers: int = 500
    skew: float = 0.5
    burst: int = 1
    reply_ms: float = 0.0
    reply_spread: float = 0.5
    under_way: int = 10_000
    seed: int = 1
    prefix: str = msgspec.field(default_factory=lambda: f"bench-{secrets.token_hex(4)}-")
    keep: bool = False

    def __post_init__(self) -> None:
        """Hold every value to its range."""
        for name, (low, high, unit) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise InvalidSettings(name, f"between {low:,} and {high:,} {unit}")
        if not self.prefix:
            raise InvalidSettings("prefix", "text")

    def arrivals(self) -> Iterator[Arrival]:
        """Yield the turns, warm-up first, in the order in which they fall due."""
        draw = random.Random(self.seed)  # noqa: S311 - to be repeated, not to be secret
        ranks, shares = range(self.sessions), self._shares(self.sessions)
        at = 0.0
        for number in itertools.count():
            if number % self.burst == 0:
                at += draw.expovariate(self.rate / self.burst)
            if at >= self.warmup_s + self.seconds:
                return
            [session] = draw.choices(ranks, cum_weights=shares)
            delay_ms = self.reply_ms * math.exp(draw.gauss(0.0, self.reply_spread))
            yield Arrival(number, at, session, delay_ms / 1e3)

    def owners(self) -> list[int]:
        """Return the number of the customer of each session."""
        draw = random.Random(self.seed)  # noqa: S311 - as above
        shares = self._shares(self.customers)
        return draw.choices(range(self.customers), cum_weights=shares, k=self.sessions)

    def _shares(self, ranks: int) -> list[float]:
        return [*itertools.accumulate((rank + 1) ** -self.skew for rank in range(ranks))]


_RANGES: Final[dict[str, tuple[float, float, str]]] = {
    "rate": (0.01, 1_000_000, "turns a second"),
    "seconds": (0.01, 86_400, "seconds"),
    "warmup_s": (0, 86_400, "seconds"),
    "sessions": (1, 10_000_000, "sessions"),
    "customers": (1, 10_000_000, "customers"),
    "skew": (0, 10, "(an exponent)"),
    "burst": (1, 100_000, "turns"),
    "reply_ms": (0, 3_600_000, "ms"),
    "reply_spread": (0, 5, "(of a logarithm)"),
    "under_way": (1, 1_000_000, "turns"),
}


class Percentiles(msgspec.Struct, frozen=True):
    """Latencies in µs, exact to 0.1 %; None where there were none.

    Attributes:
        count: how many there are.
        p50_us: half of them don't exceed it.
        p95_us: 95 % don't.
        p99_us: 99 % don't.
        max_us: the longest.
    """

    count: int
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None


class Latencies:
    """How long something took, many times over, in memory that doesn't grow with it."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._longest_ns = 0

    def add(self, seconds: float) -> None:
        """Count one more. Below zero, which is rounding, counts as zero."""
        ns = max(0, round(seconds * 1e9))
        width = max(0, ns.bit_length() - _EXACT_BITS)
        self._counts[((ns >> width) + 1 << width) - 1] += 1
        self._longest_ns = max(self._longest_ns, ns)

    def us(self, percentile: float) -> float | None:
        """Return the latency in µs that this percentage of them don't exceed."""
        rank = max(1, math.ceil(self._counts.total() * percentile / 100))
        for edge_ns in sorted(self._counts):
            rank -= self._counts[edge_ns]
            if rank <= 0:
                return min(edge_ns, self._longest_ns) / 1e3
        return None

    @property
    def percentiles(self) -> Percentiles:
        """The figures of a report."""
        return Percentiles(self._counts.total(), *map(self.us, (50, 95, 99, 100)))


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a plan: ``asked == recorded + errors + cut``. The warm-up is left out.

    Latencies count from the moment at which the turn was due.

    Attributes:
        plan: what was asked.
        finished: whether all of it was asked; False if it was stopped.
        seconds: that were measured, until the last turn ended.
        asked: turns that fell due.
        recorded: turns that are on disk.
        errors: turns that were refused or failed, by the error's name; `NOT_STARTED` among them.
        cut: turns that were under way when it was stopped.
        warmup_errors: the same as ``errors`` for the warm-up.
        asked_per_s: turns a second that fell due.
        reached_per_s: turns a second that were recorded.
        cpu_us: µs of the process's CPU time for each recorded turn: the runtime's, the
            generator's own, and whatever else the process does.
        hold: until the session was held.
        assemble: what assembling the request took of itself.
        reply: from the agent's reply until both rows were on disk.
        whole: until then, without the agent's own time.
        failed: until a turn was refused or failed.
        commits: transactions, warm-up included.
        commit_units_mean: turns and snapshots in each of the last commits.
        commit_units_max: most of them in one.
        commit_ms_median: from batch to settled, of the last commits.
        commit_ms_p99: the 99th percentile of the same.
        folds: kept, warm-up included.
        background_failures: folds, derivations, refreshes and actors that failed.
        outstanding: folds and derivations that were still under way at the end.
        left_behind: made-up customers that weren't forgotten, met but never recorded ones included.
    """

    plan: LoadPlan
    finished: bool
    seconds: float
    asked: int
    recorded: int
    errors: dict[str, int]
    cut: int
    warmup_errors: dict[str, int]
    asked_per_s: float
    reached_per_s: float
    cpu_us: float | None
    hold: Percentiles
    assemble: Percentiles
    reply: Percentiles
    whole: Percentiles
    failed: Percentiles
    commits: int
    commit_units_mean: float
    commit_units_max: int
    commit_ms_median: float
    commit_ms_p99: float
    folds: int
    background_failures: int
    outstanding: int
    left_behind: int


async def run(
    runtime: Runtime, plan: LoadPlan, *, agent: Agent | None = None, clock: Clock | None = None
) -> LoadReport:
    """Carry a plan out on an open runtime and tell what came of it.

    Args:
        runtime: to be measured. What it holds already stays as it is.
        plan: what to ask.
        agent: answers the requests; None means made-up replies after ``reply_ms``.
        clock: the runtime's, if that isn't the machine's.

    Returns:
        The report. Errors of turns are counted in it and not raised.
    """
    return await Load(runtime, plan, agent=agent, clock=clock).run()


class Load:
    """A plan being carried out, to be watched and stopped on the way.

    Attributes:
        asked: turns that fell due, warm-up left out.
        recorded: of these, those on disk.
        errors: of these, those refused or failed, by name.
        under_way: turns under way now.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: LoadPlan,
        *,
        agent: Agent | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.asked = self.recorded = self.under_way = 0
        self.errors: Counter[str] = Counter()
        self._runtime, self._plan, self._agent = runtime, plan, agent
        self._clock = clock or SystemClock()
        self._owners = plan.owners()
        self._met: set[int] = set()
        self._run = secrets.token_hex(4)  # sessions that were kept have seen others' deliveries
        self._cut = 0
        self._warmup_errors: Counter[str] = Counter()
        self._hold, self._assemble, self._reply = Latencies(), Latencies(), Latencies()
        self._whole, self._failed = Latencies(), Latencies()
        self._scope, self._cleaning = anyio.CancelScope(), anyio.CancelScope(shield=True)
        self._ended = False
        self._cpu: float | None = None

    @property
    def errors_total(self) -> int:
        """How many turns were refused or failed."""
        return self.errors.total()

    def stop(self) -> None:
        """End it now: `run` cleans up and returns the report so far.

        While it cleans up, this ends that too, and the report tells who is left.
        """
        if self._scope.cancel_called or self._ended:
            self._cleaning.cancel()
        self._scope.cancel()

    async def run(self) -> LoadReport:
        """Carry the plan out, once. When it is cancelled, it cleans up all the same."""
        before = self._runtime.statistics()
        self._began = self._clock.monotonic()
        try:
            with self._scope:
                async with anyio.create_task_group() as group:
                    await self._ask(group)
        finally:
            ended, cpu = self._clock.monotonic(), time.process_time()
            after = self._runtime.statistics()
            self._ended = True
            with self._cleaning:
                await self._forget()
        measured_s = max(0.0, ended - self._began - self._plan.warmup_s)
        asking_s = min(measured_s, self._plan.seconds)
        cpu_s = 0.0 if self._cpu is None else cpu - self._cpu
        return LoadReport(
            plan=self._plan,
            finished=not self._scope.cancelled_caught,
            seconds=measured_s,
            asked=self.asked,
            recorded=self.recorded,
            errors=dict(self.errors),
            cut=self._cut,
            warmup_errors=dict(self._warmup_errors),
            asked_per_s=self.asked / asking_s if asking_s else 0.0,
            reached_per_s=self.recorded / measured_s if measured_s else 0.0,
            cpu_us=cpu_s / self.recorded * 1e6 if self.recorded else None,
            hold=self._hold.percentiles,
            assemble=self._assemble.percentiles,
            reply=self._reply.percentiles,
            whole=self._whole.percentiles,
            failed=self._failed.percentiles,
            commits=after.commits - before.commits,
            commit_units_mean=after.commit_units_mean,
            commit_units_max=after.commit_units_max,
            commit_ms_median=after.commit_s_median * 1e3,
            commit_ms_p99=after.commit_s_p99 * 1e3,
            folds=after.folds - before.folds,
            background_failures=sum(
                getattr(after, name) - getattr(before, name)
                for name in ("folds_failed", "derivations_failed", "failures")
            ),
            outstanding=after.folding + after.learning,
            left_behind=len(self._met),
        )

    async def _ask(self, group: TaskGroup) -> None:
        """Begin each turn when it is due, or at once where that is past; then see the end."""
        for arrival in self._plan.arrivals():
            due = self._began + arrival.at
            await self._sleep_until(due)
            if arrival.number % _BETWEEN_CHECKPOINTS == 0:
                await anyio.lowlevel.checkpoint()
            self._begin(group, arrival, due)
        self._measure()
        await self._sleep_until(self._began + self._plan.warmup_s + self._plan.seconds)

    async def _sleep_until(self, when: float) -> None:
        while (left := when - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)

    def _measure(self) -> None:
        if self._cpu is None:
            self._cpu = time.process_time()

    def _begin(self, group: TaskGroup, arrival: Arrival, due: float) -> None:
        counted = arrival.at >= self._plan.warmup_s
        if counted:
            self._measure()
            self.asked += 1
        if self.under_way >= self._plan.under_way:
            self._fail(NOT_STARTED, due, counted=counted)
            return
        self.under_way += 1
        group.start_soon(self._turn, arrival, due, counted)

    async def _turn(self, arrival: Arrival, due: float, counted: bool) -> None:
        try:
            await self._hold_turn(arrival, due, counted=counted)
        except anyio.get_cancelled_exc_class():
            self._cut += counted
            raise
        except Exception as error:  # noqa: BLE001 - the bot's own code may raise anything
            self._fail(type(error).__name__, due, counted=counted)
        finally:
            self.under_way -= 1

    def _fail(self, name: str, due: float, *, counted: bool) -> None:
        (self.errors if counted else self._warmup_errors)[name] += 1
        if counted:
            self._failed.add(self._clock.monotonic() - due)

    async def _hold_turn(self, arrival: Arrival, due: float, *, counted: bool) -> None:
        now, plan, owner = self._clock.monotonic, self._plan, self._owners[arrival.session]
        self._met.add(owner)
        session = self._runtime.session(
            f"{plan.prefix}s{arrival.session}", customer=f"{plan.prefix}c{owner}"
        )
        async with session.turn(
            _talk(_SAID, arrival.number),
            instructions=INSTRUCTIONS,
            delivery_id=f"{self._run}-{arrival.number}",
        ) as turn:
            assembled = now()
            answer = await self._answer(turn.request, arrival)
            answered = now()
            await turn.reply(answer)
            on_disk = now()
        if counted:
            self.recorded += 1
            self._hold.add(assembled - turn.assembly_s - due)
            self._assemble.add(turn.assembly_s)
            self._reply.add(on_disk - answered)
            self._whole.add(on_disk - due - (answered - assembled))

    async def _answer(self, request: Request, arrival: Arrival) -> str:
        if self._agent is not None:
            return await self._agent(request)
        if arrival.reply_s:
            await self._clock.sleep(arrival.reply_s)
        return _talk(_REPLIED, arrival.number)

    async def _forget(self) -> None:
        """Forget who was made up, unless they are kept or the store refuses."""
        for owner in () if self._plan.keep else [*self._met]:
            with contextlib.suppress(InterturnError):
                await self._runtime.customer(f"{self._plan.prefix}c{owner}").forget()
                self._met.discard(owner)


_SAID: Final = (
    "Hola, quería saber si el pedido sale el martes, porque el jueves me voy de viaje.",
    "Por la mañana no suele haber nadie en casa, así que mejor por la tarde, si se puede.",
    "¿Y el segundo modelo, cuánto cuesta si lo pido con el sillín ancho?",
    "Prefiero pagar con transferencia, si no os importa.",
    "Mi hija cumple ocho en mayo y quiere una bicicleta con cesta, a poder ser verde.",
    "¿Me podéis mandar la factura por correo? No la encuentro por ningún lado.",
    "El freno de atrás hace un ruido raro desde el domingo.",
)
_REPLIED: Final = (
    "Sale el martes del almacén y le llega el miércoles por la tarde, como muy tarde.",
    "El segundo modelo lleva el sillín ancho, y las luces van incluidas en el precio.",
    "Le apartamos la talla pequeña en la tienda del centro hasta el sábado por la tarde.",
    "La bicicleta verde con cesta tarda unas dos semanas en llegar a la tienda.",
    "Para el ruido del freno lo mejor es que la traiga y la miramos sin compromiso.",
)


def _talk(sentences: tuple[str, ...], number: int) -> str:
    """Return three sentences, about 200 characters, with a number that sets turns apart."""
    chosen = (sentences[(number + step) % len(sentences)] for step in range(3))
    return f"{' '.join(chosen)} Ref. {number}."
