"""Group commit: whatever waits when a commit begins goes into one batch, and shares one fsync.

A lone small write is committed at once, on the caller's own thread; as soon as several wait, they go to a writer thread
as one batch (a thread hop costs as much as an fsync). A write in the queue belongs to the committer: cancelling whoever
waits for it does not cancel the write.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event, Lock, Thread

from holdfast.ports import Ticket, reset_after_fork
from holdfast.records.errors import StoreUnavailable
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend, Busy

BATCH_SWAPS = 256
BATCH_BYTES = 8 << 20
INLINE_BYTES = 64 << 10
BACKLOG_BYTES = 64 << 20
IDLE_SECONDS = 5.0


class Committer:
    """The one road to `Backend.swap` for new rows."""

    def __init__(self, backend: Backend, *, inline: bool = True) -> None:
        self._backend = backend
        self.inline = inline and backend.inline
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Nothing waits: in a forked child, what the parent queued is the parent's to commit."""
        self._queue: deque[tuple[Ticket, Swap]] = deque()
        self._queued_bytes = 0
        self._queue_lock = Lock()
        self._woken = Condition(self._queue_lock)
        self._commit_lock = Lock()
        self._followers: dict[Ticket, Event] = {}
        self._writing = False

    @property
    def is_full(self) -> bool:
        """True if so much waits that new writes should wait too."""
        return self._queued_bytes > BACKLOG_BYTES

    def submit(self, ticket: Ticket, swap: Swap) -> None:
        """Queue a write. Writes of one thread are committed in the order they were queued."""
        with self._queue_lock:
            self._queue.append((ticket, swap))
            self._queued_bytes += swap.size

    def drive(self, ticket: Ticket) -> None:
        """Commit on this thread until the ticket is settled: the first to come commits for all who wait."""
        while not ticket.settled:
            if self._commit_lock.acquire(blocking=False):
                try:
                    if not ticket.settled:
                        self._commit(self._take(), wait=True)
                finally:
                    self._release()
            else:
                self._follow(ticket)

    def _follow(self, ticket: Ticket) -> None:
        """Wait until another thread has settled the ticket, or has stopped committing: then it is this one's turn.

        All who wait for one lock would be woken one after the other, only to see that they are done.
        """
        turn = Event()
        ticket.when_settled(turn.set)
        with self._queue_lock:
            self._followers[ticket] = turn
        try:
            if self._commit_lock.locked():
                turn.wait()
        except BaseException:
            self._call_follower()
            raise
        finally:
            with self._queue_lock:
                self._followers.pop(ticket, None)

    def _release(self) -> None:
        self._commit_lock.release()
        if self._followers:
            self._call_follower()

    def _call_follower(self) -> None:
        with self._queue_lock:
            waiting = (turn for ticket, turn in self._followers.items() if not ticket.settled and not turn.is_set())
            turn = next(waiting, None)
        if turn is not None:
            turn.set()

    @contextmanager
    def _committing(self) -> Iterator[None]:
        self._commit_lock.acquire()
        try:
            yield
        finally:
            self._release()

    def relieve(self) -> None:
        """Commit one batch on this thread: what a write does before it joins a queue that is full."""
        with self._committing():
            self._commit(self._take(), wait=True)

    def nudge(self) -> None:
        """Commit a lone small write at once; leave anything more to the writer thread."""
        if not self._queue:
            return
        if self.inline and len(self._queue) == 1 and self._queued_bytes <= INLINE_BYTES and self._commit_inline():
            return
        self.wake()

    def _commit_inline(self) -> bool:
        if not self._commit_lock.acquire(blocking=False):
            return False
        try:
            batch = self._take()
            try:
                self._commit(batch, wait=False)
            except Busy:
                self._put_back(batch)
                return False
        finally:
            self._release()
        return True

    def wake(self) -> None:
        """See that the writer thread commits what waits."""
        with self._queue_lock:
            self._woken.notify()
            if self._writing:
                return
            self._writing = True
        Thread(target=self._write, name="holdfast-writer", daemon=True).start()

    def _write(self) -> None:
        try:
            self._write_until_idle()
        except BaseException:
            self._writing = False
            raise

    def _write_until_idle(self) -> None:
        while True:
            with self._committing():
                self._commit(self._take(), wait=True)
            with self._queue_lock:
                if not self._queue and not self._woken.wait(IDLE_SECONDS) and not self._queue:
                    self._writing = False
                    return

    def _take(self) -> list[tuple[Ticket, Swap]]:
        with self._queue_lock:
            if len(self._queue) == 1:
                self._queued_bytes = 0
                return [self._queue.popleft()]
            batch: list[tuple[Ticket, Swap]] = []
            size = 0
            while self._queue and len(batch) < BATCH_SWAPS and size < BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += batch[-1][1].size
            self._queued_bytes -= size
            return batch

    def _put_back(self, batch: list[tuple[Ticket, Swap]]) -> None:
        with self._queue_lock:
            self._queue.extendleft(reversed(batch))
            self._queued_bytes += sum(swap.size for _, swap in batch)

    def _commit(self, batch: list[tuple[Ticket, Swap]], *, wait: bool) -> None:
        if len(batch) == 1:
            self._commit_one(*batch[0], wait=wait)
            return
        items = _merge(batch)
        swaps = [swap for swap, _ in items]
        try:
            outcomes: list[bool | BaseException] = list(self._backend.swap(swaps, wait=wait)) if swaps else []
        except Busy:
            raise
        except StoreUnavailable as error:
            outcomes = self._one_by_one(swaps) if len(swaps) > 1 else [error]
        except BaseException as error:  # noqa: BLE001  every waiting ticket must be settled, and raises it
            outcomes = [error] * len(swaps)
        for (_, tickets), outcome in zip(items, outcomes, strict=True):
            for ticket in tickets:
                ticket.settle(outcome)

    def _commit_one(self, ticket: Ticket, swap: Swap, *, wait: bool) -> None:
        try:
            outcome: bool | BaseException = self._backend.swap((swap,), wait=wait)[0]
        except Busy:
            raise
        except BaseException as error:  # noqa: BLE001  the waiting ticket raises it
            outcome = error
        ticket.settle(outcome)

    def _one_by_one(self, swaps: list[Swap]) -> list[bool | BaseException]:
        """The batch certainly rolled back: one bad item must not fail the others."""
        outcomes: list[bool | BaseException] = []
        for swap in swaps:
            try:
                outcomes += self._backend.swap([swap])
            except BaseException as error:  # noqa: BLE001  as above
                outcomes.append(error)
        return outcomes


def _follow(first: Swap, second: Swap) -> Swap:
    """Two swaps of one thread, the second built on the first, as one."""
    return second._replace(
        expected=first.expected,
        rows=first.rows + second.rows,
        blobs={**first.blobs, **second.blobs},
        consumed=first.consumed + second.consumed,
    )


def _merge(batch: list[tuple[Ticket, Swap]]) -> list[tuple[Swap, list[Ticket]]]:
    """One item per thread, sorted by thread; a swap that does not build on its predecessor is refused by itself."""
    items: dict[bytes, list[tuple[Swap, list[Ticket]]]] = {}
    for ticket, swap in batch:
        chain = items.setdefault(swap.thread, [])
        if chain and chain[-1][0].replacement == swap.expected:
            merged, tickets = chain[-1]
            chain[-1] = (_follow(merged, swap), [*tickets, ticket])
        else:
            chain.append((swap, [ticket]))
    for chain in items.values():
        for _, tickets in chain[1:]:
            for ticket in tickets:
                ticket.settle(False)
    return [items[thread][0] for thread in sorted(items)]
