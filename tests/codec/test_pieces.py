"""Encoded lists and dicts can be taken apart and put together as bytes."""

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codec.samples import EVERYTHING
from codec.strategies import clean_text, values
from holdfast.codec import container, container_header, decode, encode, split
from holdfast.records.errors import CodecError

quick = settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
COUNTS = [0, 1, 15, 16, 17, 65_535, 65_536, 70_000]


def body(encoded: bytes) -> bytes:
    return encoded[container(encoded)[2] :]


@pytest.mark.parametrize("count", COUNTS)
def test_the_header_is_that_of_the_encoder(count: int) -> None:
    items = [None] * count
    assert encode(items) == container_header("list", count) + b"\xc0" * count
    assert container(encode(items)) == ("list", count, len(container_header("list", count)))
    pairs = {str(number): None for number in range(count)}
    assert encode(pairs).startswith(container_header("map", count))
    assert container(encode(pairs)) == ("map", count, len(container_header("map", count)))


def test_headers_of_the_longest_containers_tell_their_count() -> None:
    assert container(container_header("list", 2**32 - 1)) == ("list", 2**32 - 1, 5)
    assert container(container_header("map", 2**32 - 1)) == ("map", 2**32 - 1, 5)


@quick
@given(st.lists(values, max_size=4), values)
def test_appending_an_encoded_item_is_appending_to_the_list(items: list[Any], item: Any) -> None:
    longer = container_header("list", len(items) + 1) + body(encode(items)) + encode(item)
    assert longer == encode([*items, item])


@quick
@given(st.dictionaries(clean_text, values, max_size=4), values)
def test_appending_an_encoded_pair_is_adding_to_the_dict(pairs: dict[str, Any], value: Any) -> None:
    pairs.pop("new", None)
    longer = container_header("map", len(pairs) + 1) + body(encode(pairs)) + encode("new") + encode(value)
    assert longer == encode({**pairs, "new": value})


@quick
@given(st.lists(values, max_size=4))
def test_splitting_gives_the_encodings_of_the_items(items: list[Any]) -> None:
    assert split("list", len(items), body(encode(items))) == [encode(item) for item in items]


@quick
@given(st.dictionaries(clean_text, values, max_size=4))
def test_splitting_a_map_gives_its_keys_and_values(pairs: dict[str, Any]) -> None:
    expected = [encode(part) for pair in pairs.items() for part in pair]
    assert split("map", len(pairs), body(encode(pairs))) == expected


@pytest.mark.parametrize("value", EVERYTHING, ids=lambda value: type(value).__name__)
def test_only_plain_lists_and_dicts_are_containers(value: Any) -> None:
    kind, count, length = container(encode(value))
    plain_map = type(value) is dict and all(type(key) is str and key.isprintable() for key in value)
    if type(value) is list or plain_map:
        assert (kind, count) == ("list" if type(value) is list else "map", len(value))
    else:
        assert (kind, count, length) == ("value", 0, 0)


def test_nothing_is_no_container() -> None:
    assert container(b"") == ("value", 0, 0)


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x02\x03", b"\x01\xc1", b"\x01\x91", b"\x91" * 5000])
@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_body_of_another_count_is_refused(kind: Literal["list", "map"], body: bytes) -> None:
    with pytest.raises(CodecError):
        split(kind, 2, body)


def test_every_split_piece_decodes_by_itself() -> None:
    pieces = split("list", len(EVERYTHING), body(encode(EVERYTHING)))
    assert [encode(decode(piece)) for piece in pieces] == pieces
