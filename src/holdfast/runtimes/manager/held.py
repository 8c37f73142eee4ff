"""The thread of a task that this process holds: saving, asking, and releasing it.

The checkpoint is written first and decides how the thread is released: if the process dies in between, the next one
releases the thread the same way. Steps belong to the save before them, so code that resumes from that save finds them.
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
"""The name of the request for approval."""
NEVER, TICK = datetime.min.replace(tzinfo=UTC), timedelta(microseconds=1)


def thread_id_of(*parts: Any) -> str:
    """Return the thread id of a task or session: its names joined by slashes. Slashes in names are escaped."""
    for name, part in zip(TASK_LABELS, parts, strict=False):
        if not isinstance(part, str) or not part:
            raise ConfigurationError(f"`{name}` must be a non-empty str, got {part!r}")
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def saved_at(state: ExecutionState) -> str:
    """Return what identifies a save of a task: its time, and its pending tool call."""
    pending = state.pending_tool_call
    return f"{state.checkpoint_time.isoformat()} {pending.id if pending else ''}"


class Held:
    """A claim on the thread of a task. `enter` takes it and `leave` releases it, in both worlds."""

    def __init__(
        self,
        store: Store,
        ids: tuple[str, ...],
        terms: Terms,
        shared: "dict[str, Held] | None" = None,
        check: Callable[[Driver], None] | None = None,
    ) -> None:
        """`shared` is where other code of this process finds the claim, to save under it.

        `check` raises if the thread changed since it was read. With `check`, a deleted thread is a `Conflict` and is
        not created again.
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
        """True once the task is complete: its thread is deleted on release."""

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return await self.leave(error)

    async def enter(self) -> None:
        """Claim the thread, and create it again if it was cleared. `RunCancelled` if the task was cancelled."""
        while True:
            try:
                self._block = claim(self._store, self._thread_id, self._terms)
                self.driver = Driver(await self._block.enter())
                if self.driver.run.status is not Status.COMPLETE:
                    return await self._start()
                self.driver.leave_untouched()  # its process died before deleting it, or is about to delete it
                await self._leave_block(None)
                await delete_ended(self._store, self._thread_id, Status.COMPLETE)
            except Deleted:
                if self._check is not None:
                    raise Conflict(f"task {self._thread_id!r} is complete or was cleared") from None
                with suppress(NotFound):  # another process revived it
                    await self._store.revive(self._thread_id)

    __aenter__ = enter

    async def _start(self) -> None:
        """Record the task the first time. Later steps belong to the last checkpoint, if there is one."""
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
            await self._leave_block(error)
            raise
        self._shared[self._thread_id] = self

    def _begin_scope(self, state: ExecutionState) -> None:
        """Make the following steps belong to this save. No two saves of a task have the same time."""
        self._saved_at = state.checkpoint_time
        self.driver.begin_scope(self.driver.key("saved", state.checkpoint_time.isoformat()))

    async def save(self, state: ExecutionState, details: Mapping[str, str]) -> ExecutionState:
        """Save a state as the next checkpoint and return it with its time. Withdraws the questions of earlier ones."""
        if self.is_cleared:
            raise Conflict(
                f"task {self._thread_id!r} is complete, so its checkpoints are deleted; to start it again, save it"
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
        """Return the user's answer; empty if the state needs none. Suspends the run until there is an answer."""
        if not state.needs_user_input:
            return ""
        pending = state.pending_tool_call
        payload = {"agent": state.agent_name, "tool_call": pending.to_dict() if pending else {}}
        key = self.driver.key(QUESTION, saved_at(state))  # by the save: steps of a callback are checkpoints too
        answer = await self.driver.ask(key, QUESTION, payload, {"choices": (), "deadline": None, "default": None})
        return "" if answer.value is None else str(answer.value)

    async def clear(self) -> None:
        """Complete the task. Its checkpoints are deleted on release."""
        await self.driver.run.complete()
        self.is_cleared = True

    async def leave(self, error: BaseException | None = None) -> bool:
        """Release the thread with the status of its last checkpoint. True if it waits for an answer."""
        self._shared.pop(self._thread_id, None)
        if error is None:
            try:
                await self._settle()
            except BaseException as stopped:
                if await self._leave_block(stopped):
                    return True
                raise
        return await self._leave_block(error)

    async def _settle(self) -> None:
        saved = self._saved
        if saved is not None and not self.is_cleared:
            if saved.phase == Phase.ERROR:
                await self.driver.run.fail(saved.error)
            else:
                await self.user_input(saved)

    async def _leave_block(self, error: BaseException | None) -> bool:
        """Leave the block of the claim. True if the run waits: its suspension is not an error."""
        try:
            await self._block.leave(error)
        except Suspended:
            return True
        if self.is_cleared:
            await delete_ended(self._store, self._thread_id, Status.COMPLETE)
        return False
