"""The eight hooks of an agent loop. The table in `config.py` decides which of them save a checkpoint."""

from typing import Any

from msgspec.structs import replace

from holdfast.records.arguments import whole_number
from holdfast.runtimes.manager.config import HOOKS
from holdfast.runtimes.manager.state import AgentState, ExecutionState, PendingToolCall, checked_state
from holdfast.runtimes.manager.tasks import Tasks


class CheckpointHooks:
    """Call these from your agent loop; the configuration decides which of them save. See `manager.hooks`."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def before_llm_call(self, state: ExecutionState) -> None:
        """Call this before each call of the model."""
        await self._save("before_llm_call", _without_pending_call(state))

    async def after_llm_call(self, state: ExecutionState) -> None:
        """Call this after each answer of the model."""
        await self._save("after_llm_call", _without_pending_call(state))

    async def before_tool(self, state: ExecutionState, name: str) -> None:
        """Call this before each tool call."""
        await self._save("before_tool", _without_pending_call(state), tool=name)

    async def after_tool(self, state: ExecutionState, name: str) -> None:
        """Call this after each tool call."""
        await self._save("after_tool", _without_pending_call(state), tool=name)

    async def iteration_end(self, state: ExecutionState, iteration: int) -> None:
        """Call this at the end of each iteration of the loop, counted from 1."""
        state, number = _without_pending_call(state), whole_number(iteration, "iteration")
        state = state.with_agent_state(replace(state.agent_state or AgentState(), iteration=number))
        await self._save("iteration_end", state, number)

    async def tool_approval_required(self, state: ExecutionState, pending: PendingToolCall) -> None:
        """Call this if a tool call needs approval: the task waits for `manager.resume` or an answer in the inbox."""
        await self._save("tool_approval_required", _without_pending_call(state).with_pending_tool_call(pending))

    async def error(self, state: ExecutionState, error: BaseException | str) -> None:
        """Call this if the execution failed: the task fails with this error, and `manager.resume` can resume it."""
        await self._save("error", _without_pending_call(state).with_error(error))

    async def complete(self, app: str, user: str, session: str, task: str) -> None:
        """Call this when the task is complete: its checkpoints are deleted."""
        if self._tasks.config.enabled:
            await self._tasks.clear(app, user, session, task)
        else:
            self._tasks.warn_disabled()

    async def _save(self, name: str, state: ExecutionState, iteration: int | None = None, **details: Any) -> None:
        tasks, hook = self._tasks, HOOKS[name]
        if not tasks.config.enabled:
            tasks.warn_disabled()
        elif tasks.config.should_checkpoint(name, iteration) and hook.phase and hook.checkpoint_type:
            await tasks.save(state.with_phase(hook.phase), hook.checkpoint_type, details)


def _without_pending_call(state: ExecutionState) -> ExecutionState:
    """Return the state without its pending tool call; `ConfigurationError` if it is not a state."""
    return checked_state(state).with_pending_tool_call(None)
