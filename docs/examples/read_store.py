#!/usr/bin/env python3
"""Read an unencrypted SQLite store without holdfast: the proof of docs/storage-format.md.

    python read_store.py agents.db                 the threads
    python read_store.py agents.db THREAD [SEQ]    the state of a thread, as it is or as it was at a checkpoint

Every digest on the way is checked. Only zstd is needed beside the standard library, where something is compressed.
"""

import sqlite3
import struct
import sys
import zlib
from hashlib import sha256
from typing import Any, NamedTuple

LIST, MAP = 1, 2
TUPLE, SET, FROZENSET, MAPPING = 1, 2, 3, 4
NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xC7: ">B", 0xC8: ">H", 0xC9: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
SIZES |= {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


class Ext(NamedTuple):
    """An extension that is not opened here: a date, a Decimal, an object of the program's own."""

    code: int
    data: bytes


class Unpacker:
    """A msgpack decoder, with Holdfast's containers."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        first = self.take(1)[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in {0xC0, 0xC2, 0xC3}:
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in NUMBERS:
            return self.number(NUMBERS[first])
        if 0xD4 <= first <= 0xD8:
            return self.extension(1 << (first - 0xD4))
        if first < 0xC0:  # the size is in the first byte
            size = first & (0x1F if first >= 0xA0 else 0x0F)
        else:
            size = self.number(SIZES[first])
        if 0xC7 <= first <= 0xC9:
            return self.extension(size)
        if first < 0x90 or first in {0xDE, 0xDF}:
            return {self.value(): self.value() for _ in range(size)}
        if first < 0xA0 or first in {0xDC, 0xDD}:
            return [self.value() for _ in range(size)]
        return self.take(size) if 0xC4 <= first <= 0xC6 else self.take(size).decode()

    def extension(self, size: int) -> Any:
        code, data = self.number(">b"), self.take(size)
        if code == MAPPING:
            items = Unpacker(data).value()
            return dict(zip(items[::2], items[1::2], strict=True))
        return {TUPLE: tuple, SET: set, FROZENSET: frozenset}[code](Unpacker(data).value()) if code < 4 else Ext(code, data)


def unpack(data: bytes) -> Any:
    return Unpacker(data).value()


def unseal(data: bytes) -> bytes:
    if data[:1] == b"\x0f":
        return data[1:]
    require(data[:1] == b"\x33", "sealed bytes are encrypted")
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return bytes(zstd.decompress(data[1:]))


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)
