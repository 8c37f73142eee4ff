"""Somebody who may write to the store and has no key: changes a field, and makes every digest right that needs none."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from holdfast.history.binding import place_of
from holdfast.records.head import Head, decode_head, encode_head
from holdfast.records.rows import Row

CRC_BYTES = 4
KEYFRAME = 1
FIELDS = ("flags", "body_size", "meta", "since", "blobs", "blob_sizes", "parent")
SHORT_BYTES = 10

Fields = list[Any]
Change = Callable[[Fields], None]


def fields_of(row: Row) -> Fields:
    """The fields of a row's header; those that are left out have their defaults."""
    stored = row.header[:-CRC_BYTES]
    if stored[0] < 0x80:  # the short form of an append
        return [stored[0], int.from_bytes(stored[1:3], "big"), b"\x0f\x91\xcf\0" + stored[3:10], 0, b"", [], b""]
    found: Fields = msgspec.msgpack.decode(stored)
    return found + [None, None, None, 0, b"", [], b""][len(found) :]


def forged_rows(thread: bytes, incarnation: bytes, rows: list[Row], at: int, change: Change) -> list[Row]:
    """The rows, with a change to the header of row `at`, and every checksum and unkeyed digest after it made right."""
    identity, forged = thread + incarnation, list[Row]()
    before: dict[int, bytes] = {}
    for row in rows:
        fields, parent = fields_of(row), before.get(row.seq - 1, b"")
        if row.seq == at:
            change(fields)
        elif fields[0] & KEYFRAME and fields[6] and parent:
            fields[6] = parent
        touched = row.seq >= at
        forged.append(_resigned(identity, row, fields, parent) if touched else row)
        before[row.seq] = forged[-1].digest
    return forged


def _resigned(identity: bytes, row: Row, fields: Fields, parent: bytes) -> Row:
    place = place_of(row.seq, row.seq - row.base)
    data = msgspec.msgpack.encode(fields)
    header = data + crc32(data, crc32(place, crc32(identity))).to_bytes(CRC_BYTES, "big")
    above = fields[6] if fields[0] & KEYFRAME else parent
    digest = sha256(identity + above + place + header + row.body).digest()[: len(row.digest)]
    return replace(row, header=header, digest=digest)


def forged_head(thread: bytes, encoded: bytes, **changes: Any) -> bytes:
    """The head with other fields, and its digest made right."""
    return encode_head(thread, replace(decode_head(thread, encoded), **changes))


def head_of(thread: bytes, encoded: bytes) -> Head:
    """What the head says."""
    return decode_head(thread, encoded)
