"""A policy or a duration that makes no sense is refused before anything is done, and errors of any size can be kept."""

from datetime import timedelta
from typing import Any

import pytest

import holdfast
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
