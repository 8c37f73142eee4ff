"""Turns: keys and fingerprints, failures, time limits, usage and cost, results that cannot be stored."""

import asyncio
from enum import StrEnum
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast import (
    ConfigurationError,
    Finished,
    KeyReused,
    ModelPricing,
    StepTimeout,
    UnstorableValue,
    UsageSnapshot,
    sync,
)
from runs.worlds import World
from session.talks import Model, orchestrator


async def test_a_turn_returns_its_value_and_its_usage(world: World) -> None:
    used = UsageSnapshot(input_tokens=10, output_tokens=2)
    async with orchestrator(world).session("t") as session:
        result = await session.run_turn(lambda: "text", usage=used)
        value, usage = result
        assert (value, usage) == ("text", used) == (result.value, result.usage)
        assert (await session.run_turn(lambda: "text")).usage == UsageSnapshot()


async def test_an_async_function_is_awaited_and_a_plain_one_called(world: World) -> None:
    async def call() -> str:
        return "async"

    async with orchestrator(world).session("t") as session:
        assert (await session.run_turn(call)).value == "async"
        assert (await session.run_turn(lambda: "plain")).value == "plain"


def test_the_blocking_session_refuses_an_async_function() -> None:
    async def call() -> None: ...

    session = sync.Orchestrator("a", "b", sync.MemoryStore()).session("t")
    with session as opened, pytest.raises(ConfigurationError, match="is async"):
        opened.run_turn(call)


async def test_the_same_key_with_another_fingerprint_is_an_error(world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world).session("t") as session:
            await session.run_turn(model.asked("a"), idempotency_key="k", fingerprint={"prompt": "a"})
            with pytest.raises(KeyReused, match="fingerprint"):
                await session.run_turn(model.asked("b"), idempotency_key="k", fingerprint={"prompt": "b"})
    assert model.prompts == ["a"]


