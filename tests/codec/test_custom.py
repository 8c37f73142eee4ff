"""Classes of any kind, stored by the functions `take` and `make`."""

from collections import deque
from datetime import datetime
from typing import Any

import pytest

import holdfast
import holdfast.sync
from holdfast.codec import decode, encode, migration, register
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError, LimitExceeded, UnstorableValue

pytestmark = pytest.mark.usefixtures("registry_as_before")


class Matrix:
    """Neither a dataclass nor anything else that says what it consists of."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matrix) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]


class Words(list[str]):
    pass


@pytest.mark.parametrize("rows", [[[1, 2], [3, 4]], ((1,), {2}), {1: "a"}, {"a": 1}, None, "x", 2**80, deque([1], 5)])
def test_any_class_is_stored_by_take_and_make(rows: Any) -> None:
    assert register(Matrix, take=lambda value: value.rows, make=Matrix) is Matrix
    for value in (Matrix(rows), [{"m": (Matrix(rows), 1)}], {1: Matrix(rows)}):
        assert decode(encode(value)) == value
        assert encode(value) == encode(value)


def test_both_worlds_have_it() -> None:
    assert holdfast.register is holdfast.sync.register is register
    register(Words, take=list, make=Words, name="words")
    found = decode(encode([Words(["a"])]))
    assert type(found[0]) is Words


def test_an_error_of_take_is_told_with_the_path() -> None:
    register(Matrix, take=lambda value: 1 // value.rows, make=Matrix)
    with pytest.raises(UnstorableValue, match="take= function of Matrix failed: ZeroDivisionError") as caught:
        encode({"plan": [1, Matrix(0)]}, path="state")
    assert caught.value.path == 'state["plan"][1]'
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_take_returns_must_be_storable_itself() -> None:
    register(Matrix, take=lambda value: value.rows, make=Matrix)
    for rows, path in [(object(), "state[0]"), ([1, object()], "state[0][1]"), ({1: object()}, "state[0][1]")]:
        with pytest.raises(UnstorableValue) as caught:
            encode([Matrix(rows)], path="state")
        assert caught.value.path == path


def test_take_that_never_gets_smaller_is_refused() -> None:
    register(Matrix, take=lambda value: value, make=Matrix)
    with pytest.raises(UnstorableValue, match="returned the same class"):
        encode(Matrix(1))
    register(Matrix, take=lambda value: [value], make=Matrix)
    with pytest.raises(LimitExceeded):
        encode(Matrix(1))
    register(Words, take=Matrix, make=Words)
    register(Matrix, take=lambda _value: Words(), make=Matrix)
    with pytest.raises(LimitExceeded):
        encode(Matrix(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _stored: 1 // 0, "make= function of Matrix failed: ZeroDivisionError"),
        (lambda stored: stored, "make= function of Matrix returned a list"),
        (lambda _stored: None, "returned a NoneType"),
    ],
)
def test_an_error_of_make_is_a_codec_error(make: Any, message: str) -> None:
    register(Matrix, take=lambda value: value.rows, make=Matrix)
    data = encode([Matrix([1])])
    register(Matrix, take=lambda value: value.rows, make=make)
    with pytest.raises(CodecError, match=message):
        decode(data)


def test_an_error_of_ours_in_make_stays_what_it_is() -> None:
    def refuse(_stored: Any) -> Matrix:
        raise HoldfastError("no")

    register(Matrix, take=lambda value: value.rows, make=refuse)
    with pytest.raises(HoldfastError, match=r"^no$"):
        decode(encode(Matrix(1)))


def test_migrations_see_what_take_returned() -> None:
    register(Matrix, take=lambda value: value.rows, make=Matrix, name="matrix")
    data = encode(Matrix(1))
    register(Matrix, take=lambda value: [value.rows], make=lambda stored: Matrix(stored[0]), name="matrix", version=2)

    @migration("matrix", from_=1)
    def wrapped(stored: Any) -> Any:
        return [stored]

    assert decode(data) == Matrix(1)


@pytest.mark.parametrize(
    "given", [{"take": list}, {"make": Words}, {"take": list, "make": 5}, {"take": "x", "make": list}]
)
def test_both_functions_are_needed(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs both take= and make="):
        register(Words, **given)


@pytest.mark.parametrize("cls", [int, list, dict, tuple, datetime, deque, type(None), "Words", 5])
def test_what_is_stored_as_it_is_cannot_be_registered(cls: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be registered"):
        register(cls, take=str, make=int)
