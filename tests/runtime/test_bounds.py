"""Bounds: mailboxes, queues and actors in memory are bounded, each by its named setting."""

from __future__ import annotations

import asyncio

import pytest

from interturn.runtime import (
    InvalidSettings,
    MailboxFull,
    MemoryStore,
    Overloaded,
    Settings,
)

pytestmark = pytest.mark.anyio


async def test_a_mailbox_is_bounded(opened, until, say, pairs, balanced):
    """Beyond `mailbox` waiting messages an actor refuses with depth and bound; then serves."""
    async with opened(settings=Settings(mailbox=4)) as runtime:
        session = runtime.session("s")
        async with session.turn("held") as turn:
            waiting = [asyncio.create_task(say(session, f"w{n}")) for n in range(4)]
            await until(lambda: runtime.statistics().queued == 4)
            for call in (lambda: say(session, "x"), lambda: session.record("x", "y")):
                with pytest.raises(MailboxFull) as caught:
                    await asyncio.create_task(call())
                assert (caught.value.depth, caught.value.bound) == (4, 4)
                assert caught.value.key.startswith("session/")
            assert (await say(runtime.session("other"), "v")).seq == 1
            await turn.reply("r")  # what frees the others is always let in
        await asyncio.gather(*waiting)
        assert [said for said, _ in await pairs(session)] == ["held", "w0", "w1", "w2", "w3"]
        assert runtime.statistics().rejected == 2
        balanced(runtime, at_rest=True)


async def test_all_queues_together_are_bounded(opened, until, say, balanced):
    """Beyond `queued` waiting messages in all, the runtime is `Overloaded`; then serves."""
    async with opened(settings=Settings(queued=6)) as runtime:
        held = [runtime.session(f"s{n}").turn("held") for n in range(3)]
        for turn in held:
            await turn.__aenter__()
        tasks = [asyncio.create_task(say(runtime.session(f"s{n % 3}"), "waits")) for n in range(6)]
        await until(lambda: runtime.statistics().queued == 6)
        with pytest.raises(Overloaded) as caught:
            await asyncio.create_task(say(runtime.session("s0"), "x"))
        assert (caught.value.what, caught.value.bound) == ("queued", 6)
        with pytest.raises(Overloaded):
            await say(runtime.session("new"), "x")
        for turn in held:
            await turn.reply("r")
            await turn.__aexit__(None, None, None)
        await asyncio.gather(*tasks)
        await say(runtime.session("new"), "x")
        balanced(runtime, at_rest=True)


async def test_who_was_kept_out_leaves_nothing_behind(opened, until, say):
    """Sessions refused by a bound take no place in memory from those who come later."""
    async with opened(settings=Settings(queued=1, active=4)) as runtime:
        async with runtime.session("held").turn("held"):
            task = asyncio.create_task(say(runtime.session("held"), "waits"))
            await until(lambda: runtime.statistics().queued == 1)
            for number in range(20):
                refused = runtime.session(f"n{number}")
                calls = (say(refused, "x"), refused.record("x", "y"), refused.layers())
                with pytest.raises(Overloaded) as caught:
                    await calls[number % 3]
                for call in calls:
                    call.close()
                assert caught.value.what == "queued"
        await task
        for number in range(20):
            await say(runtime.session(f"m{number}"), "x")
        assert runtime.statistics().sessions <= 4


async def test_actors_in_memory_are_bounded(opened, say, pairs):
    """Beyond `active` the least recently used leaves memory, and nothing is lost by it."""
    async with opened(settings=Settings(active=5)) as runtime:
        for turn in range(3):
            for number in range(20):
                await say(runtime.session(f"s{number}"), f"t{turn}")
                assert runtime.statistics().sessions <= 5
        for number in range(20):
            got = [said for said, _ in await pairs(runtime.session(f"s{number}"))]
            assert got == ["t0", "t1", "t2"]
        await runtime.flush()
        assert runtime.statistics().passivations >= 55


async def test_where_every_actor_is_pinned_a_new_one_is_refused(opened, say):
    """With every actor in memory held, another is `Overloaded`; freed, it is let in."""
    async with opened(settings=Settings(active=2)) as runtime:
        async with runtime.session("a").turn("x"), runtime.session("b").turn("x"):
            with pytest.raises(Overloaded) as caught:
                await say(runtime.session("c"), "x")
            assert (caught.value.what, caught.value.bound) == ("active", 2)
            assert runtime.statistics().sessions == 2
        await say(runtime.session("c"), "x")


async def test_idle_actors_leave(opened, clock, say, pairs):
    """An actor idle for `idle_s` leaves memory; one that holds a turn doesn't."""
    async with opened(clock=clock, settings=Settings(idle_s=100)) as runtime:
        for number in range(10):
            await say(runtime.session(f"s{number}"), "x")
        await clock.advance(60)
        await say(runtime.session("s0"), "y")
        async with runtime.session("held").turn("z") as turn:
            await clock.advance(65)
            assert runtime.statistics().sessions == 2  # s0, and the one that is held
            await clock.advance(1_000)
            assert runtime.statistics().sessions == 1
            await turn.reply("r")
        await clock.advance(200)
        assert runtime.statistics().sessions == 0
        assert len(await pairs(runtime.session("s0"))) == 2


