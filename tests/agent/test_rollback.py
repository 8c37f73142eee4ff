"""A rollback restores state and trajectory for real, leaves what is poisoned behind, and compensates what it undoes."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

import holdfast
from agent.agents import agent, doomed_store, stored
from holdfast import FailurePolicy, RecoveryAction, Step, sync
from holdfast.history.entries import RolledBack
from holdfast.ports import run_blocking
from holdfast.runs import threads
from holdfast.runs.driver import read
from holdfast.runtimes.agent import rollback
from holdfast.runtimes.agent.memory import Failure, Memory
from holdfast.testing.faults import Crash
from runs.worlds import World

ROLLBACK = FailurePolicy(default=RecoveryAction.ROLLBACK(hint="again"))


async def actions(world: World, thread_id: str = "t") -> list[str]:
    latest = await world.store.latest(thread_id)
    assert latest is not None
    return [step.action for step in latest.steps]


def back_to(world: World, action: str, **options: Any) -> Any:
    """A strategy: go back to where that step was recorded."""

    async def choose(context: holdfast.FailureContext) -> RecoveryAction:
        infos = list(await world.store.history(context.thread_id))
        target = next(info.id for info in infos if info.metadata.get("step") == action)
        return RecoveryAction.ROLLBACK(checkpoint_id=target, **options)

    return choose


async def test_a_rollback_of_a_traced_run_undoes_all_that_came_after_its_target(world: World) -> None:
    calls: list[str] = []

    @world.step()
    async def call(name: str) -> str:
        calls.append(name)
        return name

    async def writer(_task: str, *, recovery: Any = None) -> None:
        for name in ("a", "b", "c"):
            await call(name)
        if recovery is None:
            raise ConnectionError("refused")

    async def to_the_first(context: holdfast.FailureContext) -> RecoveryAction:
        infos = list(await world.store.history(context.thread_id))
        return RecoveryAction.ROLLBACK(checkpoint_id=min(infos, key=lambda info: info.seq).id)

    inner: Any = getattr(world.store, "_inner", world.store)
    getattr(inner, "_store", inner)._events.trace_context = lambda: "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    await agent(world, writer, policy=to_the_first).run("t", thread_id="t")
    assert calls == ["a", "b", "c", "b", "c"]


async def test_a_rollback_goes_to_the_newest_checkpoint_before_the_failing_step(world: World) -> None:
    told: list[Any] = []

    async def writer(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> str:
        told.append(recovery)
        if recovery is None:
            update_state({"draft": 1})
            record_step(Step(action="draft"))
            update_state({"draft": 1, "sent": True})
            record_step(Step(action="send", error="refused"))
            raise ConnectionError("refused")
        assert (await actions(world)) == ["draft"]
        return str(recovery.state)

    assert await agent(world, writer, policy=ROLLBACK).run("t", thread_id="t") == "{'draft': 1}"
    recovery = told[1]
    assert (recovery.attempt, recovery.failure, recovery.hint) == (1, "external_fault", "again")
    assert ([step.action for step in recovery.steps], recovery.thread_id) == (["draft"], "t")


async def test_a_poisoned_checkpoint_is_left_behind_by_the_second_rollback(world: World) -> None:
    restored: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> int:
        restored.append(restored_state)
        state = dict(restored_state or {"n": 0})
        while state["n"] < 5:
            if state.get("poison"):
                raise ValueError("cannot go on from here")
            state["n"] += 1
            if state["n"] == 3 and len(restored) <= 2:
                state["poison"] = True
            update_state(state)
            record_step(Step(action="work", tool_output=state["n"]))
        return int(state["n"])

    assert await agent(world, worker, policy=ROLLBACK).run("t", thread_id="t") == 5
    assert restored == [None, {"n": 3, "poison": True}, {"n": 2}]


@pytest.mark.parametrize("page", [2, threads.PAGE])
async def test_each_rollback_without_progress_goes_one_further_back_until_the_beginning(
    world: World, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "PAGE", page)
    restored: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> str:
        restored.append(restored_state)
        for number in range(len((restored_state or {}).get("done", [])), 2):
            update_state({"done": list(range(number + 1))})
            record_step(Step(action=f"work {number}"))
        if len(restored) < 6:
            raise ValueError("always the same")
        return "done"

    made = agent(world, worker, policy=ROLLBACK, max_recovery_attempts=9)
    assert await made.run("t", thread_id="t") == "done"
    assert restored == [None, {"done": [0, 1]}, {"done": [0]}, {}, {}, {}]


async def test_a_rollback_after_progress_goes_to_the_newest_checkpoint_again(world: World) -> None:
    restored: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> str:
        restored.append(restored_state)
        number = (restored_state or {"n": 0})["n"] + 1
        update_state({"n": number})
        record_step(Step(action=f"work {number}"))
        if number < 4:
            raise ValueError("not yet")
        return "done"

    assert await agent(world, worker, policy=ROLLBACK).run("t", thread_id="t") == "done"
    assert restored == [None, {"n": 1}, {"n": 2}, {"n": 3}]


async def test_a_rollback_can_name_its_checkpoint(world: World) -> None:
    names: list[str] = []

    async def choose(_context: holdfast.FailureContext) -> RecoveryAction:
        return RecoveryAction.ROLLBACK(checkpoint_id=names[0])

    async def worker(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> Any:
        if recovery is not None:
            return recovery.state, [step.action for step in recovery.steps]
        for number in range(3):
            update_state({"n": number})
            await stored(record_step(Step(action=str(number))))
            names.append(world.api.current().checkpoint_id)
        raise ValueError

    assert await agent(world, worker, policy=choose).run("t", thread_id="t") == ({"n": 0}, ["0"])


async def test_a_step_that_was_rolled_back_is_executed_again_with_another_idempotency_key(world: World) -> None:
    paid: list[str] = []

    async def pay(amount: int, *, idempotency_key: str) -> int:
        paid.append(idempotency_key)
        return amount

    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> int:
        run = world.api.current()
        await run.step("look", len, "abc")
        await stored(record_step(Step(action="looked")))
        await run.step("pay", pay, 40, effect=True)
        if recovery is None:
            record_step(Step(action="check", error="wrong"))
            raise ValueError("wrong")
        return len(paid)

    made = agent(world, worker, policy=back_to(world, "looked"))
    assert await made.run("t", thread_id="t") == 2
    assert len(set(paid)) == 2
    assert await made.run("t", thread_id="t") == 2
    assert len(paid) == 2


async def test_a_retry_keeps_the_result_and_the_key_of_a_step(world: World) -> None:
    paid: list[str] = []

    async def pay(*, idempotency_key: str) -> int:
        paid.append(idempotency_key)
        if len(paid) == 1:
            raise ConnectionError("no reply")
        return 40

    async def worker(_task: str) -> int:
        run = world.api.current()
        return int(await run.step("pay", pay, effect=True))

    assert await agent(world, worker, policy=RecoveryAction.RETRY).run("t", thread_id="t") == 40
    assert len(paid) == 2
    assert len(set(paid)) == 1


async def test_undone_steps_are_compensated_once_each_in_reverse_order(world: World) -> None:
    undone: list[Any] = []

    async def cancel(what: str) -> None:
        undone.append(what)

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is not None:
            return "stayed at home"
        record_step(Step(action="plan"))
        names = ["flight", "hotel", "car"]
        for what in names:
            record_step(Step(action=what))
            record_compensator("cancel", what)
        raise ValueError("no visa")

    made = agent(world, trip, policy=back_to(world, "plan"), compensators={"cancel": cancel})
    assert await made.run("t", thread_id="t") == "stayed at home"
    assert undone == ["car", "hotel", "flight"]
    assert await actions(world) == ["plan"]


async def test_a_compensator_can_be_a_function_of_this_process(world: World) -> None:
    undone: list[int] = []

    def cancel(number: int) -> None:
        undone.append(number)

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="book", error="refused"))
            record_compensator(cancel, 7)
            raise ValueError
        return "done"

    assert await agent(world, trip, policy=ROLLBACK).run("t", thread_id="t") == "done"
    assert undone == [7]


async def test_a_crash_in_mid_rollback_is_continued_and_no_compensator_runs_twice(world: World) -> None:
    undone: list[str] = []

    async def cancel(what: str, *, idempotency_key: str) -> None:
        undone.append(what)
        if what == "hotel" and undone.count("hotel") == 1:
            world.die_at_next_write()

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is not None:
            assert [step.action for step in recovery.steps] == ["plan"]
            return "stayed at home"
        record_step(Step(action="plan"))
        for what in ("flight", "hotel", "car"):
            record_step(Step(action=what))
            record_compensator("cancel", what)
        raise ValueError("no visa")

    policy = back_to(world, "plan")
    doomed = agent(world, trip, store=doomed_store(world), policy=policy, compensators={"cancel": cancel})
    with pytest.raises(Crash):
        await doomed.run("t", thread_id="t")
    world.clock.advance(60)
    assert undone == ["car", "hotel"]
    made = agent(world, trip, policy=policy, compensators={"cancel": cancel})
    assert await made.run("t", thread_id="t") == "stayed at home"
    assert undone == ["car", "hotel", "hotel", "flight"]  # the one in doubt again, with the same key


async def test_a_compensator_that_died_with_its_process_is_escalated_by_name(world: World) -> None:
    def cancel_hotel() -> None:
        world.die_at_next_write()

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="book", error="refused"))
            record_compensator(cancel_hotel)
            raise ValueError
        return "done"

    undone: list[str] = []
    with pytest.raises(Crash):
        await agent(world, trip, store=doomed_store(world), policy=ROLLBACK).run("t", thread_id="t")
    world.clock.advance(60)
    with pytest.raises(holdfast.Escalated, match="cancel_hotel"):
        await agent(world, trip, policy=ROLLBACK).run("t", thread_id="t")

    def instead(*, idempotency_key: str) -> None:
        undone.append(idempotency_key)

    name = f"{__name__}:{cancel_hotel.__qualname__}"
    made = agent(world, trip, policy=ROLLBACK, compensators={name: instead})
    assert await made.run("t", thread_id="t") == "done"
    assert len(undone) == 1


async def test_a_compensator_that_fails_is_escalated_and_tried_again_by_the_next_run(world: World) -> None:
    calls: list[int] = []

    async def cancel() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="book", error="refused"))
            record_compensator("cancel")
            raise ValueError("refused")
        return "done"

    made = agent(world, trip, policy=ROLLBACK, compensators={"cancel": cancel})
    with pytest.raises(holdfast.Escalated, match="cancel") as raised:
        await made.run("t", thread_id="t")
    assert raised.value.context is not None
    assert await made.run("t", thread_id="t") == "done"
    assert len(calls) == 2


async def test_a_compensating_rollback_escalates_rather_than_leave_a_step_uncompensated(world: World) -> None:
    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="plan"))
            record_step(Step(action="read", idempotent=True))
            record_step(Step(action="book"))
            raise ValueError
        return "done"

    with pytest.raises(holdfast.Escalated, match=r"step 'book' \(index 2\)"):
        await agent(world, trip, policy=back_to(world, "plan", strict=True)).run("t", thread_id="t")


@pytest.mark.parametrize("name", ["other@1.00", "t@99.00", "nonsense"])
async def test_a_checkpoint_that_is_none_of_the_thread_s_is_refused(world: World, name: str) -> None:
    async def trip(_task: str) -> str:
        raise ValueError

    with pytest.raises((holdfast.NotFound, holdfast.ConfigurationError)):
        await agent(world, trip, policy=RecoveryAction.ROLLBACK(checkpoint_id=name)).run("t", thread_id="t")


async def test_an_unknown_compensator_is_refused_when_it_is_recorded(world: World) -> None:
    async def trip(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        with pytest.raises(holdfast.ConfigurationError, match="the step just recorded"):
            record_compensator(len)
        record_step(Step(action="book"))
        with pytest.raises(holdfast.ConfigurationError, match="'undo' is not among"):
            record_compensator("undo")

    await agent(world, trip).run("t", thread_id="t")


async def test_what_was_rolled_back_is_still_in_the_history_and_can_be_forked(world: World) -> None:
    async def writer(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> str:
        if recovery is None:
            update_state({"a": 1})
            record_step(Step(action="a"))
            update_state({"b": 2})
            record_step(Step(action="b", error="bad"))
            raise ValueError
        return "done"

    await agent(world, writer, policy=ROLLBACK).run("t", thread_id="t")
    infos = list(await world.store.history("t"))
    undone = next(info for info in infos if info.metadata.get("step") == "b")
    assert infos[0].metadata["rolled_back_to"] == undone.seq - 1
    fork = await world.store.fork(undone.id)
    forked = await world.store.latest(fork)
    assert forked is not None
    assert (forked.state, [step.action for step in forked.steps]) == ({"a": 1, "b": 2}, ["a", "b"])
    assert [change.path for change in await world.store.diff(undone.id, infos[0].id)] == [("b",)]
    assert (await world.store.verify()).ok


async def test_another_type_of_failure_begins_at_the_newest_checkpoint_again(world: World) -> None:
    restored: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> str:
        restored.append(restored_state)
        for number in range((restored_state or {"n": 0})["n"], 3):
            update_state({"n": number + 1})
            record_step(Step(action=f"work {number}"))
        errors: list[Exception] = [ValueError(), ValueError(), TimeoutError(), TimeoutError()]
        if len(restored) <= len(errors):
            raise errors[len(restored) - 1]
        return "done"

    assert await agent(world, worker, policy=ROLLBACK, max_recovery_attempts=9).run("t", thread_id="t") == "done"
    assert restored == [None, {"n": 3}, {"n": 2}, {"n": 3}, {"n": 2}]


async def test_a_checkpoint_that_was_deleted_is_no_target(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> Any:
        if recovery is not None:
            return recovery.state
        for number in range(3):
            update_state({"n": number})
            await stored(record_step(Step(action=str(number))))
        await stored(record_step(Step(action="send", error="refused")))
        await world.store.delete_checkpoint(list(await world.store.history("t"))[1].id)
        raise ValueError

    made = agent(world, worker, policy=ROLLBACK)
    assert await made.run("t", thread_id="t") == {"n": 1}


async def test_compensators_of_the_same_name_each_undo_their_own_step(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> str:
        if recovery is not None:
            return "stayed at home"
        record_step(Step(action="plan"))
        record_step(Step(action="flight"))
        record_compensator(lambda: undone.append("flight"))
        record_step(Step(action="hotel"))
        record_compensator(lambda: undone.append("room"))
        record_compensator(lambda: undone.append("breakfast"))
        raise ValueError("no visa")

    assert await agent(world, trip, policy=back_to(world, "plan")).run("t", thread_id="t") == "stayed at home"
    assert undone == ["breakfast", "room", "flight"]


async def test_a_function_of_this_process_is_not_taken_for_the_named_one_of_its_name(world: World) -> None:
    undone: list[str] = []

    def cancel() -> None:
        undone.append("bare")

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> None:
        if recovery is None:
            record_step(Step(action="book", error="refused"), compensator=cancel)
            raise ValueError

    named = {"cancel": lambda: undone.append("named")}
    await agent(world, trip, policy=ROLLBACK, compensators=named).run("t", thread_id="t")
    assert undone == ["bare"]


async def test_a_compensator_of_another_process_is_not_taken_for_one_of_the_same_name_here(world: World) -> None:
    undone: list[str] = []
    lives: list[int] = []

    async def trip(_task: str, *, record_step: Any) -> None:
        lives.append(len(lives))
        life = lives[-1]
        if life == 0:
            await stored(record_step(Step(action="plan")))
        await stored(record_step(Step(action=f"book {life}"), compensator=lambda: undone.append(f"by {life}")))
        if life == 0:
            world.die_at_next_write()
            return
        raise ValueError("no visa")

    policy = back_to(world, "plan")
    with pytest.raises(Crash):
        await agent(world, trip, store=doomed_store(world), policy=policy).run("t", thread_id="t")
    world.clock.advance(60)
    with pytest.raises(holdfast.Escalated, match="which this process does not have"):
        await agent(world, trip, policy=policy).run("t", thread_id="t")
    assert undone == ["by 1"]


def test_compensators_that_threads_record_belong_to_their_own_steps() -> None:
    undone: list[int] = []
    count = 200

    def cancel(number: int, *, idempotency_key: str) -> None:
        undone.append(number)

    def trip(_task: str, *, record_step: Any, recovery: Any = None) -> list[int]:
        if recovery is not None:
            return [int(step.action) for step in recovery.steps]
        record_step(Step(action="-1"))
        with ThreadPoolExecutor(8) as pool:
            booked = [
                pool.submit(record_step, Step(action=str(number)), compensator=("cancel", number))
                for number in range(count)
            ]
        assert not any(each.exception() for each in booked)
        raise ValueError

    def middle(context: holdfast.FailureContext) -> RecoveryAction:
        return RecoveryAction.ROLLBACK(checkpoint_id=store.get("t", store.latest("t").seq - count // 2).id)  # type: ignore[union-attr]

    interval, store = sys.getswitchinterval(), sync.MemoryStore()
    sys.setswitchinterval(1e-6)
    try:
        made = sync.Agent(trip, policy=middle, store=store, compensators={"cancel": cancel})
        kept = made.run("t", thread_id="t")
    finally:
        sys.setswitchinterval(interval)
    assert sorted(kept + undone) == list(range(-1, count))


async def test_what_an_attempt_left_running_changes_nothing_that_was_rolled_back(world: World) -> None:
    refused: list[BaseException] = []

    async def worker(
        _task: str, *, record_step: Any, update_state: Any, record_usage: Any, recovery: Any = None
    ) -> str:
        if recovery is None:
            update_state({"n": 1})
            record_step(Step(action="good"))
            update_state({"bad": True})
            record_step(Step(action="bad", error="refused"))
            left.extend([lambda: update_state({"late": True}), lambda: record_step(Step(action="late"))])
            left_usage.append(record_usage)
            raise ConnectionError
        update_state({"second": 2})
        for late in left:
            try:
                late()
            except holdfast.Finished as error:
                refused.append(error)
        left_usage[0](input_tokens=5)
        record_step(Step(action="second"))
        return "done"

    left: list[Any] = []
    left_usage: list[Any] = []
    made = agent(world, worker, policy=ROLLBACK)
    await made.run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"n": 1, "second": 2}
    assert await actions(world) == ["good", "second"]
    assert len(refused) == 2
    assert (await made.summary("t")).usage.tokens == 5  # it was paid for


async def test_a_poisoned_checkpoint_is_left_behind_also_with_a_retry_between_two_rollbacks(world: World) -> None:
    restored: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> None:
        if restored_state is None:
            for number in range(4):
                update_state({"n": number})
                record_step(Step(action=f"step {number}"))
        restored.append((restored_state or {}).get("n"))
        raise ConnectionError

    policy = FailurePolicy.sequence(*[RecoveryAction.ROLLBACK, RecoveryAction.RETRY] * 3)
    with pytest.raises(holdfast.Escalated):
        await agent(world, worker, policy=policy, max_recovery_attempts=6).run("t", thread_id="t")
    assert restored == [None, 3, 3, 2, 2, 1, 1]


async def test_many_rollbacks_cost_no_more_each_than_the_first(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> int:
        attempt = 0 if recovery is None else recovery.attempt
        record_step(Step(action=f"step {attempt}"))
        if attempt < 40:
            raise ConnectionError
        return len(recovery.steps)

    made = agent(world, worker, policy=ROLLBACK, max_recovery_attempts=100)
    assert await made.run("t", thread_id="t") == 40  # each with all those before it in its past: 2**40 if folded anew
    assert len((await made.summary("t")).rollbacks) == 40


async def test_a_rollback_whose_target_was_pruned_meanwhile_goes_to_the_newest_before_it(world: World) -> None:
    async def cancel(*, idempotency_key: str) -> None:
        world.die_at_next_write()

    async def worker(_task: str, *, record_step: Any, update_state: Any, checkpoint: Any, recovery: Any = None) -> Any:
        if recovery is not None:
            return recovery.state
        for number in range(3):
            update_state({"n": number})
            await stored(record_step(Step(action=str(number))))
        await stored(record_step(Step(action="send", error="refused"), compensator="cancel"))
        raise ValueError

    doomed = agent(world, worker, store=doomed_store(world), policy=ROLLBACK, compensators={"cancel": cancel})
    with pytest.raises(Crash):
        await doomed.run("t", thread_id="t")
    world.clock.advance(60)
    oldest = list(await world.store.history("t"))[-1]
    await world.store.pin(oldest.id)
    await world.store.prune(holdfast.Retention(keep_last=1))
    made = agent(world, worker, policy=ROLLBACK, compensators={"cancel": lambda *, idempotency_key: None})
    assert await made.run("t", thread_id="t") == {"n": 0}
    assert await actions(world) == ["0"]


async def test_an_abort_that_undoes_compensates_every_step_and_then_ends(world: World) -> None:
    undone: list[str] = []

    async def cancel(what: str, idempotency_key: str) -> None:
        undone.append(what)
        if undone == ["car"]:
            world.die_at_next_write()

    async def trip(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> str:
        if recovery is not None and recovery.failure is not None:
            return f"{len(recovery.steps)} steps, {recovery.state}"
        for what in ("flight", "hotel", "car"):
            update_state({what: "booked"})
            record_step(Step(action=what), compensator=("cancel", what))
        raise ValueError("no visa")

    options: Any = {"policy": RecoveryAction.ABORT(reason="stay", undo=True), "compensators": {"cancel": cancel}}
    with pytest.raises(Crash):
        await agent(world, trip, store=doomed_store(world), **options).run("t", thread_id="t")
    world.clock.advance(60)
    with pytest.raises(holdfast.Aborted, match="no visa; stay"):
        await agent(world, trip, **options).run("t", thread_id="t")
    assert undone == ["car", "car", "hotel", "flight"]  # the first was in doubt
    assert await agent(world, trip, **options).run("t", thread_id="t") == "0 steps, {}"
    assert undone == ["car", "car", "hotel", "flight"]


# Compensators that are said again, lost, or of the wrong time


async def test_a_compensator_said_again_after_a_rollback_that_kept_its_step_is_called_once(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> None:
        if not (recovery and recovery.steps):
            record_step(Step(action="A"))
        record_compensator("cancel", "A")
        record_step(Step(action="B", error="bad"))
        raise ValueError

    policy = FailurePolicy.sequence(RecoveryAction.ROLLBACK, RecoveryAction.ABORT(undo=True))
    with pytest.raises(holdfast.Aborted):
        await agent(world, trip, policy=policy, compensators={"cancel": undone.append}).run("t", thread_id="t")
    assert undone == ["A"]


async def test_a_function_said_again_by_the_next_attempt_is_called_once(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, record_compensator: Any, recovery: Any = None) -> None:
        if recovery is None:
            record_step(Step(action="A"))
        record_compensator(lambda: undone.append("A"))
        raise ValueError

    policy = FailurePolicy.sequence(RecoveryAction.RETRY, RecoveryAction.ABORT(undo=True))
    with pytest.raises(holdfast.Aborted):
        await agent(world, trip, policy=policy).run("t", thread_id="t")
    assert undone == ["A"]


async def test_a_step_that_was_undone_and_done_again_is_compensated_again(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> None:
        if not (recovery and recovery.steps):
            record_step(Step(action="plan"))
        record_step(Step(action="book"), compensator=("cancel", "booking"))
        raise ValueError

    async def policy(context: Any) -> RecoveryAction:
        if context.attempt > 2:
            return RecoveryAction.ESCALATE
        chosen: RecoveryAction = await back_to(world, "plan")(context)
        return chosen

    with pytest.raises(holdfast.Escalated):
        await agent(world, trip, policy=policy, compensators={"cancel": undone.append}).run("t", thread_id="t")
    assert undone == ["booking", "booking"]


async def test_two_compensators_of_one_name_on_one_step_are_both_called(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        record_step(Step(action="book"))
        record_compensator("cancel", "room")
        record_compensator("cancel", "breakfast")
        raise ValueError

    made = agent(world, trip, policy=RecoveryAction.ABORT(undo=True), compensators={"cancel": undone.append})
    with pytest.raises(holdfast.Aborted):
        await made.run("t", thread_id="t")
    assert undone == ["breakfast", "room"]


async def test_a_bare_function_is_known_to_a_later_run_of_its_process(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="book", error="refused"), compensator=lambda: undone.append("book"))
            raise ValueError
        return "done"

    made = agent(world, trip, policy=RecoveryAction.SUSPEND)
    assert (await made.start("t", thread_id="t")).status == "input_required"
    (request,) = list(await world.store.requests())
    await world.store.answer(request.id, choice="rollback")
    assert await made.run("t", thread_id="t") == "done"
    assert undone == ["book"]


async def test_a_bare_function_of_another_process_is_not_taken_for_a_name_of_compensators(world: World) -> None:
    called: list[str] = []

    class Hotel:
        def cancel(self) -> None:
            called.append("hotel")

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="book", error="refused"), compensator=Hotel().cancel)
            raise ValueError
        return "done"

    def cancel() -> None:
        called.append("flight")

    options: dict[str, Any] = {"policy": RecoveryAction.SUSPEND, "compensators": {"cancel": cancel}}
    await agent(world, trip, **options).start("t", thread_id="t")
    (request,) = list(await world.store.requests())
    await world.store.answer(request.id, choice="rollback")
    with pytest.raises(holdfast.Escalated, match=r"Hotel\.cancel"):
        await agent(world, trip, **options).run("t", thread_id="t")
    assert called == []


async def test_a_fork_is_asked_anew(world: World) -> None:
    tried: list[int] = []

    async def worker(_task: str, *, record_step: Any) -> None:
        tried.append(1)
        await stored(record_step(Step(action="try", tool_output=len(tried))))
        raise ValueError("boom")

    made = agent(world, worker, policy=RecoveryAction.SUSPEND)
    await made.start("t", thread_id="t")
    (request,) = list(await world.store.requests())
    await world.store.answer(request.id, choice="retry")
    world.clock.advance(1)
    await made.start("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    await world.store.fork(latest.id, "f")
    world.clock.advance(1)
    assert (await made.start("t", thread_id="f")).status == "input_required"
    open_there = [each.name for each in await world.store.requests() if each.thread_id == "f"]
    assert open_there == ["recovery 1"]


async def test_a_checkpoint_that_a_rollback_undid_cannot_be_gone_back_to(world: World) -> None:
    named: list[str] = []

    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> None:
        record_step(Step(action="A" if recovery is None else "D"))
        if recovery is None:
            await stored(record_step(Step(action="B")))
            infos = list(await world.store.history("t"))
            named.extend(info.id for info in infos if info.metadata.get("step") == "B")
        raise ValueError

    async def policy(context: Any) -> RecoveryAction:
        if context.attempt == 1:
            chosen: RecoveryAction = await back_to(world, "A")(context)
            return chosen
        return RecoveryAction.ROLLBACK(checkpoint_id=named[0])

    with pytest.raises(holdfast.ConfigurationError, match="was undone by a rollback"):
        await agent(world, worker, policy=policy).run("t", thread_id="t")


async def test_a_checkpoint_of_a_former_life_cannot_be_gone_back_to(world: World) -> None:
    async def worker(_task: str, *, record_step: Any) -> None:
        await stored(record_step(Step(action="A")))
        raise ValueError

    with pytest.raises(holdfast.Escalated):
        await agent(world, worker).run("t", thread_id="t")
    (former, *_) = [info.id for info in await world.store.history("t") if info.metadata.get("step") == "A"]
    await world.store.delete("t")
    await world.store.revive("t")
    policy = RecoveryAction.ROLLBACK(checkpoint_id=former)
    with pytest.raises(holdfast.NotFound):
        await agent(world, worker, policy=policy).run("t", thread_id="t")


def test_compensators_stay_with_their_steps_beside_steps_of_other_threads() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    wrong: list[Any] = []

    def worker(_task: str, *, record_step: Any) -> None:
        run = sync.current()

        def act(number: int) -> None:
            if number % 2:
                record_step(Step(action=f"r{number}"), compensator=("undo", f"r{number}"))
            else:
                run.step(f"s{number}", str)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: copy_context().run(act, number), range(64)))
        raise ValueError

    def undo(action: str) -> None:
        undone.append(action)

    try:
        for _ in range(8):
            undone: list[str] = []
            with sync.MemoryStore() as store:
                made = sync.Agent(worker, store=store, policy=RecoveryAction.ESCALATE, compensators={"undo": undo})
                with pytest.raises(sync.Escalated):
                    made.run("t", thread_id="t")
                latest = store.latest("t")
                assert latest is not None
                said = Memory.of(run_blocking(read(store._store, "t"))).compensators()
                assert len(said) == 32
                wrong += [each for each in said if latest.steps[each.step].action != each.arguments[0]]
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_a_rollback_after_which_no_more_was_done_than_before_is_of_no_use() -> None:
    def failure(progress: int) -> Failure:
        return Failure(attempt=1, type="unknown", error="", message="", progress=progress, action={})

    unknown, last = holdfast.FailureType.UNKNOWN, RolledBack(0, 0, 7, 0)
    streak = [failure(2), failure(1)]
    assert rollback._useless_rollback(streak, unknown, 2, [last]) is last
    assert rollback._useless_rollback(streak, unknown, 3, [last]) is None
    assert rollback._useless_rollback(streak, holdfast.FailureType.TIMEOUT, 1, [last]) is None
    assert rollback._useless_rollback(streak, unknown, 2, []) is None
