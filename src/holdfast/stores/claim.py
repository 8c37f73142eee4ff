"""A claim on a thread: a lease and a fencing token, and the writer that writes under them.

Writes are queued in the order they are made, and each builds on the one before. If one is refused, the head is read
again. If the claim still holds the thread (a pin or a prune came between), what is not stored is made and sent again;
otherwise the claim is lost. A claim never adopts what another wrote.
"""

from collections.abc import Callable, Sequence
from threading import Lock, RLock
from typing import TypeGuard, TypeVar

from msgspec import field
from msgspec.structs import replace

from holdfast.history.log import Log
from holdfast.ports import Ports, Ticket, reset_after_fork
from holdfast.processes import has_tag
from holdfast.records.errors import (
    CodecError,
    Conflict,
    Corrupt,
    Fenced,
    HoldfastError,
    IncompatibleCheckpoint,
    KeyUnavailable,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.head import Head, encode_head
from holdfast.records.identity import thread_id_of
from holdfast.records.words import Status
from holdfast.stores.agenda import UNREADABLE, entry_of, swap_of
from holdfast.stores.backend import Transaction, inboxes
from holdfast.stores.committer import Committer
from holdfast.stores.decisions import as_found, claimed, deletion, released, renewed
from holdfast.stores.landing import landed, resolved
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.waking import announce
from holdfast.stores.writer import NO_HEAD, Intent, Proposal, Write, Writer

T = TypeVar("T")

ATTEMPTS = 64
MOST_DOUBTS = 8
"""How often a write of unknown outcome is sent again: a disk may be broken for good."""
CANCEL = "cancel"
"""The message that asks a live run to end."""
FINISHED = {Status.COMPLETE.value, Status.CANCELLED.value}
DAMAGE = (Corrupt, IncompatibleCheckpoint, KeyUnavailable, CodecError)


class Pending(Write):
    """A write of a claim, until its outcome is certain. After a conflict it is made and sent again."""

    claim: "Claim"
    make: Callable[[], Proposal]
    repeats: bool = False
    """True if the caller repeats it anyway: then `StoreUnavailable` does not end the claim."""
    held: bool = False
    """True if the caller sends it in a transaction of the user."""
    doubts: int = 0
    """How often its outcome was unknown."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Take the outcome of the commit. The claim decides whether it is final."""
        self.claim.in_order(lambda: self.claim.conclude(self, outcome))


class Gate(Ticket):
    """Holds writes back while one before them is in a transaction of the user. Settled when they are sent."""

    kept_back: list[Pending] = field(default_factory=list)


class Claim:
    """One process's claim on one thread. Threads of that process may share it."""

    def __init__(
        self, ports: Ports, reader: Reader, committer: Committer, writer: Writer, lease: int, found: Head
    ) -> None:
        head = writer.seen.head
        self.thread = writer.thread
        self.thread_id = thread_id_of(writer.thread)
        self.token = head.token
        self.owner = head.owner
        self.lease = lease
        self.found = found
        """The head as it was before the claim."""
        self.writer = writer
        self.committer = committer
        self.cancelled = False
        self.failure: BaseException | None = None
        self._ports = ports
        self._reader = reader
        self.lock = RLock()
        """Held while a write is made and queued, and while it is settled. To write, use `in_order`."""
        self._unsettled: dict[Pending, None] = {}
        self.gate: Gate | None = None
        self.is_parents = False
        """True in a forked child: the claim belongs to the parent process."""
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Leave the claim to the parent. Another thread may have held the lock, and will never release it here."""
        self.is_parents = True
        self.lock = RLock()

    @property
    def log(self) -> Log:
        """The thread as of the last write, settled or not."""
        return self.writer.log

    def labels(self) -> dict[str, str]:
        """Return the labels of the thread."""
        return self.writer.labels

    def check(self) -> None:
        """Raise why this claim cannot be used any more."""
        if self.is_parents:
            raise Fenced(f"the run of {self.thread_id!r} belongs to the process that this one was forked from")
        if self.failure is not None:
            raise self.failure

    @property
    def is_released(self) -> bool:
        """True once the release is queued: there is no lease to renew any more."""
        return not self.writer.seen.head.owner

    # Writing

    def in_order(self, work: Callable[[], T]) -> T:
        """Call this while no other thread writes. An interrupt in it ends the claim: memory may not match the queue."""
        with self.lock:
            try:
                return work()
            except Exception:
                raise
            except BaseException as interrupt:
                self._break(interrupt)
                raise

    def submit(self, intent: Intent) -> Pending:
        """Queue a row. Call this within `in_order` if memory has to stay in step with it."""
        self.check()
        intent.token, intent.lease = self.token, self.lease
        return self._queue(lambda: self.writer.propose(intent, self._ports.now()))

    def amend(
        self, change: Callable[[Head], Head], *, repeats: bool = False, heard: frozenset[str] | None = None
    ) -> Pending:
        """Queue a change of the head alone."""

        def amend() -> Pending:
            self.check()
            return self._queue(lambda: self.writer.amend(change, heard), repeats=repeats)

        return self.in_order(amend)

    def _queue(self, make: Callable[[], Proposal], *, repeats: bool = False, held: bool = False) -> Pending:
        pending = Pending(self.writer, make(), self, make, repeats, held)
        self._unsettled[pending] = None
        self._send(pending)
        return pending

    def _send(self, pending: Pending) -> None:
        if self.gate is None and not pending.held:
            self.committer.submit(pending, pending.proposal.swap)
        elif self.gate is not None and not pending.held:
            self.gate.kept_back.append(pending)

    # The outcome of a write

    def conclude(self, pending: Pending, outcome: bool | BaseException) -> None:
        """Settle a write, or make and send it again. Runs in order, on the thread that committed it."""
        if pending.settled:
            return
        if outcome is True:
            self._finish(pending, True)
        elif outcome is False:
            self._resolve(None)
        elif not isinstance(outcome, OutcomeUnknown):
            self._fail(pending, outcome)
        elif _is_interrupt(outcome.__cause__):
            self._fail(pending, outcome.__cause__)  # the program is about to end: nothing is sent again
        elif pending.doubts >= MOST_DOUBTS:
            self._break(outcome)
        else:
            pending.doubts += 1
            self._resolve(outcome)

    def _finish(self, pending: Pending, outcome: bool | BaseException) -> None:
        Write.settle(pending, outcome)
        self._unsettled.pop(pending, None)  # after an interrupt this may be called again

    def _fail(self, pending: Pending, error: BaseException) -> None:
        if pending.repeats and isinstance(error, StoreUnavailable):
            # Certainly nothing was written. What was built on it is refused, and then sent again without it.
            self._finish(pending, error)
        else:
            self._break(error)

    def give_up(self, error: BaseException) -> None:
        """Write nothing any more under this claim, because of this error."""
        with self.lock:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """End the claim: fail all that waits, and all later calls."""
        self.failure = self._interrupted(error) if isinstance(error, KeyboardInterrupt | SystemExit) else error
        for pending in tuple(self._unsettled):
            if not pending.settled:
                Write.settle(pending, error)
        self._unsettled = {}
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.settle(True)

    def _interrupted(self, interrupt: BaseException) -> OutcomeUnknown:
        """Return the error of later calls. The writes that the interrupt hit raise the interrupt itself."""
        doubt = OutcomeUnknown(
            f"a write of thread {self.thread_id!r} was interrupted ({type(interrupt).__name__}): its outcome is"
            " unknown; leave this block and open the thread again, which finds out"
        )
        doubt.__cause__ = interrupt
        return doubt

    def _resolve(self, doubt: OutcomeUnknown | None) -> None:
        """A write was refused, or its outcome is unknown: read the head, and send again what is not stored."""
        try:
            seen = self._reader.seen(self.thread) or NO_HEAD
        except StoreError as error:
            self._break(doubt or error)
            return
        count = self._landed_count(seen)
        try:
            if count is None:
                raise self._loss(seen.head)
            self._resend(seen, count)
        except HoldfastError as error:
            self._break(error)

    def _loss(self, head: Head) -> HoldfastError:
        """Return why this claim is lost."""
        if head.deleted:
            return deletion(self.thread_id)
        return Fenced(f"thread {self.thread_id!r} was taken over (token {head.token}, not {self.token})")

    def _landed_count(self, seen: Seen) -> int | None:
        """Count the unsettled writes that are stored; None if this claim does not hold the thread any more."""
        head, log = seen.head, self.writer.settled_log
        released = self.is_released and head.incarnation == self.log.binding.incarnation
        if head.deleted or head.token != self.token or not (head.owner == self.owner or (released and not head.owner)):
            return None
        proposals = [pending.proposal for pending in self._unsettled]
        for count in range(len(proposals), 0, -1):
            last = proposals[count - 1]
            is_the_end = not head.owner or (head.seq, head.digest) == (last.log.seq, last.log.digest)
            if is_the_end and landed(self._reader, last.swap, seen):
                return count
        return 0 if (head.owner, head.seq, head.digest) == (self.owner, log.seq, log.digest) else None

    def _resend(self, seen: Seen, count: int) -> None:
        """Settle the first `count` unsettled writes as stored; make and send the others again."""
        waiting = list(self._unsettled)
        self.writer.rebase(seen, waiting[count - 1].proposal.log if count else self.writer.settled_log)
        for pending in waiting[:count]:
            self._finish(pending, True)
        if self.gate is not None:
            self.gate.kept_back.clear()
        for pending in waiting[count:]:
            pending.swap = None  # its old swap may wait in the queue, and fit the head as it is now
        for pending in waiting[count:]:
            pending.proposal = pending.make()
            self._send(pending)
        self.committer.wake()

    # The lease

    def renew(self, now: int) -> Pending | None:
        """Queue the renewal of the lease, once a third of it has passed."""
        if self.gate is not None or self.writer.seen.head.expires_at - now >= self.lease * 2 // 3:
            return None
        return self.amend(self._renewed, repeats=True)

    def _renewed(self, head: Head) -> Head:
        return renewed(head, self.thread_id, self.token, self.lease, self._ports.now())

    def wait_for(self, pending: Pending) -> None:
        """Commit it, with all else that waits; raise why that failed. Blocking."""
        self.committer.drive(pending)
        pending.result()

    def was_cancelled(self) -> bool:
        """True if somebody asked the run to end. Blocking."""
        notice_cancellations([self])
        return self.cancelled

    def release(self, status: str, wake_at: int = 0, heard: frozenset[str] | None = None) -> Pending:
        """Queue the end of the claim. A message that is not among those `heard` makes the thread due at once."""
        name, token, now = self.thread_id, self.token, self._ports.now
        return self.amend(lambda head: released(head, name, token, status, now(), wake_at), heard=heard)

    def release_after_failure(self) -> None:
        """Release the lease although writing failed, if it is still ours. Blocking."""
        if not self.is_parents:
            _release(self._reader, self.thread, self.token, self.owner, self._ports.now())

    def undo(self, error: BaseException | None = None) -> None:
        """Release the thread as it was found: its run never began, because of this error. Blocking."""
        _release(self._reader, self.thread, self.token, self.owner, self._ports.now(), self.found, error)

    # A write in a transaction of the user

    def hold(self, intent: Intent) -> Pending | None:
        """Make a write that the caller sends, and keep back all later ones until `pass_on`.

        None while other writes are under way: the held one would be refused.
        """
        intent.token, intent.lease = self.token, self.lease

        def hold() -> Pending | None:
            self.check()
            if self._unsettled or self.gate is not None:
                return None
            pending = self._queue(lambda: self.writer.propose(intent, self._ports.now()), repeats=True, held=True)
            self.gate = Gate()
            return pending

        return self.in_order(hold)

    def pass_on(self) -> None:
        """Send what was kept back."""
        with self.lock:
            gate, self.gate = self.gate, None
            for pending in gate.kept_back if gate else ():
                self._send(pending)
        self.committer.wake()
        if gate is not None:
            gate.settle(True)

    def unsettled(self) -> list[Pending]:
        """Return the writes that are under way."""
        with self.lock:
            return list(self._unsettled)

    def last_row(self) -> Pending | None:
        """Return the newest row that is under way: once it is stored, so are all before it. None if there is none."""
        return next((pending for pending in reversed(self.unsettled()) if pending.proposal.swap.rows), None)

    def find_out(self, pending: Pending, doubt: OutcomeUnknown) -> None:
        """Settle a held write whose reply was lost, if the head shows it; else end the claim. Blocking.

        It may still arrive, so nothing can be written after it. The next claim waits for the end of the transaction.
        """
        with self.lock:
            try:
                seen = self._reader.seen(self.thread) or NO_HEAD
            except StoreError:
                seen = NO_HEAD
            if landed(self._reader, pending.proposal.swap, seen):
                pending.settle(True)
            else:
                self._break(doubt)


async def write_in_transaction(ports: Ports, claim: Claim, intent: Intent, transaction: Transaction) -> None:
    """Write a row in a transaction that the user began, and commit it: both are stored, or neither.

    Only the swap and the commit happen while other writes of the claim are kept back; the user's code ran before.
    `OutcomeUnknown` ends the claim: the next run that claims the thread waits for the end of the transaction.
    """
    while (pending := claim.hold(intent)) is None:
        if (gate := claim.gate) is not None:
            await ports.wait(gate)
        for other in claim.unsettled():
            await ports.settle(other, claim.committer)
    try:
        while not pending.settled:
            is_swapped = await transaction.swap(pending.proposal.swap)
            if is_swapped:
                await transaction.commit()
            await ports.perform(pending.settle, is_swapped)
    except OutcomeUnknown as doubt:
        await ports.perform(claim.find_out, pending, doubt)
    except BaseException as error:
        pending.settle(StoreUnavailable(f"the transaction was rolled back: {error}"))
        raise
    finally:
        claim.pass_on()
    pending.result()


# Claiming


class Claiming:
    """A claim being made, on any thread. If it is abandoned meanwhile, it is undone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._claim: Claim | None = None
        self._is_abandoned = False

    def take(
        self,
        ports: Ports,
        reader: Reader,
        committer: Committer,
        thread: bytes,
        lease: int,
        *,
        reopen: bool,
        tag: str,
        known: Seen | None,
    ) -> Claim:
        """See `take`."""
        claim = take(ports, reader, committer, thread, lease, reopen=reopen, tag=tag, known=known)
        with self._lock:
            self._claim = claim
            if self._is_abandoned:
                claim.undo()
        return claim

    def abandon(self) -> None:
        """Undo the claim, now or when it is made. Blocking, if there is a claim to undo."""
        with self._lock:
            self._is_abandoned = True
            if self._claim is not None:
                self._claim.undo()


def take(
    ports: Ports,
    reader: Reader,
    committer: Committer,
    thread: bytes,
    lease: int,
    *,
    reopen: bool = False,
    tag: str = "",
    known: Seen | None = None,
) -> Claim:
    """Claim a thread, creating it if needed. Blocking. `LeaseHeld` while another run holds it.

    A finished thread keeps its status unless `reopen` is set. With a `tag` it is taken over at once from an owner with
    the same tag: the engine says which attempt is the newest, and the token fences the older one. With `known`, the
    head as the caller read it, there is one attempt: `Conflict` if the thread has changed since.
    """
    owner, name = ports.owner(tag), thread_id_of(thread)
    for _ in range(1 if known else ATTEMPTS):
        seen = known or reader.seen(thread) or NO_HEAD
        old = seen.head
        dead = replaceable_owner(ports, old, tag)
        status = old.status if old.status in FINISHED and not reopen else ""
        head = claimed(old, name, owner, lease, ports.now(), dead_owner=dead, status=status)
        head = _with_life(reader, thread, old, head)
        mine, is_ours = Seen(head, encode_head(thread, head)), False
        try:
            # A request to cancel that came after the end of the thread does not cancel the run that reopens it.
            is_ours = _swapped(reader, thread, seen, mine, (CANCEL,) if reopen and old.status in FINISHED else ())
            if is_ours:
                claim = Claim(ports, reader, committer, _writer(reader, thread, mine), lease, old)
                if known is None or old.token:  # a thread that nobody ever held cannot have been asked to end
                    claim.was_cancelled()
                return claim
        except BaseException as error:
            if is_ours or _is_interrupt(error):  # during a swap only the stored head shows whose it is
                _release(reader, thread, head.token, owner, ports.now(), old, error)
            raise
    if known is not None:
        raise Conflict(f"thread {name!r} was claimed or changed by another process")
    raise Conflict(f"gave up after {ATTEMPTS} conflicting claims of thread {name!r}; retry later")


def dead_owner(ports: Ports, head: Head) -> str:
    """Return the owner of the lease if its process is certainly dead, else an empty text."""
    return head.owner if head.owner and ports.is_certainly_dead(head.owner) else ""


def replaceable_owner(ports: Ports, head: Head, tag: str) -> str:
    """Return the owner of the lease if a claim with this tag need not wait for it, else an empty text."""
    return head.owner if has_tag(head.owner, tag) else dead_owner(ports, head)


def _is_interrupt(cause: BaseException | None) -> TypeGuard[BaseException]:
    return cause is not None and not isinstance(cause, Exception)


def _swapped(reader: Reader, thread: bytes, old: Seen, new: Seen, consumed: tuple[str, ...]) -> bool:
    """True if the claim is ours."""
    swap = swap_of(thread, old.head, old.encoded, new.head, new.encoded, consumed=consumed)
    try:
        return reader.backend.swap([swap])[0]
    except OutcomeUnknown:
        return resolved(reader, swap) is True


def _with_life(reader: Reader, thread: bytes, old: Head, head: Head) -> Head:
    """Fix the thread's life in the head, and sign it: the idempotency keys of steps contain it, even of a first one."""
    if head.seq:
        return reader.binding(thread, old).signed(head)
    binding, data_key = reader.bindings.beginning(thread, old)
    return binding.signed(replace(head, incarnation=binding.incarnation, data_key=data_key))


def _release(
    reader: Reader,
    thread: bytes,
    token: int,
    owner: str,
    now: int,
    found: Head | None = None,
    error: BaseException | None = None,
) -> None:
    """End a claim in the store, if it is still there. With `found` the thread becomes as it was before the claim.

    If the `error` is that it cannot be read, it is due later: workers would claim it again at once. A write of the
    claim that is still queued, or a pin, may come between: then read again.
    """
    for _ in range(ATTEMPTS):
        seen = reader.seen(thread)
        if seen is None or (seen.head.token, seen.head.owner) != (token, owner):
            return
        status, wake_at = (seen.head.status, 0) if found is None else as_found(found)
        if isinstance(error, DAMAGE) and entry_of(seen.head) is not None:
            wake_at = max(wake_at, now + UNREADABLE)
        head = released(seen.head, thread_id_of(thread), token, status, now, wake_at)
        head = reader.binding(thread, seen.head).signed(head)
        swap = swap_of(thread, seen.head, seen.encoded, head, encode_head(thread, head))
        if reader.backend.swap([swap])[0]:
            announce(reader.backend, [swap])
            return


def _writer(reader: Reader, thread: bytes, seen: Seen) -> Writer:
    if seen.head.seq:
        loaded = reader.load_head(thread, seen)
        return Writer(reader, thread, loaded.seen, loaded.log)
    binding = reader.binding(thread, seen.head)
    return Writer(reader, thread, seen, Log(binding, reader.backend.tuning, {}), seen.head.data_key)


def notice_cancellations(claims: Sequence[Claim]) -> None:
    """Set `cancelled` on those of these claims, all of one store, whose runs somebody asked to end. Blocking."""
    waiting = [claim for claim in claims if not claim.cancelled]
    if waiting:
        backend = waiting[0]._reader.backend  # noqa: SLF001  one file
        for claim, inbox in zip(waiting, inboxes(backend, [claim.thread for claim in waiting]), strict=True):
            if CANCEL in inbox:
                claim.cancelled = True  # never back to False: another thread may have set it meanwhile
