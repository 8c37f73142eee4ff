"""`CheckpointManager`: save the tasks of an agent server, and resume them after a crash or an answer."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from warnings import warn

from holdfast.records.arguments import function_or_none
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import ConfigurationError, Conflict, HoldfastWarning
from holdfast.records.json_struct import check_loadable
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.runs.driver import UNREADABLE, Store, ports_of, store_finder
from holdfast.runtimes.manager.config import CheckpointConfig
from holdfast.runtimes.manager.events import Event, SessionEvents
from holdfast.runtimes.manager.held import Held, thread_id_of
from holdfast.runtimes.manager.hooks import CheckpointHooks
from holdfast.runtimes.manager.recovery import PENDING, Recoverer, pending_threads
from holdfast.runtimes.manager.state import Checkpointable, CheckpointStats, ExecutionState, RecoveryReport
from holdfast.runtimes.manager.tasks import ResumeCallback, Tasks

ZERO = timedelta(0)


class ManagerMethods:
    """The awaitable methods of a manager. The blocking manager steps them."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.hooks = CheckpointHooks(tasks)
        """The hooks to call from the agent loop."""
        self.config = tasks.config
        """The settings of the manager."""
        self.enabled = tasks.config.enabled
        """True if hooks save."""

    def thread_id(self, app: str, user: str, session: str, task: str) -> str:
        """Return the id of a task's thread in the store."""
        return thread_id_of(app, user, session, task)

    def on_resume(self, callback: ResumeCallback) -> ResumeCallback:
        """Set the function that resumes a task: `callback(state, user_input)`. Can be used as a decorator."""
        if function_or_none(callback, "callback") is None:
            raise ConfigurationError("`callback` must be the function that resumes a task, got None")
        self._tasks.callback = callback
        return callback

    def register(self, name: str, agent: Checkpointable) -> None:
        """Store an agent's own state too: every save of a state with this `agent_name` calls `agent.save_state()`.

        Before such a task is resumed, `agent.restore_state` gets the saved state.
        """
        if not isinstance(agent, Checkpointable):
            raise ConfigurationError(
                f"`agent` must have the methods save_state() and restore_state(state), got {agent!r}"
            )
        self._tasks.agents[name] = agent

    def hold(self, app: str, user: str, session: str, task: str) -> Held:
        """Hold a task while this process works on it: `async with manager.hold(app, user, session, task)`.

        Saves and hooks of the task write under this claim, and no other process can resume it meanwhile. If this
        process dies, the task can be recovered immediately. Without `hooks.complete` the block leaves the task idle.
        """
        return self._tasks.hold((app, user, session, task), self._tasks.terms)

    async def save(self, state: ExecutionState) -> ExecutionState:
        """Save a state as a checkpoint of type manual, and return it with its time. Durable when this returns.

        `RunCancelled` if the task was cancelled, `LeaseHeld` if another process holds it.
        """
        return await self._tasks.save(state)

    async def load(self, app: str, user: str, session: str, task: str) -> ExecutionState | None:
        """Return the last checkpoint of a task; None if it has none or is complete."""
        return _state_in(await self._tasks.store.latest(thread_id_of(app, user, session, task)))

    async def clear(self, app: str, user: str, session: str, task: str) -> None:
        """Delete all checkpoints of a task. A later save starts a new history."""
        await self._tasks.clear(app, user, session, task)

    async def pending(self, app: str, user: str | None = None) -> list[ExecutionState]:
        """List the states of an app's tasks, or of one user's, that are working or waiting for input.

        Unreadable tasks are left out, with a `HoldfastWarning`.
        """
        states, damaged = await self._pending(app, user)
        if damaged:
            text = "some pending tasks cannot be read and are not listed; run `holdfast verify` to see why: "
            warn(text + ", ".join(damaged), HoldfastWarning, stacklevel=2)
        return states

    async def _pending(self, app: str, user: str | None) -> tuple[list[ExecutionState], list[str]]:
        """Return the states of the pending tasks, and the thread ids of the unreadable ones."""
        infos = await pending_threads(self._tasks.store, app, user)
        found = await ports_of(self._tasks.store).gather([self._pending_state(info.thread_id) for info in infos])
        states = [each for each in found if isinstance(each, ExecutionState)]
        return states, [each for each in found if isinstance(each, str)]

    async def _pending_state(self, thread_id: str) -> ExecutionState | str | None:
        """Return the state of a task; None if it is no longer pending, the thread id if it cannot be read."""
        try:
            latest = await self._tasks.store.latest(thread_id)
            return _state_in(latest) if latest is not None and latest.status in PENDING else None
        except UNREADABLE:
            return thread_id

    async def recover(self, app: str) -> RecoveryReport:
        """Resume the tasks of dead processes with the resume callback. Call this at start-up.

        Working and answered tasks are resumed if `auto_resume` is set. Tasks that wait for input keep waiting, unless
        `auto_resume_hitl` is set. Expired tasks fail. Only one process resumes each task.
        """
        return await Recoverer(self._tasks).recover(await pending_threads(self._tasks.store, app))

    async def resume(self, app: str, user: str, session: str, task: str, user_input: str = "") -> Any:
        """Resume a task with the user's input and return the callback's result; None if the task waits again.

        The input is stored and used once: `Conflict` if the task already has its input or cannot be resumed.
        """
        return await Recoverer(self._tasks).resume((app, user, session, task), user_input)

    async def cancel(self, app: str, user: str, session: str, task: str) -> None:
        """Cancel a task: a process that holds it gets `RunCancelled`. Its history is kept."""
        await self._tasks.store.cancel(thread_id_of(app, user, session, task))

    async def stats(self, app: str) -> CheckpointStats:
        """Count the pending checkpoints of an app by kind, with their ages."""
        states, damaged = await self._pending(app, None)
        now = from_microseconds(ports_of(self._tasks.store).now())
        ages = [max(now - state.checkpoint_time, ZERO) for state in states]
        waiting = sum(state.needs_user_input for state in states)
        return CheckpointStats(
            total=len(states),
            working=len(states) - waiting,
            input_required=waiting,
            expired=sum(age > self.config.recovery_timeout for age in ages),
            oldest_age=max(ages, default=ZERO),
            average_age=sum(ages, ZERO) / max(len(ages), 1),
            damaged=len(damaged),
        )

    async def add_event(self, app: str, user: str, session: str, event: Event, key: str | None = None) -> None:
        """Append an event to a session. Durable when this returns. With a key it is appended once.

        `KeyReused` if the session has another event under this key.
        """
        if not isinstance(event, Event):
            raise ConfigurationError(f"`event` must be a holdfast.Event, got {event!r}")
        check_loadable(event, "event")
        thread_id, store = thread_id_of(app, user, session), self._tasks.store
        with suppress(Conflict):  # the session already has events
            labels = {"app": app, "user": user, "session": session}
            await store.save(thread_id, {"events": []}, labels=labels, expect_seq=0)
        await store.append(thread_id, "events", event.to_dict(), idempotency_key=key)

    async def events(self, app: str, user: str, session: str) -> list[Event]:
        """List the events of a session, the oldest first."""
        latest = await self._tasks.store.latest(thread_id_of(app, user, session))
        return [] if latest is None else SessionEvents.from_dict(latest.state).events


def _state_in(latest: Checkpoint | None) -> ExecutionState | None:
    """Return the state in a checkpoint; None if it has none or is complete."""
    if latest is None or latest.state == {} or latest.status is Status.COMPLETE:
        return None
    return ExecutionState.from_dict(latest.state)


class CheckpointManager(ManagerMethods):
    """Checkpoints and recovery for an agent server: each task is a thread, found by app, user, session and task.

    `config` is a `CheckpointConfig`, or anything `CheckpointConfig.load` accepts. `lease` and `wait` work as in
    `store.run`. A task whose process dies `max_attempts` times without a new checkpoint fails.
    """

    def __init__(
        self,
        config: CheckpointConfig | Mapping[str, Any] | str | Path | None = None,
        store: Store | None = None,
        *,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        max_attempts: int = 3,
    ) -> None:
        super().__init__(Tasks(config, store_finder(store), lease, wait, max_attempts))
