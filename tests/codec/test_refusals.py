"""What cannot be stored exactly is refused at save, and the error says where it is and what to do."""

import asyncio
import datetime as dt
import enum
import zoneinfo
from array import array
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import msgspec
import ormsgpack
import pytest

from codec import samples
from codec.samples import Client, Note, Point
from holdfast.codec import decode, encode, storable
from holdfast.records.errors import CodecError, LimitExceeded, UnstorableValue


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Items(list[Any]):
    pass


class Ordered(OrderedDict[str, int]):
    pass


class Shade(enum.IntEnum):
    DARK = 1


class Place(NamedTuple):
    name: str


@dataclass
class Plan:
    steps: list[str]


class Special(Note):
    pass


class Zone(dt.tzinfo):
    def utcoffset(self, _moment: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def dst(self, _moment: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta()

    def tzname(self, _moment: dt.datetime | None) -> str:
        return "one hour east"


class SubPath(PurePosixPath):
    pass


def attributed(value: Any) -> Any:
    value.colour = "red"
    return value


def refusal(value: Any, path: str = "state") -> UnstorableValue:
    with pytest.raises(UnstorableValue) as caught:
        encode(value, path=path)
    return caught.value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Client(), "state"),
        ({"plan": [1, 2, 3, Note("x", rest=Client())]}, 'state["plan"][3].rest'),
        ({"a": {1: (0, {2: Client()})}}, 'state["a"][1][1][2]'),
        ([{Client()}], "state[0]{Client}"),
        ([{(1, Client()): 1}], "state[0].keys()[0][1]"),
        ([{Client(): 1}], "state[0].keys()[0]"),
        ({"\ud800": Client()}, r'state["\ud800"]'),
        ({'say "x"': Client()}, r'state["say \"x\""]'),
        ({"x" * 100: Client()}, f'state["{"x" * 60}"]'),
        ({b"k": Client(), None: 1}, "state[b'k']"),
        ({2**300: Client()}, f"state[{str(2**300)[:57]}...]"),
        ({(1,): Client()}, "state[tuple]"),
        ({frozenset({1.5}): [Client()]}, "state[frozenset][0]"),
        (frozenset({(1, len)}), "state{tuple}[1]"),
        (Point({"k": Client()}), 'state.x["k"]'),
        (samples.Pair(1, Client()), "state.right"),
        (samples.Event(name="e", data=(Client(),)), "state.data[0]"),
        (samples.Message(role="r", content=[Client()]), "state.content[0]"),
        (samples.Open.model_validate({"extra": Client()}), 'state.extra["extra"]'),
        (deque([0, Client()], 5), "state[1]"),
        (OrderedDict(a=[Client()]), 'state["a"][0]'),
        (Counter({"a": 1, Client(): 2}), "state.keys()[1]"),
        (defaultdict(list, a=[Client()]), 'state["a"][0]'),
        ({"d": defaultdict(Client)}, 'state["d"].default_factory'),
        ([defaultdict(lambda: 0)], "state[0].default_factory"),
        ([attributed(OrderedDict(a=1))], "state[0].colour"),
        ([attributed(Counter("a"))], "state[0].colour"),
        ([1, Fraction(1, 3**30_000)], "state[1]"),
    ],
)
def test_the_error_names_the_path_to_what_is_refused(value: Any, path: str) -> None:
    error = refusal(value)
    assert error.path == path
    assert str(error).startswith(f"{path}: ")


def test_the_path_begins_with_what_the_caller_calls_the_value() -> None:
    assert refusal([Client()], path='state["plan"]').path == 'state["plan"][0]'
    with pytest.raises(UnstorableValue, match=r"^value\[0\]: "):
        encode([Client()])


@pytest.mark.parametrize("value", [Client(), Plan([]), Shade.DARK, Place("x"), Special("x"), Note])
def test_an_unregistered_class_is_refused_with_the_line_that_helps(value: Any) -> None:
    name = type(value).__name__
    message = str(refusal({"k": value}))
    assert name in message
    if value is not Note:
        arguments = ", take=..., make=..." if isinstance(value, Client) else ""
        assert f"decorate the class with @holdfast.storable, or call holdfast.register({name}{arguments})" in message


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Text("x"), "str"),
        (Number(1), "int"),
        (Items(), "list"),
        (Ordered(a=1), "dict"),
    ],
)
def test_a_subclass_of_a_plain_type_is_refused_with_the_conversion_that_helps(value: Any, plain: str) -> None:
    assert f"convert it with {plain}(...)" in str(refusal([value]))


@pytest.mark.parametrize("key", [Text("x"), Number(1), Shade.DARK, Place("x")])
def test_keys_are_as_exact_as_values(key: Any) -> None:
    assert refusal({key: 1}).path == "state.keys()[0]"
    assert refusal({"a": 0, key: 1}).path == "state.keys()[1]"


