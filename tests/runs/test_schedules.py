"""Schedules: each tick creates one thread, whoever keeps them, and what was missed is caught up as declared."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import sync
from holdfast.history.entries import Retaken
from holdfast.history.tuning import Tuning
from holdfast.runs import schedules
from holdfast.runs.block import Terms
from holdfast.runs.durable import registry
from holdfast.runs.resuming import MAX_ATTEMPTS
from holdfast.runs.ticks import missed_ticks, tick_id
from holdfast.stores.claim import take
from patience import GIVE_UP_SECONDS
from rounds import rounds

NAME = "digest"
KILLS = rounds(4, 1)
FIRED = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def own_declarations() -> Iterator[None]:
    """What a test declares is what a program of its own declares."""
    others = dict(registry)
    registry.clear()
    yield
    registry.clear()
    registry.update(others)
    schedules.declared.clear()


class Office:
    """A store, a function that is scheduled, and a worker that can be let look once."""

    def __init__(self, store: holdfast.Store) -> None:
        self.store = store
        self.asks = False

        @holdfast.durable(store=store, name="report")
        async def report(what: str, scheduled_at: datetime | None = None) -> list[object]:
            if self.asks:
                await holdfast.ask("go on?")
            return [what, scheduled_at]

        self.report = report
        now = time.time()
        self.period = next(each for each in range(3600, 5000) if 300 < now % each < each - 300)
        """A period whose last tick is some minutes ago, and whose next is not yet."""

    async def schedule(self, **options: Any) -> None:
        await self.store.schedule(NAME, self.report, **{"every": self.period, "args": ("daily",), **options})

    async def forget(self, count: int) -> list[str]:
        """Make the schedule believe that the last ticks were not fired. Return the ids of their threads."""
        beside = schedules.beside(self.store)
        progress = await schedules._progress(beside, NAME)
        assert progress is not None
        timing, now = progress.plan.timing, time.time_ns() // 1000
        missed = missed_ticks(timing, now - (count + 1) * timing.every, now)[-count:]
        await schedules._write(beside, NAME, lambda _: replace(progress, fired=missed[0] - 1))
        return [tick_id(NAME, tick) for tick in missed]

    async def look(self) -> set[str]:
        """Let a worker run what is due; return the ids of all threads."""
        await holdfast.Worker(self.store).run(once=True)
        return {info.thread_id for info in await self.store.threads()}


@pytest.fixture(params=["memory:", "holdfast.db", "file:store"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Office], Awaitable[None]]], None]:
    """Plays a scenario over one kind of store."""
    kind, _, place = request.param.rpartition(":")
    url = request.param if request.param == "memory:" else f"{kind}{':' if kind else ''}{tmp_path / place}"

    def play(scenario: Callable[[Office], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with holdfast.open(url) as store:
                await scenario(Office(store))

        asyncio.run(whole())

    return play


Play = Callable[[Callable[[Office], Awaitable[None]]], None]


def test_a_worker_that_cannot_read_cron_leaves_those_schedules_to_others(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule(every=None, cron="* * * * *")
        beside, fired = schedules.beside(office.store), time.time_ns() // 1000 - 90_000_000
        progress = await schedules._progress(beside, NAME)
        assert progress is not None
        await schedules._write(beside, NAME, lambda _: replace(progress, fired=fired))
        rows = (await beside.thread(NAME)).seq
        with monkeypatch.context() as without:
            without.setattr("holdfast.runs.schedules.find_spec", lambda _: None)
            assert await office.look() == set()
        assert (await beside.thread(NAME)).seq == rows, "it notes nothing either"
        assert len(await office.look()) == 1

    play(scenario)


def test_a_schedule_may_change_from_a_period_to_cron_and_back(play: Play) -> None:
    async def scenario(office: Office) -> None:
        for options in ({}, {"every": None, "cron": "0 0 29 2 *"}, {}):
            await office.schedule(**options)
            await office.look()
            (shown,) = await office.store.schedules()
            assert (shown.cron, shown.every is None) == (options.get("cron"), "cron" in options)
        (tick,) = await office.forget(1)
        assert tick in await office.look()

    play(scenario)


def test_a_tick_creates_a_thread_that_gets_its_moment(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule(labels={"team": "ops"}, queue="slow")
        assert await office.look() == set()  # a new schedule fires nothing of the past
        (tick,) = await office.forget(1)
        assert await office.look() == {tick}
        info = await office.store.thread(tick)
        assert (info.queue, info.labels) == ("slow", {"team": "ops"})
        await holdfast.Worker(office.store, queues=["slow"]).run(once=True)
        moment = datetime.fromisoformat(tick.removeprefix(f"{NAME}@"))
        assert (await office.store.outcome(tick)).result == ["daily", moment]

    play(scenario)


@pytest.mark.parametrize(("catch_up", "count"), [("latest", 1), ("all", 3), ("none", 0)])
def test_ticks_that_nobody_was_there_for_are_caught_up_as_declared(play: Play, catch_up: Any, count: int) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule(catch_up=catch_up, overlap="allow")
        missed = await office.forget(3)
        assert await office.look() == set(missed[3 - count :])
        assert await office.look() == set(missed[3 - count :])  # once

    play(scenario)


@pytest.mark.parametrize(("overlap", "count"), [("skip", 1), ("allow", 2)])
def test_a_tick_is_skipped_while_the_thread_before_is_open(play: Play, overlap: Any, count: int) -> None:
    async def scenario(office: Office) -> None:
        office.asks = True
        await office.schedule(overlap=overlap, catch_up="all")
        missed = await office.forget(2)
        assert await office.look() == set(missed[:count])
        assert (await office.store.thread(missed[0])).status == "input_required"

    play(scenario)


def test_a_tick_that_was_fired_and_not_noted_is_not_fired_again(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule()
        for _ in range(2):
            (tick,) = await office.forget(1)
            assert await office.look() == {tick}
        await office.store.delete(tick)
        await office.forget(1)
        assert await office.look() == set()  # not even if its thread was deleted meanwhile
        await office.schedule(args=("weekly",))
        await office.forget(1)
        assert await office.look() == set()

    play(scenario)


def test_the_same_schedule_again_changes_nothing_and_another_one_does(play: Play) -> None:
    async def scenario(office: Office) -> None:
        beside = schedules.beside(office.store)
        await office.schedule()
        before = await beside.thread(NAME)
        await office.schedule()
        assert await beside.thread(NAME) == before
        await office.schedule(every=timedelta(hours=3))
        (shown,) = await office.store.schedules()
        assert (shown.every, shown.fired_at, shown.function) == (timedelta(hours=3), None, "report")
        assert shown.next_at is not None
        assert shown.next_at > datetime.now(UTC)
        assert await office.look() == set()  # the ticks of the new times before now are not caught up

    play(scenario)


def test_a_schedule_can_be_paused_resumed_and_deleted(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule()
        await schedules.pause(office.store, NAME, paused=True)
        assert [(each.paused, each.next_at) for each in await office.store.schedules()] == [(True, None)]
        assert await office.look() == set()
        await schedules.pause(office.store, NAME, paused=False)
        assert await office.look() == set()  # what it missed is not caught up
        (tick,) = await office.forget(1)
        assert await office.look() == {tick}
        await office.store.unschedule(NAME)
        assert await office.store.schedules() == []
        with pytest.raises(holdfast.NotFound):
            await office.store.unschedule(NAME)
        with pytest.raises(holdfast.NotFound):
            await schedules.pause(office.store, NAME, paused=True)
        await office.schedule()
        assert await office.look() == {tick}

    play(scenario)


def test_a_worker_creates_what_its_program_declares_for_its_functions(play: Play) -> None:
    async def scenario(office: Office) -> None:
        other = holdfast.durable(store=office.store, name="other")(_nothing)
        holdfast.schedule(NAME, office.report, cron="0 9 * * 1-5", tz="Europe/Berlin", args=("daily",))
        holdfast.schedule("unserved", other, every=3600)
        await holdfast.Worker(office.store, functions=[office.report]).run(once=True)
        (shown,) = await office.store.schedules()
        assert (shown.name, shown.cron, shown.tz) == (NAME, "0 9 * * 1-5", "Europe/Berlin")

    play(scenario)


def test_the_rows_of_past_ticks_are_deleted(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "ROWS_KEPT", 4)

    async def scenario(office: Office) -> None:
        office.store._backend.tuning = Tuning(keyframe_rows=4, keyframe_rows_max=4)
        await office.schedule()
        for _ in range(12):
            await office.forget(1)
            await office.look()
        info = await schedules.beside(office.store).thread(NAME)
        assert info.row_count < 12

    play(scenario)


def test_a_change_keeps_the_ticks_that_were_fired_while_it_was_made(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(office: Office) -> None:
        write = schedules._write

        async def late(beside: holdfast.Store, name: str, change: Any) -> None:
            before = await schedules._progress(beside, name)
            assert before is not None
            await write(beside, name, lambda _: replace(before, fired=FIRED, last=FIRED))
            await write(beside, name, change)

        await office.schedule()
        monkeypatch.setattr(schedules, "_write", late)
        await office.schedule(args=("weekly",))
        progress = await schedules._progress(schedules.beside(office.store), NAME)
        assert progress is not None
        assert (progress.fired, progress.last) == (FIRED, FIRED)
        await schedules.pause(office.store, NAME, paused=True)
        progress = await schedules._progress(schedules.beside(office.store), NAME)
        assert progress is not None
        assert (progress.paused, progress.last) == (True, FIRED)

    play(scenario)


def test_a_schedule_whose_deletion_was_cut_short_can_be_created_again(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule()
        await schedules.beside(office.store).delete(NAME)
        assert await office.store.schedules() == []
        holdfast.schedule(NAME, office.report, every=3600, args=("daily",))
        await holdfast.Worker(office.store).run(once=True)
        assert [each.name for each in await office.store.schedules()] == [NAME]

    play(scenario)


def test_a_schedule_does_not_fail_however_often_its_process_dies(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule()
        beside = schedules.beside(office.store)
        async with beside._run_block(NAME, None, Terms(silent=True)) as run:
            for _ in range(MAX_ATTEMPTS):
                await run._ledger.note(run._ports, Retaken(run._ports.now()))
            run._ledger.resumes_at = 0
        (tick,) = await office.forget(1)
        key = beside._reader.key(NAME)
        await beside._ports.perform(take, beside._ports, beside._reader, beside._committer, key, 1)  # never released
        assert await office.look() == {tick}
        assert (await beside.thread(NAME)).status == "working"

    play(scenario)


def test_one_name_is_for_one_function(play: Play) -> None:
    async def scenario(office: Office) -> None:
        other = holdfast.durable(store=office.store, name="other")(_nothing)
        holdfast.schedule(NAME, office.report, every=60, args=("daily",))
        holdfast.schedule(NAME, office.report, every=90, args=("daily",))  # a module may be imported again
        with pytest.raises(holdfast.ConfigurationError, match="declared for report already"):
            holdfast.schedule(NAME, other, every=60)

    play(scenario)


def test_a_name_that_leaves_no_room_for_a_tick_is_refused(play: Play) -> None:
    async def scenario(office: Office) -> None:
        with pytest.raises(holdfast.InvalidId):
            await office.store.schedule("x" * 490, office.report, every=60, args=("daily",))
        await office.store.schedule("x" * 480, office.report, every=60, args=("daily",))

    play(scenario)


def test_schedules_are_not_among_the_threads_of_the_store(play: Play) -> None:
    async def scenario(office: Office) -> None:
        await office.schedule()
        await office.look()
        assert list(await office.store.threads()) == []
        assert await office.store.check() == []
        assert registry.keys().isdisjoint(schedules.KEEPERS.values())

    play(scenario)


async def _nothing() -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0.1},
        {"cron": "* * * * *"},
        {"catch_up": "some"},
        {"overlap": "no"},
        {"args": ()},
        {"kwargs": {"unknown": 1}},
        {"priority": 9},
        {"labels": {"a": 1}},
    ],
)
def test_wrong_options_are_refused_and_write_nothing(wrong: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with holdfast.open("memory:") as store:
            office = Office(store)
            with pytest.raises((holdfast.HoldfastError, TypeError)):
                await office.schedule(**wrong)
            assert await store.schedules() == []

    asyncio.run(scenario())


def test_a_blocking_program_has_schedules_too() -> None:
    with sync.open("memory:") as store:

        @sync.durable(store=store, name="plain")
        def plain() -> int:
            return 1

        store.schedule(NAME, plain, every=3600)
        assert [each.function for each in store.schedules()] == ["plain"]
        store.unschedule(NAME)
        with pytest.raises(holdfast.ConfigurationError):
            sync.schedule(NAME, print, every=60)  # type: ignore[arg-type]  # the point
        with pytest.raises(holdfast.ConfigurationError):
            sync.schedule("", plain, every=60)


WORKER = """
import asyncio, sys, holdfast

