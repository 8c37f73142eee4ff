"""The head of a thread: the one record that says where its log ends, who may write, and how it stands.

A backend keeps heads as opaque bytes and replaces them by comparing bytes; only this module looks inside.
"""

from hashlib import sha256

import msgspec
from msgspec.structs import replace

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head_checks import problem_of
from holdfast.records.identity import shown_id_of
from holdfast.records.packed import bounded
from holdfast.records.ranges import UNDECODABLE, Moment, Seq, Token, Total

FORMAT = 2
AUTHENTICATED_FROM = 2
"""The first format in which a key authenticates a head, and the headers of rows."""
DIGEST_BYTES = 16
LOST_HEAD = b""
"""In a listing, in the place of a head that was lost, or that differs from the index it was found by."""


class Marks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which checkpoints can be seen: none below `floor` except the pinned and the kept, and none of the hidden."""

    floor: Seq = 0
    pinned: tuple[Seq, ...] = ()
    hidden: tuple[Seq, ...] = ()
    kept: tuple[Seq, ...] = ()
    """Below the floor, not pinned any more, and not yet pruned."""

    def shows(self, seq: int) -> bool:
        """True if the checkpoint at `seq` is there for readers."""
        return (seq >= self.floor or seq in self.pinned or seq in self.kept) and seq not in self.hidden


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything a reader or writer must know before touching the log. Times are microseconds since 1970."""

    format: int = FORMAT
    incarnation: bytes = b""
    seq: Seq = 0
    base: Seq = 0
    checkpoint: Seq = 0
    digest: bytes = b""
    token: Token = 0
    owner: str = ""
    expires_at: Moment = 0
    status: str = ""
    deleted: bool = False
    created_at: Moment = 0
    updated_at: Moment = 0
    row_count: Total = 0
    stored_bytes: Total = 0
    marks: Marks = Marks()
    labels: tuple[bytes, ...] = ()
    summary: bytes = b""
    data_key: bytes = b""
    mac: bytes = b""
    """With a key: the authentication code of `signed_part`."""

    @property
    def listed_as(self) -> str:
        """The status to list the thread under; empty for a thread that is not listed."""
        return "" if self.deleted else self.status

    def held(self, now: int) -> bool:
        """True if an unexpired lease stands."""
        return bool(self.owner) and self.expires_at > now


_decode = bounded(msgspec.msgpack.Decoder(Head).decode)
_encode = msgspec.msgpack.Encoder().encode


def signed_part(thread: bytes, head: Head) -> bytes:
    """What the MAC of a head covers: everything but the lease, which a copy without the key must be able to end."""
    return thread + _encode(replace(head, token=0, owner="", expires_at=0, mac=b""))


def encode_head(thread: bytes, head: Head) -> bytes:
    """The head as bytes, bound by a digest to its thread."""
    data = _encode(head)
    return data + sha256(thread + data).digest()[:DIGEST_BYTES]


def decode_head(thread: bytes, data: bytes) -> Head:
    """The head in `data`, or `Corrupt`; `IncompatibleCheckpoint` if a newer version wrote it."""
    if data == LOST_HEAD:
        raise _damaged(thread, "it was lost, or differs from its index")
    content = data[:-DIGEST_BYTES]
    if sha256(thread + content).digest()[:DIGEST_BYTES] != data[-DIGEST_BYTES:]:
        raise _damaged(thread, "its digest does not match")
    try:
        head = _decode(content)
    except UNDECODABLE as error:
        raise _damaged(thread, str(error)) from error
    if head.format > FORMAT:
        raise IncompatibleCheckpoint(
            f"{_name(thread)} was written by a newer Holdfast (format {head.format}); upgrade holdfast"
        )
    if problem := problem_of(head):
        raise _damaged(thread, problem)
    return head


def _name(thread: bytes) -> str:
    return f"head of {shown_id_of(thread)!r}"


def _damaged(thread: bytes, why: str) -> Corrupt:
    return Corrupt(f"{_name(thread)} is damaged: {why}", record=_name(thread))
