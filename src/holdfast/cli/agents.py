"""Agents of the user's program, gone on with in their own world."""

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.cli.apps import in_world_of
from holdfast.cli.work import journal_of
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.outcome import Recovery
from holdfast.runtimes.agent.agent import AgentCore
from holdfast.sync.agents import Agent as BlockingAgent

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.runs.run import Run
    from holdfast.runs.store import Store

AnyAgent = AgentCore | BlockingAgent


def agents_in(found: Any) -> Iterator[AnyAgent]:
    """The agent that was named, or those of the module that was."""
    candidates = vars(found).values() if isinstance(found, ModuleType) else [found]
    return (each for each in candidates if isinstance(each, AnyAgent))


def core_of(agent: AnyAgent) -> AgentCore:
    """What both kinds of agent have in common."""
    return agent._core if isinstance(agent, BlockingAgent) else agent  # noqa: SLF001  the blocking one has no more


def resume_agent(session: "Session", agent: AnyAgent, thread_id: str) -> Any:
    """Go on with a thread that the agent was run on; its task is recorded."""
    core = core_of(agent)
    if core.is_stream:
        raise ConfigurationError(f"{core.name} yields: stream thread {thread_id!r} again from your program")
    if journal_of(session.store, thread_id).started is None:
        raise NotFound(f"thread {thread_id!r} was not started by an agent")

    async def act(store: "Store") -> Any:
        async with store.run(thread_id) as run:
            return await core.go_on(run, {})

    return in_world_of(session, act, blocking=isinstance(agent, BlockingAgent))


def recover_agent(session: "Session", agent: AnyAgent, max_attempts: int) -> Recovery:
    """Go on with every thread of an agent that can."""
    core, blocking = core_of(agent), isinstance(agent, BlockingAgent)
    if core.is_stream:
        return Recovery()

    def wait_for(run: "Run") -> Any:
        return run_blocking(core.go_on(run, {}))

    async def go_on(run: "Run") -> Any:
        return await core.go_on(run, {})

    async def act(store: "Store") -> Recovery:
        labels = {"agent": core.name.rpartition(":")[2]}
        return await store.recover(wait_for if blocking else go_on, labels=labels, max_attempts=max_attempts)

    return in_world_of(session, act, blocking=blocking)
