"""The blocking loop: the same methods as the awaitable one, each one line."""

from collections.abc import Mapping
from typing import Any, Self, Unpack

from holdfast.ports import run_blocking
from holdfast.records.loop import Snapshot
from holdfast.runtimes.loop.core import LoopCore, Origin, first_snapshot, stored
from holdfast.runtimes.loop.loading import loaded
from holdfast.runtimes.loop.loop import LoopView
from holdfast.runtimes.loop.loop import SnapshotStore as AwaitableSnapshotStore
from holdfast.runtimes.loop.options import LoopOptions, LoopTerms, loop_terms
from holdfast.sync.functions import checked_store, inner_store
from holdfast.sync.store import Store


class Loop(LoopView):
    """See `holdfast.Loop`; for plain functions. Parallel steps are executed in order."""

    def __init__(
        self,
        request: Any,
        *,
        store: Store | None = None,
        thread_id: str | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        terms = loop_terms(options)
        self._hold(_core(terms, store, thread_id, first_snapshot(request, terms), "new"))

    @classmethod
    def from_dict(
        cls,
        snapshot: Mapping[str, Any] | Snapshot,
        *,
        store: Store | None = None,
        thread_id: str | None = None,
        **options: Unpack[LoopOptions],
    ) -> Self:
        """See `holdfast.Loop.from_dict`."""
        terms = loop_terms(options)
        return cls._holding(_core(terms, store, thread_id, loaded(snapshot, terms, "the given snapshot"), "given"))

    @classmethod
    def resume(cls, store: Store, thread_id: str, *, drive: bool = True, **options: Unpack[LoopOptions]) -> Self | None:
        """See `holdfast.Loop.resume`."""
        terms = loop_terms(options)
        found = run_blocking(stored(checked_store(store), thread_id, terms))
        if found is None:
            return None
        loop = cls._holding(_core(terms, store, thread_id, found, "thread"))
        if drive:
            loop.drive()
        return loop

    def drive(self) -> list[Any]:
        """See `holdfast.Loop.drive`."""
        return run_blocking(self._core.drive())

    def step_once(self) -> None:
        """See `holdfast.Loop.step_once`."""
        run_blocking(self._core.step_once())

    def checkpoint(self) -> None:
        """See `holdfast.Loop.checkpoint`."""
        run_blocking(self._core.checkpoint())

    def call(self, tool: Any, *args: Any) -> Any:
        """See `holdfast.Loop.call`."""
        return run_blocking(self._core.call(tool, args))


def _core(terms: LoopTerms, store: Store | None, thread_id: str | None, snapshot: Snapshot, origin: Origin) -> LoopCore:
    return LoopCore(terms, inner_store(store), thread_id, snapshot, origin)


class SnapshotStore:
    """See `holdfast.SnapshotStore`."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._inner = AwaitableSnapshotStore(checked_store(store), thread_id)

    def save(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """See `holdfast.SnapshotStore.save`."""
        run_blocking(self._inner.save(snapshot))

    def save_atomic(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """See `holdfast.SnapshotStore.save_atomic`."""
        run_blocking(self._inner.save_atomic(snapshot))

    def load(self) -> dict[str, Any] | None:
        """See `holdfast.SnapshotStore.load`."""
        return run_blocking(self._inner.load())
