"""Threads in this process's memory, lost when it ends. The model that all other backends are compared with."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from threading import Condition, Lock
from time import time_ns

from msgspec.structs import replace

from holdfast.history.tuning import Tuning
from holdfast.ports import reset_after_fork
from holdfast.records.errors import ConfigurationError, StoreClosed
from holdfast.records.head import Head
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Drop, Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.agenda import (
    NO_LIMITS,
    Depth,
    Due,
    Entry,
    QueueLimits,
    Taken,
    after_call,
    after_taking,
    entry_after,
    entry_of,
)
from holdfast.stores.backend import Listing, belongs, counted_as, readable_head
from holdfast.stores.choosing import Look, charged, choose, depth_of, last_lane_of, paid_off_by


class _Thread:
    """All records of one thread. `born` numbers threads in the order of their creation."""

    def __init__(self, born: int) -> None:
        self.born = born
        self.encoded = b""
        self.head = Head()
        self.rows: dict[int, Row] = {}
        self.blobs: dict[bytes, bytes] = {}
        self.posts: dict[str, bytes] = {}
        self.entry: Entry | None = None

    def apply(self, swap: Swap) -> None:
        """Apply a swap. An interrupt can hit any call, so the head is set after what it needs, and before the drops."""
        rows, blobs, posts = ({}, {}, {}) if swap.drop.everything else (self.rows, self.blobs, self.posts.copy())
        rows.update((row.seq, row) for row in swap.rows)
        blobs.update(swap.blobs)
        for key in swap.consumed:
            posts.pop(key, None)
        entry = entry_after(swap, posts) if swap.moves else self.entry
        self.encoded, self.head, self.entry = swap.replacement, swap.head, entry
        self.rows, self.blobs, self.posts = rows, blobs, posts
        self._drop(swap.drop, {row.seq for row in swap.rows}, swap.blobs)

    def _drop(self, drop: Drop, new_rows: Collection[int], new_blobs: Collection[bytes]) -> None:
        for start, stop in drop.rows:
            for seq in range(start, stop):
                if seq not in new_rows:
                    self.rows.pop(seq, None)
        for blob in drop.blobs:
            if blob not in new_blobs:
                self.blobs.pop(blob, None)


class MemoryBackend:
    """The interface of `Backend` over a dict and a lock."""

    kind = "memory"
    tuning = Tuning()
    inline = True

    def __init__(self, durability: Durability = Durability.NONE) -> None:
        if durability != Durability.NONE:
            raise ConfigurationError(
                f"a memory store cannot have durability {durability!r}; use a path, or durability='none'"
            )
        self._threads: dict[bytes, _Thread] = {}
        self._buckets: dict[bytes, int] = {}
        self._lock = Lock()
        self._closed = False
        self._announced = Condition()
        self._announcements = 0
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may hold: a forked child has its own copy of the data."""
        self._lock = Lock()
        self._announced = Condition()

    def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    def close(self) -> None:
        """Make later calls raise `StoreClosed`."""
        self._closed = True

    def guarantee(self) -> Guarantee:
        """Return the level `none`: nothing survives the process."""
        return Guarantee(level=Durability.NONE, store=self.kind)

    def check(self) -> list[str]:
        """Return []: a dict has no damage."""
        return []

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        with self._lock:
            found = [self._found(thread) for thread in threads]
            return [kept.encoded or None if kept else None for kept in found]

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`."""
        with self._lock:
            return [self._swap_one(swap) for swap in swaps]

    def _swap_one(self, swap: Swap) -> bool:
        kept = self._found(swap.thread)
        if (kept.encoded if kept else b"") != swap.expected:
            return False
        self._kept(swap.thread).apply(swap)
        return True

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`."""
        with self._lock:
            kept = self._found(thread)
            if kept is None or seq not in kept.rows:
                return []
            return [kept.rows[at] for at in range(kept.rows[seq].base, seq + 1) if at in kept.rows]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        with self._lock:
            kept = self._found(thread)
            return {blob: kept.blobs[blob] for blob in ids if blob in kept.blobs} if kept else {}

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        with self._lock:
            kept = self._found(thread)
            seqs = sorted((seq for seq in kept.rows if before is None or seq < before), reverse=True) if kept else []
            return [replace(kept.rows[seq], body=b"") for seq in seqs[:limit]] if kept else []

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`: newest created first."""
        before = None if cursor is None else int(cursor)
        with self._lock:
            self._check_open()
            found = [
                (kept.born, thread, kept.encoded)
                for thread, kept in self._threads.items()
                if thread.startswith(prefix) and kept.encoded and belongs(thread, kept.encoded, statuses, labels)
            ]
        found.sort(reverse=True)
        found = [entry for entry in found if before is None or entry[0] < before]
        page = found[:limit]
        return Listing([(thread, head) for _, thread, head in page], str(page[-1][0]) if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`."""
        with self._lock:
            self._check_open()
            heads = [(thread, kept.encoded) for thread, kept in self._threads.items() if thread.startswith(prefix)]
        return dict(Counter(filter(None, (counted_as(*entry) for entry in heads if entry[1]))))

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        with self._lock:
            return self._post(thread, key, value)

    def _post(self, thread: bytes, key: str, value: bytes) -> bool:
        self._check_open()
        posts = self._kept(thread).posts
        is_new = key not in posts
        posts.setdefault(key, value)
        return is_new

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        with self._lock:
            kept = self._found(thread)
            return dict(sorted(kept.posts.items())) if kept else {}

    # The agenda

    def take(
        self,
        prefix: bytes,
        queue: str,
        routes: Collection[bytes],
        most: int,
        after: bytes = b"",
        limits: QueueLimits = NO_LIMITS,
        low: int = 0,
    ) -> Taken:
        """See `Agenda.take`."""
        bucket = limits.pace.bucket if limits.pace else b""
        with self._lock:
            now, entries = self.now(), self._entries(prefix)
            look = Look(queue, routes, most, after, limits, low, now, self._buckets.get(bucket, 0))
            picked, next_due, has_more = choose(entries.items(), look)
            for thread, entry in picked:
                is_readable = readable_head(thread, self._threads[thread].encoded) is not None
                self._threads[thread].entry = after_taking(entry, now, is_readable=is_readable)
            self._buckets[bucket] = paid_off_by(look, picked)
            found = [Due(thread, entry, self._threads[thread].encoded) for thread, entry in picked]
        return Taken(found, next_due, last_lane_of([entry for _, entry in picked], after), has_more)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        with self._lock:
            self._look_again(thread, due)

    def _look_again(self, thread: bytes, due: int) -> None:
        kept = self._found(thread)
        if kept is not None:
            kept.entry = after_call(kept.entry, entry_of(kept.head), due, self.now())

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`."""
        with self._lock:
            is_new = self._post(thread, key, value)
            self._look_again(thread, self.now())
            return is_new

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return depth_of(self.entries(prefix).values(), queue, self.now())

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        with self._lock:
            return self._entries(prefix)

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`."""
        with self._lock:
            self._check_open()
            wait, self._buckets[bucket] = charged(self._buckets.get(bucket, 0), cost, burst, self.now())
            return wait

    def now(self) -> int:
        """See `Agenda.now`: the clock of this host."""
        return time_ns() // 1000

    def announce(self, prefix: bytes) -> None:
        """See `Announcing.announce`."""
        with self._announced:
            self._announcements += 1
            self._announced.notify_all()

    def listener(self, prefix: bytes) -> "MemoryListener":
        """See `Announcing.listener`: it hears of all namespaces."""
        return MemoryListener(self)

    def await_announcement(self, known: int, timeout: float) -> int:
        """Wait until more than `known` announcements were made, or time is up. Return how many were made."""
        with self._announced:
            self._announced.wait_for(lambda: self._announcements > known, timeout)
            return self._announcements

    def _entries(self, prefix: bytes) -> dict[bytes, Entry]:
        self._check_open()
        found = ((thread, kept.entry) for thread, kept in self._threads.items() if thread.startswith(prefix))
        return {thread: entry for thread, entry in found if entry is not None}

    def _found(self, thread: bytes) -> _Thread | None:
        self._check_open()
        return self._threads.get(thread)

    def _kept(self, thread: bytes) -> _Thread:
        if thread not in self._threads:
            self._threads[thread] = _Thread(len(self._threads))
        return self._threads[thread]

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this memory store was closed")


class MemoryListener:
    """See `Listener`."""

    is_connected = True

    def __init__(self, backend: MemoryBackend) -> None:
        self._backend = backend
        self._known = backend.await_announcement(0, 0)

    def wait(self, timeout: float) -> bool:
        """See `Listener.wait`."""
        known, self._known = self._known, self._backend.await_announcement(self._known, timeout)
        return self._known > known

    def close(self) -> None:
        """Do nothing: there is nothing to disconnect."""
