"""`interturn bench`: what this machine, with these settings, does for made-up visitors.

On a database of the user's own it makes customers of its own and forgets them at the
end. Ctrl-C ends it in the same way, with the report so far.
"""

import functools
import importlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from interturn.runtime import Runtime
from interturn.runtime.cli.drawing import show_table
from interturn.runtime.cli.places import Files, Json, Key, Keys, SettingsFile
from interturn.runtime.cli.refusals import Refusal
from interturn.runtime.cli.terminal import INTERRUPTED, Terminal, Work
from interturn.runtime.load import Load, LoadPlan, LoadReport, Percentiles

_GLANCE_S = 0.2
_STANDARD = LoadPlan()


def bench(
    *,
    db: Annotated[
        Path | None, typer.Option(help="help.db_bench", envvar="INTERTURN_DB", metavar="PATH")
    ] = None,
    key: Key = None,
    keys: Keys = None,
    settings: SettingsFile = None,
    rate: Annotated[float, typer.Option(help="help.rate", metavar="N")] = _STANDARD.rate,
    seconds: Annotated[
        float, typer.Option(help="help.seconds", metavar="SECONDS")
    ] = _STANDARD.seconds,
    warmup: Annotated[
        float, typer.Option(help="help.warmup", metavar="SECONDS")
    ] = _STANDARD.warmup_s,
    sessions: Annotated[
        int, typer.Option(help="help.bench_sessions", metavar="N")
    ] = _STANDARD.sessions,
    customers: Annotated[
        int, typer.Option(help="help.customers", metavar="N")
    ] = _STANDARD.customers,
    skew: Annotated[float, typer.Option(help="help.skew", metavar="N")] = _STANDARD.skew,
    burst: Annotated[int, typer.Option(help="help.burst", metavar="N")] = _STANDARD.burst,
    reply_ms: Annotated[float, typer.Option(help="help.reply_ms", metavar="N")] = (
        _STANDARD.reply_ms
    ),
    reply_spread: Annotated[float, typer.Option(help="help.reply_spread", metavar="N")] = (
        _STANDARD.reply_spread
    ),
    under_way: Annotated[int, typer.Option(help="help.under_way", metavar="N")] = (
        _STANDARD.under_way
    ),
    seed: Annotated[int, typer.Option(help="help.seed", metavar="N")] = _STANDARD.seed,
    keep: Annotated[bool, typer.Option("--keep", help="help.keep")] = False,
    profile: Annotated[Path | None, typer.Option(help="help.profile", metavar="FILE")] = None,
    json: Json = False,
) -> Work:
    """Return the work of measuring."""

    def work(terminal: Terminal) -> int:
        plan = LoadPlan(
            rate=rate,
            seconds=seconds,
            warmup_s=warmup,
            sessions=sessions,
            customers=customers,
            skew=skew,
            burst=burst,
            reply_ms=reply_ms,
            reply_spread=reply_spread,
            under_way=under_way,
            seed=seed,
            keep=keep,
        )
        with (
            tempfile.TemporaryDirectory(prefix="interturn-") as folder,
            _profiled(profile),
        ):
            path = Path(folder, "memory.db") if db is None else db
            files = Files(path, key, keys, settings)
            opening = files.temporary() if db is None else files.runtime()
            report = anyio.run(functools.partial(_measured, terminal, opening, plan))
        return _told(terminal, report, temporary=db is None, json=json)

    return work


async def _measured(
    terminal: Terminal, opening: AbstractAsyncContextManager[Runtime], plan: LoadPlan
) -> LoadReport:
    async with opening as runtime:
        load = Load(runtime, plan)
        async with anyio.create_task_group() as beside:
            beside.start_soon(_stop_at_interrupt, load)
            with _progress(terminal, plan) as show:
                beside.start_soon(_watch, load, show)
                report = await load.run()
            beside.cancel_scope.cancel()
        return report


async def _stop_at_interrupt(load: Load) -> None:
    """Stop the load at the first Ctrl-C, and its cleaning up at the second."""
    with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        async for _ in interrupts:
            load.stop()


async def _watch(load: Load, show: Callable[[Load], None]) -> None:
    while True:
        show(load)
        await anyio.sleep(_GLANCE_S)


