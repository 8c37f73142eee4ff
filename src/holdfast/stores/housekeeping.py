"""What keeps a store in order: deletion, pins, erasure, pruning, checks, bundles, copies, keys.

A program that only resumes threads needs none of it, so each part is loaded at its first use.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.codec.keys import KeyRing
from holdfast.history.meta import decode_meta
from holdfast.records.arguments import function_or_none, path_text
from holdfast.records.errors import (
    ConfigurationError,
    Conflict,
    Corrupt,
    IncompatibleCheckpoint,
    KeyUnavailable,
)
from holdfast.records.event import Event
from holdfast.records.head import Head
from holdfast.records.identity import CheckpointId
from holdfast.records.reports import Copied, Guarantee, Report, Stats
from holdfast.records.retention import Freed, Retention, retention_or_none
from holdfast.stores.archive import ATTEMPTS, Archive, redraft
from holdfast.stores.events import pruned_details
from holdfast.stores.reader import Reader
from holdfast.stores.writer import Intent, Proposal

T = TypeVar("T")


class Housekeeping(Archive):
    """An archive that can be kept in order."""

    async def delete(self, thread_id: str) -> None:
        """Remove the thread and leave a tombstone: later writes raise `Deleted`. Deleting twice is no error."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        await self._ports.perform(self._upkeep.delete, thread, self._ports.now())
        await self._events.emit("deleted", thread_id)

    async def _delete_if(self, thread_id: str, condition: Callable[[Head], bool]) -> bool:
        """Delete a thread whose head meets a condition, when it is deleted too. True if it was deleted."""
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        is_deleted = await self._ports.perform(self._upkeep.delete_if, thread, condition, self._ports.now())
        if is_deleted:
            await self._events.emit("deleted", thread_id)
        return is_deleted

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
        from holdfast.stores.upkeep import hidden

        await self._open()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.sealing.key(checkpoint.thread_id)
        for _ in range(ATTEMPTS):
            await self._step_back(thread, checkpoint)
            if await self._ports.perform(self._upkeep.mark, thread, checkpoint, hidden):
                await self._events.emit("checkpoint_deleted", checkpoint.thread_id, checkpoint.seq)
                return
        raise Conflict(f"gave up after {ATTEMPTS} conflicting writes to thread {checkpoint.thread_id!r}; retry later")

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
            draft=redraft(before.log.document),
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
        from holdfast.stores import upkeep

        await self._open()
        checkpoint = CheckpointId.parse(checkpoint_id)
        thread = self._reader.sealing.key(checkpoint.thread_id)
        change = upkeep.pinned if pinned else upkeep.unpinned
        await self._ports.perform(self._upkeep.mark, thread, checkpoint, change)
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
        raise Conflict(f"gave up after {ATTEMPTS} conflicting writes to thread {thread_id!r}; retry later")

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
        function_or_none(progress, "progress")
        await self._open()
        policy = retention_or_none(retention) or self.retention
        if policy is None:
            raise ConfigurationError(
                "prune needs a retention: prune(holdfast.Retention(keep_last=10)), or open(retention=…)"
            )
        freed = Freed()
        threads = await self._ports.perform(self._listings.all_heads)
        for thread, head in _counted(threads, progress):
            freed += await self._ports.perform(
                self._upkeep.prune, thread, head, policy, self._ports.now(), dry_run=dry_run
            )
        await self._events.emit("pruned", "", 0, **pruned_details(freed, dry_run=dry_run))
        return freed

    async def counts(self) -> dict[str, int]:
        """Count the threads of each status, from the store's index: no thread is read where the store has one."""
        await self._open()
        return await self._ports.perform(self._listings.counts)

    async def stats(self) -> Stats:
        """Say how much the store holds. Sizes are in the heads, so each is read; for statuses alone see `counts`."""
        await self._open()
        return await self._ports.perform(self._listings.stats)

    async def verify(self, *, progress: Callable[[int, int], object] | None = None) -> Report:
        """Read and check everything that is stored. Reports what is damaged, and does not raise for it.

        `progress` is called with how many threads are done, and how many there are.
        """
        from holdfast.stores.verify import Verifier

        function_or_none(progress, "progress")
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
        from holdfast.stores.bundle import export_thread

        await self._open()
        thread = self._reader.sealing.key(thread_id)
        ring = None if keys is None else KeyRing.of(keys)
        await self._ports.perform(export_thread, self._reader, thread, path_text(path), ring, self._ports.entropy)

    async def import_(
        self, path: str | os.PathLike[str], to: str | None = None, *, keys: KeyRing | bytes | None = None
    ) -> str:
        """Read a thread from a file that `export` wrote, and return its id. `Conflict` if the thread exists."""
        from holdfast.stores.bundle import import_thread

        await self._open()
        ring = None if keys is None else KeyRing.of(keys)
        thread_id = await self._ports.perform(
            import_thread, self._reader, path_text(path), to, ring, self._ports.entropy
        )
        await self._events.emit("imported", thread_id)
        return thread_id

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole store, every namespace, into a new SQLite file that `holdfast.open` can open."""
        from holdfast.stores.backup import back_up

        await self._open()
        await self._ports.perform(back_up, self._backend, path_text(path))

    async def copy_to(self, target: "Housekeeping", *, progress: Callable[[int, int], object] | None = None) -> Copied:
        """Copy all threads of every namespace, with their whole history, to another store of any kind.

        Both have the same keys. What was copied is read back and compared. Threads that are there already and equal
        are skipped; those that differ are left as they are, and named in `conflicts`.
        """
        from holdfast.stores.copying import copy_store

        tell = function_or_none(progress, "progress") or (lambda _done, _total: None)
        if not isinstance(target, Housekeeping):
            raise ConfigurationError(f"target={target!r}: another store, of the same world")
        await self._open()
        reader = await target._readable()  # noqa: SLF001  another of this class
        if reader.backend is self._backend:
            raise ConfigurationError("copy_to needs another store than this one")
        return await self._ports.perform(copy_store, self._reader, reader, tell)

    async def _readable(self) -> Reader:
        await self._open()
        return self._reader

    async def rotate(self) -> int:
        """Re-wrap every thread's data key under the ring's writer key. Returns how many threads changed.

        Raises `Corrupt` for a damaged thread, and `KeyUnavailable` for one whose key the ring lacks, after all others
        were done.
        """
        await self._open()
        if self._reader.sealing.ring is None:
            raise ConfigurationError("rotate needs a store opened with keys=")
        changed, failures = 0, list[Corrupt | IncompatibleCheckpoint | KeyUnavailable]()
        for thread, _ in await self._ports.perform(self._listings.all_heads):
            try:
                changed += await self._ports.perform(self._upkeep.rotate, thread)
            except (Corrupt, IncompatibleCheckpoint, KeyUnavailable) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return changed

    def on_event(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """Call back after everything that happens through this handle. Returns a function that ends it.

        Events tell names, numbers and ids; with `content` also the arguments and results of steps.
        """
        return self._events.subscribe(callback, content=content)


def _counted(threads: list[T], progress: Callable[[int, int], object] | None) -> Iterator[T]:
    """The threads, telling after each how many are done."""
    for number, thread in enumerate(threads, 1):
        yield thread
        if progress is not None:
            progress(number, len(threads))
