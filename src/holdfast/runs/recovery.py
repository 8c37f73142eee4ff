"""`recover`: one pass over the threads whose process died, whose question was answered, or whose timer is due."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.history.entries import message_key
from holdfast.history.journal import Journal
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint, KeyUnavailable, NotFound
from holdfast.records.head import Head, decode_head
from holdfast.records.identity import shown_id_of, thread_id_of
from holdfast.records.outcome import Recovery
from holdfast.records.words import Status
from holdfast.runs.block import Terms
from holdfast.runs.durable import registry
from holdfast.runs.ledger import Ledger
from holdfast.runs.resuming import Resumer
from holdfast.runs.run import Run
from holdfast.stores.agenda import OPEN, Agenda
from holdfast.stores.claim import dead_owner
from holdfast.stores.decisions import may_go_on

if TYPE_CHECKING:
    from holdfast.runs.store import Store

PAGE = 256


class Recoverer:
    """One recovery: finds the threads that can be resumed, and resumes each that this process can claim."""

    def __init__(self, store: "Store", handler: Callable[[Run], Any] | None, terms: Terms, max_attempts: int) -> None:
        self._tools = store._tools
        self._handler = handler
        self._resumer = Resumer(store, registry.values, terms, max_attempts, handler)
        self._damaged: list[str] = []
        self._poked: set[bytes] = set()
        """Threads that the agenda has as due although their heads do not say so: what they await has ended."""

    async def recover(self, labels: Mapping[str, str]) -> Recovery:
        """Resume every resumable thread with these labels, and report how each ended."""
        report = await self.resume_all(await self._tools.ports.perform(self._candidates, labels))
        return replace(report, damaged=tuple(self._damaged))

    async def resume_all(self, found: list[str]) -> Recovery:
        """Resume those of these threads that still can be, several at once if the ports allow it."""
        ends = await self._tools.ports.gather([self._resume(thread_id) for thread_id in found])
        by_end: dict[str, list[str]] = {}
        for thread_id, end in zip(found, ends, strict=True):
            by_end.setdefault(end, []).append(thread_id)
        return Recovery(**{end: tuple(ids) for end, ids in by_end.items()})

    def _candidates(self, labels: Mapping[str, str]) -> list[str]:
        """Return the threads that can be resumed, and note those that cannot be read."""
        reader, ports = self._tools.reader, self._tools.ports
        choices, found, cursor = reader.bindings.label_choices(labels), list[str](), None
        if isinstance(reader.backend, Agenda):
            entries = reader.agenda.entries(reader.bindings.prefix)
            self._poked = {thread for thread, entry in entries.items() if not entry.held and entry.due <= ports.now()}
        while True:
            listing = reader.backend.threads(reader.bindings.prefix, OPEN, choices, cursor, PAGE)
            for thread, encoded in listing.heads:
                try:
                    head = decode_head(thread, encoded)
                    if self._can_resume(thread, head):
                        reader.binding(thread, head)
                        found.append(thread_id_of(thread))
                except (Corrupt, IncompatibleCheckpoint, KeyUnavailable):
                    self._damaged.append(shown_id_of(thread))
            cursor = listing.next
            if cursor is None:
                return found

    def _can_resume(self, thread: bytes, head: Head) -> bool:
        reader, ports = self._tools.reader, self._tools.ports
        if head.deleted or head.status not in OPEN:
            return False
        if may_go_on(head, ports.now()):
            return True
        if head.held(ports.now()):
            return bool(dead_owner(ports, head))
        if head.status == Status.WORKING.value:
            return thread in self._poked
        if head.status != Status.INPUT_REQUIRED.value:
            return False
        requests = reader.bindings.read_summary(reader.binding(thread, head), head).requests
        inbox = reader.backend.inbox(thread)
        return any(message_key(int(number)) in inbox for number in requests)

    async def _resume(self, thread_id: str) -> str:
        """Resume a thread, and return how it ended: a field of `Recovery`."""
        try:
            end, error = await self._end_of(thread_id), ""
        except Exception as failure:  # noqa: BLE001  recorded with the thread
            end, error = "failed", type(failure).__name__
        if end != "skipped":
            await self._tools.events.emit("recovered", thread_id, end=end, error=error)
        return end

    async def _end_of(self, thread_id: str) -> str:
        if self._handler is None and not await self._tools.ports.perform(self._is_ours, thread_id):
            return "skipped"
        return await self._resumer.resume(thread_id, self._may_resume)

    def _may_resume(self, ledger: Ledger) -> bool:
        return self._can_resume(ledger.claim.thread, ledger.claim.found)

    def _is_ours(self, thread_id: str) -> bool:
        """True if this program has the thread's function; other threads are not claimed."""
        reader = self._tools.reader
        try:
            loaded = reader.load_head(reader.key(thread_id))
        except NotFound:
            return False
        version = reader.bindings.read_summary(loaded.log.binding, loaded.seen.head).version
        return self._resumer.function_of(Journal.of(loaded.log.document), version) is not None
