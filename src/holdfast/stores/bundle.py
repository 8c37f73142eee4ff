"""Bundles: one thread as a portable file, across namespaces, keys and kinds of store. Blocking.

A bundle is a line of magic, then frames: length, digest, payload. The first frame describes the thread. Then there is
one frame per blob and one per row, its metadata and body unsealed. Import checks the type and range of every field, and
seals everything again for its own store. With keys, every payload but the wrapped data key itself is encrypted.
"""

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Any, BinaryIO, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import DEFAULT
from holdfast.codec.seal import Seal
from holdfast.history.binding import BLOB_ID_BYTES, BODY, SEQ_BYTES, Binding, place_of
from holdfast.history.format import KEYFRAME, Header, all_blob_ids, encode_header, verify_row
from holdfast.history.prune import needed_rows
from holdfast.records.errors import Conflict, Corrupt, KeyUnavailable, LimitExceeded, NotFound, StoreUnavailable
from holdfast.records.head import INCARNATION_BYTES, Head, Marks, encode_head
from holdfast.records.identity import thread_id_of
from holdfast.records.ranges import Count, Moment, Priority, RequestNumber
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Status
from holdfast.stores.agenda import swap_of
from holdfast.stores.bindings import DATA_KEY_BYTES, Summary
from holdfast.stores.decisions import placed
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.private_files import open_to_read, replacing
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.verify import Verifier

MAGIC = b"holdfast bundle 1\n"
LENGTH_BYTES = 8
DIGEST_BYTES = 16
IDENTITY = b"holdfast bundle"
ATTEMPTS = 8
FREE_BYTES = 64 << 20
"""The bytes that all frames together may expand to, beyond the ratio allowed for one record."""
Entropy = Callable[[int], bytes]
END_OF_SEQS = (1 << 28) - 1
"""Every kind of store can hold rows with a smaller seq."""

Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=END_OF_SEQS)]
SeqOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_SEQS)]
BlobId: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=BLOB_ID_BYTES, max_length=BLOB_ID_BYTES)]
Incarnation: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]


# The frames, and what is checked before anything is stored


class About(msgspec.Struct, frozen=True):
    """The first frame: the thread's head."""

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
    function: str = ""
    version: Count = 0
    queue: str = ""
    priority: Priority = 0

    @property
    def imported_status(self) -> str:
        """The status in the new store: a thread that a function runs does not run there unless it is put on a queue."""
        runs = self.function and self.status in {Status.QUEUED, Status.WORKING}
        return Status.IDLE.value if runs else self.status.value


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="frame"):
    """A frame between the first and the last: a blob or a row."""


class BlobFrame(Frame, frozen=True, tag="blob"):
    """A blob, unsealed, with the id by which rows name it."""

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
    """A bundle whose frames have the right types and agree with each other."""

    about: About
    blobs: list[BlobFrame]
    rows: list[RowFrame]


def read_content(frames: list[Any], path: str) -> Content:
    """Read the frames of a bundle; `Corrupt` if they are not what `export` writes."""
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
    """Return what contradicts the rest of the frames; empty if nothing does."""
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
    """Return what is wrong with a row: it must be a keyframe, or follow the row before it on the same keyframe."""
    if row is None:
        return ""
    follows = before is not None and (before.seq, before.base) == (row.seq - 1, row.base)
    if not follows and row.base != row.seq:
        return f"row {row.seq} is built on row {row.base}, and not all rows from there are in it"
    if row.checkpoint > row.seq:
        return f"row {row.seq} names checkpoint {row.checkpoint}, which is newer"
    return ""


