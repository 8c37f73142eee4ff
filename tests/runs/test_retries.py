"""Steps that fail: retried, in time, and remembered as failed."""

from datetime import timedelta
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast.runs.options import StepOptions
from runs.worlds import World


class Flaky:
    """A function that fails so many times, and then works."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error or ConnectionError("down")

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return "up"


async def test_a_step_is_tried_again_with_growing_waits(world: World) -> None:
    flaky = Flaky(3)
    async with world.store.run("t") as run:
        assert await run.step("call", flaky, retries=3) == "up"
    assert flaky.calls == 4
    assert world.slept == pytest.approx([0.2, 0.4, 0.8])


def test_a_wait_grows_no_longer_than_the_longest_however_often_it_failed() -> None:
    options = StepOptions(retries=5000)
    assert options.wait_after(5000) == options.wait_after(100)


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [(2, [2, 2]), (timedelta(seconds=3), [3, 3]), (lambda attempt: attempt * 10, [10, 20])],
)
async def test_the_waits_can_be_chosen(world: World, backoff: Any, waits: list[float]) -> None:
    async with world.store.run("t") as run:
        await run.step("call", Flaky(2), retries=2, backoff=backoff)
    assert world.slept == pytest.approx(waits)


async def test_after_the_last_attempt_it_has_failed(world: World) -> None:
    flaky = Flaky(9)
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed, match="'call' failed after 3 attempt") as caught:
            await run.step("call", flaky, retries=2)
        assert (caught.value.type, caught.value.message) == ("ConnectionError", "down")
        assert isinstance(caught.value.__cause__, ConnectionError)
    assert flaky.calls == 3


async def test_only_the_errors_named_are_tried_again(world: World) -> None:
    flaky = Flaky(9, ValueError("wrong"))
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed):
            await run.step("call", flaky, retries=5, retry_on=(ConnectionError, TimeoutError))
    assert flaky.calls == 1


async def test_a_failure_that_was_caught_is_replayed(world: World) -> None:
    flaky = Flaky(1)
    for _ in range(2):
        async with world.store.run("t") as run:
            with pytest.raises(holdfast.StepFailed) as caught:
                await run.step("call", flaky)
            assert caught.value.message == "down"
    assert flaky.calls == 1


async def test_a_failure_that_left_the_block_is_executed_again(world: World) -> None:
    flaky = Flaky(1)
    with pytest.raises(holdfast.StepFailed):
        async with world.store.run("t") as run:
            await run.step("call", flaky)
    async with world.open().run("t") as run:
        assert await run.step("call", flaky) == "up"


async def test_a_failure_that_left_within_another_error_is_executed_again(world: World) -> None:
    flaky, other = Flaky(1), Flaky(1)
    with pytest.raises(BaseExceptionGroup):
        async with world.store.run("t") as run:
            errors = []
            for key, function in (("call", flaky), ("other", other)):
                try:
                    await run.step(key, function)
                except holdfast.StepFailed as error:
                    errors.append(error)
            raise ExceptionGroup("both", errors)
    async with world.store.run("t") as run:
        assert [await run.step("call", flaky), await run.step("other", other)] == ["up", "up"]


async def test_a_step_within_a_step_is_executed_again_with_it(world: World) -> None:
    flaky = Flaky(2)

    async def outer() -> Any:
        return await world.api.current().step("inner", flaky)

    async with world.store.run("t") as run:
        assert await run.step("outer", outer, retries=2, backoff=0) == "up"
    with pytest.raises(holdfast.StepFailed):
        async with world.store.run("u") as run:
            flaky.calls = 0
            await run.step("outer", outer)
    async with world.store.run("u") as run:
        flaky.calls = 5
        assert await run.step("outer", outer) == "up"


async def test_attempts_and_waits_are_counted_on_after_a_crash(world: World) -> None:
    flaky = Flaky(9)

    def fail_and_die() -> None:
        if flaky.calls == 2:
            world.die_at_next_write()
        flaky()

    async with world.doomed("t") as run:
        await run.step("call", fail_and_die, retries=3, backoff=100)
    assert flaky.calls == 3
    waited = sum(world.slept)
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed, match="after 4 attempt"):
            await run.step("call", flaky, retries=3, backoff=100)
    assert flaky.calls == 5
    assert sum(world.slept) - waited == pytest.approx(100)


async def test_a_wait_that_a_crash_cut_short_is_slept_to_its_end(world: World) -> None:
    flaky = Flaky(1)
    world.dies_asleep = True
    async with world.doomed("t") as run:
        await run.step("call", flaky, retries=1, backoff=100)
    async with world.store.run("t") as run:
        assert await run.step("call", flaky, retries=1, backoff=100) == "up"
    assert world.slept == pytest.approx([40])  # 60 of the 100 had passed


async def test_a_plain_function_that_takes_too_long_is_abandoned(world: World) -> None:
    forever = Event()
    try:
        async with world.store.run("t") as run:
            with pytest.raises(holdfast.StepTimeout, match="no result within") as caught:
                await run.step("hang", forever.wait, timeout=0.02)
            assert isinstance(caught.value, holdfast.StepFailed)
            with pytest.raises(holdfast.StepTimeout):
                await run.step("hang", forever.wait, timeout=0.02)
    finally:
        forever.set()


async def test_a_function_in_time_is_not_disturbed_by_its_timeout(world: World) -> None:
    def wrong() -> None:
        raise TimeoutError("of its own")

    async with world.store.run("t") as run:
        assert await run.step("quick", lambda: world.api.idempotency_key() != "", timeout=60) is True
        with pytest.raises(holdfast.StepFailed) as caught:
            await run.step("wrong", wrong, timeout=timedelta(minutes=1))
        assert (caught.value.type, caught.value.message) == ("TimeoutError", "of its own")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "message"), [(Unreadable(), "could not be read"), (ValueError("\udcff"), r"\\udcff")]
)
async def test_an_error_with_a_text_that_cannot_be_kept_is_kept_without(
    world: World, error: Exception, message: str
) -> None:
    for _ in range(2):
        with pytest.raises(holdfast.StepFailed, match=message):
            async with world.store.run("t") as run:
                await run.step("call", Flaky(1, error))
    assert message.removeprefix("\\") in str((await world.store.thread("t")).error)
