"""Reading threads: heads, whole checkpoints and their histories. Blocking; verifies everything it returns.

A prune or delete may win a race against a reader. If rows are missing and the head has changed, they were deleted and
the answer is `NotFound`; under an unchanged head they are damage.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from holdfast.history.advance import advance
from holdfast.history.binding import Binding
from holdfast.history.format import Header, all_blob_ids, damaged, decode_header
from holdfast.history.journal import Journal
from holdfast.history.log import Log
from holdfast.history.meta import Meta, decode_meta, describe
from holdfast.history.restore import fill, fold, read_state
from holdfast.records.checkpoint import Checkpoint, Part
from holdfast.records.errors import Conflict, Corrupt, KeyUnavailable, NotFound
from holdfast.records.head import Head, Marks, decode_head
from holdfast.records.identity import CheckpointId, checkpoint_id, life_of, thread_id_of
from holdfast.records.rows import Row
from holdfast.stores.agenda import agenda_of
from holdfast.stores.backend import Backend
from holdfast.stores.bindings import Bindings, Summary

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

    def __init__(self, backend: Backend, bindings: Bindings) -> None:
        self.backend = backend
        self.bindings = bindings
        self.agenda = agenda_of(backend)
        self.key = bindings.key
        """The key of a thread id in the namespace of this handle."""

    def seen(self, thread: bytes) -> Seen | None:
        """Return the thread's head, None if it never had one."""
        encoded = self.backend.heads([thread])[0]
        return None if encoded is None else Seen(decode_head(thread, encoded), encoded)

    def listed(self, thread: bytes) -> Seen:
        """Return the head of a thread that listings show, even if it has no rows yet; `NotFound` otherwise."""
        seen = self.seen(thread)
        if seen is None or not seen.head.listed_as:
            raise no_thread(thread_id_of(thread))
        return seen

    def living(self, thread: bytes) -> Seen:
        """Return the head of a thread that has rows; `NotFound` otherwise."""
        seen = self.seen(thread)
        if seen is None or seen.head.deleted or not seen.head.seq:
            raise no_thread(thread_id_of(thread))
        return seen

    def binding(self, thread: bytes, head: Head) -> Binding:
        """Return the binding of a thread that exists; authenticates its head if there is a key."""
        return self.bindings.binding(thread, head)

    def authentic(self, thread: bytes, head: Head) -> Head:
        """Return the head; `Corrupt` if it was not written by a holder of its key. Unchecked if the key is missing."""
        if self.bindings.ring is not None:
            with suppress(KeyUnavailable):
                self.binding(thread, head)
        return head

    def summary(self, thread: bytes, head: Head) -> Summary:
        """Return the head's summary. With a key the head is authenticated, even if the summary is empty."""
        if not head.summary and not head.data_key and self.bindings.ring is None:
            return Summary()
        return self.bindings.read_summary(self.binding(thread, head), head)

    def load_head(self, thread: bytes, seen: Seen | None = None) -> Loaded:
        """Return the thread as it is now, or was when its head was seen; `NotFound` if there is none."""
        return self._load(thread, None, "", seen)

    def load_checkpoint(self, thread: bytes, seq: int, life: str = "") -> Loaded:
        """Return one checkpoint; `NotFound` if it was deleted or never existed. `life` must match if given."""
        loaded = self._load(thread, seq, life)
        if not loaded.header.is_checkpoint:
            raise NotFound(f"row {seq} of thread {thread_id_of(thread)!r} is a journal row, not a checkpoint")
        return loaded

    def latest(self, thread: bytes) -> Checkpoint:
        """Return the newest checkpoint with the thread's present status; `NotFound` if there is none."""
        loaded = self.load_head(thread)
        header = self.newest_checkpoint(thread, loaded)
        if not header.checkpoint:
            raise NotFound("the thread has no checkpoint yet")
        meta = decode_meta(loaded.log.binding, header)
        return checkpoint_of(loaded.log, meta, seq=header.seq, status=loaded.seen.head.status)

    def checkpoint(self, thread: bytes, seq: int, life: str = "") -> Checkpoint:
        """As `load_checkpoint`, in the form that users get."""
        loaded = self.load_checkpoint(thread, seq, life)
        return checkpoint_of(loaded.log, decode_meta(loaded.log.binding, loaded.header))

    def _load(self, thread: bytes, seq: int | None, life: str, seen: Seen | None = None) -> Loaded:
        def load(seen: Seen) -> Loaded:
            self._check_visible(thread, seen.head, seq, life)
            return self._restored(thread, seen, seen.head.seq if seq is None else seq)

        return self._agreeing(thread, seen or self.living(thread), load)

    def _agreeing(self, thread: bytes, seen: Seen, read: Callable[[Seen], T]) -> T:
        """Read under a head; if the rows do not agree with it, read again under the head that replaced it."""
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
        """Return the thread at `seq`, under the head seen; `Corrupt` if the rows do not agree with it."""
        binding = self.binding(thread, seen.head)
        folded = fold(binding, self.backend.rows(thread, seq), seq)
        if seq == seen.head.seq and folded.digest != seen.head.digest:
            raise damaged(seq, binding.thread_id, "it is not the row that the head names")
        wanted = folded.blobs()
        stored = self.backend.blobs(thread, wanted) if wanted else {}
        return Loaded(seen, fill(folded, stored, self.backend.tuning), folded.header)

    def catch_up(self, thread: bytes, seen: Seen, log: Log) -> Log | None:
        """Bring a log in memory up to the head; None if the thread must be loaded again."""
        head, binding = seen.head, log.binding
        if head.deleted or head.incarnation != binding.incarnation or not head.base <= log.seq < head.seq:
            return None
        try:
            rows = [row for row in self.backend.rows(thread, head.seq) if row.seq > log.seq]
            wanted = all_blob_ids(decode_header(binding, row) for row in rows)
            stored = self.backend.blobs(thread, wanted) if wanted else {}
            after = advance(log, rows, {blob: binding.unseal_blob(blob, stored.get(blob)) for blob in wanted})
        except Corrupt:
            # It may be another life of the thread by now. Loading it again distinguishes that from damage.
            return None
        return after if after is not None and after.digest == head.digest else None

    def newest_checkpoint(self, thread: bytes, loaded: Loaded) -> Header:
        """Return the header of the newest checkpoint at or before what was loaded."""
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
        """Return a thread's head, and headers of its rows that agree with it: newest first, each verified.

        `seen` is the head if the caller has read it.
        """
        return self._agreeing(
            thread, seen or self.living(thread), lambda seen: (seen, self._headers(thread, seen.head, before, limit))
        )

    def _headers(self, thread: bytes, head: Head, before: int | None, limit: int | None) -> list[Header]:
        binding = self.binding(thread, head)
        # Rows above the head were written after it was read; they are not part of this view.
        before = head.seq + 1 if before is None else min(before, head.seq + 1)
        rows = self.backend.index(thread, before, limit)
        _check_gaps(binding, head, before, rows, complete=limit is None or len(rows) < limit)
        return [decode_header(binding, row) for row in rows]


