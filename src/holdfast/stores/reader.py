"""Reading threads: heads, whole checkpoints and their histories. Blocking; verifies everything it returns.

A prune or delete may win a race against a reader. Then what is missing is explained by a head that has changed, and
the answer is NotFound; under an unchanged head it is damage.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from holdfast.history.advance import advance
from holdfast.history.binding import Binding
from holdfast.history.format import Header, all_blob_ids, damaged, decode_header
from holdfast.history.log import Log
from holdfast.history.restore import fill, fold
from holdfast.records.errors import Conflict, Corrupt, KeyUnavailable, NotFound
from holdfast.records.head import Head, Marks, decode_head
from holdfast.records.identity import CheckpointId, life_of, thread_id_of
from holdfast.records.rows import Row
from holdfast.stores.backend import Backend
from holdfast.stores.sealing import Sealing, Summary

ATTEMPTS = 8
T = TypeVar("T")


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A head as it was read: decoded, and its exact bytes to compare with."""

    head: Head
    encoded: bytes


class Loaded(msgspec.Struct, frozen=True):
    """A thread restored at one seq."""

    seen: Seen
    log: Log
    header: Header


class Reader:
    """The read side of a store handle."""

    def __init__(self, backend: Backend, sealing: Sealing) -> None:
        self.backend = backend
        self.sealing = sealing

    def seen(self, thread: bytes) -> Seen | None:
        """The thread's head, None if it never had one."""
        encoded = self.backend.heads([thread])[0]
        return None if encoded is None else Seen(decode_head(thread, encoded), encoded)

    def listed(self, thread: bytes) -> Seen:
        """The head of a thread that listings show, though it may be claimed only; `NotFound` otherwise."""
        seen = self.seen(thread)
        if seen is None or not seen.head.listed_as:
            raise NotFound(f"there is no thread {thread_id_of(thread)!r}")
        return seen

    def living(self, thread: bytes) -> Seen:
        """The head of a thread that has rows; `NotFound` otherwise."""
        seen = self.seen(thread)
        if seen is None or seen.head.deleted or not seen.head.seq:
            raise NotFound(f"there is no thread {thread_id_of(thread)!r}")
        return seen

    def binding(self, thread: bytes, head: Head) -> Binding:
        """What ties this thread's bytes together."""
        return self.sealing.binding(thread, head)

    def authentic(self, thread: bytes, head: Head) -> Head:
        """The head; `Corrupt` if it was not written by a holder of its key. Without the key that cannot be told."""
        if self.sealing.ring is not None:
            with suppress(KeyUnavailable):
                self.binding(thread, head)
        return head

    def summary(self, thread: bytes, head: Head) -> Summary:
        """What the head says in words. With a key the head is authentic, also if it says nothing."""
        if not head.summary and not head.data_key and self.sealing.ring is None:
            return Summary()
        return self.sealing.read_summary(self.binding(thread, head), head)

    def load_head(self, thread: bytes, seen: Seen | None = None) -> Loaded:
        """The thread as it is now, or was when its head was seen; `NotFound` if there is none."""
        return self._load(thread, None, "", seen)

    def load_checkpoint(self, thread: bytes, seq: int, life: str = "") -> Loaded:
        """One checkpoint; `NotFound` if it is gone or never was. `life` must match if given."""
        loaded = self._load(thread, seq, life)
        if not loaded.header.is_checkpoint:
            raise NotFound(f"row {seq} of thread {thread_id_of(thread)!r} is a journal row, not a checkpoint")
        return loaded

    def _load(self, thread: bytes, seq: int | None, life: str, seen: Seen | None = None) -> Loaded:
        def load(seen: Seen) -> Loaded:
            self._check_visible(thread, seen.head, seq, life)
            return self._restored(thread, seen, seen.head.seq if seq is None else seq)

        return self._agreeing(thread, seen or self.living(thread), load)

    def _agreeing(self, thread: bytes, seen: Seen, read: Callable[[Seen], T]) -> T:
        """Read under a head; if what is there does not agree with it, read again under the head that replaced it."""
        for _ in range(ATTEMPTS):
            try:
                return read(seen)
            except Corrupt:
                again = self.living(thread)
                if again.encoded == seen.encoded:
                    raise
                seen = again
        raise Conflict(
            f"gave up after {ATTEMPTS} reads of thread {thread_id_of(thread)!r} while it is pruned; retry later"
        )

    def _restored(self, thread: bytes, seen: Seen, seq: int) -> Loaded:
        """The thread at `seq`, under the head seen; `Corrupt` if what is there does not agree with it."""
        binding = self.binding(thread, seen.head)
        folded = fold(binding, self.backend.rows(thread, seq), seq)
        if seq == seen.head.seq and folded.digest != seen.head.digest:
            raise damaged(seq, binding.thread_id, "it is not the row that the head names")
        wanted = folded.blobs()
        stored = self.backend.blobs(thread, wanted) if wanted else {}
        return Loaded(seen, fill(folded, stored, self.backend.tuning), folded.header)

    def catch_up(self, thread: bytes, seen: Seen, log: Log) -> Log | None:
        """A log in memory, brought up to the head; None if the thread must be loaded again."""
        head, binding = seen.head, log.binding
        if head.deleted or head.incarnation != binding.incarnation or not head.base <= log.seq < head.seq:
            return None
        try:
            rows = [row for row in self.backend.rows(thread, head.seq) if row.seq > log.seq]
            wanted = all_blob_ids(decode_header(binding, row) for row in rows)
            stored = self.backend.blobs(thread, wanted) if wanted else {}
            after = advance(log, rows, {blob: binding.unseal_blob(blob, stored.get(blob)) for blob in wanted})
        except Corrupt:
            # Perhaps another life of the thread by now. Loading it again tells that from damage.
            return None
        return after if after is not None and after.digest == head.digest else None

    def newest_checkpoint(self, thread: bytes, loaded: Loaded) -> Header:
        """The header of the newest checkpoint at or before what was loaded."""
        seq = loaded.header.checkpoint
        if seq in {loaded.header.seq, 0}:
            return loaded.header
        rows = self.backend.index(thread, seq + 1, 1)
        if not rows or rows[0].seq != seq:
            raise Corrupt(f"{loaded.log.binding.row_name(seq)} is missing", record=loaded.log.binding.row_name(seq))
        return decode_header(loaded.log.binding, rows[0])

    def _check_visible(self, thread: bytes, head: Head, seq: int | None, life: str) -> None:
        name = thread_id_of(thread)
        if life and life != life_of(head.incarnation):
            raise NotFound(f"checkpoint {CheckpointId(name, seq or 0, life)} belongs to an earlier life of that thread")
        if seq is not None and (not 1 <= seq <= head.seq or not head.marks.shows(seq)):
            raise NotFound(f"thread {name!r} has no checkpoint {seq}")

    def survey(
        self, thread: bytes, before: int | None = None, limit: int | None = None, seen: Seen | None = None
    ) -> tuple[Seen, list[Header]]:
        """A thread's head, and headers of its rows that agree with it: newest first, each verified.

        `seen` is the head as it was read before; it is read if it is not given.
        """
        return self._agreeing(
            thread, seen or self.living(thread), lambda seen: (seen, self._headers(thread, seen.head, before, limit))
        )

    def _headers(self, thread: bytes, head: Head, before: int | None, limit: int | None) -> list[Header]:
        binding = self.binding(thread, head)
        # Rows above the head were written since it was read; they are not part of this view.
        before = head.seq + 1 if before is None else min(before, head.seq + 1)
        rows = self.backend.index(thread, before, limit)
        _check_gaps(binding, head, before, rows, complete=limit is None or len(rows) < limit)
        return [decode_header(binding, row) for row in rows]


def _check_gaps(binding: Binding, head: Head, before: int | None, rows: list[Row], *, complete: bool) -> None:
    """A listing must not silently lack a row: only what a prune may have dropped can be missing."""
    above = head.seq + 1 if before is None else min(before, head.seq + 1)
    for seq in [*(row.seq for row in rows), *([0] if complete else [])]:
        for missing in _shown_between(head.marks, seq, above):
            raise Corrupt(f"{binding.row_name(missing)} is missing", record=binding.row_name(missing))
        above = seq


def _shown_between(marks: Marks, low: int, high: int) -> Iterator[int]:
    yield from (seq for seq in (*marks.pinned, *marks.kept) if low < seq < high and marks.shows(seq))
    yield from (seq for seq in range(max(low + 1, marks.floor), high) if marks.shows(seq))
