"""`Loop`: plan, execute, observe, reflect. And `SnapshotStore`, for loops that you drive yourself."""

from collections.abc import Mapping
from typing import Any, Self, Unpack

from holdfast.records.errors import ConfigurationError
from holdfast.records.loop import LoopState, Snapshot
from holdfast.runs.driver import Store, checked_store, store_finder
from holdfast.runtimes.loop.core import LoopCore, first_snapshot, stored
from holdfast.runtimes.loop.loading import loaded
from holdfast.runtimes.loop.options import LoopOptions, loop_terms


class LoopView:
    """The part of a loop that both worlds share and that needs no I/O."""

    _core: LoopCore

    def _hold(self, core: LoopCore) -> None:
        self._core = core
        core.facade = self

    @classmethod
    def _holding(cls, core: LoopCore) -> Self:
        loop = cls.__new__(cls)
        cls._hold(loop, core)
        return loop

    def __repr__(self) -> str:
        now, screen = self._core.snapshot, self._core.terms.screen
        return f"Loop({screen.masked(now.request)!r}, state={now.state}, cursor={now.cursor} of {len(now.plan)})"

    @property
    def thread_id(self) -> str:
        """The id of the loop's thread."""
        return self._core.thread_id

    @property
    def request(self) -> Any:
        """The request the loop works on."""
        return self._core.snapshot.request

    @property
    def state(self) -> LoopState:
        """The state that the loop executes next."""
        return self._core.state

    @property
    def plan(self) -> list[Any]:
        """A copy of the plan's steps."""
        return list(self._core.snapshot.plan)

    @property
    def cursor(self) -> int:
        """The index of the next step in the plan."""
        return self._core.snapshot.cursor

    @property
    def results(self) -> list[Any]:
        """A copy of the results kept so far, over all plans."""
        return list(self._core.snapshot.results)

    @property
    def context(self) -> dict[str, Any]:
        """The context of the session. Handlers may change it; the next checkpoint saves it."""
        return self._core.snapshot.context

    def snapshot(self) -> Snapshot:
        """Return the current snapshot without secrets. `SecretInState` if one must be refused."""
        return self._core.screened()


class Loop(LoopView):
    """Plans, executes the steps of the plan, observes their results, reflects. Any process can resume it.

    Handlers: `plan(loop)` returns a list of steps, `execute(loop, step)` returns a result, `observe(loop, step,
    result)` returns what to keep of it, and `reflect(loop)` returns the next `LoopState`, or None for the usual one.
    `plan` and `execute` are required. A step that is a list is executed in parallel. A checkpoint is written after
    PLANNING, OBSERVING, REFLECTING and at the end; `every` reduces that to every n transitions, or to an interval.
    """

    def __init__(
        self,
        request: Any,
        *,
        store: Store | None = None,
        thread_id: str | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        terms = loop_terms(options)
        self._hold(LoopCore(terms, store_finder(store), thread_id, first_snapshot(request, terms), "new"))

    @classmethod
    def from_dict(
        cls,
        snapshot: Mapping[str, Any] | Snapshot,
        *,
        store: Store | None = None,
        thread_id: str | None = None,
        **options: Unpack[LoopOptions],
    ) -> Self:
        """Create a loop from a snapshot that you stored. `IncompatibleCheckpoint` if it has another version."""
        terms = loop_terms(options)
        return cls._holding(
            LoopCore(terms, store_finder(store), thread_id, loaded(snapshot, terms, "the given snapshot"), "given")
        )

    @classmethod
    async def resume(
        cls, store: Store, thread_id: str, *, drive: bool = True, **options: Unpack[LoopOptions]
    ) -> Self | None:
        """Load the loop of a thread and drive it to its end. Returns None if there is no such loop.

        `IncompatibleCheckpoint` if another `version` wrote it and `migrations` has no function to upgrade it. With
        `drive=False` the loop is only loaded.
        """
        terms = loop_terms(options)
        found = await stored(checked_store(store), thread_id, terms)
        if found is None:
            return None
        loop = cls._holding(LoopCore(terms, store_finder(store), thread_id, found, "thread"))
        if drive:
            await loop.drive()
        return loop

    async def drive(self) -> list[Any]:
        """Drive the loop to COMPLETE or FAILED, and return its results. Resumes an existing thread.

        An error in a handler is raised and fails the thread; driving it again resumes from its last checkpoint.
        """
        return await self._core.drive()

    async def step_once(self) -> None:
        """Make one transition. Only effects of tools write anything; call `checkpoint` to save the loop."""
        await self._core.step_once()

    async def checkpoint(self) -> None:
        """Write a checkpoint of the loop. If the loop has ended, its thread ends too."""
        await self._core.checkpoint()

    async def call(self, tool: Any, *args: Any) -> Any:
        """Call a tool of the loop from within a handler. `tool` is its name, the tool, or its function.

        A deferred tool returns a `Deferred` immediately.
        """
        return await self._core.call(tool, args)


class SnapshotStore:
    """Stores the snapshots of a loop that you drive yourself, in one thread of a store."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store = checked_store(store)
        self._thread_id = thread_id

    async def save(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """Write a snapshot as the next checkpoint of the thread, atomically."""
        fields = snapshot.to_dict() if isinstance(snapshot, Snapshot) else snapshot
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"`snapshot` must be a Snapshot or its dict, got {snapshot!r}")
        await self._store.save(self._thread_id, dict(fields), metadata={"state": fields.get("state")})

    async def save_atomic(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """Do the same as `save`, which is always atomic."""
        await self.save(snapshot)

    async def load(self) -> dict[str, Any] | None:
        """Return the newest snapshot as a dict; None if there is none."""
        newest = await self._store.latest(self._thread_id)
        return None if newest is None else dict(newest.state)
