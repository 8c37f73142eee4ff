"""The frames of a bundle, with the type and range of every field: all else is refused before anything is stored."""

from itertools import pairwise
from typing import Annotated, Any, TypeAlias

import msgspec

from holdfast.history.binding import BLOB_ID_BYTES, SEQ_BYTES
from holdfast.records.errors import Corrupt
from holdfast.records.head import INCARNATION_BYTES
from holdfast.records.ranges import Moment, RequestNumber
from holdfast.records.words import Status

END_OF_SEQS = (1 << 28) - 1
"""Every kind of store can hold the rows below."""

Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=END_OF_SEQS)]
SeqOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_SEQS)]
BlobId: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=BLOB_ID_BYTES, max_length=BLOB_ID_BYTES)]
Incarnation: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]


class About(msgspec.Struct, frozen=True):
    """The first frame: what the head of the thread says."""

    thread_id: str
    incarnation: Incarnation
    seq: Seq
    base: Seq
    checkpoint: SeqOrNone
    status: Status
    created_at: Moment
    updated_at: Moment
    marks: tuple[SeqOrNone, tuple[Seq, ...], tuple[Seq, ...], tuple[Seq, ...]]
    labels: dict[str, str]
    error: str | None
    requests: tuple[RequestNumber, ...] = ()


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="frame"):
    """Each of the frames between the first and the last: a blob or a row."""


class BlobFrame(Frame, frozen=True, tag="blob"):
    """A blob, unsealed, under the id that rows name it by."""

    blob: BlobId
    data: bytes


class RowFrame(Frame, frozen=True, tag="row"):
    """A row, its metadata and body unsealed."""

    flags: Annotated[int, msgspec.Meta(ge=0, le=255)]
    seq: Seq
    base: Seq
    checkpoint: SeqOrNone
    blobs: tuple[BlobId, ...]
    meta: bytes
    body: bytes


class Content(msgspec.Struct, frozen=True):
    """A bundle whose frames are of the right types, and agree with each other."""

    about: About
    blobs: list[BlobFrame]
    rows: list[RowFrame]


def read_content(frames: list[Any], path: str) -> Content:
    """What the frames of a bundle say, or `Corrupt`."""
    try:
        about = msgspec.convert(frames[0], About, builtin_types=[bytes])
        between = msgspec.convert(frames[1:-1], list[BlobFrame | RowFrame], builtin_types=[bytes])
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise _refusal(path, str(error)) from error
    blobs = [frame for frame in between if isinstance(frame, BlobFrame)]
    rows = [frame for frame in between if isinstance(frame, RowFrame)]
    if frames[-1] != ["end", len(rows), len(blobs)]:
        raise _refusal(path, "frames are missing")
    content = Content(about, blobs, rows)
    if problem := _problem_of(content):
        raise _refusal(path, problem)
    return content


def _refusal(path: str, why: str) -> Corrupt:
    return Corrupt(f"{path} is not a bundle that export wrote, and nothing was imported: {why}", record="bundle")


def _problem_of(content: Content) -> str:
    """Say what in the frames contradicts the rest; empty if nothing does."""
    about, rows = content.about, content.rows
    seqs = [row.seq for row in rows]
    if not seqs or seqs != sorted(set(seqs)):
        return "its rows are not in ascending order"
    last = rows[-1]
    if (last.seq, last.base, last.checkpoint) != (about.seq, about.base, about.checkpoint):
        return f"its last row is {last.seq}, and the thread ends at {about.seq}"
    if about.checkpoint and about.checkpoint not in seqs:
        return f"its newest checkpoint {about.checkpoint} is missing"
    known = {frame.blob for frame in content.blobs}
    if len(known) != len(content.blobs) or known != {blob for row in rows for blob in row.blobs}:
        return "its blobs are not those that its rows name"
    if any(int.from_bytes(blob[:SEQ_BYTES], "big") not in range(1, about.seq + 1) for blob in known):
        return "a blob was written by none of its rows"
    return next((problem for before, row in pairwise([None, *rows]) if (problem := _problem_of_row(before, row))), "")


def _problem_of_row(before: RowFrame | None, row: RowFrame | None) -> str:
    """A row stands on its own, or follows the row before it on the same keyframe."""
    if row is None:
        return ""
    follows = before is not None and (before.seq, before.base) == (row.seq - 1, row.base)
    if not follows and row.base != row.seq:
        return f"row {row.seq} is built on row {row.base}, and not all rows from there on are in it"
    if row.checkpoint > row.seq:
        return f"row {row.seq} names checkpoint {row.checkpoint}, which is newer"
    return ""
