"""Group commit: all writes that wait when a commit begins go into one batch, and share one fsync.

Every write is queued. This module decides where its commit runs: on the caller's thread if that may block (`drive`) or
if the write is small and alone (`nudge`), else on a writer thread, since handing over costs as much as an fsync. A
queued write belongs to the committer: cancelling the caller does not cancel the write. An interrupt during a commit is
raised on the thread that it hit, and settles the writes of that batch as unknown.
"""

from collections import deque
from threading import Condition, Event, Lock, Thread
from typing import TypeAlias

from msgspec.structs import replace

from holdfast.ports import Ticket, reset_after_fork
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend, Busy
from holdfast.stores.waking import announce

BATCH_SWAPS = 256
BATCH_BYTES = 8 << 20
INLINE_BYTES = 64 << 10
BACKLOG_BYTES = 64 << 20
IDLE_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""A waiting thread looks again after this time: an interrupt may have hit the thread that would wake it."""

Writes: TypeAlias = list[tuple[Ticket, Swap]]
"""Writes as they were submitted."""


class Committer:
    """The only caller of `Backend.swap` for new rows."""

    def __init__(self, backend: Backend, *, inline: bool = True) -> None:
        self._backend = backend
        self.inline = inline and backend.inline
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Empty the queue: in a forked child, the parent commits what the parent queued."""
        self._queue: deque[tuple[Ticket, Swap]] = deque()
        self._queued_bytes = 0
        self.is_full = False
        """True if the queue is long enough that a new write should first commit a batch."""
        self._queue_lock = Lock()
        self._woken = Condition(self._queue_lock)
        self._turn = Lock()
        """Held by the thread that commits."""
        self._taken: Writes = []
        self._followers: dict[Event, Ticket] = {}
        self._writing = False

    def submit(self, ticket: Ticket, swap: Swap) -> None:
        """Queue a write, in the place of what was submitted for this ticket before.

        Writes of one thread are committed in the order they were queued.
        """
        with self._queue_lock:
            ticket.swap = swap
            self._queue.append((ticket, swap))
            self._queued_bytes += swap.size
            self.is_full = self._queued_bytes > BACKLOG_BYTES

    def drive(self, ticket: Ticket) -> None:
        """Commit on this thread until the ticket is settled. The first thread commits for all that wait."""
        while not ticket.settled:
            if self._turn.locked():
                self._follow(ticket)
            else:
                self.commit_batch(ticket)

    def commit_batch(self, ticket: Ticket | None = None) -> None:
        """Commit one batch on this thread, unless another has just settled the ticket; then wake a waiting thread."""
        try:
            with self._turn:
                if ticket is None or not ticket.settled:
                    self._commit(wait=True)
        finally:
            if self._followers:
                self._pass_turn()

    def _follow(self, ticket: Ticket) -> None:
        """Wait until another thread has settled the ticket, or has stopped committing: then this one may commit.

        If all waited for the lock itself, they would be woken one after the other, only to see that they are done.
        """
        turn = Event()
        ticket.when_settled(turn.set)
        try:
            self._followers[turn] = ticket
            if self._turn.locked():
                turn.wait(PATIENCE_SECONDS)
        finally:
            self._followers.pop(turn, None)

    def _pass_turn(self) -> None:
        """Wake one waiting thread."""
        for turn, ticket in self._followers.copy().items():
            if not ticket.settled and not turn.is_set():
                turn.set()
                return

    def nudge(self) -> None:
        """Commit a lone small write at once; leave anything more to the writer thread."""
        if not self._queue:
            return
        if self.inline and self._is_one_thread() and self._queued_bytes <= INLINE_BYTES and self._commit_inline():
            return
        self.wake()

    def _is_one_thread(self) -> bool:
        """True if a single write waits, or the last two of a run: its end and its release."""
        with self._queue_lock:
            queue = self._queue
            return 0 < len(queue) <= 2 and queue[0][1].thread == queue[-1][1].thread

    def _commit_inline(self) -> bool:
        """Commit one batch without waiting for other threads or processes; False if that is not possible."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._commit(wait=False)
        except Busy:
            return False
        finally:
            self._turn.release()
            self._pass_turn()
        return True

    def wake(self) -> None:
        """Let the writer thread commit the queue. Start it if it is not running."""
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
            self.commit_batch()
            with self._queue_lock:
                if not self._queue and not self._woken.wait(IDLE_SECONDS) and not self._queue:
                    self._writing = False
                    return

    def _commit(self, *, wait: bool) -> None:
        """Commit the next batch. An interrupt is raised here, and its writes are settled as unknown."""
        if self._taken:
            self._give_up(None)  # another thread was interrupted, and again before it could do this itself
        try:
            self._take()
            if self._taken:
                self._send(wait=wait)
        except Busy:
            self._put_back()
            raise
        except BaseException as interrupt:
            self._give_up(interrupt)
            raise
        self._taken = []

    def _take(self) -> None:
        """Take the next batch from the queue."""
        size = 0
        with self._queue_lock:
            while self._queue and len(self._taken) < BATCH_SWAPS and size < BATCH_BYTES:
                self._taken.append(self._queue[0])
                size += self._queue.popleft()[1].size
            self._queued_bytes = self._queued_bytes - size if self._queue else 0
            self.is_full = self._queued_bytes > BACKLOG_BYTES

    def _put_back(self) -> None:
        with self._queue_lock:
            batch, self._taken = [entry for entry in self._taken if not entry[0].settled], []
            self._queue.extendleft(reversed(batch))
            self._queued_bytes += sum(swap.size for _, swap in batch)

    def _give_up(self, interrupt: BaseException | None) -> None:
        """Leave no ticket of the batch unsettled. A settled one may lack a callback: all are called again."""
        for ticket, swap in self._taken:
            if ticket.settled:
                ticket.call_all()
            elif ticket.swap is swap:
                ticket.settle(_in_doubt(interrupt))
        self._taken = []

    def _send(self, *, wait: bool) -> None:
        """Send the batch as one swap per thread, and settle its tickets."""
        chains, refused = _merge(self._taken)
        swaps = [swap for swap, _ in chains]
        try:
            outcomes: list[bool | Exception] = list(self._backend.swap(swaps, wait=wait)) if swaps else []
        except Busy:
            raise
        except StoreUnavailable as error:
            # The batch certainly rolled back: one bad item must not fail the others.
            outcomes = [self._outcome(swap) for swap in swaps] if len(swaps) > 1 else [error]
        except Exception as error:  # noqa: BLE001  each waiting caller raises it
            outcomes = [error] * len(swaps)
        announce(self._backend, (swap for swap, outcome in zip(swaps, outcomes, strict=True) if outcome is True))
        settled = zip((writes for _, writes in chains), outcomes, strict=True)
        for writes, outcome in (*settled, (refused, False)):
            for ticket, swap in writes:
                if ticket.swap is swap:  # else a newer submission of this ticket is in the queue
                    ticket.settle(outcome)

    def _outcome(self, swap: Swap) -> bool | Exception:
        """Send one swap by itself: True, False or the error."""
        try:
            return self._backend.swap((swap,))[0]
        except Exception as error:  # noqa: BLE001  the waiting caller raises it
            return error


def _in_doubt(interrupt: BaseException | None) -> OutcomeUnknown:
    doubt = OutcomeUnknown("the thread that was writing this was interrupted")
    doubt.__cause__ = interrupt
    return doubt


def _joined(first: Swap, second: Swap) -> Swap:
    """Return two swaps of one thread, the second built on the first, as one."""
    return replace(
        second,
        expected=first.expected,
        rows=first.rows + second.rows,
        blobs={**first.blobs, **second.blobs},
        consumed=first.consumed + second.consumed,
        size=first.size + second.size,
        moves=first.moves or second.moves,
    )


def _merge(batch: Writes) -> tuple[list[tuple[Swap, Writes]], Writes]:
    """Merge the writes of each thread into one swap, sorted by thread. Also return those that build on no other."""
    merged: dict[bytes, tuple[Swap, Writes]] = {}
    refused: Writes = []
    for ticket, swap in batch:
        if ticket.swap is not swap:
            continue
        chain = merged.get(swap.thread)
        if chain is None:
            merged[swap.thread] = swap, [(ticket, swap)]
        elif chain[0].replacement == swap.expected:
            merged[swap.thread] = _joined(chain[0], swap), [*chain[1], (ticket, swap)]
        else:
            refused.append((ticket, swap))
    return [merged[thread] for thread in sorted(merged)], refused