def check_import(reader: Reader, swap: Swap, path: str) -> None:
    """Read every record of the thread that `swap` creates; `Corrupt` if one cannot be read.

    `LimitExceeded` if one is beyond the limits of this store: the store that wrote the bundle may have had higher ones.
    """
    backend = MemoryBackend()
    backend.swap([replace(swap, expected=b"")])
    verifier = Verifier(Reader(backend, reader.bindings))
    verifier.check_thread(swap.thread)
    for why in verifier.errors:
        if isinstance(why, LimitExceeded):
            raise LimitExceeded(f"{path} is beyond the limits of this store, and nothing was imported: {why}") from why
        raise Corrupt(
            f"{path} is not a bundle that export wrote, and nothing was imported: {why}", record="bundle"
        ) from why


# The file


class _Frames:
    """Writes and reads the frames of a bundle. The second seal does not compress."""

    def __init__(self, seal: Seal, loose: Seal | None = None) -> None:
        self._seal = seal
        self._loose = loose or seal
        self._number = 0
        self._stored = 0
        self._expanded = 0

    def write(self, file: BinaryIO, value: Any) -> None:
        identity, data = self._identity(), encode(value)
        payload = self._seal.seal(data, identity)
        if not self._may_follow(payload, data):
            payload = self._loose.seal(data, identity)
        self._count(payload, data)
        file.write(len(payload).to_bytes(LENGTH_BYTES, "big") + _digest(identity, payload) + payload)

    def read(self, file: BinaryIO) -> Any:
        """Return the next frame's value, None at the end of the file."""
        start = file.read(LENGTH_BYTES + DIGEST_BYTES)
        if not start:
            return None
        identity, length = self._identity(), int.from_bytes(start[:LENGTH_BYTES], "big")
        left = os.fstat(file.fileno()).st_size - file.tell()
        payload = file.read(length) if length <= left else b""
        if len(payload) != length or _digest(identity, payload) != start[LENGTH_BYTES:]:
            raise Corrupt("the bundle is damaged or cut short", record="bundle")
        data = self._seal.unseal(payload, identity, record="bundle")
        if not self._may_follow(payload, data):
            raise LimitExceeded("the bundle would expand to too many times its size; nothing was imported")
        self._count(payload, data)
        return decode(data)

    def _may_follow(self, payload: bytes, data: bytes) -> bool:
        """False if the frames up to this one would expand too much: a small bundle must not fill the memory."""
        most = FREE_BYTES + DEFAULT.expansion * (self._stored + len(payload))
        return self._expanded + len(data) <= most

    def _count(self, payload: bytes, data: bytes) -> None:
        self._stored += len(payload)
        self._expanded += len(data)

    def _identity(self) -> bytes:
        """Return the identity of the next frame. It contains the frame's number, so frames cannot change places."""
        self._number += 1
        return IDENTITY + self._number.to_bytes(8, "big")


def _digest(identity: bytes, payload: bytes) -> bytes:
    return sha256(identity + payload).digest()[:DIGEST_BYTES]


def export_thread(reader: Reader, thread: bytes, path: str, ring: KeyRing | None, entropy: Entropy) -> None:
    """Write one thread to a new file, complete or not at all."""
    frames = list(_thread_frames(reader, thread))
    try:
        with replacing(path) as file:
            file.write(MAGIC)
            _write_frames(file, frames, ring, entropy)
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"cannot write {path}: {error}") from error


def _write_frames(file: BinaryIO, frames: list[Any], ring: KeyRing | None, entropy: Entropy) -> None:
    data_key = entropy(DATA_KEY_BYTES)
    wrapped = b"" if ring is None else ring.wrap(data_key, IDENTITY, entropy)
    file.write(len(wrapped).to_bytes(2, "big") + wrapped)
    key = None if ring is None else data_key
    writer = _Frames(Seal(key=key, entropy=entropy), Seal(key=key, entropy=entropy, compress=False))
    for frame in frames:
        writer.write(file, frame)


