"""Live writers: the end of a thread's log kept in memory, so that the next save costs only the change.

A writer runs ahead of its commits: each write builds on the one before it, settled or not. If one is refused, all that
built on it are refused too, and the writer starts again from the stored head. A stale writer can do no harm: every
commit compares the head, so its writes are refused.
"""

from collections.abc import Callable, Mapping
from threading import Lock, RLock

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
from holdfast.records.rows import Row, Swap
from holdfast.stores.agenda import swap_of
from holdfast.stores.bindings import Summary, authenticated
from holdfast.stores.decisions import check_may_write, placed, written
from holdfast.stores.reader import Reader, Seen

CACHE_BYTES = 64 << 20
OVERHEAD_BYTES = 2048
GRAIN_BYTES = 16384
"""A writer is counted again after growing by this much."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a thread belongs in the agenda: which version of which function runs it (0: any), and where it queues."""

    function: str
    version: int
    queue: str
    priority: int = 0
    fair_by: str | None = None
    """The label by whose values the threads of the queue take turns."""


class Intent(Change, kw_only=True):
    """One write: its content, and what it changes about the thread. Without a token it is a one-shot write."""

    size: int = 0
    """The number of bytes drafted. From a megabyte on, the row is made on another thread than the event loop's."""
    status: str | None = None
    cause: str = "manual"
    phase: str | None = None
    metadata: bytes = b""
    labels: dict[str, str] | None = None
    key: str | None = None
    fingerprint: bytes = b""
    origin: str = ""
    journal: bool = False
    """True for a row that is not a checkpoint: the state stays that of the newest one."""
    token: int | None = None
    lease: int = 0
    """For a run: the microseconds that its lease lasts from this write on."""
    expect_seq: int | None = None
    error: str | None = None
    requests: tuple[str, ...] | None = None
    """The thread's open requests after this write; None leaves them as they are."""
    consumed: tuple[str, ...] = ()
    """The messages that this write removes from the thread's inbox."""
    hides: int = 0
    """The checkpoint that this write hides; 0 for none."""
    creates: bool = False
    """True for a write that begins a thread: a `Conflict` if it has rows."""
    place: Place | None = None
    """The thread's place in the agenda, if it has none yet, or waits there to be begun."""
    wake_at: int = 0
    """For a one-shot write: when the thread is due."""


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A write made into a row and a new head, before it is committed."""

    epoch: int
    log: Log
    seen: Seen
    swap: Swap
    meta: Meta


class Write(Ticket):
    """A proposal on its way to the store."""

    writer: "Writer"
    proposal: Proposal

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome. The writer's settled log is up to date when a waiting caller wakes.

        Without a lock: if the writer restarts at this very moment, its settled log may be older than the one it began
        with. That one was stored too, so at the next conflict there is only more to catch up with.
        """
        if outcome is True and self.proposal.epoch == self.writer.epoch:
            self.writer.settled_log = self.proposal.log
        Ticket.settle(self, outcome)


class Recorded(msgspec.Struct, frozen=True):
    """The checkpoint that an idempotency key has recorded, and the write that records it if this handle made it."""

    binding: Binding
    seq: int
    fingerprint: bytes
    created_at: int
    parent_back: int
    write: Write | None = None

    @property
    def pending(self) -> Write | None:
        """The write, unless it is known to be stored: it may be under way, or refused."""
        return None if self.write is None or self.write.outcome is True else self.write


