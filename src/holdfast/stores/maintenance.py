"""Changes to threads other than new rows: pins, prunes, deletion, revival, rotation of keys. Blocking.

Each reads the head, decides, and swaps; after a conflict it reads again. All are idempotent.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from holdfast.history.format import Header, all_blob_ids, encode_header
from holdfast.history.meta import decode_meta
from holdfast.history.prune import Dated, Plan, keeps_all, new_marks, plan, thread_expires
from holdfast.ports import Ports
from holdfast.records.errors import (
    Conflict,
    Corrupt,
    HoldfastError,
    IncompatibleCheckpoint,
    KeyUnavailable,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
)
from holdfast.records.head import Head, Marks, decode_head, encode_head
from holdfast.records.identity import CheckpointId, life_of, shown_id_of, thread_id_of
from holdfast.records.retention import Freed, Retention
from holdfast.records.rows import KEEP_ALL, Drop
from holdfast.stores.agenda import swap_of
from holdfast.stores.backend import Backend, Littering, Misplacing, readable_head
from holdfast.stores.decisions import buried, deleted, marked, revived
from holdfast.stores.landing import resolved
from holdfast.stores.listing import Listings
from holdfast.stores.reader import Reader, Seen, gave_up

ATTEMPTS = 64
SLICE_ROWS = 512
CHUNK = 64
"""How many threads one call of the store's own threads works on."""
T = TypeVar("T")


