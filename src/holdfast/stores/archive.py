"""Threads of checkpoints: saving, loading, listing and time travel. The way of one save begins here."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

from holdfast.codec import encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits, checked_limits
from holdfast.history.cells import Document, Path
from holdfast.history.entries import JOURNAL, encode_entry
from holdfast.history.journal import Journal, forked
from holdfast.history.log import Log, NotACell, Revision
from holdfast.history.meta import Meta, decode_meta, describe
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
    several,
    whole_number,
)
from holdfast.records.checkpoint import Change, Checkpoint, CheckpointInfo, Part
from holdfast.records.errors import (
    Conflict,
    LeaseHeld,
    NotFound,
    StoreClosed,
    UnstorableValue,
)
from holdfast.records.identity import MAX_ID_BYTES, CheckpointId, checkpoint_id
from holdfast.records.retention import Retention, retention_or_none
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import CAUSE_WORDS, PHASE_WORDS, STATUS_WORDS, Cause, Phase, Status
from holdfast.stores.backend import Backend
from holdfast.stores.committer import Committer
from holdfast.stores.events import Events
from holdfast.stores.pages import AsyncPage
from holdfast.stores.reader import Loaded, Reader
from holdfast.stores.saver import Saver
from holdfast.stores.sealing import Sealing
from holdfast.stores.writer import Intent, Recorded

if TYPE_CHECKING:
    from holdfast.stores.listing import Listings
    from holdfast.stores.upkeep import Upkeep

ATTEMPTS = 8


class Archive:
    """Threads of checkpoints. Get one from `holdfast.open`; it connects at its first use.

    What goes wrong raises errors below `HoldfastError`, and `StoreClosed` after `close`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        committer: Committer | None = None,
        ports: Ports | None = None,
        keys: KeyRing | bytes | None = None,
        compress: bool = True,
        retention: Retention | None = None,
        namespace: str = "",
        inline: bool = True,
        limits: Limits | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._ports = ports or _awaitable()
        ring = None if keys is None else KeyRing.of(keys)
        self._backend = backend
        self._committer = committer or Committer(backend, inline=inline)
        self._limits = checked_limits(limits)
        sealing = Sealing(namespace, ring, self._ports.entropy, compress=compress, limits=self._limits)
        self._reader = Reader(backend, sealing)
        self._saver = Saver(self._reader, self._committer, self._ports)
        self._events = Events(self._ports)
        self._on_close = on_close or backend.close
        self._ready = False
        self._closed = False
        self.retention = retention_or_none(retention)

    @cached_property
    def _listings(self) -> "Listings":
        from holdfast.stores.listing import Listings

        return Listings(self._reader)

    @cached_property
    def _upkeep(self) -> "Upkeep":
        from holdfast.stores.upkeep import Upkeep

        return Upkeep(self._reader)

    # Life

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the store. What was acknowledged is kept; later calls raise `StoreClosed`."""
        if not self._closed:
            self._closed = True
            self._saver.writers.clear()
            await self._ports.perform(self._on_close)
            self._ports.close()

    async def _open(self) -> None:
        if self._closed:
            raise StoreClosed("this store handle was closed")
        if not self._ready:
            await self._ports.perform(self._backend.open)
            self._ready = True

    # Saving

    async def save(
        self,
        thread_id: str,
        state: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        phase: Phase | str | None = None,
        cause: Cause | str = Cause.MANUAL,
        status: Status | str = Status.IDLE,
        idempotency_key: str | None = None,
        expect_seq: int | None = None,
    ) -> Checkpoint:
        """Save a state as the thread's next checkpoint; durable when this returns.

        Only what changed since the last checkpoint is written. Raises `UnstorableValue` for what cannot be stored
        exactly, `LeaseHeld` while a run holds the thread, `Conflict` if `expect_seq` (0: no checkpoint yet) is not the
        newest checkpoint, `KeyReused` if the idempotency key came with other content. With the same key and content the
        first checkpoint is returned.
        """
        thread = self._reader.sealing.key(thread_id)
        writer = self._saver.writers.get(thread)
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
        return await self._write(thread, intent)

    async def append(
        self, thread_id: str, path: str | Sequence[str], item: Any, *, idempotency_key: str | None = None
    ) -> Checkpoint:
        """Append one item to the list at `path` of the state, at the same cost however long the list is.

        The list is made if it is not there. The thread keeps its status. Otherwise as `save`, except that the newest
        checkpoint is returned if the item was appended before under the same key.
        """
        thread = self._reader.sealing.key(thread_id)
        where = _place_of(path) if type(path) is str else _where(path)
        encoded, key = encode(item, path="item", limits=self._limits), check_idempotency_key(idempotency_key)
        content = b"" if key is None else fingerprint({where: encoded})
        intent = Intent(appends=((where, encoded),), key=key, fingerprint=content)
        for _ in range(ATTEMPTS):
            try:
                return await self._write(thread, intent, appends=True)
            except NotACell:
                pass
            try:
                whole = await self._append_within(thread, where, item)
                whole.key, whole.fingerprint = key, content
                return await self._write(thread, whole, appends=True)
            except Conflict:
                continue
        raise Conflict(f"gave up after {ATTEMPTS} conflicting writes to thread {thread_id!r}; retry later")

    async def _append_within(self, thread: bytes, where: Path, item: Any) -> Intent:
        """An append to a list inside a cell: the state with it, to be saved if nothing comes between."""
        stale = self._saver.writers.get(thread)
        if stale is not None:
            self._saver.writers.discard(stale)
        log = (await self._ports.perform(self._saver.writers.open, thread)).log
        state = with_appended(read_state(log.binding, log.document), where[1:], item)
        draft, leaves = draft_state(state, limits=self._limits)
        return Intent(draft=draft, leaves=leaves, expect_seq=log.checkpoint)

    async def _write(self, thread: bytes, intent: Intent, *, appends: bool = False) -> Checkpoint:
        if not self._ready or self._closed:
            await self._open()
        outcome = await self._saver.commit(thread, intent)
        if isinstance(outcome, Recorded):
            if appends:  # the content of its checkpoint is not known here
                return await self._ports.perform(self._load_latest, thread)
            return self._recorded_checkpoint(thread, intent, outcome)
        if self._events.wants("saved"):
            await self._events.emit("saved", outcome.log.binding.thread_id, outcome.log.seq, bytes=outcome.swap.size)
        return _checkpoint(outcome.log, outcome.meta)

    def _recorded_checkpoint(self, thread: bytes, intent: Intent, recorded: Recorded) -> Checkpoint:
        """The first checkpoint of a key. Its content is the intent's, so nothing needs to be read."""
        binding = recorded.binding or self._reader.binding(thread, self._reader.living(thread).head)
        revision = Revision(Log(binding, self._backend.tuning, {}))
        revision.replace_state(intent.draft or {}, {})
        meta = Meta(
            recorded.created_at,
            recorded.parent_back,
            intent.status or "idle",
            intent.cause,
            intent.phase,
            intent.metadata,
        )
        return _checkpoint(Log(binding, self._backend.tuning, revision.document, recorded.seq), meta)

    # Loading

    async def latest(self, thread_id: str) -> Checkpoint | None:
        """The thread's state now, as its newest checkpoint with the thread's present status; None if there is none."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        try:
            return await self._ports.perform(self._load_latest, thread)
        except NotFound:
            return None

    def _load_latest(self, thread: bytes) -> Checkpoint:
        loaded = self._reader.load_head(thread)
        header = self._reader.newest_checkpoint(thread, loaded)
        if not header.checkpoint:
            raise NotFound("the thread has no checkpoint yet")
        meta = decode_meta(loaded.log.binding, header)
        return _checkpoint(loaded.log, meta, seq=header.seq, status=loaded.seen.head.status)

    async def load(self, checkpoint_id: str) -> Checkpoint:
        """The checkpoint of that id; `NotFound` if it is gone, `Corrupt` if it is damaged."""
        await self._open()
        loaded = await self._ports.perform(self._load, CheckpointId.parse(checkpoint_id))
        return _checkpoint(loaded.log, decode_meta(loaded.log.binding, loaded.header))

    def _load(self, checkpoint: CheckpointId) -> Loaded:
        thread = self._reader.sealing.key(checkpoint.thread_id)
        return self._reader.load_checkpoint(thread, checkpoint.seq, checkpoint.life)

    async def get(self, thread_id: str, seq: int) -> Checkpoint:
        """The checkpoint at one seq of a thread; `NotFound` if it is gone, `Corrupt` if it is damaged."""
        await self._open()
        if type(seq) is not int:
            raise NotFound(f"seq {seq!r} is not an int")
        thread = self._reader.sealing.key(thread_id)
        loaded = await self._ports.perform(self._reader.load_checkpoint, thread, seq)
        return _checkpoint(loaded.log, decode_meta(loaded.log.binding, loaded.header))

    # Listing

    async def history(
        self,
        thread_id: str,
        *,
        cursor: str | int | None = None,
        limit: int = 50,
        where: Mapping[str, Any] | None = None,
        journal: bool = False,
    ) -> AsyncPage[CheckpointInfo]:
        """The thread's checkpoints, newest first, from before `cursor` (a page's `next`, or a seq).

        `where` keeps those whose metadata has these values; `journal=True` adds the rows that are not checkpoints.
        """
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        items, following = await self._ports.perform(
            self._listings.history, thread, cursor, limit, where, journal=journal
        )
        return AsyncPage(
            items,
            following,
            lambda cursor: self.history(thread_id, cursor=cursor, limit=limit, where=where, journal=journal),
        )

    async def threads(
        self,
        *,
        status: Status | str | Sequence[Status | str] | None = None,
        labels: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AsyncPage[ThreadInfo]:
        """Threads, newest created first where the store can; of any of these statuses and with all of these labels."""
        await self._open()
        words = [plain_word(STATUS_WORDS, word, "status") for word in several(status, "status")]
        items, following = await self._ports.perform(
            self._listings.threads, words, check_labels(labels) or {}, cursor, limit
        )
        return AsyncPage(
            items, following, lambda cursor: self.threads(status=status, labels=labels, cursor=cursor, limit=limit)
        )

    async def thread(self, thread_id: str) -> ThreadInfo:
        """The thread's standing: status, newest checkpoint, labels, sizes, owner. `NotFound` if there is none."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        return await self._ports.perform(self._listings.info, thread)

    # Time travel

    async def fork(
        self, checkpoint_id: str, to: str | None = None, state: Any = None, results: Mapping[str, Any] | None = None
    ) -> str:
        """A new thread that begins with this checkpoint (or with `state` in its place), and its id.

        The new thread is complete in itself, and has the finished steps up to there: run it, and it goes on from them.
        `results` replaces the recorded results of steps, by key. `Conflict` if `to` exists already.
        """
        await self._open()
        loaded = await self._ports.perform(self._load, CheckpointId.parse(checkpoint_id))
        given = state is not None
        draft, leaves = draft_state(state, limits=self._limits) if given else (redraft(loaded.log.document), {})
        source = CheckpointId.parse(checkpoint_id).thread_id
        target = to if to is not None else f"{_start_of(source)}-fork-{self._ports.entropy(4).hex()}"
        intent = self._fork_intent(loaded, draft, leaves, checkpoint_id)
        replaced = mapping_or_none(results, "results") or {}
        entries = forked(Journal.of(loaded.log.document), checkpoint_id, replaced, self._ports.now())
        intent.appends = tuple((JOURNAL, encode_entry(entry)) for entry in entries)
        try:
            await self._saver.commit(self._reader.sealing.key(target), intent)
        except LeaseHeld as held:
            raise Conflict(f"thread {target!r} exists already, and a run holds it") from held
        await self._events.emit("forked", target, 1, origin=checkpoint_id)
        return target

    def _fork_intent(self, loaded: Loaded, draft: Draft, leaves: dict[Path, object], origin: str) -> Intent:
        binding = loaded.log.binding
        meta = decode_meta(binding, loaded.header)
        internal = {path: cell for path, cell in loaded.log.document.items() if path[0] != "state" and path != KEYS}
        return Intent(
            draft={**draft, **internal},
            leaves=leaves,
            status=Status.IDLE.value,
            phase=meta.phase,
            metadata=meta.metadata,
            labels=self._reader.sealing.read_summary(binding, loaded.seen.head).labels,
            origin=origin,
            expect_seq=0,
        )

    async def diff(self, checkpoint_id_a: str, checkpoint_id_b: str) -> list[Change]:
        """What differs from the first checkpoint's state to the second's, by path."""
        from holdfast.history.diff import diff

        old, new = await self.load(checkpoint_id_a), await self.load(checkpoint_id_b)
        return diff(old.state, new.state)


