"""A turn that never ended may have been paid for: what it reserved counts until its key is repeated."""

import asyncio
from threading import Lock
from typing import Any

import pytest

import holdfast
from holdfast import UsageSnapshot
from holdfast.records.usage import Spent
from holdfast.runtimes.session.limits import Limits, TurnSlots
from holdfast.runtimes.session.record import Turns
from holdfast.testing.faults import Crash
from runs.worlds import World
from session.talks import Model, orchestrator

HALF = UsageSnapshot(input_tokens=100_000, output_tokens=0)
"""0.30 USD of model-a."""


async def crashed(world: World, key: str, **options: Any) -> None:
    """A turn whose process dies after the call, before its result is stored."""
    store = world.open()
    world._doomed = world.faults[-1]

    def call() -> str:
        world.die_at_next_write()
        return "never stored"

    with pytest.raises(Crash):
        async with orchestrator(world, store=store, **options).session("t") as session:
            await session.run_turn(call, model="model-a", idempotency_key=key, reserve=HALF)
    world.clock.advance(60)


@pytest.mark.parametrize("budget", [{"budget_usd": 0.5}, {"budget_tokens": 150_000}])
async def test_a_crashed_turn_counts_until_its_key_is_repeated(world: World, budget: dict[str, Any]) -> None:
    await crashed(world, "1", **budget)
    model = Model()
    async with orchestrator(world, **budget).session("t") as session:
        refused = session.run_turn(model.asked("2"), model="model-a", idempotency_key="2", reserve=HALF)
        with pytest.raises(holdfast.BudgetExceeded, match=r"would have used .*reserve of .1., which started"):
            await refused
        assert model.prompts == []
        assert session.cost_usd == 0
        first = await session.run_turn(model.asked("1"), model="model-a", idempotency_key="1", reserve=HALF)
        assert first.value == "answer 1 to 1"
        second = await session.run_turn(model.asked("2"), model="model-a", idempotency_key="2", reserve=HALF)
        assert second.value == "answer 2 to 2"


async def test_a_turn_that_reserves_more_than_is_left_is_refused_before_the_call(world: World) -> None:
    model = Model()
    async with orchestrator(world, budget_usd=0.2).session("t") as session:
        with pytest.raises(holdfast.BudgetExceeded, match=r"would have used 0\.3 of 0\.2 USD; raise budget_usd"):
            await session.run_turn(model.asked("1"), model="model-a", idempotency_key="1", reserve=HALF)
        assert model.prompts == []
        small = UsageSnapshot(input_tokens=10)
        await session.run_turn(model.asked("1"), model="model-a", idempotency_key="1", reserve=small)


async def test_a_turn_that_failed_by_itself_reserves_nothing_any_more(world: World) -> None:
    async def fail() -> None:
        raise ConnectionError

    async with orchestrator(world, budget_usd=0.3).session("t") as session:
        with pytest.raises(ConnectionError):
            await session.run_turn(fail, model="model-a", idempotency_key="1", reserve=HALF)
        await session.run_turn(lambda: "ok", model="model-a", idempotency_key="2", reserve=HALF)


async def test_a_fork_does_not_count_what_its_origin_reserved(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: "ok", model="model-a", idempotency_key="0")
    await crashed(world, "1")
    page = await world.store.history("t", limit=1)
    fork = await world.store.fork(page.items[0].id)
    async with orchestrator(world, budget_usd=0.3).session(fork) as session:
        await session.run_turn(lambda: "ok", model="model-a", idempotency_key="2", reserve=HALF)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reserve": HALF}, "needs an idempotency_key"),
        ({"reserve": 5, "idempotency_key": "1"}, "`reserve` must be a UsageSnapshot"),
        ({"reserved": HALF}, "did you mean 'reserve'"),
    ],
)
async def test_a_reserve_that_makes_no_sense_is_refused(world: World, options: Any, text: str) -> None:
    async with orchestrator(world).session("t") as session:
        with pytest.raises(holdfast.ConfigurationError, match=text):
            await session.run_turn(lambda: "ok", **options)


class Detailed(UsageSnapshot, frozen=True):
    images: int = 0


async def test_a_usage_of_ones_own_class_can_be_reserved_and_added(world: World) -> None:
    async with orchestrator(world, budget_tokens=100).session("t") as session:
        reserve = Detailed(output_tokens=100, images=2)
        await session.run_turn(lambda: "ok", model="model-a", idempotency_key="1", reserve=reserve)
        more = Detailed(output_tokens=101, images=2)
        with pytest.raises(holdfast.BudgetExceeded):
            await session.run_turn(lambda: "ok", model="model-a", idempotency_key="2", reserve=more)
    assert Detailed(1, images=2) + Detailed(2, images=3) == UsageSnapshot(3)


def test_threads_do_not_reserve_the_same_money() -> None:
    """The first one has asked, and its note is not made yet: the second one asks."""
    turns, limits, slots = Turns(), Limits(None, 100, None), TurnSlots(0, Lock())
    assert slots.take(limits, turns, "1", Spent(UsageSnapshot(60)), "t")
    with pytest.raises(holdfast.BudgetExceeded):
        slots.take(limits, turns, "2", Spent(UsageSnapshot(60)), "t")


@pytest.mark.parametrize("ticks", range(1, 8))
def test_a_stream_that_is_cancelled_as_it_begins_gives_its_place_back(ticks: int) -> None:
    async def main() -> None:
        async with holdfast.MemoryStore() as store, store.session("t", max_turns=1) as session:
            stream = session.run_turn_stream(lambda: ["a"], idempotency_key="1", reserve=UsageSnapshot(1))
            reading = asyncio.ensure_future(anext(stream))
            for _ in range(ticks):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await stream.aclose()
            assert (await session.run_turn(lambda: "ok", idempotency_key="2")).value == "ok"

    asyncio.run(main())