def _thread_frames(reader: Reader, thread: bytes) -> Iterator[Any]:
    """Yield the frames of a thread as it is at one moment; after a concurrent prune, read it again."""
    for attempt in range(ATTEMPTS):
        seen, found = reader.survey(thread)
        needed = needed_rows(found, seen.head, seen.head.marks)
        headers = [header for header in found if header.seq in needed]
        try:
            rows, blobs = _read_all(reader, thread, seen, headers)
        except Corrupt:
            if attempt + 1 == ATTEMPTS or reader.living(thread).encoded == seen.encoded:
                raise
            continue
        break
    binding = reader.binding(thread, seen.head)
    yield _describe(reader, binding, seen.head)
    for blob, data in blobs.items():
        yield ["blob", blob, data]
    parent = b""
    for row in rows:
        yield ["row", *_unsealed(binding, row, parent)]
        parent = row.digest
    yield ["end", len(rows), len(blobs)]


def _read_all(reader: Reader, thread: bytes, seen: Seen, headers: list[Header]) -> tuple[list[Row], dict[bytes, bytes]]:
    rows: dict[int, Row] = {}
    for header in headers:
        if header.seq not in rows:
            rows.update((row.seq, row) for row in reader.backend.rows(thread, header.seq))
    binding = reader.binding(thread, seen.head)
    missing = [header.seq for header in headers if header.seq not in rows]
    wanted = all_blob_ids(headers)
    stored = reader.backend.blobs(thread, wanted)
    if missing or len(stored) != len(wanted):
        raise Corrupt(f"records of {binding.thread_id!r} are missing", record=binding.thread_id)
    blobs = {blob: binding.unseal_blob(blob, stored[blob]) for blob in sorted(wanted)}
    return [rows[header.seq] for header in reversed(headers)], blobs


def _describe(reader: Reader, binding: Binding, head: Head) -> dict[str, Any]:
    summary = reader.bindings.read_summary(binding, head)
    return {
        "thread_id": binding.thread_id,
        "incarnation": head.incarnation,
        "seq": head.seq,
        "base": head.base,
        "checkpoint": head.checkpoint,
        "status": head.status,
        "created_at": head.created_at,
        "updated_at": head.updated_at,
        "marks": [head.marks.floor, list(head.marks.pinned), list(head.marks.hidden), list(head.marks.kept)],
        "labels": dict(summary.labels),
        "error": summary.error,
        "requests": list(summary.requests),
        "function": summary.function,
        "version": summary.version,
        "queue": head.queue,
        "priority": head.priority,
    }


def _unsealed(binding: Binding, row: Row, parent: bytes) -> list[Any]:
    header = verify_row(binding, row, parent)
    meta = binding.unseal_meta(header)
    body = binding.unseal(row.body, row.seq, BODY)
    return [header.flags, header.seq, header.base, header.checkpoint, header.blob_ids, meta, body]


def import_thread(reader: Reader, path: str, to: str | None, ring: KeyRing | None, entropy: Entropy) -> str:
    """Read a bundle into a thread that does not exist yet, complete or not at all; returns its id."""
    try:
        with open_to_read(path) as file:
            frames = list(_read_frames(file, path, ring))
    except (OSError, ValueError) as error:
        raise NotFound(f"cannot read {path}: {error}") from error
    content = read_content(frames, path)
    source = content.about.thread_id
    thread = reader.key(source if to is None else to)
    seen = reader.seen(thread)
    if seen is not None and (seen.head.seq or seen.head.deleted):
        raise Conflict(
            f"thread {thread_id_of(thread)!r} exists already (or was deleted); import it under another id: to=, or --to"
        )
    swap = _transcribe(reader, thread, seen, content, entropy, same_life=to in {None, source})
    check_import(reader, swap, path)
    if not reader.backend.swap([swap])[0]:
        raise Conflict(
            f"thread {thread_id_of(thread)!r} was created meanwhile; import it under another id: to=, or --to"
        )
    return thread_id_of(thread)


