"""A typical program with a blocking checkpoint manager: it runs, and passes type checkers in strict mode."""

import holdfast.sync as holdfast
from holdfast.sync import AgentContext, CheckpointConfig, ExecutionState, PendingToolCall

TASK = ("shop", "ana", "chat", "task")


def double(given: int, ctx: AgentContext) -> int:
    return given * 2


def main() -> None:
    with holdfast.MemoryStore() as store:
        config = CheckpointConfig.load({"enabled": True, "recovery": {"auto_resume": True}})
        manager = holdfast.CheckpointManager(config, store, lease=5)

        def resume(state: ExecutionState, user_input: str) -> str:
            manager.hooks.complete(*TASK)
            return f"{state.task_id}: {user_input}"

        manager.on_resume(resume)
        pending = PendingToolCall(id="1", name="pay", requires_approval=True)
        with manager.hold(*TASK):
            manager.hooks.tool_approval_required(ExecutionState("task", "chat", "ana", "shop"), pending)
        states: list[ExecutionState] = manager.pending("shop", "ana")
        assert [state.pending_tool_call for state in states] == [pending]
        assert manager.recover("shop").waiting == (manager.thread_id(*TASK),)
        assert manager.resume(*TASK, user_input="yes") == "task: yes"
        tree = holdfast.repeat(double, max_iterations=3, name="tree")
        assert tree.run(1, thread_id="t", store=store) == 8


main()
