"""What ties stored bytes to one life of one thread: digests, ids of blobs, and the seal's associated data."""

from hashlib import sha256
from typing import Protocol
from zlib import crc32

from holdfast.codec.limits import Limits
from holdfast.codec.seal import COMPRESS_FROM, RAW
from holdfast.records.errors import Corrupt
from holdfast.records.identity import life_of, thread_id_of

DIGEST_BYTES = 8
"""Enough against damage; against forgery there are keys. Every row carries one."""
BLOB_ID_BYTES = 16
SEQ_BYTES = 5

META = b"m"
BODY = b"b"
BLOB = b"p"
SUMMARY = b"s"
ANSWER = b"a"


class Seal(Protocol):
    """Bytes to bytes: compress, then encrypt."""

    @property
    def encrypted(self) -> bool:
        """True if unsealed bytes are refused."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of what is sealed."""
        ...

    def seal(self, data: bytes, identity: bytes, *, dense: bool = False) -> bytes:
        """The sealed bytes; `dense` takes more time for less room."""
        ...

    def unseal(self, data: bytes, identity: bytes, *, record: str) -> bytes:
        """What was sealed under this identity, or `Corrupt` naming `record`."""
        ...


def place_of(seq: int, back: int) -> bytes:
    """Where a row stands: its seq, and how many rows back its keyframe is. Not stored in it, but part of its checks."""
    return (seq << 24 | back).to_bytes(8, "big")


class Binding:
    """One thread (by its key), one life of it (its incarnation), and the seal in force."""

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
    def life(self) -> str:
        """The part of the incarnation that checkpoint ids carry."""
        return life_of(self.incarnation)

    def digest(self, parent: bytes, place: bytes, header: bytes, body: bytes) -> bytes:
        """The digest of a row: bound to its thread, to this life of it, to the row before it, and to its place."""
        return sha256(b"".join((self.identity, parent, place, header, body))).digest()[:DIGEST_BYTES]

    def seal(self, data: bytes, seq: int, kind: bytes) -> bytes:
        """A section of row `seq`, sealed."""
        if self._is_plain and len(data) < COMPRESS_FROM:
            return RAW + data
        return self._seal.seal(data, self._associated(seq, kind))

    def seal_row(self, content: bytes, meta: bytes, seq: int) -> tuple[bytes, bytes]:
        """The two sections of row `seq`, sealed."""
        if self._is_plain and len(content) < COMPRESS_FROM and len(meta) < COMPRESS_FROM:
            return RAW + content, RAW + meta
        return self.seal(content, seq, BODY), self.seal(meta, seq, META)

    def unseal(self, data: bytes, seq: int, kind: bytes) -> bytes:
        """What `seal` was given."""
        if self._is_plain and data.startswith(RAW):
            return data[1:]
        return self._seal.unseal(data, self._associated(seq, kind), record=self.row_name(seq))

    def seal_blob(self, data: bytes, seq: int, *, dense: bool = False) -> tuple[bytes, bytes]:
        """A blob first written by row `seq`: its id, and its stored bytes.

        The id begins with the seq, so a blob is never written twice under one id, and sweeping is free of races.
        """
        stored = self._seal.seal(data, self.identity + BLOB, dense=dense)
        return self._blob_id(stored, seq.to_bytes(SEQ_BYTES, "big")), stored

    def unseal_blob(self, blob: bytes, stored: bytes | None) -> bytes:
        """What `seal_blob` was given, its id verified."""
        record = f"blob {blob.hex()} of {self.thread_id!r}"
        if stored is None:
            raise Corrupt(f"{record} is missing", record=record)
        if self._blob_id(stored, blob[:SEQ_BYTES]) != blob:
            raise Corrupt(f"{record} is damaged: its digest does not match", record=record)
        return self._seal.unseal(stored, self.identity + BLOB, record=record)

    def row_name(self, seq: int) -> str:
        """What errors call a row."""
        return f"row {seq} of {self.thread_id!r}"

    def _associated(self, seq: int, kind: bytes) -> bytes:
        return self.identity + seq.to_bytes(8, "big") + kind

    def _blob_id(self, stored: bytes, seq: bytes) -> bytes:
        return seq + sha256(self.identity + stored).digest()[: BLOB_ID_BYTES - SEQ_BYTES]
