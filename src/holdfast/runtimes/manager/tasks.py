"""The tasks of an agent server, shared by the parts of a manager: save, hold and clear them."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.ports import logger
from holdfast.records.arguments import whole_number
from holdfast.records.json_struct import check_loadable
from holdfast.records.words import Cause
from holdfast.runs.driver import Driver, Store, Terms, ports_of
from holdfast.runtimes.manager.config import CheckpointConfig
from holdfast.runtimes.manager.held import Held, thread_id_of
from holdfast.runtimes.manager.state import AgentState, Checkpointable, ExecutionState, checked_state

ResumeCallback = Callable[[ExecutionState, str], Any]


class Tasks:
    """The tasks of an agent server. It looks up its store when it is used."""

    def __init__(
        self,
        config: CheckpointConfig | Mapping[str, Any] | str | Path | None,
        store: Callable[[], Store],
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        max_attempts: int = 3,
    ) -> None:
        self.config = CheckpointConfig.load({} if config is None else config)
        self.terms = Terms(lease, wait)
        self.max_attempts = whole_number(max_attempts, "max_attempts", least=1)
        self._find_store = store
        self.callback: ResumeCallback | None = None
        self.agents: dict[str, Checkpointable] = {}
        self.held: dict[str, Held] = {}
        """The tasks that this process holds, by thread id."""
        self._has_warned = False

    @property
    def store(self) -> Store:
        """The store of the tasks."""
        return self._find_store()

    def warn_disabled(self) -> None:
        """Log once that nothing is saved."""
        if not self._has_warned:
            self._has_warned = True
            logger().warning("checkpointing is disabled: hooks save nothing; set enabled to true in the configuration")

    def hold(self, ids: tuple[str, ...], terms: Terms, check: Callable[[Driver], None] | None = None) -> Held:
        """Return a claim on a task. Saves of this process are written under it while it is held."""
        return Held(self.store, ids, terms, self.held, check)

    # Saving

    async def save(
        self, state: ExecutionState, checkpoint_type: Cause = Cause.MANUAL, details: Mapping[str, str] | None = None
    ) -> ExecutionState:
        """Save a state under the claim that this process holds, or under a claim for this save only."""
        state = await self._complete(state, checkpoint_type)
        ids = (state.app_name, state.user_id, state.session_id, state.task_id)
        held = self.held.get(thread_id_of(*ids))
        if held is not None:
            return await held.save(state, details or {})
        alone = Held(self.store, ids, self.terms)
        async with alone:
            try:
                state = await alone.save(state, details or {})
            except Exception:
                alone.driver.leave_untouched()  # the save failed, not the task
                raise
            alone.driver.leave_resumable()
        return state

    async def _complete(self, state: ExecutionState, checkpoint_type: Cause) -> ExecutionState:
        """Return the state to save, with its type and the agent's own state; checks that it can be loaded again."""
        state = checked_state(state).with_type(checkpoint_type)
        agent = self.agents.get(state.agent_name)
        if agent is not None:
            custom = await ports_of(self.store).call(agent.save_state)
            state = state.with_agent_state(replace(state.agent_state or AgentState(), custom=dict(custom)))
        check_loadable(state, "state")
        return state

    async def restore(self, state: ExecutionState) -> None:
        """Restore the own state of an agent."""
        agent = self.agents.get(state.agent_name)
        if agent is not None and state.agent_state is not None:
            await ports_of(self.store).call(agent.restore_state, state.agent_state.custom)

    async def clear(self, *ids: str) -> None:
        """Delete a task's checkpoints; if this process holds it, when it is released."""
        thread_id = thread_id_of(*ids)
        held = self.held.get(thread_id)
        await (self.store.delete(thread_id) if held is None else held.clear())
