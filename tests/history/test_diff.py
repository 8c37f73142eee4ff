"""What differs between two states: everything that does, and nothing that does not."""

import copy
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.scenes import Thread
from holdfast.history.diff import diff
from holdfast.history.state_cells import draft_state, fingerprint
from holdfast.records.checkpoint import Change
from holdfast.records.errors import UnstorableValue
from holdfast.testing.exact import difference

leaves = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, "", "a"]))
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3), st.tuples(inner, inner)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("wrap", [lambda value: (value,), lambda value: [1, value], lambda value: {"k": value}])
def test_a_diff_takes_time_linear_in_depth(wrap: Callable[[Any], Any]) -> None:
    old: Any = 1
    new: Any = 2
    for _ in range(190):
        old, new = wrap(old), wrap(new)
    before = process_time()
    (change,) = diff(old, new)
    assert process_time() - before < 2  # 5 ms, on a machine that is not busy; it was half a minute
    assert (len(change.path), change.old, change.new) == (190, 1, 2)


def test_values_deeper_than_the_stack_do_not_end_a_diff() -> None:
    old: Any = []
    for _ in range(5000):
        old = [old]
    (change,) = diff(old, [])
    assert (change.path, change.kind) == ((0,), "removed")
    assert change.old is old[0]


def test_a_dict_in_another_order_is_the_same_wherever_it_is() -> None:
    assert diff([{"a": 1, "b": 2}, 3], [{"b": 2, "a": 1}, 3]) == []


@given(states)
def test_a_state_does_not_differ_from_its_copy(state: Any) -> None:
    assert diff(state, copy.deepcopy(state)) == []


def sorted_keys(value: Any) -> Any:
    """Without the order of keys, which a diff leaves out."""
    if type(value) is dict:
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return type(value)(map(sorted_keys, value)) if type(value) in {list, tuple} else value


@given(states, states)
def test_states_that_differ_have_a_difference(old: Any, new: Any) -> None:
    assert bool(diff(old, new)) is (difference(sorted_keys(old), sorted_keys(new)) is not None)


@given(states, states)
def test_a_difference_says_what_is_there(old: Any, new: Any) -> None:
    for change in diff(old, new):
        if change.kind != "added":
            assert difference(_at(old, change.path), change.old) is None
        if change.kind != "removed":
            assert difference(_at(new, change.path), change.new) is None


def _at(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (1, True, [Change((), "changed", 1, True)]),
        ([1, 2, 3], [1, 3], [Change((1,), "removed", 2, None)]),
        ([1, 3], [1, 2, 3], [Change((1,), "added", None, 2)]),
        (
            [1, 2],
            [2, 1, 0],
            [Change((0,), "changed", 1, 2), Change((1,), "changed", 2, 1), Change((2,), "added", None, 0)],
        ),
        ((1,), [1], [Change((), "changed", (1,), [1])]),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [Change(("a", "b"), "changed", 1, 2)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({1: "a"}, {1: "b"}, [Change((1,), "changed", "a", "b")]),
    ],
)
def test_differences_by_path(old: Any, new: Any, changes: list[Change]) -> None:
    assert diff(old, new) == changes


def test_a_draft_keeps_the_cell_of_the_same_immutable_object() -> None:
    thread, text = Thread(), "x" * 500
    thread.save({"text": text, "list": [1], "none": None})
    draft, leaves = draft_state({"text": text, "list": [1], "none": None}, thread.log.document)
    assert draft["state", "text"] is thread.log.document["state", "text"]
    assert isinstance(draft["state", "list"], bytes)
    assert leaves == {("state", "text"): text, ("state", "none"): None}


def test_a_refused_value_is_named_by_its_path() -> None:
    with pytest.raises(UnstorableValue) as caught:
        draft_state({"a": {"b": [1, object()]}})
    assert caught.value.path == 'state["a"]["b"][1]'


def test_a_fingerprint_is_of_the_content_alone() -> None:
    thread, text = Thread(), "x" * 500
    thread.save({"text": text})
    fresh = draft_state({"text": text})[0]
    known = draft_state({"text": text}, thread.log.document)[0]
    assert fingerprint(fresh) == fingerprint(known)
    for other in ({"text": text + "x"}, {"Text": text}, {"text": {"x": text}}, text):
        assert fingerprint(draft_state(other)[0]) != fingerprint(fresh)
    assert fingerprint(fresh, b"meta") != fingerprint(fresh)
