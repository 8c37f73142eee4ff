"""A worker runs what is due, as its functions say, and hands over what it cannot finish."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.records.errors import ConfigurationError
from holdfast.runs.durable import registry
from holdfast.runs.store import Store
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.clock import Clock
from holdfast.testing.handles import blocking_store
from patience import GIVE_UP_SECONDS


class Clocked(MemoryBackend):
    """A memory store whose time a test moves; counts the calls, and fails while it is `down`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.calls = Counter[str]()
        self.down = False

    def now(self) -> int:
        return self._clock.now

    def take(self, *arguments: Any, **options: Any) -> Any:
        self.calls["take"] += 1
        if self.down:
            raise holdfast.StoreUnavailable("the store is down")
        return super().take(*arguments, **options)

    def swap(self, *arguments: Any, **options: Any) -> Any:
        self.calls["swap"] += 1
        return super().swap(*arguments, **options)

    def heads(self, *arguments: Any) -> Any:
        self.calls["heads"] += 1
        return super().heads(*arguments)


class Place:
    """A store with a clock, and handles on it as other processes would have."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.backend = Clocked(self.clock)
        self.store = self.another()

    def another(self) -> Store:
        return Store(self.backend, ports=self.clock.ports(awaitable=True), on_close=lambda: None)

    def durable(self, function: Callable[..., Any], **options: Any) -> Any:
        registry.pop(options.get("name", ""), None)
        return holdfast.durable(store=self.store, **options)(function)

    async def run_once(self, store: Store | None = None, **options: Any) -> None:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await holdfast.Worker(store or self.store, **options).run(once=True)


@pytest.fixture(autouse=True)
def _own_names() -> Iterator[None]:
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


@pytest.fixture
def place() -> Place:
    return Place()


def in_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """Run an async test in an event loop."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), GIVE_UP_SECONDS))

    return run


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def status_of(place: Place, thread_id: str) -> str:
    return str((await place.store.thread(thread_id)).status)


@holdfast.step
async def add(left: int, right: int) -> int:
    return left + right


@in_loop
async def test_what_was_submitted_is_run(place: Place) -> None:
    async def total(*numbers: int) -> int:
        found = 0
        for number in numbers:
            found = await add(found, number)
        return found

    function = place.durable(total, name="total")
    async with asyncio.timeout(GIVE_UP_SECONDS):
        async with holdfast.Worker(place.store):
            handles = [await function.submit(f"t-{index}", index, 1) for index in range(30)]
            assert [await handle.result() for handle in handles] == [index + 1 for index in range(30)]


@in_loop
async def test_a_worker_beside_a_program_ends_with_its_block_even_at_once(place: Place) -> None:
    async with asyncio.timeout(GIVE_UP_SECONDS):
        async with holdfast.Worker(place.store):
            pass


@in_loop
async def test_once_runs_what_is_due_and_leaves_what_is_not(place: Place) -> None:
    async def work() -> str:
        return "done"

    function = place.durable(work, name="work")
    await function.submit("now")
    await function.options(delay=60).submit("later")
    await place.run_once()
    assert await status_of(place, "now") == "complete"
    assert await status_of(place, "later") == "queued"
    place.clock.advance(61)
    await place.run_once()
    assert await status_of(place, "later") == "complete"


@in_loop
async def test_a_durable_sleep_is_woken_in_time(place: Place) -> None:
    async def work() -> str:
        await holdfast.sleep(3600)
        return "awake"

    await place.durable(work, name="work").submit("t")
    await place.run_once()
    assert await status_of(place, "t") == "working"
    place.clock.advance(3601)
    await place.run_once()
    assert (await place.store.outcome("t")).result == "awake"


@in_loop
async def test_no_more_run_at_once_than_there_are_places(place: Place) -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    function = place.durable(work, name="work")
    for index in range(12):
        await function.submit(f"t-{index}")
    await place.run_once(concurrency=3)
    assert most == 3
    assert await place.store.counts() == {"complete": 12}


