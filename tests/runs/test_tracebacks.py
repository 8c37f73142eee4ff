"""What a person sees of an error: their own frames, and which step was meant."""

import asyncio
import traceback
from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import sync
from holdfast.records.tracebacks import hide_our_frames
from runs.worlds import World

LIBRARY = str(holdfast.__file__).removesuffix("__init__.py")


def broken(number: int) -> float:
    return number / 0


def text_of(error: BaseException) -> str:
    """What Python prints of an error, and of those that led to it."""
    return "".join(traceback.format_exception(error))


def shows_the_user(error: BaseException) -> bool:
    """True if the frame at fault is shown, and hardly any of ours."""
    text = text_of(error)
    return "in broken\n" in text and text.count(LIBRARY) <= 3


async def test_the_traceback_of_a_failing_step_shows_the_code_of_the_user(world: World) -> None:
    for key, raises in (("wrapped", ()), ("itself", ZeroDivisionError)):
        async with world.store.run("t") as run:
            with pytest.raises((holdfast.StepFailed, ZeroDivisionError)) as caught:
                await run.step(key, broken, 1, raises=raises)
        assert shows_the_user(caught.value), text_of(caught.value)


def test_the_traceback_of_a_failing_durable_function_shows_the_code_of_the_user() -> None:
    @sync.step
    def divide(number: int) -> float:
        return broken(number)

    @sync.durable(store=sync.MemoryStore())
    def with_step(number: int) -> float:
        return divide(number)

    @sync.durable(store=sync.MemoryStore())
    def without(number: int) -> float:
        return broken(number)

    for function in (with_step, without):
        with pytest.raises((holdfast.StepFailed, ZeroDivisionError)) as caught:
            function.run("t", 1)
        assert shows_the_user(caught.value), text_of(caught.value)


def test_the_traceback_of_a_failing_awaitable_durable_function_shows_the_code_of_the_user() -> None:
    @holdfast.step
    async def divide(number: int) -> float:
        return broken(number)

    @holdfast.durable(store=holdfast.MemoryStore())
    async def with_step(number: int) -> float:
        return await divide(number)

    with pytest.raises(holdfast.StepFailed) as caught:
        asyncio.run(with_step.run("t", 1))
    assert shows_the_user(caught.value), text_of(caught.value)


def test_a_mistake_in_our_own_code_keeps_its_frames() -> None:
    with pytest.raises(AttributeError) as caught:
        sync.Store(backend=None)._store._open().send(None)  # type: ignore[arg-type]
    error = caught.value
    before = len(traceback.extract_tb(error.__traceback__))
    hide_our_frames(error)
    assert len(traceback.extract_tb(error.__traceback__)) == before


# Which function was meant


def test_a_plain_step_that_is_awaited_by_mistake_is_named() -> None:
    @holdfast.step
    def look(word: str) -> str:
        return word

    @holdfast.durable(store=holdfast.MemoryStore())
    async def agent() -> Any:
        return await look("kelp")  # type: ignore[misc]

    with pytest.raises(TypeError, match="'await' expression") as caught:
        asyncio.run(agent.run("t"))
    assert caught.value.__notes__ == ["step 'look' is a plain function: call it without await, or make it an async def"]


def test_an_async_step_in_a_blocking_durable_function_is_named() -> None:
    @holdfast.step
    async def look(word: str) -> str:
        return word

    @sync.durable(store=sync.MemoryStore())
    def agent() -> Any:
        return look("kelp")

    with pytest.raises(holdfast.ConfigurationError, match=r"locals>\.look is async; holdfast\.sync takes plain"):
        agent.run("t")


# Methods


class Shop:
    """An object that cannot be stored, with steps."""

    def __init__(self) -> None:
        self.client = object()
        self.calls: list[str] = []

    @sync.step
    def fetch(self, item: str) -> str:
        self.calls.append(item)
        return f"a {item}"

    @classmethod
    @sync.step
    def price(cls, item: str) -> int:
        return len(item)


def test_a_method_can_be_a_step_and_its_object_is_no_argument() -> None:
    first, second = Shop(), Shop()
    with sync.MemoryStore() as store:
        for shop in (first, second):
            with store.run("t") as run:
                assert shop.fetch("kelp") == "a kelp"
                assert Shop.price("kelp") == 4
                assert run.steps[0].metadata["arguments"] == "item='kelp'"
    assert (first.calls, second.calls) == (["kelp"], [])


def test_a_function_that_is_no_method_may_call_a_parameter_self() -> None:
    @sync.step
    def double(self: int) -> int:
        return self * 2

    with sync.MemoryStore() as store, store.run("t"):
        assert (double(1), double(2)) == (2, 4)


def test_the_decorators_of_a_class_method_come_in_one_order() -> None:
    def unused(_cls: type) -> NoReturn:
        raise NotImplementedError

    with pytest.raises(holdfast.ConfigurationError, match="put @step below @classmethod"):
        sync.step(classmethod(unused))  # type: ignore[call-overload]
