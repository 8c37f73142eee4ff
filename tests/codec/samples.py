"""Classes to store, one of each kind, and values that hold all of them."""

import enum
import re
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic

from holdfast.codec import register, storable

T = TypeVar("T")


@storable
@dataclass
class Note:
    text: str
    rest: Any = None
    log: list[Any] = field(default_factory=list, init=False)


@storable(name="point")
@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


@storable
class Colour(enum.Enum):
    RED = "r"
    GREEN = (1, 2)


@storable
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2**70


@storable
class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


@storable
class Permission(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 2**70


@storable
class Pair(NamedTuple):
    left: Any
    right: Any = None


Triple = namedtuple("Triple", "a b c")  # noqa: PYI024  the untyped kind is one of the kinds
register(Triple)


@storable
class Event(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    data: Any = None


@storable
class Counted(msgspec.Struct):
    count: int

    def __post_init__(self) -> None:
        self.count += 1


@storable
class Message(pydantic.BaseModel):
    role: str
    content: Any = None
    _seen: int = pydantic.PrivateAttr(default=0)


@storable
class Open(pydantic.BaseModel, extra="allow", frozen=True):
    name: str = ""


class Box(pydantic.BaseModel, Generic[T]):
    item: T


IntBox = register(Box[int])


class Client:
    """Not storable: nothing says what it consists of."""


def counted(count: int) -> Counted:
    """A Counted whose constructor has left its mark already."""
    return Counted(count - 1)


def seen(message: Message, count: int) -> Message:
    """The message, with its private attribute set."""
    message._seen = count
    return message


BERLIN = ZoneInfo("Europe/Berlin")

FACTORIES: list[Any] = [int, str, float, dict, set, tuple, deque, Counter, OrderedDict]

PLAIN: list[Any] = [
    *(None, True, False, 0, 1, -1, 127, 128, -32, -33, 2**32, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 1.0, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", "a", "\0", "é" * 40, "x" * 300, "x" * 70_000, b"", b"\xff" * 300, b"x" * 70_000),
    *([], [1, [2, [3]]], [None] * 20, [1] * 70_000, {}, {"a": {"b": []}}, {str(i): i for i in range(20)}),
]

SPECIAL: list[Any] = [
    *(2**64, -(2**63) - 1, 2**4000, -(2**4000), "\ud800", "a\udfffb", {"\ud800": 1}),
    *((), (1, "a"), ((),), set(), {1, "a", None}, frozenset(), frozenset({(1, 2), frozenset({3})})),
    *({1: 2}, {True: "x"}, {1.5: "x", None: 0, b"k": 1, (1, "a"): 2, frozenset({1}): 3}, {"a": 1, 2: "b"}),
    *(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    *(datetime(2026, 1, 2), datetime(2026, 1, 2, fold=1), datetime(2026, 1, 2, tzinfo=UTC, fold=1)),  # noqa: DTZ001
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3, microseconds=7))),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2), "CEST")),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(0), "")),
    *(date.min, date.max, time(), time(1, 2, 3, 4, tzinfo=UTC, fold=1), time(5, tzinfo=BERLIN)),
    *(timedelta(), timedelta.min, timedelta.max, timedelta(-1, 5, 7)),
    *(Decimal(), Decimal("-0.00"), Decimal("1.50"), Decimal("1E+999999"), Decimal("NaN12"), Decimal("-sNaN")),
    *(Decimal("Infinity"), UUID(int=5), UUID(int=2**128 - 1)),
    *(deque(), deque([1, (2,)]), deque([1, 2], 2), deque(maxlen=0), OrderedDict(), OrderedDict({"b": 1, 2: "a"})),
    *(Counter(), Counter("abca"), Counter({(1, 2): -1.5}), defaultdict(list, {1: [2]}), defaultdict(None, a=1)),
    *(defaultdict(factory, a=1) for factory in FACTORIES),
    *map(ip_address, ("10.0.0.1", "0.0.0.0", "::1", "fe80::1%eth0")),
    *map(ip_network, ("10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0", "10.1.2.3")),
    *map(ip_interface, ("10.0.0.1/8", "2001:db8::1/32", "fe80::1%eth0/64", "10.1.2.3")),
    *(re.compile(""), re.compile("a(?P<b>.)[x-z]", re.IGNORECASE | re.VERBOSE), re.compile(b"\xff+", re.LOCALE)),
    *(re.compile("(?ms)\ud800é"), re.compile("(?i:ä)", re.ASCII), re.compile("[\u4e00-\u9fff]", re.IGNORECASE)),
    *(UTC, timezone(timedelta(hours=2), "CEST"), timezone(timedelta(0), ""), BERLIN, ZoneInfo("UTC")),
    *(Fraction(), Fraction(-1, 3), Fraction(2**200, 3**100), 0j, complex("nan-0j"), complex(-0.0, float("inf"))),
    *(range(0), range(3, 9, 2), range(2**80, 5, -1), {range(2): {1j: Fraction(1, 2)}}),
    *(Path("/a/b"), Path(), PurePosixPath("//x/\udcff"), PureWindowsPath("c:/x/y")),
]

OBJECTS: list[Any] = [
    *(Note("a"), Note("b", rest=[Note("c")]), Point(1, 2), Point((1,), {"k": Point(3)})),
    *(Colour.RED, Colour.GREEN, Level.LOW, Level.HIGH, Word.YES),
    *(Permission.READ, Permission.READ | Permission.RUN, Permission(0)),
    *(Pair(1, 2), Pair((1, 2), Pair(None)), Triple(1, 2, 3), Event(name="e", data={1}), counted(5)),
    *(Message(role="user"), Message(role="user", content=[Message(role="x")]), seen(Message(role="u"), 7)),
    *(Open(), Open(name="n"), Open.model_validate({"name": "n", "more": (1, 2)}), IntBox(item=3)),
    *({Colour.RED: 1, Word.YES: 2, Point(1): 3, Pair(1, 2): 4}, {Permission.READ, Level.LOW}),
]

EVERYTHING: list[Any] = [*PLAIN, *SPECIAL, *OBJECTS]