def _awaitable() -> Ports:
    from holdfast.ports.awaitable import AsyncPorts

    return AsyncPorts()


def _where(path: object) -> Path:
    """A path within the state, as one of cells; a clear refusal of what is none."""
    where = (*STATE, *path_of_keys(path))
    if len(where) < 2 or not all(map(is_key, where)):
        raise UnstorableValue(f"append to {path!r}: a path is one str, or several, such as 'messages'", path="state")
    return where


_place_of = lru_cache(1024)(_where)


def _start_of(thread_id: str) -> str:
    """As much of an id as leaves room for a suffix."""
    return thread_id.encode()[: MAX_ID_BYTES - 32].decode(errors="ignore")


def redraft(document: Document) -> Draft:
    """The state of a document as a draft, to be saved once more."""
    return {path: cell.encoded() for path, cell in document.items() if path[0] == "state"}


def _checkpoint(log: Log, meta: Meta, *, seq: int | None = None, status: str | None = None) -> Checkpoint:
    binding, number, word = log.binding, seq or log.seq, status or meta.status
    return Checkpoint(
        lambda: checkpoint_id(binding.thread_id, number, binding.life),
        lambda: describe(binding, number, meta, word),
        lambda part: _restored(log, part),
    )


def _restored(log: Log, part: Part) -> Any:
    if part == "state":
        return read_state(log.binding, log.document)
    journal = Journal.of(log.document)
    if part == "pending":
        return journal.open_requests(log.binding)
    steps = journal.lazy_steps(log.binding.limits)
    return steps if part == "lazy_steps" else steps.all()
