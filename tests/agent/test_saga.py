"""Compensators belong to the step that was recorded or replayed just before them, in the branch that gives them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from agent.agents import agent, stored
from holdfast import FailurePolicy, RecoveryAction, Step, sync
from holdfast.runs import driver
from holdfast.runtimes.agent.memory import Memory
from holdfast.testing import crash_everywhere
from kinds import new_place
from rounds import points, rounds
from runs.worlds import World

NAMES = ("flight", "hotel", "car")


class Travel:
    """A service that honours keys. What was charged and refunded, in the order in which it first happened."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.charges: dict[str, str] = {}
        self.refunds: dict[str, str] = {}

    def charge(self, name: str, *, idempotency_key: str) -> str:
        return self.charges.setdefault(idempotency_key, name)

    def refund(self, name: str, *, idempotency_key: str) -> None:
        self.refunds.setdefault(idempotency_key, name)

    @property
    def refunded(self) -> list[str]:
        return list(self.refunds.values())

    @property
    def charged(self) -> list[str]:
        return list(self.charges.values())


travel = Travel()


async def refund(name: str, *, idempotency_key: str) -> None:
    travel.refund(name, idempotency_key=idempotency_key)


async def charge(name: str, *, idempotency_key: str) -> str:
    return travel.charge(name, idempotency_key=idempotency_key)


def back_to(infos: Any, kept: int) -> RecoveryAction:
    """A rollback to the checkpoint after that many effects."""
    last = ("plan", *NAMES)[kept]
    return RecoveryAction.ROLLBACK(checkpoint_id=next(info.id for info in infos if info.metadata.get("step") == last))


def sequential(kept: int, retries: int) -> Callable[[sync.Store], Any]:
    """Charges three times, fails as often as it is retried, is rolled back, and comes to its end."""

    def saga(store: sync.Store) -> Any:
        def policy(context: holdfast.FailureContext) -> RecoveryAction:
            if context.attempt <= retries:
                return RecoveryAction.RETRY
            return back_to(store.history(context.thread_id), kept)

        def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> Any:
            if recovery is None:
                record_step(Step(action="plan"))
            for name in NAMES:
                sync.current().step(name, travel.charge, name, effect=True)
                record_compensator("refund", name)
            if recovery is None or recovery.attempt <= retries:
                raise ConnectionError("no visa")
            return "there"

        made = sync.Agent(trip, policy=policy, store=store, compensators={"refund": travel.refund})
        return made.run("kelp", thread_id="saga")

    return saga


