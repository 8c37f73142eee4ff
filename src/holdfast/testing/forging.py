"""An attacker who may write to the store and has no key: changes fields, and fixes every digest that needs none."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
from msgspec.structs import replace

from holdfast.history.binding import BLOB_ID_BYTES, place_of
from holdfast.history.format import APPEND_FLAGS, CRC_BYTES, KEYFRAME
from holdfast.records.head import Head, encode_head
from holdfast.records.rows import Drop, Row
from holdfast.stores.agenda import swap_of
from holdfast.stores.backend import Backend
from holdfast.stores.copying import snapshot

FIELDS = ("flags", "body_size", "meta", "since", "blobs", "blob_sizes", "parent")
"""The fields of a row's header, in order."""
LEASE = frozenset({"token", "owner", "expires_at"})
"""The fields of a head that no key authenticates: they decide who may write, never what is loaded."""
_DEFAULTS: tuple[Any, ...] = (0, 0, b"", 0, b"", [], b"")
_ARRAYS = 0x80

Fields: TypeAlias = list[Any]
Change: TypeAlias = Callable[[Fields], None]


def fields_of(row: Row) -> Fields:
    """Return the fields of a row's header, with defaults for those that are left out."""
    stored = row.header[:-CRC_BYTES]
    if stored[0] < _ARRAYS:
        return [APPEND_FLAGS, int.from_bytes(stored[1:3], "big"), b"\x0f\x91\xcf\0" + stored[3:], 0, b"", [], b""]
    found: Fields = msgspec.msgpack.decode(stored)
    return [*found, *_DEFAULTS[len(found) :]]


def other(value: Any) -> Any:
    """Return another value of the same type, as similar as possible."""
    if isinstance(value, bytes):
        return bytes((*value[:-1], value[-1] ^ 1)) if value else b"\x01"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return "complete" if value == "failed" else "failed"
    if isinstance(value, (list, tuple)):
        return type(value)([*value[:-1], other(value[-1])] if value else [1])
    return replace(value, floor=value.floor + 1)


def changed(name: str) -> Change:
    """Change one field of a header."""

    def change(fields: Fields) -> None:
        position = FIELDS.index(name)
        fields[position] = other(fields[position])

    return change


def swap_blobs(fields: Fields) -> None:
    """Let the row refer to its blobs in the opposite order."""
    blobs = fields[4]
    ids = [blobs[at : at + BLOB_ID_BYTES] for at in range(0, len(blobs), BLOB_ID_BYTES)]
    fields[4], fields[5] = b"".join(reversed(ids)), fields[5][::-1]


class Forger:
    """Everything that is stored of one thread, to be changed and put back."""

    def __init__(self, backend: Backend, thread: bytes) -> None:
        found = snapshot(backend, thread)
        assert found is not None, "there is nothing to forge"
        self._backend = backend
        self._thread = thread
        self.head: Head = found.head
        self.rows: Sequence[Row] = found.rows
        self.blobs: Mapping[bytes, bytes] = found.blobs

    def forged_rows(self, seq: int, change: Change) -> list[Row]:
        """Return the rows with a change to the header of row `seq`, and correct unkeyed digests from there on."""
        forged: list[Row] = []
        digests: dict[int, bytes] = {}
        for row in self.rows:
            parent = digests.get(row.seq - 1, b"")
            forged.append(self._again(row, parent, change if row.seq == seq else None) if row.seq >= seq else row)
            digests[row.seq] = forged[-1].digest
        return forged

    def _again(self, row: Row, parent: bytes, change: Change | None) -> Row:
        fields = fields_of(row)
        if change is not None:
            change(fields)
        elif fields[0] & KEYFRAME and fields[6]:
            fields[6] = parent
        identity, place = self._thread + self.head.incarnation, place_of(row.seq, row.seq - row.base)
        data = msgspec.msgpack.encode(fields)
        header = data + crc32(data, crc32(place, crc32(identity))).to_bytes(CRC_BYTES, "big")
        above = fields[6] if fields[0] & KEYFRAME else parent
        digest = sha256(identity + above + place + header + row.body).digest()[: len(row.digest)]
        return replace(row, header=header, digest=digest)

    def plant(
        self,
        rows: Sequence[Row] | None = None,
        blobs: Mapping[bytes, bytes] | None = None,
        encoded: bytes | None = None,
        **head: Any,
    ) -> None:
        """Replace all that is stored with these, under a matching head with these fields changed.

        `encoded` are bytes to store as the head, valid or not.
        """
        rows, blobs = self.rows if rows is None else rows, self.blobs if blobs is None else blobs
        forged = replace(self.head, **{"digest": rows[-1].digest, **head})
        stored = self._backend.heads([self._thread])[0] or b""
        replacement = encode_head(self._thread, forged) if encoded is None else encoded
        everything = Drop(everything=True)
        rows, blobs = tuple(rows), dict(blobs)
        swap = swap_of(self._thread, self.head, stored, forged, replacement, rows, blobs, (), everything)
        assert self._backend.swap([swap]) == [True], "the forger could not write"