class Writer:
    """The writer of one thread within one store handle."""

    def __init__(self, reader: Reader, thread: bytes, seen: Seen, log: Log, new_key: bytes = b"") -> None:
        self.thread = thread
        self.epoch = 0
        self.counted_bytes = 0
        self.lock = RLock()
        """Held while a row is made and queued, so that rows are queued in their order."""
        self._reader = reader
        self._new_key = new_key
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
        """Count the bytes held in memory exactly. Between two counts, `held_bytes` adds what was written."""
        return OVERHEAD_BYTES + sum(cell.size for cell in self.log.document.values())

    def propose(self, intent: Intent, now: int) -> Proposal:
        """Make the next row and head: the one place where a change becomes a row. The caller queues them.

        Raises why the thread may not be written to, judging by the newest head known here.
        """
        with self.lock:
            log, old = self.log, self.seen.head
            if intent.creates and log.seq:
                raise Conflict(f"thread {log.binding.thread_id!r} exists already")
            check_may_write(old, log.binding.thread_id, intent.token, now)
            if intent.expect_seq is not None and intent.expect_seq != log.checkpoint:
                name = log.binding.thread_id
                raise Conflict(f"thread {name!r} is at checkpoint {log.checkpoint}, not {intent.expect_seq}")
            if intent.journal:
                intent.checkpoint = log.checkpoint
            parent_back = log.seq + 1 - log.checkpoint if log.checkpoint else 0
            if intent.key is not None:
                entry = [intent.key, log.seq + 1, intent.fingerprint, now, parent_back]
                intent = replace(intent, appends=(*intent.appends, (KEYS, encode(entry))))
            status = intent.status or old.status or "idle"
            meta = Meta(now, parent_back, status, intent.cause, intent.phase, intent.metadata, intent.origin)
            done = next_row(log, intent, encode_meta(meta))
            size = len(done.row.header) + len(done.row.body) + sum(map(len, done.blobs.values()))
            head = written(old, done.log, now, size, intent.token, status, intent.lease)
            if not old.seq:
                head = replace(head, data_key=self._new_key)
            if intent.hides:
                head = replace(head, marks=head.marks.hiding(intent.hides))
            if intent.place is not None:
                head = self._placed(head, intent.place, intent)
                intent.place = None if head.route == old.route else intent.place
            if intent.labels or intent.error is not None or intent.requests is not None or head.route != old.route:
                head = replace(head, **self._summarised(intent))
            self.held_bytes += max(size, intent.size)
            return self._proposal(head, done.log, meta, (done.row,), done.blobs, intent.consumed, size)

    def amend(self, change: Callable[[Head], Head], heard: frozenset[str] | None = None) -> Proposal:
        """Change the head and nothing else. `change` raises if the head may not be changed. See `Swap.heard`."""
        with self.lock:
            head = change(self.seen.head)
            meta = Meta(head.updated_at, 0, head.status, "event", None, b"", "")
            return self._proposal(head, self.log, meta, heard=heard)

    def _proposal(
        self,
        head: Head,
        log: Log,
        meta: Meta,
        rows: tuple[Row, ...] = (),
        blobs: Mapping[bytes, bytes] | None = None,
        consumed: tuple[str, ...] = (),
        size: int = 0,
        heard: frozenset[str] | None = None,
    ) -> Proposal:
        """Sign and encode the new head, and build the next write on it."""
        head = log.binding.signed(head)
        encoded = encode_head(self.thread, head)
        old = self.seen
        heads = (old.head, old.encoded, head, encoded)
        swap = swap_of(self.thread, *heads, rows, blobs, consumed, size=size, heard=heard)
        self.log, self.seen = log, Seen(head, encoded)
        return Proposal(self.epoch, log, self.seen, swap, meta)

    def _placed(self, head: Head, place: Place, intent: Intent) -> Head:
        bindings = self._reader.bindings
        if place.fair_by is not None and not head.lane:
            value = {**self.labels, **(intent.labels or {})}.get(place.fair_by)
            head = head if value is None else replace(head, lane=bindings.label_tokens({place.fair_by: value})[0])
        route, *_ = bindings.routes(place.function, place.version)
        unbegun = bindings.routes(place.function, 0)
        head = placed(head, place.queue, place.priority, route, unbegun)
        return replace(head, expires_at=intent.wake_at) if intent.wake_at else head

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the thread."""
        return self.summary.labels

    @property
    def summary(self) -> Summary:
        """What the head says of the thread's labels, error, requests, function and version."""
        if self._summary is None:
            self._summary = self._reader.bindings.read_summary(self.log.binding, self.seen.head)
        return self._summary

    def _summarised(self, intent: Intent) -> dict[str, object]:
        """Return the fields of the head that an intent's labels, error and requests change."""
        bindings, binding, old = self._reader.bindings, self.log.binding, self.summary
        labels = {**old.labels, **(intent.labels or {})}
        error = old.error if intent.error is None else intent.error or None
        requests = old.requests if intent.requests is None else intent.requests
        place = intent.place or old
        self._summary = Summary(labels, error, requests, place.function, place.version)
        if self._summary == old:
            return {}
        return {"labels": bindings.label_tokens(labels), "summary": bindings.seal_summary(binding, self._summary)}

    # Idempotency keys

    def recorded(self, key: str, fingerprint: bytes) -> Recorded | None:
        """Return what this key has recorded, None if nothing; `KeyReused` if that was other content."""
        if self.seen.head.deleted:
            return None
        if self._keys is None:
            binding, document = self.log.binding, self.log.document
            self._keys = {entry[0]: Recorded(binding, *entry[1:]) for entry in read_keys(binding, document)}
        found = self._keys.get(key)
        if found is not None and found.fingerprint != fingerprint:
            name = self.log.binding.thread_id
            raise KeyReused(f"idempotency key {key!r} of thread {name!r} was used for other content")
        return found

    def remember(self, key: str, fingerprint: bytes, write: Write) -> None:
        """Note what a key has recorded, so that a repeated call waits for this write."""
        if self._keys is not None:
            log, meta = write.proposal.log, write.proposal.meta
            recorded = Recorded(log.binding, log.seq, fingerprint, meta.created_at, meta.parent_back, write)
            self._keys[key] = recorded

    # After a conflict

    def rebase(self, seen: Seen, log: Log) -> None:
        """Start again from what is known to be stored. `Corrupt` if the head was not signed with the thread's key."""
        with self.lock:
            authenticated(log.binding, seen.head)
            self.epoch += 1
            self._start(seen, log)

    def restart(self, epoch: int) -> bool:
        """Start again from the stored head, with the rows that others have added.

        False if those are more than a few: the caller then reloads the thread. `Corrupt` if the stored head was not
        signed with the thread's key.
        """
        with self.lock:
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
        """True if the head ends with the row that was settled last."""
        log = self.settled_log
        return head.digest == log.digest and head.incarnation == (log.binding.incarnation if log.seq else b"")


