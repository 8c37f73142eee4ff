"""A check replays open threads against the code: it finds what differs, executes nothing, and writes nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import sleep
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.runs.durable import registry
from holdfast.testing.faults import WRITES
from runs.worlds import AwaitableWorld, World

NAME = "flow"


@pytest.fixture(autouse=True)
def own_functions() -> Iterator[None]:
    """The functions of a test are those of a program of its own."""
    others = dict(registry)
    registry.clear()
    yield
    registry.clear()
    registry.update(others)


class Death(BaseException):
    """Ends a run as a kill would: its thread stays at work, and nothing is recorded of the end."""


class Bench:
    """Steps that count their executions, and what a check of the world's store says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.done: list[Any] = []
        self.find = self._step("find")
        self.note = self._step("note")
        self.pay = self._step("pay", effect=True)

    def _step(self, name: str, **policy: Any) -> Callable[..., Any]:
        async def work(*given: Any) -> str:
            self.done.append((name, *given))
            if given == ("bad",):
                raise ValueError("it is bad")
            if given == ("death",):
                raise Death
            return f"{name} done"

        return self.world.step(name=name, **policy)(work)

    def declare(self, function: Callable[..., Any], **options: Any) -> Any:
        """Make this the code of the function, in the place of what was declared before."""
        registry.pop(NAME, None)
        return self.world.durable(name=NAME, **options)(function)

    async def run(self, function: Callable[..., Any], *arguments: Any, thread_id: str = "t", **options: Any) -> None:
        """Run a function on a thread until it waits or dies."""
        with suppress(holdfast.Suspended, Death):
            await self.declare(function, **options).run(thread_id, *arguments)

    async def verdict(self, function: Callable[..., Any] | None = None, **options: Any) -> tuple[str, str]:
        """Check the only open thread against this code, and prove that nothing was executed or written."""
        if function is not None:
            self.declare(function, **options)
        done = list(self.done)
        for faults in self.world.faults:
            faults.calls.clear()
        stored = await self.world.store.thread("t")
        (found,) = [each for each in await self.world.store.check() if each.thread_id == "t"]
        assert self.done == done
        assert not WRITES & {call for faults in self.world.faults for call in faults.calls}
        assert await self.world.store.thread("t") == stored
        return found.verdict, found.reason


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


async def test_the_code_that_began_a_thread_fits_it(world: World, bench: Bench) -> None:
    async def flow(who: str) -> None:
        await bench.find(who)
        await bench.pay(40)
        await world.api.ask("go on?")
        await bench.note("after")

    await bench.run(flow, "ana")
    assert await bench.verdict() == ("fits", "")


