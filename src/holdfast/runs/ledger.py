"""What a run knows and writes: its claim on the thread, and the journal in memory, kept in step with the stored one.

Shared by all branches of a run, whatever world they are in; each brings its own ports.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

from holdfast.codec import encode
from holdfast.history.changes import Changes, state_of
from holdfast.history.entries import JOURNAL, Answered, AnyEntry, Asked, Ended, encode_entry, row_details
from holdfast.history.journal import Journal
from holdfast.history.lazy_steps import LazySteps
from holdfast.history.restore import read_state
from holdfast.history.state_cells import STATE
from holdfast.ports import Ports, Ticket
from holdfast.records.errors import ConfigurationError, Finished, RunCancelled
from holdfast.records.event import EventKind
from holdfast.records.words import Status
from holdfast.runs.divergence import Replay
from holdfast.runs.scope import current_frame, held
from holdfast.runs.suspension import Suspension
from holdfast.stores.backend import Transaction
from holdfast.stores.claim import CANCEL, FINISHED, Claim, Pending, write_in_transaction
from holdfast.stores.events import Events
from holdfast.stores.writer import Intent

Given: TypeAlias = tuple[AnyEntry, ...] | Callable[[], tuple[AnyEntry, ...]]
"""Entries to write, or what makes them."""
_REQUESTS = frozenset({Asked, Answered})
_ENDS: dict[str, EventKind] = {
    Status.COMPLETE.value: "completed",
    Status.FAILED.value: "failed",
    Status.CANCELLED.value: "cancelled",
}


_of_this_process: "WeakValueDictionary[int, Ledger]" = WeakValueDictionary()


def live_thread() -> str:
    """The id of a thread that a run of this process is at; empty if there is none."""
    ledgers = (reference() for reference in _of_this_process.valuerefs())
    return next((each.claim.thread_id for each in ledgers if each is not None and each.is_live), "")


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
        """Of a durable function: compares what it asks for with what was recorded before."""
        self._waiting: set[str] = set()
        """The steps whose own code waits: they stop with it, while others come to their end."""
        self.plain_step = ""
        """The plain step that code of an awaitable run called last: it may have been awaited by mistake."""
        self.over = False
        """True once the block of the run was left."""
        self.untouched = False
        """True if the thread is to be left as it was found."""
        self.resumable = False
        """True if the thread is to be left for a recovery to resume."""
        self._carried: list[AnyEntry] = []
        self._changes: Changes | None = None
        """Changes to the state that the next row takes along, whichever that is."""
        self._untold: list[Pending] = []
        if reopen:
            self.journal.ended = None
        _of_this_process[id(self)] = self

    @property
    def finished(self) -> bool:
        """True if the thread is complete or cancelled, and was not opened again."""
        return self.status in FINISHED

    @property
    def is_live(self) -> bool:
        """True while the block of the run is not left, and its claim is good."""
        return not self.over and self.claim.failure is None and not self.claim.is_parents

    def check(self) -> None:
        """Raise why the run cannot go on: its claim is lost, it waits, somebody cancelled it, a write failed."""
        claim = self.claim
        if claim.failure is not None or claim.is_parents:
            claim.check()
        if self.suspension is not None and self._stops_here():
            raise self.suspension
        if claim.cancelled and not self.finished:
            raise RunCancelled(f"the run of {claim.thread_id!r} was cancelled")

    def check_new(self, what: str) -> None:
        """Raise why nothing new may be done."""
        self.check()
        if self.finished:
            raise Finished(
                f"thread {self.claim.thread_id!r} is {self.status}, and {what} is new; reopen=True would continue it"
            )

    def _stops_here(self) -> bool:
        """True for the run's body and for steps that wait themselves; a step under way is not cut in the middle."""
        within = self._within()
        return not within or not self._waiting.isdisjoint(within)

    def _within(self) -> tuple[str, ...]:
        frame = current_frame.get()
        return frame.within if frame is not None and frame.run._ledger is self else ()

    async def ready(self, ports: Ports) -> None:
        """As `check`, but a suspension is raised once no step is under way: a task group then cancels its branches."""
        if self.suspension is not None and not self._is_at_a_step():
            await self.wait_for_steps(ports)
        self.check()

    def _is_at_a_step(self) -> bool:
        """True for code that would wait for itself."""
        return not set(held.get()).isdisjoint(list(self.running.values()))

    async def wait_for_steps(self, ports: Ports) -> None:
        """Let the branches record what they are at."""
        while tickets := list(self.running.values()):
            for ticket in tickets:
                await ports.wait(ticket)

    async def suspend(self, ports: Ports) -> NoReturn:
        """The run waits: the same is raised in every branch."""
        self.suspension = self.suspension or Suspension()
        self._waiting.update(self._within())
        await self.ready(ports)
        raise self.suspension

    def check_waits_not(self, key: str) -> None:
        """Raise the suspension that a step's own code ran into, whatever it made of it."""
        if self.suspension is not None and key in self._waiting:
            raise self.suspension

    async def commit(self, ports: Ports, intent: Intent, *entries: AnyEntry) -> Pending:
        """Write a row with these entries. If it cannot be written, nothing can be under this claim any more."""
        pending = self.write(intent, entries)
        await ports.settle(pending, self.claim.committer)
        return pending

    async def settle(self, ports: Ports, pending: Pending) -> None:
        """Wait until a row is written, or raise why it cannot be."""
        await ports.settle(pending, self.claim.committer)

    def write(self, intent: Intent, given: Given) -> Pending:
        """Queue a row with these entries; `settle` commits it, and waits for its outcome.

        Entries that depend on their place in the journal are given as a function that makes them: nothing comes between
        the two.
        """
        claim = self.claim
        if claim.committer.is_full:
            claim.committer.commit_batch()  # not within `in_order`: the committing thread needs the claim
        return claim.in_order(lambda: self._queued(intent, given))

    def _queued(self, intent: Intent, given: Given) -> Pending:
        entries = given() if callable(given) else given
        pending = self.claim.submit(self._filled(intent, entries))
        try:
            carried, self._carried, self._changes = self._carried, [], None
            self._take_in((*carried, *entries))
        except BaseException as error:
            self.claim.give_up(error)  # the row is on its way, and the journal in memory lacks it
            raise
        return pending

    def _take_in(self, entries: tuple[AnyEntry, ...]) -> None:
        """A row is made: its entries are in the journal at once, since the next row builds on them."""
        for entry in entries:
            self.journal.add(entry)

    def _filled(self, intent: Intent, entries: tuple[AnyEntry, ...]) -> Intent:
        """The intent with these journal entries in the same row, and with what is carried."""
        written = (*self._carried, *entries) if self._carried else entries
        for entry in written:
            if type(entry) in _REQUESTS:
                intent.requests = self.journal.open_after(written)
        changes = self._changes
        if changes is not None:
            whole = intent.draft
            intent.draft = changes.applied(self.claim.log.document) if whole is None else changes.added_to(whole)
            intent.leaves = {}  # they are those of the state without the changes
        return with_entries(intent, written)

    async def commit_within(self, ports: Ports, transaction: Transaction, intent: Intent, *entries: AnyEntry) -> None:
        """Write a row with these entries in a transaction, and commit it. Only then are they taken in.

        Changes to the state get a row of their own first: they are not part of the transaction.
        """
        if self._changes is not None:
            await self.commit(ports, Intent(cause="event"))
        carried, self._carried = self._carried, []
        try:
            await write_in_transaction(ports, self.claim, with_entries(intent, (*carried, *entries)), transaction)
        except BaseException:
            self._carried = [*carried, *self._carried]
            raise
        with self.claim.lock:
            self._take_in((*carried, *entries))

    def carry(self, entry: AnyEntry) -> None:
        """Write this with the next row: not worth one of its own."""
        self._carried.append(entry)

    @property
    def lazy_steps(self) -> LazySteps:
        """The steps that were recorded, and not undone; each is decoded when it is looked at."""
        return self.journal.lazy_steps(self.claim.log.binding.limits)

    # The state

    @property
    def state(self) -> Any:
        """The thread's state with the changes that wait for a row, as a copy."""
        with self.claim.lock:
            log = self.claim.log
            if self._changes is not None:
                return state_of(self._changes.applied(log.document), log.binding.limits)
        return read_state(log.binding, log.document)

    @property
    def has_changes(self) -> bool:
        """True if changes to the state wait for a row."""
        return self._changes is not None

    def change_state(self, values: Mapping[Any, Any]) -> None:
        """Merge top-level keys into the state; written with the next row."""
        with self.claim.lock:
            if STATE in self.claim.log.document and type(self.state) is not dict:
                raise ConfigurationError(
                    f"the state of thread {self.claim.thread_id!r} is a {type(self.state).__name__}, and only a dict"
                    " has keys to update; replace the whole state instead"
                )
            changes = self._changes or Changes(self.claim.log.binding.limits)
            changes.merge(values)
            self._changes = changes if values else self._changes

    def replace_state(self, state: dict[Any, Any]) -> None:
        """Replace the whole state; written with the next row."""
        with self.claim.lock:
            changes = Changes(self.claim.log.binding.limits)
            changes.replace(state)
            self._changes = changes

    def drop_changes(self) -> None:
        """Forget the changes that wait for a row."""
        with self.claim.lock:
            self._changes = None

    async def note(self, ports: Ports, *entries: AnyEntry) -> None:
        """Write a journal row, whose metadata says in a word what happened."""
        await self.commit(ports, Intent(journal=True, metadata=packed_metadata(row_details(entries[0]))), *entries)

    def queue(self, ports: Ports, intent: Intent, given: Given) -> Pending:
        """Queue a row, and see that it is written though nobody may wait for it."""
        pending = self.write(intent, given)
        if self.events.wants("saved"):
            self._untold.append(pending)
        if not pending.settled:
            ports.dispatch(pending, self.claim.committer)
        return pending

    async def end(self, ports: Ports, entry: Ended) -> None:
        """Write how the run ended."""
        error = "" if entry.status == Status.COMPLETE.value else f"{entry.type}: {entry.message}".strip(": ")
        requests = () if entry.status in FINISHED else None
        intent = Intent(journal=True, status=entry.status, error=error, requests=requests, consumed=(CANCEL,))
        intent.metadata = packed_metadata(row_details(entry))
        await self.commit(ports, intent, entry)
        self.status = entry.status
        details = {"error": entry.type} if entry.status == Status.FAILED.value else {}
        await self.emit(_ENDS[entry.status], **details)

    async def emit(self, kind: EventKind, content: Mapping[str, object] | None = None, /, **details: object) -> None:
        """Tell listeners what this run did, and first what was queued without a wait."""
        untold, self._untold = self._untold, []
        for pending in untold:
            await self.emit_saved(pending)
        if self.events.wants(kind):
            await self.events.emit(kind, self.claim.thread_id, self.claim.log.seq, content, **details)

    async def emit_saved(self, pending: Pending) -> None:
        """Tell listeners of a row that is a checkpoint."""
        if self.events.wants("saved"):
            seq, size = pending.proposal.log.seq, pending.proposal.swap.size
            await self.events.emit("saved", self.claim.thread_id, seq, bytes=size)


def with_entries(intent: Intent, entries: tuple[AnyEntry, ...]) -> Intent:
    """The intent with journal entries in the same row."""
    for entry in entries:
        intent.appends += ((JOURNAL, encode_entry(entry)),)
    return intent


def packed_metadata(metadata: Mapping[str, Any] | None) -> bytes:
    """Metadata as a row keeps it."""
    return encode(dict(metadata), path="metadata") if metadata else b""
