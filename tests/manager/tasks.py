"""Checkpoint managers in both worlds: a scenario awaits them; in the blocking world they are of `holdfast.sync`."""

from types import TracebackType
from typing import Any

import holdfast
from holdfast import CheckpointConfig, ExecutionState, PendingToolCall, RecoveryConfig, sync
from runs.worlds import BlockingWorld, Calls, World, plain

TASK = ("shop", "ana", "chat-1", "task-1")
EAGER = RecoveryConfig(auto_resume=True)
APPROVAL = PendingToolCall(
    id="call-1", name="refund", description="pays money back", arguments={"amount": 40}, requires_approval=True
)


def state_of(task: str = "task-1", user: str = "ana", **fields: Any) -> ExecutionState:
    """The state of a new task."""
    return ExecutionState(
        task_id=task,
        session_id="chat-1",
        user_id=user,
        app_name="shop",
        query="Where is my money?",
        agent_name="support",
        **fields,
    )


def config(**settings: Any) -> CheckpointConfig:
    """Settings with checkpoints enabled, which resume what was at work."""
    return CheckpointConfig(**{"enabled": True, "recovery": EAGER, **settings})


def manager(world: World, *, store: Any = None, **settings: Any) -> Any:
    """A manager of that world; each one is another process's."""
    options = {name: settings.pop(name) for name in ("lease", "wait", "max_attempts") if name in settings}
    store = world.store if store is None else store
    if isinstance(world, BlockingWorld):
        return _Manager(sync.CheckpointManager(config(**settings), store._inner, **options))
    return holdfast.CheckpointManager(config(**settings), store, **options)


class _Manager(Calls):
    @property
    def hooks(self) -> Calls:
        return Calls(self._inner.hooks)

    def on_resume(self, callback: Any) -> Any:
        return self._inner.on_resume(plain(callback))

    def thread_id(self, *ids: str) -> str:
        return str(self._inner.thread_id(*ids))

    def register(self, name: str, agent: Any) -> None:
        self._inner.register(name, agent)

    def hold(self, *ids: str) -> "_Block":
        return _Block(self._inner.hold(*ids))


class _Block:
    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> None:
        self._block.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(self._block.__exit__(kind, error, trace))


class Server:
    """A server's resume callback: remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, state: ExecutionState, user_input: str) -> str:
        self.calls.append((state.task_id, user_input))
        return f"resumed {state.task_id}"


def server(manager: Any) -> Server:
    """A server behind a manager."""
    made = Server()
    manager.on_resume(made)
    return made
