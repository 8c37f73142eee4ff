"""Group commit: all writes that wait when a commit begins go into one batch, and share one fsync.

Every write is queued. Where its commit runs is decided here: on the caller's thread if that may block (`drive`), or if
the write is small and alone (`nudge`); else on a writer thread, since handing over costs as much as an fsync. A queued
write belongs to the committer: cancelling the caller does not cancel the write. An interrupt during a commit is raised
on the thread that it hit, and settles the writes of that batch as unknown.
"""

from collections import deque
from threading import Condition, Event, Lock, Thread

from msgspec.structs import replace

from holdfast.ports import Ticket, reset_after_fork
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend, Busy

BATCH_SWAPS = 256
BATCH_BYTES = 8 << 20
INLINE_BYTES = 64 << 10
BACKLOG_BYTES = 64 << 20
IDLE_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""An interrupt can strike anywhere, and take a thread's turn with it: so long others wait before they look again."""


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
        self._turn = Lock()
        """Held by the thread that commits."""
        self._taken: list[tuple[Ticket, Swap]] = []
        self._followers: dict[Event, Ticket] = {}
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
            if self._turn.locked():
                self._follow(ticket)
            else:
                self._lead(ticket)

    def _lead(self, ticket: Ticket | None = None) -> None:
        """Commit one batch, unless another thread has just settled the ticket; then it is the turn of one who waits."""
        try:
            with self._turn:
                if ticket is None or not ticket.settled:
                    self._commit(wait=True)
        finally:
            self._pass_turn()

    def _follow(self, ticket: Ticket) -> None:
        """Wait until another thread has settled the ticket, or has stopped committing: then it is this one's turn.

        All who wait for one lock would be woken one after the other, only to see that they are done.
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
        """Let one who waits go on."""
        if not self._followers:
            return
        for turn, ticket in self._followers.copy().items():
            if not ticket.settled and not turn.is_set():
                turn.set()
                return

    def relieve(self) -> None:
        """Commit one batch on this thread: what a write does before it joins a queue that is full."""
        self._lead()

    def nudge(self) -> None:
        """Commit a lone small write at once; leave anything more to the writer thread."""
        if not self._queue:
            return
        if self.inline and len(self._queue) == 1 and self._queued_bytes <= INLINE_BYTES and self._commit_inline():
            return
        self.wake()

    def _commit_inline(self) -> bool:
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
            self._lead()
            with self._queue_lock:
                if not self._queue and not self._woken.wait(IDLE_SECONDS) and not self._queue:
                    self._writing = False
                    return

    def _take(self) -> list[tuple[Ticket, Swap]]:
        with self._queue_lock:
            batch, size = self._taken, 0
            if len(self._queue) == 1:
                batch.append(self._queue.popleft())
                self._queued_bytes = 0
                return batch
            while self._queue and len(batch) < BATCH_SWAPS and size < BATCH_BYTES:
                batch.append(self._queue[0])
                size += self._queue.popleft()[1].size
            self._queued_bytes = self._queued_bytes - size if self._queue else 0
            return batch

    def _put_back(self) -> None:
        with self._queue_lock:
            batch, self._taken = [entry for entry in self._taken if not entry[0].settled], []
            self._queue.extendleft(reversed(batch))
            self._queued_bytes += sum(swap.size for _, swap in batch)

    def _commit(self, *, wait: bool) -> None:
        """Commit the next batch. An interrupt is raised here, and leaves no ticket behind: its writes are in doubt."""
        if self._taken:
            self._give_up(None)  # another thread was interrupted, and then again before it could do this
        try:
            batch = self._take()
            if len(batch) == 1:
                ticket, swap = batch[0]
                ticket.settle(False if ticket.withdrawn else self._outcome(swap, wait=wait))
            elif batch:
                self._send(batch, wait=wait)
        except Busy:
            self._put_back()
            raise
        except BaseException as interrupt:
            self._give_up(interrupt)
            raise
        self._taken = []

    def _give_up(self, interrupt: BaseException | None) -> None:
        for ticket, _ in self._taken:
            if not ticket.settled:
                ticket.settle(_in_doubt(interrupt))
            else:
                ticket.call_all()  # it may have struck right then
        self._taken = []

    def _send(self, batch: list[tuple[Ticket, Swap]], *, wait: bool) -> None:
        items = _merge(batch)
        swaps = [swap for swap, _ in items]
        try:
            outcomes: list[bool | Exception] = list(self._backend.swap(swaps, wait=wait)) if swaps else []
        except Busy:
            raise
        except StoreUnavailable as error:
            # The batch certainly rolled back: one bad item must not fail the others.
            outcomes = [self._outcome(swap) for swap in swaps] if len(swaps) > 1 else [error]
        except Exception as error:  # noqa: BLE001  every waiting ticket must be settled, and raises it
            outcomes = [error] * len(swaps)
        for (_, tickets), outcome in zip(items, outcomes, strict=True):
            for ticket in tickets:
                ticket.settle(outcome)

    def _outcome(self, swap: Swap, *, wait: bool = True) -> bool | Exception:
        """The outcome of one swap by itself: True, False or the error."""
        try:
            return self._backend.swap((swap,), wait=wait)[0]
        except Busy:
            raise
        except Exception as error:  # noqa: BLE001  the waiting ticket raises it
            return error


def _in_doubt(interrupt: BaseException | None) -> OutcomeUnknown:
    doubt = OutcomeUnknown("the thread that was writing this was interrupted")
    doubt.__cause__ = interrupt
    return doubt


def _follow(first: Swap, second: Swap) -> Swap:
    """Two swaps of one thread, the second built on the first, as one."""
    return replace(
        second,
        expected=first.expected,
        rows=first.rows + second.rows,
        blobs={**first.blobs, **second.blobs},
        consumed=first.consumed + second.consumed,
    )


def _merge(batch: list[tuple[Ticket, Swap]]) -> list[tuple[Swap, list[Ticket]]]:
    """One item per thread, sorted by thread; a swap that does not build on its predecessor is refused by itself."""
    items: dict[bytes, list[tuple[Swap, list[Ticket]]]] = {}
    for ticket, swap in batch:
        if ticket.withdrawn:
            ticket.settle(False)
            continue
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
