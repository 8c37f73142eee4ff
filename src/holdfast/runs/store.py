"""`Store`: where threads are kept and run. Each method is short; the work is done by the part it names."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits, checked_limits
from holdfast.ports import Ports, awaitable_ports
from holdfast.records.arguments import (
    check_labels,
    check_texts,
    function_or_none,
    path_text,
    plain_word,
    several,
    whole_number,
)
from holdfast.records.checkpoint import Change, Checkpoint, CheckpointInfo
from holdfast.records.errors import ConfigurationError, HoldfastError, NotFound, StoreClosed
from holdfast.records.event import Event
from holdfast.records.head import Marks
from holdfast.records.identity import CheckpointId, RequestId
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.reports import Copied, Guarantee, Report, Stats
from holdfast.records.request import Request
from holdfast.records.retention import Freed, Retention, retention_or_none
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import KEEP_INPUTS_WORDS, STATUS_WORDS, Cause, KeepInputs, Phase, Status
from holdfast.runs.block import RunBlock, Terms, Tools
from holdfast.runs.engine import Engine
from holdfast.runs.fleet import Fleet
from holdfast.runs.inbox import REQUEST_STATUSES, list_requests, outcome_of
from holdfast.runs.rehearsal import block_of
from holdfast.runs.run import Run
from holdfast.runs.scope import rehearsing
from holdfast.stores import maintenance
from holdfast.stores.backend import Backend
from holdfast.stores.bindings import Bindings
from holdfast.stores.committer import Committer
from holdfast.stores.events import Events, pruned_details
from holdfast.stores.heartbeat import Heartbeat
from holdfast.stores.listing import AsyncPage, Listings
from holdfast.stores.reader import Reader, gave_up
from holdfast.stores.saving import RESTATE_ATTEMPTS, Saving

if TYPE_CHECKING:
    from holdfast.runtimes.session.options import OrchestratorOptions
    from holdfast.runtimes.session.session import SessionBlock


class Store(Fleet):
    """Where threads are kept, and run. Get one from `holdfast.open`; it connects at its first use.

    All errors are below `HoldfastError`; after `close` every call raises `StoreClosed`.
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
        inputs: KeepInputs = "preview",
        limits: Limits | None = None,
        on_close: Callable[[], None] | None = None,
        engine: Engine | None = None,
    ) -> None:
        keep_inputs = plain_word(KEEP_INPUTS_WORDS, inputs, "value of inputs=")
        self._ports = ports or awaitable_ports()
        self._backend = backend
        self._committer = committer or Committer(backend, inline=inline)
        ring = None if keys is None else KeyRing.of(keys)
        self._limits = checked_limits(limits)
        self._inputs = inputs
        bindings = Bindings(namespace, ring, self._ports.entropy, compress=compress, limits=self._limits)
        self._reader = Reader(backend, bindings)
        self._ports.clock = self._reader.agenda.now
        self._events = Events(self._ports)
        self._saving = Saving(self._reader, self._committer, self._ports, self._events)
        self._listings = Listings(self._reader)
        self._maintenance = maintenance.Maintenance(self._reader)
        self._tools = Tools(
            self._ports,
            self._reader,
            self._committer,
            self._events,
            Heartbeat(self._ports),
            self._open,
            self._poke,
            keep_inputs,
        )
        self._on_close = on_close or backend.close
        self._engine = engine
        self._is_open, self._is_closed = False, False
        self.retention = retention_or_none(retention)

    # Opening and closing

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
        """Close this handle. What was acknowledged is kept; the lease of a run that is still open expires."""
        if not self._is_closed:
            self._is_open, self._is_closed = False, True
            await self._ports.perform(self._tools.heartbeat.stop)
            self._saving.writers.clear()
            await self._ports.perform(self._on_close)
            if self._engine is not None:
                await self._ports.perform(self._engine.close)
            self._ports.close()

    async def _open(self) -> None:
        if self._is_closed:
            raise StoreClosed("this store handle was closed")
        if not self._is_open:
            await self._ports.perform(self._backend.open)
            self._is_open = True

    async def _open_to_write(self) -> None:
        """Open the store, for a write by the user's code. Code that is rehearsed stops here: a check writes nothing."""
        if (ledger := rehearsing()) is not None:
            await ledger.stop_rehearsal(self._ports, "a write to the store")
        await self._open()

    async def _poke(self, thread_id: str, priority: int = 0) -> None:
        """Let the engine look at a thread that was written to, if this store has an engine."""
        if self._engine is not None:
            await self._ports.perform(self._engine.poke, thread_id, priority)

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
        newest checkpoint, `KeyReused` if the idempotency key was used for other content. With the same key and content
        the first checkpoint is returned.
        """
        await self._open_to_write()
        return await self._saving.save(
            thread_id, state, metadata, labels, phase, cause, status, idempotency_key, expect_seq
        )

    async def append(
        self, thread_id: str, path: str | Sequence[str], item: Any, *, idempotency_key: str | None = None
    ) -> Checkpoint:
        """Append one item to the list at `path` of the state, at the same cost for any length of the list.

        A missing list is created. The thread keeps its status. Otherwise as `save`, except that for a repeated key the
        newest checkpoint is returned.
        """
        await self._open_to_write()
        return await self._saving.append(thread_id, path, item, idempotency_key)

    # Loading

    async def latest(self, thread_id: str) -> Checkpoint | None:
        """Return the thread's newest checkpoint, with the thread's present status; None if there is none."""
        await self._open()
        try:
            return await self._ports.perform(self._reader.latest, self._reader.key(thread_id))
        except NotFound:
            return None

    async def load(self, checkpoint_id: str) -> Checkpoint:
        """Return the checkpoint of that id; `NotFound` if it was deleted, `Corrupt` if it is damaged."""
        await self._open()
        wanted = CheckpointId.parse(checkpoint_id)
        thread = self._reader.key(wanted.thread_id)
        return await self._ports.perform(self._reader.checkpoint, thread, wanted.seq, wanted.life)

    async def get(self, thread_id: str, seq: int) -> Checkpoint:
        """Return the checkpoint at one seq of a thread; `NotFound` if it was deleted, `Corrupt` if it is damaged."""
        await self._open()
        if type(seq) is not int:
            raise NotFound(f"seq {seq!r} is not an int")
        return await self._ports.perform(self._reader.checkpoint, self._reader.key(thread_id), seq)

    async def fork(
        self, checkpoint_id: str, to: str | None = None, state: Any = None, results: Mapping[str, Any] | None = None
    ) -> str:
        """Create a thread that begins with this checkpoint (or with `state` in its place), and return its id.

        The new thread is complete in itself, and has the finished steps up to there: run it, and it continues after
        them. `results` replaces the recorded results of steps, by key. `Conflict` if `to` exists already.
        """
        await self._open_to_write()
        target = await self._saving.fork(CheckpointId.parse(checkpoint_id), to, state, results)
        await self._events.emit("forked", target, 1, origin=checkpoint_id)
        return target

    async def diff(self, checkpoint_id_a: str, checkpoint_id_b: str) -> list[Change]:
        """Return what differs from the first checkpoint's state to the second's, by path."""
        from holdfast.history.diff import diff

        return diff((await self.load(checkpoint_id_a)).state, (await self.load(checkpoint_id_b)).state)

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
        """List the thread's checkpoints, newest first, below `cursor` (a page's `next`, or a seq).

        `where` keeps those whose metadata has these values; `journal=True` adds the rows that are not checkpoints.
        """
        await self._open()
        thread = self._reader.key(thread_id)
        items, following = await self._ports.perform(self._listings.history, thread, cursor, limit, where, journal)
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
        """List threads with any of these statuses and all of these labels; newest first where the store can."""
        await self._open()
        words = [plain_word(STATUS_WORDS, word, "status") for word in several(status, "status")]
        items, following = await self._ports.perform(
            self._listings.threads, words, check_labels(labels) or {}, cursor, limit
        )
        return AsyncPage(
            items, following, lambda cursor: self.threads(status=status, labels=labels, cursor=cursor, limit=limit)
        )

    async def thread(self, thread_id: str) -> ThreadInfo:
        """Return a thread's status, newest checkpoint, labels, sizes and owner; `NotFound` if it does not exist."""
        await self._open()
        return await self._ports.perform(self._listings.info, self._reader.key(thread_id))

    async def counts(self) -> dict[str, int]:
        """Count the threads of each status, from the store's index: no thread is read where the store has one."""
        await self._open()
        return await self._ports.perform(self._listings.counts)

    async def stats(self) -> Stats:
        """Count threads, rows and bytes. This reads every head; to count statuses alone use `counts`."""
        await self._open()
        return await self._ports.perform(self._listings.stats)

    # Deleting and keeping

    async def delete(self, thread_id: str) -> None:
        """Delete the thread and leave a tombstone: later writes raise `Deleted`. Deleting twice is no error."""
        await self._open_to_write()
        thread = self._reader.key(thread_id)
        await self._ports.perform(self._maintenance.delete, thread, self._ports.now())
        await self._events.emit("deleted", thread_id)

    async def revive(self, thread_id: str) -> None:
        """Make a deleted thread's id usable again, empty. `NotFound` if it was not deleted."""
        await self._open_to_write()
        await self._ports.perform(self._maintenance.revive, self._reader.key(thread_id))
        await self._events.emit("revived", thread_id)

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Hide one checkpoint; its bytes are deleted by the next prune or erase.

        If it is the newest, the thread's state becomes that of the checkpoint before it; `Conflict` if there is none.
        """
        await self._open_to_write()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.key(checkpoint.thread_id)
        for _ in range(RESTATE_ATTEMPTS):
            if await self._saving.step_back(thread, checkpoint) or await self._ports.perform(
                self._maintenance.mark, thread, checkpoint, Marks.hiding
            ):
                await self._events.emit("checkpoint_deleted", checkpoint.thread_id, checkpoint.seq)
                return
        raise gave_up(RESTATE_ATTEMPTS, thread)

    async def pin(self, checkpoint_id: str, pinned: bool = True) -> None:
        """Keep a checkpoint through every prune, or with `pinned=False` no longer.

        One that only its pin has kept is deleted by the next prune.
        """
        await self._open_to_write()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.key(checkpoint.thread_id)
        change = Marks.pinning if pinned else Marks.unpinning
        await self._ports.perform(self._maintenance.mark, thread, checkpoint, change)
        await self._events.emit("pinned" if pinned else "unpinned", checkpoint.thread_id, checkpoint.seq)

    async def erase(self, thread_id: str) -> None:
        """Delete every trace of the thread's past: only its present state remains.

        Idempotency keys are part of the present: a repeated save is still recognised. `StoreUnavailable` if something
        kept the store from overwriting the past; then erase again.
        """
        await self._open_to_write()
        thread = self._reader.key(thread_id)
        for _ in range(RESTATE_ATTEMPTS):
            seq = await self._saving.rewrite(thread)
            if seq is not None and await self._ports.perform(self._maintenance.forget_history, thread, seq):
                await self._events.emit("erased", thread_id, seq)
                return
        raise gave_up(RESTATE_ATTEMPTS, thread)

    async def prune(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Freed:
        """Apply a retention (by default the store's) to every thread; with `dry_run` only report what would go.

        `progress` is called with the number of threads done, and the number of all threads.
        """
        function_or_none(progress, "progress")
        await self._open_to_write()
        policy = retention_or_none(retention) or self.retention
        if policy is None:
            raise ConfigurationError("prune needs a retention: prune(Retention(keep_last=10)), or open(retention=…)")
        prune = partial(self._maintenance.prune, retention=policy, now=self._ports.now(), dry_run=dry_run)
        freed = sum(await maintenance.for_each_thread(self._ports, self._listings, prune, progress), Freed())
        await self._events.emit("pruned", "", 0, **pruned_details(freed, dry_run=dry_run))
        return freed

    async def rotate(self) -> int:
        """Re-wrap every thread's data key under the ring's writer key. Returns the number of threads changed.

        Raises `Corrupt` for a damaged thread, and `KeyUnavailable` for one whose key the ring lacks, after all others
        were done.
        """
        await self._open_to_write()
        if self._reader.bindings.ring is None:
            raise ConfigurationError("rotate needs a store opened with keys=")
        results = await maintenance.for_each_thread(self._ports, self._listings, self._maintenance.rotate)
        for result in results:
            if isinstance(result, HoldfastError):
                raise result
        return results.count(True)

    # Checking and copying

    async def verify(self, *, progress: Callable[[int, int], object] | None = None) -> Report:
        """Read and check everything that is stored. Reports damage, and does not raise for it.

        `progress` is called with the number of threads done, and the number of all threads.
        """
        from holdfast.stores.verify import Verifier

        function_or_none(progress, "progress")
        await self._open()
        return await Verifier(self._reader).check_all(self._ports, progress)

    async def guarantee(self) -> Guarantee:
        """Return what an acknowledged save survives here, read from the store's real settings."""
        await self._open()
        return await self._ports.perform(self._backend.guarantee)

    async def export(
        self, thread_id: str, path: str | os.PathLike[str], *, keys: KeyRing | bytes | None = None
    ) -> None:
        """Write the thread with its whole history to a portable file; plain unless `keys` are given."""
        from holdfast.stores.bundle import export_thread

        await self._open()
        thread, ring = self._reader.key(thread_id), None if keys is None else KeyRing.of(keys)
        await self._ports.perform(export_thread, self._reader, thread, path_text(path), ring, self._ports.entropy)

    async def import_(
        self, path: str | os.PathLike[str], to: str | None = None, *, keys: KeyRing | bytes | None = None
    ) -> str:
        """Read a thread from a file that `export` wrote, and return its id. `Conflict` if the thread exists."""
        from holdfast.stores.bundle import import_thread

        await self._open_to_write()
        ring = None if keys is None else KeyRing.of(keys)
        thread_id = await self._ports.perform(
            import_thread, self._reader, path_text(path), to, ring, self._ports.entropy
        )
        await self._events.emit("imported", thread_id)
        return thread_id

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole store, every namespace, into a new SQLite file that `holdfast.open` can open."""
        from holdfast.stores.copying import back_up

        await self._open()
        await self._ports.perform(back_up, self._backend, path_text(path))

    async def copy_to(self, target: "Store", *, progress: Callable[[int, int], object] | None = None) -> Copied:
        """Copy all threads of every namespace, with their whole history, to another store of any kind.

        Both have the same keys. What was copied is read back and compared. Threads that the target has already are
        skipped if they are equal; those that differ are left as they are, and named in `conflicts`.
        """
        from holdfast.stores.copying import copy_store

        notify = function_or_none(progress, "progress") or (lambda _done, _total: None)
        if not isinstance(target, Store):
            raise ConfigurationError(f"target must be a store, awaitable or blocking as this one is, got {target!r}")
        await self._open_to_write()
        await target._open()
        if target._backend is self._backend:
            raise ConfigurationError("copy_to needs another store: its target is this one")
        return await self._ports.perform(copy_store, self._reader, target._reader, notify)

    # Runs

    def run(
        self,
        thread_id: str,
        *,
        labels: Mapping[str, str] | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        reopen: bool = False,
    ) -> RunBlock:
        """Claim a thread for a block: `async with store.run("user-42") as run`. Only this run can write to it.

        If another run holds it, waits for `wait` (one lease by default), then raises `LeaseHeld`. A thread whose owner
        is certainly dead is taken over at once. Leaving the block releases the lease: the thread is then complete or
        failed if the run said so, failed with the error that left the block, suspended if it waits, else idle.
        `reopen=True` lets a complete thread continue.
        """
        return self._run_block(thread_id, labels, Terms(lease, wait, reopen))

    def _run_block(
        self,
        thread_id: str,
        labels: Mapping[str, str] | None,
        terms: Terms,
        check_held: Callable[[], Awaitable[None]] | None = None,
    ) -> RunBlock:
        return block_of(self._tools, thread_id, check_labels(labels), terms, check_held)

    def session(
        self,
        thread_id: str | None = None,
        *,
        role: str = "agent",
        phase: str = "chat",
        **options: "Unpack[OrchestratorOptions]",
    ) -> "SessionBlock":
        """Claim a thread for a conversation: `async with store.session("user-42", budget_usd=2.50) as session`.

        The short form of `Orchestrator(role, phase, store, **options).session(thread_id)`.
        """
        from holdfast.runtimes.session.orchestrator import Orchestrator

        return Orchestrator(role, phase, self, **options).session(thread_id)

    async def recover(
        self,
        handler: Callable[[Run], Any] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        max_attempts: int = 3,
        lease: timedelta | float = 30,
    ) -> Recovery:
        """Resume every resumable thread: its process died, its request was answered, or its timer is due.

        Each is claimed by only one of the processes that recover. Its durable function is resumed if this program has
        it; a `handler` is called with the claimed run instead. A thread whose process dies `max_attempts` times without
        progress ends as failed.
        """
        from holdfast.runs.recovery import Recoverer

        await self._open_to_write()
        whole_number(max_attempts, "max_attempts", least=1)
        terms = Terms(lease, wait=0, keyed=function_or_none(handler, "handler") is None)
        return await Recoverer(self, handler, terms, max_attempts).recover(check_labels(labels) or {})

    async def cancel(self, thread_id: str) -> None:
        """End a thread: a live run stops at its next step or within a second; others end at once.

        `NotFound` if the thread does not exist; a finished one stays as it is.
        """
        from holdfast.runs.cancelling import cancel_thread

        await self._open_to_write()
        await cancel_thread(self._tools, thread_id)
        await self._poke(thread_id)

    async def settle(self, thread_id: str, step: str, choice: str, value: Any = None, *, by: str = "") -> None:
        """Decide the unknown outcome of a step, by its key; then `recover`, or running the thread again, resumes it.

        `done`: it happened, and `value` is its result. `retry`: execute it again, with the same idempotency key.
        `fail`: it failed, and the code that called it gets `StepFailed`. `NotFound` if the step is not in doubt,
        `Conflict` if it has ended by now, or if a request asks about it: then answer that.
        """
        from holdfast.runs.settling import check_named, settle_step

        check_named(step, by)
        await self.thread(thread_id)
        async with self._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
            await settle_step(run, step, choice, value, by)
        await self._poke(thread_id)

    async def outcome(self, thread_id: str) -> Outcome:
        """Read a thread's status, result, error and open requests, without running or claiming it.

        `NotFound` if it does not exist, or was deleted.
        """
        await self._open()
        return await self._ports.perform(outcome_of, self._reader, self._reader.key(thread_id))

    # Requests and events

    async def requests(
        self, *, status: str | None = "open", cursor: str | None = None, limit: int = 50
    ) -> AsyncPage[Request]:
        """List the requests of all threads: the open ones (an inbox for approvals), `answered`, `expired`, or all.

        Oldest first within a thread. Open ones are found by the status of their threads, the others by reading all.
        Threads that cannot be read are left out, with a `HoldfastWarning`.
        """
        await self._open()
        if status is not None and status not in REQUEST_STATUSES:
            raise ConfigurationError(f"`status` must be one of {', '.join(REQUEST_STATUSES)}, or None, got {status!r}")
        items, following = await self._ports.perform(list_requests, self._reader, status, cursor, limit)
        return AsyncPage(items, following, lambda cursor: self.requests(status=status, cursor=cursor, limit=limit))

    async def answer(
        self, request_id: str, choice: str | None = None, value: Any = None, *, by: str = "", comment: str = ""
    ) -> Request:
        """Answer a request, once: `Conflict` if it has an answer, `InvalidAnswer` for what it does not take.

        Returns the request with its answer. A worker or `recover` resumes the thread, or a run of it.
        """
        from holdfast.runs.asking import leave_answer

        await self._open_to_write()
        now = self._ports.now()
        parsed = RequestId.parse(request_id)
        check_texts(by=by, comment=comment, **({} if choice is None else {"choice": choice}))
        request = await self._ports.perform(leave_answer, self._reader, parsed, choice, value, by, comment, now)
        await self._events.emit("answered", parsed.thread_id, 0, request=request_id, name=request.name)
        await self._poke(parsed.thread_id)
        return request

    def on_event(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """Call `callback` with every event of this handle. Returns a function that stops it.

        Events hold names, numbers and ids; with `content` also the arguments and results of steps.
        """
        return self._events.subscribe(callback, content=content)


def attach(store: Store, engine: Engine) -> None:
    """Let an engine run what is submitted to this store from now on."""
    store._engine = engine


def tools_of(store: Store) -> Tools:
    """Return what a runtime builds its runs on."""
    return store._tools
