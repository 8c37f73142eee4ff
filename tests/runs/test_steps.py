"""Steps by key: executed once, and then remembered."""

from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

import holdfast
from holdfast.records.rows import Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.handles import blocking_store
from patience import GIVE_UP_SECONDS
from runs.worlds import World


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any] = lambda *args: args) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._function = function

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return self._function(*args)


async def test_a_recorded_step_is_not_executed_again(world: World) -> None:
    double = Counted(lambda number: number * 2)
    async with world.store.run("t") as run:
        assert not run.resumed
        assert await run.step("double", double, 21) == 42
        assert await run.step("double", double, 21) == 42
    async with world.open().run("t") as run:
        assert run.resumed
        assert await run.step("double", double, 21) == 42
    assert double.calls == [(21,)]


async def test_an_explicit_key_in_a_loop_returns_the_first_result(world: World) -> None:
    numbers = iter(range(10))
    async with world.store.run("t") as run:
        assert [await run.step("draw", lambda: next(numbers)) for _ in range(3)] == [0, 0, 0]


async def test_results_keep_their_exact_types(world: World) -> None:
    value = {"tuple": (1, 2), 3: {4, 5}, "bytes": b"\x00"}
    for _ in range(2):
        async with world.store.run("t") as run:
            assert await run.step("make", lambda: value) == value


async def test_the_same_key_with_other_arguments_is_refused(world: World) -> None:
    count = Counted()
    with pytest.raises(holdfast.KeyReused, match=r"'look'.*another key"):
        async with world.store.run("t") as run:
            await run.step("look", count, "here")
            await run.step("look", count, "there")
    assert count.calls == [("here",)]


@pytest.mark.parametrize("key", ["", 7, None, "\udcff"])
async def test_what_is_no_key_is_refused(world: World, key: Any) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError, match="key"):
            await run.step(key, list)


async def test_a_step_under_way_in_another_branch_is_waited_for(world: World) -> None:
    count = Counted(lambda: "once")
    async with world.store.run("t") as run:
        branches = [run.step("shared", count) for _ in range(4)]
        assert await world.gather(*map(_coroutine, branches)) == ["once"] * 4
    assert len(count.calls) == 1


async def _coroutine(awaitable: Any) -> Any:
    return await awaitable


async def test_a_step_that_calls_itself_is_refused_rather_than_waited_for(world: World) -> None:
    async with world.store.run("t") as run:

        async def inner() -> Any:
            return await run.step("same", list)

        with pytest.raises(holdfast.StepFailed, match="calls itself"):
            await run.step("same", inner)


async def test_steps_within_steps_are_remembered_by_themselves(world: World) -> None:
    paid = Counted(lambda: "paid")

    async def outer() -> str:
        run = world.api.current()
        first = await run.step("inner", paid)
        if not fine:
            raise ValueError("not yet")
        return f"{first} and done"

    fine = False
    with pytest.raises(holdfast.StepFailed):
        async with world.store.run("t") as run:
            await run.step("outer", outer)
    fine = True
    async with world.store.run("t") as run:
        assert await run.step("outer", outer) == "paid and done"
    assert len(paid.calls) == 1


async def test_a_result_that_cannot_be_stored_is_named_and_not_recorded(world: World) -> None:
    makers = iter([object, lambda: "plain"])
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.UnstorableValue, match="result of step 'make'"):
            await run.step("make", next(makers))
        assert await run.step("make", next(makers)) == "plain"


async def test_arguments_that_cannot_be_compared_are_refused_before_the_call(world: World) -> None:
    count = Counted()
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.UnstorableValue, match=r"step 'look'.*partial or a lambda"):
            await run.step("look", count, object())
    assert count.calls == []


async def test_what_a_run_did_is_listed_in_order(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("one", lambda: 1)
        await run.record(holdfast.Step(action="two", tool_output=2))
        with pytest.raises(holdfast.StepFailed):
            await run.step("three", _fail)
        steps = run.steps
    assert [(step.index, step.action) for step in steps] == [(0, "one"), (1, "two"), (2, "three")]
    assert (steps[0].tool_output, steps[1].tool_output, steps[2].error) == (1, 2, "ValueError: no")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.steps == steps


def _fail() -> None:
    raise ValueError("no")


async def test_begin_and_complete_are_what_a_step_is_made_of(world: World) -> None:
    async with world.store.run("t") as run:
        handle = await run.begin_step("pay", 40)
        assert not handle.done
        assert handle.idempotency_key
        await run.complete_step(handle, "receipt")
    async with world.open().run("t") as run:
        again = await run.begin_step("pay", 40)
        assert (again.done, again.value, again.idempotency_key) == (True, "receipt", handle.idempotency_key)
        await run.complete_step(again, "ignored")
        with pytest.raises(holdfast.KeyReused):
            await run.begin_step("pay", 41)


async def test_a_step_begun_by_hand_and_never_completed_is_in_doubt(world: World) -> None:
    async with world.doomed("t") as run:
        await run.begin_step("pay", 40)
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepInDoubt, match="complete_step"):
            await run.begin_step("pay", 40)
        await run.complete_step(run.in_doubt("pay"), "it had arrived")
        assert (await run.begin_step("pay", 40)).value == "it had arrived"
        with pytest.raises(holdfast.ConfigurationError, match="not in doubt"):
            run.in_doubt("pay")


async def test_a_step_begun_by_hand_without_an_effect_is_never_in_doubt(world: World) -> None:
    async with world.doomed("t") as run:
        await run.begin_step("look", effect=False)
    async with world.store.run("t") as run:
        assert not (await run.begin_step("look", effect=False)).done


async def test_a_failed_step_begun_by_hand_raises_its_failure(world: World) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed):
            await run.step("look", _fail)
        with pytest.raises(holdfast.StepFailed, match="ValueError: no"):
            await run.begin_step("look")


async def test_outside_of_a_run_there_is_none_to_act_on(world: World) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="no run here"):
        world.api.current()
    async with world.store.run("t"):
        with pytest.raises(holdfast.ConfigurationError, match="within a step"):
            world.api.idempotency_key()


async def test_a_step_takes_a_function_and_not_what_it_returned(world: World) -> None:
    async with world.store.run("t") as run:
        not_a_function: Any = len("kelp")
        with pytest.raises(holdfast.ConfigurationError, match="'count' takes a function to call, not int"):
            await run.step("count", not_a_function)
        assert not run.steps


class Gated(MemoryBackend):
    """Rows wait at the gate while there is one."""

    gate: Event | None = None

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        if self.gate is not None and swaps[0].rows:
            self.gate.wait(GIVE_UP_SECONDS)
        return super().swap(swaps, wait=wait)


def test_a_result_that_is_not_stored_yet_is_not_returned_to_another_branch() -> None:
    backend = Gated()
    returned: dict[str, int] = {}
    with blocking_store(backend).run("t") as run:

        def branch(name: str, value: int) -> Thread:
            def work() -> None:
                returned[name] = run.step("key", lambda: value)

            thread = Thread(target=copy_context().run, args=(work,), name=name)
            thread.start()
            return thread

        backend.gate = Event()
        first = branch("first", 1)
        while not run._run._ledger.journal.memos:
            sleep(0.001)
        second = branch("second", 2)
        second.join(0.2)
        assert second.is_alive(), "it waits for the record of the first"
        backend.gate.set()
        first.join()
        second.join()
    assert returned == {"first": 1, "second": 1}
