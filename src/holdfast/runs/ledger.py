"""What a run knows and writes: its claim on the thread, and the journal in memory, which matches the stored one.

All branches of a run share it, awaitable and blocking ones; each passes its own ports.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from holdfast.codec import encode
from holdfast.history.changes import Changes, state_of
from holdfast.history.entries import (
    JOURNAL,
    Answered,
    AnyEntry,
    Asked,
    Ended,
    Marked,
    Recorded,
    StepDone,
    StepError,
    encode_entry,
    row_details,
)
from holdfast.history.journal import Journal
from holdfast.history.lazy_steps import LazySteps
from holdfast.history.restore import read_state
from holdfast.history.state_cells import STATE
from holdfast.ports import Ports, Ticket
from holdfast.records.errors import ConfigurationError, Finished, RunCancelled
from holdfast.records.event import EventKind
from holdfast.records.shown import kind_of
from holdfast.records.words import Status
from holdfast.runs.divergence import Replay
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.scope import current_frame, held
from holdfast.stores.backend import Transaction
from holdfast.stores.claim import CANCEL, FINISHED, Claim, Pending, write_in_transaction
from holdfast.stores.events import Events
from holdfast.stores.writer import Intent, Place

if TYPE_CHECKING:
    from holdfast.runs.rehearsal import Rehearsal

Given: TypeAlias = tuple[AnyEntry, ...] | Callable[[], tuple[AnyEntry, ...]]
"""Entries to write, or a function that makes them."""
Made: TypeAlias = Intent | Callable[[], Intent]
"""A row to write, or a function that makes it from the state as it is then."""
_ENDS: dict[str, EventKind] = {
    Status.COMPLETE.value: "completed",
    Status.FAILED.value: "failed",
    Status.CANCELLED.value: "cancelled",
}
_of_this_process: "WeakValueDictionary[int, Ledger]" = WeakValueDictionary()


class Suspension(BaseException):
    """Raised in the code of a run that waits for answers or for a moment, and again by every later call on the run.

    A BaseException, so that no `except Exception` of a user can swallow it.
    """

    def __init__(self) -> None:
        super().__init__("the run waits; run it again to resume it")


def live_thread() -> str:
    """Return the id of a thread that this process runs now; empty if there is none."""
    ledgers = (reference() for reference in _of_this_process.valuerefs())
    return next((each.claim.thread_id for each in ledgers if each is not None and each.is_live), "")


def packed_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    """Encode metadata for a row."""
    return encode(dict(metadata), path="metadata") if metadata else b""


def failed_end(error: BaseException | str, now: int) -> Ended:
    """Return the end of a run that failed, for this reason."""
    kind = type(error).__name__ if isinstance(error, BaseException) else ""
    return Ended(Status.FAILED.value, encode(None), kind, text_of(error), failed_steps(error), now)


class AlreadyWritten(Exception):
    """There is an entry under this key already, stored or queued."""


class Awaited:
    """What a suspended run waits for, besides its timers."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        """The messages that the run has looked for in vain."""
        self.threads: list[Callable[[], bool]] = []
        """For each thread whose end it waits for: returns True if it has ended. Blocking."""
        self.look_at = 0
        """When to look again at all of it; 0 for never."""


class Ledger:
    """The one place through which a run's branches read and write."""

    def __init__(self, claim: Claim, events: Events, *, reopen: bool, keep_inputs: str) -> None:
        self.claim = claim
        self.events = events
        self.keep_inputs = keep_inputs
        """How much of a step's arguments its row keeps."""
        self.journal = Journal.of(claim.log.document)
        self.resumed = claim.found.seq > 0
        self.status = claim.writer.seen.head.status
        self.running: dict[str, Ticket] = {}
        """The steps under way, by key."""
        self.suspension: Suspension | None = None
        self.replay: Replay | None = None
        """For a durable function: compares the steps it asks for with those recorded by earlier runs."""
        self.rehearsal: Rehearsal | None = None
        """For a check: recorded results are replayed, nothing is executed or written, and what is new stops the run."""
        self._waiting: set[str] = set()
        """The steps whose own code waits: they stop now, while others may finish."""
        self.plain_step = ""
        """The plain step that code of an awaitable run called last: it may have been awaited by mistake."""
        self.over = False
        """True once the block of the run was left."""
        self.untouched = False
        """True if the thread must be left as it was found."""
        self.resumes_at: int | None = None
        """When a recovery or a worker resumes the thread after this run (0: at once); None if it is left idle."""
        self.is_handed_over = False
        """True if the run stops at its next step, for another process to resume it."""
        self.has_stopped = False
        """True once the suspension was raised in the code of the run."""
        self.version = claim.writer.summary.version
        """The version of the function that began the thread; 0 if none has."""
        self.awaited = Awaited()
        self.turn: Ticket | None = None
        """Settled once the run has done a step since its last process died: see `Resumer`."""
        self._ended: Ended | None = None
        """How the run ended, until listeners are notified of it."""
        self.place: Place | None = None
        """The thread's place in the agenda, if the next row puts it there."""
        self.labels: Mapping[str, str] = {}
        """Labels that the next row sets."""
        self._hand_over_at = 0
        self._done_before = 0
        self._carried: list[AnyEntry] = []
        """Entries that the next row includes."""
        self._changes: Changes | None = None
        """Changes to the state that the next row includes."""
        self._unannounced: list[Pending] = []
        if reopen:
            self.journal.ended = None
        _of_this_process[id(self)] = self

    @property
    def finished(self) -> bool:
        """True if the thread is complete or cancelled, and was not reopened."""
        return self.status in FINISHED

    @property
    def is_live(self) -> bool:
        """True while the run's block was not left and its claim is valid."""
        return not self.over and self.claim.failure is None and not self.claim.is_parents

    # May the run continue?

    def check(self) -> None:
        """Raise why the run cannot continue: its claim is lost, it waits, it was cancelled, a write failed."""
        claim = self.claim
        if claim.failure is not None or claim.is_parents:
            claim.check()
        if self.suspension is not None and self._stops_here():
            self.has_stopped = True
            raise self.suspension
        if claim.cancelled and self.status not in FINISHED:
            raise RunCancelled(f"the run of {claim.thread_id!r} was cancelled")

    def check_new(self, what: str) -> None:
        """Raise why the run cannot continue, or `Finished` if its thread is: `what` is new."""
        self.check()
        self.check_open(what)

    def check_open(self, what: str) -> None:
        """Raise `Finished` if the thread is: `what` is new. For code that called `check` already."""
        if self.status in FINISHED:
            raise Finished(
                f"thread {self.claim.thread_id!r} is {self.status}, and {what} is new; reopen=True would continue it"
            )

    async def ready(self, ports: Ports) -> None:
        """Do what `check` does, but let steps under way finish before raising a suspension.

        A task group cancels its other branches when one raises.
        """
        if 0 < self._hand_over_at <= ports.now() and self.journal.done_count > self._done_before:
            self.hand_over()
        if self.turn is not None and not self.journal.attempts:
            self.turn.settle(True)
        if self.suspension is not None and set(held.get()).isdisjoint(list(self.running.values())):
            await self.wait_for_steps(ports)
        self.check()

    def hand_over_at(self, moment: int) -> None:
        """Hand the run over to any process at its next step after this moment, if it has done one by then.

        A run that has done none goes on: resumed elsewhere it would get no further.
        """
        self._hand_over_at, self._done_before = moment, self.journal.done_count

    async def wait_for_steps(self, ports: Ports) -> None:
        """Let the branches record the steps under way."""
        while tickets := list(self.running.values()):
            for ticket in tickets:
                await ports.wait(ticket)

    async def suspend(self, ports: Ports) -> NoReturn:
        """Suspend the run: raise the same suspension in every branch."""
        if self.rehearsal is not None:
            await self.rehearsal.wait_for_branches(ports)
        self.suspension = self.suspension or Suspension()
        self._waiting.update(self._within())
        await self.ready(ports)
        raise self.suspension

    async def stop_rehearsal(self, ports: Ports, what: str) -> None:
        """In a rehearsal, stop here: `what` is new, or has no recorded end. Otherwise do nothing."""
        if self.rehearsal is not None:
            self.rehearsal.reached = self.rehearsal.reached or what
            await self.suspend(ports)

    def wake_by(self, moment: int) -> None:
        """Look again at what a suspended run waits for at this moment, at the latest."""
        self.awaited.look_at = min(self.awaited.look_at or moment, moment)

    def hand_over(self) -> None:
        """Stop the run at its next step; steps under way may finish. For any thread."""
        self.is_handed_over = True
        self.suspension = self.suspension or Suspension()

    def check_waits_not(self, key: str) -> None:
        """Raise the suspension that a step's own code ran into, even if that code caught it."""
        if self.suspension is not None and key in self._waiting:
            raise self.suspension

    def _stops_here(self) -> bool:
        """True for the run's body and for steps that wait themselves; other steps under way may finish."""
        within = self._within()
        return not within or not self._waiting.isdisjoint(within)

    def _within(self) -> tuple[str, ...]:
        frame = current_frame.get()
        return frame.within if frame is not None and frame.run._ledger is self else ()

    # Writing

    async def commit(self, ports: Ports, made: Made, *entries: AnyEntry) -> Pending:
        """Write a row with these entries. If that fails, nothing more can be written under this claim."""
        pending = self.write(made, entries)
        await ports.settle(pending, self.claim.committer)
        return pending

    async def commit_once(self, ports: Ports, made: Made, entry: Marked | StepDone) -> Pending | None:
        """Write a row with this entry; None if another branch wrote one under its key, which is stored then."""
        try:
            pending = self.write(made, partial(self.once, entry))
        except AlreadyWritten:
            await self.wait_for_rows(ports)
            return None
        await ports.settle(pending, self.claim.committer)
        return pending

    async def wait_for_rows(self, ports: Ports) -> None:
        """Wait until all rows that were queued are stored; raise the error if they could not be."""
        if (pending := self.claim.last_row()) is not None:
            await ports.settle(pending, self.claim.committer)

    async def note(self, ports: Ports, *entries: AnyEntry) -> None:
        """Write a journal row whose metadata names what happened."""
        await self.commit(ports, Intent(journal=True, metadata=packed_metadata(row_details(entries[0]))), *entries)

    def queue(self, ports: Ports, intent: Intent, given: Given) -> Pending:
        """Queue a row and have it written even if nobody waits for it."""
        pending = self.write(intent, given)
        if self.events.wants("saved"):
            self._unannounced.append(pending)
        if not pending.settled:
            ports.dispatch(pending, self.claim.committer)
        return pending

    def write(self, made: Made, given: Given) -> Pending:
        """Queue a row with these entries; `ports.settle` commits it and waits for its outcome.

        A row that depends on the state, and entries that depend on their place in the journal, are passed as functions:
        nothing is written between their call and the row.
        """
        claim = self.claim
        if self.rehearsal is not None:
            if callable(given):
                given()  # raises `AlreadyWritten` for what is recorded
            self.suspension = self.suspension or Suspension()
            raise self.suspension
        if claim.committer.is_full:
            claim.committer.commit_batch()  # not within `in_order`: the committing thread needs the claim
        return claim.in_order(lambda: self._queued(made, given))

    def _queued(self, made: Made, given: Given) -> Pending:
        """Queue the row, and add its entries to the journal at once, since the next row builds on them."""
        entries = given() if callable(given) else given
        pending = self.claim.submit(self._filled(made() if callable(made) else made, entries))
        try:
            carried, self._carried, self._changes, self.place, self.labels = self._carried, [], None, None, {}
            for entry in (*carried, *entries):
                self.journal.add(entry)
        except BaseException as error:
            self.claim.give_up(error)  # the row is queued, and the journal in memory lacks it
            raise
        return pending

    def _filled(self, intent: Intent, entries: tuple[AnyEntry, ...]) -> Intent:
        """Return the intent with these entries, the carried ones and the changes to the state in the same row."""
        written = (*self._carried, *entries)
        intent.appends += tuple((JOURNAL, encode_entry(entry)) for entry in written)
        intent.place = self.place
        if self.labels:
            intent.labels = {**self.labels, **(intent.labels or {})}
        if any(isinstance(entry, Asked | Answered) for entry in written):
            intent.requests = self.journal.open_after(written)
        changes = self._changes
        if changes is not None:
            whole = intent.draft
            intent.draft = changes.applied(self.claim.log.document) if whole is None else changes.added_to(whole)
            intent.leaves = {}  # they are those of the state without the changes
        return intent

    async def commit_within(self, ports: Ports, transaction: Transaction, intent: Intent, *entries: AnyEntry) -> None:
        """Write a row with these entries in a transaction, and commit it. Only then add them to the journal.

        Changes to the state get their own row first: they are not part of the transaction.
        """
        if self._changes is not None:
            await self.commit(ports, Intent(cause="event"))
        carried, self._carried = self._carried, []
        written = (*carried, *entries)
        intent.appends += tuple((JOURNAL, encode_entry(entry)) for entry in written)
        try:
            await write_in_transaction(ports, self.claim, intent, transaction)
        except BaseException:
            self._carried = [*carried, *self._carried]
            raise
        with self.claim.lock:
            for entry in written:
                self.journal.add(entry)

    def once(self, entry: Marked | Recorded | StepDone) -> tuple[AnyEntry, ...]:
        """Return the entry to write, if nothing was written under its key; else raise `AlreadyWritten`."""
        is_ended = isinstance(self.journal.memos.get(entry.key), StepDone | StepError)
        if is_ended if isinstance(entry, StepDone) else entry.key in self.journal.marks:
            raise AlreadyWritten
        return (entry,)

    def carry(self, entry: AnyEntry) -> None:
        """Write this entry with the next row: it is not worth its own."""
        self._carried.append(entry)

    async def end(self, ports: Ports, entry: Ended) -> None:
        """Write how the run ended."""
        await ports.settle(self.end_on_release(entry), self.claim.committer)
        await self.emit_end()

    def end_on_release(self, entry: Ended) -> Pending:
        """Queue how the run ended. The release of the lease follows at once, and both are stored in one swap."""
        error = "" if entry.status == Status.COMPLETE.value else f"{entry.type}: {entry.message}".strip(": ")
        requests = () if entry.status in FINISHED else None
        intent = Intent(journal=True, status=entry.status, error=error, requests=requests, consumed=(CANCEL,))
        intent.metadata = packed_metadata(row_details(entry))
        pending = self.write(intent, (entry,))
        self.status, self._ended = entry.status, entry
        return pending

    async def emit_end(self) -> None:
        """Notify listeners of the end of the run, once it is stored."""
        entry, self._ended = self._ended, None
        if entry is not None:
            details = {"error": entry.type} if entry.status == Status.FAILED.value else {}
            await self.emit(_ENDS[entry.status], **details)

    # The state and the steps

    @property
    def state(self) -> Any:
        """The thread's state with the changes that the next row includes, as a copy."""
        with self.claim.lock:
            log = self.claim.log
            if self._changes is not None:
                return state_of(self._changes.applied(log.document), log.binding.limits)
        return read_state(log.binding, log.document)

    @property
    def has_changes(self) -> bool:
        """True if the next row changes the state."""
        return self._changes is not None

    def change_state(self, values: Mapping[Any, Any]) -> None:
        """Merge top-level keys into the state; the next row includes the change."""
        with self.claim.lock:
            if STATE in self.claim.log.document and type(self.state) is not dict:
                raise ConfigurationError(
                    f"the state of thread {self.claim.thread_id!r} is {kind_of(self.state)}, and only a dict"
                    " has keys to update; replace the whole state instead"
                )
            changes = self._changes or Changes(self.claim.log.binding.limits)
            changes.merge(values)
            self._changes = changes if values else self._changes

    def replace_state(self, state: dict[Any, Any]) -> None:
        """Replace the whole state; the next row includes the change."""
        with self.claim.lock:
            changes = Changes(self.claim.log.binding.limits)
            changes.replace(state)
            self._changes = changes

    def drop_changes(self) -> None:
        """Drop the changes to the state that are not written yet."""
        with self.claim.lock:
            self._changes = None

    @property
    def lazy_steps(self) -> LazySteps:
        """The steps that were recorded and not undone; each is decoded when it is read."""
        return self.journal.lazy_steps(self.claim.log.binding.limits)

    # Events

    async def emit(self, kind: EventKind, content: Mapping[str, object] | None = None, /, **details: object) -> None:
        """Notify listeners of an event of this run, and first of the rows that were queued."""
        unannounced, self._unannounced = self._unannounced, []
        for pending in unannounced:
            await self.emit_saved(pending)
        if self.events.wants(kind):
            await self.events.emit(kind, self.claim.thread_id, self.claim.log.seq, content, **details)

    async def emit_saved(self, pending: Pending) -> None:
        """Notify listeners of a row that is a checkpoint."""
        if self.events.wants("saved"):
            seq, size = pending.proposal.log.seq, pending.proposal.swap.size
            await self.events.emit("saved", self.claim.thread_id, seq, bytes=size)