@pytest.mark.parametrize(
    "value",
    [slice(1), memoryview, ChainMap({}), array("b"), len, int, ..., asyncio, Exception("x"), iter([]), SubPath("x")],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_is_refused(value: Any) -> None:
    assert refusal([value]).path == "state[0]"


def test_a_refusal_reads_as_a_sentence() -> None:
    assert "an object cannot be stored" in str(refusal(object()))
    assert "a slice cannot be stored" in str(refusal(slice(3)))


RAW_OBJECTS = {"msgspec.Ext": msgspec.msgpack.Ext(1, b"\x90"), "msgspec.Raw": msgspec.Raw(b"\x01")}


@pytest.mark.parametrize("value", RAW_OBJECTS.values(), ids=RAW_OBJECTS)
@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda value: value, "state"),
        (lambda value: [1, {"a": value}], 'state[1]["a"]'),
        (lambda value: {"t": (1, [value])}, 'state["t"][1][0]'),
        (lambda value: Note("x", rest={1: value}), "state.rest[1]"),
    ],
    ids=["itself", "plain", "tuple", "object"],
)
def test_raw_msgpack_objects_are_refused(value: object, place: Callable[[Any], Any], path: str) -> None:
    assert refusal(place(value)).path == path


@pytest.mark.parametrize("make", [list, tuple])
def test_raw_objects_of_the_c_encoder_are_stored_as_what_they_stand_for(make: Callable[[list[Any]], Any]) -> None:
    """It writes them without asking, and to search every value for them would take longer than to encode it."""
    assert decode(encode(make([ormsgpack.Fragment(b"\x01"), ormsgpack.Ext(1, b"\x90")]))) == make([1, ()])


@pytest.mark.parametrize("zone", [Zone(), zoneinfo.ZoneInfo.from_file])
def test_time_zones_without_a_key_are_refused(zone: Any) -> None:
    if not isinstance(zone, dt.tzinfo):
        with Path("/usr/share/zoneinfo/UTC").open("rb") as file:
            zone = zone(file)
    moment = dt.datetime(2026, 1, 2, tzinfo=zone)
    error = refusal([moment, moment.timetz()])
    assert error.path == "state[0]"
    assert "zoneinfo.ZoneInfo(key)" in str(error)


def test_a_path_that_does_not_read_back_as_itself_is_refused() -> None:
    path = PureWindowsPath("./c:stream")
    if PureWindowsPath(str(path)).parts == path.parts:  # since Python 3.12
        assert decode(encode(path)).parts == path.parts
    else:
        assert "would be loaded as another path" in str(refusal(path))


def test_attributes_beyond_the_fields_are_refused() -> None:
    note = Note("x")
    note.surprise = 1  # type: ignore[attr-defined]
    error = refusal({"notes": [note]})
    assert error.path == 'state["notes"][0].surprise'
    assert "would be lost" in str(error)


def test_slots_beyond_the_fields_are_refused_once_they_hold_something() -> None:
    class Base:
        __slots__ = ("__secret", "extra")

        def fill(self) -> None:
            self.__secret = 1

    @storable
    @dataclass(slots=True)
    class Slotted(Base):
        a: int

    value = Slotted(1)
    assert decode(encode(value)) == value
    value.fill()
    assert refusal(value).path == "state._Base__secret"


def test_a_field_that_is_not_set_is_refused() -> None:
    for value in (object.__new__(Point), samples.Message.model_construct(content=1)):
        assert "not set" in str(refusal(value))


def test_a_cached_property_is_left_out() -> None:
    @storable
    @dataclass
    class Circle:
        radius: float

        @cached_property
        def area(self) -> float:
            return 3 * self.radius**2

    circle = Circle(2.0)
    before = encode(circle)
    assert circle.area == 12.0
    assert encode(circle) == before
    assert vars(decode(before)) == {"radius": 2.0}


def test_an_error_of_the_values_own_code_is_told_with_its_path() -> None:
    @storable
    @dataclass
    class Lazy:
        a: int

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise LookupError("gone")
            return super().__getattribute__(name)

    error = refusal([object.__new__(Lazy)])
    assert error.path == "state[0]"
    assert "gone" in str(error)
    assert isinstance(error.__cause__, LookupError)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_is_not_swallowed(interruption: type[BaseException]) -> None:
    @storable
    @dataclass
    class Slow:
        a: int

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise interruption
            return super().__getattribute__(name)

    with pytest.raises(interruption):
        encode([object.__new__(Slow)])
    assert isinstance(UnstorableValue("x"), CodecError)


@pytest.mark.parametrize(("error", "seen"), [(MemoryError, MemoryError), (RecursionError, LimitExceeded)])
def test_running_out_of_memory_or_stack_on_the_way_to_the_path_is_not_blamed_on_the_value(
    error: type[Exception], seen: type[Exception]
) -> None:
    errors: list[type[Exception]] = [ValueError, error]

    @storable
    @dataclass
    class Unlucky:
        a: int

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise errors.pop(0)
            return super().__getattribute__(name)

    with pytest.raises(seen):
        encode(object.__new__(Unlucky))


def test_a_key_of_thousands_of_digits_is_named_in_the_path_all_the_same() -> None:
    with pytest.raises(UnstorableValue, match=r"^value\[0x[0-9a-f]+\.\.\.\]: "):
        encode({10**5000: object()})
