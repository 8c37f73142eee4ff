"""Limits hold at save and at load, and whatever was saved can be loaded."""

import tracemalloc
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from codec.samples import EVERYTHING, Note, Pair
from codec.strategies import values
from holdfast.codec import DEFAULT, Limits, decode, encode
from holdfast.codec import limits as bounds
from holdfast.records.errors import CodecError, ConfigurationError, LimitExceeded

Wrap = Callable[[Any], Any]
WRAPPERS: dict[str, Wrap] = {
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "map": lambda value: {"k": value},
    "mapping": lambda value: {1: value},
    "siblings": lambda value: [1, value, "x" * 40],
}


def nested(depth: int, wrap: Wrap, value: Any = None) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def noted(value: Any) -> Note:
    return Note("n", rest=value)


def depth_of(value: Any) -> int:
    """How deep a value nests, counted the plain way."""
    if isinstance(value, Note):
        return 2 + max(depth_of(value.rest), depth_of(value.log))
    if isinstance(value, dict):
        return 1 + max((depth_of(item) for pair in value.items() for item in pair), default=0)
    if isinstance(value, list | tuple | frozenset):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_two_hundred_levels_can_be_stored_and_no_more(wrap: Wrap) -> None:
    value = nested(200, wrap)
    assert decode(encode(value)) == value
    with pytest.raises(LimitExceeded, match="deeper"):
        encode(nested(201, wrap))


def test_an_object_counts_as_two_levels() -> None:
    value = nested(100, Pair)
    assert decode(encode(value)) == value
    for excess in (nested(101, Pair), [value]):
        with pytest.raises(LimitExceeded):
            encode(excess)


@settings(max_examples=settings().max_examples, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*WRAPPERS.values(), noted]), st.integers(1, 60)), max_size=6),
    st.sampled_from([None, (1, 2), [], {}, {1: 2}, frozenset({1})]),
)
def test_depth_is_counted_exactly_whatever_nests_in_what(runs: list[tuple[Wrap, int]], core: Any) -> None:
    value = core
    for wrap, times in runs:
        value = nested(times, wrap, value)
    if depth_of(value) <= 200:
        assert decode(encode(value)) == value
    else:
        with pytest.raises(LimitExceeded):
            encode(value)


def cycles() -> list[Any]:
    in_list: list[Any] = []
    in_list.append(in_list)
    in_dict: dict[str, Any] = {}
    in_dict["self"] = [in_dict]
    in_tuple: list[Any] = []
    in_tuple.append((1, in_tuple))
    in_mapping: dict[int, Any] = {}
    in_mapping[1] = in_mapping
    in_object = Note("x")
    in_object.rest = [in_object]
    far: list[Any] = []
    far.append(nested(150, WRAPPERS["list"], (far,)))
    return [in_list, in_dict, in_tuple, in_mapping, in_object, far]


@pytest.mark.parametrize("value", cycles(), ids=["list", "dict", "tuple", "mapping", "object", "far"])
def test_a_cycle_is_refused(value: Any) -> None:
    with pytest.raises(LimitExceeded):
        encode(value)


def test_a_stack_that_is_nearly_full_is_an_error_of_ours() -> None:
    value = nested(200, WRAPPERS["tuple"])
    data = encode(value)

    def at_depth(depth: int, call: Callable[[], object]) -> object:
        return call() if depth == 0 else at_depth(depth - 1, call)

    with pytest.raises(LimitExceeded, match="nests too deep"):
        at_depth(800, lambda: encode(value))
    assert at_depth(800, lambda: decode(data)) == value


