"""What the document on checkpointing and resumability states, sentence by sentence, and its samples."""

import json
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Deleted, IncompatibleCheckpoint, LoopState, Retention, Snapshot, sync
from holdfast.sync import Loop
from holdfast.sync import LoopState as State
from loop.loops import OVER, Outside, failing, new_loop, newest, resumed, transitions
from runs.worlds import World

step_once = Loop.step_once
CHECKPOINT_VERSION = 1

# The samples, as the document prints them


def drive_with_checkpoint(loop: Any, store: Any) -> None:
    while loop.state not in (State.COMPLETE, State.FAILED):
        step_once(loop)  # one transition's worth of work
        store.save(loop.snapshot())  # checkpoint after every transition
    store.save(loop.snapshot())  # final checkpoint


drive = drive_with_checkpoint


def resume(store: Any) -> Any:
    snapshot = store.load()
    if snapshot is None:
        return None
    if snapshot["version"] != CHECKPOINT_VERSION:
        raise IncompatibleCheckpoint(snapshot["version"])
    loop = Loop.from_dict(snapshot, **store.construction)
    drive(loop, store)
    return loop


def checkpoint(loop: Any, store: Any) -> None:
    snap = Snapshot(
        version=1,
        request=loop.request,
        state=loop.state.name,
        plan=loop.plan,
        cursor=loop.cursor,
        results=loop.results,
    )
    store.save_atomic(snap)


class Checkpoints(sync.SnapshotStore):
    """The samples' store, with what their loops are constructed with."""

    def __init__(self, store: sync.Store, **construction: Any) -> None:
        super().__init__(store, "t")
        self.construction = {"plan": lambda _: ["a", "b"], "store": store, "thread_id": "t", **construction}


def test_the_sample_drive_with_checkpoint_saves_after_every_transition(memory_store: sync.Store) -> None:
    store = Checkpoints(memory_store, execute=lambda _, step: step.upper())
    loop = Loop("essay", **store.construction)
    drive_with_checkpoint(loop, store)
    assert (loop.state, loop.results) == (State.COMPLETE, ["A", "B"])
    saved = [info for info in memory_store.history("t") if info.cause == "manual"]
    assert [info.metadata["state"] for info in reversed(saved)] == [
        *("EXECUTING", "OBSERVING", "REFLECTING", "EXECUTING", "OBSERVING", "REFLECTING", "COMPLETE", "COMPLETE")
    ]


@pytest.mark.parametrize("died_after", range(8))
def test_the_sample_resume_continues_from_whichever_checkpoint_there_is(
    died_after: int, memory_store: sync.Store
) -> None:
    executed: list[str] = []

    def execute(_: Any, step: str) -> str:
        executed.append(step)
        return step.upper()

    store = Checkpoints(memory_store, execute=execute)
    assert resume(store) is None
    loop = Loop("essay", **store.construction)
    for _ in range(min(died_after, 7)):
        step_once(loop)
        store.save(loop.snapshot())
    again = resume(store)
    assert (again is None) == (died_after == 0)
    if again is not None:
        assert (again.state, again.results, again.request) == (State.COMPLETE, ["A", "B"], "essay")
        unobserved = died_after in {2, 5}  # a result that was not observed is not committed
        assert executed.count("a") + executed.count("b") == 2 + unobserved


@pytest.mark.parametrize("died_after", range(1, 8))
def test_the_sample_checkpoint_is_enough_to_resume_any_loop(died_after: int, memory_store: sync.Store) -> None:
    store = Checkpoints(memory_store, execute=lambda _, step: step.upper())
    loop = Loop("essay", **store.construction)
    for _ in range(died_after):
        step_once(loop)
    checkpoint(loop, store)
    again = resume(store)
    assert (again.state, again.results) == (State.COMPLETE, ["A", "B"])


def test_the_sample_resume_errors_out_on_an_incompatible_version(memory_store: sync.Store) -> None:
    store = Checkpoints(memory_store, execute=lambda _, step: step)
    store.save(Snapshot(2, "essay", "EXECUTING", ["a"], 0, []))
    with pytest.raises(IncompatibleCheckpoint, match="2"):
        resume(store)


# What to checkpoint


