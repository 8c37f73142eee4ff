"""The store: what users hold. Written once, awaitable; `holdfast.sync` steps the same coroutines without a loop.

One save, in one direction: draft (what is to be kept) -> writer (what changed, as a row) -> committer (a transaction).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from holdfast.codec import encode
from holdfast.codec.keys import KeyRing
from holdfast.history.cells import Document, Path
from holdfast.history.diff import diff
from holdfast.history.draft import STATE, Draft, draft_state, fingerprint
from holdfast.history.journal import JOURNAL, Journal, encode_entry, forked
from holdfast.history.log import Log, Revision
from holdfast.history.meta import Meta, decode_meta, describe
from holdfast.history.opening import is_key
from holdfast.history.restore import read_state
from holdfast.ports import AsyncPorts, Ports
from holdfast.records.arguments import mapping_or_none, path_of_keys, path_text, several, whole_number
from holdfast.records.checkpoint import Change, Checkpoint, CheckpointInfo, Content
from holdfast.records.errors import (
    ConfigurationError,
    Conflict,
    LeaseHeld,
    NotFound,
    StoreClosed,
    UnstorableValue,
)
from holdfast.records.event import Event
from holdfast.records.identity import MAX_ID_BYTES, CheckpointId
from holdfast.records.reports import Copied, Guarantee, Report, Stats
from holdfast.records.retention import Freed, Retention, retention_or_none
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import CAUSE_WORDS, PHASE_WORDS, STATUS_WORDS, Cause, Phase, Status
from holdfast.stores.backend import Backend
from holdfast.stores.backup import back_up
from holdfast.stores.bundle import export_thread, import_thread
from holdfast.stores.committer import Committer
from holdfast.stores.copying import copy_store
from holdfast.stores.events import Events, pruned_details
from holdfast.stores.listing import Listings, thread_info
from holdfast.stores.pages import AsyncPage
from holdfast.stores.reader import Loaded, Reader
from holdfast.stores.saver import Saver
from holdfast.stores.sealing import Sealing
from holdfast.stores.upkeep import Upkeep, hidden, pinned, unpinned
from holdfast.stores.verify import Verifier
from holdfast.stores.writer import KEYS, Intent, NotACell, Proposal, Recorded

ATTEMPTS = 8
W = TypeVar("W", str, str | None)


class Store:
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
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._ports: Ports = ports or AsyncPorts()
        ring = None if keys is None else KeyRing.of(keys)
        self._backend = backend
        self._committer = committer or Committer(backend, inline=inline)
        self._reader = Reader(backend, Sealing(namespace, ring, self._ports.entropy, compress=compress))
        self._saver = Saver(self._reader, self._committer, self._ports)
        self._listings = Listings(self._reader)
        self._upkeep = Upkeep(self._reader)
        self._events = Events(self._ports)
        self._on_close = on_close or backend.close
        self._ready = False
        self._closed = False
        self.retention = retention_or_none(retention)

    # Life

    async def __aenter__(self) -> Self:
        await self._open()
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
        draft, leaves = draft_state(state, writer.document if writer else None)
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
            key=check_key(idempotency_key),
            fingerprint=b"" if idempotency_key is None else fingerprint(draft, packed),
            expect_seq=None if expect_seq is None else whole_number(expect_seq, "expect_seq"),
        )
        return await self._write(thread, intent)

    async def append(self, thread_id: str, path: str | Sequence[str], item: Any) -> Checkpoint:
        """Append one item to the list at `path` of the state, at the same cost however long the list is.

        The list is made if it is not there. Otherwise as `save`.
        """
        thread = self._reader.sealing.key(thread_id)
        where = (*STATE, *path_of_keys(path))
        if len(where) < 2 or not all(map(is_key, where)):
            raise UnstorableValue(
                f"append to {path!r}: a path is one str, or several, such as 'messages'", path="state"
            )
        intent = Intent(appends=((where, encode(item, path="item")),), status=Status.IDLE.value)
        for _ in range(ATTEMPTS):
            try:
                return await self._write(thread, intent)
            except NotACell:
                pass
            try:
                return await self._write(thread, await self._append_within(thread, where, item))
            except Conflict:
                continue
        raise Conflict(f"thread {thread_id!r} is being written to by others all the time; try again")

    async def _append_within(self, thread: bytes, where: Path, item: Any) -> Intent:
        """An append to a list inside a cell: the state with it, to be saved if nothing comes between."""
        stale = self._saver.writers.get(thread)
        if stale is not None:
            self._saver.writers.discard(stale)
        log = (await self._ports.perform(self._saver.writers.open, thread)).log
        state = with_appended(read_state(log.binding, log.document), where[1:], item)
        draft, leaves = draft_state(state)
        return Intent(draft=draft, leaves=leaves, status=Status.IDLE.value, expect_seq=log.checkpoint)

    async def _write(self, thread: bytes, intent: Intent) -> Checkpoint:
        if not self._ready or self._closed:
            await self._open()
        outcome = await self._saver.commit(thread, intent)
        if isinstance(outcome, Recorded):
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
        return await self._ports.perform(self._thread_info, thread)

    def _thread_info(self, thread: bytes) -> ThreadInfo:
        return thread_info(self._reader, thread, self._reader.living(thread).head)

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
        draft, leaves = draft_state(state) if state is not None else (_redraft(loaded.log.document), {})
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
            draft=draft,
            leaves=leaves,
            adopted=internal,
            status=Status.IDLE.value,
            phase=meta.phase,
            metadata=meta.metadata,
            labels=self._reader.sealing.read_summary(binding, loaded.seen.head).labels,
            origin=origin,
            expect_seq=0,
        )

    async def diff(self, checkpoint_id_a: str, checkpoint_id_b: str) -> list[Change]:
        """What differs from the first checkpoint's state to the second's, by path."""
        old, new = await self.load(checkpoint_id_a), await self.load(checkpoint_id_b)
        return diff(old.state, new.state)

    # Housekeeping

    async def delete(self, thread_id: str) -> None:
        """Remove the thread and leave a tombstone: later writes raise `Deleted`. Deleting twice is no error."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        await self._ports.perform(self._upkeep.delete, thread, self._ports.now())
        await self._events.emit("deleted", thread_id)

    async def revive(self, thread_id: str) -> None:
        """Bring a deleted thread's id back, empty. `NotFound` if it was not deleted."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        await self._ports.perform(self._upkeep.revive, thread)
        await self._events.emit("revived", thread_id)

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Hide one checkpoint; its bytes go with the next prune or erase.

        If it is the newest, the thread's state becomes that of the checkpoint before it; `Conflict` if there is none.
        """
        await self._open()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.sealing.key(checkpoint.thread_id)
        for _ in range(ATTEMPTS):
            await self._step_back(thread, checkpoint)
            if await self._ports.perform(self._upkeep.mark, thread, checkpoint, hidden):
                await self._events.emit("checkpoint_deleted", checkpoint.thread_id, checkpoint.seq)
                return
        raise Conflict(f"thread {checkpoint.thread_id!r} is being written to all the time; try again")

    async def _step_back(self, thread: bytes, checkpoint: CheckpointId) -> None:
        """Before the newest checkpoint is hidden, make the one before it the thread's state."""
        newest = await self._ports.perform(self._load, checkpoint)
        if newest.seen.head.checkpoint != checkpoint.seq:
            return
        page = await self.history(checkpoint.thread_id, cursor=checkpoint.seq, limit=1)
        if not page.items:
            raise Conflict(f"{checkpoint} is the only checkpoint of its thread; delete the thread instead")
        before = await self._ports.perform(self._load, CheckpointId.parse(page.items[0].id))
        meta = decode_meta(before.log.binding, before.header)
        intent = Intent(
            draft=_redraft(before.log.document),
            checkpoint=before.log.seq,
            cause=meta.cause,
            phase=meta.phase,
            metadata=meta.metadata,
            expect_seq=checkpoint.seq,
        )
        # If it is not the newest any more, there is nothing to step back from.
        with suppress(Conflict):
            await self._saver.commit(thread, intent)

    async def pin(self, checkpoint_id: str, pinned: bool = True) -> None:
        """Keep a checkpoint through every prune, or with `pinned=False` no longer.

        One that only its pin has kept goes with the next prune.
        """
        await self._open()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.sealing.key(checkpoint.thread_id)
        await self._ports.perform(self._upkeep.mark, thread, checkpoint, _pin if pinned else unpinned)
        await self._events.emit("pinned" if pinned else "unpinned", checkpoint.thread_id, checkpoint.seq)

    async def erase(self, thread_id: str) -> None:
        """Remove every trace of the thread's past from the store: nothing but its present state remains.

        Idempotency keys are part of the present: a repeated save is still recognised. `StoreUnavailable` if something
        kept the store from overwriting the past; then erase again.
        """
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        for _ in range(ATTEMPTS):
            loaded = await self._ports.perform(self._reader.load_head, thread)
            header = await self._ports.perform(self._reader.newest_checkpoint, thread, loaded)
            meta = decode_meta(loaded.log.binding, header)
            intent = Intent(
                fresh=True, cause=meta.cause, phase=meta.phase, metadata=meta.metadata, expect_seq=header.seq
            )
            try:
                written = await self._saver.commit(thread, intent)
            except Conflict:
                continue
            if isinstance(written, Proposal) and await self._ports.perform(
                self._upkeep.forget_history, thread, written.log.seq
            ):
                await self._events.emit("erased", thread_id, written.log.seq)
                return
        raise Conflict(f"thread {thread_id!r} is being written to all the time; try again")

    async def prune(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Freed:
        """Apply a retention (by default the store's own) to every thread; with `dry_run` only say what would go.

        `progress` is called with how many threads are done, and how many there are.
        """
        await self._open()
        policy = retention_or_none(retention) or self.retention
        if policy is None:
            raise ConfigurationError(
                "prune needs a retention: prune(holdfast.Retention(keep_last=10)), or open(retention=…)"
            )
        freed = Freed()
        threads = await self._ports.perform(self._listings.all_threads)
        for thread in _counted(threads, progress):
            freed += await self._ports.perform(self._upkeep.prune, thread, policy, self._ports.now(), dry_run=dry_run)
        await self._events.emit("pruned", "", 0, **pruned_details(freed, dry_run=dry_run))
        return freed

    async def stats(self) -> Stats:
        """How much the store holds."""
        await self._open()
        return await self._ports.perform(self._listings.stats)

    async def verify(self, *, progress: Callable[[int, int], object] | None = None) -> Report:
        """Read and check everything that is stored. Reports what is damaged, and does not raise for it.

        `progress` is called with how many threads are done, and how many there are.
        """
        await self._open()
        verifier = Verifier(self._reader)
        await self._ports.perform(verifier.check_backend)
        for thread in _counted(await self._ports.perform(verifier.threads), progress):
            await self._ports.perform(verifier.check_thread, thread)
        return Report(checked=verifier.checked, problems=verifier.problems)

    async def guarantee(self) -> Guarantee:
        """What an acknowledged save survives here, read from the store's real settings."""
        await self._open()
        return await self._ports.perform(self._backend.guarantee)

    async def export(
        self, thread_id: str, path: str | os.PathLike[str], *, keys: KeyRing | bytes | None = None
    ) -> None:
        """Write the thread with its whole history to a portable file; plain unless `keys` are given."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        ring = None if keys is None else KeyRing.of(keys)
        await self._ports.perform(export_thread, self._reader, thread, path_text(path), ring, self._ports.entropy)

    async def import_(
        self, path: str | os.PathLike[str], to: str | None = None, *, keys: KeyRing | bytes | None = None
    ) -> str:
        """Read a thread from a file that `export` wrote, and return its id. `Conflict` if the thread exists."""
        await self._open()
        ring = None if keys is None else KeyRing.of(keys)
        thread_id = await self._ports.perform(
            import_thread, self._reader, path_text(path), to, ring, self._ports.entropy
        )
        await self._events.emit("imported", thread_id)
        return thread_id

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole store, every namespace, into a new SQLite file that `holdfast.open` can open."""
        await self._open()
        await self._ports.perform(back_up, self._backend, path_text(path))

    async def copy_to(self, target: "Store", *, progress: Callable[[int, int], object] | None = None) -> Copied:
        """Copy all threads of every namespace, with their whole history, to another store of any kind.

        Both have the same keys. What was copied is read back and compared. Threads that are there already and equal
        are skipped; those that differ are left as they are, and named in `conflicts`.
        """
        await self._open()
        reader = await target._readable()  # noqa: SLF001  another of this class
        if reader.backend is self._backend:
            raise ConfigurationError("copy_to needs another store than this one")
        tell = progress or (lambda _done, _total: None)
        return await self._ports.perform(copy_store, self._reader, reader, tell)

    async def _readable(self) -> Reader:
        await self._open()
        return self._reader

    async def rotate(self) -> int:
        """Re-wrap every thread's data key under the ring's writer key. Returns how many threads changed."""
        await self._open()
        if self._reader.sealing.ring is None:
            raise ConfigurationError("rotate needs a store opened with keys=")
        changed = 0
        for thread in await self._ports.perform(self._listings.all_threads):
            changed += await self._ports.perform(self._upkeep.rotate, thread)
        return changed

    def on_event(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """Call back after everything that happens through this handle. Returns a function that ends it.

        Events tell names, numbers and ids; with `content` also the arguments and results of steps.
        """
        return self._events.subscribe(callback, content=content)


_pin = pinned


def _counted(threads: list[bytes], progress: Callable[[int, int], object] | None) -> Iterator[bytes]:
    """The threads, telling after each how many are done."""
    for number, thread in enumerate(threads, 1):
        yield thread
        if progress is not None:
            progress(number, len(threads))


def _start_of(thread_id: str) -> str:
    """As much of an id as leaves room for a suffix."""
    return thread_id.encode()[: MAX_ID_BYTES - 32].decode(errors="ignore")


def _redraft(document: Document) -> Draft:
    """The state of a document as a draft, to be saved once more."""
    return {path: cell.encoded() for path, cell in document.items() if path[0] == "state"}


def _checkpoint(log: Log, meta: Meta, *, seq: int | None = None, status: str | None = None) -> Checkpoint:
    number, word = seq or log.seq, status or meta.status
    return Checkpoint(lambda: describe(log.binding, number, meta, word), lambda: _content(log))


def _content(log: Log) -> Content:
    journal = Journal.of(log.document)
    return Content(read_state(log.binding, log.document), journal.steps(), journal.open_requests(log.binding))


def with_appended(state: Any, path: Sequence[str], item: Any) -> Any:
    """The state, changed in place, with one more item in the list at `path`; a clear refusal if there is no list."""
    inner = state
    for depth, key in enumerate(path):
        name = "state" + "".join(f'["{part}"]' for part in path[:depth])
        if type(inner) is not dict:
            raise UnstorableValue(f"append: {name} is not a dict but {type(inner).__name__}", path=name)
        inner = inner.setdefault(key, [] if depth == len(path) - 1 else {})
    name = "state" + "".join(f'["{part}"]' for part in path)
    if type(inner) is not list:
        raise UnstorableValue(f"append: {name} is not a list but {type(inner).__name__}", path=name)
    inner.append(item)
    return state


def check_metadata(metadata: object) -> dict[str, Any]:
    """Metadata as a dict with str keys, or a clear refusal."""
    if not isinstance(metadata, Mapping) or not all(type(key) is str for key in metadata):
        raise UnstorableValue(f"metadata is a mapping with str keys, not {metadata!r}", path="metadata")
    return dict(metadata)


def check_labels(labels: Mapping[Any, Any] | None) -> dict[str, str] | None:
    """Labels as a dict of str to str, or a clear refusal."""
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise UnstorableValue(f"labels are a mapping of str to str, not {labels!r}", path="labels")
    for name, value in labels.items():
        if type(name) is not str or type(value) is not str:
            raise UnstorableValue(f"label {name!r}={value!r}: names and values are str", path=f"labels[{name!r}]")
    return dict(labels)


def check_key(key: object) -> str | None:
    """An idempotency key, or a clear refusal."""
    if key is None or (type(key) is str and key):
        return key
    raise ConfigurationError(f"idempotency_key={key!r}: a non-empty str, or None")


def plain_word(words: Mapping[Any, W], word: object, what: str) -> W:
    """The plain word of a status, cause or phase, or a clear refusal."""
    found = words.get(word) if isinstance(word, str | None) else None
    if found is None and not (word is None and None in words):
        raise ConfigurationError(f"{word!r} is not a {what}; those are {', '.join(filter(None, words.values()))}")
    return found  # type: ignore[return-value]  # None stands for None