async def test_a_fingerprint_is_compared_only_when_given(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        await session.run_turn(model.asked("a"), idempotency_key="with", fingerprint="a")
        await session.run_turn(model.asked("b"), idempotency_key="with")
        await session.run_turn(model.asked("c"), idempotency_key="without")
        await session.run_turn(model.asked("d"), idempotency_key="without", fingerprint="d")
    assert model.prompts == ["a", "c"]


async def test_a_turn_without_a_key_is_recorded_and_never_replayed(world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world).session("t") as session:
            await session.run_turn(model.asked("same"))
    async with orchestrator(world).session("t") as session:
        assert [turn.value for turn in session.turns] == ["answer 1 to same", "answer 2 to same"]
        assert [turn.idempotency_key for turn in session.turns] == [None, None]


async def test_a_failed_turn_is_recorded_and_executed_again_when_its_key_comes_again(world: World) -> None:
    errors = [ValueError("no luck"), None]

    def unlucky() -> str:
        error = errors.pop(0)
        if error is not None:
            raise error
        return "luck"

    async with orchestrator(world).session("t") as session:
        with pytest.raises(ValueError, match="no luck"):
            await session.run_turn(unlucky, idempotency_key="k")
        assert (await session.run_turn(unlucky, idempotency_key="k")).value == "luck"
        assert (await session.run_turn(unlucky, idempotency_key="k")).value == "luck"
        assert [(turn.error, turn.value) for turn in session.turns] == [("ValueError: no luck", None), (None, "luck")]
        summary = session.summary()
        assert (summary.turn_count, summary.failed_count) == (1, 1)


async def test_an_error_that_leaves_the_block_fails_the_thread_and_the_next_session_goes_on(world: World) -> None:
    model, divisors = Model(), [0, 1]

    async def talk() -> None:
        async with orchestrator(world).session("t") as session:
            await session.run_turn(model.asked("one"), idempotency_key="1")
            await session.run_turn(lambda: 1 / divisors.pop(0), idempotency_key="2")

    with pytest.raises(ZeroDivisionError):
        await talk()
    assert (await world.store.thread("t")).status == "failed"
    await talk()
    assert (await world.store.thread("t")).status == "idle"
    assert model.prompts == ["one"]


async def test_a_value_of_none_is_a_result(world: World) -> None:
    calls: list[None] = []
    async with orchestrator(world).session("t") as session:
        for _ in range(2):
            assert (await session.run_turn(lambda: calls.append(None), idempotency_key="k")).value is None
    assert len(calls) == 1


async def test_two_branches_with_one_key_execute_it_once(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:

        async def branch() -> str:
            return (await session.run_turn(model.asked("x"), idempotency_key="k")).value  # type: ignore[no-any-return]

        assert await world.gather(branch(), branch(), branch()) == ["answer 1 to x"] * 3


async def test_a_turn_within_itself_is_refused(world: World) -> None:
    async with orchestrator(world).session("t") as session:

        async def turn() -> Any:
            return await session.run_turn(lambda: 1, idempotency_key="k")

        with pytest.raises(ConfigurationError, match="calls itself"):
            await session.run_turn(turn, idempotency_key="k")


async def test_a_turn_within_a_turn_is_recorded_before_it(world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world).session("t") as session:

            async def outer() -> str:
                return (await session.run_turn(model.asked("in"), idempotency_key="in")).value  # type: ignore[no-any-return]

            assert (await session.run_turn(outer, idempotency_key="out")).value == "answer 1 to in"
            assert [turn.idempotency_key for turn in session.turns] == ["in", "out"]


async def test_a_complete_thread_replays_and_takes_no_new_turn(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: 1, idempotency_key="k")
        await world.api.current().complete("done")
    async with orchestrator(world).session("t") as session:
        assert (await session.run_turn(lambda: 2, idempotency_key="k")).value == 1
        with pytest.raises(Finished):
            await session.run_turn(lambda: 2, idempotency_key="new")


async def test_the_code_of_a_turn_has_an_idempotency_key_of_its_own(world: World) -> None:
    keys: list[str] = []

    def fails() -> None:
        keys.append(world.api.idempotency_key())
        raise ZeroDivisionError

    for _ in range(2):
        async with orchestrator(world).session("t") as session:
            with pytest.raises(ZeroDivisionError):
                await session.run_turn(fails, idempotency_key="k")
            await session.run_turn(lambda: keys.append(world.api.idempotency_key()))
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


# Time


@pytest.mark.parametrize("world_name", ["awaitable", "blocking"])
def test_a_turn_that_takes_too_long_is_abandoned(world_name: str) -> None:
    """With real time."""
    import asyncio

    import holdfast

    never = Event()
    if world_name == "blocking":
        with sync.Orchestrator("a", "b", sync.MemoryStore()).session("t") as session:
            with pytest.raises(StepTimeout):
                session.run_turn(never.wait, idempotency_key="k", timeout=0.01)
            assert session.run_turn(lambda: "in time", idempotency_key="k", timeout=30).value == "in time"
            errors = [turn.error for turn in session.turns]
    else:

        async def talk() -> list[str | None]:
            async with holdfast.Orchestrator("a", "b", holdfast.MemoryStore()).session("t") as session:
                with pytest.raises(StepTimeout):
                    await session.run_turn(asyncio.Event().wait, idempotency_key="k", timeout=0.01)
                await session.run_turn(lambda: "in time", idempotency_key="k", timeout=30)
                return [turn.error for turn in session.turns]

        errors = asyncio.run(talk())
    never.set()
    assert errors == ["StepTimeout: no result within 0.01 s", None]


# Usage and cost


async def test_usage_may_be_a_function_of_the_result(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        result = await session.run_turn(lambda: "four", usage=lambda text: UsageSnapshot(output_tokens=len(text)))
        assert result.usage.output_tokens == session.usage.output_tokens == 4


async def test_a_usage_may_be_part_of_the_result(world: World) -> None:
    used = UsageSnapshot(input_tokens=7)
    async with orchestrator(world).session("t") as session:
        for _ in range(2):
            result = await session.run_turn(lambda: ("text", used), usage=lambda pair: pair[1], idempotency_key="k")
            assert result == (("text", used), used)


async def test_a_usage_that_fails_does_not_lose_the_paid_result(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        with pytest.raises(ZeroDivisionError):
            await session.run_turn(model.asked("a"), usage=lambda _: 1 / 0, idempotency_key="k")
        with pytest.raises(ConfigurationError, match="usage= returned int"):
            await session.run_turn(model.asked("b"), usage=lambda _: 7, idempotency_key="other")
        assert (await session.run_turn(model.asked("c"), idempotency_key="k")).value == "answer 1 to a"
        assert (await session.run_turn(model.asked("d"), idempotency_key="other")).value == "answer 2 to b"


async def test_usage_and_cost_are_those_of_the_whole_thread(world: World) -> None:
    used = UsageSnapshot(1_000_000, 100_000, cache_read_tokens=10, cache_write_tokens=20, tool_calls=3)
    for number in range(2):
        async with orchestrator(world).session("t") as session:
            await session.run_turn(lambda: 1, model="model-a", usage=used, idempotency_key=str(number))
            await session.run_turn(lambda: 1, model="model-a", usage=used, idempotency_key=str(number))
    assert session.usage == used + used
    assert session.usage.tokens == 2_200_060
    assert session.cost_usd == pytest.approx(2 * (3 + 1.5 + 30 * 3e-6))
    assert [turn.cost_usd for turn in session.turns] == [session.cost_usd / 2] * 2


def test_a_price_for_cached_tokens_is_taken_where_there_is_one() -> None:
    used = UsageSnapshot(cache_read_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert ModelPricing(3, 15).cost(used) == 6 * 10**12
    assert ModelPricing(3, 15, 0.3, 3.75).cost(used) == 4_050_000_000_000
    assert ModelPricing(3, 15, 0, 0).cost(used) == 0


def test_sums_of_money_are_exact() -> None:
    store = sync.MemoryStore()
    with sync.Orchestrator("a", "b", store, pricing={"m": ModelPricing(0.1, 0.1)}).session("t") as session:
        for _ in range(10):
            session.run_turn(lambda: 0, model="m", usage=UsageSnapshot(1_000_000))
        assert session.cost_usd == 1.0


async def test_a_turn_of_an_unpriced_model_has_no_cost(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: 1, model="model-x", usage=UsageSnapshot(5, 5))
        assert session.turns[0].cost_usd is None
        assert session.cost_usd == 0


async def test_the_price_is_that_of_the_day(world: World) -> None:
    used = UsageSnapshot(1_000_000)
    for price in (1, 2):
        pricing = {"model-a": ModelPricing(price, price)}
        async with orchestrator(world, pricing=pricing).session("t") as session:
            await session.run_turn(lambda: 1, model="model-a", usage=used)
    assert [turn.cost_usd for turn in session.turns] == [1, 2]
    assert (await orchestrator(world).summary("t")).cost_usd == 3


async def test_the_history_tells_all_of_a_turn(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: "text", model="model-a", usage=UsageSnapshot(1000, 200), idempotency_key="k")
        turn = session.turns[0]
    told = (turn.number, turn.idempotency_key, turn.role, turn.phase, turn.model, turn.value, turn.error)
    assert told == (1, "k", "writer", "draft", "model-a", "text", None)
    assert (turn.usage, turn.cost_usd) == (UsageSnapshot(1000, 200), 0.006)
    assert turn.seconds >= 0
    latest = await world.store.latest("t")
    assert latest is not None
    step = latest.steps[0]
    assert (step.action, step.llm_output, step.idempotent) == ("k", "text", True)
    assert step.metadata["usage"] == {"input_tokens": 1000, "output_tokens": 200}


async def test_the_summary_tells_what_the_turns_amount_to(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        assert str(session.summary()) == "0 turns, 0 tokens, 0.0000 USD"
        await session.run_turn(lambda: 1, model="model-a", usage=UsageSnapshot(1000, 200))
        await session.run_turn(lambda: 1, model="model-b", usage=UsageSnapshot(1, 1))
        summary = session.summary()
    assert str(summary) == "2 turns, 1,202 tokens, 0.0060 USD and 1 of them at an unknown price"
    assert summary.unpriced_count == 1
    assert summary.models == {"model-a": UsageSnapshot(1000, 200), "model-b": UsageSnapshot(1, 1)}
    assert await orchestrator(world).summary("t") == summary
    with pytest.raises(world.api.NotFound):
        await orchestrator(world).summary("nobody")


# What cannot be stored


async def test_a_result_that_cannot_be_stored_is_handed_over_in_the_error(world: World) -> None:
    paid = {"client": object()}
    async with orchestrator(world).session("t") as session:
        with pytest.raises(UnstorableValue) as caught:
            await session.run_turn(lambda: paid, model="model-a", usage=UsageSnapshot(1000), idempotency_key="k")
        assert caught.value.value is paid
        assert "client" in caught.value.path
        assert session.usage.input_tokens == 1000  # it was paid for
        assert session.turns[0].error is not None
        assert (await session.run_turn(lambda: "fine", idempotency_key="k")).value == "fine"


# Forks, and all that works on threads


async def test_a_fork_has_the_turns_up_to_its_checkpoint(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        for key in ("1", "2"):
            await session.run_turn(model.asked(key), idempotency_key=key)
    first = (await world.store.history("t")).items[-1]
    await world.store.fork(first.id, to="fork", results={"1": "another answer"})
    async with orchestrator(world).session("fork") as session:
        assert (await session.run_turn(model.asked("again"), idempotency_key="1")).value == "another answer"
        await session.run_turn(model.asked("new"), idempotency_key="2")
        assert [turn.value for turn in session.turns] == ["another answer", "answer 3 to new"]
    assert model.prompts == ["1", "2", "new"]
    with pytest.raises(world.api.NotFound):
        await world.store.fork(first.id, results={"2": "not there yet"})


async def test_a_thread_is_one_that_other_runs_can_use(world: World) -> None:
    async with orchestrator(world).session("t", labels={"user": "ana"}) as session:
        await session.run_turn(lambda: 1, idempotency_key="k")
    async with world.store.run("t") as run:
        await run.append("messages", "hello")
        assert [step.action for step in run.steps] == ["k"]
    async with orchestrator(world).session("t") as session:
        assert session.resumed
        assert (await session.run_turn(lambda: 2, idempotency_key="k")).value == 1
    assert [info.thread_id for info in await world.store.threads(labels={"user": "ana"})] == ["t"]


async def test_pruning_takes_checkpoints_and_leaves_the_results_of_keys(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        for key in "abcde":
            await session.run_turn(model.asked(key), idempotency_key=key)
    await world.store.prune(world.api.Retention(keep_last=1))
    assert len(await world.store.history("t")) == 1
    async with orchestrator(world).session("t") as session:
        assert (await session.run_turn(model.asked("x"), idempotency_key="a")).value == "answer 1 to a"
        assert len(session.turns) == 5


async def test_a_turn_is_told_as_a_step_without_what_it_said(world: World) -> None:
    heard: list[Any] = []
    stop = world.store.on_event(heard.append)
    async with orchestrator(world).session("t") as session:
        for _ in range(2):
            await session.run_turn(lambda: "secret", idempotency_key="k")
        with pytest.raises(ZeroDivisionError):
            await session.run_turn(lambda: 1 / 0)
        with pytest.raises(KeyboardInterrupt):
            await session.run_turn(interrupted)
    stop()
    told = [(event.kind, event.details["name"]) for event in heard if event.kind.startswith("step_")]
    assert told == [
        ("step_started", "k"),
        ("step_done", "k"),
        ("step_replayed", "k"),
        ("step_started", "turn"),
        ("step_failed", "turn"),
        ("step_started", "turn"),
        ("step_stopped", "turn"),
    ]
    assert "secret" not in str(heard)


async def interrupted() -> None:
    raise KeyboardInterrupt


async def test_a_session_says_what_it_is(world: World) -> None:
    opened = orchestrator(world)
    assert repr(opened) == "Orchestrator(role='writer', phase='draft')"
    async with opened.session("t") as session:
        assert repr(session) == "Session('t', role='writer', phase='draft', turns=0)"
        assert not session.resumed


def test_a_turn_that_is_cancelled_while_its_usage_is_counted_keeps_the_paid_result() -> None:
    model = Model()

    async def main() -> Any:
        counting = asyncio.Event()

        async def count(_value: str) -> UsageSnapshot:
            counting.set()
            await asyncio.Event().wait()
            return UsageSnapshot()

        async with holdfast.Orchestrator("writer", "draft", holdfast.MemoryStore()).session("t") as session:
            turn = asyncio.create_task(session.run_turn(model.asked("a"), usage=count, idempotency_key="k"))
            await counting.wait()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            return (await session.run_turn(model.asked("b"), idempotency_key="k")).value

    assert asyncio.run(main()) == "answer 1 to a"


class Phase(StrEnum):
    DRAFT = "draft"


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize("key", [Phase.DRAFT, Name("draft")], ids=["enum", "subclass"])
async def test_keys_and_names_of_a_kind_of_str_are_kept_as_their_text(key: str, world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world, role=key, phase=key).session("t") as session:
            assert (await session.run_turn(model.asked("a"), model=key, idempotency_key=key)).value
            turn = session.turns[0]
            kept = (turn.idempotency_key, turn.model, turn.role, turn.phase)
            assert kept == ("draft",) * 4
            assert {type(each) for each in kept} == {str}
    assert model.prompts == ["a"]
