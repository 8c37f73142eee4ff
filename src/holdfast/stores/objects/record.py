"""The record in a thread's head object: the head, and which other objects count. Replacing it is the one commit point.

Rows and posts that a record does not speak of are not there, even while their objects still are; blobs count as long as
a row names them. So a swap changes all or nothing, and what it dropped is removed afterwards, by whoever comes next.
Pure: no calls here.
"""

from collections.abc import Iterable
from hashlib import sha256
from secrets import token_bytes
from typing import TypeAlias

import msgspec

from holdfast.records.errors import Corrupt
from holdfast.records.rows import KEEP_ALL, Row, Swap
from holdfast.stores.objects.marks import mark_name, remarked
from holdfast.stores.objects.names import RowName, head_name

Rows: TypeAlias = dict[RowName, bytes]
"""Encoded rows by name, in order."""
Links: TypeAlias = dict[tuple[int, str], RowName]
"""Row names by seq and digest."""

DIGEST_BYTES = 16
WRITER_BYTES = 8


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Rows `first` to `last`, without gaps. The digest is that of the last, `base` its base."""

    first: int
    last: int
    base: int
    digest: bytes


class Leftovers(msgspec.Struct, frozen=True, array_like=True):
    """Objects that no longer count and may still be there."""

    blobs: tuple[bytes, ...] = ()
    posts: tuple[str, ...] = ()
    rows_below: int = 0
    """Row objects below this seq that are in no stretch."""
    eras: bool = False
    """All objects of earlier eras."""
    marks: tuple[str, ...] = ()


NO_LEFTOVERS = Leftovers()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Everything that is true of a thread."""

    thread: bytes
    head: bytes = b""
    """Empty while there are only posts."""
    version: int = 0
    writer: bytes = b""
    """Random, from the last swap: it knows its own record again. With it no two records are equal, nor their tags,
    even where a tag is a hash of the content."""
    era: int = 0
    """Raised when everything is dropped. A thread starts again at row 1 then, and whoever still removes the objects
    of an earlier life must not touch those of the next."""
    last: int = 0
    """The highest seq that was ever committed in this era."""
    tip: bytes = b""
    """The digest of that row."""
    stretches: tuple[Stretch, ...] = ()
    posts: dict[str, str] = {}
    """For each key the post object's name. Names are never used again, so a slow removal cannot hit a later post."""
    leftovers: Leftovers = NO_LEFTOVERS
    marks: dict[str, str] = {}
    """For each word that the thread is marked with, the rest of the mark's name (marks.py)."""
    tail: tuple[tuple[RowName, bytes], ...] = ()
    """The newest rows, as long as they are few and small: they ride here, and have no objects of their own yet."""

    def stretch_of(self, seq: int) -> Stretch | None:
        """The stretch that holds a row; None if there is no such row."""
        return next((stretch for stretch in self.stretches if stretch.first <= seq <= stretch.last), None)


_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(Record).decode
_decode_row = msgspec.msgpack.Decoder(tuple[int, int, bytes, bytes, bytes, tuple[bytes, ...]]).decode


def _damaged(name: str, why: object) -> Corrupt:
    return Corrupt(f"object {name} is damaged: {why}", record=f"object {name}")


def bind(name: str, content: bytes) -> bytes:
    """The content of an object, tied to its name by a digest."""
    return content + sha256(name.encode() + content).digest()[:DIGEST_BYTES]


def unbind(name: str, data: bytes) -> bytes:
    """What `bind` was given, or `Corrupt`."""
    content = data[:-DIGEST_BYTES]
    if bind(name, content) != data:
        raise _damaged(name, "its digest does not match")
    return content


def encode_record(record: Record) -> bytes:
    """The content of a thread's head object."""
    return bind(head_name(record.thread), _encode(record))


def decode_record(name: str, data: bytes) -> Record:
    """The record in the head object of this name, or `Corrupt`."""
    content = unbind(name, data)
    try:
        record = _decode_record(content)
    except msgspec.MsgspecError as error:
        raise _damaged(name, error) from error
    if head_name(record.thread) != name:
        raise _damaged(name, "it is the head of another thread")
    return record


def encode_row(row: Row, blobs: Iterable[bytes]) -> bytes:
    """The content of a row object. `blobs` are those that its swap wrote, if it is the first row of it."""
    return _encode((*msgspec.structs.astuple(row), tuple(blobs)))


