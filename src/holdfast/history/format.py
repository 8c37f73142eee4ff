"""The bytes of a row: a header that can be read without a key, the sealed metadata in it, and a sealed body.

header  [flags, body size, sealed metadata, since, blob ids, blob sizes, parent] + CRC-32
        or, for most rows that only append, ten bytes with the flags, the body's size and the time, and the CRC-32
body    [paths or nil, [[index, kind, count, operation …] …], [size of each blob]]
        or, for a row that only appends one item to one list, one byte with the index, and the item's encoding

The header alone is enough to list and to prune; the CRC protects it where the body is not read. A row's digest covers
both, and the digest of the row before it, which only a keyframe stores: other rows are never read without that row.
docs/storage-format.md describes every field.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, TypeAlias
from zlib import crc32

import msgspec

from holdfast.history.binding import BLOB_ID_BYTES, Binding, place_of
from holdfast.history.cells import Kind, Operation, Path, Ref
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.packed import bounded
from holdfast.records.ranges import UNDECODABLE, Count, Seq
from holdfast.records.rows import Row

FORMAT = 1
KEYFRAME = 1
APPEND = 2
DELTA_FLAGS = FORMAT << 4
KEYFRAME_FLAGS = DELTA_FLAGS | KEYFRAME
APPEND_FLAGS = DELTA_FLAGS | APPEND
MAX_APPEND_INDEX = 255
"""The position of the last cell that a row in the short form can append to."""
CRC_BYTES = 4
MAX_SEQ = 1 << 40
END_OF_COUNTS = 1 << 32
KINDS: tuple[Kind, ...] = ("value", "list", "map")
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}


class Header(msgspec.Struct, array_like=True, gc=False):
    """What listing and pruning need to know of a row. Fields that a plain row does not need are last, and left out."""

    flags: int
    """The format, times 16, plus 1 for a keyframe, plus 2 for the short form of an append."""
    body_size: Count
    """Stored bytes of the body."""
    meta: bytes
    since: Seq = 0
    """How many rows before this one the newest checkpoint is: 0 if this row is a checkpoint itself."""
    blobs: bytes = b""
    """The ids of the blobs it refers to."""
    blob_sizes: tuple[Count, ...] = ()
    """Their stored bytes."""
    parent: bytes = b""
    """In a keyframe the digest of the row before it."""
    seq: int = 0
    """The row's number. Never stored in the header: its place gives it, and it is part of the checks."""
    back: int = 0
    """How many rows before this one its keyframe is. Not stored either."""

    @property
    def is_keyframe(self) -> bool:
        """True if the row can be read without older rows."""
        return bool(self.flags & KEYFRAME)

    @property
    def base(self) -> int:
        """The seq of its keyframe."""
        return self.seq - self.back

    @property
    def checkpoint(self) -> int:
        """The newest checkpoint at or before this row; 0 if there is none."""
        return self.seq - self.since

    @property
    def is_checkpoint(self) -> bool:
        """True if the row is a checkpoint, False if it only has entries of the journal."""
        return self.since == 0

    @property
    def place(self) -> bytes:
        """The row's place, as part of its checks."""
        return place_of(self.seq, self.back)

    @property
    def fields(self) -> tuple[int, int, int, bytes, tuple[int, ...], bytes]:
        """All stored fields but the metadata, which is sealed under them."""
        return (self.flags, self.body_size, self.since, self.blobs, self.blob_sizes, self.parent)

    @property
    def blob_ids(self) -> list[bytes]:
        """The blobs the row refers to."""
        return [self.blobs[at : at + BLOB_ID_BYTES] for at in range(0, len(self.blobs), BLOB_ID_BYTES)]


CellScript: TypeAlias = tuple[int, Kind, int, list[Operation]]
"""How one cell changes: its position among the paths, its new kind and count, and the operations."""


