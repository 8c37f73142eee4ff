"""One-shot writes: a change becomes a row, the row is committed, and after a conflict the change is made again.

The path of one save begins here: check the arguments, draft the state, find the live writer of the thread, propose the
row, queue it, wait for its commit.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from holdfast.codec import encode
from holdfast.history.cells import Document, Path
from holdfast.history.entries import JOURNAL, encode_entry
from holdfast.history.journal import Journal, forked
from holdfast.history.log import Log, NotACell, Revision
from holdfast.history.meta import Meta, decode_meta
from holdfast.history.restore import KEYS, read_state
from holdfast.history.state_cells import STATE, Draft, draft_state, fingerprint, is_key, with_appended
from holdfast.ports import Ports
from holdfast.records.arguments import (
    check_idempotency_key,
    check_labels,
    check_metadata,
    mapping_or_none,
    path_of_keys,
    plain_word,
    whole_number,
)
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import (
    Conflict,
    Deleted,
    KeyReused,
    LeaseHeld,
    OutcomeUnknown,
    StoreUnavailable,
    UnstorableValue,
)
from holdfast.records.identity import MAX_ID_BYTES, CheckpointId
from holdfast.records.words import CAUSE_WORDS, PHASE_WORDS, STATUS_WORDS, Cause, Phase, Status
from holdfast.stores.committer import Committer
from holdfast.stores.events import Events
from holdfast.stores.landing import resolved
from holdfast.stores.listing import Listings
from holdfast.stores.reader import Loaded, Reader, checkpoint_of, gave_up
from holdfast.stores.writer import Intent, Place, Recorded, Write, Writer, Writers

ATTEMPTS = 50
"""How often a write is retried after a conflict: catching up costs little, and each time some writer succeeds."""
RESTATE_ATTEMPTS = 8
"""The same for writes that read the whole state first."""
LARGE_BYTES = 1 << 20
SMALL_BYTES = 64 << 10
"""Below this size, a write to a thread that may exist is sent before its head is read."""


class Saving:
    """The one-shot writes of one store handle, through its live writers."""

    def __init__(self, reader: Reader, committer: Committer, ports: Ports, events: Events) -> None:
        self.writers = Writers(reader)
        self._reader = reader
        self._committer = committer
        self._ports = ports
        self._events = events
        self._limits = reader.bindings.limits
        self._assumes_new = reader.backend.tuning.assumes_new

    async def save(
        self,
        thread_id: str,
        state: Any,
        metadata: Mapping[str, Any] | None,
        labels: Mapping[str, str] | None,
        phase: Phase | str | None,
        cause: Cause | str,
        status: Status | str,
        idempotency_key: str | None,
        expect_seq: int | None,
    ) -> Checkpoint:
        """Save a state as the thread's next checkpoint."""
        thread = self._reader.key(thread_id)
        writer = self.writers.get(thread)
        draft, leaves = draft_state(state, writer.log.document if writer else None, self._limits)
        packed = encode(check_metadata(metadata), path="metadata") if metadata else b""
        intent = Intent(
            draft=draft,
            leaves=leaves,
            size=sum(len(cell) for cell in draft.values() if isinstance(cell, bytes)),
            metadata=packed,
            labels=check_labels(labels),
            phase=plain_word(PHASE_WORDS, phase, "phase"),
            cause=plain_word(CAUSE_WORDS, cause, "cause"),
            status=plain_word(STATUS_WORDS, status, "status"),
            key=check_idempotency_key(idempotency_key),
            fingerprint=b"" if idempotency_key is None else fingerprint(draft, packed),
            expect_seq=None if expect_seq is None else whole_number(expect_seq, "expect_seq"),
        )
        saved = await self.commit(thread, intent, writer)
        return self._recorded_checkpoint(intent, saved) if isinstance(saved, Recorded) else await self._saved(saved)

    def _recorded_checkpoint(self, intent: Intent, recorded: Recorded) -> Checkpoint:
        """Return the checkpoint that a key has recorded. Its content equals the intent's, so nothing is read."""
        binding, tuning, status = recorded.binding, self._reader.backend.tuning, intent.status or "idle"
        revision = Revision(Log(binding, tuning, {}))
        revision.replace_state(intent.draft or {}, {})
        meta = Meta(recorded.created_at, recorded.parent_back, status, intent.cause, intent.phase, intent.metadata)
        return checkpoint_of(Log(binding, tuning, revision.document, recorded.seq), meta)

    async def append(
        self, thread_id: str, path: str | Sequence[str], item: Any, idempotency_key: str | None
    ) -> Checkpoint:
        """Append one item to a list of the state. For a repeated key, return the newest checkpoint."""
        thread = self._reader.key(thread_id)
        where = _checked_str_path(path) if type(path) is str else _checked_path(path)
        encoded, key = encode(item, path="item", limits=self._limits), check_idempotency_key(idempotency_key)
        content = b"" if key is None else fingerprint({where: encoded})
        intent = Intent(appends=((where, encoded),), key=key, fingerprint=content)
        for _ in range(RESTATE_ATTEMPTS):
            try:
                return await self._appended(thread, intent)
            except NotACell:
                pass
            with suppress(Conflict):
                whole = await self._with_appended(thread, where, item)
                whole.key, whole.fingerprint = key, content
                return await self._appended(thread, whole)
        raise gave_up(RESTATE_ATTEMPTS, thread)

    async def _appended(self, thread: bytes, intent: Intent) -> Checkpoint:
        saved = await self.commit(thread, intent)
        if isinstance(saved, Recorded):  # items may have been appended since: the state at its checkpoint is not known
            return await self._ports.perform(self._reader.latest, thread)
        return await self._saved(saved)

    async def _with_appended(self, thread: bytes, where: Path, item: Any) -> Intent:
        """Append to a list inside a cell: the whole state with the item, for a thread that has not changed since."""
        stale = self.writers.get(thread)
        if stale is not None:
            self.writers.discard(stale)
        log = (await self._ports.perform(self.writers.open, thread)).log
        state = with_appended(read_state(log.binding, log.document), where[1:], item)
        draft, leaves = draft_state(state, limits=self._limits)
        return Intent(draft=draft, leaves=leaves, expect_seq=log.checkpoint)

    async def _saved(self, write: Write) -> Checkpoint:
        """Notify the listeners, and return the checkpoint that was written."""
        proposal = write.proposal
        if self._events.wants("saved"):
            log = proposal.log
            await self._events.emit("saved", log.binding.thread_id, log.seq, bytes=proposal.swap.size)
        return checkpoint_of(proposal.log, proposal.meta)

    async def fork(
        self, checkpoint: CheckpointId, to: str | None, state: Any, results: Mapping[str, Any] | None
    ) -> str:
        """Create a thread from a checkpoint, with its finished steps, and return its id."""
        source = self._reader.key(checkpoint.thread_id)
        loaded = await self._ports.perform(self._reader.load_checkpoint, source, checkpoint.seq, checkpoint.life)
        draft, leaves = (
            (_redrafted(loaded.log.document), {}) if state is None else draft_state(state, limits=self._limits)
        )
        intent = self._fork_intent(loaded, draft, leaves, str(checkpoint))
        replaced = mapping_or_none(results, "results") or {}
        entries = forked(Journal.of(loaded.log.document), str(checkpoint), replaced, self._ports.now())
        intent.appends = tuple((JOURNAL, encode_entry(entry)) for entry in entries)
        target = to if to is not None else self._fork_id(checkpoint.thread_id)
        try:
            await self.commit(self._reader.key(target), intent)
        except LeaseHeld as held:
            raise Conflict(f"thread {target!r} exists already, and a run holds it") from held
        return target

    def _fork_id(self, source: str) -> str:
        """Return an id for a fork: the source's, cut to leave room for a suffix."""
        start = source.encode()[: MAX_ID_BYTES - 32].decode(errors="ignore")
        return f"{start}-fork-{self._ports.entropy(4).hex()}"

    def _fork_intent(self, loaded: Loaded, draft: Draft, leaves: dict[Path, object], origin: str) -> Intent:
        """Return the first row of a fork: this state, and the cells outside of the state, such as the journal."""
        document, binding, head = loaded.log.document, loaded.log.binding, loaded.seen.head
        meta = decode_meta(binding, loaded.header)
        summary = self._reader.bindings.read_summary(binding, head)
        place = Place(summary.function, summary.version, head.queue, head.priority) if summary.function else None
        internal = {path: cell for path, cell in document.items() if path[0] != "state" and path != KEYS}
        return Intent(
            draft={**draft, **internal},
            leaves=leaves,
            status=Status.IDLE.value,
            phase=meta.phase,
            metadata=meta.metadata,
            labels=summary.labels,
            origin=origin,
            expect_seq=0,
            place=place,
        )

    async def step_back(self, thread: bytes, checkpoint: CheckpointId) -> bool:
        """If this is the newest checkpoint, hide it, and make the state of the one before it the thread's state.

        False if it is not the newest. `Conflict` if there is none before it.
        """
        loaded = await self._ports.perform(self._loaded_before, thread, checkpoint)
        if loaded is None:
            return False
        meta = decode_meta(loaded.log.binding, loaded.header)
        intent = Intent(
            draft=_redrafted(loaded.log.document),
            checkpoint=loaded.log.seq,
            cause=meta.cause,
            phase=meta.phase,
            metadata=meta.metadata,
            expect_seq=checkpoint.seq,
            hides=checkpoint.seq,
        )
        try:
            await self.commit(thread, intent)
        except Conflict:
            return False  # it is not the newest any more
        return True

    def _loaded_before(self, thread: bytes, checkpoint: CheckpointId) -> Loaded | None:
        """Load the checkpoint before this one; None if this is not the newest."""
        newest = self._reader.load_checkpoint(thread, checkpoint.seq, checkpoint.life)
        if newest.seen.head.checkpoint != checkpoint.seq:
            return None
        before, _ = Listings(self._reader).history(thread, checkpoint.seq, 1, None, False)
        if not before:
            raise Conflict(f"{checkpoint} is the only checkpoint of its thread; delete the thread instead")
        return self._reader.load_checkpoint(thread, before[0].seq, checkpoint.life)

    async def rewrite(self, thread: bytes) -> int | None:
        """Write the present state as a keyframe that needs no older row. Return its seq; None after a conflict."""
        loaded = await self._ports.perform(self._reader.load_head, thread)
        header = await self._ports.perform(self._reader.newest_checkpoint, thread, loaded)
        meta = decode_meta(loaded.log.binding, header)
        intent = Intent(fresh=True, cause=meta.cause, phase=meta.phase, metadata=meta.metadata, expect_seq=header.seq)
        try:
            written = await self.commit(thread, intent)
        except Conflict:
            return None
        return written.proposal.log.seq if isinstance(written, Write) else None

    # Committing

    async def commit(self, thread: bytes, intent: Intent, writer: Writer | None = None) -> Write | Recorded:
        """Commit one row, or return what its idempotency key has recorded.

        A refusal by a writer that may be stale is not final: the writer catches up, and the change is made again.
        """
        is_fresh = False
        for attempt in range(ATTEMPTS):
            writer = writer or self.writers.get(thread)
            if writer is None and attempt == 0 and self._assumes_new and intent.size < SMALL_BYTES:
                writer = self.writers.assume_new(thread)
            elif writer is None:
                writer, is_fresh = await self._opened(thread), True
            if self._committer.is_full:
                await self._ports.perform(self._committer.commit_batch)
            try:
                if intent.size < LARGE_BYTES:
                    made = self._propose(writer, intent)
                else:
                    made = await self._ports.perform(self._propose, writer, intent)
            except (Conflict, Deleted, KeyReused, LeaseHeld):
                if is_fresh:
                    raise
                is_fresh, writer = await self._refresh(writer, writer.epoch), None
                continue
            except BaseException:
                self.writers.discard(writer)  # an interrupt may leave it ahead of the queue
                raise
            write = made if isinstance(made, Write) else made.pending
            if write is None and is_fresh:
                return made
            if write is not None and await self._settled(writer, write):
                self.writers.weigh(writer)
                return made
            epoch = writer.epoch if write is None else write.proposal.epoch
            is_fresh, writer = await self._refresh(writer, epoch), None
        raise gave_up(ATTEMPTS, thread)

    def _propose(self, writer: Writer, intent: Intent) -> Write | Recorded:
        """Make the next row and queue it; or return what the intent's key has recorded, even while a run holds it."""
        with writer.lock:
            key = intent.key
            if key is not None and (recorded := writer.recorded(key, intent.fingerprint)) is not None:
                return recorded
            write = Write(writer, writer.propose(intent, self._ports.now()))
            self._committer.submit(write, write.proposal.swap)
            if key is not None:
                writer.remember(key, intent.fingerprint, write)
            return write

    async def _opened(self, thread: bytes) -> Writer:
        """Return a writer for the thread. To see that a thread is new is quick; loading one is left to a thread."""
        if self._committer.inline:
            writer = self.writers.begin(thread)
            if writer is not None:
                return writer
        return await self._ports.perform(self.writers.open, thread)

    async def _settled(self, writer: Writer, write: Write) -> bool:
        """Wait for the commit; False if it was refused. After a lost reply, the stored head and log decide."""
        try:
            return await self._ports.settle(write, self._committer)
        except OutcomeUnknown:
            self.writers.discard(writer)
            outcome = None
            with suppress(StoreUnavailable):
                outcome = await self._ports.perform(resolved, self._reader, write.proposal.swap)
            if outcome is None:
                raise
            return outcome
        except BaseException:
            # The writer is ahead of a write that failed, or whose outcome was not waited for.
            self.writers.discard(writer)
            raise

    async def _refresh(self, writer: Writer, epoch: int) -> bool:
        """Bring a writer up to date, or drop it if its log is not the thread's any more. True if it is fresh now.

        One that never wrote a row has nothing to build on, so it is dropped without a look at the store.
        """
        if writer.settled_log.seq and await self._ports.perform(writer.restart, epoch):
            return True
        self.writers.discard(writer)
        return False


def _checked_path(path: object) -> Path:
    """Return a path within the state as a path of cells; `UnstorableValue` if it is not one."""
    where = (*STATE, *path_of_keys(path))
    if len(where) < 2 or not all(map(is_key, where)):
        raise UnstorableValue(f"append to {path!r}: a path is one str, or several, such as 'messages'", path="state")
    return where


_checked_str_path = lru_cache(1024)(_checked_path)


def _redrafted(document: Document) -> Draft:
    """Return the state of a document as a draft, to be saved again."""
    return {path: cell.encoded() for path, cell in document.items() if path[0] == "state"}
