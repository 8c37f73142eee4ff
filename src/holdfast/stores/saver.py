"""One-shot writes: a change becomes a row, the row is committed, and a stale writer is brought up to date."""

from contextlib import suppress

from holdfast.ports import Ports
from holdfast.records.errors import Conflict, Deleted, KeyReused, LeaseHeld, OutcomeUnknown, StoreUnavailable
from holdfast.records.identity import thread_id_of
from holdfast.stores.committer import Committer
from holdfast.stores.landing import landed
from holdfast.stores.reader import Reader
from holdfast.stores.writer import Intent, Proposal, Recorded, Writer, Writers

ATTEMPTS = 50
"""How often a write is retried after a conflict: catching up costs little, and each time some writer succeeds."""
LARGE_BYTES = 1 << 20
SMALL_BYTES = 64 << 10
"""Up to this size, a write to a thread that may exist is sent before its head is read."""


class Saver:
    """Commits rows for one store handle, through its live writers."""

    def __init__(self, reader: Reader, committer: Committer, ports: Ports) -> None:
        self.writers = Writers(reader)
        self._reader = reader
        self._committer = committer
        self._ports = ports
        self._assumes_new = reader.backend.tuning.assumes_new

    async def commit(self, thread: bytes, intent: Intent) -> Proposal | Recorded:
        """Commit one row. A stale writer is brought up to date, and the change is computed again."""
        known_fresh = False
        for attempt in range(ATTEMPTS):
            writer = self.writers.get(thread)
            if writer is None and attempt == 0 and self._assumes_new and intent.size < SMALL_BYTES:
                writer = self.writers.assume_new(thread)
            elif writer is None:
                writer, known_fresh = await self._writer(thread), True
            if self._committer.is_full:
                await self._ports.perform(self._committer.relieve)
            try:
                proposal = await self._proposed(writer, intent)
            except (Conflict, Deleted, KeyReused, LeaseHeld):
                if known_fresh:
                    raise
                known_fresh = await self._refresh(writer, writer.epoch)
                continue
            except BaseException:
                # Interrupted, it may be out of step with what was queued.
                self.writers.discard(writer)
                raise
            pending = proposal if isinstance(proposal, Proposal) else proposal.pending
            if pending is None:
                if known_fresh:
                    return proposal
                known_fresh = await self._refresh(writer, writer.epoch)
                continue
            if await self._settled(writer, pending):
                self.writers.weigh(writer)
                return proposal
            known_fresh = await self._refresh(writer, pending.epoch)
        raise Conflict(f"gave up after {ATTEMPTS} conflicting writes to thread {thread_id_of(thread)!r}; retry later")

    async def _proposed(self, writer: Writer, intent: Intent) -> Proposal | Recorded:
        """The next row, queued. A large one is made on another thread."""
        ports, submit = self._ports, self._committer.submit
        if intent.size < LARGE_BYTES:
            return writer.propose_once(intent, ports.now(), submit)
        return await ports.perform(writer.propose_once, intent, ports.now(), submit)

    async def _writer(self, thread: bytes) -> Writer:
        """A writer for the thread. That a thread is new is found out at once; loading one is left to a thread."""
        if self._committer.inline:
            writer = self.writers.begin(thread)
            if writer is not None:
                return writer
        return await self._ports.perform(self.writers.open, thread)

    async def _settled(self, writer: Writer, proposal: Proposal) -> bool:
        try:
            return await self._ports.settle(proposal, self._committer)
        except OutcomeUnknown:
            self.writers.discard(writer)
            outcome = None
            with suppress(StoreUnavailable):
                outcome = await self._ports.perform(landed, self._reader, proposal.swap)
            if outcome is None:
                raise
            return outcome
        except BaseException:
            # The writer ran ahead of a write that failed, or whose outcome nobody waited for.
            self.writers.discard(writer)
            raise

    async def _refresh(self, writer: Writer, epoch: int) -> bool:
        """Bring a writer up to date, or forget it if its log is not the thread's any more. True if it is fresh now.

        One that never wrote a row has nothing to build on, and so nothing is asked for its sake.
        """
        if writer.settled_log.seq and await self._ports.perform(writer.restart, epoch):
            return True
        self.writers.discard(writer)
        return False
