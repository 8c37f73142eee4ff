"""A server is killed at every point, and in pairs of points: its tasks always end the same."""

from typing import Any

import pytest

import holdfast
from holdfast import CheckpointConfig, Event, ExecutionState, Phase, RecoveryConfig, sync
from holdfast.testing import crash_everywhere
from manager.tasks import APPROVAL, TASK, state_of
from payments import Outside
from rounds import rounds

CONFIG = CheckpointConfig(
    enabled=True, strategy="hybrid", interval=1, after_tools=True, recovery=RecoveryConfig(auto_resume=True)
)
SESSION = TASK[:3]


outside = Outside()


class BlockingServer:
    """Starts a task unless there is one, asks for an approval, pays, says so in the session, and completes."""

    def __init__(self, store: sync.Store) -> None:
        self.manager = sync.CheckpointManager(CONFIG, store, max_attempts=99)
        self.manager.on_resume(self.work)

    def serve(self) -> list[Any]:
        self.manager.recover("shop")
        if not self.said() and self.manager.load(*TASK) is None:
            with self.manager.hold(*TASK):
                self.work(state_of(), "")
        state = self.manager.load(*TASK)
        if state is not None and state.needs_user_input:
            self.manager.resume(*TASK, user_input="approve")
        self.manager.clear(*TASK)
        return self.said()

    def said(self) -> list[Any]:
        return [event.content for event in self.manager.events(*SESSION) if event.final]

    def work(self, state: ExecutionState, user_input: str) -> None:
        hooks = self.manager.hooks
        if state.phase in {Phase.INITIALIZED, Phase.POST_LLM}:
            hooks.after_llm_call(state)
            hooks.tool_approval_required(state, APPROVAL)
            return
        if state.phase is Phase.TOOL_APPROVAL:
            paid = sync.current().step("pay", outside.pay, 40, effect=True)
            state = state.with_phase(Phase.POST_TOOL)
            hooks.after_tool(state.with_last_event_index(paid), f"refund after {user_input}")
        if not self.said():
            self.manager.add_event(*SESSION, Event("support", "paid 40", final=True))
        hooks.complete(*TASK)


def blocking_server(store: sync.Store) -> list[Any]:
    return BlockingServer(store).serve()


async def awaitable_server(store: holdfast.Store) -> list[Any]:
    """The same without an approval, in the awaitable world."""
    manager = holdfast.CheckpointManager(CONFIG, store, max_attempts=99)

    async def work(state: ExecutionState, user_input: str) -> None:
        if state.phase is not Phase.ITERATION_END:
            paid = await holdfast.current().step("pay", outside.pay, 40, effect=True)
            await manager.hooks.iteration_end(state.with_last_event_index(paid), 1)
        if not await manager.events(*SESSION):
            await manager.add_event(*SESSION, Event("support", "paid 40", final=True))
        await manager.hooks.complete(*TASK)

    manager.on_resume(work)
    await manager.recover("shop")
    if not await manager.events(*SESSION):
        await manager.save(state_of())
        await manager.recover("shop")
    await manager.clear(*TASK)
    return [event.content for event in await manager.events(*SESSION)]


async def awaitable_tree(store: holdfast.Store) -> Any:
    """Agents made of agents, with an effect in a branch."""

    async def plan(given: str, ctx: holdfast.AgentContext) -> str:
        return f"{given} planned"

    async def pay(given: str, ctx: holdfast.AgentContext) -> int:
        return await holdfast.current().step("pay", outside.pay, 40, effect=True)

    async def polish(given: Any, ctx: holdfast.AgentContext) -> Any:
        if ctx.loop_iteration == 2:
            ctx.stop()
        return [given, ctx.loop_iteration]

    branches = holdfast.parallel([pay, holdfast.repeat(polish, max_iterations=3)])
    return await holdfast.sequential([plan, branches], name="root").run("x", thread_id="tree", store=store)


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a branch of a dead process never began
@pytest.mark.parametrize("server", [blocking_server, awaitable_server, awaitable_tree])
def test_a_server_ends_the_same_wherever_it_is_killed(server: Any) -> None:
    report = crash_everywhere(server, before=outside.clear, after=outside.check, pairs=rounds(3, 60))
    assert len(report.points) > 20


@pytest.mark.faults
def test_a_server_that_pays_before_the_approval_is_stored_is_caught() -> None:
    """The tests above can fail."""

    def careless(store: sync.Store) -> list[Any]:
        server = BlockingServer(store)
        work = server.work

        def pays_twice(state: ExecutionState, user_input: str) -> None:
            if state.phase is Phase.TOOL_APPROVAL:
                outside.pay(40, f"key {len(outside.payments)}")
            work(state, user_input)

        server.manager.on_resume(pays_twice)
        return server.serve()

    with pytest.raises(AssertionError):
        crash_everywhere(careless, before=outside.clear, after=outside.check, pairs=0, limit=1)
