"""The record in a thread's head object: the head, the newest rows, and a list of all other objects that count.

Replacing this one object commits a swap. Objects that the record does not list are ignored, and deleted later by a
writer that can prove from the record that nobody can commit them any more. Pure: no calls here.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from operator import itemgetter
from secrets import token_bytes, token_hex
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.records.errors import Corrupt
from holdfast.records.head import Head
from holdfast.records.packed import bounded
from holdfast.records.ranges import UNDECODABLE, Seq
from holdfast.records.rows import KEEP_ALL, Row, Swap
from holdfast.records.words import Status
from holdfast.stores.objects.names import MarkName, era_root, hash_of, head_name, term_of

DIGEST_BYTES = 16
WRITER_BYTES = 8
SEGMENT_BYTES = 1 << 18
"""A segment of this size takes no more rows: a reader of one row reads the whole segment."""
UNMARKED = {Status.IDLE.value, Status.COMPLETE.value}
"""Most threads have one of these. A mark for each would cost a put, and a listing would find almost all threads."""

Era: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10**8)]
Digest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
PostName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Term: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
MarkSuffix: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{12}-[0-9a-f]{1,32}\Z")]
"""Parts of names. Objects are read and deleted by them, so a record must not be able to name anything else."""
Range: TypeAlias = tuple[int, int]
"""Rows, from the first to the last."""


class StoredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row. The first row of a swap also has the ids of the blobs that the swap wrote."""

    seq: int
    base: int
    digest: bytes
    header: bytes
    body: bytes
    blobs: tuple[bytes, ...] = ()

    @property
    def row(self) -> Row:
        """The row alone."""
        return Row(self.seq, self.base, self.digest, self.header, self.body)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(map(len, (self.digest, self.header, self.body, *self.blobs)))


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """An object that holds the rows `first` to `last`, without gaps. It never changes."""

    first: Seq
    last: Seq
    base: Seq
    """The lowest base of its rows."""
    version: Seq
    """The version of the record that it was put for."""
    digest: Digest

    @property
    def rows(self) -> Range:
        """The first and the last row."""
        return self.first, self.last


class Leftovers(msgspec.Struct, frozen=True, array_like=True):
    """Objects that no longer count and may still exist."""

    blobs: tuple[bytes, ...] = ()
    posts: tuple[PostName, ...] = ()
    rows: bool = False
    """Segments that the record does not list."""
    eras: bool = False
    """All objects of earlier eras."""
    marks: tuple[tuple[Term, MarkSuffix], ...] = ()


