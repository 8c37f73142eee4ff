"""The head of a thread: the one record that says where its log ends, who may write, and its status.

A backend stores heads as opaque bytes and compares them as bytes to replace them; only this module looks inside.
"""

from hashlib import sha256

import msgspec
from msgspec.structs import replace

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.identity import shown_id_of
from holdfast.records.packed import bounded
from holdfast.records.ranges import STATUSES, UNDECODABLE, Moment, Priority, Seq, Token, Total, is_queue_name

FORMAT = 3
"""The newest format that this version reads. A head is written in it only if it has a place in the agenda."""
PLAIN = 2
"""The format of all other heads: they end with `mac`."""
AUTHENTICATED_FROM = 2
"""The first format in which a key authenticates a head, and the headers of rows."""
DIGEST_BYTES = 16
INCARNATION_BYTES = 16
LOST_HEAD = b""
"""Listed instead of a head that was lost, or that differs from its index."""


class Marks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which checkpoints are visible: none below `floor` except pinned and kept ones, and none that is hidden."""

    floor: Seq = 0
    pinned: tuple[Seq, ...] = ()
    hidden: tuple[Seq, ...] = ()
    kept: tuple[Seq, ...] = ()
    """Below the floor, no longer pinned, and not yet pruned."""

    def shows(self, seq: int) -> bool:
        """True if the checkpoint at `seq` is visible."""
        return (seq >= self.floor or seq in self.pinned or seq in self.kept) and seq not in self.hidden

    def pinning(self, seq: int) -> "Marks":
        """Return the marks with `seq` pinned."""
        return replace(self, pinned=tuple(sorted({*self.pinned, seq})))

    def unpinning(self, seq: int) -> "Marks":
        """Return the marks with `seq` not pinned. It stays visible until the next prune."""
        kept = {*self.kept, seq} if seq < self.floor and seq in self.pinned else self.kept
        return replace(self, pinned=_without(self.pinned, seq), kept=tuple(sorted(kept)))

    def hiding(self, seq: int) -> "Marks":
        """Return the marks with `seq` hidden, and so no longer pinned."""
        hidden = tuple(sorted({*self.hidden, seq}))
        return replace(self, hidden=hidden, pinned=_without(self.pinned, seq), kept=_without(self.kept, seq))


def _without(seqs: tuple[int, ...], seq: int) -> tuple[int, ...]:
    return tuple(other for other in seqs if other != seq)


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a reader or writer must know before it uses the log. Times are microseconds since 1970."""

    format: int = PLAIN
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
    queue: str = ""
    priority: Priority = 0
    lane: bytes = b""
    """Threads of a queue take turns by this token; empty if they do not."""
    route: bytes = b""
    """A keyed hash of the function and version that run the thread; empty if it has no place in the agenda."""

    @property
    def listed_as(self) -> str:
        """The status to list the thread under; empty for a thread that is not listed."""
        return "" if self.deleted else self.status

    def held(self, now: int) -> bool:
        """True if there is an unexpired lease."""
        return bool(self.owner) and self.expires_at > now

    @property
    def has_place(self) -> bool:
        """True if it says anything that a plain head does not."""
        return bool(self.route or self.queue or self.lane or self.priority)


_decode = bounded(msgspec.msgpack.Decoder(Head).decode)
_encode_all = msgspec.msgpack.Encoder().encode
_START = _encode_all(Head())[:3]
_PLAIN_START = b"\xdc\0\x14"
_NO_PLACE = _encode_all(("", 0, b"", b""))[1:]


def _encode(head: Head) -> bytes:
    """Return the fields as an array; a head without a place ends with `mac`, as in the format before."""
    data = _encode_all(head)
    if head.queue or not data.endswith(_NO_PLACE):
        return data
    return _PLAIN_START + data[len(_START) : -len(_NO_PLACE)]


def signed_part(thread: bytes, head: Head) -> bytes:
    """Return what the MAC of a head covers: all but the lease, which a copy without the key must be able to release."""
    return thread + _encode(replace(head, token=0, owner="", expires_at=0, mac=b""))


def encode_head(thread: bytes, head: Head) -> bytes:
    """Return the head as bytes, with a digest that binds it to its thread."""
    data = _encode(head)
    return data + sha256(thread + data).digest()[:DIGEST_BYTES]


def decode_head(thread: bytes, data: bytes) -> Head:
    """Return the head in `data`; raise `Corrupt`, or `IncompatibleCheckpoint` if a newer version wrote it."""
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
    if problem := _problem_of(head):
        raise _damaged(thread, problem)
    return head


def _name(thread: bytes) -> str:
    return f"head of {shown_id_of(thread)!r}"


def _damaged(thread: bytes, why: str) -> Corrupt:
    return Corrupt(f"{_name(thread)} is damaged: {why}", record=_name(thread))


def _problem_of(head: Head) -> str:
    """Return what is wrong with a head whose fields have the right types and ranges; empty if nothing is."""
    if head.format < 1:
        return f"its format is {head.format}"
    if head.format < FORMAT and head.has_place:
        return f"its format is {head.format}, which has no queue"
    if head.has_place and not is_queue_name(head.queue):
        return f"its queue is {head.queue[:40]!r}"
    if head.status and head.status not in STATUSES:
        return f"its status is {head.status!r}"
    if len(head.incarnation) not in {0, INCARNATION_BYTES}:
        return f"its incarnation has {len(head.incarnation)} bytes"
    if head.base > head.seq or head.checkpoint > head.seq:
        return f"its seq is {head.seq}, its base {head.base} and its checkpoint {head.checkpoint}"
    if head.checkpoint and not head.marks.shows(head.checkpoint):
        return f"its marks hide its newest checkpoint, {head.checkpoint}"
    return _problem_of_marks(head.marks, head.seq)


def _problem_of_marks(marks: Marks, seq: int) -> str:
    for name, seqs in (("pinned", marks.pinned), ("hidden", marks.hidden), ("kept", marks.kept)):
        if seqs and (min(seqs) < 1 or max(seqs) > seq):
            return f"it has {seq} rows, and one of its {name} checkpoints is not among them"
    return ""
