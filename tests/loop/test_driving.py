"""Driving a loop: handlers, re-planning, parallel steps, questions, and one transition at a time."""

import asyncio
from threading import Barrier
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, Finished, LoopState, Suspended, sync
from loop.loops import OVER, failing, loop_from, new_loop, resumed, transitions
from patience import GIVE_UP_SECONDS
from runs.worlds import BlockingWorld, World


async def test_plan_and_execute_are_enough(world: World) -> None:
    loop = new_loop(world, plan=lambda _: ["a", "b"], execute=lambda loop, step: [loop.request, step])
    assert await loop.drive() == [["essay", "a"], ["essay", "b"]]
    assert (loop.state, loop.cursor, loop.plan) == (LoopState.COMPLETE, 2, ["a", "b"])
    assert (await world.store.thread("t")).labels == {"workflow": "loop"}


@pytest.mark.parametrize("left_out", ["observe", "reflect", "both", "none"])
async def test_handlers_are_replaced_one_by_one(world: World, left_out: str) -> None:
    handlers: dict[str, Any] = {"observe": lambda _, step, result: f"{step}={result}", "reflect": lambda _: None}
    kept = {name: value for name, value in handlers.items() if left_out not in {name, "both"}}
    loop = new_loop(world, plan=["a"], execute=lambda _, step: step.upper(), **kept)
    assert await loop.drive() == (["a=A"] if "observe" in kept else ["A"])


async def test_reflecting_may_plan_again_with_the_results_at_hand(world: World) -> None:
    plans = [["a", "b"], ["c"], []]

    def reflect(loop: Any) -> LoopState | None:
        return LoopState.PLANNING if loop.cursor == len(loop.plan) and plans else None

    loop = new_loop(world, plan=lambda _: plans.pop(0), reflect=reflect)
    assert await loop.drive() == ["a", "b", "c"]
    assert (loop.plan, loop.cursor, loop.state) == ([], 0, LoopState.COMPLETE)
    assert ("PLANNING", "REFLECTING") in await transitions(world)


async def test_reflecting_may_end_the_loop_before_its_plan_does(world: World) -> None:
    loop = new_loop(world, reflect=lambda _: LoopState.COMPLETE)
    assert (await loop.drive(), loop.state) == (["a"], LoopState.COMPLETE)


async def test_handlers_may_change_the_context_and_a_resumed_loop_has_it(world: World) -> None:
    def execute(loop: Any, step: str) -> str:
        loop.context.setdefault("seen", []).append(step)
        return step

    with pytest.raises(ConnectionError):
        await new_loop(world, context={"user": "ana"}, execute=execute, reflect=failing(1, lambda _: None)).drive()
    assert (await resumed(world, execute=execute)).context == {"user": "ana", "seen": ["a", "b", "c"]}


async def test_a_handler_that_fails_leaves_the_loop_with_the_context_it_had(world: World) -> None:
    async def count(loop: Any, step: str) -> str:
        loop.context["seen"].append(step)
        loop.context["count"] = loop.context.get("count", 0) + 1
        return step

    given = {"seen": [], "key": holdfast.Secret("k")}
    loop = new_loop(world, plan=["a"], context=given, execute=failing(2, count), on_secret="redact")
    with pytest.raises(ConnectionError):
        await loop.drive()
    assert (loop.state, loop.context["seen"], "count" in loop.context) == (LoopState.EXECUTING, [], False)
    with pytest.raises(ConnectionError):
        await loop.step_once()
    assert loop.context["seen"] == []
    await loop.drive()
    assert (loop.context["seen"], loop.context["count"]) == (["a"], 1)
    assert loop.context["key"].reveal() == "k"


async def test_the_results_of_a_parallel_step_are_in_its_order_and_observed_together(world: World) -> None:
    observed: list[Any] = []

    def observe(_: Any, step: Any, result: Any) -> Any:
        observed.append(step)
        return result

    loop = new_loop(world, plan=[["b", "a"], "c"], execute=lambda _, step: step.upper(), observe=observe)
    assert await loop.drive() == [["B", "A"], "C"]
    assert observed == [["b", "a"], "c"]


def test_the_workers_of_a_parallel_step_run_at_the_same_time() -> None:
    async def scenario() -> list[Any]:
        barrier = asyncio.Barrier(3)

        async def execute(_: Any, step: str) -> str:
            await barrier.wait()
            return step

        async with holdfast.MemoryStore() as store:
            loop = holdfast.Loop("r", plan=lambda _: [["a", "b", "c"]], execute=execute, store=store)
            return await loop.drive()

    assert asyncio.run(scenario()) == [["a", "b", "c"]]


def test_no_worker_of_a_parallel_step_outlives_the_error_of_another() -> None:
    ended: list[str] = []

    async def execute(_: Any, step: str) -> str:
        if step == "bad":
            raise ValueError("bad step")
        await asyncio.sleep(0.01)
        ended.append(step)
        return step

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            loop = holdfast.Loop("r", plan=lambda _: [["bad", "slow"]], execute=execute, store=store)
            with pytest.raises(ValueError, match="bad step"):
                await loop.drive()
            assert ended == ["slow"]

    asyncio.run(scenario())