NO_LEFTOVERS = Leftovers()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Everything that is true of a thread."""

    thread: bytes
    head: bytes = b""
    """Empty while there are only posts."""
    version: Seq = 0
    """Raised by every change."""
    writer: bytes = b""
    """Random bytes of the last swap, by which it recognizes its own record. They also make every record unique, and so
    every tag, even where a tag is a hash of the content."""
    era: Era = 0
    """Raised when everything is dropped. The thread then starts again at row 1, and a process that is still deleting
    objects of the earlier era cannot hit those of the next."""
    last: Seq = 0
    """The highest seq that was ever committed in this era."""
    segments: tuple[Segment, ...] = ()
    """All rows that moved out of the record, ascending."""
    posts: dict[str, PostName] = {}
    """The name of the post object for each key. No name is used twice, so a slow delete cannot hit a later post."""
    leftovers: Leftovers = NO_LEFTOVERS
    marks: dict[Term, MarkSuffix] = {}
    """The marks that the thread has."""
    tail: tuple[StoredRow, ...] = ()
    """The newest rows, while they are few and small. They are in no segment yet."""

    def holds(self, seq: int) -> bool:
        """True if there is such a row."""
        return bool(self.segments_with(seq, seq)) or any(row.seq == seq for row in self.tail)

    def segments_with(self, first: int, last: int) -> Sequence[Segment]:
        """Return the segments that hold rows from `first` to `last`."""
        start = bisect_left(self.segments, first, key=lambda segment: segment.last)
        stop = bisect_left(self.segments, last + 1, key=lambda segment: segment.first)
        return self.segments[start:stop]

    # Names of objects

    def segment_name(self, segment: Segment) -> str:
        """Return the name of a segment."""
        return f"{self.segment_folder}{segment.version:012}-{segment.digest.hex()}"

    @property
    def segment_folder(self) -> str:
        """The prefix of the names of all segments of this era."""
        return f"{era_root(self.thread, self.era)}rows/"

    def blob_name(self, blob: bytes) -> str:
        """Return the name of a blob object."""
        return f"{era_root(self.thread, self.era)}blobs/{blob.hex()}"

    def post_name(self, post: str) -> str:
        """Return the name of a post object."""
        return f"{era_root(self.thread, self.era)}posts/{post}"

    def mark_names(self, marks: Iterable[tuple[str, str]]) -> list[str]:
        """Return the names of these marks of the thread."""
        thread_hash = hash_of(self.thread)
        return [str(MarkName(term, thread_hash, suffix)) for term, suffix in marks]


_encode = msgspec.msgpack.Encoder().encode
_decode_record = bounded(msgspec.msgpack.Decoder(Record).decode)
_decode_rows = bounded(msgspec.msgpack.Decoder(list[StoredRow]).decode)


def damaged(name: str, why: object) -> Corrupt:
    """Return the error for a damaged object."""
    return Corrupt(f"object {name} is damaged: {why}", record=f"object {name}")


# Encoding


def bind(name: str, content: bytes) -> bytes:
    """Return the content of an object with a digest that ties it to its name."""
    return content + _digest(name, content)


def unbind(name: str, data: bytes) -> bytes:
    """Return what `bind` was given, or raise `Corrupt`."""
    content = data[:-DIGEST_BYTES]
    if bind(name, content) != data:
        raise damaged(name, "its digest does not match")
    return content


def _digest(name: str, content: bytes) -> bytes:
    return sha256(name.encode() + content).digest()[:DIGEST_BYTES]


def encode_record(record: Record) -> bytes:
    """Return the content of a thread's head object."""
    return bind(head_name(record.thread), _encode(record))


def decode_record(name: str, data: bytes) -> Record:
    """Return the record in the head object of this name, or raise `Corrupt`."""
    content = unbind(name, data)
    try:
        record = _decode_record(content)
    except UNDECODABLE as error:
        raise damaged(name, error) from error
    if head_name(record.thread) != name:
        raise damaged(name, "it is the head of another thread")
    return record


# Segments


def new_segments(record: Record, rows: Iterable[StoredRow]) -> dict[Segment, bytes]:
    """Return segments for these rows, with their contents, to be put for the next version of the record."""
    made, version = dict[Segment, bytes](), record.version + 1
    for portion in _portions(rows):
        content = _encode(portion)
        digest = _digest(f"{record.segment_folder}{version:012}", content)
        base = min(row.base for row in portion)
        made[Segment(portion[0].seq, portion[-1].seq, base, version, digest)] = content
    return made


