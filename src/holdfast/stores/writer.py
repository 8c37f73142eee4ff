"""Live writers: the end of a thread's log kept in memory, so that the next save costs only the change.

A writer runs ahead of its commits: each write builds on the one before it, settled or not. If one is refused, all that
built on it are refused too, and the writer starts again from what is really there. Nothing here is trusted: every
commit compares the head, so a stale writer can only be refused.
"""

from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.codec import encode
from holdfast.history.binding import Binding
from holdfast.history.cells import Document, Path
from holdfast.history.draft import Draft
from holdfast.history.log import NO_BLOBS, Log, Revision, Written, append_flat
from holdfast.history.meta import Meta, encode_meta
from holdfast.history.opening import takes_append
from holdfast.history.restore import KEYS, read_keys
from holdfast.ports import Ticket, reset_after_fork
from holdfast.records.errors import Conflict, KeyReused
from holdfast.records.head import Head, encode_head
from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.decisions import appended, check_may_write, written
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.sealing import Summary, authenticated

Submit: TypeAlias = Callable[[Ticket, Swap], None]
"""The way of a write to its commit."""
CACHE_BYTES = 64 << 20
OVERHEAD_BYTES = 2048
GRAIN_BYTES = 16384
"""Growth below this is not counted at once."""


class Intent(msgspec.Struct, kw_only=True):
    """What one write wants: its content, and what it says about the thread."""

    draft: Draft | None = None
    """The state to save; None leaves it as it is."""
    leaves: dict[Path, object] = {}
    size: int = 0
    """Bytes drafted: above a megabyte the work leaves the event loop."""
    appends: tuple[tuple[Path, bytes], ...] = ()
    adopted: Document | None = None
    """Cells of another thread, for a fork."""
    status: str | None = None
    cause: str = "manual"
    phase: str | None = None
    metadata: bytes = b""
    labels: dict[str, str] | None = None
    key: str | None = None
    fingerprint: bytes = b""
    origin: str = ""
    checkpoint: int | None = None
    """The checkpoint whose state this is, if the row is not one of its own."""
    journal: bool = False
    """A row that is no checkpoint: the state is that of the newest one."""
    fresh: bool = False
    token: int | None = None
    lease: int = 0
    """For a run: how long, in microseconds, its lease is to last from this write on."""
    expect_seq: int | None = None
    error: str | None = None
    requests: tuple[str, ...] | None = None
    """The thread's open requests from here on; None leaves them as they are."""
    consumed: tuple[str, ...] = ()
    """Messages that this write takes from the thread's inbox."""

    @property
    def is_plain(self) -> bool:
        """True if it changes nothing but lists of the thread."""
        said = (self.draft, self.adopted, self.labels, self.key, self.error, self.requests)
        return said == _NOTHING and not (self.fresh or self.consumed)


_NOTHING = (None,) * 6


class Recorded(msgspec.Struct, frozen=True):
    """What stands under an idempotency key, and the write itself while it is still on its way."""

    seq: int
    fingerprint: bytes
    created_at: int
    parent_back: int
    proposal: "Proposal | None" = None
    binding: Binding | None = None

    @property
    def pending(self) -> "Proposal | None":
        """The write, if its outcome is still open."""
        return None if self.proposal is None or self.proposal.settled else self.proposal


class Proposal(Ticket):
    """A write that was made into a row and is on its way."""

    writer: "Writer"
    epoch: int
    log: Log
    seen: Seen
    swap: Swap
    meta: Meta

    def settle(self, outcome: bool | BaseException) -> None:
        """The writer learns of it first, so that whoever waited finds it up to date."""
        if outcome is True:
            self.writer.landed(self)
        Ticket.settle(self, outcome)