class Script(msgspec.Struct, frozen=True):
    """The body of a row. `paths` is None if the paths did not change."""

    paths: list[Path] | None
    cells: list[CellScript]


_encode = msgspec.msgpack.Encoder().encode
_decode_header = bounded(msgspec.msgpack.Decoder(Header).decode)
_decode_body = bounded(msgspec.msgpack.Decoder().decode)
_SHORT = Struct(">BH7s")  # flags, body size, time; arrays begin with a larger byte than any flags
_MAX_SHORT = 0xFFFF
_ARRAYS = 0x80
_PLAIN_META = bytes.fromhex("0f91cf00")
"""How the metadata of a plain append begins: neither compressed nor encrypted, an array of only the time."""
_PLAIN_META_BYTES = len(_PLAIN_META) + 7


def encode_header(header: Header, place: bytes, check_start: int) -> bytes:
    """Return the header and its CRC, which starts from those of the thread's identity and of the row's place."""
    meta, size = header.meta, header.body_size
    if header.since or header.blobs or header.parent:
        fields = (header.since, header.blobs, header.blob_sizes, header.parent)
        data = _encode((header.flags, size, meta, *fields))
    elif header.flags == APPEND_FLAGS and size <= _MAX_SHORT and _is_plain(meta):
        data = _SHORT.pack(APPEND_FLAGS, size, meta[len(_PLAIN_META) :])
    else:
        data = _encode((header.flags, size, meta))
    return data + crc32(data, crc32(place, check_start)).to_bytes(CRC_BYTES, "big")


def _is_plain(meta: bytes) -> bool:
    return len(meta) == _PLAIN_META_BYTES and meta.startswith(_PLAIN_META)


def decode_header(binding: Binding, row: Row) -> Header:
    """Return the header of a row after checking its CRC, which covers the place the row was found at.

    With a key it is authenticated too: only the header that the metadata was sealed under unseals it.
    """
    header = read_header(row, binding.thread_id, binding.check_start)
    if binding.is_encrypted:
        binding.unseal_meta(header)
    return header


def read_header(row: Row, thread_id: str, check_start: int) -> Header:
    """Return the header of a row of that thread. It needs no key."""
    stored, start = row.header, crc32(_place(row), check_start)
    if crc32(stored[:-CRC_BYTES], start).to_bytes(CRC_BYTES, "big") != stored[-CRC_BYTES:]:
        raise damaged(row.seq, thread_id, "its header's checksum does not match")
    return _known_format(_parsed(row, thread_id), thread_id)


def _place(row: Row) -> bytes:
    """Return where the row was found; empty, which no row was written for, if that is not a possible place."""
    back = row.seq - row.base
    return place_of(row.seq, back) if 0 < row.seq < MAX_SEQ and 0 <= back < 1 << 24 else b""


def _parsed(row: Row, thread_id: str) -> Header:
    """Return the header of a row; the caller verifies its bytes."""
    stored = row.header
    try:
        if len(stored) == _SHORT.size + CRC_BYTES and stored[0] < _ARRAYS:
            flags, body_size, time = _SHORT.unpack_from(stored)
            return Header(flags, body_size, _PLAIN_META + time, seq=row.seq, back=row.seq - row.base)
        header = _decode_header(stored[:-CRC_BYTES])
    except UNDECODABLE as error:
        raise damaged(row.seq, thread_id, str(error)) from error
    if header.since > row.seq or len(header.blobs) != len(header.blob_sizes) * BLOB_ID_BYTES:
        raise damaged(row.seq, thread_id, "its header contradicts itself")
    header.seq, header.back = row.seq, row.seq - row.base
    return header


def _known_format(header: Header, thread_id: str) -> Header:
    """Return the header if this version can read the row. Call it once the bytes are verified."""
    found = header.flags >> 4
    if found != FORMAT:
        raise IncompatibleCheckpoint(
            f"row {header.seq} of {thread_id!r} has format {found}; this Holdfast reads {FORMAT}: upgrade holdfast"
        )
    return header


