"""The load generator: what is due is due, what is refused is counted, nothing stays."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import statistics
from collections import Counter
from itertools import groupby, pairwise

import msgspec
import pytest

from interturn.runtime import InvalidSettings, Settings
from interturn.runtime.load import NOT_STARTED, Latencies, Load, LoadPlan, LoadReport, run

pytestmark = pytest.mark.anyio

SHORT = LoadPlan(rate=20, seconds=2, warmup_s=0, sessions=1, customers=1)


class Gate:
    """An agent that answers once its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked = 0

    async def __call__(self, _):
        self.asked += 1
        await self.gate.wait()
        return "hecho"


def changed(plan, **given):
    return msgspec.structs.replace(plan, **given)


def rows(path):
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        found = {
            name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608
            for name in ("messages", "sessions", "customers")
            if name in names
        }
    database.close()
    return found


async def begun(clock, until, plan, agent_asked):
    """Let the first turn fall due and be held, which the disk takes its own time for."""
    await clock.advance(next(plan.arrivals()).at + 1e-6)
    await until(agent_asked)


async def ended(clock, task):
    """Let time pass, in small steps, until the load has ended."""
    while not task.done():
        await clock.advance(0.05)
    return await task


def consistent(report):
    assert report.asked == report.recorded + sum(report.errors.values()) + report.cut
    assert report.whole.count == report.hold.count == report.reply.count == report.recorded
    assert report.failed.count == sum(report.errors.values())


# The plan


def test_the_same_seed_is_the_same_plan():
    """A seed fixes times, sessions, delays and owners; another seed changes each of them."""
    plan = LoadPlan(reply_ms=500, seed=7)
    again, other = LoadPlan(reply_ms=500, seed=7), LoadPlan(reply_ms=500, seed=8)
    assert plan.prefix != again.prefix
    assert [*plan.arrivals()] == [*again.arrivals()]
    assert plan.owners() == again.owners() != other.owners()
    for mine, others in zip(
        *([*zip(*p.arrivals(), strict=True)][1:] for p in (plan, other)), strict=True
    ):
        assert mine[:50] != others[:50]


def test_turns_fall_due_as_a_poisson_process():
    """Gaps are exponential: their mean is 1/rate, and so is their standard deviation."""
    times = [arrival.at for arrival in LoadPlan(rate=100, seconds=97).arrivals()]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.05)
    assert times[-1] < 100


def test_bursts_come_at_once_and_leave_the_rate_as_it_is():
    """Turns of a burst are due in the same moment; there are as many turns as without."""
    plan = LoadPlan(rate=100, seconds=97, burst=20)
    sizes = [len([*group]) for _, group in groupby(plan.arrivals(), key=lambda a: a.at)]
    assert set(sizes) == {20}
    assert sum(sizes) == pytest.approx(10_000, rel=0.15)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
def test_sessions_and_customers_are_chosen_by_a_zipf_law(skew):
    """The first rank is met ``4 ** skew`` times as often as the fourth."""
    plan = LoadPlan(rate=2_000, seconds=47, sessions=40, customers=40, skew=skew)
    met = Counter(arrival.session for arrival in plan.arrivals())
    assert set(met) == set(range(40))
    assert met[0] / met[3] == pytest.approx(4**skew, rel=0.15)
    owned = Counter(changed(plan, sessions=100_000).owners())
    assert owned[0] / owned[3] == pytest.approx(4**skew, rel=0.15)


def test_delays_are_log_normal():
    """The logarithms of the agent's delays have the median and the spread that were asked."""
    plan = LoadPlan(rate=200, seconds=97, reply_ms=800, reply_spread=0.6)
    logs = [math.log(arrival.reply_s) for arrival in plan.arrivals()]
    assert math.exp(statistics.median(logs)) == pytest.approx(0.8, rel=0.03)
    assert statistics.stdev(logs) == pytest.approx(0.6, rel=0.03)


@pytest.mark.parametrize(
    "given", [{"rate": 0}, {"sessions": 0}, {"burst": 0}, {"skew": -1}, {"seconds": math.nan}]
)
def test_a_plan_out_of_its_range_says_so(given):
    """A value out of its range is refused by name, before anything runs."""
    with pytest.raises(InvalidSettings) as refused:
        LoadPlan(**given)
    assert refused.value.name in given


def test_latencies_are_exact_to_a_thousandth():
    """Percentiles agree with those of the sorted values within 0.1 %; the longest is exact."""
    chance = random.Random(3)
    values = [chance.lognormvariate(-6, 2) for _ in range(20_000)]
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    values.sort()
    for percentile in (1, 50, 95, 99, 99.9):
        exact = values[math.ceil(len(values) * percentile / 100) - 1]
        assert latencies.us(percentile) == pytest.approx(exact * 1e6, rel=1e-3)
    assert latencies.us(100) == pytest.approx(values[-1] * 1e6, rel=1e-6)
    assert Latencies().percentiles.max_us is None