def decode_row(name: str, expected: RowName, data: bytes) -> tuple[Row, tuple[bytes, ...]]:
    """The row in an object and the blobs written with it, or `Corrupt`. Its digest is verified by whoever uses it."""
    try:
        *fields, blobs = _decode_row(data)
    except msgspec.MsgspecError as error:
        raise _damaged(name, error) from error
    row = Row(*fields)  # type: ignore[arg-type]  # the decoder has checked them
    if (row.seq, row.base, row.digest.hex()) != expected[:3]:
        raise _damaged(name, f"it holds row {row.seq}")
    return row, blobs


def linked(names: Iterable[RowName]) -> Links:
    """Row names as `chain` wants them."""
    return {(name.seq, name.digest): name for name in names}


def chain(links: Links, stretch: Stretch) -> list[RowName]:
    """The rows of a stretch, newest first, from names that reach up to its end: those the end leads down to.

    A lost race may have left other rows of the same seq. No name is taken for want of a better one: where a link is
    missing the chain ends, and readers find damage rather than the row of a race that was lost.
    """
    found: list[RowName] = []
    seq, digest = stretch.last, stretch.digest.hex()
    while seq >= stretch.first and (seq, digest) in links:
        found.append(links[seq, digest])
        seq, digest = seq - 1, found[-1].parent
    return found


def new_rows(record: Record, swap: Swap) -> dict[RowName, Row]:
    """The rows that a swap adds to the log, by name. A row that was committed before is left as it is."""
    named: dict[RowName, Row] = {}
    last, tip = record.last, record.tip
    for row in swap.rows:
        if row.seq > last:
            parent = tip.hex() if row.seq == last + 1 else ""
            named[RowName(row.seq, row.base, row.digest.hex(), parent)] = row
            last, tip = row.seq, row.digest
    return named


def placed(tail: Rows, new: Rows, limit: int) -> tuple[Rows, Rows]:
    """Which rows ride in the record from now on, at most `limit` bytes of them, and which get objects of their own.

    A keyframe sends those before it away, so that a restore of the newest row finds all it needs in the record.
    """
    rows = tail | new
    keyframes = [name.seq for name in new if name.base == name.seq]
    riding = {name: data for name, data in rows.items() if name.seq >= max(keyframes, default=0)}
    if sum(map(len, riding.values())) > limit:
        riding = {}
    return riding, {name: data for name, data in rows.items() if name not in riding}


def next_era(record: Record) -> Record:
    """The record without any row, blob or post."""
    left, era = Leftovers(eras=True, marks=record.leftovers.marks), record.era + 1
    return Record(record.thread, record.head, record.version, record.writer, era, leftovers=left, marks=record.marks)


def posted(record: Record, key: str, name: str) -> Record:
    """The record with one more post."""
    return msgspec.structs.replace(record, version=record.version + 1, posts={**record.posts, key: name})


def swapped(record: Record, swap: Swap, rows: Iterable[Row], tail: Rows) -> Record:
    """The record after a swap. Rows are dropped from its stretches already; `rows` are those the swap adds."""
    stretches, last, tip = list(record.stretches), record.last, record.tip
    for row in rows:
        first = stretches.pop().first if stretches and stretches[-1].last == row.seq - 1 else row.seq
        stretches.append(Stretch(first, row.seq, row.base, row.digest))
        last, tip = row.seq, row.digest
    marks = remarked(record.marks, record.thread, swap.head, record.version + 1)
    return msgspec.structs.replace(
        record,
        head=swap.replacement,
        version=record.version + 1,
        writer=token_bytes(WRITER_BYTES),
        last=last,
        tip=tip,
        stretches=tuple(stretches),
        posts={key: name for key, name in record.posts.items() if key not in swap.consumed},
        leftovers=_with_leftovers(record, swap, marks),
        marks=marks,
        tail=tuple(tail.items()),
    )


def _with_leftovers(record: Record, swap: Swap, marks: dict[str, str]) -> Leftovers:
    old, drop = record.leftovers, KEEP_ALL if swap.drop.everything else swap.drop
    blobs = dict.fromkeys(blob for blob in (*old.blobs, *drop.blobs) if blob not in swap.blobs)
    posts = (record.posts[key] for key in dict.fromkeys(swap.consumed) if key in record.posts)
    # Rows above the last may be those of a swap under way.
    end = min(max((stop for _, stop in drop.rows), default=0), record.last + 1)
    untrue = (mark_name(record.thread, word, rest) for word, rest in record.marks.items() if word not in marks)
    return Leftovers(tuple(blobs), (*old.posts, *posts), max(old.rows_below, end), old.eras, (*old.marks, *untrue))
