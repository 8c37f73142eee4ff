"""A typical program with a checkpoint manager: it runs, and passes type checkers in strict mode."""

import asyncio

import holdfast
from holdfast import AgentContext, AgentState, CheckpointConfig, Event, ExecutionState, PendingToolCall, RecoveryConfig

CONFIG = CheckpointConfig(enabled=True, strategy="hybrid", interval=2, recovery=RecoveryConfig(auto_resume=True))
TASK = ("shop", "ana", "chat", "task")


async def double(given: int, ctx: AgentContext) -> int:
    return given * 2


async def main() -> None:
    async with holdfast.MemoryStore() as store:
        manager = holdfast.CheckpointManager(CONFIG, store, lease=5)

        @manager.on_resume
        async def resume(state: ExecutionState, user_input: str) -> str:  # pyright: ignore[reportUnusedFunction]
            await manager.hooks.complete(*TASK)
            return f"{state.task_id}: {user_input}"

        state = ExecutionState("task", "chat", "ana", "shop").with_agent_state(AgentState(iteration=1))
        async with manager.hold(*TASK):
            await manager.hooks.iteration_end(state, 2)
            await manager.hooks.tool_approval_required(state, PendingToolCall(id="1", name="pay"))
        report: holdfast.RecoveryReport = await manager.recover("shop")
        assert report.waiting == (manager.thread_id(*TASK),)
        assert (await manager.stats("shop")).input_required == 1
        assert await manager.resume(*TASK, user_input="yes") == "task: yes"
        loaded: ExecutionState | None = await manager.load(*TASK)
        assert loaded is None
        await manager.add_event("shop", "ana", "chat", Event("user", "hi"))
        events: list[Event] = await manager.events("shop", "ana", "chat")
        tree = holdfast.sequential([double, holdfast.parallel([double, double])], name="tree")
        assert holdfast.find_agent_to_run(events, tree) is tree
        assert await tree.run(1, thread_id="t", store=store) == [4, 4]


asyncio.run(main())