# The intended start


async def test_a_stall_shows_in_all_turns_that_were_due_meanwhile(opened, clock, until):
    """One turn that hangs for two seconds delays the rest: each counts from its own time."""
    agent = Gate()
    async with opened(clock=clock) as runtime:
        load = Load(runtime, SHORT, agent=agent, clock=clock)
        task = asyncio.create_task(load.run())
        first = next(iter(SHORT.arrivals())).at
        await clock.advance(first)
        await until(lambda: agent.asked == 1)  # it is in somebody's hands before time goes on
        await clock.advance(SHORT.seconds - first)
        agent.gate.set()
        await until(task.done)
        report = task.result()
    waited = sorted(SHORT.seconds - arrival.at for arrival in [*SHORT.arrivals()][1:])
    consistent(report)
    assert report.recorded == len(waited) + 1 > 20
    # The one that hung was slow by its agent only.
    assert report.whole.max_us == pytest.approx(waited[-1] * 1e6)
    middle = [0.0, *waited][math.ceil(report.recorded / 2) - 1]
    assert report.whole.p50_us == pytest.approx(middle * 1e6, rel=1e-3)
    assert report.hold.p50_us == report.whole.p50_us


async def test_a_blocked_loop_shows_in_all_turns_that_were_due_meanwhile(opened, clock):
    """A second in which the loop does nothing delays what falls due in it, as a visitor sees."""
    plan = changed(SHORT, sessions=1_000, customers=10)
    async with opened(":memory:", clock=clock) as runtime:
        task = asyncio.create_task(run(runtime, plan, clock=clock))
        await clock.advance(0.5)
        clock.now += 1.0
        report = await ended(clock, task)
    times = [arrival.at for arrival in plan.arrivals()]
    waited = sorted((1.5 - at for at in times if 0.5 < at < 1.5), reverse=True)
    assert len(waited) > 5
    consistent(report)
    assert report.recorded == len(times)
    assert report.hold.max_us >= waited[0] * 1e6 * 0.999
    rank = len(times) - math.ceil(len(times) * 0.95)
    assert report.hold.p95_us >= waited[rank] * 1e6 * 0.999


async def test_the_agents_own_time_is_left_out(opened, clock):
    """A model that takes minutes makes the turns of other sessions no slower."""
    plan = changed(SHORT, rate=2, sessions=100_000, customers=100, reply_ms=60_000)
    async with opened(":memory:", clock=clock) as runtime:
        task = asyncio.create_task(run(runtime, plan, clock=clock))
        while not task.done():
            await clock.advance(5)
        report = task.result()
    consistent(report)
    assert report.recorded == len([*plan.arrivals()]) > 0
    assert report.seconds > 30
    assert report.reached_per_s < report.asked_per_s


# Refusals


async def test_a_full_mailbox_is_counted_by_name(opened, clock, until):
    """Two wait behind the turn that is held; the others are refused, and the report says so."""
    agent = Gate()
    async with opened(clock=clock, settings=Settings(mailbox=2)) as runtime:
        load = Load(runtime, SHORT, agent=agent, clock=clock)
        task = asyncio.create_task(load.run())
        await begun(clock, until, SHORT, lambda: agent.asked)
        await clock.advance(SHORT.seconds)
        agent.gate.set()
        await until(task.done)
        report = task.result()
    consistent(report)
    assert report.errors == {"MailboxFull": report.asked - 3}
    assert report.asked == len([*SHORT.arrivals()])


async def test_what_is_under_way_is_bounded(opened, clock, until):
    """Beyond the bound a turn isn't begun, and counts as refused."""
    agent, plan = Gate(), changed(SHORT, under_way=5)
    async with opened(clock=clock) as runtime:
        load = Load(runtime, plan, agent=agent, clock=clock)
        task = asyncio.create_task(load.run())
        await clock.advance(plan.seconds)
        assert load.under_way == 5
        agent.gate.set()
        await until(task.done)
        report = task.result()
    consistent(report)
    assert (report.recorded, report.errors) == (5, {NOT_STARTED: report.asked - 5})


async def test_turns_that_time_out_are_counted(opened, clock, until):
    """Who waits longer than ``turn_s`` is counted, and how long they waited is told."""
    agent, plan = Gate(), changed(SHORT, rate=5)
    async with opened(clock=clock, settings=Settings(turn_s=60.0)) as runtime:
        load = Load(runtime, plan, agent=agent, clock=clock)
        task = asyncio.create_task(load.run())
        await begun(clock, until, plan, lambda: agent.asked)
        while not load.errors["TurnTimeout"]:
            await clock.advance(1)
        agent.gate.set()
        await until(task.done)
        report = task.result()
    consistent(report)
    assert set(report.errors) <= {"TurnTimeout", "TurnExpired"}
    assert report.errors["TurnTimeout"] > 0
    assert report.failed.p50_us >= 60e6 * 0.999