def parallel(kept: int, retries: int) -> Callable[[holdfast.Store], Any]:
    """The same with all charges at once."""

    async def saga(store: holdfast.Store) -> Any:
        async def policy(context: holdfast.FailureContext) -> RecoveryAction:
            if context.attempt <= retries:
                return RecoveryAction.RETRY
            if kept == len(NAMES):
                return RecoveryAction.RETRY
            return back_to(await store.history(context.thread_id), 0)

        async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> Any:
            if recovery is None:
                await record_step(Step(action="plan"))

            async def leg(name: str) -> None:
                await holdfast.current().step(name, charge, name, effect=True)
                await asyncio.sleep(0)
                record_compensator("refund", name)

            await asyncio.gather(*map(leg, NAMES))
            if recovery is None or recovery.attempt <= retries:
                raise ConnectionError("no visa")
            return "there"

        made = holdfast.Agent(trip, policy=policy, store=store, compensators={"refund": refund})
        return await made.run("kelp", thread_id="saga")

    return saga


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "kept", "retries"),
    [
        ("memory", 1, 1),
        ("memory", 2, 0),
        ("memory", 3, 0),
        *(pytest.param("memory", *rest, marks=pytest.mark.slow) for rest in [(0, 0), (0, 1), (1, 0), (2, 1), (3, 1)]),
        pytest.param("sqlite", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_a_saga_killed_at_every_effect_undoes_each_undone_step_once_newest_first(
    kind: str, kept: int, retries: int, tmp_path: Path
) -> None:
    def check() -> None:
        assert travel.refunded == list(reversed(NAMES[kept:]))
        assert sorted(travel.charged) == sorted([*NAMES, *NAMES[kept:]])

    pairs = rounds(2, 10) if kind == "memory" else 0
    report = crash_everywhere(
        sequential(kept, retries),
        before=travel.clear,
        after=check,
        pairs=pairs,
        max_points=points(25),
        place=lambda: new_place(kind, tmp_path),
    )
    assert report.result == "there"


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kept", "retries"), [(0, 1), (3, 0), *(pytest.param(*rest, marks=pytest.mark.slow) for rest in [(0, 0), (3, 1)])]
)
def test_a_saga_of_parallel_effects_undoes_each_undone_step_once(kept: int, retries: int) -> None:
    def check() -> None:
        assert sorted(travel.refunded) == sorted(NAMES[kept:])
        assert sorted(travel.charged) == sorted([*NAMES, *NAMES[kept:]])

    options: dict[str, Any] = {"pairs": rounds(2, 10), "max_points": points(25)}
    report = crash_everywhere(parallel(kept, retries), before=travel.clear, after=check, **options)
    assert report.result == "there"


@pytest.mark.faults
@pytest.mark.parametrize(
    "broken",
    [lambda self: self.step_count - 1, lambda _self: 0],
    ids=["the newest step of the thread", "the first"],
)
def test_compensators_at_the_wrong_step_are_found(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    """The tests above can fail."""

    def check() -> None:
        assert travel.refunded == list(reversed(NAMES[1:]))

    monkeypatch.setattr(driver.Driver, "last_step", broken)
    with pytest.raises(AssertionError):
        crash_everywhere(sequential(1, 1), before=travel.clear, after=check, pairs=0, limit=1)


def test_each_branch_of_a_gather_compensates_its_own_step() -> None:
    async def trip(_task: str, *, record_compensator: Any) -> None:
        run = holdfast.current()

        async def leg(name: str) -> None:
            await run.step(name, str)
            await asyncio.sleep(0.01)
            record_compensator("undo", name)

        await asyncio.gather(*map(leg, NAMES))
        order.extend(step.action for step in reversed(run.steps))
        raise ValueError

    order: list[str] = []
    assert undone_by(trip, RecoveryAction.ABORT(undo=True)) == order
    assert sorted(order) == sorted(NAMES)


def undone_by(trip: Callable[..., Any], policy: Any, **options: Any) -> list[str]:
    """What the policy undoes of an agent that aborts in the end."""
    undone: list[str] = []

    async def main() -> None:
        async with holdfast.MemoryStore() as store:
            made = holdfast.Agent(trip, store=store, policy=policy, compensators={"undo": undone.append}, **options)
            with pytest.raises(holdfast.Aborted):
                await made.run("t", thread_id="t")

    asyncio.run(main())
    return undone


def test_each_thread_compensates_its_own_step() -> None:
    undone: list[str] = []

    def trip(_task: str, *, record_compensator: Any) -> None:
        run = sync.current()

        def leg(name: str) -> None:
            run.step(name, str)
            ready.append(name)
            while len(ready) < len(NAMES):
                pass
            record_compensator("undo", name)

        ready: list[str] = []
        with ThreadPoolExecutor(3) as pool:
            for each in [pool.submit(copy_context().run, leg, name) for name in NAMES]:
                each.result()
        steps = [step.action for step in run.steps]
        order.extend(reversed(steps))
        raise ValueError

    order: list[str] = []
    with sync.MemoryStore() as store:
        made = sync.Agent(
            trip, store=store, policy=RecoveryAction.ABORT(undo=True), compensators={"undo": undone.append}
        )
        with pytest.raises(sync.Aborted):
            made.run("t", thread_id="t")
    assert undone == order


def test_a_step_awaited_in_a_task_of_its_own_is_the_last_one_of_the_branch_that_started_it() -> None:
    """So it is with `asyncio.wait_for`, which makes a task in Python 3.11."""

    async def trip(_task: str, *, record_compensator: Any) -> None:
        run = holdfast.current()
        await run.step("flight", str)
        record_compensator("undo", "flight")
        await asyncio.create_task(run.step("hotel", str))
        record_compensator("undo", "hotel")
        raise ValueError

    policy = FailurePolicy.sequence(RecoveryAction.RETRY, RecoveryAction.ABORT(undo=True))
    assert undone_by(trip, policy) == ["hotel", "flight"]


async def test_several_compensators_of_one_step_are_called_once_each_the_last_one_first(world: World) -> None:
    undone: list[int] = []

    async def trip(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        record_step(Step(action="pay"))
        record_compensator("refund", 1)
        record_compensator("refund", 2)
        record_compensator("refund", 1)
        raise ValueError

    made = agent(world, trip, policy=RecoveryAction.ABORT(undo=True), compensators={"refund": undone.append})
    with pytest.raises(holdfast.Aborted):
        await made.run("t", thread_id="t")
    assert undone == [2, 1]


async def test_a_compensator_without_any_step_is_refused(world: World) -> None:
    async def trip(_task: str, *, record_compensator: Any) -> None:
        record_compensator("refund")

    made = agent(world, trip, compensators={"refund": print})
    with pytest.raises(holdfast.ConfigurationError, match="this branch has none"):
        await made.run("t", thread_id="t")


async def compensated(world: World, trip: Callable[..., Any], policy: Any = None, **options: Any) -> list[Any]:
    """What undoes which step, by name, of an agent that fails in the end."""
    made = agent(world, trip, policy=policy or RecoveryAction.ESCALATE, compensators={"undo": print}, **options)
    with pytest.raises(holdfast.Escalated):
        await made.run("t", thread_id="t")
    store: Any = world.store
    record = await driver.read(store._inner._store if world.name == "blocking" else store, "t")
    steps = record._journal.lazy_steps()
    return [(each.arguments[0], steps[each.step].action) for each in Memory.of(record).compensators()]


RETRY_ONCE = FailurePolicy.sequence(RecoveryAction.RETRY, RecoveryAction.ESCALATE)
OWN = [("flight", "flight"), ("hotel", "hotel")]


async def test_a_step_begun_by_hand_and_replayed_is_the_last_one(world: World) -> None:
    """It was not: the flight's compensator was attached to the hotel too, by the second attempt."""

    async def trip(_task: str, *, record_compensator: Any) -> None:
        run = world.api.current()
        for name in ("flight", "hotel"):
            handle = await run.begin_step(name)
            if not handle.done:
                await run.complete_step(handle, name)
            record_compensator("undo", name)
        raise ValueError

    assert await compensated(world, trip, RETRY_ONCE) == OWN


async def test_a_record_with_a_key_that_is_replayed_is_the_last_step(world: World) -> None:
    async def trip(_task: str, *, record_compensator: Any) -> None:
        for name in ("flight", "hotel"):
            world.api.current().record(Step(action=name), key=name)
            record_compensator("undo", name)
        raise ValueError

    assert await compensated(world, trip, RETRY_ONCE) == OWN


async def test_a_step_that_failed_is_the_last_one_too(world: World) -> None:
    """What it did before it failed may have to be undone."""

    def fail() -> None:
        raise ConnectionError

    async def trip(_task: str, *, record_compensator: Any) -> None:
        run = world.api.current()
        await run.step("flight", str)
        record_compensator("undo", "flight")
        with pytest.raises(holdfast.StepFailed):
            await run.step("hotel", fail)
        record_compensator("undo", "hotel")
        raise ValueError

    assert await compensated(world, trip) == OWN


async def test_a_step_that_waits_for_a_checkpoint_is_not_taken_for_a_later_one(world: World) -> None:
    async def trip(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        record_step(Step(action="plan"))
        await world.api.current().step("hotel", str)
        record_compensator("undo", "hotel")
        raise ValueError

    assert await compensated(world, trip, auto_checkpoint=False) == [("hotel", "hotel")]


def test_each_branch_compensates_its_own_step_also_without_checkpoints_of_its_own() -> None:
    async def trip(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        async def leg(name: str) -> None:
            record_step(Step(action=name))
            await asyncio.sleep((len(NAMES) - NAMES.index(name)) * 0.01)
            record_compensator("undo", name)

        await asyncio.gather(*map(leg, NAMES))
        raise ValueError

    assert undone_by(trip, RecoveryAction.ABORT(undo=True), auto_checkpoint=False) == [*reversed(NAMES)]


def test_a_branch_whose_own_last_step_is_not_known_is_refused() -> None:
    """A task within the branch recorded the step, and nothing says to which branch that task belongs."""

    async def trip(_task: str, *, record_compensator: Any) -> None:
        run = holdfast.current()

        async def leg(name: str) -> None:
            await asyncio.create_task(run.step(name, str))
            await asyncio.sleep(0.01)
            with pytest.raises(holdfast.ConfigurationError, match="this branch has none"):
                record_compensator("undo", name)

        await asyncio.gather(*map(leg, NAMES))
        raise ValueError

    assert undone_by(trip, RecoveryAction.ABORT(undo=True)) == []


async def test_steps_that_wait_for_a_checkpoint_are_kept_if_another_one_is_refused(world: World) -> None:
    async def trip(_task: str, *, record_step: Any) -> list[str]:
        record_step(Step(action="kept"))
        with pytest.raises(holdfast.UnstorableValue):
            record_step(Step(action="refused"), compensator=("undo", object()))
        await stored(record_step(Step(action="next")))
        return [step.action for step in world.api.current().steps]

    made = agent(world, trip, compensators={"undo": print}, auto_checkpoint=False)
    assert await made.run("t", thread_id="t") == ["kept", "next"]


async def test_a_rollback_goes_to_a_finished_step_not_to_the_intent_of_an_effect(world: World) -> None:
    """A state that travels with the intent does not make it a checkpoint to go back to."""
    undone: list[str] = []

    async def fail() -> None:
        raise ConnectionError("no cars")

    async def trip(_task: str, *, update_state: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is not None and recovery.attempt == 2:
            return f"{len(recovery.steps)} step left"
        run = world.api.current()
        for name in ("flight", "hotel"):
            update_state({"at": name})
            await run.step(name, str, effect=True)
            record_compensator("undo", name)
        update_state({"at": "car"})
        await run.step("car", fail, effect=True)
        return "never"

    made = agent(world, trip, policy=RecoveryAction.ROLLBACK, compensators={"undo": undone.append})
    assert await made.run("t", thread_id="t") == "1 step left"
    assert undone == ["hotel"]


@pytest.mark.parametrize("bare", [False, True])
async def test_an_attempt_that_finds_its_steps_in_the_state_gives_their_compensators_again(
    world: World, bare: bool
) -> None:
    """The flight was refunded twice, under two keys: its compensator was attached to the hotel as well."""
    undone: list[str] = []

    async def trip(
        _task: str, *, record_step: Any, update_state: Any, record_compensator: Any, restored_state: Any = None
    ) -> None:
        for name in ("flight", "hotel"):
            if name not in (restored_state or {}):
                update_state({name: True})
                record_step(Step(action=name))
            undo: Any = (partial(undone.append, name),) if bare else ("undo", name)
            record_compensator(*undo)
        raise ValueError

    policy = FailurePolicy.sequence(RecoveryAction.RETRY, RecoveryAction.ABORT(undo=True))
    made = agent(world, trip, policy=policy, compensators={"undo": undone.append})
    with pytest.raises(holdfast.Aborted):
        await made.run("t", thread_id="t")
    assert undone == ["hotel", "flight"]


def test_a_plain_generator_is_one_branch_whichever_threads_it_runs_on() -> None:
    def trip(_task: str, *, record_compensator: Any) -> Iterator[str]:
        for name in NAMES:
            sync.current().step(name, str)
            yield name
            record_compensator("undo", name)
        raise ValueError

    undone: list[str] = []

    async def main() -> None:
        async with holdfast.MemoryStore() as store:
            policy = FailurePolicy.sequence(RecoveryAction.RETRY, RecoveryAction.ABORT(undo=True))
            made = holdfast.Agent(trip, store=store, policy=policy, compensators={"undo": undone.append})
            with pytest.raises(holdfast.Aborted):
                await made.run("t", thread_id="t")

    asyncio.run(main())
    assert undone == [*reversed(NAMES)]
