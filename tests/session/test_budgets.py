"""Budgets and limits: over the whole thread and all processes, judged when what was paid is safe; replays are free."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import BudgetExceeded, ConfigurationError, ModelPricing, TurnLimitExceeded, UsageSnapshot, sync
from holdfast.runs.ledger import Ledger
from runs.worlds import World
from session.talks import Model, collected, orchestrator

DOLLAR = UsageSnapshot(input_tokens=333_334)  # of model-a, a little more
TOKENS = UsageSnapshot(60, 40)


async def take(session: Any, model: Model, key: str | None, usage: UsageSnapshot = DOLLAR) -> str:
    return (await session.run_turn(model.asked(key or "?"), model="model-a", usage=usage, idempotency_key=key)).value  # type: ignore[no-any-return]


@pytest.mark.parametrize(("limits", "usage"), [({"budget_usd": 1.5}, DOLLAR), ({"budget_tokens": 150}, TOKENS)])
async def test_a_paid_result_is_saved_before_the_budget_error(
    world: World, limits: dict[str, Any], usage: UsageSnapshot
) -> None:
    model = Model()
    async with orchestrator(world, **limits).session("t") as session:
        await take(session, model, "1", usage)
        with pytest.raises(BudgetExceeded, match="'t' has used"):
            await take(session, model, "2", usage)
    async with orchestrator(world, **limits).session("t") as session:
        assert await take(session, model, "2", usage) == "answer 2 to 2"
    assert model.prompts == ["1", "2"]


@pytest.mark.parametrize(("limits", "usage"), [({"budget_usd": 1}, DOLLAR), ({"budget_tokens": 100}, TOKENS)])
async def test_a_thread_without_budget_is_refused_before_the_call(
    world: World, limits: dict[str, Any], usage: UsageSnapshot
) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        await take(session, model, "1", usage)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            async with orchestrator(world, **limits).session("t") as session:
                await take(session, model, "2", usage)
    assert model.prompts == ["1"]


async def test_the_budget_is_the_sum_over_all_processes_and_a_later_one_may_raise_it(world: World) -> None:
    model, keys = Model(), iter("abcdef")

    async def one_each(budget: float) -> None:
        async with orchestrator(world, budget_usd=budget).session("t") as session:
            await take(session, model, next(keys))

    await one_each(2.5)
    await one_each(2.5)
    with pytest.raises(BudgetExceeded, match="raise budget_usd"):
        await one_each(2.5)
    with pytest.raises(BudgetExceeded):
        await one_each(2.5)
    assert model.prompts == ["a", "b", "c"]
    await one_each(9)


async def test_a_budget_that_is_used_to_the_last_token_is_kept(world: World) -> None:
    async with orchestrator(world, budget_tokens=100).session("t") as session:
        await take(session, Model(), "1", TOKENS)
        with pytest.raises(BudgetExceeded):
            await take(session, Model(), "2", TOKENS)


async def test_turns_are_limited_over_the_whole_thread(world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world, max_turns=3).session("t") as session:
            await take(session, model, None)
    async with orchestrator(world, max_turns=3).session("t") as session:
        await take(session, model, "k")
        with pytest.raises(TurnLimitExceeded, match="has taken all of its 3 turns"):
            await take(session, model, None)
        assert await take(session, model, "k") == "answer 3 to k"
    assert len(model.prompts) == 3


async def test_replays_count_against_no_limit(world: World) -> None:
    model = Model()
    for _ in range(5):
        async with orchestrator(world, max_turns=1, budget_usd=1.5, budget_tokens=400_000).session("t") as session:
            for _ in range(3):
                await take(session, model, "k")
    assert session.usage == DOLLAR
    assert session.summary().turn_count == 1
    assert len(model.prompts) == 1


async def test_a_turn_that_failed_and_comes_again_is_one_turn(world: World) -> None:
    async with orchestrator(world, max_turns=1).session("t") as session:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await session.run_turn(lambda: 1 / 0, idempotency_key="k")
        await session.run_turn(lambda: 1, idempotency_key="k")
        with pytest.raises(TurnLimitExceeded):
            await session.run_turn(lambda: 1 / 0, idempotency_key="other")


async def test_failing_turns_without_a_key_are_limited_too(world: World) -> None:
    async with orchestrator(world, max_turns=2).session("t") as session:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await session.run_turn(lambda: 1 / 0)
        with pytest.raises(TurnLimitExceeded):
            await session.run_turn(lambda: 1 / 0)


@pytest.mark.parametrize("model", ["model-x", None])
async def test_an_unpriced_model_under_a_money_budget_is_refused_before_the_call(
    world: World, model: str | None
) -> None:
    calls = Model()
    async with orchestrator(world, budget_usd=1).session("t") as session:
        with pytest.raises(ConfigurationError, match=r"has no price.*budget_usd=1"):
            await session.run_turn(calls.asked("x"), model=model)
    assert not calls.prompts


async def test_a_stream_is_judged_like_any_turn(world: World) -> None:
    chunks: list[str] = []
    options: dict[str, Any] = {"usage": TOKENS, "model": "model-a", "idempotency_key": "s"}
    async with orchestrator(world, budget_tokens=99).session("t") as session:
        with pytest.raises(BudgetExceeded):
            await collected(session.run_turn_stream(lambda: iter("ab"), **options), chunks)
        assert chunks == ["a", "b"]
        assert await collected(session.run_turn_stream(lambda: iter("xx"), **options)) == ["a", "b"]


async def test_turns_that_are_under_way_are_counted(world: World) -> None:
    async with orchestrator(world, max_turns=1).session("t") as session:

        async def outer() -> str:
            with pytest.raises(TurnLimitExceeded):
                await session.run_turn(lambda: "inner", idempotency_key="inner")
            return "outer"

        assert (await session.run_turn(outer, idempotency_key="outer")).value == "outer"
        assert session.summary().turn_count == 1


def test_of_turns_at_the_same_time_no_more_are_taken_than_there_may_be() -> None:
    called: list[int] = []

    async def slow(number: int) -> int:
        called.append(number)
        await asyncio.sleep(0)
        if number == 0:
            raise ValueError("it failed, and was a turn all the same")
        return number

    async def main() -> list[Any]:
        async with holdfast.Orchestrator("r", "p", holdfast.MemoryStore(), max_turns=3).session("t") as session:
            turns = [session.run_turn(partial(slow, number), idempotency_key=str(number)) for number in range(6)]
            await asyncio.gather(*turns, return_exceptions=True)
            assert session.summary().turn_count == 3
            return [
                (await session.run_turn(partial(slow, number), idempotency_key=str(number))).value for number in (1, 2)
            ]

    assert asyncio.run(main()) == [1, 2]
    assert called == [0, 1, 2]


async def test_a_stream_that_is_left_gives_its_place_back(world: World) -> None:
    async with orchestrator(world, max_turns=1).session("t") as session:
        stream = session.run_turn_stream(lambda: iter("abc"), idempotency_key="k")
        assert await anext(stream) == "a"
        with pytest.raises(TurnLimitExceeded):
            await session.run_turn(lambda: 1, idempotency_key="other")
        await stream.aclose()
        assert (await session.run_turn(lambda: 1, idempotency_key="other")).value == 1


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (lambda _value: UsageSnapshot(input_tokens=2**64), 3),
        (lambda _value: UsageSnapshot(input_tokens=2**63 - 1, output_tokens=2**63 - 1), 10**15),
    ],
)
async def test_a_paid_result_is_saved_whatever_its_usage_is(world: World, usage: Any, price: float) -> None:
    model, pricing = Model(), {"m": ModelPricing(price, price)}
    for _ in range(2):
        with suppress(ConfigurationError):
            async with orchestrator(world, pricing=pricing).session("t") as session:
                await session.run_turn(model.asked("?"), model="m", usage=usage, idempotency_key="k")
                await session.run_turn(model.asked("!"), model="m", usage=usage, idempotency_key="l")
    assert model.prompts == ["?", "!"]
    async with orchestrator(world, pricing=pricing).session("t") as session:
        assert session.usage.input_tokens in {0, 2**63 - 1}
        assert session.summary().models["m"] == session.usage


async def test_what_nobody_knows_the_price_of_is_counted_and_told(world: World) -> None:
    def unknown(_value: Any) -> Any:
        raise ValueError("no usage in this answer")

    pricing = {"m": ModelPricing(3, 15)}
    async with orchestrator(world, pricing=pricing).session("t") as session:
        await session.run_turn(lambda: 1, model="m", usage=UsageSnapshot(1000), idempotency_key="priced")
        await session.run_turn(lambda: 2, model="other", usage=UsageSnapshot(1000), idempotency_key="unpriced")
        with pytest.raises(ValueError, match="no usage"):
            await session.run_turn(lambda: 3, model="m", usage=unknown, idempotency_key="untold")
        assert [turn.cost_usd for turn in session.turns] == [0.003, None, None]
        summary = session.summary()
    assert summary.unpriced_count == 2
    assert summary.price == "0.0030 USD and 2 of them at an unknown price"


def test_a_turn_that_is_about_to_be_recorded_still_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither under way nor recorded, it would leave its place to another."""
    write = Ledger.write
    with sync.MemoryStore() as store, sync.Orchestrator("r", "p", store, max_turns=1).session("t") as session:

        def meanwhile(self: Ledger, *args: Any) -> Any:
            monkeypatch.setattr(Ledger, "write", write)
            with pytest.raises(TurnLimitExceeded):
                session.run_turn(lambda: 1, idempotency_key="one too many")
            return write(self, *args)

        monkeypatch.setattr(Ledger, "write", meanwhile)
        session.run_turn(lambda: 1, idempotency_key="the only one")
        assert [turn.idempotency_key for turn in session.turns] == ["the only one"]


class Counted(UsageSnapshot, frozen=True):
    """A usage of somebody's own."""

    seconds: int = 0

    def __len__(self) -> int:
        return self.tool_calls


async def test_a_usage_of_ones_own_class_counts_for_what_it_has_in_common_with_ours(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: 1, model="model-a", usage=Counted(input_tokens=100, seconds=7))
    async with orchestrator(world).session("t") as session:
        assert session.usage == UsageSnapshot(input_tokens=100)
        assert session.turns[0].usage == UsageSnapshot(input_tokens=100)


@pytest.mark.parametrize("model", ["\ud800", ""])
async def test_a_model_that_cannot_be_recorded_is_refused_before_it_is_paid_for(world: World, model: str) -> None:
    calls: list[int] = []
    async with orchestrator(world, pricing={model: ModelPricing(3, 15)}).session("t") as session:
        with pytest.raises(ConfigurationError):
            await session.run_turn(lambda: calls.append(1), model=model)
    assert calls == []
