"""Live writers: the end of a thread's log kept in memory, so that the next save costs only the change.

A writer runs ahead of its commits: each write builds on the one before it, settled or not. If one is refused, all that
built on it are refused too, and the writer starts again from what is really there. Nothing here is trusted: every
commit compares the head, so a stale writer can only be refused.
"""

from collections.abc import Callable
from threading import Lock, RLock
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.codec import encode
from holdfast.history.binding import Binding
from holdfast.history.log import Change, Log, next_row
from holdfast.history.meta import Meta, encode_meta
from holdfast.history.restore import KEYS, read_keys
from holdfast.ports import Ticket, reset_after_fork
from holdfast.records.errors import Conflict, KeyReused
from holdfast.records.head import Head, encode_head
from holdfast.records.rows import Swap
from holdfast.stores.decisions import check_may_write, written
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.sealing import Summary, authenticated

Submit: TypeAlias = Callable[[Ticket, Swap], None]
"""The way of a write to its commit."""
CACHE_BYTES = 64 << 20
OVERHEAD_BYTES = 2048
GRAIN_BYTES = 16384
"""Growth below this is not counted at once."""


class Intent(Change, kw_only=True):
    """What one write wants: its content, and what it says about the thread. Without a token it is a one-shot write."""

    size: int = 0
    """Bytes drafted: above a megabyte the work leaves the event loop."""
    status: str | None = None
    cause: str = "manual"
    phase: str | None = None
    metadata: bytes = b""
    labels: dict[str, str] | None = None
    key: str | None = None
    fingerprint: bytes = b""
    origin: str = ""
    journal: bool = False
    """A row that is no checkpoint: the state is that of the newest one."""
    token: int | None = None
    lease: int = 0
    """For a run: how long, in microseconds, its lease is to last from this write on."""
    expect_seq: int | None = None
    error: str | None = None
    requests: tuple[str, ...] | None = None
    """The thread's open requests from here on; None leaves them as they are."""
    consumed: tuple[str, ...] = ()
    """Messages that this write takes from the thread's inbox."""


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
        """Fix the outcome. The writer learns of it first: its settled log is up to date when a waiting caller wakes.

        Without a lock: if the writer starts again at this very moment, its settled log may be older than the one it
        began with. That was stored too, and at the next conflict there is more to catch up with.
        """
        if outcome is True and self.epoch == self.writer.epoch:
            self.writer.settled_log = self.log
        Ticket.settle(self, outcome)


class Writer:
    """The writer of one thread within one store handle."""

    def __init__(self, reader: Reader, thread: bytes, seen: Seen, log: Log, new_key: bytes = b"") -> None:
        self.thread = thread
        self.epoch = 0
        self.counted_bytes = 0
        self._reader = reader
        self._new_key = new_key
        self._lock = RLock()
        self._start(seen, log)

    def _start(self, seen: Seen, log: Log) -> None:
        self.log = log
        """The log as of the last write, settled or not."""
        self.settled_log = log
        """The log as of the last write known to be stored."""
        self.seen = seen
        self.held_bytes = self.count_bytes()
        self._summary: Summary | None = None
        self._keys: dict[str, Recorded] | None = None

    def count_bytes(self) -> int:
        """Bytes held in memory, counted exactly. Between two counts, `held_bytes` adds what was written."""
        return OVERHEAD_BYTES + sum(cell.size for cell in self.log.document.values())

    def propose(self, intent: Intent, now: int, submit: Submit | None) -> "Proposal":
        """Make the next row, and submit it unless `submit` is None: the one place where a change becomes a row.

        Raises why the thread may not be written to, as far as is known here.
        """
        with self._lock:
            log, old = self.log, self.seen.head
            check_may_write(old, log.binding.thread_id, intent.token, now)
            if intent.expect_seq is not None:
                self._check_expected(intent.expect_seq)
            if intent.journal:
                intent.checkpoint = log.checkpoint
            status = intent.status or old.status or "idle"
            meta = Meta(now, _parent_back(log), status, intent.cause, intent.phase, intent.metadata, intent.origin)
            done = next_row(log, intent, encode_meta(meta))
            size = len(done.row.header) + len(done.row.body) + sum(map(len, done.blobs.values()))
            head = log.binding.signed(self._head(intent, done.log, meta, size))
            encoded = encode_head(self.thread, head)
            rows, blobs = (done.row,), done.blobs
            swap = Swap(self.thread, self.seen.encoded, encoded, head, rows, blobs, intent.consumed, size=size)
            self.log, self.seen = done.log, Seen(head, encoded)
            self.held_bytes += max(size, intent.size)
            proposal = Proposal(self, self.epoch, self.log, self.seen, swap, meta)
            if submit is not None:
                submit(proposal, swap)
            return proposal

    def propose_once(self, intent: Intent, now: int, submit: Submit) -> "Proposal | Recorded":
        """As `propose`; but if the intent's key was used before, return what was recorded under it."""
        if intent.key is None:
            return self.propose(intent, now, submit)
        with self._lock:
            log = self.log
            if not self.seen.head.deleted and (recorded := self._recorded(intent)) is not None:
                return replace(recorded, binding=log.binding)  # nothing to write: so also while a run holds it
            entry = (intent.key, log.seq + 1, intent.fingerprint, now, _parent_back(log))
            keyed = replace(intent, appends=(*intent.appends, (KEYS, encode(list(entry)))))
            proposal = self.propose(keyed, now, submit)
            if self._keys is not None:
                self._keys[intent.key] = Recorded(*entry[1:], proposal)
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

    def _head(self, intent: Intent, log: Log, meta: Meta, size: int) -> Head:
        old = self.seen.head
        head = written(old, log, meta.created_at, size, intent.token, meta.status, intent.lease)
        if not old.seq:
            head = replace(head, data_key=self._new_key)
        if intent.labels or intent.error is not None or intent.requests is not None:
            head = replace(head, **self._summarised(intent))
        return head

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
            self.seen = Seen(head, encoded)
            meta = Meta(head.updated_at, 0, head.status, "event", None, b"", "")
            proposal = Proposal(self, self.epoch, self.log, self.seen, swap, meta)
            submit(proposal, swap)
            return proposal

    def rebase(self, seen: Seen, log: Log) -> None:
        """Start again from what is known to be stored. `Corrupt` if nobody with the key wrote that head."""
        with self._lock:
            authenticated(log.binding, seen.head)
            self.epoch += 1
            self._start(seen, log)

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
            log: Log | None = self.settled_log
            if not self._is_at(seen.head):
                log = self._reader.catch_up(self.thread, seen, self.settled_log)
            if log is not None:
                authenticated(log.binding, seen.head)  # the next write signs what this head says
                self._start(seen, log)
            return log is not None

    def _is_at(self, head: Head) -> bool:
        """True if what was settled last is what the head says."""
        log = self.settled_log
        return head.digest == log.digest and head.incarnation == (log.binding.incarnation if log.seq else b"")


NO_HEAD = Seen(Head(), b"")


def _parent_back(log: Log) -> int:
    """How many rows before the next one its parent checkpoint is; 0 if there is none."""
    return log.seq + 1 - log.checkpoint if log.checkpoint else 0


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
            for writer in self._writers.values():
                writer.held_bytes = writer.counted_bytes = writer.count_bytes()
            self._held = sum(writer.held_bytes for writer in self._writers.values())
            used, self._used = self._used, {}
            for thread in sorted(list(self._writers)[:-1], key=used.__contains__):
                if self._held <= CACHE_BYTES:
                    return
                self._held -= self._writers.pop(thread).held_bytes
