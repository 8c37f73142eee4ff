"""What ties stored bytes to one life of one thread: digests, blob ids, and the seal's associated data."""

from hashlib import sha256
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from msgspec.structs import replace

from holdfast.codec.seal import COMPRESS_FROM, RAW, Seal
from holdfast.records.errors import Corrupt
from holdfast.records.head import Head, signed_part
from holdfast.records.identity import life_of, thread_id_of

if TYPE_CHECKING:
    from holdfast.history.format import Header

DIGEST_BYTES = 8
"""Enough to find damage. With a key the digest is a MAC, and has the length of one."""
BLOB_ID_BYTES = 16
SEQ_BYTES = 5

META = b"m"
BODY = b"b"
BLOB = b"p"
SUMMARY = b"s"
ANSWER = b"a"
ROW = b"r"
HEAD = b"h"

_encode = msgspec.msgpack.Encoder().encode


def place_of(seq: int, back: int) -> bytes:
    """Return a row's place: its seq, and how many rows back its keyframe is. Not stored, but part of its checks."""
    return (seq << 24 | back).to_bytes(8, "big")


class Binding:
    """One thread (by its key), one life of it (its incarnation), and its seal."""

    __slots__ = ("_is_plain", "_seal", "check_start", "identity", "incarnation", "limits", "thread", "thread_id")

    def __init__(self, thread: bytes, incarnation: bytes, seal: Seal) -> None:
        self.thread = thread
        self.incarnation = incarnation
        self.thread_id = thread_id_of(thread)
        self.identity = thread + incarnation
        self.check_start = crc32(self.identity)
        self.limits = seal.limits
        self._seal = seal
        self._is_plain = not seal.encrypted

    @property
    def is_encrypted(self) -> bool:
        """True if there is a key, which authenticates everything that is stored."""
        return not self._is_plain

    @property
    def life(self) -> str:
        """The part of the incarnation that checkpoint ids carry."""
        return life_of(self.incarnation)

    def digest(self, parent: bytes, place: bytes, header: bytes, body: bytes) -> bytes:
        """Return the digest of a row, bound to its thread, to this life of it, to the row before it and to its place.

        With a key it is a MAC: it cannot be made without the key.
        """
        content = b"".join((self.identity, parent, place, header, body))
        return sha256(content).digest()[:DIGEST_BYTES] if self._is_plain else self._seal.mac(ROW + content)

    def signed(self, head: Head) -> Head:
        """Return the head, authenticated if there is a key."""
        if self._is_plain:
            return head
        return replace(head, mac=self._seal.mac(HEAD + signed_part(self.thread, head)))

    def seal(self, data: bytes, seq: int, kind: bytes) -> bytes:
        """Seal a section of row `seq`."""
        if self._is_plain and len(data) < COMPRESS_FROM:
            return RAW + data
        return self._seal.seal(data, self._associated(seq, kind))

    def unseal(self, data: bytes, seq: int, kind: bytes) -> bytes:
        """Return what `seal` was given."""
        if self._is_plain and data.startswith(RAW):
            return data[1:]
        return self._seal.unseal(data, self._associated(seq, kind), record=self.row_name(seq))

    def seal_meta(self, meta: bytes, place: bytes, header: "Header") -> bytes:
        """Seal a row's metadata. With a key this authenticates the other fields of the header too."""
        if self._is_plain and len(meta) < COMPRESS_FROM:
            return RAW + meta
        return self._seal.seal(meta, self._bound(place, header))

    def unseal_meta(self, header: "Header") -> bytes:
        """Return the metadata in a row's header."""
        if self._is_plain and header.meta.startswith(RAW):
            return header.meta[1:]
        return self._seal.unseal(header.meta, self._bound(header.place, header), record=self.row_name(header.seq))

    def seal_blob(self, data: bytes, seq: int, *, dense: bool = False) -> tuple[bytes, bytes]:
        """Return the id and the stored bytes of a blob that row `seq` is the first to refer to.

        The id begins with the seq: no id is ever used twice, so sweeping has no races.
        """
        stored = self._seal.seal(data, self.identity + BLOB, dense=dense)
        return self._blob_id(stored, seq.to_bytes(SEQ_BYTES, "big")), stored

    def unseal_blob(self, blob: bytes, stored: bytes | None) -> bytes:
        """Return what `seal_blob` was given, after verifying its id."""
        record = f"blob {blob.hex()} of {self.thread_id!r}"
        if stored is None:
            raise Corrupt(f"{record} is missing", record=record)
        if self._blob_id(stored, blob[:SEQ_BYTES]) != blob:
            raise Corrupt(f"{record} is damaged: its digest does not match", record=record)
        return self._seal.unseal(stored, self.identity + BLOB, record=record)

    def row_name(self, seq: int) -> str:
        """Return the name of a row in errors."""
        return f"row {seq} of {self.thread_id!r}"

    def _associated(self, seq: int, kind: bytes) -> bytes:
        return self.identity + seq.to_bytes(8, "big") + kind

    def _bound(self, place: bytes, header: "Header") -> bytes:
        return self.identity + META + place + _encode(header.fields)

    def _blob_id(self, stored: bytes, seq: bytes) -> bytes:
        return seq + sha256(self.identity + stored).digest()[: BLOB_ID_BYTES - SEQ_BYTES]
