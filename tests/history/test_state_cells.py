"""A state is split into cells, and the cells join into the same state again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.test_edits import cell_of
from holdfast.history.state_cells import add_cell, is_key, join_state, split_state, takes_append
from holdfast.testing.exact import assert_exact

ROOT = ("state",)
keys = st.one_of(st.text(max_size=3), st.sampled_from(["a", "b", "state", "\ud800", 1]))
states: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.just([]), st.just({})),
    lambda inner: st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(states)
def test_joining_is_the_inverse_of_splitting(state: Any) -> None:
    assert_exact(state, join_state(split_state(state).items()))


@given(st.integers(60, 70), st.sampled_from(["top", "nested", "nested twice"]))
def test_wide_dicts_come_back_in_their_order(width: int, where: str) -> None:
    wide = {f"key {number}": number for number in range(width)}
    state = {"top": wide, "nested": {"a": wide, "b": 1}, "nested twice": {"a": {"b": wide}}}[where]
    assert_exact(state, join_state(split_state(state).items()))


def test_small_dicts_are_split_two_levels_down() -> None:
    state = {"a": {"b": {"c": {"d": 1}}}, "e": 2}
    assert split_state(state) == {("state", "a", "b", "c"): {"d": 1}, ("state", "e"): 2}


@pytest.mark.parametrize(
    ("state", "paths"),
    [
        ({}, [ROOT]),
        ([1], [ROOT]),
        (None, [ROOT]),
        ({1: 2}, [ROOT]),
        ({"a": 1, 2: 3}, [ROOT]),
        ({"\ud800": 1}, [ROOT]),
        ({"é": 1}, [("state", "é")]),
        ({"a": {}}, [("state", "a")]),
        ({"a": {"\udfff": 1}}, [("state", "a")]),
        ({"a": {1: 1}}, [("state", "a")]),
        ({str(number): 0 for number in range(1025)}, [ROOT]),
    ],
)
def test_what_cannot_be_opened_is_one_cell(state: Any, paths: list[tuple[str, ...]]) -> None:
    assert list(split_state(state)) == paths


def test_subclasses_are_not_opened() -> None:
    """Their type must come back, and only the codec can see to that."""

    class Special(dict[str, int]):
        pass

    special = Special(a=1)
    assert split_state(special) == {ROOT: special}
    assert split_state({"a": special}) == {("state", "a"): special}


@pytest.mark.parametrize(
    ("key", "expected"), [("a", True), ("é", True), ("", True), ("\ud800", False), (1, False), (b"", False)]
)
def test_a_key_of_a_path_is_plain_text(key: object, expected: bool) -> None:
    assert is_key(key) is expected


def document(state: Any) -> dict[tuple[str, ...], Any]:
    return {path: cell_of(value) for path, value in split_state(state).items()}


@pytest.mark.parametrize(
    ("state", "path", "expected"),
    [
        ({"l": [1]}, ("l",), True),
        ({"l": (1,)}, ("l",), False),
        ({"l": "x"}, ("l",), False),
        ({"a": 1}, ("l",), True),
        ({}, ("l",), True),
        ({"a": {}}, ("a", "l"), True),
        ({"a": {"b": 1}}, ("a", "l"), True),
        ({"a": {"b": 1}}, ("a",), False),
        ({"a": 1}, ("a", "l"), False),
        ([1], ("l",), False),
        ({}, ("a", "b", "c", "d"), False),
    ],
)
def test_an_append_finds_or_makes_a_cell_of_its_own(state: Any, path: tuple[str, ...], expected: bool) -> None:
    assert takes_append(document(state), (*ROOT, *path)) is expected


def test_a_new_cell_takes_the_place_of_the_empty_dict_it_is_put_into() -> None:
    opened = document({"a": {}, "b": 1})
    assert list(add_cell(opened, ("state", "a", "l"), cell_of([]))) == [("state", "a", "l"), ("state", "b")]
    assert list(add_cell(opened, ("state", "l"), cell_of([]))) == [("state", "a"), ("state", "b"), ("state", "l")]