NO_HEAD = Seen(Head(), b"")


class Writers:
    """The live writers of one store handle, bounded by the bytes they hold."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Drop all writers: those of the parent ran ahead of writes that a forked child does not have."""
        self._writers: dict[bytes, Writer] = {}
        self._used: dict[bytes, None] = {}
        self._held = 0
        self._lock = Lock()

    def get(self, thread: bytes) -> Writer | None:
        """Return the live writer of a thread, None if there is none."""
        writer = self._writers.get(thread)
        if writer is not None:
            self._used[thread] = None
        return writer

    def weigh(self, writer: Writer) -> None:
        """Count what a writer holds, and drop others if together they hold too much."""
        grown = writer.held_bytes - writer.counted_bytes
        if grown > GRAIN_BYTES:
            writer.counted_bytes = writer.held_bytes
            self._held += grown
            if self._held > CACHE_BYTES:
                self._trim()

    def begin(self, thread: bytes) -> Writer | None:
        """Return a writer for a thread without rows; None if it has some."""
        seen = self._reader.seen(thread) or NO_HEAD
        return None if seen.head.seq else self._begun(thread, seen)

    def alone(self, thread: bytes) -> Writer:
        """Return a writer for the first row of a thread that the caller commits; it is not kept."""
        seen = self._reader.seen(thread) or NO_HEAD
        if seen.head.seq:
            raise Conflict("the thread exists already")
        return self._new(thread, seen)

    def _begun(self, thread: bytes, seen: Seen) -> Writer:
        return self._keep(self._new(thread, seen))

    def _new(self, thread: bytes, seen: Seen) -> Writer:
        binding, new_key = self._reader.bindings.beginning(thread, seen.head)
        return Writer(self._reader, thread, seen, Log(binding, self._reader.backend.tuning, {}), new_key)

    def assume_new(self, thread: bytes) -> Writer:
        """Return a writer for a thread that probably has no rows. If it has, or is held, the first write is refused."""
        binding, new_key = self._reader.bindings.new_life(thread)
        return self._keep(Writer(self._reader, thread, NO_HEAD, Log(binding, self._reader.backend.tuning, {}), new_key))

    def open(self, thread: bytes) -> Writer:
        """Return a writer for a thread: loaded, or at the beginning of a new one."""
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
        """Drop a writer that no longer matches its thread."""
        with self._lock:
            if self._writers.get(writer.thread) is writer:
                del self._writers[writer.thread]

    def clear(self) -> None:
        """Drop all writers."""
        with self._lock:
            self._writers.clear()
            self._used.clear()

    def _trim(self) -> None:
        """Drop writers until the rest fits, first those unused since the last trim. The newest stays."""
        with self._lock:
            for writer in self._writers.values():
                writer.held_bytes = writer.counted_bytes = writer.count_bytes()
            self._held = sum(writer.held_bytes for writer in self._writers.values())
            used, self._used = self._used, {}
            for thread in sorted(list(self._writers)[:-1], key=used.__contains__):
                if self._held <= CACHE_BYTES:
                    return
                self._held -= self._writers.pop(thread).held_bytes
