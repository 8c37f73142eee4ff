"""What is stored comes back exactly: the same values, of the same types, in the same order."""

import re
import warnings
from array import array
from decimal import Context, Decimal, localcontext
from threading import Event, Thread
from typing import Any
from uuid import UUID, SafeUUID

import pytest
from hypothesis import given, settings

from codec import samples
from codec.exact import portrait, same
from codec.strategies import values
from holdfast.codec import decode, encode

thorough = settings(max_examples=settings().max_examples * 3, deadline=None)


@pytest.mark.parametrize("value", samples.EVERYTHING, ids=lambda value: type(value).__name__)
def test_every_kind_of_value_comes_back_exactly(value: Any) -> None:
    assert same(decode(encode(value)), value)


def test_all_kinds_of_values_come_back_from_one_encoding() -> None:
    assert same(decode(encode(samples.EVERYTHING)), samples.EVERYTHING)


@thorough
@given(values)
def test_any_value_comes_back_exactly(value: Any) -> None:
    assert same(decode(encode(value)), value)


@thorough
@given(values)
def test_what_comes_back_has_the_same_encoding(value: Any) -> None:
    data = encode(value)
    assert encode(decode(data)) == data


@thorough
@given(values)
def test_a_value_has_the_same_encoding_wherever_it_stands(value: Any) -> None:
    data = encode(value)
    assert encode([value]) == b"\x91" + data
    assert encode([value, "\ud800"]) == b"\x92" + data + encode("\ud800")
    assert encode({"k": value}) == b"\x81\xa1k" + data


LENGTHS = [0, 1, 15, 16, 31, 32, 33, 255, 256, 65_535, 65_536, (1 << 20) - 4, 1 << 20]
EDGES = [
    sign * (2**bits + near) for bits in (5, 7, 8, 15, 16, 31, 32, 62, 63, 64) for near in (-1, 0, 1) for sign in (1, -1)
]


@pytest.mark.parametrize(
    "value",
    [
        *EDGES,
        *("ä" * length for length in LENGTHS),
        *(b"x" * length for length in LENGTHS),
        *([None] * length for length in LENGTHS[:7]),
        *({str(number): number for number in range(length)} for length in LENGTHS[:7]),
        *(
            0.0,
            -0.0,
            1e308,
            float("inf"),
            "\ud800",
            ["\ud800"],
            {"\ud800": 1},
            {"a": 2**64},
            {1: 2},
            {True: 2},
            {b"a": 1},
        ),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_value_at_the_edge_of_a_format_has_one_encoding_and_comes_back(value: Any) -> None:
    """A list that was appended to item by item is compared with the encoding of the whole list."""
    data = encode(value)
    assert encode([value]) == b"\x91" + data
    assert encode([value, "\ud800"]) == b"\x92" + data + encode("\ud800")  # the list is taken apart in Python
    assert same(decode(data), value)


@pytest.mark.parametrize("other", [(1, 2), {3, 4}, Decimal("1.10"), samples.Colour.RED, samples.Point(1, 2)], ids=repr)
def test_what_is_encoded_is_what_was_looked_at_whatever_another_thread_does(other: Any) -> None:
    shared: list[Any] = [1, "a", None]
    done = Event()

    def flip() -> None:
        while not done.is_set():
            shared[1] = other
            shared[1] = "a"

    flipping = Thread(target=flip)
    flipping.start()
    try:
        found = [decode(encode(shared))[1] for _ in range(20_000)]
    finally:
        done.set()
        flipping.join()
    assert all(same(value, "a") or same(value, other) for value in found)


def test_sets_have_one_encoding_whatever_their_order() -> None:
    words = [f"word {number}" for number in range(100)]
    one, other = set(words), set[str]()
    for word in reversed(words):
        other.add(word)
    assert encode(one) == encode(other)
    assert encode(frozenset(one)) == encode(frozenset(other))
    assert encode(one) != encode(frozenset(one))


def test_the_order_of_a_dict_is_kept() -> None:
    for pairs in ({"b": 1, "a": 2}, {2: "b", 1: "a"}):
        assert list(decode(encode(pairs))) == list(pairs)
        assert encode(pairs) != encode(dict(reversed(pairs.items())))


def test_one_and_true_and_one_point_zero_are_three_values() -> None:
    assert len({encode(value) for value in (1, True, 1.0, "1", b"1")}) == 5
    assert [type(decode(encode(key))) for key in (1, True, 1.0)] == [int, bool, float]


def test_nan_keeps_its_bits() -> None:
    values = [float("nan"), -float("nan")]
    assert same(decode(encode(values)), values)
    assert portrait(values[0]) != portrait(values[1])


@pytest.mark.parametrize(
    "value",
    [bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a.b.c")[::2], memoryview(array("b", b"abc"))],
)
def test_bytearray_and_memoryview_become_bytes(value: Any) -> None:
    assert same(decode(encode([value])), [b"abc"])


@pytest.mark.parametrize("safety", list(SafeUUID))
def test_a_uuid_keeps_what_it_knows_of_its_safety(safety: SafeUUID) -> None:
    value = UUID(int=7, is_safe=safety)
    assert same(decode(encode(value)), value)


def test_a_decimal_is_exact_whatever_the_context() -> None:
    value = Decimal("1.000000000000000000000000000000000000001")
    with localcontext(Context(prec=3)):
        assert same(decode(encode(value)), value)


def test_what_looks_like_our_own_encoding_is_only_data() -> None:
    data = encode([samples.Note("x"), (1,)])
    lookalikes = [data, {"__type__": "tuple", "ext": 1}, [5, b"\x91\x01"], data.decode("latin-1")]
    assert same(decode(encode(lookalikes)), lookalikes)


def test_what_comes_back_is_a_copy() -> None:
    inner = [1]
    first, second = decode(encode([inner, inner]))
    assert first == second == inner
    assert first is not inner
    assert first is not second


def test_bytes_views_can_be_decoded_too() -> None:
    data = encode([1, (2,), 2**80])
    assert decode(memoryview(data)) == decode(bytearray(data)) == [1, (2,), 2**80]


@pytest.mark.parametrize("length", [1, 16, 17, 4096, 4097])
def test_short_and_long_values_have_encodings_of_one_kind(length: int) -> None:
    parts: list[Any] = ["x" * length, b"x" * length, [1] * length, {str(n): n for n in range(length)}, None, 1.5, (1,)]
    for part in parts:
        assert encode([part]) == b"\x91" + encode(part)
        assert encode({"k": part}) == b"\x81\xa1k" + encode(part)
        assert same(decode(encode({"k": [part]})), {"k": [part]})


@pytest.mark.parametrize("text", ["[[a]", "[a||b]", "[a&&b]"])
def test_a_pattern_that_python_warns_of_is_read_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pattern = re.compile(text)
    re.purge()
    assert decode(encode(pattern)) == pattern