class Maintenance:
    """The maintenance of one store handle's threads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._backend: Backend = reader.backend
        self._littering = reader.backend if isinstance(reader.backend, Littering) else None

    def _swap(self, thread: bytes, seen: Seen, head: Head, drop: Drop = KEEP_ALL) -> Seen | None:
        """Put a new head in place of the one seen, and return it; None after a conflict."""
        if head.data_key:
            head = self._reader.binding(thread, seen.head).signed(head)
        swap = swap_of(thread, seen.head, seen.encoded, head, encode_head(thread, head), drop=drop)
        try:
            swapped: bool | None = self._backend.swap([swap])[0]
        except OutcomeUnknown:
            swapped = None
            with suppress(StoreUnavailable):
                swapped = resolved(self._reader, swap)
            if swapped is None:
                raise
        return Seen(head, swap.replacement) if swapped else None

    def _until_swapped(self, thread: bytes, attempt: Callable[[], T | None]) -> T:
        for _ in range(ATTEMPTS):
            result = attempt()
            if result is not None:
                return result
        raise gave_up(ATTEMPTS, thread)

    # Marks

    def mark(self, thread: bytes, checkpoint: CheckpointId, change: Callable[[Marks, int], Marks]) -> bool:
        """Pin, unpin or hide one visible checkpoint. False, and nothing is done, if the newest was to be hidden."""

        def attempt() -> bool | None:
            seen, headers = self._reader.survey(thread, checkpoint.seq + 1, 1)
            _check_visible(seen.head, headers, checkpoint)
            if change is Marks.hiding and seen.head.checkpoint == checkpoint.seq:
                return False
            marks = change(seen.head.marks, checkpoint.seq)
            return marks == seen.head.marks or self._swap(thread, seen, marked(seen.head, marks)) is not None or None

        return self._until_swapped(thread, attempt)

    # Prune

    def prune(self, thread: bytes, listed: bytes, *, retention: Retention, now: int, dry_run: bool) -> Freed:
        """Apply a retention to one thread, unless it is damaged, in constant use, or the ring lacks its key.

        `listed` is its head as a listing shows it. If the listing lost it, the thread counts as damaged.
        """
        try:
            known: Seen | None = Seen(decode_head(thread, listed), listed)

            def attempt() -> Freed | None:
                nonlocal known
                seen, known = known or self._reader.seen(thread), None
                return self._prune_once(thread, seen, retention, now, dry_run=dry_run)

            return self._until_swapped(thread, attempt)
        except (Corrupt, IncompatibleCheckpoint, KeyUnavailable):
            return Freed(damaged=(shown_id_of(thread),))
        except Conflict:
            return Freed(busy=(shown_id_of(thread),))
        except NotFound:
            return Freed()  # deleted meanwhile

    def _prune_once(
        self, thread: bytes, seen: Seen | None, retention: Retention, now: int, *, dry_run: bool
    ) -> Freed | None:
        if seen is None or seen.head.deleted or not seen.head.seq:
            return Freed()
        if keeps_all(retention, seen.head, now) and self._littering is None:
            self._reader.binding(thread, seen.head)  # raises for a forged head, or without its key
            return Freed()
        seen, headers = self._reader.survey(thread, seen=seen)  # perhaps under a newer head
        if thread_expires(retention, seen.head, now):
            freed = _whole(seen.head, headers)
            done = dry_run or self._swap(thread, seen, deleted(seen.head, now), Drop(everything=True))
            return freed if done else None
        todo = self._plan(thread, seen.head, headers, retention, now)
        todo = self._with_strays(thread, seen.head, headers, todo)
        freed = _freed(todo, headers)
        return freed if dry_run or self._carry_out(thread, seen, todo, headers) else None

    def _plan(self, thread: bytes, head: Head, headers: Sequence[Header], retention: Retention, now: int) -> Plan:
        shown = [header for header in headers if header.is_checkpoint and head.marks.shows(header.seq)]
        if retention.max_age is None:
            visible = [Dated(header.seq, 0) for header in shown]
        else:
            binding = self._reader.binding(thread, head)
            visible = [Dated(header.seq, now - decode_meta(binding, header).created_at) for header in shown]
        return plan(headers, head, new_marks(retention, head.marks, visible, head.checkpoint))

    def _with_strays(self, thread: bytes, head: Head, headers: Sequence[Header], todo: Plan) -> Plan:
        """Add the blobs of writes that were begun and can no longer be committed."""
        if self._littering is None:
            return todo
        strays = self._littering.strays(thread, head.seq, all_blob_ids(headers))
        return replace(todo, blobs=(*todo.blobs, *strays))

    def _carry_out(self, thread: bytes, seen: Seen, todo: Plan, headers: Sequence[Header]) -> bool:
        """Drop rows in slices, the marks with the first: after a crash the next prune removes the rest."""
        current: Seen | None = seen
        for drop in _slices(todo, headers):
            if current is None:
                return False
            if drop == KEEP_ALL and todo.marks == current.head.marks:
                continue
            head = marked(_lighter(current.head, drop, headers), todo.marks)
            current = self._swap(thread, current, head, drop)
        return current is not None

    def forget_history(self, thread: bytes, seq: int) -> bool:
        """Drop every row and blob that row `seq`, a keyframe, does not need. False if the head is at another row."""
        seen, headers = self._reader.survey(thread)
        if seen.head.seq != seq or seen.head.base != seq:
            return False
        todo = self._with_strays(thread, seen.head, headers, plan(headers, seen.head, Marks(floor=seq)))
        drop = Drop(todo.rows, todo.blobs, secure=True)
        head = marked(_lighter(seen.head, drop, headers), todo.marks)
        return self._swap(thread, seen, head, drop) is not None

    # Whole threads

    def delete(self, thread: bytes, now: int) -> None:
        """Replace the thread by a tombstone, even if its head is damaged. Deleting twice changes nothing."""

        def attempt() -> bool | None:
            encoded = self._backend.heads([thread])[0]
            if encoded is None:
                return self._drop_misplaced(thread)
            if not encoded:
                raise Corrupt(f"the head of {thread_id_of(thread)!r} is empty", record=thread_id_of(thread))
            head = readable_head(thread, encoded)
            if head is not None and head.deleted:
                return self._drop_misplaced(thread)
            tombstone = deleted(head, now) if head is not None else buried(now)
            return self._swap(thread, Seen(tombstone, encoded), tombstone, Drop(everything=True)) is not None or None

        try:
            self._until_swapped(thread, attempt)
        except Corrupt:
            if self._bury(thread, now):
                self._drop_misplaced(thread)
            else:
                self._until_swapped(thread, attempt)  # raises again, unless another process has repaired the head

    def delete_if(self, thread: bytes, condition: Callable[[Head], bool], now: int) -> bool:
        """Delete a thread if its head meets a condition; False, and nothing is done, if it does not."""

        def attempt() -> bool | None:
            seen = self._reader.seen(thread)
            if seen is None or seen.head.deleted or not condition(seen.head):
                return False
            return self._swap(thread, seen, deleted(seen.head, now), Drop(everything=True)) is not None or None

        return self._until_swapped(thread, attempt)

    def _drop_misplaced(self, thread: bytes) -> bool:
        """Drop what only a listing finds."""
        if isinstance(self._backend, Misplacing):
            self._backend.drop_misplaced(thread)
        return True

    def _bury(self, thread: bytes, now: int) -> bool:
        """Put a tombstone where a head was lost. False if the store cannot distinguish that from other damage."""
        tombstone = buried(now)
        with suppress(Corrupt):
            return self._swap(thread, Seen(tombstone, b""), tombstone, Drop(everything=True)) is not None
        return False

    def revive(self, thread: bytes) -> None:
        """Replace a tombstone by an empty head; `NotFound` if the thread was not deleted."""

        def attempt() -> Seen | None:
            seen = self._reader.seen(thread)
            if seen is None or not seen.head.deleted:
                raise NotFound(f"thread {thread_id_of(thread)!r} was not deleted")
            return self._swap(thread, seen, revived(seen.head))

        self._until_swapped(thread, attempt)

    def rotate(self, thread: bytes, _listed: bytes = b"") -> bool | HoldfastError:
        """Wrap the thread's data key under the ring's writer key. True if that changed the head.

        Damage and a missing key are returned, not raised: the other threads are still rotated.
        """

        def attempt() -> bool | None:
            seen, bindings = self._reader.seen(thread), self._reader.bindings
            if seen is None or seen.head.deleted or not seen.head.incarnation:
                return False
            wrapped = bindings.rewrapped(thread, seen.head)
            summary = bindings.read_summary(self._reader.binding(thread, seen.head), seen.head)
            labels = bindings.label_tokens(summary.labels)
            route = bindings.routes(summary.function, summary.version)[0] if summary.function else b""
            lane = bindings.lane_again(seen.head.lane, summary.labels)
            head = replace(seen.head, data_key=wrapped, labels=labels, route=route, lane=lane)
            if head == seen.head:
                return False
            return self._swap(thread, seen, head) is not None or None

        try:
            return self._until_swapped(thread, attempt)
        except (Corrupt, IncompatibleCheckpoint, KeyUnavailable) as error:
            return error


async def for_each_thread(
    ports: Ports,
    listings: Listings,
    work: Callable[[bytes, bytes], T],
    progress: Callable[[int, int], object] | None = None,
) -> list[T]:
    """Call `work` with each thread and its listed head, a chunk at a time on one of the store's threads."""
    heads, results = await ports.perform(listings.all_heads), list[T]()
    for start in range(0, len(heads), CHUNK):
        chunk = heads[start : start + CHUNK]
        results += await ports.perform(lambda chunk: [work(*entry) for entry in chunk], chunk)
        if progress is not None:
            progress(len(results), len(heads))
    return results