def test_a_loop_that_is_cancelled_in_a_parallel_step_leaves_the_thread_to_be_resumed() -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def execute(_: Any, step: str) -> str:
            begun.set()
            await asyncio.sleep(60)
            return step

        async with holdfast.MemoryStore() as store:
            options: dict[str, Any] = {"plan": lambda _: [["a", "b"]], "store": store, "thread_id": "t"}
            task = asyncio.create_task(holdfast.Loop("r", execute=execute, **options).drive())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            thread = await store.thread("t")
            assert (thread.status, thread.lease) == ("working", None)
            assert await holdfast.Loop("r", execute=lambda _, step: step, **options).drive() == [["a", "b"]]

    asyncio.run(scenario())


async def test_a_handler_may_ask_a_person_and_the_loop_waits(world: World) -> None:
    async def reflect(loop: Any) -> LoopState | None:
        if loop.cursor < len(loop.plan):
            return None
        answer = await world.api.ask("publish", {"results": loop.results}, choices=("yes", "no"))
        return LoopState.COMPLETE if answer.choice == "yes" else LoopState.FAILED

    with pytest.raises(Suspended) as waiting:
        await new_loop(world, reflect=reflect).drive()
    assert (await world.store.thread("t")).status == "input_required"
    await world.store.answer(waiting.value.requests[0].id, "yes", by="ana")
    loop = await resumed(world, reflect=reflect, execute=lambda *_: pytest.fail("it is done"))
    assert (loop.state, loop.results) == (LoopState.COMPLETE, ["a", "b", "c"])


async def test_each_step_makes_one_transition(world: World) -> None:
    loop = new_loop(world, plan=["a"])
    seen = [loop.state]
    while loop.state not in OVER:
        await loop.step_once()
        seen.append(loop.state)
    assert [state.value for state in seen] == ["PLANNING", "EXECUTING", "OBSERVING", "REFLECTING", "COMPLETE"]
    assert await transitions(world) == []
    await loop.checkpoint()
    assert (await world.store.thread("t")).status == "complete"
    await loop.checkpoint()
    with pytest.raises(Finished, match="is COMPLETE"):
        await loop.step_once()


async def test_a_checkpoint_by_hand_is_where_the_next_process_starts(world: World) -> None:
    loop = new_loop(world)
    for _ in range(5):
        await loop.step_once()
    await loop.checkpoint()
    await loop.step_once()  # lost
    again = await resumed(world, drive=False)
    assert (again.state, again.cursor, again.results) == (LoopState.EXECUTING, 1, ["a"])
    assert await again.drive() == ["a", "b", "c"]


async def test_a_snapshot_continues_on_another_thread(world: World) -> None:
    loop = new_loop(world)
    for _ in range(4):
        await loop.step_once()
    copy = loop_from(world, loop.snapshot().to_dict(), thread_id="copy")
    assert await copy.drive() == ["a", "b", "c"]
    assert (await world.store.thread("copy")).status == "complete"


async def test_a_loop_cannot_be_driven_from_within_itself(world: World) -> None:
    async def execute(loop: Any, _: str) -> Any:
        return await loop.checkpoint()

    with pytest.raises(ConfigurationError, match="is already being driven; it writes its own checkpoints"):
        await new_loop(world, execute=execute).drive()


async def test_a_tool_is_called_within_a_handler_only(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"loop\.call only works inside a handler"):
        await new_loop(world, tools=[len]).call("len", "x")


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ({"plan": lambda _: "abc"}, "`plan` must return a list of steps, got str"),
        ({"reflect": lambda _: "COMPLETE"}, "`reflect` must return a LoopState or None, got 'COMPLETE'"),
        ({"reflect": lambda _: LoopState.OBSERVING}, "cannot go from REFLECTING to OBSERVING"),
        ({"plan": ["a"], "reflect": lambda _: LoopState.EXECUTING}, "all 1 steps of its plan are done"),
    ],
)
async def test_what_a_handler_may_not_return_is_refused(world: World, handlers: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await new_loop(world, **handlers).drive()


async def test_an_async_handler_is_refused_where_nothing_can_await_it(world: World) -> None:
    if isinstance(world, BlockingWorld):

        async def execute(_: Any, step: str) -> str:
            return step

        loop = sync.Loop("r", plan=lambda _: ["a"], execute=execute, store=world.store._inner, thread_id="t")  # type: ignore[attr-defined]
        with pytest.raises(ConfigurationError, match=r"is async; holdfast\.sync takes plain functions"):
            loop.drive()


def test_in_the_blocking_world_the_items_of_a_parallel_step_run_at_the_same_time() -> None:
    both = Barrier(2, timeout=GIVE_UP_SECONDS)

    def execute(_loop: Any, step: str) -> str:
        both.wait()
        return step

    with sync.MemoryStore() as store:
        loop = sync.Loop("x", plan=lambda _loop: [["a", "b"]], execute=execute, store=store, thread_id="t")
        assert loop.drive() == [["a", "b"]]
