"""What W7 races: a workflow of one executor in a loop, with a list of messages in its state that grows by one.

Each is its framework's own graph, streamed, and keeps the list as its users would. A step is one superstep with its
checkpoint.
"""

from __future__ import annotations

import asyncio
import operator
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.contender import PROCESS_CRASH, Contender
from benchmarks.holdfast_options import StoreOptions
from benchmarks.workloads import THREAD, State, empty_conversation
from holdfast import WorkflowCheckpoint

END_OF_SUPERSTEP = "superstep_completed"
NAME = "conversation"
REDUCERS = {"steps": operator.add}


class HoldfastSupersteps(Contender):
    """Holdfast's workflow, blocking."""

    family = "holdfast"

    def __init__(self, options: StoreOptions, steps: list[State], *, reads: bool = False) -> None:
        self.options, self.steps, self.reads = options, steps, reads
        self.name = f"Holdfast workflow{' that reads the list' if reads else ''}, {options.label}"
        self.durability = options.durability
        self.checkpoint_ids: list[str] = []

    def setup(self, directory: Path) -> None:
        from holdfast import sync

        self.directory = directory
        self.store = self.options.open_blocking(directory)
        agent = _holdfast_executor(self.steps, reads=self.reads)
        limit = len(self.steps) + 10
        builder = sync.WorkflowBuilder(agent, self.store, name=NAME, max_supersteps=limit, reducers=REDUCERS)
        self.events: Any = builder.add_edge(agent, agent).build().run(0, thread_id=THREAD, stream=True)

    def step(self, index: int) -> None:
        while (event := next(self.events)).type != END_OF_SUPERSTEP:  # a loop that is left would leave the stream
            pass
        self.checkpoint_ids.append(event.checkpoint_id)

    def finish(self) -> None:
        self.events.close()
        self.store.close()

    def load(self) -> State:
        from holdfast import sync

        self.store = self.options.open_blocking(self.directory)
        return _conversation(sync.latest_workflow_checkpoint(self.store, NAME))

    def restore(self, index: int) -> State:
        return _conversation(WorkflowCheckpoint.of(self.store.load(self.checkpoint_ids[index])))


class AwaitedSupersteps(Contender):
    """A workflow whose events are awaited, on an event loop of its own."""

    steps: list[State]
    events: AsyncIterator[Any]

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.runner = asyncio.Runner()
        self.runner.run(self.start(directory))

    def step(self, index: int) -> None:
        self.slice(range(index, index + 1))

    def slice(self, steps: range) -> list[float]:
        return self.runner.run(self._slice(steps))

    async def _slice(self, steps: range) -> list[float]:
        seconds = []
        for _ in steps:
            started = perf_counter()
            while (event := await anext(self.events)).type != END_OF_SUPERSTEP:
                pass
            self.completed(event)
            seconds.append(perf_counter() - started)
        return seconds

    @abstractmethod
    async def start(self, directory: Path) -> None:
        """Open the storage, and begin the stream."""

    def completed(self, event: Any) -> None:
        """Keep what `restore` needs of the end of a superstep."""


class HoldfastAwaitedSupersteps(AwaitedSupersteps):
    """Holdfast's workflow, awaited."""

    family = "holdfast"

    def __init__(self, options: StoreOptions, steps: list[State]) -> None:
        self.options, self.steps = options, steps
        self.name = f"Holdfast workflow (awaited), {options.label}"
        self.durability = options.durability
        self.checkpoint_ids: list[str] = []

    async def start(self, directory: Path) -> None:
        import holdfast

        self.store = self.options.open_awaitable(directory)
        agent = _holdfast_awaited_executor(self.steps)
        limit = len(self.steps) + 10
        builder = holdfast.WorkflowBuilder(agent, self.store, name=NAME, max_supersteps=limit, reducers=REDUCERS)
        self.events = builder.add_edge(agent, agent).build().run(0, thread_id=THREAD, stream=True)

    def completed(self, event: Any) -> None:
        self.checkpoint_ids.append(event.checkpoint_id)

    def finish(self) -> None:
        self.runner.run(self._finish())

    async def _finish(self) -> None:
        await self.events.close()  # type: ignore[attr-defined]
        await self.store.close()

    def load(self) -> State:
        return self.runner.run(self._load())

    async def _load(self) -> State:
        import holdfast

        self.store = self.options.open_awaitable(self.directory)
        return _conversation(await holdfast.latest_workflow_checkpoint(self.store, NAME))

    def restore(self, index: int) -> State:
        return _conversation(WorkflowCheckpoint.of(self.runner.run(self.store.load(self.checkpoint_ids[index]))))


class AgentFrameworkSupersteps(AwaitedSupersteps):
    """agent-framework's workflow with its file storage: a file per superstep, with everything in it, never synced."""

    name = "agent-framework workflow, file"
    durability = PROCESS_CRASH
    family = "peer"

    def __init__(self, steps: list[State]) -> None:
        self.steps = steps
        self.checkpoint_ids: list[str] = []

    async def start(self, directory: Path) -> None:
        from agent_framework import WorkflowBuilder

        self.storage = self._storage(directory)
        agent = _agent_framework_executor(self.steps)
        builder = WorkflowBuilder(
            start_executor=agent, checkpoint_storage=self.storage, name=NAME, max_iterations=len(self.steps) + 10
        )
        self.events = builder.add_edge(agent, agent).build().run(0, stream=True)

    def _storage(self, directory: Path) -> Any:
        """Its file storage, which also notes the ids: no event of the framework has them."""
        from agent_framework import FileCheckpointStorage

        checkpoint_ids = self.checkpoint_ids

        class Noting(FileCheckpointStorage):
            async def save(self, checkpoint: Any) -> str:
                checkpoint_ids.append(await super().save(checkpoint))
                return checkpoint_ids[-1]

        return Noting(directory)

    def finish(self) -> None:
        """Nothing stays open between calls."""

    def load(self) -> State:
        """One file; its own search for the latest reads all of them, which W2 measures."""
        return _conversation(self.runner.run(self.storage.load(self.checkpoint_ids[-1])))

    def restore(self, index: int) -> State:
        return _conversation(self.runner.run(self.storage.load(self.checkpoint_ids[index + 1])))


def _conversation(checkpoint: Any) -> State:
    """The state of a checkpoint, ours or agent-framework's, as the other workloads have it."""
    return {**empty_conversation(), "steps": checkpoint.state["steps"]}


def _holdfast_executor(steps: list[State], *, reads: bool) -> Any:
    from holdfast import sync

    @sync.executor(id="agent")
    def act(index: int, ctx: Any) -> None:
        if reads:
            ctx.get_state("steps")
        ctx.update_state("steps", [steps[index]])
        ctx.send_message(index + 1)

    return act


def _holdfast_awaited_executor(steps: list[State]) -> Any:
    import holdfast

    @holdfast.executor(id="agent")
    async def act(index: int, ctx: Any) -> None:
        ctx.update_state("steps", [steps[index]])
        await ctx.send_message(index + 1)

    return act


def _agent_framework_executor(steps: list[State]) -> Any:
    from agent_framework import WorkflowContext, executor

    async def act(index: int, ctx: Any) -> None:
        ctx.set_state("steps", [*(ctx.get_state("steps") or []), steps[index]])
        await ctx.send_message(index + 1)

    act.__annotations__ = {"index": int, "ctx": WorkflowContext[int], "return": None}
    return executor(id="agent")(act)
