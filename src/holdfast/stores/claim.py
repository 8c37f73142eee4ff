"""A claim on a thread: a lease and a fencing token, and the writer that writes under them.

Writes are queued in the order they are made, and each builds on the one before. If the head turns out to be another
than expected, it is read again: still ours (a pin or a prune came between) and what did not land is sent once more;
anybody else's, and the claim is lost. A claim never adopts what another wrote.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock, RLock
from typing import TypeGuard, TypeVar

from msgspec import field
from msgspec.structs import replace

from holdfast.history.log import Log
from holdfast.ports import Ports, Ticket, reset_after_fork
from holdfast.records.errors import (
    Conflict,
    Corrupt,
    Fenced,
    HoldfastError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.head import Head, encode_head
from holdfast.records.identity import thread_id_of
from holdfast.records.rows import Swap
from holdfast.records.words import Status
from holdfast.stores.backend import inboxes
from holdfast.stores.committer import Committer
from holdfast.stores.decisions import as_found, claimed, deletion, released, renewed
from holdfast.stores.landing import landed
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.writer import NO_HEAD, Intent, Proposal, Submit, Writer

T = TypeVar("T")

ATTEMPTS = 64
MOST_DOUBTS = 8
"""How many times a write of unknown outcome is sent again: a disk may be broken for good."""
CANCEL = "cancel"
"""The message that asks a live run to end."""
FINISHED = {Status.COMPLETE.value, Status.CANCELLED.value}


class Pending(Ticket):
    """A write of a claim, until it is certain what became of it."""

    propose: Callable[[], Proposal]
    repeats: bool = False
    """True if it is made again anyway: then a store that could not take it is no reason to give up the claim."""
    doubts: int = 0
    """How often nobody knew what became of it."""
    proposal: Proposal | None = None


class Gate(Ticket):
    """Keeps writes back while one before them is held; settled when they may pass."""

    kept_back: list[tuple[Ticket, Swap]] = field(default_factory=list)

    def keep_back(self, ticket: Ticket, swap: Swap) -> None:
        """Not now."""
        self.kept_back.append((ticket, swap))


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
        """Held while a write is made and queued, and settled. To write, use `in_order`."""
        self._unsettled: dict[Pending, None] = {}
        self.gate: Gate | None = None
        self.is_parents = False
        """True in a forked child: it belongs to the process that this one was forked from."""
        reset_after_fork(self)

    def after_fork(self) -> None:
        """It is the parent's. Another thread may have held the lock, and will never release it here."""
        self.is_parents = True
        self.lock = RLock()

    @property
    def log(self) -> Log:
        """The thread as of the last write, settled or not."""
        return self.writer.log

    def check(self) -> None:
        """Raise why this claim cannot be used any more."""
        if self.is_parents:
            raise Fenced(f"the run of {self.thread_id!r} belongs to the process that this one was forked from")
        if self.failure is not None:
            raise self.failure

    @property
    def given_back(self) -> bool:
        """True once the release is on its way: there is no lease to keep any more."""
        return not self.writer.seen.head.owner

    # Writing

    def in_order(self, work: Callable[[], T]) -> T:
        """Call this while nobody else writes. An interrupt in it ends the claim: memory may not match the queue."""
        with self.lock:
            try:
                return work()
            except Exception:
                raise
            except BaseException as interrupt:
                self._break(interrupt)
                raise

    def submit(self, intent: Intent) -> Pending:
        """Queue a row. To keep memory in step with it, call this within `in_order`."""
        self.check()
        intent.token, intent.lease = self.token, self.lease
        return self._propose(Pending(lambda: self.writer.propose(intent, self._ports.now(), self._way)))

    def amend(self, change: Callable[[Head], Head], *, repeats: bool = False) -> Pending:
        """Queue a change of the head alone."""

        def amend() -> Pending:
            self.check()
            return self._propose(Pending(lambda: self.writer.amend(change, self._way), repeats=repeats))

        return self.in_order(amend)

    @property
    def _way(self) -> Submit:
        """Where a write goes: to the committer, unless one before it is held."""
        return self.committer.submit if self.gate is None else self.gate.keep_back

    def hold(self, intent: Intent) -> Pending | None:
        """Make a write that somebody else sends, and keep back all that comes after it until `pass_on`.

        None while other writes are under way: it could only be refused.
        """
        intent.token, intent.lease = self.token, self.lease

        def hold() -> Pending | None:
            self.check()
            if self._unsettled or self.gate is not None:
                return None
            held = self._propose(Pending(lambda: self.writer.propose(intent, self._ports.now(), None), repeats=True))
            self.gate = Gate()
            return held

        return self.in_order(hold)

    def pass_on(self) -> None:
        """Send what was kept back."""
        with self.lock:
            gate, self.gate = self.gate, None
            for ticket, swap in gate.kept_back if gate else ():
                self.committer.submit(ticket, swap)
        self.committer.wake()
        if gate is not None:
            gate.settle(True)

    def unsettled(self) -> list[Pending]:
        """The writes that are under way."""
        with self.lock:
            return list(self._unsettled)

    def find_out(self, pending: Pending, doubt: OutcomeUnknown) -> None:
        """The reply to a held write was lost: it is in the head, or nothing can be written under this claim. Blocking.

        It may still arrive, so that to write on without it would be wrong. The next claim has to wait for its end.
        """
        with self.lock:
            try:
                seen = self._reader.seen(self.thread) or NO_HEAD
            except StoreError:
                seen = NO_HEAD
            proposal = pending.proposal
            if proposal is not None and landed(self._reader, proposal.swap, seen):
                proposal.settle(True)
            else:
                self._break(doubt)

    def _propose(self, pending: Pending) -> Pending:
        proposal = pending.proposal = pending.propose()
        self._unsettled[pending] = None
        proposal.when_settled(partial(self._settled, pending, proposal))
        return pending

    def _settled(self, pending: Pending, proposal: Proposal) -> None:
        """Runs on the thread that committed the proposal."""
        self.in_order(partial(self._conclude, pending, proposal))

    def _conclude(self, pending: Pending, proposal: Proposal) -> None:
        outcome = proposal.outcome
        if pending.settled or pending.proposal is not proposal:
            return
        if outcome is True:
            self._finish(pending)
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

    def _finish(self, pending: Pending) -> None:
        self._unsettled.pop(pending, None)  # an interrupt may have struck after this, and then it is called again
        pending.settle(True)

    def _fail(self, pending: Pending, error: BaseException) -> None:
        if not (pending.repeats and isinstance(error, StoreUnavailable)):
            self._break(error)
            return
        # Certainly nothing was written. What was built on it is refused, and then sent again without it.
        self._unsettled.pop(pending, None)  # an interrupt may have struck after this, and then it is called again
        pending.settle(error)

    def give_up(self, error: BaseException) -> None:
        """Write nothing any more under this claim, because of this error."""
        with self.lock:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """Nothing can be written under this claim any more: what waits has failed, and so will all that comes."""
        self.failure = self._interrupted(error) if isinstance(error, KeyboardInterrupt | SystemExit) else error
        unsettled, self._unsettled = list(self._unsettled), {}
        for pending in unsettled:
            pending.settle(error)
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.settle(True)

    def _interrupted(self, interrupt: BaseException) -> OutcomeUnknown:
        """What is told from here on: the interrupt itself is told to those whose writes it struck."""
        doubt = OutcomeUnknown(
            f"a write of thread {self.thread_id!r} was interrupted ({type(interrupt).__name__}): its outcome is"
            " unknown; leave this block and open the thread again, which finds out"
        )
        doubt.__cause__ = interrupt
        return doubt

    def _resolve(self, doubt: OutcomeUnknown | None) -> None:
        """A write was refused, or its outcome is unknown: the head tells."""
        try:
            seen = self._reader.seen(self.thread) or NO_HEAD
        except StoreError as error:
            self._break(doubt or error)
            return
        count = self._landed_count(seen)
        if count is None:
            self._break(self._loss(seen.head))
            return
        try:
            self._resend(seen, count)
        except Corrupt as error:
            self._break(error)

    def _loss(self, head: Head) -> HoldfastError:
        """Why this claim is no more."""
        if head.deleted:
            return deletion(self.thread_id)
        return Fenced(f"thread {self.thread_id!r} was taken over (token {head.token}, not {self.token})")

    def _landed_count(self, seen: Seen) -> int | None:
        """How many of the unsettled writes are stored; None if the thread is not under this claim any more."""
        head, log = seen.head, self.writer.settled_log
        released = self.given_back and head.incarnation == self.log.binding.incarnation
        if head.deleted or head.token != self.token or not (head.owner == self.owner or (released and not head.owner)):
            return None
        proposals = [pending.proposal for pending in self._unsettled if pending.proposal is not None]
        for count in range(len(proposals), 0, -1):
            last = proposals[count - 1]
            is_the_end = not head.owner or (head.seq, head.digest) == (last.log.seq, last.log.digest)
            if is_the_end and landed(self._reader, last.swap, seen):
                return count
        return 0 if (head.owner, head.seq, head.digest) == (self.owner, log.seq, log.digest) else None

    def _resend(self, seen: Seen, count: int) -> None:
        waiting = list(self._unsettled)
        last = waiting[count - 1].proposal if count else None
        self.writer.rebase(seen, self.writer.settled_log if last is None else last.log)
        for pending in waiting[:count]:
            self._finish(pending)
        self._unsettled = {}
        if self.gate is not None:
            self.gate.kept_back.clear()
        for pending in waiting[count:]:
            if pending.proposal is not None:
                pending.proposal.withdrawn = True  # it may wait in the queue, and fit the head as it is now
        try:
            for pending in waiting[count:]:
                self._propose(pending)
        except HoldfastError as error:
            self._unsettled = dict.fromkeys(pending for pending in waiting[count:] if not pending.settled)
            self._break(error)
        self.committer.wake()

    # The lease

    def renew(self, now: int) -> Pending | None:
        """Queue the renewal of the lease, once a third of it is gone."""
        if self.gate is not None or self.writer.seen.head.expires_at - now >= self.lease * 2 // 3:
            return None
        return self.amend(self._renewed, repeats=True)

    def wait_for(self, pending: Pending) -> None:
        """Have it written, with all else that waits; raise why it could not be. Blocking."""
        self.committer.drive(pending)
        pending.result()

    def hears_cancel(self) -> bool:
        """True if somebody wants the run to end. Blocking."""
        hear_cancels([self])
        return self.cancelled

    def _renewed(self, head: Head) -> Head:
        return renewed(head, self.thread_id, self.token, self.lease, self._ports.now())

    def release(self, status: str, wake_at: int = 0) -> Pending:
        """Queue the end of the claim."""
        return self.amend(lambda head: released(head, self.thread_id, self.token, status, self._ports.now(), wake_at))

    def let_go(self) -> None:
        """Give the lease back though writing failed, if the head is still ours. Blocking."""
        if not self.is_parents:
            _give_back(self._reader, self.thread, self.token, self.owner, self._ports.now())

    def undo(self) -> None:
        """Give the thread back as it was found: its run never began. Blocking."""
        _give_back(self._reader, self.thread, self.token, self.owner, self._ports.now(), self.found)