def _check_visible(head: Head, headers: Sequence[Header], checkpoint: CheckpointId) -> None:
    found = headers and headers[0].seq == checkpoint.seq and headers[0].is_checkpoint
    if not found or checkpoint.life != life_of(head.incarnation) or not head.marks.shows(checkpoint.seq):
        raise NotFound(f"checkpoint {str(checkpoint)!r} does not exist")


def _row_bytes(header: Header) -> int:
    return len(encode_header(header, b"", 0)) + header.body_size


def _dropped(drop: Drop, headers: Sequence[Header]) -> list[Header]:
    gone = {seq for start, stop in drop.rows for seq in range(start, stop)}
    return [header for header in headers if header.seq in gone]


def _blob_bytes(blobs: Sequence[bytes], headers: Sequence[Header]) -> int:
    sizes = {
        blob: size
        for header in headers
        if header.blobs
        for blob, size in zip(header.blob_ids, header.blob_sizes, strict=True)
    }
    return sum(sizes.get(blob, 0) for blob in blobs)


def _lighter(head: Head, drop: Drop, headers: Sequence[Header]) -> Head:
    gone = _dropped(drop, headers)
    freed = sum(map(_row_bytes, gone)) + _blob_bytes(drop.blobs, headers)
    return replace(head, row_count=head.row_count - len(gone), stored_bytes=head.stored_bytes - freed)


def _whole(head: Head, headers: Sequence[Header]) -> Freed:
    checkpoints = sum(header.is_checkpoint and head.marks.shows(header.seq) for header in headers)
    blobs = {blob for header in headers if header.blobs for blob in header.blob_ids}
    return Freed(threads=1, checkpoints=checkpoints, blobs=len(blobs), bytes=head.stored_bytes)


def _freed(todo: Plan, headers: Sequence[Header]) -> Freed:
    gone = sum(map(_row_bytes, _dropped(Drop(todo.rows), headers)))
    return Freed(checkpoints=todo.hidden_count, blobs=len(todo.blobs), bytes=gone + _blob_bytes(todo.blobs, headers))


def _row_slices(ranges: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    slices: list[list[tuple[int, int]]] = [[]]
    count = 0
    for start, stop in ranges:
        for at in range(start, stop, SLICE_ROWS):
            slices[-1].append((at, min(at + SLICE_ROWS, stop)))
            count += slices[-1][-1][1] - at
            if count >= SLICE_ROWS:
                slices.append([])
                count = 0
    return [ranges for ranges in slices if ranges]


def _slices(todo: Plan, headers: Sequence[Header]) -> list[Drop]:
    """Split a plan into drops, at least one, which carries the marks. Each drops the blobs that only its rows name.

    So a crash between slices leaves no blob that no row names. Blobs of no row are in the last one.
    """
    drops: list[Drop] = []
    remaining = list(headers)
    for ranges in _row_slices(todo.rows):
        gone = _dropped(Drop(rows=tuple(ranges)), remaining)
        seqs = {header.seq for header in gone}
        remaining = [header for header in remaining if header.seq not in seqs]
        blobs = all_blob_ids(gone) - all_blob_ids(remaining)
        drops.append(Drop(rows=tuple(ranges), blobs=tuple(sorted(blobs))))
    rest = set(todo.blobs).difference(*(drop.blobs for drop in drops))
    if rest:
        drops.append(Drop(blobs=tuple(sorted(rest))))
    return drops or [KEEP_ALL]