class Writer:
    """The writer of one thread within one store handle."""

    def __init__(self, reader: Reader, thread: bytes, seen: Seen, log: Log, new_key: bytes = b"") -> None:
        self.thread = thread
        self.epoch = 0
        self.counted_bytes = 0
        self._reader = reader
        self._new_key = new_key
        self._lock = Lock()
        self._start(seen, log)

    def _start(self, seen: Seen, log: Log) -> None:
        self.log = self._settled_log = log
        self.seen = seen
        self.held_bytes = OVERHEAD_BYTES + sum(cell.size for cell in log.document.values())
        self._summary: Summary | None = None
        self._keys: dict[str, Recorded] | None = None

    @property
    def settled_log(self) -> Log:
        """The log as of the last write known to be stored."""
        return self._settled_log

    def propose(self, intent: Intent, now: int, submit: Submit | None) -> "Proposal | Recorded":
        """Make the next row, and queue it if it is told how; or say what was recorded under the intent's key.

        Raises why the thread may not be written to, as far as is known here.
        """
        if intent.key is None:
            return self.propose_new(intent, now, submit)
        with self._lock:
            if not self.seen.head.deleted and (recorded := self._recorded(intent)) is not None:
                return replace(recorded, binding=self.log.binding)  # nothing to write: so also while a run holds it
            proposal = self._made(intent, now, submit)
            if self._keys is not None:
                back = proposal.meta.parent_back
                self._keys[intent.key] = Recorded(proposal.log.seq, intent.fingerprint, now, back, proposal)
            return proposal

    def propose_new(self, intent: Intent, now: int, submit: Submit | None) -> "Proposal":
        """The same for an intent without a key: it is always a row of its own."""
        with self._lock:
            return self._made(intent, now, submit)

    def _made(self, intent: Intent, now: int, submit: Submit | None) -> "Proposal":
        log, head, token = self.log, self.seen.head, intent.token
        if head.deleted or (head.token != token if head.owner else token is not None):
            check_may_write(head, log.binding.thread_id, token, now)
        if intent.expect_seq is not None:
            self._check_expected(intent.expect_seq)
        back = log.seq + 1 - log.checkpoint if log.checkpoint else 0
        status = intent.status or head.status or "idle"
        meta = Meta(now, back, status, intent.cause, intent.phase, intent.metadata, intent.origin)
        ends_lease = token is None and head.owner
        proposal = self._appended(intent, meta) if status == head.status and not ends_lease else None
        if proposal is None:
            done = self._revised(intent, meta)
            proposal = self._proposal(intent, done, meta)
            self.log, self.seen = done.log, proposal.seen
        if submit is not None:
            submit(proposal, proposal.swap)
        return proposal

    def _check_expected(self, seq: int) -> None:
        if seq != self.log.checkpoint:
            name = self.log.binding.thread_id
            raise Conflict(f"thread {name!r} is at checkpoint {self.log.checkpoint}, not {seq}")

    def _recorded(self, intent: Intent) -> Recorded | None:
        if self._keys is None:
            self._keys = {entry[0]: Recorded(*entry[1:]) for entry in read_keys(self.log.binding, self.log.document)}
        found = self._keys.get(intent.key or "")
        if found is not None and found.fingerprint != intent.fingerprint:
            raise KeyReused(
                f"idempotency key {intent.key!r} of thread {self.log.binding.thread_id!r} was used for other content"
            )
        return found

    def _appended(self, intent: Intent, meta: Meta) -> "Proposal | None":
        """The most common write of all, one item for one list; None if this is another."""
        if len(intent.appends) != 1 or not intent.is_plain:
            return None
        path, item = intent.appends[0]
        checkpoint = self.log.checkpoint if intent.journal else intent.checkpoint
        return self.append(path, item, meta, intent.lease, checkpoint)

    def append(
        self, path: Path, item: bytes, meta: Meta, lease: int, checkpoint: int | None = None
    ) -> "Proposal | None":
        """The next row, if it is one item for one list, which changes nothing else; None if more has to be done.

        The caller has looked whether the thread may be written to, and lets nobody else write meanwhile.
        """
        seen, thread = self.seen, self.thread
        done = append_flat(self.log, path, item, encode_meta(meta), checkpoint)
        if done is None:
            return None
        log, row = done.log, done.row
        size = len(row.header) + len(row.body)
        head = log.binding.signed(appended(seen.head, log, meta.created_at, size, lease))
        encoded = encode_head(thread, head)
        swap = Swap(thread, seen.encoded, encoded, head, (row,), NO_BLOBS, (), KEEP_ALL, True, size)
        self.log, self.seen = log, Seen(head, encoded)
        self.held_bytes += len(item)
        return Proposal(self, self.epoch, log, self.seen, swap, meta)

    def _revised(self, intent: Intent, meta: Meta) -> Written:
        revision = Revision(self.log)
        if intent.adopted is not None:
            revision.adopt(intent.adopted)
        if intent.draft is not None:
            revision.replace_state(intent.draft, intent.leaves)
        for path, item in intent.appends:
            if not takes_append(revision.document, path):
                raise NotACell
            revision.append(path, item)
        if intent.key is not None:
            entry = [intent.key, self.log.seq + 1, intent.fingerprint, meta.created_at, meta.parent_back]
            revision.append(KEYS, encode(entry))
        checkpoint = self.log.checkpoint if intent.journal else intent.checkpoint
        done = revision.write(encode_meta(meta), checkpoint=checkpoint, fresh=intent.fresh)
        self.held_bytes = OVERHEAD_BYTES + sum(cell.size for cell in done.log.document.values())
        return done

    def _proposal(self, intent: Intent, done: Written, meta: Meta) -> Proposal:
        row, blobs, old, thread, status = done.row, done.blobs, self.seen.head, self.thread, meta.status
        is_plain, consumed = status == old.status, intent.consumed
        size = len(row.header) + len(row.body)
        if blobs or consumed:
            size += sum(map(len, blobs.values()))
            is_plain = False
        head = written(old, done.log, meta.created_at, size, intent.token, status, intent.lease)
        if not old.seq:
            head = replace(head, data_key=self._new_key)
        if intent.labels or intent.error is not None or intent.requests is not None:
            head = replace(head, **self._summarised(intent))
            is_plain = is_plain and head.labels == old.labels
        head = done.log.binding.signed(head)
        encoded, expected = encode_head(thread, head), self.seen.encoded
        swap = Swap(thread, expected, encoded, head, (row,), blobs, consumed, KEEP_ALL, is_plain, size)
        return Proposal(self, self.epoch, done.log, Seen(head, encoded), swap, meta)

    def _summarised(self, intent: Intent) -> dict[str, object]:
        sealing, binding = self._reader.sealing, self.log.binding
        if self._summary is None:
            self._summary = sealing.read_summary(binding, self.seen.head)
        old = self._summary
        labels = {**old.labels, **(intent.labels or {})}
        error = old.error if intent.error is None else intent.error or None
        requests = old.requests if intent.requests is None else intent.requests
        self._summary = Summary(labels, error, requests)
        if self._summary == old:
            return {}
        return {"labels": sealing.label_tokens(labels), "summary": sealing.seal_summary(binding, self._summary)}

    def amend(self, change: Callable[[Head], Head], submit: Submit) -> Proposal:
        """Change the head and nothing else. `change` raises if it may not be."""
        with self._lock:
            head = self.log.binding.signed(change(self.seen.head))
            encoded = encode_head(self.thread, head)
            swap = Swap(self.thread, self.seen.encoded, encoded, head)
            meta = Meta(head.updated_at, 0, head.status, "event", None, b"", "")
            proposal = Proposal(self, self.epoch, self.log, Seen(head, encoded), swap, meta)
            self.seen = proposal.seen
            submit(proposal, swap)
            return proposal

    def rebase(self, seen: Seen, log: Log) -> None:
        """Start again from what is known to be stored. `Corrupt` if nobody with the key wrote that head."""
        with self._lock:
            authenticated(log.binding, seen.head)
            self.epoch += 1
            self._start(seen, log)

    def landed(self, proposal: "Proposal") -> None:
        """A proposal was committed. Runs on whichever thread committed it.

        Without a lock: if the writer starts again at this very moment, its settled log may be an older one than it
        began with. That is still one that was stored, and at the next refusal there is more to catch up with.
        """
        if proposal.epoch == self.epoch:
            self._settled_log = proposal.log

    def restart(self, epoch: int) -> bool:
        """After a refusal: start again from the stored head, with what others have written since.

        False if that takes more than a few rows: the caller then reloads the thread. `Corrupt` if the stored head was
        not signed with the thread's key.
        """
        with self._lock:
            if epoch != self.epoch:
                return True
            self.epoch += 1
            seen = self._reader.seen(self.thread) or NO_HEAD
            log: Log | None = self._settled_log
            if not self._is_at(seen.head):
                log = self._reader.catch_up(self.thread, seen, self._settled_log)
            if log is not None:
                authenticated(log.binding, seen.head)  # the next write signs what this head says
                self._start(seen, log)
            return log is not None

    def _is_at(self, head: Head) -> bool:
        """True if what was settled last is what the head says."""
        log = self._settled_log
        return head.digest == log.digest and head.incarnation == (log.binding.incarnation if log.seq else b"")


