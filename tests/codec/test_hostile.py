"""Stored bytes are data, whatever they say: only our errors come of them, and nothing is imported, run or opened."""

import importlib
import random
import re
import sys
import textwrap
import tracemalloc
import zoneinfo
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import count, islice
from pathlib import Path
from threading import get_ident
from time import process_time
from types import ModuleType
from typing import Any

import pytest
from msgspec import msgpack

from codec.samples import OBJECTS, PLAIN, SPECIAL
from holdfast.codec import decode, encode, times
from holdfast.records.errors import CodecError, IncompatibleCheckpoint, LimitExceeded, UnknownType, UnstorableValue

ROUNDS = 20_000
FORBIDDEN = ("import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.")

_watched = 0
"""The thread that decodes; others may still be at what earlier tests left."""
_events: list[tuple[str, tuple[Any, ...]]] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched == get_ident() and event.startswith(FORBIDDEN) and not _is_zone(event, arguments):
        _events.append((event, arguments))


def _is_zone(event: str, arguments: tuple[Any, ...]) -> bool:
    """Reading a time zone that exists from the system's database is what restoring a ZoneInfo takes."""
    return event == "open" and str(arguments[0]).startswith(zoneinfo.TZPATH)


sys.addaudithook(_watch)


@contextmanager
def nothing_but_decoding() -> Iterator[None]:
    """Fail if anything is imported, compiled, run or opened inside."""
    global _watched  # noqa: PLW0603  an audit hook cannot be removed
    _events.clear()
    _watched = get_ident()
    try:
        yield
    finally:
        _watched = 0
    assert _events == []


PATTERN = b"s\x00\x00\x00\x20"
"""The beginning of a stored pattern: text, with the flag U."""


def corpus() -> list[bytes]:
    values = [*PLAIN, *SPECIAL, *OBJECTS, SPECIAL, OBJECTS]
    return [data for data in map(encode, values) if len(data) < 4000]


def mutated(chance: random.Random, samples: list[bytes]) -> bytes:
    """A stored value, damaged in one of the ways that damage comes; or bytes that are nothing at all."""
    data = bytearray(chance.choice(samples))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        position, kind = chance.randrange(len(data) + 1), chance.randrange(7)
        if kind == 0:
            data[position : position + 1] = bytes((chance.randrange(256),))
        elif kind == 1 and position < len(data):
            data[position] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[position : position + chance.randrange(1, 9)]
        elif kind == 3:
            data[position:position] = chance.choice(samples)[: chance.randrange(1, 40)]
        elif kind == 4:
            data[position:] = b""
        elif kind == 5:
            data[position:position] = bytes((0xC7, chance.randrange(20), chance.randrange(30)))
        else:
            data = bytearray(chance.randbytes(chance.randrange(1, 40)))
    return bytes(data)


def test_damaged_and_random_bytes_give_a_value_or_an_error_of_ours() -> None:
    chance, samples = random.Random(20_261), corpus()
    times._available()  # the list of zones is read once, at the first unknown one
    for data in samples:
        decode(data)
    inputs = [mutated(chance, samples) for _ in range(ROUNDS)]
    values = errors = 0
    with nothing_but_decoding():
        for data in inputs:
            try:
                decode(data)
                values += 1
            except (CodecError, IncompatibleCheckpoint):
                errors += 1
    assert values + errors == ROUNDS
    assert min(values, errors) > ROUNDS // 20


def test_whatever_decodes_can_be_stored_again() -> None:
    chance, samples = random.Random(7), corpus()
    for _ in range(2000):
        try:
            value = decode(mutated(chance, samples))
        except (CodecError, IncompatibleCheckpoint):
            continue
        assert encode(decode(encode(value))) == encode(value)


def import_something() -> None:
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")


