"""The blocking checkpoint manager: the same runtime over blocking ports, its methods one line each."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.ports import run_blocking
from holdfast.runtimes.manager.config import CheckpointConfig
from holdfast.runtimes.manager.events import Event
from holdfast.runtimes.manager.held import Held
from holdfast.runtimes.manager.hooks import CheckpointHooks as AwaitableHooks
from holdfast.runtimes.manager.manager import ManagerMethods
from holdfast.runtimes.manager.state import (
    Checkpointable,
    CheckpointStats,
    ExecutionState,
    PendingToolCall,
    RecoveryReport,
)
from holdfast.runtimes.manager.tasks import ResumeCallback, Tasks
from holdfast.sync.functions import inner_store
from holdfast.sync.store import Store


class CheckpointHooks:
    """See `holdfast.CheckpointHooks`: the same methods, blocking."""

    def __init__(self, hooks: AwaitableHooks) -> None:
        self._hooks = hooks

    def before_llm_call(self, state: ExecutionState) -> None:
        """See `holdfast.CheckpointHooks.before_llm_call`."""
        run_blocking(self._hooks.before_llm_call(state))

    def after_llm_call(self, state: ExecutionState) -> None:
        """See `holdfast.CheckpointHooks.after_llm_call`."""
        run_blocking(self._hooks.after_llm_call(state))

    def before_tool(self, state: ExecutionState, name: str) -> None:
        """See `holdfast.CheckpointHooks.before_tool`."""
        run_blocking(self._hooks.before_tool(state, name))

    def after_tool(self, state: ExecutionState, name: str) -> None:
        """See `holdfast.CheckpointHooks.after_tool`."""
        run_blocking(self._hooks.after_tool(state, name))

    def iteration_end(self, state: ExecutionState, iteration: int) -> None:
        """See `holdfast.CheckpointHooks.iteration_end`."""
        run_blocking(self._hooks.iteration_end(state, iteration))

    def tool_approval_required(self, state: ExecutionState, pending: PendingToolCall) -> None:
        """See `holdfast.CheckpointHooks.tool_approval_required`."""
        run_blocking(self._hooks.tool_approval_required(state, pending))

    def error(self, state: ExecutionState, error: BaseException | str) -> None:
        """See `holdfast.CheckpointHooks.error`."""
        run_blocking(self._hooks.error(state, error))

    def complete(self, app: str, user: str, session: str, task: str) -> None:
        """See `holdfast.CheckpointHooks.complete`."""
        run_blocking(self._hooks.complete(app, user, session, task))


class TaskBlock:
    """`with manager.hold(app, user, session, task)`."""

    def __init__(self, block: Held) -> None:
        self._block = block

    def __enter__(self) -> None:
        run_blocking(self._block.enter())

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return run_blocking(self._block.leave(error))


class CheckpointManager:
    """See `holdfast.CheckpointManager`: the same methods, blocking."""

    def __init__(
        self,
        config: CheckpointConfig | Mapping[str, Any] | str | Path | None = None,
        store: Store | None = None,
        *,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        max_attempts: int = 3,
    ) -> None:
        self._manager = ManagerMethods(Tasks(config, inner_store(store), lease, wait, max_attempts))
        self.hooks = CheckpointHooks(self._manager.hooks)
        """See `holdfast.CheckpointManager.hooks`."""
        self.config = self._manager.config
        """See `holdfast.CheckpointManager.config`."""
        self.enabled = self._manager.enabled
        """See `holdfast.CheckpointManager.enabled`."""

    def thread_id(self, app: str, user: str, session: str, task: str) -> str:
        """See `holdfast.CheckpointManager.thread_id`."""
        return self._manager.thread_id(app, user, session, task)

    def on_resume(self, callback: ResumeCallback) -> ResumeCallback:
        """See `holdfast.CheckpointManager.on_resume`."""
        return self._manager.on_resume(callback)

    def register(self, name: str, agent: Checkpointable) -> None:
        """See `holdfast.CheckpointManager.register`."""
        self._manager.register(name, agent)

    def hold(self, app: str, user: str, session: str, task: str) -> TaskBlock:
        """See `holdfast.CheckpointManager.hold`."""
        return TaskBlock(self._manager.hold(app, user, session, task))

    def save(self, state: ExecutionState) -> ExecutionState:
        """See `holdfast.CheckpointManager.save`."""
        return run_blocking(self._manager.save(state))

    def load(self, app: str, user: str, session: str, task: str) -> ExecutionState | None:
        """See `holdfast.CheckpointManager.load`."""
        return run_blocking(self._manager.load(app, user, session, task))

    def clear(self, app: str, user: str, session: str, task: str) -> None:
        """See `holdfast.CheckpointManager.clear`."""
        run_blocking(self._manager.clear(app, user, session, task))

    def pending(self, app: str, user: str | None = None) -> list[ExecutionState]:
        """See `holdfast.CheckpointManager.pending`."""
        return run_blocking(self._manager.pending(app, user))

    def recover(self, app: str) -> RecoveryReport:
        """See `holdfast.CheckpointManager.recover`."""
        return run_blocking(self._manager.recover(app))

    def resume(self, app: str, user: str, session: str, task: str, user_input: str = "") -> Any:
        """See `holdfast.CheckpointManager.resume`."""
        return run_blocking(self._manager.resume(app, user, session, task, user_input))

    def cancel(self, app: str, user: str, session: str, task: str) -> None:
        """See `holdfast.CheckpointManager.cancel`."""
        run_blocking(self._manager.cancel(app, user, session, task))

    def stats(self, app: str) -> CheckpointStats:
        """See `holdfast.CheckpointManager.stats`."""
        return run_blocking(self._manager.stats(app))

    def add_event(self, app: str, user: str, session: str, event: Event, key: str | None = None) -> None:
        """See `holdfast.CheckpointManager.add_event`."""
        run_blocking(self._manager.add_event(app, user, session, event, key))

    def events(self, app: str, user: str, session: str) -> list[Event]:
        """See `holdfast.CheckpointManager.events`."""
        return run_blocking(self._manager.events(app, user, session))