async def test_a_checkpoint_has_state_plan_cursor_results_request_context_and_a_growing_number(world: World) -> None:
    loop = new_loop(world, context={"user": "ana"})
    await loop.drive()
    infos = (await world.store.history("t")).items
    states = [(await world.store.load(info.id)).state for info in reversed(infos)]
    middle = states[2]
    assert (middle["state"], middle["plan"], middle["cursor"]) == ("EXECUTING", ["a", "b", "c"], 1)
    assert (middle["results"], middle["request"], middle["context"]) == (["a"], "essay", {"user": "ana"})
    numbers = [state["transitions"] for state in states]
    assert numbers == sorted(set(numbers))


async def test_a_worker_that_died_in_the_middle_starts_again_at_the_beginning_of_its_hand_off(world: World) -> None:
    outside = Outside()

    async def execute(_: Any, step: str) -> str:
        outside.calls.append(f"{step} begins")
        outside.calls.append(f"{step} ends")
        return step

    with pytest.raises(ConnectionError):
        await new_loop(world, plan=["a"], execute=failing(1, execute)).drive()
    loop = await resumed(world, execute=execute)
    assert loop.results == ["a"]
    assert outside.calls == ["a begins", "a ends"] * 2


async def test_tool_call_traces_are_not_checkpointed(world: World) -> None:
    async def execute(loop: Any, step: str) -> str:
        return str(await loop.call("look_up", step))

    def look_up(what: str) -> str:
        return f"found {what}"

    await new_loop(world, plan=["a"], execute=execute, tools=[look_up]).drive()
    rows = (await world.store.history("t", journal=True)).items
    assert not [row for row in rows if "step" in row.metadata]
    assert (await newest(world)).steps == []


# When to checkpoint


async def test_checkpoints_are_written_after_planning_observing_and_reflecting_and_never_in_executing(
    world: World,
) -> None:
    await new_loop(world, plan=["a", "b"]).drive()
    assert await transitions(world) == [
        ("PLANNING", "EXECUTING"),
        ("OBSERVING", "REFLECTING"),
        ("REFLECTING", "EXECUTING"),
        ("OBSERVING", "REFLECTING"),
        ("REFLECTING", "COMPLETE"),
    ]


@pytest.mark.parametrize(
    ("every", "expected"),
    [("transition", 5), (1, 5), (2, 3), (3, 2), (100, 1), (timedelta(hours=1), 1), (0.5, 1), (timedelta(0), 5)],
)
async def test_how_much_work_is_lost_in_a_crash_is_for_you_to_say(world: World, every: Any, expected: int) -> None:
    await new_loop(world, plan=["a", "b"], every=every).drive()
    found = await transitions(world)
    assert len(found) == expected
    assert found[-1] == ("REFLECTING", "COMPLETE")
    causes = {info.cause for info in (await world.store.history("t")).items}
    assert causes == {"event" if every == "transition" else "interval"}


async def test_with_a_duration_a_checkpoint_is_written_once_that_time_has_passed(world: World) -> None:
    async def execute(_: Any, step: str) -> str:
        world.clock.advance(40)
        return step

    await new_loop(world, plan=["a", "b", "c", "d"], execute=execute, every=timedelta(minutes=1)).drive()
    assert await transitions(world) == [
        ("OBSERVING", "REFLECTING"),  # after 80 s
        ("OBSERVING", "REFLECTING"),  # after 160 s
        ("REFLECTING", "COMPLETE"),
    ]


# Resuming


async def test_a_resumed_loop_is_driven_from_the_loaded_state(world: World) -> None:
    calls: list[str] = []

    async def execute(_: Any, step: str) -> str:
        calls.append(step)
        if step == "c" and calls.count("c") == 1:
            raise ConnectionError("the network is down")
        return step.upper()

    with pytest.raises(ConnectionError):
        await new_loop(world, execute=execute).drive()
    assert (await world.store.thread("t")).status == "failed"
    loop = await resumed(world, execute=execute)
    assert (loop.state, loop.results, calls) == (LoopState.COMPLETE, ["A", "B", "C"], ["a", "b", "c", "c"])
    assert (await world.store.thread("t")).status == "complete"