async def test_an_error_of_the_bots_own_is_counted(opened, clock):
    """What the agent raises stands in the report by its name; the other turns go on."""
    numbers = iter(range(1_000))

    async def agent(request):
        if next(numbers) % 3 == 0:
            raise ConnectionResetError
        return "hecho"

    async with opened(":memory:", clock=clock) as runtime:
        task = asyncio.create_task(run(runtime, SHORT, agent=agent, clock=clock))
        report = await ended(clock, task)
    consistent(report)
    assert report.errors == {"ConnectionResetError": math.ceil(report.asked / 3)}


async def test_the_warm_up_is_not_counted_but_its_errors_are_told(opened, clock):
    """Turns due in the warm-up are in no figure; what failed there stands apart."""
    plan = changed(SHORT, warmup_s=1.0)

    async def agent(request):
        raise ConnectionResetError

    async with opened(":memory:", clock=clock) as runtime:
        task = asyncio.create_task(run(runtime, plan, agent=agent, clock=clock))
        report = await ended(clock, task)
    warm = sum(arrival.at < 1.0 for arrival in plan.arrivals())
    assert warm > 0
    assert report.warmup_errors == {"ConnectionResetError": warm}
    assert report.errors == {"ConnectionResetError": report.asked}
    assert report.asked == len([*plan.arrivals()]) - warm
    assert report.cpu_us is None


# The end


@pytest.mark.parametrize("keep", [False, True])
async def test_who_was_made_up_is_forgotten_unless_kept(opened, path, keep, pairs, say):
    """Nothing of the load rests in the database, what was there before does; or all is kept."""
    plan = LoadPlan(rate=200, seconds=0.2, warmup_s=0, sessions=9, customers=4, keep=keep)
    async with opened() as runtime:
        await say(runtime.session("own", customer="ana"), "Hola.")
        report = await run(runtime, plan)
        assert await pairs(runtime.session("own")) == [("Hola.", "re: Hola.")]
    consistent(report)
    assert report.finished
    assert report.recorded > 10
    assert report.commits > 0
    found = rows(path)
    if keep:
        assert found["messages"] == 2 + 2 * report.recorded
        assert report.left_behind == found["customers"] - 1 > 0
    else:
        assert found["messages"] == 2
        assert (found["customers"], report.left_behind) == (1, 0)


async def test_a_kept_load_is_no_obstacle_to_the_next(opened, path):
    """A second run on sessions that were kept records turns of its own."""
    plan = LoadPlan(rate=200, seconds=0.1, warmup_s=0, sessions=3, customers=2, keep=True)
    async with opened() as runtime:
        reports = [await run(runtime, plan) for _ in range(2)]
    assert all(report.errors == {} and report.recorded for report in reports)
    assert rows(path)["messages"] == 2 * sum(report.recorded for report in reports)


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_stopped_on_the_way_it_cleans_up_and_tells(opened, clock, path, until, how, balanced):
    """Stopped, it returns the report so far; cancelled, it raises; neither leaves anyone."""
    agent, plan = Gate(), changed(SHORT, sessions=5, customers=3)
    async with opened(clock=clock) as runtime:
        load = Load(runtime, plan, agent=agent, clock=clock)
        task = asyncio.create_task(load.run())
        await clock.advance(plan.seconds / 2)
        await until(lambda: agent.asked > 1)
        under_way = load.under_way
        if how == "stop":
            load.stop()
            await until(task.done)
            report = task.result()
            consistent(report)
            assert not report.finished
            assert report.cut == under_way == report.asked > 1
            assert report.seconds == pytest.approx(plan.seconds / 2)
            assert report.left_behind == 0
        else:
            task.cancel()
            await until(task.done)
            assert task.cancelled()
        balanced(runtime, at_rest=True)
    assert rows(path)["customers"] == 0


async def test_stopped_twice_it_leaves_cleaning_up_too(opened, watched, until):
    """While customers are forgotten, stopping ends that, and the report counts who is left."""
    plan = LoadPlan(rate=200, seconds=0.1, warmup_s=0, sessions=9, customers=9)
    async with opened(watched) as runtime:
        load = Load(runtime, plan)
        gate = watched.gates["forget"] = asyncio.Event()
        task = asyncio.create_task(load.run())
        await until(lambda: watched.reached["forget"] or task.done())
        load.stop()
        await until(task.done)
        gate.set()
        report = task.result()
    consistent(report)
    assert report.finished
    assert report.left_behind > 0


async def test_the_report_is_json_and_back(opened):
    """A report survives JSON whole; it tells the plan, so that it can be run again."""
    plan = LoadPlan(rate=100, seconds=0.1, warmup_s=0, seed=5)
    async with opened(":memory:") as runtime:
        report = await run(runtime, plan)
    again = msgspec.json.decode(msgspec.json.encode(report), type=LoadReport)
    assert again == report
    assert again.plan.seed == 5
