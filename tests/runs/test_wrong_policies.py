"""A policy or a duration that makes no sense is refused before anything is done, and errors of any size can be kept."""

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import sync
from runs.worlds import World


@pytest.mark.parametrize(
    "policy",
    [
        {"timeout": "5"},
        {"timeout": -1},
        {"backoff": -1},
        {"backoff": "a second"},
        {"backoff": timedelta.max},
        {"retry_on": "ValueError"},
        {"retry_on": (ValueError, "TypeError")},
    ],
)
async def test_a_wrong_policy_is_refused_before_the_step_is_begun(world: World, policy: dict[str, Any]) -> None:
    executed: list[int] = []

    async def pay() -> int:
        executed.append(1)
        return 1

    async with world.store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError, match=next(iter(policy))):
            await run.step("pay", pay, effect=True, **policy)
        assert executed == []
        assert await run.step("pay", pay, effect=True) == 1


@pytest.mark.parametrize("choices", ["approve", [1, 2], [None]])
async def test_choices_that_are_no_words_are_refused(world: World, choices: Any) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError, match="choices"):
            await run.ask("sure?", choices=choices)
        with pytest.raises(holdfast.ConfigurationError, match="`deadline` must be"):
            await run.ask("sure?", deadline="tomorrow")  # type: ignore[arg-type]
    assert not await world.store.requests()


def test_a_durable_function_takes_a_store_of_its_own_world() -> None:
    stores: list[Any] = ["x.db", sync.open("memory:"), holdfast.open("memory:")]
    for store in stores[:2]:
        with pytest.raises(holdfast.ConfigurationError, match="`store` must be"):
            holdfast.durable(store=store)
    for store in (stores[0], stores[2]):
        with pytest.raises(holdfast.ConfigurationError, match="`store` must be"):
            sync.durable(store=store)


def test_a_step_is_made_of_a_function() -> None:
    with pytest.raises(holdfast.ConfigurationError, match="takes a function"):
        holdfast.step("look")  # type: ignore[call-overload]


async def test_a_moment_beyond_all_dates_is_refused(world: World) -> None:
    async with world.store.run("t") as run:
        for call in (run.sleep(1e12), run.ask("sure?", deadline=1e12)):
            with pytest.raises(holdfast.ConfigurationError, match="a thousand years"):
                await call
    assert list(await world.store.requests()) == []


async def test_of_a_very_long_error_the_beginning_is_kept(world: World) -> None:
    async def fail() -> None:
        raise ValueError("x" * 100_000)

    with pytest.raises(holdfast.StepFailed) as raised:
        async with world.store.run("t") as run:
            await run.step("fail", fail)
    assert raised.value.message.startswith("x" * 8000)
    info = await world.store.thread("t")
    assert info.error is not None
    assert info.error.endswith("characters)")
    assert len(info.error) < 10_000