def damaged(seq: int, thread_id: str, why: str) -> Corrupt:
    """Return the error for a damaged row."""
    name = f"row {seq} of {thread_id!r}"
    return Corrupt(f"{name} is damaged: {why}", record=name)


def verify_row(binding: Binding, row: Row, parent: bytes) -> Header:
    """Verify the digest of a whole row and return its header; `parent` is the digest of the row before it."""
    header = _parsed(row, binding.thread_id)
    before = header.parent if header.is_keyframe else parent
    if binding.digest(before, _place(row), row.header, row.body) != row.digest:
        raise damaged(row.seq, binding.thread_id, "its digest does not match, or it does not follow the row before it")
    return _known_format(header, binding.thread_id)


def encode_script(script: Script) -> tuple[bytes, dict[bytes, Ref]]:
    """Return the body's bytes before sealing, and the blobs it refers to, by id: in the order of their numbers."""
    numbers: dict[bytes, int] = {}
    refs: dict[bytes, Ref] = {}
    cells: list[tuple[Any, ...]] = []
    for index, kind, count, operations in script.cells:
        cell: list[Any] = [index, KIND_CODES[kind], count, *operations]
        for at, each in enumerate(operations, 3):
            if isinstance(each, Ref):
                refs[each.blob] = each
                cell[at] = (numbers.setdefault(each.blob, len(numbers)), each.offset, each.length)
        cells.append(tuple(cell))
    return _encode((script.paths, cells, [ref.size for ref in refs.values()])), refs


def encode_append(index: int, item: bytes) -> bytes:
    """Return the body, before sealing, of a row that only appends one item to the list at `index`."""
    return index.to_bytes(1, "big") + item


def decode_append(body: bytes) -> tuple[int, bytes]:
    """Return what `encode_append` was given, from unsealed bytes."""
    return body[0], body[1:]


def _operation(stored: Any, header: Header, sizes: list[int]) -> Operation:
    if type(stored) is not list:
        return stored  # type: ignore[no-any-return]  # None or bytes
    if len(stored) == 2:
        return stored[0], stored[1]
    number, offset, length = stored
    if not all(type(each) is int and each >= 0 for each in (*stored, sizes[number])):
        raise ValueError(f"{stored} is not a part of a blob")
    at = number * BLOB_ID_BYTES
    return Ref(header.blobs[at : at + BLOB_ID_BYTES], offset, length, sizes[number], header.blob_sizes[number])


def _count(stored: Any) -> int:
    if type(stored) is int and 0 <= stored < END_OF_COUNTS:
        return stored
    raise ValueError(f"{stored!r} is not a count of items")


def _path(stored: Any) -> Path:
    if type(stored) is list and stored and all(type(key) is str for key in stored):
        return tuple(stored)
    raise ValueError(f"{stored!r} is not a path")


def _paths(stored: list[Any]) -> list[Path]:
    paths = list(map(_path, stored))
    if len(set(paths)) != len(paths):
        raise ValueError("a path is listed twice")
    return paths


def decode_script(binding: Binding, header: Header, body: bytes) -> Script:
    """Return what `encode_script` was given, from unsealed bytes."""
    try:
        paths, cells, sizes = _decode_body(body)
        scripts: list[CellScript] = [
            (cell[0], KINDS[cell[1]], _count(cell[2]), [_operation(stored, header, sizes) for stored in cell[3:]])
            for cell in cells
        ]
        return Script(None if paths is None else _paths(paths), scripts)
    except (*UNDECODABLE, ValueError, TypeError, LookupError) as error:
        raise damaged(header.seq, binding.thread_id, str(error)) from error


def all_blob_ids(headers: Iterable[Header]) -> set[bytes]:
    """Return every blob that any of these rows refers to."""
    return {blob for header in headers if header.blobs for blob in header.blob_ids}
