"""What a function takes, as the inspect module would tell it."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from holdfast.records.callables import is_async, parameters_of


def plain(first: int, second: str = "x") -> None: ...


def placed(first: int, /, second: int) -> None: ...


def named(first: int, *, second: int) -> None: ...


def rest(first: int, *others: int) -> None: ...


def open_to_all(first: int, *others: int, last: int, **more: int) -> None:
    local = first
    del local


def nothing() -> None: ...


async def awaitable(first: int) -> None: ...


def generator() -> Any:
    yield 1


async def asynchronous_generator() -> Any:
    yield 1


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return wrapper


class Thing:
    def method(self, first: int) -> None: ...

    async def awaitable(self, first: int) -> None: ...

    def __call__(self, first: int, **more: int) -> None: ...


FUNCTIONS: list[Any] = [
    *(plain, placed, named, rest, open_to_all, nothing, awaitable, generator, asynchronous_generator, lambda x: x),
    *(decorated(plain), decorated(awaitable), partial(plain, 1), partial(awaitable, 1), partial(plain, second="y")),
    *(Thing.method, Thing().method, Thing().awaitable, Thing(), Thing, sorted, len),
]
BY_PLACE = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: getattr(function, "__qualname__", "other"))
def test_it_tells_what_the_inspect_module_tells(function: Callable[..., Any]) -> None:
    taken = inspect.signature(function).parameters
    told = parameters_of(function)
    kinds = [each.kind for each in taken.values()]
    assert sorted(told.names) == sorted(taken)
    assert told.by_place is all(kind in BY_PLACE for kind in kinds)
    assert told.any_keyword is (inspect.Parameter.VAR_KEYWORD in kinds)
    assert is_async(function) is inspect.iscoroutinefunction(function)
    if told.by_place:
        assert told.names == tuple(taken)


def test_a_function_that_says_it_takes_something_else_is_believed() -> None:
    def function(first: int) -> None: ...

    function.__signature__ = inspect.signature(named)  # type: ignore[attr-defined]
    assert set(parameters_of(function).names) == {"first", "second"}


def test_a_callable_that_does_not_tell_is_an_error() -> None:
    with pytest.raises(ValueError, match="signature"):
        parameters_of(type)
