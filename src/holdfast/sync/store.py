"""The blocking store: every method is one line that runs the awaitable one over `BlockingPorts`."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits
from holdfast.ports import BlockingPorts, run_blocking
from holdfast.records.arguments import function_or_none
from holdfast.records.checkpoint import Change, Checkpoint, CheckpointInfo
from holdfast.records.event import Event
from holdfast.records.outcome import Outcome, Recovery, ThreadCheck
from holdfast.records.reports import Copied, Guarantee, QueueInfo, Report, Stats
from holdfast.records.request import Request
from holdfast.records.retention import Freed, Retention
from holdfast.records.schedule import Schedule
from holdfast.records.thread import Page as _Page
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Cause, KeepInputs, Phase, Status
from holdfast.runs.handles import BlockingHandle as Handle
from holdfast.runs.kinds import OpenedStore
from holdfast.runs.store import Store as AwaitableStore
from holdfast.stores import locations
from holdfast.stores.backend import Backend
from holdfast.stores.listing import AsyncPage
from holdfast.stores.locations import Parts
from holdfast.stores.options import BucketOptions, LocalOptions, PostgresOptions, RedisOptions
from holdfast.sync.run import Run, RunBlock

if TYPE_CHECKING:
    from holdfast.runs.durable import Durable
    from holdfast.runs.schedules import ScheduleOptions
    from holdfast.runs.submitting import SubmitOptions
    from holdfast.runtimes.session.options import OrchestratorOptions
    from holdfast.stores.postgres.connections import Source as PostgresSource
    from holdfast.stores.redis.settings import Source as RedisSource
    from holdfast.stores.s3.places import Source as BucketSource
    from holdfast.sync.session import SessionBlock

T = TypeVar("T")


class Page(_Page[T]):
    """A page of the blocking API."""

    __slots__ = ("_page",)

    def __init__(self, page: AsyncPage[T]) -> None:
        super().__init__(page.items, page.next)
        self._page = page

    def next_page(self) -> "Page[T] | None":
        """Return the page after this one, None after the last."""
        following = run_blocking(self._page.next_page())
        return None if following is None else Page(following)


class Store:
    """See `holdfast.Store`: the same methods, blocking."""

    _store: AwaitableStore

    def __init__(
        self,
        backend: Backend,
        *,
        keys: KeyRing | bytes | None = None,
        compress: bool = True,
        retention: Retention | None = None,
        namespace: str = "",
        inline: bool = True,
        inputs: KeepInputs = "preview",
        limits: Limits | None = None,
    ) -> None:
        self._store = AwaitableStore(
            backend,
            ports=BlockingPorts(),
            keys=keys,
            compress=compress,
            retention=retention,
            namespace=namespace,
            inline=inline,
            inputs=inputs,
            limits=limits,
        )

    def __enter__(self) -> Self:
        run_blocking(self._store.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        run_blocking(self._store.close())

    def close(self) -> None:
        """See `holdfast.Store.close`."""
        run_blocking(self._store.close())

    @property
    def retention(self) -> Retention | None:
        """See `holdfast.Store.retention`."""
        return self._store.retention

    def save(
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
        """See `holdfast.Store.save`."""
        return run_blocking(
            self._store.save(
                thread_id,
                state,
                metadata=metadata,
                labels=labels,
                phase=phase,
                cause=cause,
                status=status,
                idempotency_key=idempotency_key,
                expect_seq=expect_seq,
            )
        )

    def append(
        self, thread_id: str, path: str | Sequence[str], item: Any, *, idempotency_key: str | None = None
    ) -> Checkpoint:
        """See `holdfast.Store.append`."""
        return run_blocking(self._store.append(thread_id, path, item, idempotency_key=idempotency_key))

    def latest(self, thread_id: str) -> Checkpoint | None:
        """See `holdfast.Store.latest`."""
        return run_blocking(self._store.latest(thread_id))

    def load(self, checkpoint_id: str) -> Checkpoint:
        """See `holdfast.Store.load`."""
        return run_blocking(self._store.load(checkpoint_id))

    def get(self, thread_id: str, seq: int) -> Checkpoint:
        """See `holdfast.Store.get`."""
        return run_blocking(self._store.get(thread_id, seq))

    def history(
        self,
        thread_id: str,
        *,
        cursor: str | int | None = None,
        limit: int = 50,
        where: Mapping[str, Any] | None = None,
        journal: bool = False,
    ) -> Page[CheckpointInfo]:
        """See `holdfast.Store.history`."""
        return Page(
            run_blocking(self._store.history(thread_id, cursor=cursor, limit=limit, where=where, journal=journal))
        )

    def threads(
        self,
        *,
        status: Status | str | Sequence[Status | str] | None = None,
        labels: Mapping[str, str] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[ThreadInfo]:
        """See `holdfast.Store.threads`."""
        return Page(run_blocking(self._store.threads(status=status, labels=labels, cursor=cursor, limit=limit)))

    def thread(self, thread_id: str) -> ThreadInfo:
        """See `holdfast.Store.thread`."""
        return run_blocking(self._store.thread(thread_id))

    def fork(
        self, checkpoint_id: str, to: str | None = None, state: Any = None, results: Mapping[str, Any] | None = None
    ) -> str:
        """See `holdfast.Store.fork`."""
        return run_blocking(self._store.fork(checkpoint_id, to, state, results))

    def diff(self, checkpoint_id_a: str, checkpoint_id_b: str) -> list[Change]:
        """See `holdfast.Store.diff`."""
        return run_blocking(self._store.diff(checkpoint_id_a, checkpoint_id_b))

    def delete(self, thread_id: str) -> None:
        """See `holdfast.Store.delete`."""
        run_blocking(self._store.delete(thread_id))

    def revive(self, thread_id: str) -> None:
        """See `holdfast.Store.revive`."""
        run_blocking(self._store.revive(thread_id))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """See `holdfast.Store.delete_checkpoint`."""
        run_blocking(self._store.delete_checkpoint(checkpoint_id))

    def pin(self, checkpoint_id: str, pinned: bool = True) -> None:
        """See `holdfast.Store.pin`."""
        run_blocking(self._store.pin(checkpoint_id, pinned))

    def erase(self, thread_id: str) -> None:
        """See `holdfast.Store.erase`."""
        run_blocking(self._store.erase(thread_id))

    def prune(
        self,
        retention: Retention | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Freed:
        """See `holdfast.Store.prune`."""
        return run_blocking(self._store.prune(retention, dry_run=dry_run, progress=progress))

    def counts(self) -> dict[str, int]:
        """See `holdfast.Store.counts`."""
        return run_blocking(self._store.counts())

    def queues(self) -> list[QueueInfo]:
        """See `holdfast.Store.queues`."""
        return run_blocking(self._store.queues())

    def stats(self) -> Stats:
        """See `holdfast.Store.stats`."""
        return run_blocking(self._store.stats())

    def verify(self, *, progress: Callable[[int, int], object] | None = None) -> Report:
        """See `holdfast.Store.verify`."""
        return run_blocking(self._store.verify(progress=progress))

    def guarantee(self) -> Guarantee:
        """See `holdfast.Store.guarantee`."""
        return run_blocking(self._store.guarantee())

    def export(self, thread_id: str, path: str | os.PathLike[str], *, keys: KeyRing | bytes | None = None) -> None:
        """See `holdfast.Store.export`."""
        run_blocking(self._store.export(thread_id, path, keys=keys))

    def import_(
        self, path: str | os.PathLike[str], to: str | None = None, *, keys: KeyRing | bytes | None = None
    ) -> str:
        """See `holdfast.Store.import_`."""
        return run_blocking(self._store.import_(path, to, keys=keys))

    def backup(self, path: str | os.PathLike[str]) -> None:
        """See `holdfast.Store.backup`."""
        run_blocking(self._store.backup(path))

    def copy_to(self, target: "Store", *, progress: Callable[[int, int], object] | None = None) -> Copied:
        """See `holdfast.Store.copy_to`."""
        other: Any = target
        return run_blocking(self._store.copy_to(getattr(other, "_store", other), progress=progress))

    def rotate(self) -> int:
        """See `holdfast.Store.rotate`."""
        return run_blocking(self._store.rotate())

    def run(
        self,
        thread_id: str,
        *,
        labels: Mapping[str, str] | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        reopen: bool = False,
    ) -> RunBlock:
        """See `holdfast.Store.run`."""
        return RunBlock(self._store.run(thread_id, labels=labels, lease=lease, wait=wait, reopen=reopen))

    def session(
        self,
        thread_id: str | None = None,
        *,
        role: str = "agent",
        phase: str = "chat",
        **options: "Unpack[OrchestratorOptions]",
    ) -> "SessionBlock":
        """See `holdfast.Store.session`."""
        from holdfast.sync.session import Orchestrator

        return Orchestrator(role, phase, self, **options).session(thread_id)

    def recover(
        self,
        handler: Callable[[Run], Any] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        max_attempts: int = 3,
        lease: timedelta | float = 30,
    ) -> Recovery:
        """See `holdfast.Store.recover`; the handler gets a blocking run."""
        called = function_or_none(handler, "handler")
        inner = None if called is None else lambda run: called(Run(run))
        return run_blocking(self._store.recover(inner, labels=labels, max_attempts=max_attempts, lease=lease))

    def check(
        self,
        functions: "Sequence[Durable[Any, Any]] | None" = None,
        *,
        timeout: timedelta | float = 10,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[ThreadCheck]:
        """See `holdfast.Store.check`."""
        return run_blocking(self._store.check(functions, timeout=timeout, progress=progress))

    def schedule(self, name: str, fn: "Durable[Any, Any]", **options: "Unpack[ScheduleOptions]") -> None:
        """See `holdfast.Store.schedule`."""
        run_blocking(self._store.schedule(name, fn, **options))

    def unschedule(self, name: str) -> None:
        """See `holdfast.Store.unschedule`."""
        run_blocking(self._store.unschedule(name))

    def schedules(self) -> list[Schedule]:
        """See `holdfast.Store.schedules`."""
        return run_blocking(self._store.schedules())

    def cancel(self, thread_id: str) -> None:
        """See `holdfast.Store.cancel`."""
        run_blocking(self._store.cancel(thread_id))

    def outcome(self, thread_id: str) -> Outcome:
        """See `holdfast.Store.outcome`."""
        return run_blocking(self._store.outcome(thread_id))

    def retry(self, thread_id: str) -> None:
        """See `holdfast.Store.retry`."""
        run_blocking(self._store.retry(thread_id))

    def submit(
        self,
        function_name: str,
        thread_id: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: "Unpack[SubmitOptions]",
    ) -> Handle:
        """See `holdfast.Store.submit`."""
        run_blocking(self._store.submit(function_name, thread_id, args, kwargs, **options))
        return self.handle(thread_id)

    def handle(self, thread_id: str) -> Handle:
        """See `holdfast.Store.handle`."""
        return Handle(self._store, thread_id)

    def settle(self, thread_id: str, step: str, choice: str, value: Any = None, *, by: str = "") -> None:
        """See `holdfast.Store.settle`."""
        run_blocking(self._store.settle(thread_id, step, choice, value, by=by))

    def requests(self, *, status: str | None = "open", cursor: str | None = None, limit: int = 50) -> Page[Request]:
        """See `holdfast.Store.requests`."""
        return Page(run_blocking(self._store.requests(status=status, cursor=cursor, limit=limit)))

    def answer(
        self, request_id: str, choice: str | None = None, value: Any = None, *, by: str = "", comment: str = ""
    ) -> Request:
        """See `holdfast.Store.answer`."""
        return run_blocking(self._store.answer(request_id, choice, value, by=by, comment=comment))

    def on_event(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """See `holdfast.Store.on_event`; the callback must be a plain function."""
        return self._store.on_event(callback, content=content)


def _blocking(parts: Parts) -> AwaitableStore:
    return OpenedStore(*parts, BlockingPorts())


class MemoryStore(Store):
    """See `holdfast.MemoryStore`."""

    def __init__(self, **options: Unpack[LocalOptions]) -> None:
        self._store = _blocking(locations.memory_parts(options))


class SQLiteStore(Store):
    """See `holdfast.SQLiteStore`."""

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[LocalOptions]) -> None:
        self._store = _blocking(locations.sqlite_parts(path, options))


class FileStore(Store):
    """See `holdfast.FileStore`."""

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[LocalOptions]) -> None:
        self._store = _blocking(locations.file_parts(path, options))


class PostgresStore(Store):
    """See `holdfast.PostgresStore`."""

    def __init__(self, source: "PostgresSource", schema: str | None = None, **options: Unpack[PostgresOptions]) -> None:
        self._store = _blocking(locations.postgres_parts(source, schema, options))


class RedisStore(Store):
    """See `holdfast.RedisStore`."""

    def __init__(self, source: "RedisSource", **options: Unpack[RedisOptions]) -> None:
        self._store = _blocking(locations.redis_parts(source, options))


class S3Store(Store):
    """See `holdfast.S3Store`."""

    def __init__(self, source: "BucketSource", **options: Unpack[BucketOptions]) -> None:
        self._store = _blocking(locations.bucket_parts(source, options))


def open(  # noqa: A001  the public name: holdfast.sync.open
    url: str | os.PathLike[str] | None = None, **options: Unpack[LocalOptions]
) -> Store:
    """See `holdfast.open`."""
    store = Store.__new__(Store)
    store._store = _blocking(locations.url_parts(url, options))  # noqa: SLF001  made here, of what this module knows
    return store