@contextmanager
def _progress(terminal: Terminal, plan: LoadPlan) -> Iterator[Callable[[Load], None]]:
    """Show on standard error how it goes, if that is a terminal."""
    if not terminal.progress:
        yield lambda _: None
        return
    with Progress(
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=terminal.err,
        transient=True,
    ) as progress:
        task = progress.add_task("", total=plan.warmup_s + plan.seconds)

        def show(load: Load) -> None:
            words = terminal.texts(
                "bench.progress",
                recorded=load.recorded,
                under_way=load.under_way,
                errors=load.errors_total,
            )
            elapsed_s = progress.tasks[0].elapsed
            progress.update(task, completed=elapsed_s, description=words)

        yield show


@contextmanager
def _profiled(path: Path | None) -> Iterator[None]:
    """Sample the event loop's thread, and write what a flame graph is drawn from.

    Raises:
        Refusal: the profiler, an extra, isn't installed.
    """
    if path is None:
        yield
        return
    try:
        pyinstrument = importlib.import_module("pyinstrument")
        renderers = importlib.import_module("pyinstrument.renderers")
    except ModuleNotFoundError:
        raise Refusal("error.NoProfiler") from None
    page = path.suffix.lower() in {".html", ".htm"}
    # Every task, not only the one that it was started in.
    profiler = pyinstrument.Profiler(async_mode="disabled")
    with path.open("w", encoding="utf-8") as file:
        with profiler:
            yield
        renderer = (
            renderers.HTMLRenderer()
            if page
            # Else it hides what is installed, which interturn is, and what takes under 1 %.
            else renderers.SpeedscopeRenderer(
                show_all=True, processor_options={"filter_threshold": 0}
            )
        )
        file.write(profiler.output(renderer))


def _told(terminal: Terminal, report: LoadReport, *, temporary: bool, json: bool) -> int:
    """Show the report, then say on standard error what isn't as it should be."""
    if not report.finished:
        terminal.complain(terminal.texts("bench.stopped"))
    if json:
        terminal.data(msgspec.json.encode(report).decode() + "\n")
    else:
        _show(terminal, report)
    if report.left_behind and not temporary:
        terminal.complain(
            terminal.texts("bench.left_behind", count=report.left_behind, prefix=report.plan.prefix)
        )
    return 0 if report.finished else INTERRUPTED


def _show(terminal: Terminal, report: LoadReport) -> None:
    texts = terminal.texts
    turns: list[tuple[str, int | float]] = [
        (texts("bench.asked"), report.asked),
        (texts("bench.recorded"), report.recorded),
        *((texts("bench.error", name=name), n) for name, n in sorted(report.errors.items())),
        *(
            (texts("bench.warmup_error", name=name), n)
            for name, n in sorted(report.warmup_errors.items())
        ),
    ]
    if report.cut:
        turns.append((texts("bench.cut"), report.cut))
    turns += [
        (texts("bench.asked_per_s"), round(report.asked_per_s, 1)),
        (texts("bench.reached_per_s"), round(report.reached_per_s, 1)),
    ]
    if report.cpu_us is not None:
        turns.append((texts("bench.cpu"), round(report.cpu_us)))
    show_table(terminal, texts("bench.title"), turns)
    latencies = (
        ("bench.hold", report.hold),
        ("bench.assemble", report.assemble),
        ("bench.reply", report.reply),
        ("bench.whole", report.whole),
        ("bench.failed", report.failed),
    )
    cells = [cell for key, percentiles in latencies for cell in _cells(texts(key), percentiles)]
    show_table(terminal, texts("bench.latencies"), cells)
    commits: list[tuple[str, int | float]] = [
        (texts("bench.commit_count"), report.commits),
        (texts("bench.commit_units"), round(report.commit_units_mean, 1)),
        (texts("bench.commit_units_max"), report.commit_units_max),
        (texts("bench.commit_median"), round(report.commit_ms_median, 2)),
        (texts("bench.commit_p99"), round(report.commit_ms_p99, 2)),
        (texts("bench.folds"), report.folds),
        (texts("bench.background_failures"), report.background_failures),
        (texts("bench.outstanding"), report.outstanding),
    ]
    show_table(terminal, texts("bench.commits"), commits)


def _cells(name: str, percentiles: Percentiles) -> list[tuple[str, float]]:
    figures = {
        "p50": percentiles.p50_us,
        "p95": percentiles.p95_us,
        "p99": percentiles.p99_us,
        "max": percentiles.max_us,
    }
    return [
        (f"{name}, {figure}", round(us / 1e3, 3))
        for figure, us in figures.items()
        if us is not None
    ]