NO_HEAD = Seen(Head(), b"")


class NotACell(Exception):
    """An append to a list that lies within a larger cell: the whole state has to be saved."""


class Writers:
    """The live writers of one store handle, bounded by the bytes they hold."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """No writers: in a forked child, those of the parent ran ahead of writes that are not the child's."""
        self._writers: dict[bytes, Writer] = {}
        self._used: dict[bytes, None] = {}
        self._held = 0
        self._lock = Lock()

    def get(self, thread: bytes) -> Writer | None:
        """The live writer of a thread, if there is one."""
        writer = self._writers.get(thread)
        if writer is not None:
            self._used[thread] = None
        return writer

    def weigh(self, writer: Writer) -> None:
        """Count what a writer has come to hold, and let others go if all of them hold too much."""
        grown = writer.held_bytes - writer.counted_bytes
        if grown > GRAIN_BYTES:
            writer.counted_bytes = writer.held_bytes
            self._held += grown
            if self._held > CACHE_BYTES:
                self._trim()

    def begin(self, thread: bytes) -> Writer | None:
        """A writer for a thread without rows; None if it has some."""
        seen = self._reader.seen(thread) or NO_HEAD
        return None if seen.head.seq else self._begun(thread, seen)

    def _begun(self, thread: bytes, seen: Seen) -> Writer:
        binding, new_key = self._reader.sealing.beginning(thread, seen.head)
        log = Log(binding, self._reader.backend.tuning, {})
        return self._keep(Writer(self._reader, thread, seen, log, new_key))

    def assume_new(self, thread: bytes) -> Writer:
        """A writer for a thread that most likely has no rows. If it has, or is held, the first write is refused."""
        binding, new_key = self._reader.sealing.new_life(thread)
        return self._keep(Writer(self._reader, thread, NO_HEAD, Log(binding, self._reader.backend.tuning, {}), new_key))

    def open(self, thread: bytes) -> Writer:
        """A writer for a thread, loaded if need be; for a new thread at its beginning."""
        seen = self._reader.seen(thread) or NO_HEAD
        if not seen.head.seq:
            return self._begun(thread, seen)
        loaded = self._reader.load_head(thread, seen)
        return self._keep(Writer(self._reader, thread, loaded.seen, loaded.log))

    def _keep(self, writer: Writer) -> Writer:
        with self._lock:
            kept = self._writers.setdefault(writer.thread, writer)
        self.weigh(kept)
        return kept

    def discard(self, writer: Writer) -> None:
        """Forget a writer that lost touch with its thread."""
        with self._lock:
            if self._writers.get(writer.thread) is writer:
                del self._writers[writer.thread]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._writers.clear()
            self._used.clear()

    def _trim(self) -> None:
        """Second chance: those not used since the last time go first, until the rest fits; the newest stays."""
        with self._lock:
            self._held = sum(writer.held_bytes for writer in self._writers.values())
            for writer in self._writers.values():
                writer.counted_bytes = writer.held_bytes
            used, self._used = self._used, {}
            for thread in sorted(list(self._writers)[:-1], key=used.__contains__):
                if self._held <= CACHE_BYTES:
                    return
                self._held -= self._writers.pop(thread).held_bytes
