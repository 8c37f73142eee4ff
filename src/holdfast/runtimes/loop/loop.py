"""`Loop`: plan, execute, observe, reflect. And `SnapshotStore`, for loops that their program drives itself."""

from collections.abc import Mapping
from typing import Any, Self, Unpack

from holdfast.records.errors import ConfigurationError
from holdfast.records.loop import LoopState, Snapshot
from holdfast.runs.driver import Store, checked_store, store_finder
from holdfast.runtimes.loop.core import LoopCore, first_snapshot, stored
from holdfast.runtimes.loop.loading import loaded
from holdfast.runtimes.loop.options import LoopOptions, loop_terms


class LoopView:
    """What both worlds know of a loop without I/O."""

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
        """The thread that the loop is kept in."""
        return self._core.thread_id

    @property
    def request(self) -> Any:
        """What was asked for."""
        return self._core.snapshot.request

    @property
    def state(self) -> LoopState:
        """What the loop does next."""
        return self._core.state

    @property
    def plan(self) -> list[Any]:
        """The steps of the plan, as a copy."""
        return list(self._core.snapshot.plan)

    @property
    def cursor(self) -> int:
        """The index of the next step of the plan."""
        return self._core.snapshot.cursor

    @property
    def results(self) -> list[Any]:
        """The results that were kept so far, over all plans, as a copy."""
        return list(self._core.snapshot.results)

    @property
    def context(self) -> dict[str, Any]:
        """The context of the session. Handlers may change it; the next checkpoint keeps it."""
        return self._core.snapshot.context

    def snapshot(self) -> Snapshot:
        """Return the loop as it may be written; raise `SecretInState` for what may not."""
        return self._core.written()


class Loop(LoopView):
    """Plans, executes the steps of the plan, observes their results, reflects. Any process can resume it.

    Handlers: `plan(loop)` returns a list of steps, `execute(loop, step)` a result, `observe(loop, step, result)` what
    is kept of it, `reflect(loop)` the next `LoopState` or None for the usual one. `plan` and `execute` are needed. A
    step that is a list is executed in parallel. A checkpoint is written after PLANNING, OBSERVING, REFLECTING and at
    the end; `every` n transitions or every so much time, if less is enough.
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
        """Make a loop of a snapshot that you kept. `IncompatibleCheckpoint` if it has another version."""
        terms = loop_terms(options)
        return cls._holding(
            LoopCore(terms, store_finder(store), thread_id, loaded(snapshot, terms, "the given snapshot"), "given")
        )

    @classmethod
    async def resume(
        cls, store: Store, thread_id: str, *, drive: bool = True, **options: Unpack[LoopOptions]
    ) -> Self | None:
        """Load the loop of a thread and drive it to its end; None if there is none.

        `IncompatibleCheckpoint` if it was written by another `version`, unless `migrations` has a function that
        upgrades that one. With `drive=False` the loop is only loaded.
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
        """Drive the loop to COMPLETE or FAILED, and return its results. A thread that exists is resumed.

        An error of a handler is raised: the thread is failed then, and driving it again starts at its last checkpoint.
        """
        return await self._core.drive()

    async def step_once(self) -> None:
        """Make one transition. Nothing is written but what the effects of tools need: see `checkpoint`."""
        await self._core.step_once()

    async def checkpoint(self) -> None:
        """Write a checkpoint of the loop as it is now. Of a loop that is over, its thread ends too."""
        await self._core.checkpoint()

    async def call(self, tool: Any, *args: Any) -> Any:
        """Call a tool of the loop, from within a handler: by its name, or the tool or function itself.

        A deferred tool returns a `Deferred` at once.
        """
        return await self._core.call(tool, args)


class SnapshotStore:
    """One thread of a store that keeps the snapshots of a loop which you drive yourself."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store = checked_store(store)
        self._thread_id = thread_id

    async def save(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """Write a snapshot as the next checkpoint of the thread, all or nothing."""
        fields = snapshot.to_dict() if isinstance(snapshot, Snapshot) else snapshot
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"snapshot must be a Snapshot or its dict, got {snapshot!r}")
        await self._store.save(self._thread_id, dict(fields), metadata={"state": fields.get("state")})

    async def save_atomic(self, snapshot: Snapshot | Mapping[str, Any]) -> None:
        """Write a snapshot: every `save` is atomic."""
        await self.save(snapshot)

    async def load(self) -> dict[str, Any] | None:
        """Return the newest snapshot as a dict; None if there is none."""
        newest = await self._store.latest(self._thread_id)
        return None if newest is None else dict(newest.state)
