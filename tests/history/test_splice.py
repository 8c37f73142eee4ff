"""Operations on pieces do to a rope what they would do to its bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.history.cells import Cell, Piece, Ref, Rope, cut, piece_length, rope, splice

BLOB = bytes(range(250))


def ref(offset: int, length: int) -> Ref:
    return Ref(b"b" * 16, offset, length, len(BLOB), 99)


def read(pieces: Rope[Piece]) -> bytes:
    return b"".join(BLOB[p.offset : p.offset + p.length] if isinstance(p, Ref) else p for p in pieces.all())


pieces = st.lists(
    st.one_of(st.binary(min_size=1, max_size=20), st.builds(ref, st.integers(0, 200), st.integers(1, 40))), max_size=8
)


@given(pieces, st.data())
def test_a_splice_of_pieces_is_a_splice_of_bytes(given_pieces: list[Piece], data: Any) -> None:
    old = rope(list(given_pieces))
    body = read(old)
    spans = st.tuples(st.integers(0, len(body)), st.integers(0, len(body))).map(
        lambda ends: (min(ends), max(ends) - min(ends))
    )
    operations = data.draw(
        st.lists(
            st.one_of(spans, st.none(), st.binary(max_size=9), st.builds(ref, st.integers(0, 9), st.integers(1, 9))),
            max_size=6,
        )
    )
    expected = b"".join(
        body
        if each is None
        else BLOB[each.offset : each.offset + each.length]
        if isinstance(each, Ref)
        else each
        if isinstance(each, bytes)
        else body[each[0] : each[0] + each[1]]
        for each in operations
    )
    assert read(splice(old, operations)) == expected
    assert read(old) == body, "the old rope stays as it was"


@pytest.mark.parametrize("span", [(0, 6), (5, 1), (6, 0), (-1, 2), (2, -1), (3, 1 << 40)])
def test_a_copy_beyond_the_body_is_an_error(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="copies"):
        splice(rope([b"abcd", b"e"]), [span])


def test_a_part_of_a_reference_is_a_reference() -> None:
    assert cut(ref(10, 20), 5, 8) == ref(15, 3)
    assert cut(b"abcdef", 1, 3) == b"bc"
    assert piece_length(ref(3, 7)) == 7


def test_a_rope_shares_its_list_until_two_grow_from_one_place() -> None:
    first = rope([1, 2])
    second, third = first.plus(3), first.plus(4)
    assert (first.all(), second.all(), third.all()) == ([1, 2], [1, 2, 3], [1, 2, 4])
    assert second.plus(5).all() == [1, 2, 3, 5]
    assert (len(first), len(second)) == (2, 3)


def test_a_cell_joins_its_chunks_once() -> None:
    cell = Cell("list", 3, 3, rope([b"\x01", b"\x02", b"\x03"]), rope([b"\x01", memoryview(b"\x02"), b"\x03"]))
    assert cell.body() == b"\x01\x02\x03"
    assert cell.body() is cell.body()
    assert cell.encoded() == b"\x93\x01\x02\x03"
