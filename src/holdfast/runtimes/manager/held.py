"""The thread of one task, held by this process: what is saved in it, and how it is left.

The checkpoint is the decision, and it is written first: a thread whose process dies before it is left is left by the
next one, in the same way. Steps belong to the save before them: code that starts again from that save finds them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from holdfast.codec import encode
from holdfast.records.errors import ConfigurationError, Conflict, Deleted, NotFound, Suspended
from holdfast.records.times import from_microseconds
from holdfast.records.words import Phase, Status
from holdfast.runs.driver import Driver, Store, Terms, claim, delete_ended
from holdfast.runtimes.manager.state import ExecutionState

TASK_LABELS = ("app", "user", "session", "task")
QUESTION = "tool_approval"
"""The name of the request that a task waits for."""
NEVER, TICK = datetime.min.replace(tzinfo=UTC), timedelta(microseconds=1)


def thread_id_of(*parts: Any) -> str:
    """The thread of a task or session: its names with slashes between them, which are escaped within a name."""
    for name, part in zip(TASK_LABELS, parts, strict=False):
        if not isinstance(part, str) or not part:
            raise ConfigurationError(f"{name} must be a non-empty str, got {part!r}")
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def saved_at(state: ExecutionState) -> str:
    """Return what tells one save of a task from the others: its time, and the tool call that waits."""
    pending = state.pending_tool_call
    return f"{state.checkpoint_time.isoformat()} {pending.id if pending else ''}"


class Held:
    """A claim on the thread of a task, for a block. `enter` takes it, `leave` releases it; both worlds call them."""

    def __init__(
        self,
        store: Store,
        ids: tuple[str, ...],
        terms: Terms,
        shared: "dict[str, Held] | None" = None,
        check: Callable[[Driver], None] | None = None,
    ) -> None:
        """`shared`: where other code of this process finds the claim, to save under it.

        `check`: raises if the thread is not as it was found; a deleted one is then a `Conflict`, and not made again.
        """
        self._thread_id = thread_id_of(*ids)
        self._store = store
        self._ids = ids
        self._terms = terms
        self._shared = {} if shared is None else shared
        self._check = check
        self._saved: ExecutionState | None = None
        self._saved_at = NEVER
        self.loaded: ExecutionState | None = None
        """The last checkpoint before this claim."""
        self.is_cleared = False
        """True once the task is complete: its thread is deleted when it is left."""

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return await self.leave(error)

    async def enter(self) -> None:
        """Claim the thread; one that was cleared is made again. `RunCancelled` if the task was cancelled."""
        while True:
            try:
                self._block = claim(self._store, self._thread_id, self._terms)
                self.driver = Driver(await self._block.enter())
                if self.driver.run.status is not Status.COMPLETE:
                    return await self._started()
                self.driver.leave_untouched()  # its process died before it could delete it, or is about to
                await self._left(None)
                await delete_ended(self._store, self._thread_id, Status.COMPLETE)
            except Deleted:
                if self._check is not None:
                    raise Conflict(f"task {self._thread_id!r} is complete, or was cleared") from None
                with suppress(NotFound):  # another process revived it
                    await self._store.revive(self._thread_id)

    __aenter__ = enter

    async def _started(self) -> None:
        """Note whose thread it is, the first time. Steps belong to the last checkpoint, if there is one."""
        labels = dict(zip(TASK_LABELS, self._ids, strict=True))
        try:
            if self._check is not None:
                self._check(self.driver)
            await self.driver.start(f"manager:{self._ids[0]}", encode(list(self._ids)), "ids", labels)
            if (state := self.driver.run.state) != {}:
                self.loaded = ExecutionState.from_dict(state)
                self._begin_scope(self.loaded)
        except BaseException as error:
            self.driver.leave_untouched()
            await self._left(error)
            raise
        self._shared[self._thread_id] = self

    def _begin_scope(self, state: ExecutionState) -> None:
        """Put the steps from now on under this save. No two saves of a task have the same time."""
        self._saved_at = state.checkpoint_time
        self.driver.begin_scope(self.driver.key("saved", state.checkpoint_time.isoformat()))

    async def save(self, state: ExecutionState, details: Mapping[str, str]) -> ExecutionState:
        """Save a state as the next checkpoint, and return it with its time. Questions of earlier ones are withdrawn."""
        if self.is_cleared:
            raise Conflict(
                f"task {self._thread_id!r} is complete, and nothing of it is kept; to start it again, save it"
                " after its callback or its `hold` block has ended"
            )
        metadata: dict[str, Any] = {**details, "phase": str(state.phase), "checkpoint_type": str(state.checkpoint_type)}
        metadata["iteration"] = state.agent_state.iteration if state.agent_state else 0
        driver, self._saved_at = self.driver, max(from_microseconds(self.driver.ports.now()), self._saved_at + TICK)
        state = replace(state, checkpoint_time=self._saved_at)
        await driver.withdraw(QUESTION, "the task was saved again")
        await driver.run.checkpoint(state.to_dict(), phase=state.phase, cause=state.checkpoint_type, metadata=metadata)
        self._begin_scope(state)
        self._saved = state
        return state

    async def user_input(self, state: ExecutionState) -> str:
        """What the user said to this state. Suspends the run, so that the thread waits, while there is no answer."""
        if not state.needs_user_input:
            return ""
        pending = state.pending_tool_call
        payload = {"agent": state.agent_name, "tool_call": pending.to_dict() if pending else {}}
        key = self.driver.key(QUESTION, saved_at(state))  # steps of a callback are checkpoints too
        answer = await self.driver.ask(key, QUESTION, payload, {"choices": (), "deadline": None, "default": None})
        return "" if answer.value is None else str(answer.value)

    async def clear(self) -> None:
        """The task is complete: nothing of it is kept."""
        await self.driver.run.complete()
        self.is_cleared = True

    async def leave(self, error: BaseException | None = None) -> bool:
        """Release the thread, with the status that its last checkpoint calls for. True if it waits for an answer."""
        self._shared.pop(self._thread_id, None)
        if error is None:
            try:
                await self._settle()
            except BaseException as stopped:
                if await self._left(stopped):
                    return True
                raise
        return await self._left(error)

    async def _settle(self) -> None:
        saved = self._saved
        if saved is not None and not self.is_cleared:
            if saved.phase == Phase.ERROR:
                await self.driver.run.fail(saved.error)
            else:
                await self.user_input(saved)

    async def _left(self, error: BaseException | None) -> bool:
        """Leave the block of the claim. True if the run waits: then the error is how it stopped, and no failure."""
        try:
            await self._block.leave(error)
        except Suspended:
            return True
        if self.is_cleared:
            await delete_ended(self._store, self._thread_id, Status.COMPLETE)
        return False