async def test_new_code_after_the_record_is_not_judged(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await bench.find("a")
        await bench.pay("death")

    async def longer() -> None:
        await bench.find("a")
        await bench.note("new")
        await bench.pay("elsewhere")

    async def short() -> None:
        await bench.find("a")

    await bench.run(short, thread_id="other")
    await bench.run(flow)
    assert (await bench.verdict())[0] == "fits"
    verdict, reason = await bench.verdict(longer)
    assert (verdict, "step 'note', which is new, and has not asked for step 'pay'" in reason) == ("differs", True)
    verdict, reason = await bench.verdict(short)
    assert (verdict, "returns and has not asked for step 'pay'" in reason) == ("differs", True)


async def test_a_thread_whose_next_step_changed_fits(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await bench.find("a")
        await bench.note("death")

    async def changed() -> None:
        await bench.find("a")
        await bench.pay("something else")

    await bench.run(flow)
    assert await bench.verdict(changed) == ("fits", "")


@pytest.mark.parametrize("step", ["find", "pay"])
async def test_changed_arguments_of_a_step_differ_and_are_named(world: World, bench: Bench, step: str) -> None:
    async def flow() -> None:
        await getattr(bench, step)("old")
        await world.api.ask("go on?")

    async def changed() -> None:
        with suppress(Exception):  # code that catches the error does not hide it
            await getattr(bench, step)("new")
        await world.api.ask("go on?")

    await bench.run(flow)
    verdict, reason = await bench.verdict(changed)
    assert verdict == "differs"
    assert f"'{step}'" in reason
    assert "'new'" in reason
    assert "'old'" in reason
    assert "version" in reason


async def test_a_key_that_was_used_with_other_arguments_differs(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.current().step("one", len, "ab")
        await world.api.ask("go on?")

    async def changed() -> None:
        with suppress(holdfast.KeyReused):
            await world.api.current().step("one", len, "abc")
        await world.api.ask("go on?")

    await bench.run(flow)
    verdict, reason = await bench.verdict(changed)
    assert (verdict, "'one'" in reason) == ("differs", True)


async def test_a_question_that_is_not_asked_any_more_differs(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.ask("go on?")

    async def changed() -> None:
        await bench.pay(40)

    await bench.run(flow)
    verdict, reason = await bench.verdict(changed)
    assert (verdict, "question 'go on?'" in reason) == ("differs", True)


async def test_an_answer_that_waits_is_neither_consumed_nor_a_difference(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.ask("go on?", deadline=10, default="late")
        await bench.pay(40)

    await bench.run(flow)
    (request,) = await world.store.requests()
    await world.store.answer(request.id, value=1)
    assert await bench.verdict() == ("fits", "")


async def test_a_deadline_that_is_past_posts_nothing(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.ask("go on?", deadline=10, default="late")

    await bench.run(flow)
    world.clock.advance(60)
    assert await bench.verdict() == ("fits", "")


async def test_answered_questions_and_sleeps_that_are_over_are_replayed(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.ask("go on?")
        await world.api.sleep(1000)
        await bench.pay(40)
        await world.api.sleep(1000)

    async def changed() -> None:
        await world.api.ask("go on?")
        await world.api.sleep(1000)
        await bench.pay(41)

    await bench.run(flow)
    (request,) = await world.store.requests()
    await world.store.answer(request.id, value=1)
    await bench.run(flow)
    assert await bench.verdict() == ("fits", "")  # it sleeps: what follows is not judged
    assert await bench.verdict(changed) == ("fits", "")
    world.clock.advance(1001)
    await bench.run(flow)
    assert await bench.verdict(flow) == ("fits", "")
    assert (await bench.verdict(changed))[0] == "differs"


async def test_a_failed_step_raises_its_recorded_error(world: World, bench: Bench) -> None:
    async def flow() -> None:
        with suppress(holdfast.StepFailed):
            await bench.find("bad")
        await bench.pay(40)
        await world.api.ask("go on?")

    async def without_the_handler() -> None:
        await bench.find("bad")
        await bench.pay(40)

    await bench.run(flow)
    assert await bench.verdict() == ("fits", "")
    verdict, reason = await bench.verdict(without_the_handler)
    assert (verdict, "raises StepFailed and has not asked for step 'pay'" in reason) == ("differs", True)


async def test_a_step_in_doubt_is_not_verified_and_fits(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.current().step("pay", die, effect=True, on_doubt="ask")

    async def die() -> None:
        bench.done.append("died")
        if bench.done.count("died") == 1:
            raise Death

    await bench.run(flow)
    assert await bench.verdict() == ("fits", "")
    await bench.run(flow)  # it asks a person about the doubt
    assert [request.name for request in await world.store.requests()] == ["pay in doubt"]
    assert await bench.verdict() == ("fits", "")


def test_parallel_tasks_may_ask_for_more_after_one_of_them_stopped() -> None:
    async def scenario() -> None:
        async with holdfast.open("memory:") as store:
            note = holdfast.step(name="note")(_echo_async)

            async def short() -> None:
                await holdfast.ask("short?")

            async def long() -> None:
                for number in range(5):
                    await asyncio.sleep(0.01)
                    await note(number)
                await holdfast.ask("long?")

            async def flow() -> None:
                for number in range(5):
                    await note(number)
                await asyncio.gather(short(), long())

            async def parallel() -> None:
                await asyncio.gather(short(), long())

            async def without_the_long_one() -> None:
                await asyncio.gather(short(), short())

            await holdfast.durable(store=store, name=NAME)(flow).start("t")
            for function, verdict in ((parallel, "fits"), (without_the_long_one, "differs")):
                registry.clear()
                holdfast.durable(store=store, name=NAME)(function)
                assert [each.verdict for each in await store.check()] == [verdict]

    asyncio.run(scenario())


def test_parallel_threads_may_ask_for_more_after_one_of_them_stopped() -> None:
    with sync.open("memory:") as store:
        note = sync.step(name="note")(_echo)

        def short() -> None:
            sync.ask("short?")

        def long() -> None:
            for number in range(5):
                sleep(0.01)
                note(number)

        def flow() -> None:
            for number in range(5):
                note(number)
            sync.ask("short?")

        def parallel() -> None:
            with sync.pool(2) as pool:
                futures = [pool.submit(short), pool.submit(long)]
            [future.result() for future in futures]

        def without_the_long_one() -> None:
            with sync.pool(2) as pool:
                futures = [pool.submit(short), pool.submit(short)]
            [future.result() for future in futures]

        sync.durable(store=store, name=NAME)(flow).start("t")
        for function, verdict in ((parallel, "fits"), (without_the_long_one, "differs")):
            registry.clear()
            sync.durable(store=store, name=NAME)(function)
            assert [each.verdict for each in store.check()] == [verdict]


def _echo(value: Any) -> Any:
    return value


async def _echo_async(value: Any) -> Any:
    return value


async def test_records_checkpoints_and_appends_are_replayed_and_not_written(world: World, bench: Bench) -> None:
    async def flow() -> None:
        run = world.api.current()
        await run.checkpoint({"plan": []})
        await run.append("plan", "one")
        await run.record(holdfast.Step(action="looked"))
        await world.api.ask("go on?")

    async def more() -> None:
        await world.api.current().checkpoint({"plan": []})
        await world.api.current().append("plan", "another")
        await bench.pay(1)

    await bench.run(flow)
    assert await bench.verdict() == ("fits", "")
    assert (await bench.verdict(more))[0] == "differs"


async def test_a_step_that_was_begun_by_hand_stops_the_code(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await bench.find("a")
        await world.api.ask("go on?")

    async def by_hand() -> None:
        await bench.find("a")
        handle = await world.api.current().begin_step("mine", effect=False)
        bench.done.append("the work of the step")
        await world.api.current().complete_step(handle, 1)

    await bench.run(flow)
    assert (await bench.verdict(by_hand))[0] == "differs"  # the question is not asked


async def test_other_arguments_of_the_function_differ(world: World, bench: Bench) -> None:
    async def flow(amount: int) -> None:
        await world.api.ask("go on?")

    async def changed(amount: int, currency: str) -> None: ...

    await bench.run(flow, 40)
    verdict, reason = await bench.verdict(changed)
    assert verdict == "differs"
    assert "does not take the recorded arguments" in reason
    assert "currency" in reason


async def test_a_thread_that_was_only_submitted_is_checked_for_its_arguments(world: World, bench: Bench) -> None:
    async def flow(amount: int) -> None:
        await bench.find(amount)

    async def changed() -> None: ...

    await bench.declare(flow).submit("t", 40)
    assert await bench.verdict() == ("fits", "")
    assert (await bench.verdict(changed))[0] == "differs"


async def test_versions_that_the_program_does_not_declare_are_unserved(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await world.api.ask("go on?")

    await bench.run(flow, version=2)
    assert (await bench.verdict(flow, version=2))[0] == "fits"
    assert (await bench.verdict(flow, version=4, since=2))[0] == "fits"
    verdict, reason = await bench.verdict(flow, version=3)
    assert (verdict, "version 2 of flow began it, and this program serves version 3" in reason) == ("unserved", True)
    assert (await bench.verdict(flow, version=1))[0] == "unserved"
    registry.pop(NAME)
    assert (await bench.verdict())[0] == "unserved"


async def test_a_function_that_ignores_divergence_may_leave_steps_out(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await bench.find("a")
        await world.api.ask("go on?")

    async def changed() -> None:
        await bench.find("b")

    await bench.run(flow)
    assert (await bench.verdict(changed, on_divergence="ignore"))[0] == "fits"


async def test_the_threads_of_children_are_neither_created_nor_run(world: World, bench: Bench) -> None:
    async def child(number: int) -> int:
        await bench.note(number)
        return number

    child_function = world.durable(name="child")(child)

    async def flow() -> None:
        await bench.note(await child_function.run("child-1", 1))
        await child_function.submit("child-2", 2)
        await bench.pay(40)
        await world.api.ask("go on?")

    await bench.run(flow)
    assert await bench.verdict() == ("fits", "")

    async def submits_first() -> None:
        await child_function.submit("child-3", 3)
        await flow()

    async def runs_first() -> None:
        await child_function.run("child-4", 4)
        await flow()

    for function in (submits_first, runs_first):
        assert (await bench.verdict(function))[0] == "differs"
    assert {info.thread_id for info in await world.store.threads()} == {"t", "child-1", "child-2"}


async def test_code_that_runs_an_open_thread_without_steps_is_stopped_there(world: World, bench: Bench) -> None:
    async def child() -> int:
        return 1

    async def flow() -> None:
        await bench.note(1)
        await world.api.ask("go on?")

    async def runs_it() -> None:
        await bench.note(1)
        await child_function.run("child-1")
        await world.api.ask("go on?")

    child_function = world.durable(name="child")(child)
    await bench.run(flow)
    await child_function.submit("child-1")
    verdict, reason = await bench.verdict(runs_it)
    assert (verdict, reason.partition(",")[0]) == ("differs", "the code waits and has not asked for question 'go on?'")
    assert (await world.store.thread("child-1")).status == "queued"


@pytest.mark.parametrize("method", ["save", "cancel", "delete", "prune", "recover"])
async def test_code_that_writes_to_the_store_outside_of_a_step_is_stopped_there(
    world: World, bench: Bench, method: str
) -> None:
    given: dict[str, tuple[Any, ...]] = {"save": ("other", {"a": 1}), "prune": (), "recover": ()}

    async def flow() -> None:
        await bench.note(1)
        await world.api.ask("go on?")

    async def writes() -> None:
        await bench.note(1)
        await getattr(world.store, method)(*given.get(method, ("t",)))
        await world.api.ask("go on?")

    await bench.run(flow)
    verdict, reason = await bench.verdict(writes)
    assert verdict == "differs"
    assert reason.startswith("the code comes to a write to the store, which is new")


async def test_what_code_spends_outside_of_a_step_is_not_charged(world: World, bench: Bench) -> None:
    async def flow() -> None:
        await bench.note(1)
        await world.api.ask("go on?")

    async def spends() -> None:
        await bench.note(1)
        spent = world.api.Rate("model", 5, per=60).spend(3)
        if spent is not None:
            await spent
        await world.api.ask("go on?")

    await bench.run(flow)
    assert await bench.verdict(spends) == ("fits", "")
    assert "spend" not in {call for faults in world.faults for call in faults.calls}


async def test_ended_threads_and_threads_without_a_function_are_left_out(world: World, bench: Bench) -> None:
    async def flow() -> None: ...

    await bench.run(flow, thread_id="ended")
    async with world.store.run("plain") as run:
        await run.step("one", len, "a")
    assert await world.store.check() == []


async def test_progress_is_told_for_every_thread(world: World, bench: Bench) -> None:
    async def flow() -> None: ...

    for number in range(3):
        await bench.declare(flow).submit(f"t-{number}")
    said: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        said.append((done, total))

    await world.store.check(progress=progress)
    assert said == [(1, 3), (2, 3), (3, 3)]


def test_a_replay_that_hangs_ends_at_the_timeout() -> None:
    async def scenario() -> None:
        async with holdfast.open("memory:") as store:

            @holdfast.durable(store=store, name=NAME)
            async def flow() -> None:
                await holdfast.ask("go on?")

            await flow.start("t")
            registry.clear()

            @holdfast.durable(store=store, name=NAME)
            async def hangs() -> None:
                await asyncio.Event().wait()

            (found,) = await store.check(timeout=0.05)
            assert (found.verdict, "within 0.05 s" in found.reason) == ("differs", True)

    asyncio.run(scenario())


def test_a_task_group_that_a_recorded_error_ends_early_is_not_judged() -> None:
    async def scenario() -> None:
        bench = Bench(AwaitableWorld.__new__(AwaitableWorld))
        async with holdfast.open("memory:") as store:
            slow = asyncio.Event()

            @holdfast.step
            async def fails() -> None:
                await slow.wait()
                raise ValueError("no")

            async def notes() -> None:
                await asyncio.sleep(0)
                await bench.note("in time")
                slow.set()
                await asyncio.Event().wait()

            @holdfast.durable(store=store, name=NAME)
            async def flow() -> None:
                with suppress(ExceptionGroup):
                    async with asyncio.TaskGroup() as group:
                        group.create_task(fails())
                        group.create_task(notes())
                await holdfast.ask("go on?")

            await flow.start("t")
            assert [each.verdict for each in await store.check()] == ["fits"]

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [{"functions": [print]}, {"timeout": -1}, {"timeout": "soon"}, {"progress": 1}])
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with sync.open("memory:") as store, pytest.raises(holdfast.ConfigurationError):
        store.check(**wrong)


def test_an_async_function_cannot_be_checked_on_a_blocking_store() -> None:
    with sync.open("memory:") as store:
        store.submit(NAME, "t")

        @holdfast.durable(name=NAME)
        async def flow() -> None: ...

        (found,) = store.check()
        assert (found.verdict, "is async" in found.reason) == ("unserved", True)