class Taking:
    """A claim being taken, on whichever thread: one that is abandoned meanwhile is given back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._claim: Claim | None = None
        self._is_abandoned = False

    def take(
        self, ports: Ports, reader: Reader, committer: Committer, thread: bytes, lease: int, *, reopen: bool
    ) -> Claim:
        """See `take`."""
        claim = take(ports, reader, committer, thread, lease, reopen=reopen)
        with self._lock:
            self._claim = claim
            if self._is_abandoned:
                claim.undo()
        return claim

    def abandon(self) -> None:
        """Nobody waits for it any more. Blocking, if there is a claim to give back."""
        with self._lock:
            self._is_abandoned = True
            if self._claim is not None:
                self._claim.undo()


def _is_interrupt(cause: BaseException | None) -> TypeGuard[BaseException]:
    return cause is not None and not isinstance(cause, Exception)


def take(
    ports: Ports, reader: Reader, committer: Committer, thread: bytes, lease: int, *, reopen: bool = False
) -> Claim:
    """Claim a thread, which is made if it is not there. Blocking. `LeaseHeld` while another run holds it.

    A finished thread keeps its status unless it is to be opened again.
    """
    owner, name = ports.owner(), thread_id_of(thread)
    for _ in range(ATTEMPTS):
        seen = reader.seen(thread) or NO_HEAD
        old = seen.head
        dead = dead_owner(ports, old)
        status = old.status if old.status in FINISHED and not reopen else ""
        head = claimed(old, name, owner, lease, ports.now(), dead_owner=dead, status=status)
        head = _begun(reader, thread, old, head)
        mine, is_ours = Seen(head, encode_head(thread, head)), False
        try:
            is_ours = _swapped(reader, thread, seen, mine)
            if is_ours:
                claim = Claim(ports, reader, committer, _writer(reader, thread, mine), lease, old)
                claim.hears_cancel()
                return claim
        except BaseException as error:
            if is_ours or _is_interrupt(error):  # during a swap only the head tells whose it is
                _give_back(reader, thread, head.token, owner, ports.now(), old)
            raise
    raise Conflict(f"gave up after {ATTEMPTS} conflicting claims of thread {name!r}; retry later")


def dead_owner(ports: Ports, head: Head) -> str:
    """The owner of the lease if its process is certainly dead, else empty. The store plays no part in the evidence."""
    return head.owner if head.owner and ports.is_certainly_dead(head.owner) else ""


def _swapped(reader: Reader, thread: bytes, old: Seen, new: Seen) -> bool:
    """True if the claim is ours."""
    swap = Swap(thread, old.encoded, new.encoded, new.head)
    try:
        return reader.backend.swap([swap])[0]
    except OutcomeUnknown:
        return landed(reader, swap) is True


def _begun(reader: Reader, thread: bytes, old: Head, head: Head) -> Head:
    """The head with the thread's life fixed: idempotency keys are made of it, and a first step may use its own."""
    if head.seq:
        return reader.binding(thread, old).signed(head)
    binding, data_key = reader.sealing.beginning(thread, old)
    return binding.signed(replace(head, incarnation=binding.incarnation, data_key=data_key))


