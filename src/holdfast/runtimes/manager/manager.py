"""`CheckpointManager`: saves the states of an agent server's tasks, and resumes them after a crash or an answer."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from holdfast.ports import logger
from holdfast.records.arguments import function_or_none, whole_number
from holdfast.records.errors import ConfigurationError, Conflict, NotFound
from holdfast.records.thread import ThreadInfo
from holdfast.records.times import from_microseconds
from holdfast.records.words import Cause, Status
from holdfast.runs.driver import Driver, Store, Terms, default_store, ports_of
from holdfast.runtimes.manager.config import CheckpointConfig
from holdfast.runtimes.manager.events import Event
from holdfast.runtimes.manager.held import Held, thread_id_of
from holdfast.runtimes.manager.hooks import CheckpointHooks
from holdfast.runtimes.manager.recovery import PENDING, Recoverer
from holdfast.runtimes.manager.state import (
    AgentState,
    Checkpointable,
    CheckpointStats,
    ExecutionState,
    RecoveryReport,
)

ResumeCallback = Callable[[ExecutionState, str], Any]
PAGE = 500
NO_TIME = timedelta(0)


class ManagerCore:
    """What both worlds share: the tasks of an agent server, on a store that is found when it is used."""

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
        self.terms.check()
        self.max_attempts = whole_number(max_attempts, "max_attempts", least=1)
        self._find_store = store
        self.callback: ResumeCallback | None = None
        self._agents: dict[str, Checkpointable] = {}
        self.held: dict[str, Held] = {}
        """The tasks that this process holds, by thread id."""
        self._has_told = False

    @property
    def store(self) -> Store:
        """The store of the tasks."""
        return self._find_store()

    def on_resume(self, callback: ResumeCallback) -> ResumeCallback:
        """Set the function that resumes a task."""
        if function_or_none(callback, "callback") is None:
            raise ConfigurationError("callback=None: give the function that resumes a task")
        self.callback = callback
        return callback

    def register(self, name: str, agent: Checkpointable) -> None:
        """Let an agent bring its own state."""
        if not isinstance(agent, Checkpointable):
            raise ConfigurationError(f"agent {name!r} needs the methods save_state() and restore_state(state)")
        self._agents[name] = agent

    def tell_disabled(self) -> None:
        """Say once that nothing is saved."""
        if not self._has_told:
            self._has_told = True
            logger().warning("checkpointing is disabled: hooks save nothing; set enabled to true in the configuration")

    # Saving

    async def save(
        self, state: ExecutionState, checkpoint_type: Cause = Cause.MANUAL, details: Mapping[str, str] | None = None
    ) -> ExecutionState:
        """Save a state: under the claim that this process holds, or else under one for this save alone."""
        if not isinstance(state, ExecutionState):
            raise ConfigurationError(f"state must be a holdfast.ExecutionState, got {type(state).__name__}")
        state = await self._with_own_state(state.with_type(checkpoint_type))
        ids = (state.app_name, state.user_id, state.session_id, state.task_id)
        held = self.held.get(thread_id_of(*ids))
        if held is not None:
            return await held.save(state, details or {})
        alone = Held(self.store, ids, self.terms)

        async def save_alone(driver: Driver) -> ExecutionState:
            driver.leave_resumable()
            return await alone.save(state, details or {})

        saved, _ = await alone.work(save_alone)
        return saved or state

    async def _with_own_state(self, state: ExecutionState) -> ExecutionState:
        agent = self._agents.get(state.agent_name)
        if agent is None:
            return state
        custom = await ports_of(self.store).call(agent.save_state)
        return state.with_agent_state(replace(state.agent_state or AgentState(), custom=dict(custom)))

    async def restore(self, state: ExecutionState) -> None:
        """Hand an agent its own state back."""
        agent = self._agents.get(state.agent_name)
        if agent is not None and state.agent_state is not None:
            await ports_of(self.store).call(agent.restore_state, state.agent_state.custom)

    async def clear(self, *ids: str) -> None:
        """Remove a task's checkpoints."""
        thread_id = thread_id_of(*ids)
        held = self.held.get(thread_id)
        await (self.store.delete(thread_id) if held is None else held.clear())

    async def cancel(self, *ids: str) -> None:
        """End a task without resuming it; its history is kept."""
        await self.store.cancel(thread_id_of(*ids))

    # Reading

    async def load(self, *ids: str) -> ExecutionState | None:
        """The last checkpoint of a task; None if it has none, or is complete."""
        latest = await self.store.latest(thread_id_of(*ids))
        return None if latest is None or latest.status is Status.COMPLETE else ExecutionState.from_dict(latest.state)

    async def threads(self, app: str, user: str | None = None) -> list[ThreadInfo]:
        """The threads of the pending tasks. A user's are found by the user's label: no others are read."""
        labels, found = {"app": app} if user is None else {"user": user}, list[ThreadInfo]()
        page: Any = await self.store.threads(status=PENDING, labels=labels, limit=PAGE)
        while page is not None:
            found += [info for info in page if info.labels.get("app") == app and "task" in info.labels]
            page = await page.next_page()
        return found

    async def pending(self, app: str, user: str | None = None) -> list[ExecutionState]:
        """The states of the tasks that are at work or wait for input."""
        ports, store = ports_of(self.store), self.store
        infos = await self.threads(app, user)
        found = await ports.gather([store.latest(info.thread_id) for info in infos])
        return [ExecutionState.from_dict(each.state) for each in found if each is not None and each.status in PENDING]

    async def stats(self, app: str) -> CheckpointStats:
        """What the pending checkpoints of an app amount to."""
        states = await self.pending(app)
        if not states:
            return CheckpointStats()
        now = from_microseconds(ports_of(self.store).now())
        ages = [max(now - state.checkpoint_time, NO_TIME) for state in states]
        waiting = sum(state.needs_user_input for state in states)
        return CheckpointStats(
            total=len(states),
            working=len(states) - waiting,
            input_required=waiting,
            expired=sum(age > self.config.recovery_timeout for age in ages),
            oldest_age=max(ages),
            average_age=sum(ages, NO_TIME) / len(ages),
        )

    # Resuming

    async def recover(self, app: str) -> RecoveryReport:
        """Resume the tasks of an app that can be."""
        return await Recoverer(self).recover(await self.threads(app))

    async def resume(self, *ids: str, user_input: str) -> Any:
        """Resume one task, with what the user said."""
        app, user, session, task = ids
        return await Recoverer(self).resume((app, user, session, task), user_input)

    # The events of a session

    async def add_event(self, app: str, user: str, session: str, event: Event) -> None:
        """Append an event to a session."""
        if not isinstance(event, Event):
            raise ConfigurationError(f"event must be a holdfast.Event, got {event!r}")
        thread_id, store = thread_id_of(app, user, session), self.store
        try:
            await store.thread(thread_id)
        except NotFound:
            labels = {"app": app, "user": user, "session": session}
            with suppress(Conflict):  # another process was faster
                await store.save(thread_id, {"events": []}, labels=labels, expect_seq=0)
        await store.append(thread_id, "events", event.to_dict())

    async def events(self, app: str, user: str, session: str) -> list[Event]:
        """The events of a session, the oldest first."""
        latest = await self.store.latest(thread_id_of(app, user, session))
        return [] if latest is None else [Event.from_dict(each) for each in latest.state["events"]]