async def test_without_a_checkpoint_there_is_nothing_to_resume(world: World) -> None:
    assert await resumed(world, thread_id="never") is None


async def test_a_loop_that_died_before_its_first_checkpoint_is_resumed_with_its_request_and_context(
    world: World,
) -> None:
    with pytest.raises(ConnectionError):
        await new_loop(world, context={"user": "ana"}, plan=failing(1, lambda _: ["a"])).drive()
    loop = await resumed(world, plan=["a"], execute=lambda loop, _: [loop.request, loop.context["user"]])
    assert loop.results == [["essay", "ana"]]


# Idempotency


async def test_the_same_key_in_two_runs_of_a_worker_gives_one_effect(world: World) -> None:
    outside = Outside()
    tools = [holdfast.tool(outside.send, name="send", effect=True)]

    async def execute(loop: Any, step: str) -> Any:
        return await loop.call("send", step)

    with pytest.raises(ConnectionError):
        await new_loop(world, execute=failing(1, execute), tools=tools).drive()
    await resumed(world, execute=execute, tools=tools)
    assert sorted(outside.sent.values()) == ["a", "b", "c"]
    assert outside.calls == ["a", "b", "c"]  # its result was recorded: the second run of the worker replays it


async def test_a_crash_before_a_deferred_action_means_deciding_again_and_not_acting_again(world: World) -> None:
    outside = Outside()
    tools = [holdfast.tool(outside.send, name="send", defer=True)]

    async def execute(loop: Any, step: str) -> str:
        await loop.call("send", step)
        return step

    with pytest.raises(ConnectionError):
        await new_loop(world, execute=execute, tools=tools, reflect=failing(1, lambda _: None)).drive()
    assert outside.calls == []
    await resumed(world, execute=execute, tools=tools)
    assert outside.calls == ["a", "b", "c"]


# Cleanup


async def test_a_loop_that_terminates_drops_its_checkpoint_if_retention_says_so(world: World) -> None:
    retention = Retention(delete_on=("complete", "failed"), ttl=timedelta(hours=24))
    loop = new_loop(world, retention=retention)
    assert await loop.drive() == ["a", "b", "c"]
    assert await world.store.latest("t") is None
    given_up = new_loop(world, thread_id="f", retention=retention, reflect=lambda _: LoopState.FAILED)
    await given_up.drive()
    assert given_up.state is LoopState.FAILED
    assert await world.store.latest("f") is None


async def test_a_loop_that_an_error_stopped_is_not_over_and_keeps_its_checkpoint(world: World) -> None:
    retention = Retention(delete_on=("complete", "failed"))
    with pytest.raises(ConnectionError):
        await new_loop(world, retention=retention, execute=failing(1, lambda _, step: step)).drive()
    assert (await resumed(world, retention=retention)).results == ["a", "b", "c"]


async def test_a_checkpoint_that_was_not_touched_for_the_ttl_is_deleted(world: World) -> None:
    retention = Retention(ttl=timedelta(hours=24))
    for thread_id in ("old", "young"):
        with pytest.raises(ConnectionError):
            await new_loop(world, thread_id=thread_id, execute=failing(1, lambda _, step: step)).drive()
        world.clock.advance(20 * 3600)
    assert await resumed(world, thread_id="old", retention=retention) is None
    assert await world.store.latest("old") is None
    assert (await resumed(world, thread_id="young", retention=retention)).state in OVER
    assert await new_loop(world, thread_id="old", plan=["new"], retention=retention).drive() == ["new"]


async def test_a_loop_that_was_deleted_as_it_ended_is_not_executed_again_by_accident(world: World) -> None:
    options: dict[str, Any] = {"retention": Retention(delete_on=("complete",))}
    await new_loop(world, **options).drive()
    with pytest.raises(Deleted, match=r"was deleted; store\.revive\('t'\) makes its id usable again"):
        await new_loop(world, **options).drive()


def test_a_snapshot_is_plain_data_that_json_takes() -> None:
    snapshot = Snapshot(1, "essay", "EXECUTING", ["a"], 0, [], outbox=[holdfast.Deferred("0.0", "send", [1])])
    fields = json.loads(json.dumps(snapshot.to_dict()))
    assert Snapshot.from_dict(fields) == snapshot