def _portions(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    """Split rows where a seq is missing, and at SEGMENT_BYTES."""
    portion, size = list[StoredRow](), 0
    for row in rows:
        if portion and (row.seq != portion[-1].seq + 1 or size >= SEGMENT_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += row.size
    if portion:
        yield portion


def rows_in(record: Record, segment: Segment, content: bytes) -> list[StoredRow]:
    """Return the rows in a segment of the record, or raise `Corrupt`."""
    name = record.segment_name(segment)
    if _digest(f"{record.segment_folder}{segment.version:012}", content) != segment.digest:
        raise damaged(name, "its digest does not match")
    try:
        rows = _decode_rows(content)
    except UNDECODABLE as error:
        raise damaged(name, error) from error
    is_whole = len(rows) == segment.last - segment.first + 1
    if not is_whole or any(row.seq != seq for seq, row in enumerate(rows, segment.first)):
        raise damaged(name, "it holds other rows")
    return rows


def without(first: int, last: int, dropped: Iterable[Range]) -> list[Range]:
    """Return what is left of the rows `first` to `last` without those in half-open ranges of seq, ascending."""
    left: list[Range] = []
    low = first
    for start, stop in sorted(dropped):
        if low < start < stop:
            left.append((low, min(start - 1, last)))
        if start < stop:
            low = max(low, stop)
        if low > last:
            return left
    return [*left, (low, last)]


def overlap(ranges: Sequence[Range], first: int, last: int) -> list[Range]:
    """Return the parts of ascending ranges that lie between `first` and `last`."""
    start = bisect_left(ranges, first, key=itemgetter(1))
    stop = bisect_left(ranges, last + 1, key=itemgetter(0))
    return [(max(low, first), min(high, last)) for low, high in ranges[start:stop]]


# The next record


def new_rows(record: Record, swap: Swap) -> list[StoredRow]:
    """Return the rows that a swap adds to the log. A row that was committed before stays as it is."""
    new = [StoredRow(row.seq, row.base, row.digest, row.header, row.body) for row in swap.rows if row.seq > record.last]
    return [replace(new[0], blobs=tuple(swap.blobs)), *new[1:]] if new else []


def tail_start(rows: Sequence[StoredRow], limit: int) -> int:
    """Return the seq of the first of these rows that stays in the record; earlier ones move to a segment.

    At most `limit` bytes stay. A keyframe moves the rows before it out, so that the record alone has all that a restore
    of the newest row needs.
    """
    keyframe = max((row.seq for row in rows if row.base == row.seq), default=0)
    size = sum(row.size for row in rows if row.seq >= keyframe)
    return keyframe if size <= limit else rows[-1].seq + 1


def next_era(record: Record) -> Record:
    """Return the record without any row, blob or post."""
    left = Leftovers(eras=True, marks=record.leftovers.marks)
    return replace(record, era=record.era + 1, last=0, segments=(), posts={}, leftovers=left, tail=())


def posted(record: Record, key: str, name: str) -> Record:
    """Return the record with one more post."""
    return replace(record, version=record.version + 1, posts={**record.posts, key: name})


def swapped(record: Record, swap: Swap, segments: Iterable[Segment], tail: Iterable[StoredRow]) -> Record:
    """Return the record after a swap, with its rows in these places."""
    version = record.version + 1
    terms = _terms(record.thread, swap.head)
    marks = {term: record.marks.get(term) or f"{version:012}-{token_hex(8)}" for term in terms}
    return replace(
        record,
        head=swap.replacement,
        version=version,
        writer=token_bytes(WRITER_BYTES),
        last=max([record.last, *(row.seq for row in swap.rows)]),
        segments=tuple(segments),
        posts={key: name for key, name in record.posts.items() if key not in swap.consumed},
        leftovers=_leftovers(record, swap, marks),
        marks=marks,
        tail=tuple(tail),
    )


def _terms(thread: bytes, head: Head) -> Iterator[str]:
    """Yield the terms that a thread with this head needs marks for."""
    status = head.listed_as
    if status and status not in UNMARKED:
        yield term_of(thread, "status", status.encode())
    if status:
        yield from (term_of(thread, "label", token) for token in head.labels)


def _leftovers(record: Record, swap: Swap, marks: dict[str, str]) -> Leftovers:
    old, drop = record.leftovers, KEEP_ALL if swap.drop.everything else swap.drop
    blobs = dict.fromkeys(blob for blob in (*old.blobs, *drop.blobs) if blob not in swap.blobs)
    posts = (record.posts[key] for key in dict.fromkeys(swap.consumed) if key in record.posts)
    untrue = (mark for mark in record.marks.items() if mark[0] not in marks)
    rows, eras = old.rows or bool(drop.rows) or drop.secure, old.eras or (drop.secure and record.era > 0)
    return Leftovers(tuple(blobs), (*old.posts, *posts), rows, eras, (*old.marks, *untrue))
