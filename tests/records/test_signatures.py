"""What a callable takes, and whether it is async."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from holdfast.records.signatures import Parameters, is_async, parameters_of


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


@pytest.mark.parametrize(
    ("function", "names", "by_place", "any_keyword"),
    [
        (plain, ("first", "second"), True, False),
        (placed, ("first", "second"), True, False),
        (named, ("first", "second"), False, False),
        (rest, ("first", "others"), False, False),
        (open_to_all, ("first", "others", "last", "more"), False, True),
        (nothing, (), True, False),
        (decorated(plain), ("first", "second"), True, False),
        (partial(plain, 1), ("second",), True, False),
        (Thing().method, ("first",), True, False),
        (Thing(), ("first", "more"), False, True),
    ],
)
def test_it_says_what_a_callable_takes(
    function: Callable[..., Any], names: tuple[str, ...], by_place: bool, any_keyword: bool
) -> None:
    assert parameters_of(function) == Parameters(names, by_place, any_keyword)


@pytest.mark.parametrize("function", [awaitable, partial(awaitable, 1), Thing().awaitable])
def test_async_functions_are_told_from_others(function: Callable[..., Any]) -> None:
    assert is_async(function)
    assert not any(map(is_async, (plain, decorated(awaitable), generator, asynchronous_generator, Thing())))


def test_a_function_that_says_it_takes_something_else_is_believed() -> None:
    def function(first: int) -> None: ...

    function.__signature__ = inspect.signature(named)  # type: ignore[attr-defined]
    assert set(parameters_of(function).names) == {"first", "second"}


def test_a_callable_that_does_not_tell_is_an_error() -> None:
    with pytest.raises(ValueError, match="signature"):
        parameters_of(type)