store = holdfast.open(sys.argv[1])

@holdfast.step
async def work(moment: object) -> None:
    with open(sys.argv[2], "a") as log:
        log.write(f"{moment}\\n")

@holdfast.durable(store=store, name="report")
async def report(scheduled_at: object = None) -> None:
    await work(scheduled_at)

holdfast.schedule("beat", report, every=1, catch_up="all", overlap="allow")
asyncio.run(holdfast.Worker(store, lease=1).run())
"""


@pytest.mark.faults
@pytest.mark.processes
def test_workers_that_are_killed_at_random_fire_each_tick_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WORKER)
    url, log = str(tmp_path / "holdfast.db"), str(tmp_path / "log")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(tmp_path / "app.py"), url, log])

    workers = [start() for _ in range(4)]
    try:
        for _ in range(KILLS):
            time.sleep(random.uniform(0.5, 1.5))
            victim = workers.pop(0)
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            workers.append(start())
        for each in workers:
            each.kill()
            each.wait()
        down_at = time.time()
        time.sleep(3.2)  # three ticks that nobody is there for
        workers = [start()]
        _wait_for_ticks(url, until=down_at + 4)
    finally:
        for each in workers:
            each.kill()
            each.wait()
    ticks = _ticks(url)
    assert ticks == [ticks[0] + timedelta(seconds=number) for number in range(len(ticks))]
    executed = Path(log).read_text().splitlines()
    assert len(executed) - len(set(executed)) <= KILLS + 4  # only a step in flight at a kill is executed again


def _ticks(url: str) -> list[datetime]:
    """The ticks that have threads, in order: a listing never shows one thread twice."""
    with sync.open(url) as store:
        page: Any = store.threads(limit=1000)
        return sorted(datetime.fromisoformat(info.thread_id.removeprefix("beat@")) for info in page)


def _wait_for_ticks(url: str, until: float) -> None:
    give_up_at = time.time() + GIVE_UP_SECONDS
    while (not (ticks := _ticks(url)) or ticks[-1].timestamp() < until) and time.time() < give_up_at:
        time.sleep(0.2)
    assert _ticks(url)[-1].timestamp() >= until