@pytest.mark.parametrize("deed", [import_something, Path("/dev/null").read_bytes, lambda: eval("1")])
def test_the_watch_itself_notices(deed: Callable[[], object]) -> None:
    with pytest.raises(AssertionError), nothing_but_decoding():
        deed()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        encode([1]) + b"\x00",
        encode("x" * 50)[:-1],
        b"\xa1\xff",
        b"\xa3\xed\xa0\x80",
        b"\x91",
        b"\x81\xa1k",
        b"\x81\x80\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\xa1a\x01",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffx",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 150 + b"\xdd\x0f\xff\xff\xff",
        b"\xdd\x00\x00\xff\xff" * 60,
    ],
    ids=lambda data: data[:12].hex() or "empty",
)
def test_bytes_that_are_no_encoding_are_refused_at_no_cost(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(CodecError):
        decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def extension(code: int, payload: bytes) -> bytes:
    return b"\xc9" + len(payload).to_bytes(4, "big") + bytes((code & 0xFF,)) + payload


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (0, b""),
        (6, b"\x90"),
        (11, b"\x90"),
        (127, b"x"),
        (-2, b"x"),
        (-1, b"abc"),
        (1, b""),
        (1, b"\x01"),
        (1, b"\x80"),
        (1, b"\x90\x90"),
        (2, b"\x92\x01\x01"),
        (2, b"\x91\x90"),
        (3, b"\x91\x80"),
        (4, b"\x91\x01"),
        (4, b"\x92\x90\x01"),
        (4, b"\x94\x01\x02\x01\x03"),
        (5, b"\x92\x01\x01"),
        (5, b"\x93\x01\x01\x80"),
        (5, b"\x93\xa5point\xa11\x80"),
        (5, b"\x93\xa5point\x01\x90"),
        (5, b"\x93\xa5point\x00\x80"),
        (5, b"\x93\xa5point\xc3\x80"),
        (5, b"\x93\xa5point\x01\x81\xa1z\x01"),
        (5, b"\x93\xb3codec.samples.Event\x01\x81\x01\x02"),
        (5, b"\x93\xb5codec.samples.Message\x01\x81\x01\x02"),
        (5, b"\x93\xb4codec.samples.Colour\x01\x90"),
        (17, b"\xff"),
        (18, b"short"),
        (18, b"\x00\x00\x01\x01" + bytes(7)),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"o"),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"o\x7f" + bytes(11)),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"zNowhere/Land"),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"z../../etc/passwd"),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"z/etc/passwd"),
        (18, b"\x07\xea\x01\x01" + bytes(7) + b"z" + b"x" * 70),
        (18, b"\x07\xea\x01\x01" + bytes(7) + "zÉurope".encode()),
        (19, b"\x00"),
        (20, b"\xff" * 7),
        (21, b"\x7f\xff\xff\xff" + bytes(8)),
        (22, b"1_000"),
        (22, b" 1"),
        (22, b"x"),
        (22, "\N{ARABIC-INDIC DIGIT ONE}".encode()),
        (23, b"short"),
        (23, bytes(16) + b"\x05"),
        (24, b""),
        (24, b"\x09x"),
        (24, b"\x03c:/x"),
        (6, b"\x92\xa1x\x90"),
        (6, b"\x92\x01\x92\x01\x02"),
        (6, b"\x92\xff\x90"),
        (6, b"\x92\xc0\xa2ab"),
        (7, b"\x92\xa4eval\x90"),
        (7, b"\x92\xa4open\x90"),
        (7, b"\x92\x90\x90"),
        (7, b"\x92\xc0\x91\x01"),
        (8, b"\x91\x01"),
        (8, b"\x94\x01\x02\x01\x03"),
        (9, b"\x92\x90\x01"),
        (10, b"\x93\x01\x02\x00"),
        (10, b"\x93\x01\x02\xc3"),
        (10, b"\x91\x01"),
        (25, b""),
        (25, b"zNowhere/Land"),
        (25, b"z../../etc/passwd"),
        (26, b""),
        (26, b"\x09::1"),
        (26, b"\x00300.1.1.1"),
        (26, b"\x0210.0.0.1/8"),
        (26, b"\x01::0001"),
        (27, b"s"),
        (27, b"x" + bytes(4) + b"a"),
        (27, b"s" + bytes(4) + b"a"),  # a pattern of str has the flag U
        (27, PATTERN + b"("),
        (27, PATTERN + b"(" * 5000),
        (27, PATTERN + b"a" * 10_001),
        (27, PATTERN + b"[a]" * 101),
        (27, b"s\x00\x00\x00\xa0a"),  # DEBUG prints
        (28, b""),
        (28, b"\x00\x00\x00\x01\x02\x04"),
        (28, b"\x00\x00\x00\x01\x01\x00"),
        (28, b"\xff\xff\xff\xff\x01\x01"),
        (28, b"\x00\x00\x10\x01" + b"\x01" * 4097 + b"\x01"),
        (29, b"short"),
    ],
    ids=lambda part: part[:30].hex() if isinstance(part, bytes) else str(part),
)
def test_an_extension_with_the_wrong_content_is_refused(code: int, payload: bytes) -> None:
    for data in (extension(code, payload), b"\x91" + extension(code, payload)):
        with pytest.raises((CodecError, IncompatibleCheckpoint)):
            decode(data)


@pytest.mark.large
@pytest.mark.parametrize(
    "pattern",
    ["a" * 10_000, "[\0-\uffff]" * 100, "(?i)" + "[\0-\U0010ffff]" * 10, "(?mi:" + "[^\u00ff-\uffff]" * 10 + ")"],
    ids=["long", "wide", "ignore case", "group that ignores case"],
)
def test_the_slowest_pattern_that_is_stored_compiles_soon(pattern: str) -> None:
    data = encode(re.compile(pattern))
    re.purge()
    before = process_time()
    assert decode(data).pattern == pattern
    assert process_time() - before < 5  # 0.2 s, on a machine that is not busy
    slower = pattern + "[\uffff]"
    with pytest.raises(UnstorableValue, match="store its text"):
        encode(re.compile(slower))


