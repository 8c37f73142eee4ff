"""The encoding of a value is part of the storage format: these bytes stay as they are."""

from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from ipaddress import ip_address
from pathlib import PurePosixPath
from re import compile as compile_pattern
from typing import Any
from uuid import UUID

import pytest

from codec.samples import BERLIN, EVERYTHING, Colour, Event, Message, Note, Pair, Permission
from holdfast.codec import encode

VALUES: list[Any] = [
    *(None, True, -33, 2**64 - 1, 1.5, "ä", b"\xff", [1, [2]], {"a": {"b": []}}),
    *(2**64, "\ud800", (1, "a"), {2, 1, "a"}, frozenset({(1, 2)}), {1: 2, "a": None}),
    *(deque([1], 2), defaultdict(list, a=[1]), OrderedDict(b=1), Counter("aab"), range(1, 9, 2)),
    *(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
    *(date(2026, 1, 2), time(1, 2, 3, 4), timedelta(-1, 5, 7), BERLIN, UTC),
    *(
        Decimal("1.50"),
        UUID(int=5),
        PurePosixPath("a/b"),
        ip_address("::1"),
        compile_pattern("a+"),
        Fraction(-1, 3),
    ),
    *(2j, Note("t", rest=(1,)), Pair(1), Event(name="e"), Message(role="u"), Colour.RED, Permission.READ),
]
BYTES = [
    "c0",
    "c3",
    "d0df",
    "cfffffffffffffffff",
    "cb3ff8000000000000",
    "a2c3a4",
    "c401ff",
    "92019102",
    "81a16181a16290",
    "c70910010000000000000000",
    "c70311eda080",
    "d6019201a161",
    "c70502930102a161",
    "c7070391c70301920102",
    "c70604940102a161c0",
    "d60692029101",
    "c70b0792a46c69737492a1619101",
    "d60892a16201",
    "c7070994a16102a16201",
    "d60a93010902",
    "d7ff00005dc0695735a5",
    "c7191207ea0a19021e00800000007a4575726f70652f4265726c696e",
    "d61307ea0102",
    "c7071401020300000004",
    "c70c15ffffffff0000000500000007",
    "c70e197a4575726f70652f4265726c696e",
    "c70d196f000000000000000000000000",
    "d616312e3530",
    "d81700000000000000000000000000000005",
    "d61800612f62",
    "d61a013a3a31",
    "c7071b7300000020612b",
    "c7061c00000001ff03",
    "d81d00000000000000004000000000000000",
    "c72b0593b2636f6465632e73616d706c65732e4e6f74650183a474657874a174a472657374d5019101a36c6f6790",
    "c7230593b2636f6465632e73616d706c65732e506169720182a46c65667401a57269676874c0",
    "c7240593b3636f6465632e73616d706c65732e4576656e740182a46e616d65a165a464617461c0",
    "c7450593b5636f6465632e73616d706c65732e4d6573736167650184a4726f6c65a175a7636f6e74656e74c0a43a73657491a4726f6c65a83a7072697661746581a55f7365656e00",
    "c71b0593b4636f6465632e73616d706c65732e436f6c6f757201a3524544",
    "c71c0593b8636f6465632e73616d706c65732e5065726d697373696f6e0101",
]


@pytest.mark.parametrize(("value", "stored"), list(zip(VALUES, BYTES, strict=True)), ids=BYTES)
def test_the_encoding_of_each_kind_of_value_stays_as_it_is(value: Any, stored: str) -> None:
    assert encode(value).hex() == stored


def test_the_encoding_of_all_kinds_of_values_in_one_list_stays_as_it_is() -> None:
    digest = "61d5ecc3a5eb562f9dac96d40a1b791f26ac1fc2b9cef51d994b616190fa778b"
    assert sha256(encode(EVERYTHING)).hexdigest() == digest
