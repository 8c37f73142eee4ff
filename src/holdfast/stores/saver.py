"""The write path: a change becomes a row, the row is committed, and a stale writer is brought up to date."""

from contextlib import suppress

from holdfast.ports import Ports, Ticket
from holdfast.records.errors import Conflict, Deleted, KeyReused, LeaseHeld, OutcomeUnknown, StoreUnavailable
from holdfast.records.identity import thread_id_of
from holdfast.records.rows import Swap
from holdfast.stores.committer import Committer
from holdfast.stores.reader import Reader
from holdfast.stores.writer import Intent, Proposal, Recorded, Writer, Writers

ATTEMPTS = 50
"""How often a write overtaken by others is tried again: catching up costs little, and somebody gets ahead each time."""
LARGE_BYTES = 1 << 20
SMALL_BYTES = 64 << 10
"""So much may be sent in vain."""


class Saver:
    """Commits rows for one store handle, through its live writers."""

    def __init__(self, reader: Reader, committer: Committer, ports: Ports) -> None:
        self.writers = Writers(reader)
        self._reader = reader
        self._committer = committer
        self._ports = ports
        self._assumes_new = reader.backend.tuning.assumes_new

    async def commit(self, thread: bytes, intent: Intent) -> Proposal | Recorded:
        """Commit one row. A writer that proves stale is brought up to date, and the change found anew."""
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
        raise Conflict(f"thread {thread_id_of(thread)!r} is being written to by others all the time; try again")

    async def _proposed(self, writer: Writer, intent: Intent) -> Proposal | Recorded:
        """The next row, queued, or settled if that can be done at once."""
        ports, committer = self._ports, self._committer
        if ports.blocking and _is_simple(intent) and committer.is_idle:
            return self._commit_alone(writer, intent)
        if intent.size < LARGE_BYTES:
            return writer.propose(intent, ports.now(), committer.submit)
        return await ports.perform(writer.propose, intent, ports.now(), committer.submit)

    def _commit_alone(self, writer: Writer, intent: Intent) -> Proposal | Recorded:
        """Commit it here and now, if still nobody else writes once the turn to commit is taken.

        That is asked as the row is made: what was queued by then may be what it builds on, and has to go first.
        """
        committer, alone = self._committer, list[Swap]()

        def send(ticket: Ticket, swap: Swap) -> None:
            if committer.has_queue:
                committer.submit(ticket, swap)
            else:
                alone.append(swap)

        try:
            with committer.turn:
                proposal = writer.propose(intent, self._ports.now(), send)
                if alone and isinstance(proposal, Proposal):
                    committer.settle(proposal, proposal.swap)
        finally:
            committer.pass_turn()
        return proposal

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
            landed = None
            with suppress(StoreUnavailable):
                landed = await self._ports.perform(self._landed, writer, proposal)
            if landed is None:
                raise
            return landed
        except BaseException:
            # The writer ran ahead of a write that failed, or whose outcome nobody waited for.
            self.writers.discard(writer)
            raise

    def _landed(self, writer: Writer, proposal: Proposal) -> bool | None:
        """After a lost reply: True if our row is there, False if it never can be any more, None if nobody can say."""
        seq, digest = proposal.log.seq, proposal.log.digest
        rows = self._reader.backend.index(writer.thread, seq + 1, 1)
        seen = self._reader.seen(writer.thread)
        if seen is None:
            return None
        if not proposal.swap.expected and seen.head.incarnation != proposal.log.binding.incarnation:
            return False  # there was a thread already, and there always will be
        is_past = bool(rows) and rows[0].seq == seq and seen.head.seq >= seq
        return rows[0].digest == digest if is_past else None

    async def _refresh(self, writer: Writer, epoch: int) -> bool:
        """Bring a writer up to date, or forget it if its log is not the thread's any more. True if it is fresh now.

        One that never wrote a row has nothing to build on, and so nothing is asked for its sake.
        """
        if writer.settled_log.seq and await self._ports.perform(writer.restart, epoch):
            return True
        self.writers.discard(writer)
        return False


def _is_simple(intent: Intent) -> bool:
    """True for what is soon made, and under no key: others may wait for that write, wherever this thread ends."""
    return intent.key is None and intent.size < SMALL_BYTES