def test_a_class_that_is_defined_later_is_found_without_evaluating_anything() -> None:
    source = """
        from __future__ import annotations
        from dataclasses import dataclass
        from holdfast.sync import step
        @step
        def first() -> list[Later]: ...
        @dataclass
        class Later:
            even: EvenLater
        @dataclass
        class EvenLater:
            a: int
    """
    module = ModuleType("defined_later")
    sys.modules["defined_later"] = module
    exec(textwrap.dedent(source), module.__dict__)
    inner = extension(5, b"\x93" + msgpack.encode("defined_later.EvenLater") + b"\x01\x81\xa1a\x05")
    data = extension(5, b"\x93" + msgpack.encode("defined_later.Later") + b"\x01\x81\xa4even" + inner)
    with nothing_but_decoding():
        assert decode(data) == module.Later(module.EvenLater(5))
    del sys.modules["defined_later"]


def test_an_unknown_extension_is_named() -> None:
    with pytest.raises(CodecError, match="unknown extension code 99"):
        decode(extension(99, b""))


def test_a_stored_name_is_looked_up_and_never_imported() -> None:
    sys.modules.pop("antigravity", None)
    with nothing_but_decoding(), pytest.raises(UnknownType):
        decode(extension(5, b"\x93\xb1antigravity.hello\x01\x80"))
    assert "antigravity" not in sys.modules


def test_a_key_that_is_stored_twice_is_refused_where_it_would_matter() -> None:
    for data in (extension(4, b"\x94\x01\x02\x01\x03"), extension(2, b"\x92\x01\xc3")):
        with pytest.raises(CodecError, match="twice"):
            decode(data)
    assert decode(b"\x82\xa1a\x01\xa1a\x02") == {"a": 2}  # in plain maps the last one stands, as in JSON


def test_timestamps_are_read_as_msgpack_defines_them() -> None:
    assert decode(b"\xd6\xff\x00\x00\x00\x00") == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_lie_about_depth_costs_no_stack() -> None:
    with pytest.raises(LimitExceeded):
        decode(b"\x91" * 1_000_000)


MODULUS = 2**61 - 1
EQUAL: dict[str, Callable[[int], Any]] = {
    "int": lambda number: number * MODULUS,
    "negative": lambda number: -number * MODULUS,
    "Decimal": lambda number: Decimal(number * MODULUS),
    "Fraction": lambda number: Fraction(2 * number * MODULUS + MODULUS, 2),
    "tuple": lambda number: (number * MODULUS, 1),
    "deep": lambda number: (1, (number * MODULUS,)),
    "frozenset": lambda number: frozenset({number * MODULUS}),
}
HOLDERS: dict[str, tuple[int, Callable[[list[Any]], Any]]] = {
    "set": (2, lambda keys: keys),
    "frozenset": (3, lambda keys: keys),
    "dict": (4, lambda keys: [part for key in keys for part in (key, None)]),
    "defaultdict": (7, lambda keys: [None, [part for key in keys for part in (key, None)]]),
    "OrderedDict": (8, lambda keys: [part for key in keys for part in (key, None)]),
    "Counter": (9, lambda keys: [part for key in keys for part in (key, 1)]),
}


@pytest.mark.large
@pytest.mark.parametrize("make", EQUAL.values(), ids=EQUAL)
@pytest.mark.parametrize(("code", "hold"), HOLDERS.values(), ids=HOLDERS)
def test_equal_hashes_are_refused_before_they_cost_anything(
    code: int, hold: Callable[[list[Any]], Any], make: Callable[[int], Any]
) -> None:
    data = extension(code, encode(hold([make(number) for number in range(1, 3001)])))
    before = process_time()
    with pytest.raises(LimitExceeded, match="same hash"):
        decode(data)
    assert process_time() - before < 2


@pytest.mark.parametrize("make", [set, frozenset, dict.fromkeys, OrderedDict.fromkeys, Counter])
def test_equal_hashes_are_refused_at_save_too_and_a_few_are_accepted(make: Callable[[list[Any]], Any]) -> None:
    few = make([number * MODULUS for number in range(32)])
    assert decode(encode(few)) == few
    with pytest.raises(LimitExceeded, match="33 members with the same hash"):
        encode([make([number * MODULUS for number in range(33)])])


def test_many_small_groups_of_equal_hashes_are_accepted() -> None:
    """-1 and -2 have the same hash, so the points of a grid have, in pairs."""
    grid = {(x, y, z) for x in range(-20, 20) for y in range(-20, 20) for z in range(-3, 3)}
    assert len(set(map(hash, grid))) < len(grid)
    assert decode(encode(grid)) == grid


def test_a_plain_dict_with_extensions_as_keys_is_refused_however_short() -> None:
    """The C decoder would make it of numbers whose hashes are all 0, in quadratic time."""
    opening = {*range(0x80, 0xA0), *range(0xDC, 0xE0)}  # of these bytes only few may be in it, to pass for a flat one
    numbers = (encode((2**61 - 1) * number) for number in count(100))
    keys = list(islice((each for each in numbers if opening.isdisjoint(each)), 4000))
    data = b"\xde" + len(keys).to_bytes(2, "big") + b"".join(key + b"\xc0" for key in keys)
    assert len(data) < 1 << 16
    with pytest.raises(CodecError):
        decode(data)
