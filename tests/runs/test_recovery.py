"""Recovery: finds what can go on, claims each thread once, and leaves alone what is not its own."""

from typing import Any

import pytest

import holdfast
from holdfast.runs.durable import registry
from runs.worlds import World


class Handler:
    """A handler that says which threads it was given, and completes them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, run: holdfast.Run) -> None:
        self.seen.append(run.thread_id)
        await run.complete("recovered")


async def handle(handler: Handler, world: World, store: holdfast.Store | None = None, **options: Any) -> Any:
    async def called(run: holdfast.Run) -> None:
        await handler(run)

    return await (store or world.store).recover(called, **options)


async def test_only_what_can_go_on_is_gone_on_with(world: World) -> None:
    async with world.store.run("idle") as run:
        await run.step("work", list)
    async with world.store.run("complete") as run:
        await run.complete(1)
    with pytest.raises(ValueError, match="no"):
        async with world.store.run("failed") as run:
            raise ValueError("no")
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("waits") as run:
            await run.ask("refund", deadline=1000)
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("sleeps") as run:
            await run.sleep(1000)
    with pytest.raises(KeyboardInterrupt):
        async with world.store.run("interrupted") as run:
            await run.step("work", list)
            raise KeyboardInterrupt
    async with world.doomed("dead") as run:
        await run.step("work", list)
    handler = Handler()
    async with world.store.run("alive") as run:
        await run.step("work", list)
        report = await handle(handler, world)
    assert sorted(handler.seen) == sorted(report.completed) == ["dead", "interrupted"]
    assert (report.open, report.suspended, report.failed, report.skipped) == ((), (), (), ())
    world.clock.advance(1000)
    assert sorted((await handle(handler, world)).completed) == ["sleeps", "waits"]
    assert not (await handle(handler, world)).resumed


async def test_an_answered_thread_goes_on(world: World) -> None:
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.ask("refund")
    handler = Handler()
    assert not (await handle(handler, world)).resumed
    await world.store.answer(caught.value.requests[0].id, value=1)
    assert (await handle(handler, world)).completed == ("t",)


async def test_a_durable_function_is_resumed(world: World) -> None:
    lives: list[str] = []

    @world.durable()
    async def agent(name: str, *, loud: bool = False) -> str:
        lives.append(await world.api.current().step("work", lambda: f"{name} {loud}"))
        answer = await world.api.ask("go on?")
        return f"{lives[-1]} {answer.value}"

    outcome = await agent.start("t", "kelp", loud=True)
    await world.store.answer(outcome.requests[0].id, value="yes")
    report = await world.open().recover()
    assert report.completed == report.resumed == ("t",)
    assert await agent.run("t", "kelp", loud=True) == "kelp True yes"
    assert len(lives) == 2


async def test_labels_choose_which_threads(world: World) -> None:
    for name in ("a", "b"):
        with pytest.raises(KeyboardInterrupt):
            async with world.store.run(name, labels={"app": name}):
                raise KeyboardInterrupt
    handler = Handler()
    assert (await handle(handler, world, labels={"app": "b"})).completed == ("b",)


async def test_a_handler_may_leave_a_thread_open_or_fail_or_wait(world: World) -> None:
    for name in ("open", "fails", "waits", "conflict"):
        with pytest.raises(KeyboardInterrupt):
            async with world.store.run(name) as run:
                await run.step("work", list)
                raise KeyboardInterrupt

    async def handler(run: holdfast.Run) -> None:
        if run.thread_id == "fails":
            raise ValueError("no")
        if run.thread_id == "conflict":
            raise holdfast.Conflict("the handler's own")
        if run.thread_id == "waits":
            await run.ask("refund")

    report = await world.store.recover(handler)
    assert (report.open, report.suspended) == (("open",), ("waits",))
    assert sorted(report.failed) == ["conflict", "fails"]
    assert (await world.store.thread("fails")).error == "ValueError: no"


async def test_a_thread_of_another_program_is_left_alone_untouched(world: World) -> None:
    @world.durable()
    async def agent() -> None:
        await world.api.sleep(1000)

    with pytest.raises(holdfast.Suspended):
        await agent.run("sleeps")
    async with world.doomed("dead") as run:
        await run.step("work", list)
    world.clock.advance(1000)
    unknown = {name: registry.pop(name) for name in list(registry) if "left_alone_untouched" in name}
    assert unknown
    heads = [await world.store.thread(name) for name in ("sleeps", "dead")]
    assert sorted((await world.store.recover()).skipped) == ["dead", "sleeps"]
    assert [await world.store.thread(name) for name in ("sleeps", "dead")] == heads
    registry.update(unknown)
    assert (await world.store.recover()).completed == ("sleeps",)


async def test_a_thread_that_kills_its_process_each_time_ends_as_failed(world: World) -> None:
    async with world.doomed("t") as run:
        await run.step("work", list)
    for _ in range(2):
        await die_in_recovery(world)
        world.clock.advance(60)
    handler = Handler()
    report = await handle(handler, world, max_attempts=2)
    assert (report.failed, handler.seen) == (("t",), [])
    info = await world.store.thread("t")
    assert info.status == "failed"
    assert "died in each of 2 attempts" in str(info.error)
    assert not (await handle(handler, world)).resumed


async def die_in_recovery(world: World, *, progress: bool = False) -> None:
    """A recovery whose process dies in the handler."""
    from holdfast.testing.faults import Crash, Fault

    store = world.open()
    faulty = world.faults[-1]

    async def handler(run: holdfast.Run) -> None:
        if progress:
            await run.step(f"progress {world.clock.now}", list)
        faulty.plan = Fault(1, "crash before", frozenset({"swap"}))
        await run.step("never", list)

    with pytest.raises(Crash):
        await store.recover(handler, max_attempts=2)


async def test_progress_begins_the_count_anew(world: World) -> None:
    async with world.doomed("t") as run:
        await run.step("work", list)
    for _ in range(4):
        await die_in_recovery(world, progress=True)
        world.clock.advance(60)
    handler = Handler()
    assert (await handle(handler, world, max_attempts=2)).completed == ("t",)


async def test_many_recoveries_at_once_claim_each_thread_once(world: World) -> None:
    names = [f"t{number}" for number in range(8)]
    for name in names:
        with pytest.raises(KeyboardInterrupt):
            async with world.store.run(name) as run:
                await run.step("work", list)
                raise KeyboardInterrupt
    handler = Handler()
    stores = [world.open() for _ in range(4)]
    reports = await world.gather(*(handle(handler, world, store) for store in stores))
    assert sorted(handler.seen) == sorted(name for report in reports for name in report.completed) == names


async def test_who_comes_second_leaves_the_thread_as_the_first_left_it(world: World) -> None:
    """Both have found the thread before either has claimed it."""
    with pytest.raises(KeyboardInterrupt):
        async with world.store.run("t") as run:
            await run.step("work", list)
            raise KeyboardInterrupt
    handler, second = Handler(), world.open()
    await second.stats()

    async def first(run: holdfast.Run) -> None:
        handler.seen.append("first")
        await run.ask("refund", deadline=1000)

    async def late(run: holdfast.Run) -> None:
        handler.seen.append("second")

    inner = getattr(second, "_inner", second)
    recoverer = _recoverer(getattr(inner, "_store", inner), late)
    found = recoverer._candidates({})
    assert (await world.store.recover(first)).suspended == ("t",)
    before = await world.store.thread("t")
    assert await recoverer._resume(found[0]) == "skipped"
    after = await world.store.thread("t")
    assert (after.status, after.owner, after.wake_at) == (before.status, before.owner, before.wake_at)
    assert handler.seen == ["first"]


def _recoverer(store: Any, handler: Any) -> Any:
    from holdfast.runs.block import Terms
    from holdfast.runs.recovery import Recoverer
    from runs.worlds import plain

    blocking = store._tools.ports.blocking
    return Recoverer(store, plain(handler) if blocking else handler, Terms(wait=0), 3)


async def test_a_handler_or_count_that_makes_no_sense_is_refused(world: World) -> None:
    for wrong in (0, -1, "many", True):
        with pytest.raises(holdfast.ConfigurationError, match="max_attempts"):
            await world.store.recover(max_attempts=wrong)  # type: ignore[arg-type]
