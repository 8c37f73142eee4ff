"""The eight places of an agent loop at which a checkpoint may be taken. The table in `config.py` says which do."""

from typing import Any

from msgspec.structs import replace

from holdfast.records.arguments import whole_number
from holdfast.runtimes.manager.config import HOOKS
from holdfast.runtimes.manager.state import AgentState, ExecutionState, PendingToolCall, checked_state
from holdfast.runtimes.manager.tasks import Tasks


class CheckpointHooks:
    """Call these from your agent loop; each saves if the configuration says so. `manager.hooks` has them."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def before_llm_call(self, state: ExecutionState) -> None:
        """Call this before the model is called."""
        await self._save("before_llm_call", _at_work(state))

    async def after_llm_call(self, state: ExecutionState) -> None:
        """Call this after the model answered."""
        await self._save("after_llm_call", _at_work(state))

    async def before_tool(self, state: ExecutionState, name: str) -> None:
        """Call this before a tool is executed."""
        await self._save("before_tool", _at_work(state), tool=name)

    async def after_tool(self, state: ExecutionState, name: str) -> None:
        """Call this after a tool was executed."""
        await self._save("after_tool", _at_work(state), tool=name)

    async def iteration_end(self, state: ExecutionState, iteration: int) -> None:
        """Call this at the end of an iteration of the loop; they are counted from 1."""
        state, number = _at_work(state), whole_number(iteration, "iteration")
        state = state.with_agent_state(replace(state.agent_state or AgentState(), iteration=number))
        await self._save("iteration_end", state, number)

    async def tool_approval_required(self, state: ExecutionState, pending: PendingToolCall) -> None:
        """A tool call needs a person's approval: the task waits for `manager.resume`, or an answer in the inbox."""
        await self._save("tool_approval_required", _at_work(state).with_pending_tool_call(pending))

    async def error(self, state: ExecutionState, error: BaseException | str) -> None:
        """The execution failed: the task is failed, with the error as its reason, and can be resumed by hand."""
        await self._save("error", _at_work(state).with_error(error))

    async def complete(self, app: str, user: str, session: str, task: str) -> None:
        """The task is complete: its checkpoints are removed."""
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


def _at_work(state: ExecutionState) -> ExecutionState:
    """Return the state without a pending tool call; `ConfigurationError` if it is no state."""
    return checked_state(state).with_pending_tool_call(None)
