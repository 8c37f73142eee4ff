"""The record in a thread's head object: the head, and which other objects count. Replacing it is the one commit point.

Segments and posts that a record does not lead to are not there, even while their objects still are; blobs count as long
as a row names them. So a swap changes all or nothing, and what it dropped is removed afterwards, by the next writer.
Pure: no calls here.
"""

from collections.abc import Sequence
from hashlib import sha256
from secrets import token_bytes
from typing import Annotated, TypeAlias

import msgspec

from holdfast.records.packed import bounded
from holdfast.records.ranges import UNDECODABLE, Seq
from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.objects.marks import mark_name, remarked
from holdfast.stores.objects.names import hash_of, head_name
from holdfast.stores.objects.segments import DIGEST_BYTES, StoredRow, Stretch, damaged, stored

WRITER_BYTES = 8

Era: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10**8)]
PostName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Word: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
MarkRest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{12}-[0-9a-f]{1,32}\Z")]
WholeMark: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"\Amarks/[0-9a-f]{64}/[0-9a-f]{64}-[0-9]{12}-[0-9a-f]{1,32}\Z")
]
"""The names in a record: objects are read and removed by them, so they can only be names that we give."""


class Leftovers(msgspec.Struct, frozen=True, array_like=True):
    """Objects that no longer count and may still be there."""

    blobs: tuple[bytes, ...] = ()
    posts: tuple[PostName, ...] = ()
    rows: bool = False
    """Segments that no stretch leads to."""
    eras: bool = False
    """All objects of earlier eras."""
    marks: tuple[WholeMark, ...] = ()


NO_LEFTOVERS = Leftovers()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Everything that is true of a thread."""

    thread: bytes
    head: bytes = b""
    """Empty while there are only posts."""
    version: Seq = 0
    writer: bytes = b""
    """Random, from the last swap: it knows its own record again. With it no two records are equal, nor their tags,
    even where a tag is a hash of the content."""
    era: Era = 0
    """Raised when everything is dropped. A thread starts again at row 1 then, and a process that still removes
    the objects of an earlier life must not touch those of the next."""
    last: Seq = 0
    """The highest seq that was ever committed in this era."""
    stretches: tuple[Stretch, ...] = ()
    """All rows that are in segments, ascending."""
    posts: dict[str, PostName] = {}
    """For each key the post object's name. Names are never used again, so a slow removal cannot hit a later post."""
    leftovers: Leftovers = NO_LEFTOVERS
    marks: dict[Word, MarkRest] = {}
    """For each word that the thread is marked with, the rest of the mark's name (marks.py)."""
    tail: tuple[StoredRow, ...] = ()
    """The newest rows, as long as they are few and small: they ride here, and are in no segment yet."""

    def holds(self, seq: int) -> bool:
        """True if there is such a row."""
        return any(first <= seq <= last for first, last in self.ranges)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The rows there are, as ranges from first to last, ascending."""
        settled = [(stretch.first, stretch.last) for stretch in self.stretches]
        return settled + [(row.seq, row.seq) for row in self.tail]


_encode = msgspec.msgpack.Encoder().encode
_decode_record = bounded(msgspec.msgpack.Decoder(Record).decode)


def bind(name: str, content: bytes) -> bytes:
    """The content of an object, tied to its name by a digest."""
    return content + sha256(name.encode() + content).digest()[:DIGEST_BYTES]


def unbind(name: str, data: bytes) -> bytes:
    """What `bind` was given, or `Corrupt`."""
    content = data[:-DIGEST_BYTES]
    if bind(name, content) != data:
        raise damaged(name, "its digest does not match")
    return content


def encode_record(record: Record) -> bytes:
    """The content of a thread's head object."""
    return bind(head_name(record.thread), _encode(record))


def decode_record(name: str, data: bytes) -> Record:
    """The record in the head object of this name, or `Corrupt`."""
    content = unbind(name, data)
    try:
        record = _decode_record(content)
    except UNDECODABLE as error:
        raise damaged(name, error) from error
    if head_name(record.thread) != name:
        raise damaged(name, "it is the head of another thread")
    own = hash_of(record.thread)
    if any(own not in mark for mark in record.leftovers.marks):
        raise damaged(name, "it drops marks of another thread")
    return record


def mark_names(record: Record) -> list[str]:
    """The names of all marks that the thread has."""
    return [mark_name(record.thread, word, rest) for word, rest in record.marks.items()]


def new_rows(record: Record, swap: Swap) -> list[StoredRow]:
    """The rows that a swap adds to the log. A row that was committed before is left as it is."""
    new = [stored(row) for row in swap.rows if row.seq > record.last]
    return [msgspec.structs.replace(new[0], blobs=tuple(swap.blobs)), *new[1:]] if new else []


def placed(
    tail: Sequence[StoredRow], new: Sequence[StoredRow], limit: int
) -> tuple[Sequence[StoredRow], Sequence[StoredRow]]:
    """Which rows ride in the record from now on, at most `limit` bytes of them, and which go to a segment.

    A keyframe sends those before it away, so that a restore of the newest row finds all it needs in the record.
    """
    rows = [*tail, *new]
    keyframe = max((row.seq for row in new if row.base == row.seq), default=0)
    riding = [row for row in rows if row.seq >= keyframe]
    if sum(row.size for row in riding) > limit:
        riding = []
    return riding, rows[: len(rows) - len(riding)]


def next_era(record: Record) -> Record:
    """The record without any row, blob or post."""
    left, era = Leftovers(eras=True, marks=record.leftovers.marks), record.era + 1
    return Record(record.thread, record.head, record.version, record.writer, era, leftovers=left, marks=record.marks)


def posted(record: Record, key: str, name: str) -> Record:
    """The record with one more post."""
    return msgspec.structs.replace(record, version=record.version + 1, posts={**record.posts, key: name})


def swapped(record: Record, swap: Swap, stretches: Sequence[Stretch], tail: Sequence[StoredRow]) -> Record:
    """The record after a swap, with the rows where they are then."""
    marks = remarked(record.marks, record.thread, swap.head, record.version + 1)
    return msgspec.structs.replace(
        record,
        head=swap.replacement,
        version=record.version + 1,
        writer=token_bytes(WRITER_BYTES),
        last=max([record.last, *(row.seq for row in swap.rows)]),
        stretches=tuple(stretches),
        posts={key: name for key, name in record.posts.items() if key not in swap.consumed},
        leftovers=_with_leftovers(record, swap, marks),
        marks=marks,
        tail=tuple(tail),
    )


def _with_leftovers(record: Record, swap: Swap, marks: dict[str, str]) -> Leftovers:
    old, drop = record.leftovers, KEEP_ALL if swap.drop.everything else swap.drop
    blobs = dict.fromkeys(blob for blob in (*old.blobs, *drop.blobs) if blob not in swap.blobs)
    posts = (record.posts[key] for key in dict.fromkeys(swap.consumed) if key in record.posts)
    untrue = (mark_name(record.thread, word, rest) for word, rest in record.marks.items() if word not in marks)
    rows, eras = old.rows or bool(drop.rows) or drop.secure, old.eras or (drop.secure and record.era > 0)
    return Leftovers(tuple(blobs), (*old.posts, *posts), rows, eras, (*old.marks, *untrue))