def _give_back(reader: Reader, thread: bytes, token: int, owner: str, now: int, found: Head | None = None) -> None:
    """End a claim in the store, if it is still there; the thread is then as it was found, if that is given."""
    seen = reader.seen(thread)
    if seen is None or (seen.head.token, seen.head.owner) != (token, owner):
        return
    status, wake_at = (seen.head.status, 0) if found is None else as_found(found)
    head = released(seen.head, thread_id_of(thread), token, status, now, wake_at)
    head = reader.binding(thread, seen.head).signed(head)
    reader.backend.swap([Swap(thread, seen.encoded, encode_head(thread, head), head)])


def _writer(reader: Reader, thread: bytes, seen: Seen) -> Writer:
    if seen.head.seq:
        loaded = reader.load_head(thread, seen)
        return Writer(reader, thread, loaded.seen, loaded.log)
    binding = reader.sealing.binding(thread, seen.head)
    return Writer(reader, thread, seen, Log(binding, reader.backend.tuning, {}), seen.head.data_key)


def hear_cancels(claims: Sequence[Claim]) -> None:
    """Tell these claims, all of one store, if somebody wants their runs to end. Blocking."""
    listening = [claim for claim in claims if not claim.cancelled]
    if listening:
        backend = listening[0]._reader.backend  # noqa: SLF001  one file
        for claim, inbox in zip(listening, inboxes(backend, [claim.thread for claim in listening]), strict=True):
            if CANCEL in inbox:
                claim.cancelled = True  # never back to False: somebody else may have set it meanwhile
