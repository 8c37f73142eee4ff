"""Inputs near the right ones: seeds with bytes flipped, cut, repeated, exchanged. A number always gives the same."""

from collections.abc import Callable, Sequence
from random import Random

TELLING = [
    *(bytes((byte,)) for byte in (0x00, 0x0F, 0x33, 0x55, 0x7F, 0x80, 0x81, 0x90, 0x91, 0xA0, 0xC0, 0xC1, 0xC7, 0xFF)),
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\0" * 7, b"\xcb\x7f\xf0" + b"\0" * 6, b"\xc0", b"\xc2", b"\x91" * 300),
    *(b"\xd6\xff\xff\xff\xff\xff", b"\xc9\0\0\0\0\x01", b"\xa4\xed\xa0\x80x", b"-1", b"9" * 5000, b"[" * 300, b"\0"),
]
"""What msgpack, JSON and numbers trip over: huge lengths, ends of ranges, deep nesting, broken text."""


def _flip(random: Random, data: bytearray, _: bytes) -> None:
    for _times in range(random.randint(1, 4)):
        at = random.randrange(len(data))
        data[at] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray, _: bytes) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _cut(random: Random, data: bytearray, _: bytes) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.choice((1, 2, 8, len(data)))]


def _insert(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice(TELLING)


def _overwrite(random: Random, data: bytearray, _: bytes) -> None:
    at, telling = random.randrange(len(data)), random.choice(TELLING)
    data[at : at + len(telling)] = telling


def _repeat(random: Random, data: bytearray, _: bytes) -> None:
    at = random.randrange(len(data))
    data[at:at] = data[at : at + random.choice((1, 4, 16))] * random.choice((1, 2, 100))


def _join(random: Random, data: bytearray, other: bytes) -> None:
    del data[random.randrange(len(data)) :]
    data += other[random.randrange(len(other) + 1) :]


MUTATIONS: Sequence[Callable[[Random, bytearray, bytes], None]] = (
    *(_flip, _set, _cut, _insert, _overwrite, _repeat, _join),
)


def mutated(number: int, seeds: Sequence[bytes]) -> bytes:
    """Input `number` that is made of these seeds."""
    random = Random(number)
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        random.choice(MUTATIONS)(random, data, random.choice(seeds))
        if not data:
            data += random.choice(TELLING)
    return bytes(data)