@pytest.mark.parametrize("head", [b"\x91", b"\x81\xa1k", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\xa1k", b"\x92\x01"])
@pytest.mark.parametrize("depth", [209, 300, 1000, 5000, 100_000])
def test_stored_bytes_that_nest_too_deep_are_refused(head: bytes, depth: int) -> None:
    with pytest.raises(LimitExceeded):
        decode(head * depth + b"\xc0")


@pytest.mark.parametrize("code", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [209, 400, 3000])
def test_extensions_in_extensions_are_refused_too(code: int, depth: int) -> None:
    data = b"\x90"
    for _ in range(depth):
        data = b"\x91\xc9" + len(data).to_bytes(4, "big") + bytes((code,)) + data
    with pytest.raises(LimitExceeded):
        decode(data)


@pytest.mark.parametrize("padding", [0, 255, 5000, 100_000, 2_000_000])
@pytest.mark.parametrize(("depth", "limits"), [(300, DEFAULT), (900, DEFAULT), (110, Limits(depth=100))])
def test_depth_is_bounded_in_bytes_of_any_length(padding: int, depth: int, limits: Limits) -> None:
    data = b"\x92" + encode(b"x" * padding) + b"\x91" * depth + b"\xc0"
    with pytest.raises(LimitExceeded, match="deep"):
        decode(data, limits=limits)
    inside = b"\x91" + msgpack.encode(msgpack.Ext(1, data))
    with pytest.raises(LimitExceeded, match="deep"):
        decode(inside, limits=limits)


@pytest.mark.parametrize("between", [0, 3, 70_000])
def test_levels_of_lists_and_of_boxes_add_up(between: int) -> None:
    """Neither the lists nor the boxes alone are too many."""
    data = b"\xc0"
    for _ in range(30):
        data = b"\x91" * 8 + b"\x92" + encode(b"x" * between) + data
        data = msgpack.encode(msgpack.Ext(1, data))
    with pytest.raises(LimitExceeded, match="deep"):
        decode(data)


def test_the_deepest_value_between_many_others_comes_back() -> None:
    value = [{"k": [(1, 2), "x" * 50]} for _ in range(3000)] + [nested(199, WRAPPERS["tuple"])]
    assert decode(encode(value)) == value


def test_an_item_of_full_depth_can_be_appended_to_a_list_in_a_list() -> None:
    item = nested(200, WRAPPERS["tuple"])
    assert decode(b"\x91\x91\x91" + encode(item)) == [[[item]]]


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in a list"])
def test_more_than_msgpack_can_count_is_told_with_its_path(wrapped: bool) -> None:
    """Its pages are never touched, so it takes no memory."""
    value = bytes(2**32)
    with pytest.raises(LimitExceeded, match=r"^value(\[1\])? has length 4294967296") as caught:
        encode([1, value] if wrapped else value)
    assert ("[1]" in str(caught.value)) is wrapped


def test_size_is_limited_at_save_and_at_load() -> None:
    limits = Limits(size=100)
    data = encode(b"x" * 98, limits=limits)
    assert len(data) == 100
    assert decode(data, limits=limits) == b"x" * 98
    with pytest.raises(LimitExceeded, match="state takes 101 bytes, more than the limit of 100 bytes"):
        encode(b"x" * 99, path="state", limits=limits)
    with pytest.raises(LimitExceeded):
        decode(encode(b"x" * 99), limits=limits)


COSTS: list[tuple[Any, int]] = [
    (None, 16),
    ([1, 2, 3], 88 + 3 * 16),
    ({}, 96),
    ({"a": [1, "x" * 500], "b": b"y" * 500}, 216 + 2 * 64 + 88 + 16 + 2 * 64),
    ([(1, 2), "\ud800" * 5], 88 + (64 + 88 + 2 * 16) + 256),
    ([2**80, 1.5, 2**40, -5, -500, "z" * 70_000, b"z" * 70_000], 88 + 256 + 64 + 64 + 16 + 3 * 64),
    ("a" * 99 + "\U0001f600", 64 + 3 * 103),
    (set(), 256 + 88),
    (deque(), 656 + 88 + 16 + 88),
]


@pytest.mark.parametrize(("value", "cost"), COSTS, ids=lambda part: repr(part)[:20])
def test_memory_is_charged_exactly_at_save_and_at_load(value: Any, cost: int) -> None:
    data = encode(value)
    assert bounds.exact_memory(data, DEFAULT) == cost
    limits, less = Limits(memory=cost), Limits(memory=cost - 1)
    assert encode(value, limits=limits) == data
    assert decode(data, limits=limits) == value
    for call in (lambda: encode(value, limits=less), lambda: decode(data, limits=less)):
        with pytest.raises(LimitExceeded, match=rf"more memory than the limit of {cost - 1} bytes; .*Limits\(memory"):
            call()


@pytest.mark.parametrize(
    "value",
    [[[]] * 5000, [{}] * 5000, [{"a": 1}] * 5000, ["ab"] * 5000, [1.5] * 5000],
    ids=lambda value: repr(value[0]),
)
def test_what_is_charged_is_about_what_is_taken(value: list[Any]) -> None:
    data = encode(value)
    tracemalloc.start()
    made = decode(data)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert made == value
    assert taken / 2 < bounds.exact_memory(data, DEFAULT) < taken * 3


@given(values)
def test_the_cheap_bounds_are_never_below_the_exact_count(value: Any) -> None:
    data = encode(value)
    exact = bounds.exact_memory(data, DEFAULT)
    assert exact <= bounds.most_memory(data)
    assert exact <= bounds.MOST_PER_BYTE * len(data)


@pytest.mark.parametrize(
    "value",
    [[], {}, (), set(), deque(), [deque()] * 99, [set()] * 99, Counter(), OrderedDict(), range(1), nested(90, noted)],
    ids=lambda value: repr(value)[:20],
)
def test_the_bounds_hold_where_they_are_tight(value: Any) -> None:
    data = encode(value)
    assert bounds.exact_memory(data, DEFAULT) <= min(bounds.most_memory(data), bounds.MOST_PER_BYTE * len(data))


@pytest.mark.large
@pytest.mark.parametrize("filler", [b"\x90", b"\x81\xa1a\x01", b"\xc7\x01\x02\x90"])
def test_forty_megabytes_of_tiny_values_are_refused_before_any_is_made(filler: bytes) -> None:
    count = 40_000_000 // len(filler)
    data = b"\xdd" + count.to_bytes(4, "big") + filler * count
    with pytest.raises(LimitExceeded, match="memory"):
        decode(data)


@pytest.mark.large
def test_a_state_of_tens_of_megabytes_is_within_the_default_limits() -> None:
    messages = [{"role": "user", "content": "word " * 50, "tokens": 1000 + i, "score": i / 7} for i in range(120_000)]
    data = encode(messages)
    assert len(data) > 30_000_000
    assert len(decode(data)) == len(messages)


def test_the_scan_walks_through_every_kind_of_value() -> None:
    data = encode(EVERYTHING)
    assert bounds.exact_memory(data, DEFAULT) > 16 * len(EVERYTHING)
    assert decode(data, limits=Limits(depth=50)) is not None
    assert len(decode(encode([[]] * 400))) == 400


@pytest.mark.parametrize(
    "limits",
    [
        {"depth": 0},
        {"depth": 201},
        {"size": 0},
        {"memory": 0},
        {"memory": 1.5},
        {"expansion": 0},
        {"expansion_floor": 0},
    ],
)
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Limits(**limits)


@pytest.mark.parametrize("padding", [0, 300, 5000])
def test_depth_is_exact_in_short_and_in_long_values(padding: int) -> None:
    for wrap in WRAPPERS.values():
        assert encode([b"x" * padding, nested(199, wrap)])
        with pytest.raises(LimitExceeded):
            encode([b"x" * padding, nested(200, wrap)])


@pytest.mark.parametrize("data", [b"\x92\x01", b"\x92\x01\xc1\x00\x00", b"\x93\xd9\xff\x01", b"\x91\xc7\x05"])
def test_bytes_that_are_no_encoding_are_refused_while_counting(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data, limits=Limits(memory=100, depth=1))
    with pytest.raises(CodecError):
        decode(data, limits=Limits(memory=1))


def test_depth_is_that_of_what_is_stored_whatever_another_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": {"b": 1}}
    packb = ormsgpack.packb

    def changed_before(given: Any, **options: Any) -> bytes:
        """Another thread nests something once the value was looked at."""
        value["a"]["b"] = nested(230, WRAPPERS["list"])
        return packb(given, **options)

    monkeypatch.setattr(ormsgpack, "packb", changed_before)
    with pytest.raises(LimitExceeded):
        encode(value)


def test_many_shallow_containers_are_not_taken_for_deep_ones() -> None:
    rows = [[[[1]] * 16] * 16] * 16
    assert decode(encode(rows)) == rows
