"""Every sentence of the document that states a behaviour, by name; its samples, with other imports and stores."""

from typing import Any

import pytest

import holdfast
from agent.agents import agent, stored
from holdfast import FailurePolicy, RecoveryAction, Step
from runs.worlds import World

ROLLBACK = FailurePolicy(default=RecoveryAction.ROLLBACK)


class Data:
    """Where the samples fetch from."""

    def __init__(self) -> None:
        self.fetched = 0
        self.processed = 0

    def fetch_data(self, task: str) -> list[str]:
        self.fetched += 1
        return [task, "data"]

    def process(self, data: list[str]) -> str:
        self.processed += 1
        if self.processed == 1:
            raise ConnectionError("the service is down")
        return " ".join(data)


async def test_each_checkpoint_is_a_snapshot_of_the_trajectory_and_of_the_state_saved_by_update_state(
    world: World,
) -> None:
    async def my_agent(task: str, *, record_step: Any, update_state: Any) -> str:
        update_state({"n": 1})
        await stored(record_step(Step(action="one")))
        update_state({"n": 2})
        await stored(record_step(Step(action="two")))
        return task

    await agent(world, my_agent).run("t", thread_id="t")
    newest, older = list(await world.store.history("t"))[:2]
    first, second = await world.store.load(older.id), await world.store.load(newest.id)
    assert (first.state, [step.action for step in first.steps]) == ({"n": 1}, ["one"])
    assert (second.state, [step.action for step in second.steps]) == ({"n": 2}, ["one", "two"])
    assert first.id != second.id
    assert first.created_at.tzinfo is not None


async def test_auto_checkpoint_saves_a_checkpoint_after_every_record_step_call(world: World) -> None:
    async def my_agent(task: str, *, record_step: Any) -> str:
        for number in range(4):
            record_step(Step(action=str(number)))
        return task

    await agent(world, my_agent, auto_checkpoint=True).run("t", thread_id="t")
    infos = list(await world.store.history("t"))
    assert [info.metadata["step"] for info in infos] == ["3", "2", "1", "0"]


async def test_a_checkpoint_is_always_available_when_rollback_runs(world: World) -> None:
    attempts: list[Any] = []

    async def my_agent(task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> str:
        attempts.append(recovery)
        if recovery is None:
            update_state({"at": "start"})
            record_step(Step(action="looked"))
            raise ConnectionError("down")
        return task

    await agent(world, my_agent, policy=ROLLBACK).run("t", thread_id="t")
    assert [step.action for step in attempts[1].steps] == ["looked"]
    assert attempts[1].state == {"at": "start"}


async def test_the_sample_saves_agent_state_into_the_next_checkpoint(world: World) -> None:
    data_of, seen = Data(), []
    data_of.processed = 1

    async def my_agent(task: str, *, record_step: Any, update_state: Any, **kwargs: Any) -> str:
        seen.append(kwargs)
        data = data_of.fetch_data(task)
        record_step(Step(index=0, action="fetch", tool_output=data))
        update_state({"data": data, "step": 0})  # saved into the next checkpoint
        return data_of.process(data)

    assert await agent(world, my_agent).run("kelp", thread_id="t") == "kelp data"
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"data": ["kelp", "data"], "step": 0}
    assert latest.steps == [Step(index=0, action="fetch", tool_output=["kelp", "data"])]
    assert latest.status is holdfast.Status.COMPLETE
    assert "restored_state" not in seen[0]


async def test_on_rollback_the_restored_state_is_handed_to_the_next_call(world: World) -> None:
    data_of = Data()

    async def my_agent(task: str, *, record_step: Any, update_state: Any, **kwargs: Any) -> str:
        state = kwargs.get("restored_state", {})
        if state:
            # skip re-fetching: it was restored
            data = state["data"]
        else:
            data = data_of.fetch_data(task)
            record_step(Step(index=0, action="fetch", tool_output=data))
            update_state({"data": data, "step": 0})
        return data_of.process(data)

    assert await agent(world, my_agent, policy=ROLLBACK).run("kelp", thread_id="t") == "kelp data"
    assert (data_of.fetched, data_of.processed) == (1, 2)


async def test_without_auto_checkpoint_checkpoints_are_taken_by_checkpoint_at_failures_and_at_the_end(
    world: World,
) -> None:
    during: list[int] = []

    async def my_agent(task: str, *, record_step: Any, checkpoint: Any, recovery: Any = None) -> str:
        if recovery is not None:
            return task
        held = record_step(Step(action="one"))
        assert world.name == "blocking" or not held.done
        during.append(len(list(await world.store.history("t"))))
        await stored(held)
        during.append(len(list(await world.store.history("t"))))
        record_step(Step(action="two"))
        await stored(checkpoint())
        during.append(len(list(await world.store.history("t"))))
        record_step(Step(action="three"))
        raise ConnectionError("down")

    made = agent(world, my_agent, auto_checkpoint=False, policy=RecoveryAction.RETRY)
    await made.run("t", thread_id="t")
    assert during == [0, 1, 2]
    latest = await world.store.latest("t")
    assert latest is not None
    assert [step.action for step in latest.steps] == ["one", "two", "three"]
    assert latest.seq > 3


