"""Whatever changed in a cell, its operations turn the old body into the new one, at the cost of the change."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import container, decode, encode
from holdfast.history.cells import Cell, Operation, rope, splice
from holdfast.history.edits import COPY_ALL, MAX_OPERATIONS, common_prefix, common_suffix, edit

small = st.one_of(st.integers(-5, 5), st.booleans(), st.floats(allow_nan=False), st.text(max_size=6), st.none())
values = st.one_of(
    small,
    st.lists(small, max_size=40),
    st.dictionaries(st.text(max_size=4), small, max_size=20),
    st.lists(st.text(min_size=40, max_size=60), min_size=20, max_size=40),
    st.text(min_size=1100, max_size=1300),
)


def cell_of(value: Any) -> Cell:
    encoded = encode(value)
    kind, count, header = container(encoded)
    body = encoded[header:]
    return Cell(kind, count, len(body), rope([body] if body else []), rope([body]))


def operations(old: Cell, value: Any) -> list[Operation] | None:
    encoded = encode(value)
    kind, count, header = container(encoded)
    return edit(old, kind, count, encoded, header)


def applied(old: Cell, found: list[Operation]) -> bytes:
    pieces = splice(old.pieces, list(found)).all()
    assert all(isinstance(piece, bytes) for piece in pieces)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


@settings(max_examples=settings().max_examples * 3)
@given(values, values)
def test_the_operations_lead_from_the_old_body_to_the_new_one(old: Any, new: Any) -> None:
    cell, encoded = cell_of(old), encode(new)
    found = operations(cell, new)
    if found is None:
        assert encoded == cell.encoded()
    else:
        assert applied(cell, found) == encoded[container(encoded)[2] :]


def test_an_append_to_a_list_copies_all_and_inserts_the_item() -> None:
    assert operations(cell_of([1, "a"]), [1, "a", "b"]) == [COPY_ALL, encode("b")]


def test_what_is_the_same_needs_no_operation() -> None:
    assert operations(cell_of({"a": 1}), {"a": 1}) is None


def test_a_list_that_is_emptied_has_no_bytes_left() -> None:
    assert operations(cell_of([1, 2]), []) == []


def test_one_and_true_and_one_point_zero_are_three_values() -> None:
    for old, new in ((1, True), (True, 1.0), (1.0, 1)):
        assert operations(cell_of(old), new) is not None


def test_a_change_in_the_middle_of_a_long_list_costs_little_more_than_the_item() -> None:
    old = [f"item {number} {'x' * 40}" for number in range(200)]
    new = [*old[:100], "another", *old[101:]]
    found = operations(cell_of(old), new)
    assert found is not None
    assert sum(len(each) for each in found if isinstance(each, bytes)) == len(encode("another"))


def test_items_may_move_without_being_written_again() -> None:
    old = [f"item {number} {'x' * 40}" for number in range(60)]
    found = operations(cell_of(old), [*old[30:], *old[:30]])
    assert found == [(len(b"".join(map(encode, old[:30]))), len(b"".join(map(encode, old[30:])))), (0, found[1][1])]  # type: ignore[index]


def test_a_shuffle_of_very_many_items_is_written_anew() -> None:
    old = [f"item {number} {'x' * 40}" for number in range(2 * MAX_OPERATIONS)]
    new = old[::-1]
    assert operations(cell_of(old), new) == [b"".join(map(encode, new))]


def test_a_state_with_nothing_in_common_is_written_anew() -> None:
    old = [f"old {number} {'x' * 40}" for number in range(100)]
    new = [f"new {number} {'y' * 40}" for number in range(100)]
    assert operations(cell_of(old), new) == [b"".join(map(encode, new))]


def test_the_middle_of_a_long_text_is_spliced() -> None:
    text = "a" * 3000
    found = operations(cell_of(text), text[:1500] + "B" + text[1501:])
    assert found is not None
    assert [each for each in found if isinstance(each, bytes)] == [b"B"]


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_common_ends_are_found_exactly(one: bytes, other: bytes) -> None:
    prefix = common_prefix(one, other)
    assert one[:prefix] == other[:prefix]
    assert prefix in {len(one), len(other)} or one[prefix] != other[prefix]
    limit = min(len(one), len(other)) - prefix
    suffix = common_suffix(one, other, limit)
    assert one[len(one) - suffix :] == other[len(other) - suffix :]
    assert suffix == limit or one[-1 - suffix] != other[-1 - suffix]


def test_a_cell_gives_back_the_value_it_was_made_of() -> None:
    samples: tuple[Any, ...] = ([], [1, [2]], {"a": {}}, "text", None, (1, 2), b"bytes")
    for value in samples:
        assert decode(cell_of(value).encoded()) == value