@in_loop
async def test_a_worker_without_a_free_place_is_alive(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runs.looking.POLL_SECONDS", 0.001)
    begun, seen = asyncio.Event(), asyncio.Semaphore(0)

    async def work() -> None:
        begun.set()
        for _ in range(3):
            await seen.acquire()

    await place.durable(work, name="work").submit("t")
    worker = holdfast.Worker(place.store, concurrency=1)
    worker._on_look = lambda: seen.release() if begun.is_set() else None
    await worker.run(once=True)


@in_loop
async def test_a_submitted_thread_costs_four_swaps_and_no_read_of_its_head(place: Place) -> None:
    async def work() -> int:
        return await add(1, 2)

    await place.durable(work, name="work").submit("t")
    place.backend.calls.clear()
    await place.run_once()
    assert place.backend.calls["swap"] == 3  # the claim, the step, the end with the release
    assert place.backend.calls["heads"] == 0


# Errors


@in_loop
async def test_an_error_is_tried_again_after_a_while_with_finished_steps_kept(place: Place) -> None:
    executed = Counter[str]()

    async def work() -> int:
        executed["body"] += 1
        executed["step"] += not executed["step"]
        three = await add(1, 2)
        if executed["body"] < 3:
            raise ValueError("not yet")
        return three

    await place.durable(work, name="work", retries=2, backoff=10).submit("t")
    for _ in range(3):
        await place.run_once()
        place.clock.advance(11)
    assert executed["body"] == 3
    assert (await place.store.outcome("t")).result == 3
    assert len((await place.store.thread("t")).labels) == 0


@in_loop
async def test_a_thread_fails_after_its_retries_and_a_person_gives_them_anew(place: Place) -> None:
    attempts = 0

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError("never")

    await place.durable(work, name="work", retries=1, backoff=1).submit("t")
    for expected in (2, 4):
        for _ in range(4):
            await place.run_once()
            place.clock.advance(2)
        assert (attempts, await status_of(place, "t")) == (expected, "failed")
        assert (await place.store.outcome("t")).error == "ValueError: never"
        await place.store.retry("t")


@in_loop
async def test_a_failed_step_is_executed_again_by_the_next_attempt(place: Place) -> None:
    calls = 0

    async def shaky() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("no network")
        return calls

    async def work() -> int:
        found: int = await holdfast.current().step("shaky", shaky)
        return found

    await place.durable(work, name="work", retries=1, backoff=1).submit("t")
    await place.run_once()
    place.clock.advance(2)
    await place.run_once()
    assert (await place.store.outcome("t")).result == 2


@in_loop
async def test_an_outage_of_the_store_is_survived(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> str:
        return "done"

    monkeypatch.setattr("holdfast.runs.worker.OUTAGE_SECONDS", (0.01, 0.02))
    function = place.durable(work, name="work")
    async with holdfast.Worker(place.store):
        place.backend.down = True
        await until(lambda: place.backend.calls["take"] > 3)
        await function.submit("t")
        place.backend.down = False
        assert await function._store().handle("t").result(GIVE_UP_SECONDS) == "done"


# Who runs what


@in_loop
async def test_what_a_worker_does_not_serve_it_leaves_alone(place: Place) -> None:
    async def work() -> None: ...

    mine, other = place.durable(work, name="mine"), place.durable(work, name="mine-too", queue="elsewhere")
    await place.store.submit("somebody:else", "foreign")
    await other.submit("other")
    await mine.submit("mine")
    await place.run_once(functions=[mine])
    assert [await status_of(place, name) for name in ("foreign", "other", "mine")] == ["queued", "queued", "complete"]
    await place.run_once(functions=[other], queues=["default"])
    assert await status_of(place, "other") == "queued"
    await place.run_once(functions=[other])
    assert await status_of(place, "other") == "complete"


@in_loop
async def test_a_new_version_leaves_begun_threads_to_the_old_one_unless_it_adopts_them(place: Place) -> None:
    versions = []

    async def work() -> None:
        versions.append(holdfast.current().version)
        await add(1, 2)
        await holdfast.sleep(3600)

    async def begin(version: int, **options: Any) -> Any:
        function = place.durable(work, name="work", version=version, **options)
        await place.run_once(functions=[function])
        place.clock.advance(3601)
        return function

    await place.durable(work, name="work").submit("old")
    first = await begin(1)
    assert (await place.store.thread("old")).version == 1
    second = await begin(2)
    assert await status_of(place, "old") == "working"
    await second.submit("new")
    await begin(2)
    assert versions == [1, 2]
    await place.run_once(functions=[first])
    assert [await status_of(place, name) for name in ("old", "new")] == ["complete", "working"]

    await first.submit("adopted")
    await begin(1)
    await begin(3, since=1)
    assert [await status_of(place, name) for name in ("new", "adopted")] == ["complete", "complete"]
    assert versions[:4] == [1, 2, 1, 1]
    assert sorted(versions[4:]) == [1, 2], "both at once"


@in_loop
async def test_recover_skips_versions_that_the_function_does_not_declare(place: Place) -> None:
    async def work() -> None:
        await holdfast.sleep(3600)

    await place.durable(work, name="work").submit("t")
    await place.run_once()
    place.clock.advance(3601)
    place.durable(work, name="work", version=2)
    assert (await place.store.recover()).skipped == ("t",)


# Waiting


@in_loop
async def test_an_answer_wakes_the_thread(place: Place) -> None:
    async def work() -> str | None:
        return (await holdfast.ask("go on?", choices=["yes", "no"])).choice

    function = place.durable(work, name="work")
    async with holdfast.Worker(place.store):
        handle = await function.submit("t")
        waiting = await handle.wait(GIVE_UP_SECONDS)
        await place.another().answer(waiting.requests[0].id, "yes")
        assert await handle.result(GIVE_UP_SECONDS) == "yes"


@in_loop
async def test_the_end_of_a_child_wakes_its_parent_which_holds_no_place_meanwhile(place: Place) -> None:
    async def double(number: int) -> int:
        return number * 2

    async def parent(number: int) -> int:
        handle = await child.submit(f"{holdfast.current().thread_id}/child", number)
        return int(await handle.result())

    child, function = place.durable(double, name="double"), place.durable(parent, name="parent")
    async with holdfast.Worker(place.store, concurrency=1):
        handles = [await function.submit(f"p-{number}", number) for number in range(5)]
        assert [await handle.result(GIVE_UP_SECONDS) for handle in handles] == [0, 2, 4, 6, 8]


@in_loop
async def test_a_cancelled_thread_ends_also_while_it_runs(place: Place) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        while True:
            await asyncio.sleep(0.01)
            await holdfast.checkpoint({})

    function = place.durable(work, name="work")
    async with holdfast.Worker(place.store):
        handle = await function.submit("t")
        await begun.wait()
        await place.another().cancel("t")
        with pytest.raises(holdfast.RunCancelled):
            await handle.result(GIVE_UP_SECONDS)


# Dead processes


@in_loop
async def test_a_dead_workers_thread_is_taken_over_when_its_lease_ends(place: Place) -> None:
    async def work() -> int:
        return await add(1, 2)

    function = place.durable(work, name="work")
    await function.submit("t")
    block = place.another().run("t", lease=30)
    await block.enter()  # a process that never leaves it
    await place.run_once()
    assert await status_of(place, "t") == "working"
    place.clock.advance(31)
    await place.run_once()
    assert await status_of(place, "t") == "complete"


@in_loop
async def test_a_lease_that_is_renewed_is_looked_at_once_and_left(place: Place) -> None:
    async def work() -> None: ...

    function = place.durable(work, name="work")
    await function.submit("t")
    async with place.another().run("t", lease=30) as run:
        place.clock.advance(25)
        await run.checkpoint({})  # renews the lease, and not the entry
        place.clock.advance(10)
        await place.run_once(functions=[function])
        taken = place.backend.calls["take"]
        await place.run_once(functions=[function])
        assert place.backend.calls["take"] == taken + 2, "one look, and one at the schedules"
        place.clock.advance(15)
        await run.checkpoint({})
        place.clock.advance(10)
        await function.submit("behind it")
        await place.run_once(functions=[function], concurrency=1)
        assert (await place.store.thread("behind it")).status == "complete"


@in_loop
async def test_a_taken_thread_that_may_not_run_does_not_hold_up_the_next_one(place: Place) -> None:
    async def work() -> None: ...

    function = place.durable(work, name="work")
    await function.submit("held")
    async with place.another().run("held", lease=30) as run:
        await function.submit("next")
        place.clock.advance(25)
        await run.checkpoint({})  # renews the lease, and not the entry, which is taken first
        place.clock.advance(10)
        await place.run_once(functions=[function], concurrency=1)
        assert await status_of(place, "next") == "complete"


@in_loop
async def test_one_look_replaces_the_runs_that_end_at_about_the_same_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(number: int) -> None:
        await asyncio.sleep(number / 50)

    monkeypatch.setattr("holdfast.runs.worker.GATHER_SECONDS", GIVE_UP_SECONDS)
    function = place.durable(work, name="work")
    for number in range(8):
        await function.submit(f"t{number}", number % 4)
    await place.run_once(functions=[])
    idle_count = place.backend.calls["take"]
    await place.run_once(functions=[function], concurrency=4)
    assert place.backend.calls["take"] == 2 * idle_count + 2, "two full looks, and one that finds nothing more"


@in_loop
async def test_a_thread_on_which_processes_die_three_times_fails(place: Place) -> None:
    async def work() -> None:
        holdfast.current()._ledger.claim.after_fork()  # nothing is written any more, and the lease is not released
        raise RuntimeError("the process is dead")

    await place.durable(work, name="work").submit("t")
    for _ in range(5):
        await place.run_once(place.another())
        place.clock.advance(31)
    outcome = await place.store.outcome("t")
    assert (outcome.status, str(outcome.error)[:7]) == ("failed", "Poisone")


# Handing over


@in_loop
async def test_a_run_is_handed_over_at_its_next_step(place: Place) -> None:
    executed = Counter[int]()
    begun, may_end = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def work_on(number: int) -> int:
        executed[number] += 1
        begun.set()
        await may_end.wait()
        return number

    async def work() -> int:
        return sum([await work_on(number) for number in (1, 2, 3)])

    await place.durable(work, name="work").submit("t")
    worker = holdfast.Worker(place.store)
    task = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    await asyncio.sleep(0.02)
    assert not task.done()  # the step in flight may finish
    may_end.set()
    await asyncio.wait_for(task, GIVE_UP_SECONDS)
    info = await place.store.thread("t")
    assert (info.status, info.owner, info.wake_at, dict(executed)) == ("working", None, None, {1: 1})
    await place.run_once()
    assert (await place.store.outcome("t")).result == 6
    assert dict(executed) == {1: 1, 2: 1, 3: 1}


@in_loop
async def test_a_run_whose_code_ends_while_it_is_handed_over_is_complete(place: Place) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    await place.durable(work, name="work").submit("t")
    worker = holdfast.Worker(place.store)
    task = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.wait_for(task, GIVE_UP_SECONDS)
    assert (await place.store.outcome("t")).result == "done"


@pytest.mark.parametrize("signals", [1, 2])
@in_loop
async def test_after_the_time_of_grace_or_at_a_second_signal_steps_are_cancelled(place: Place, signals: int) -> None:
    begun = asyncio.Event()

    @holdfast.step
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def work() -> None:
        await endless()

    await place.durable(work, name="work").submit("t")
    worker = holdfast.Worker(place.store, grace=0 if signals == 1 else GIVE_UP_SECONDS)
    task = asyncio.create_task(worker.run())
    await begun.wait()
    for _ in range(signals):
        worker.stop()
    await asyncio.wait_for(task, GIVE_UP_SECONDS)
    info = await place.store.thread("t")
    assert (info.status, info.owner, info.wake_at) == ("working", None, None)


@in_loop
async def test_a_plain_function_is_abandoned_and_its_late_writes_are_refused(place: Place) -> None:
    begun, may_end, refused = Event(), Event(), Event()

    @sync.step
    def endless() -> None:
        begun.set()
        may_end.wait()

    def work() -> None:
        try:
            endless()
        except holdfast.Fenced:
            refused.set()
            raise

    registry.pop("work", None)
    store = blocking_store(place.backend, ports=place.clock.ports(), closes=False)
    sync.durable(store=store, name="work")(work).submit("t")
    worker = holdfast.Worker(place.store, grace=0)
    task = asyncio.create_task(worker.run())
    await until(begun.is_set)
    worker.stop()
    await asyncio.wait_for(task, GIVE_UP_SECONDS)
    assert (await place.store.thread("t")).owner is None
    may_end.set()
    await until(refused.is_set)


# The blocking world


def test_a_blocking_worker_runs_plain_functions_on_threads(place: Place) -> None:
    registry.pop("work", None)
    store = blocking_store(MemoryBackend())
    events = []
    store.on_event(lambda event: events.append(event.kind))

    @sync.durable(store=store, name="work")
    def work(number: int) -> int:
        return sync.current().step("double", int.__mul__, number, 2)

    with sync.Worker(store):
        handles = [work.submit(f"t-{number}", number) for number in range(5)]
        assert [handle.result(GIVE_UP_SECONDS) for handle in handles] == [0, 2, 4, 6, 8]
    work.submit("last", 21)
    sync.Worker(store).run(once=True)
    assert store.outcome("last").result == 42
    assert events.count("completed") == 6


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"lease": 0.1}, {"grace": -1}, {"queues": "one"}, {"functions": [print]}, {"queues": [""]}],
)
def test_wrong_options_are_refused(place: Place, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        holdfast.Worker(place.store, **options)


@in_loop
async def test_queues_are_listed_with_what_waits_in_them(place: Place) -> None:
    async def work() -> None:
        await holdfast.ask("?")

    function = place.durable(work, name="work", queue="slow")
    await function.submit("asks")
    await place.run_once()
    await function.submit("ready")
    await function.options(delay=60).submit("delayed")
    async with place.another().run("held") as run:
        await run.checkpoint({})
        found = await place.store.queues()
    assert [(info.name, info.ready, info.delayed, info.running, info.waiting) for info in found] == [
        ("slow", 1, 1, 0, 1)
    ]
    assert found[0].functions == ("work",)
    assert found[0].oldest_ready is not None