async def test_the_queue_is_drained_after_a_successful_return_before_the_result_is_returned(world: World) -> None:
    async def my_agent(task: str, *, record_step: Any, update_state: Any) -> str:
        for number in range(30):
            record_step(Step(action=str(number)))
        update_state({"last": True})
        return task

    await agent(world, my_agent).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert len(latest.steps) == 30
    assert latest.state == {"last": True}


async def test_the_queue_is_drained_before_a_failure_is_classified(world: World) -> None:
    found: list[Any] = []

    async def my_agent(_task: str, *, record_step: Any, update_state: Any) -> str:
        record_step(Step(action="looked"))
        update_state({"after": "the last step"})
        raise ConnectionError("down")

    async def classify(context: holdfast.FailureContext) -> holdfast.FailureType:
        latest = await world.store.latest(context.thread_id)
        assert latest is not None
        found.append((latest.state, len(latest.steps)))
        return holdfast.FailureType.UNKNOWN

    with pytest.raises(holdfast.Escalated):
        await agent(world, my_agent, classifier=classify).run("t", thread_id="t")
    assert found == [({"after": "the last step"}, 1)]


@pytest.mark.parametrize(
    ("action", "error"),
    [(RecoveryAction.ESCALATE, holdfast.Escalated), (RecoveryAction.ABORT(reason="enough"), holdfast.Aborted)],
)
async def test_the_queue_is_drained_before_an_escalation_or_abort_is_raised(
    world: World, action: RecoveryAction, error: type[Exception]
) -> None:
    async def my_agent(_task: str, *, record_step: Any) -> str:
        record_step(Step(action="looked"))
        raise ConnectionError("down")

    with pytest.raises(error, match="ConnectionError: down") as raised:
        await agent(world, my_agent, policy=action).run("t", thread_id="t")
    assert isinstance(raised.value, holdfast.Escalated | holdfast.Aborted)
    context = raised.value.context
    assert context is not None
    assert (context.type, context.attempt) == (holdfast.FailureType.EXTERNAL_FAULT, 1)
    latest = await world.store.latest("t")
    assert latest is not None
    assert [step.action for step in latest.steps] == ["looked"]
    assert latest.status is holdfast.Status.FAILED


async def test_record_step_and_update_state_are_plain_calls(world: World) -> None:
    async def my_agent(task: str, *, record_step: Any, update_state: Any) -> str:
        receipt = record_step(Step(action="looked"))
        assert update_state({"a": 1}) is None
        await stored(receipt)
        assert receipt.done
        return task

    assert await agent(world, my_agent).run("t") == "t"


async def test_values_come_back_exactly_and_not_as_their_repr(world: World) -> None:
    exact = {"set": {1, 2}, "tuple": (1, "b"), 3: b"bytes"}

    async def my_agent(_task: str, *, record_step: Any, update_state: Any) -> None:
        record_step(Step(action="looked", tool_output=exact))
        update_state({"kept": exact})

    await agent(world, my_agent).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state["kept"] == latest.steps[0].tool_output == exact
    assert type(latest.state["kept"]["tuple"]) is tuple


async def test_what_cannot_be_stored_is_refused_where_it_is_given(world: World) -> None:
    async def my_agent(task: str, *, record_step: Any, update_state: Any) -> str:
        with pytest.raises(holdfast.UnstorableValue, match="client"):
            update_state({"client": object()})
        with pytest.raises(holdfast.UnstorableValue):
            record_step(Step(action="looked", tool_output=object()))
        with pytest.raises(holdfast.ConfigurationError, match="a dict"):
            update_state("data")
        return task

    assert await agent(world, my_agent).run("t") == "t"


async def test_one_store_serves_many_runs_at_once(world: World) -> None:
    async def my_agent(task: str, *, record_step: Any, update_state: Any) -> str:
        for _ in range(5):
            record_step(Step(action=task))
            update_state({"task": task})
        return task

    made = agent(world, my_agent)
    names = [f"task {number}" for number in range(6)]
    assert await world.gather(*[made.run(name, thread_id=name) for name in names]) == names
    for name in names:
        latest = await world.store.latest(name)
        assert latest is not None
        assert latest.state == {"task": name}
        assert {step.action for step in latest.steps} == {name}


async def test_latest_is_none_if_no_checkpoints_have_been_saved(world: World) -> None:
    assert await world.store.latest("t") is None
