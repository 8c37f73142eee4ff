"""Resuming threads whose process died, whose question was answered, or whose timer is due."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.codec import encode
from holdfast.history.entries import Ended, Retaken, message_key
from holdfast.history.journal import Journal
from holdfast.records.errors import (
    Conflict,
    Corrupt,
    Deleted,
    IncompatibleCheckpoint,
    KeyUnavailable,
    LeaseHeld,
    NotFound,
    Suspended,
)
from holdfast.records.head import Head, decode_head
from holdfast.records.identity import shown_id_of, thread_id_of
from holdfast.records.outcome import Recovery
from holdfast.records.words import Status
from holdfast.runs.block import Terms
from holdfast.runs.durable import Durable, registry
from holdfast.runs.run import Run
from holdfast.stores.claim import replaceable_owner
from holdfast.stores.decisions import may_go_on

if TYPE_CHECKING:
    from holdfast.runs.store import Store

PAGE = 256
STATUSES = (Status.QUEUED.value, Status.WORKING.value, Status.INPUT_REQUIRED.value)


class Recoverer:
    """One recovery: finds the threads that can be resumed, and resumes each that this process can claim."""

    def __init__(self, store: "Store", handler: Callable[[Run], Any] | None, terms: Terms, max_attempts: int) -> None:
        self._store = store
        self._handler = handler
        self._terms = terms
        self._max_attempts = max_attempts
        self._damaged: list[str] = []

    async def recover(self, labels: Mapping[str, str]) -> Recovery:
        """Resume every resumable thread with these labels, and report how each ended."""
        tools = self._store._tools
        report = await self.resume_all(await tools.ports.perform(self._candidates, labels))
        return replace(report, damaged=tuple(self._damaged))

    async def resume_all(self, found: list[str]) -> Recovery:
        """Resume those of these threads that still can be, several at once if the ports allow it."""
        tools = self._store._tools
        ends = await tools.ports.gather([self.resume(thread_id) for thread_id in found])
        by_end: dict[str, list[str]] = {}
        for thread_id, end in zip(found, ends, strict=True):
            by_end.setdefault(end, []).append(thread_id)
        return Recovery(**{end: tuple(ids) for end, ids in by_end.items()})

    def _candidates(self, labels: Mapping[str, str]) -> list[str]:
        """Return the threads that can be resumed, and note those that cannot be read."""
        reader, ports = self._store._tools.reader, self._store._tools.ports
        choices, found, cursor = reader.bindings.label_choices(labels), list[str](), None
        while True:
            listing = reader.backend.threads(reader.bindings.prefix, STATUSES, choices, cursor, PAGE)
            for thread, encoded in listing.heads:
                try:
                    head = decode_head(thread, encoded)
                    if self.can_resume(thread, head, ports.now()):
                        reader.binding(thread, head)
                        found.append(thread_id_of(thread))
                except (Corrupt, IncompatibleCheckpoint, KeyUnavailable):
                    self._damaged.append(shown_id_of(thread))
            cursor = listing.next
            if cursor is None:
                return found

    def can_resume(self, thread: bytes, head: Head, now: int) -> bool:
        """True if the thread, which has this head, is due, or was answered, or its owner can be replaced. Blocking."""
        reader, ports = self._store._tools.reader, self._store._tools.ports
        if head.deleted or head.status not in STATUSES:
            return False
        if may_go_on(head, now):
            return True
        if head.held(now):
            return bool(replaceable_owner(ports, head, self._terms.tag))
        if head.status != Status.INPUT_REQUIRED.value:
            return False
        requests = reader.bindings.read_summary(reader.binding(thread, head), head).requests
        inbox = reader.backend.inbox(thread)
        return any(message_key(int(number)) in inbox for number in requests)

    async def resume(self, thread_id: str) -> str:
        """Resume a thread, and return how it ended: `completed`, `open`, `suspended`, `failed` or `skipped`."""
        try:
            end, error = await self._end_of(thread_id), ""
        except Exception as failure:  # noqa: BLE001  recorded with the thread
            end, error = "failed", type(failure).__name__
        if end != "skipped":
            await self._store._tools.events.emit("recovered", thread_id, end=end, error=error)
        return end

    async def _end_of(self, thread_id: str) -> str:
        tools = self._store._tools
        if self._handler is None and not await tools.ports.perform(self._is_ours, thread_id):
            return "skipped"
        block = self._store._run_block(thread_id, None, self._terms)
        try:
            async with block as run:
                return await self._execute(run)
        except Suspended:
            return "suspended"
        except (LeaseHeld, Conflict, Deleted):
            if block.entered:
                raise
            return "skipped"

    def _is_ours(self, thread_id: str) -> bool:
        """True if this program has the thread's function; other threads are not claimed."""
        reader = self._store._tools.reader
        try:
            loaded = reader.load_head(reader.key(thread_id))
        except NotFound:
            return False
        return self._function(Journal.of(loaded.log.document)) is not None

    def _function(self, journal: Journal) -> "Durable[Any, Any] | None":
        function = registry.get(journal.started.function) if journal.started is not None else None
        return function if function is not None and function._fits(self._store._tools.ports) else None

    async def _execute(self, run: Run) -> str:
        claim, function = run._ledger.claim, self._function(run._ledger.journal)
        if not await run._ports.perform(self.can_resume, claim.thread, claim.found, run._ports.now()):
            run._ledger.untouched = True  # another process resumed it first
            return "skipped"
        if run._ledger.claim.found.owner:
            if run._ledger.journal.attempts >= self._max_attempts:
                return await self._give_up(run)
            await run._ledger.note(run._ports, Retaken(run._ports.now()))
        if self._handler is not None:
            await run._ports.invoke(self._handler, (run,), {}, None)
        elif function is not None:
            await function._execute(run, None)
        return "completed" if run.finished else "open"

    async def _give_up(self, run: Run) -> str:
        now, attempts = run._ports.now(), run._ledger.journal.attempts
        text = f"gave up: the process running it died in each of {attempts} attempts, with no step done"
        await run._ledger.end(run._ports, Ended(Status.FAILED.value, encode(None), "Poisoned", text, (), now))
        return "failed"