def no_thread(thread_id: str) -> NotFound:
    """Return the error of a call that names a thread which does not exist."""
    return NotFound(f"thread {thread_id!r} does not exist")


def gave_up(attempts: int, thread: bytes) -> Conflict:
    """Return the error of a write that lost to other writers each time."""
    return Conflict(f"gave up after {attempts} conflicting writes to thread {thread_id_of(thread)!r}; retry later")


def checkpoint_of(log: Log, meta: Meta, *, seq: int | None = None, status: str | None = None) -> Checkpoint:
    """Return a log's state as a checkpoint. Its id, its metadata and its state are decoded when they are read."""
    binding, number, word = log.binding, seq or log.seq, status or meta.status
    return Checkpoint(
        lambda: checkpoint_id(binding.thread_id, number, binding.life),
        lambda: describe(binding, number, meta, word),
        lambda part: _restored(log, part),
    )


def _restored(log: Log, part: Part) -> Any:
    if part == "state":
        return read_state(log.binding, log.document)
    journal = Journal.of(log.document)
    if part == "pending":
        return journal.open_requests(log.binding)
    steps = journal.lazy_steps(log.binding.limits)
    return steps if part == "lazy_steps" else steps.all()


def _check_gaps(binding: Binding, head: Head, before: int | None, rows: list[Row], *, complete: bool) -> None:
    """Raise `Corrupt` if a row is missing that no prune may have dropped."""
    above = head.seq + 1 if before is None else min(before, head.seq + 1)
    for seq in [*(row.seq for row in rows), *([0] if complete else [])]:
        if above - seq > 1 and (missing := next(_shown_between(head.marks, seq, above), 0)):
            raise Corrupt(f"{binding.row_name(missing)} is missing", record=binding.row_name(missing))
        above = seq


def _shown_between(marks: Marks, low: int, high: int) -> Iterator[int]:
    yield from (seq for seq in (*marks.pinned, *marks.kept) if low < seq < high and marks.shows(seq))
    yield from (seq for seq in range(max(low + 1, marks.floor), high) if marks.shows(seq))