class TaskBlock:
    """`async with manager.hold(app, user, session, task)`."""

    def __init__(self, core: ManagerCore, ids: tuple[str, str, str, str]) -> None:
        self._core = core
        self._thread_id = thread_id_of(*ids)
        self._held = Held(core.store, ids, core.terms)

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        return await self.leave(error)

    async def enter(self) -> None:
        """Claim the task."""
        await self._held.enter()
        self._core.held[self._thread_id] = self._held

    async def leave(self, error: BaseException | None) -> bool:
        """Release it. True if the task waits: the error is then how its code stopped."""
        del self._core.held[self._thread_id]
        return await self._held.leave(error)


class CheckpointManager:
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
        if store is not None and not isinstance(store, Store):
            raise ConfigurationError(f"store={store!r}: a store of holdfast, as holdfast.open returns it")
        find = default_store if store is None else lambda: store
        self._core = ManagerCore(config, find, lease, wait, max_attempts)
        self.hooks = CheckpointHooks(self._core)
        """The hooks to call from the agent loop."""

    @property
    def enabled(self) -> bool:
        """True if hooks save."""
        return self._core.config.enabled

    @property
    def config(self) -> CheckpointConfig:
        """The settings."""
        return self._core.config

    def thread_id(self, app: str, user: str, session: str, task: str) -> str:
        """The id of a task's thread in the store."""
        return thread_id_of(app, user, session, task)

    def on_resume(self, callback: ResumeCallback) -> ResumeCallback:
        """Set the function that resumes a task: `callback(state, user_input)`. Can be used as a decorator."""
        return self._core.on_resume(callback)

    def register(self, name: str, agent: Checkpointable) -> None:
        """Let an agent bring its own state: every save of a state with this `agent_name` calls `agent.save_state()`.

        Before such a task is resumed, `agent.restore_state` is called with what was saved.
        """
        self._core.register(name, agent)

    def hold(self, app: str, user: str, session: str, task: str) -> TaskBlock:
        """Hold a task while this process works on it: `async with manager.hold(app, user, session, task)`.

        Saves and hooks of the task write under its claim, and no other process resumes it meanwhile. If this process
        dies, the task can be recovered at once. A block that ends without `hooks.complete` leaves the task idle.
        """
        return TaskBlock(self._core, (app, user, session, task))

    async def save(self, state: ExecutionState) -> ExecutionState:
        """Save a state as a checkpoint of type manual; durable when this returns. Returns it with its time.

        `RunCancelled` if the task was cancelled, `LeaseHeld` if another process works on it.
        """
        return await self._core.save(state)

    async def load(self, app: str, user: str, session: str, task: str) -> ExecutionState | None:
        """The last checkpoint of a task; None if it has none."""
        return await self._core.load(app, user, session, task)

    async def clear(self, app: str, user: str, session: str, task: str) -> None:
        """Remove all checkpoints of a task. Saving it again starts from nothing."""
        await self._core.clear(app, user, session, task)

    async def pending(self, app: str, user: str | None = None) -> list[ExecutionState]:
        """The states of an app's tasks, or of one user's, that are at work or wait for input."""
        return await self._core.pending(app, user)

    async def recover(self, app: str) -> RecoveryReport:
        """Resume what a crash left behind, by the resume callback; call this at start-up.

        Tasks at work are resumed if `auto_resume` is set; those that wait for input wait on, unless `auto_resume_hitl`
        is set or somebody answered; expired ones fail. Each is claimed once among all processes.
        """
        return await self._core.recover(app)

    async def resume(self, app: str, user: str, session: str, task: str, user_input: str = "") -> Any:
        """Resume a task with what the user said, and return what the callback returns; None if the task waits again.

        The input is kept, and used once: `Conflict` if the task has its input, or is not one to be resumed.
        """
        return await self._core.resume(app, user, session, task, user_input=user_input)

    async def cancel(self, app: str, user: str, session: str, task: str) -> None:
        """End a task without resuming it: a process that works on it gets `RunCancelled`. Its history is kept."""
        await self._core.cancel(app, user, session, task)

    async def stats(self, app: str) -> CheckpointStats:
        """How many checkpoints of an app are pending, of which kind, and how old they are."""
        return await self._core.stats(app)

    async def add_event(self, app: str, user: str, session: str, event: Event) -> None:
        """Append an event to a session; durable when this returns."""
        await self._core.add_event(app, user, session, event)

    async def events(self, app: str, user: str, session: str) -> list[Event]:
        """The events of a session, the oldest first: what every agent of it said."""
        return await self._core.events(app, user, session)
