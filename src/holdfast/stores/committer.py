"""Group commit: whatever waits when a commit begins goes into one batch, and shares one fsync.

A lone small write is committed at once, on the caller's own thread, and if that may block, without a queue; as soon as
several wait, they go to a writer thread as one batch (a thread hop costs as much as an fsync). A write in the queue
belongs to the committer: cancelling whoever waits for it does not cancel the write.
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
        self.turn = Lock()
        """Held by whoever commits."""
        self._taken: list[tuple[Ticket, Swap]] = []
        self._followers: dict[Event, Ticket] = {}
        self._writing = False

    @property
    def is_full(self) -> bool:
        """True if so much waits that new writes should wait too."""
        return self._queued_bytes > BACKLOG_BYTES

    @property
    def is_idle(self) -> bool:
        """True if nobody commits, and nothing waits: whoever may block can take the turn, and commit without a queue.

        So: `with committer.turn`, make a write and `settle` it; and then `pass_turn`, for others may have come. Also
        before the turn was taken: a write must not overtake one in the queue that it builds on.
        """
        return not self._queue and not self.turn.locked()

    @property
    def has_queue(self) -> bool:
        """True if writes wait."""
        return bool(self._queue)

    def submit(self, ticket: Ticket, swap: Swap) -> None:
        """Queue a write. Writes of one thread are committed in the order they were queued."""
        with self._queue_lock:
            self._queue.append((ticket, swap))
            self._queued_bytes += swap.size

    def drive(self, ticket: Ticket) -> None:
        """Commit on this thread until the ticket is settled: the first to come commits for all who wait."""
        while not ticket.settled:
            if self.turn.locked():
                self._follow(ticket)
            else:
                self._lead(ticket)

    def _lead(self, ticket: Ticket | None = None) -> None:
        """Commit one batch, unless another thread has just settled the ticket; then it is the turn of one who waits."""
        try:
            with self.turn:
                if ticket is None or not ticket.settled:
                    self._commit(wait=True)
        finally:
            self.pass_turn()

    def _follow(self, ticket: Ticket) -> None:
        """Wait until another thread has settled the ticket, or has stopped committing: then it is this one's turn.

        All who wait for one lock would be woken one after the other, only to see that they are done.
        """
        turn = Event()
        ticket.when_settled(turn.set)
        try:
            self._followers[turn] = ticket
            if self.turn.locked():
                turn.wait(PATIENCE_SECONDS)
        finally:
            self._followers.pop(turn, None)

    def pass_turn(self) -> None:
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
        if not self.turn.acquire(blocking=False):
            return False
        try:
            self._commit(wait=False)
        except Busy:
            return False
        finally:
            self.turn.release()
            self.pass_turn()
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
                ticket.settle(False if ticket.withdrawn else self.outcome(swap, wait=wait))
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
                ticket.call_back()  # it may have struck right then
        self._taken = []

    def settle(self, ticket: Ticket, swap: Swap) -> None:
        """Commit a write without a queue, with the turn in hand. As there, an interrupt leaves it in doubt."""
        try:
            ticket.settle(self.outcome(swap))
        except BaseException as interrupt:
            if not ticket.settled:
                ticket.settle(_in_doubt(interrupt))
            raise

    def _send(self, batch: list[tuple[Ticket, Swap]], *, wait: bool) -> None:
        items = _merge(batch)
        swaps = [swap for swap, _ in items]
        try:
            outcomes: list[bool | Exception] = list(self._backend.swap(swaps, wait=wait)) if swaps else []
        except Busy:
            raise
        except StoreUnavailable as error:
            # The batch certainly rolled back: one bad item must not fail the others.
            outcomes = [self.outcome(swap) for swap in swaps] if len(swaps) > 1 else [error]
        except Exception as error:  # noqa: BLE001  every waiting ticket must be settled, and raises it
            outcomes = [error] * len(swaps)
        for (_, tickets), outcome in zip(items, outcomes, strict=True):
            for ticket in tickets:
                ticket.settle(outcome)

    def outcome(self, swap: Swap, *, wait: bool = True) -> bool | Exception:
        """What became of one swap by itself: True, False or the error. With the turn in hand."""
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
        is_plain=False,
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