def _read_frames(file: BinaryIO, path: str, ring: KeyRing | None) -> Iterator[Any]:
    if file.read(len(MAGIC)) != MAGIC:
        raise Corrupt(f"{path} is not a Holdfast bundle, or is from another version", record="bundle")
    wrapped = file.read(int.from_bytes(file.read(2), "big"))
    if wrapped and ring is None:
        raise KeyUnavailable(f"{path} is encrypted; import it with keys=")
    if ring is not None and not wrapped:
        raise Corrupt(f"{path} is in plain text, but keys were given; import it without keys", record="bundle")
    reader = _Frames(Seal() if ring is None else Seal(key=ring.unwrap(wrapped, IDENTITY), entropy=os.urandom))
    last: Any = None
    while (frame := reader.read(file)) is not None:
        yield frame
        last = frame
    if not isinstance(last, list) or last[:1] != ["end"]:
        raise Corrupt(f"{path} is cut short", record="bundle")


def _transcribe(
    reader: Reader, thread: bytes, seen: Seen | None, content: Content, entropy: Entropy, *, same_life: bool
) -> Swap:
    """Seal the rows for this store. A copy under another id is another life."""
    incarnation = content.about.incarnation if same_life else entropy(INCARNATION_BYTES)
    binding, data_key = reader.bindings.life(thread, incarnation)
    names: dict[bytes, bytes] = {}
    blobs: dict[bytes, bytes] = {}
    for blob in content.blobs:
        name, stored = binding.seal_blob(blob.data, int.from_bytes(blob.blob[:SEQ_BYTES], "big"))
        names[blob.blob], blobs[name] = name, stored
    rows: list[Row] = []
    for row in content.rows:
        rows.append(_resealed(binding, row, names, blobs, rows[-1] if rows else None))
    head = binding.signed(_imported_head(reader, binding, content.about, rows, blobs, data_key, seen))
    encoded = encode_head(thread, head)
    old, expected = (seen.head, seen.encoded) if seen else (Head(), b"")
    return swap_of(thread, old, expected, head, encoded, tuple(rows), blobs)


def _resealed(
    binding: Binding, frame: RowFrame, names: dict[bytes, bytes], blobs: dict[bytes, bytes], before: Row | None
) -> Row:
    seq = frame.seq
    renamed = [names[blob] for blob in frame.blobs]
    sealed = binding.seal(frame.body, seq, BODY)
    parent = before.digest if before is not None and before.seq == seq - 1 else b""
    sizes = tuple(len(blobs[blob]) for blob in renamed)
    stored_parent = parent if frame.flags & KEYFRAME else b""
    since = seq - frame.checkpoint
    fields = Header(frame.flags, len(sealed), b"", since, b"".join(renamed), sizes, stored_parent)
    place = place_of(seq, seq - frame.base)
    fields.meta = binding.seal_meta(frame.meta, place, fields)
    header = encode_header(fields, place, binding.check_start)
    return Row(seq, frame.base, binding.digest(parent, place, header, sealed), header, sealed)


def _imported_head(
    reader: Reader,
    binding: Binding,
    about: About,
    rows: list[Row],
    blobs: dict[bytes, bytes],
    data_key: bytes,
    seen: Seen | None,
) -> Head:
    bindings = reader.bindings
    summary = Summary(about.labels, about.error, about.requests, about.function, about.version)
    head = Head(
        incarnation=binding.incarnation,
        seq=about.seq,
        base=about.base,
        checkpoint=about.checkpoint,
        digest=rows[-1].digest,
        token=seen.head.token + 1 if seen else 0,
        status=about.imported_status,
        created_at=about.created_at,
        updated_at=about.updated_at,
        row_count=len(rows),
        stored_bytes=sum(len(row.header) + len(row.body) for row in rows) + sum(map(len, blobs.values())),
        marks=Marks(*about.marks),
        labels=bindings.label_tokens(about.labels),
        summary=bindings.seal_summary(binding, summary),
        data_key=data_key,
    )
    if not about.function:
        return head
    route, *_ = bindings.routes(about.function, about.version)
    return placed(head, about.queue, about.priority, route, ())
