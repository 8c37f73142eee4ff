"""`CheckpointManager`: saves the states of an agent server's tasks, and resumes them after a crash or an answer."""

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

NO_TIME = timedelta(0)


class ManagerMethods:
    """What a manager does, over the tasks that both worlds share."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.hooks = CheckpointHooks(tasks)
        """The hooks to call from the agent loop."""
        self.config = tasks.config
        """The settings that the manager was made with."""
        self.enabled = tasks.config.enabled
        """True if hooks save."""

    def thread_id(self, app: str, user: str, session: str, task: str) -> str:
        """Return the id of a task's thread in the store."""
        return thread_id_of(app, user, session, task)

    def on_resume(self, callback: ResumeCallback) -> ResumeCallback:
        """Set the function that resumes a task: `callback(state, user_input)`. Can be used as a decorator."""
        if function_or_none(callback, "callback") is None:
            raise ConfigurationError("callback=None: give the function that resumes a task")
        self._tasks.callback = callback
        return callback

    def register(self, name: str, agent: Checkpointable) -> None:
        """Let an agent bring its own state: every save of a state with this `agent_name` calls `agent.save_state()`.

        Before such a task is resumed, `agent.restore_state` is called with what was saved.
        """
        if not isinstance(agent, Checkpointable):
            raise ConfigurationError(f"agent {name!r} needs the methods save_state() and restore_state(state)")
        self._tasks.agents[name] = agent

    def hold(self, app: str, user: str, session: str, task: str) -> Held:
        """Hold a task while this process works on it: `async with manager.hold(app, user, session, task)`.

        Saves and hooks of the task write under its claim, and no other process resumes it meanwhile. If this process
        dies, the task can be recovered at once. A block that ends without `hooks.complete` leaves the task idle.
        """
        return self._tasks.hold((app, user, session, task), self._tasks.terms)

    async def save(self, state: ExecutionState) -> ExecutionState:
        """Save a state as a checkpoint of type manual; durable when this returns. Returns it with its time.

        `RunCancelled` if the task was cancelled, `LeaseHeld` if another process works on it.
        """
        return await self._tasks.save(state)

    async def load(self, app: str, user: str, session: str, task: str) -> ExecutionState | None:
        """Return the last checkpoint of a task; None if it has none, or is complete."""
        return _state_in(await self._tasks.store.latest(thread_id_of(app, user, session, task)))

    async def clear(self, app: str, user: str, session: str, task: str) -> None:
        """Remove all checkpoints of a task. Saving it again starts from nothing."""
        await self._tasks.clear(app, user, session, task)

    async def pending(self, app: str, user: str | None = None) -> list[ExecutionState]:
        """List the states of an app's tasks, or of one user's, that are at work or wait for input.

        Tasks that cannot be read are left out, with a `HoldfastWarning`.
        """
        states, damaged = await self._pending(app, user)
        if damaged:
            text = "not all pending tasks are listed, since some cannot be read; `holdfast verify` says why: "
            warn(text + ", ".join(damaged), HoldfastWarning, stacklevel=2)
        return states

    async def _pending(self, app: str, user: str | None) -> tuple[list[ExecutionState], list[str]]:
        """The states of pending tasks, and the thread ids of those that cannot be read."""
        infos = await pending_threads(self._tasks.store, app, user)
        found = await ports_of(self._tasks.store).gather([self._pending_state(info.thread_id) for info in infos])
        states = [each for each in found if isinstance(each, ExecutionState)]
        return states, [each for each in found if isinstance(each, str)]

    async def _pending_state(self, thread_id: str) -> ExecutionState | str | None:
        """The state of a task; None if it is not pending any more, the thread id if it cannot be read."""
        try:
            latest = await self._tasks.store.latest(thread_id)
            return _state_in(latest) if latest is not None and latest.status in PENDING else None
        except UNREADABLE:
            return thread_id

    async def recover(self, app: str) -> RecoveryReport:
        """Resume what a crash left behind, by the resume callback; call this at start-up.

        Tasks at work, and those that were answered, are resumed if `auto_resume` is set; those that wait for input keep
        waiting, unless `auto_resume_hitl` is set; expired ones fail. Each is claimed once among all processes.
        """
        return await Recoverer(self._tasks).recover(await pending_threads(self._tasks.store, app))

    async def resume(self, app: str, user: str, session: str, task: str, user_input: str = "") -> Any:
        """Resume a task with what the user said, and return what the callback returns; None if the task waits again.

        The input is kept, and used once: `Conflict` if the task has its input, or is not one to be resumed.
        """
        return await Recoverer(self._tasks).resume((app, user, session, task), user_input)

    async def cancel(self, app: str, user: str, session: str, task: str) -> None:
        """End a task without resuming it: a process that works on it gets `RunCancelled`. Its history is kept."""
        await self._tasks.store.cancel(thread_id_of(app, user, session, task))

    async def stats(self, app: str) -> CheckpointStats:
        """Count the pending checkpoints of an app: of which kind they are, and how old."""
        states, damaged = await self._pending(app, None)
        now = from_microseconds(ports_of(self._tasks.store).now())
        ages = [max(now - state.checkpoint_time, NO_TIME) for state in states]
        waiting = sum(state.needs_user_input for state in states)
        return CheckpointStats(
            total=len(states),
            working=len(states) - waiting,
            input_required=waiting,
            expired=sum(age > self.config.recovery_timeout for age in ages),
            oldest_age=max(ages, default=NO_TIME),
            average_age=sum(ages, NO_TIME) / max(len(ages), 1),
            damaged=len(damaged),
        )

    async def add_event(self, app: str, user: str, session: str, event: Event, key: str | None = None) -> None:
        """Append an event to a session; durable when this returns. Under the same key it is appended once.

        `KeyReused` if the session has another event under this key.
        """
        if not isinstance(event, Event):
            raise ConfigurationError(f"event must be a holdfast.Event, got {event!r}")
        check_loadable(event, "event")
        thread_id, store = thread_id_of(app, user, session), self._tasks.store
        with suppress(Conflict):  # the session has events
            labels = {"app": app, "user": user, "session": session}
            await store.save(thread_id, {"events": []}, labels=labels, expect_seq=0)
        await store.append(thread_id, "events", event.to_dict(), idempotency_key=key)

    async def events(self, app: str, user: str, session: str) -> list[Event]:
        """List the events of a session, the oldest first: what every agent of it said."""
        latest = await self._tasks.store.latest(thread_id_of(app, user, session))
        return [] if latest is None else SessionEvents.from_dict(latest.state).events


def _state_in(latest: Checkpoint | None) -> ExecutionState | None:
    """The state in a checkpoint; None if it has none, or is complete."""
    if latest is None or latest.state == {} or latest.status is Status.COMPLETE:
        return None
    return ExecutionState.from_dict(latest.state)


class CheckpointManager(ManagerMethods):
    """Checkpoints and recovery for an agent server: each task is a thread, found by app, user, session and task.

    `config` is a `CheckpointConfig`, or what `CheckpointConfig.load` takes. `lease` and `wait` are those of
    `store.run`. A task whose process dies `max_attempts` times without a new checkpoint ends as failed.
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