async def test_an_idle_cell_keeps_no_queue_and_no_caller(opened, until, say):
    """An idle cell keeps no queue object, and no task of a caller's, however its turns ended."""
    async with opened() as runtime:
        session = runtime.session("s")
        async with session.turn("held"):
            late = asyncio.create_task(say(session, "withdrawn"))
            await until(lambda: runtime.statistics().queued == 1)
            late.cancel()
            await asyncio.wait([late])
        await asyncio.gather(*(say(session, f"t{n}") for n in range(5)))
        async with session.turn("left"):
            pass
        cell = runtime._inside.cell("s")
        assert (cell.mailbox, cell.line, cell.holder) == (None, None, None)


async def test_a_writer_lets_others_have_the_loop(opened):
    """However much waits to be written, other tasks go on meanwhile."""
    async with opened(MemoryStore()) as runtime:
        session = runtime.session("s")
        await session.record("a", "b")
        order = []

        async def other():
            for _ in range(10):
                await asyncio.sleep(0)
            order.append("other")

        async def recorded(number):
            await session.record(str(number), "r")
            order.append(number)

        await asyncio.gather(other(), *(recorded(n) for n in range(60)))
        assert order.index("other") < 30


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("window", 0, "messages"),
        ("window", 13, "even number of messages"),
        ("fold_at", 3, "even number of messages"),
        ("fold_at", 100, "windows of messages"),
        ("deliveries", -1, "between 0 and 10,000 delivery ids"),
        ("summary_tokens", 3, "tokens"),
        ("budget", 0, "between 1 and 100,000,000 tokens"),
        ("text_bytes", 10**9, "268,435,456 bytes"),
        ("mailbox", 0, "messages"),
        ("queued", 0, "messages"),
        ("active", 1, "actors"),
        ("idle_s", 0, "seconds"),
        ("turn_s", -1, "seconds"),
        ("turn_s", float("nan"), "seconds"),
        ("lease_s", float("inf"), "seconds"),
        ("drain_s", "10", "a number of seconds"),
        ("mailbox", True, "a whole number of messages"),
        ("retain_days", -1, "between 0 and 36,500 days"),
        ("retain_days", "30", "a number of days"),
        ("snapshot_s", None, "a number of seconds"),
        ("keep_unanswered", 1, "true or false"),
        ("durability", "fast", "full or normal"),
        ("encoding", ["o200k_base"], "name of an encoding"),
        ("encoding", "\ud800", "name of an encoding"),
    ],
)
def test_a_bad_setting_names_itself_its_bound_and_its_unit(name, value, said):
    """A value out of its range names the setting, its bound and its unit."""
    with pytest.raises(InvalidSettings) as caught:
        Settings(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert caught.value.name == name
    assert said in caught.value.bound
    assert str(caught.value).startswith(f"{name} must be ")


@pytest.mark.parametrize("name", ["window", "mailbox", "text_bytes", "deliveries", "budget"])
def test_a_count_is_whole(name):
    """What is counted can't be a fraction."""
    with pytest.raises(InvalidSettings) as caught:
        Settings(**{name: 12.5})
    assert caught.value.name == name


def test_settings_come_from_a_file_and_the_environment(tmp_path):
    """A TOML file sets, `INTERTURN_*` variables set over it, others' variables mean nothing."""
    file = tmp_path / "interturn.toml"
    file.write_text("window = 8\nbudget = 100\n", encoding="utf-8")
    environ = {"INTERTURN_BUDGET": "200", "INTERTURN_DURABILITY": "normal", "INTERTURN_KEYS": "x"}
    assert Settings.load(file, environ) == Settings(window=8, budget=200, durability="normal")
    environ = {"INTERTURN_KEEP_UNANSWERED": "true", "INTERTURN_RETAIN_DAYS": "30.5"}
    assert Settings.load(None, environ) == Settings(keep_unanswered=True, retain_days=30.5)
    assert Settings.load(None, {}) == Settings()


@pytest.mark.parametrize(
    ("content", "environ", "name"),
    [
        ("windo = 8", {}, "windo"),
        ("window = 'eight'", {}, "window"),
        ("window = 7", {}, "window"),
        ("window = = 8", {}, "interturn.toml"),
        ("", {"INTERTURN_TURN_S": "soon"}, "turn_s"),
        ("", {"INTERTURN_MAILBOX": "0"}, "mailbox"),
        ("", {"INTERTURN_DURABILITY": "fast"}, "durability"),
        ("keep_unanswered = 'perhaps'", {}, "keep_unanswered"),
        ("", {"INTERTURN_RETAIN_DAYS": "a month"}, "retain_days"),
        ("durability = 3", {}, "durability"),
        (f"window = {'9' * 5_000}", {}, "interturn.toml"),
        (f"window = {'[' * 3_000}", {}, "interturn.toml"),
        ("", {"INTERTURN_WINDOW": "\udcff"}, "window"),
    ],
)
def test_a_bad_file_or_variable_names_the_setting(tmp_path, content, environ, name):
    """A bad value in a file or a variable names the setting, as one in code does."""
    file = tmp_path / "interturn.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidSettings) as caught:
        Settings.load(file, environ)
    assert caught.value.name.endswith(name)


async def test_an_unknown_encoding_names_the_known_ones(opened):
    """An encoding that isn't here is `InvalidSettings` at open, and nothing is made."""
    with pytest.raises(InvalidSettings, match="o200k_base"):
        async with opened(counter=None, settings=Settings(encoding="p50k_base")):
            pass
