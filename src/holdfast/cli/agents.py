"""Resumes agents of the user's program, each in its own world."""

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.cli.apps import in_world_of, load
from holdfast.cli.work import function_of
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.outcome import Recovery
from holdfast.runs.block import Terms
from holdfast.runs.recovery import Recoverer
from holdfast.runtimes.agent.agent import Agent, AgentCore
from holdfast.runtimes.agent.memory import AGENT
from holdfast.sync.agents import Agent as BlockingAgent

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.runs.run import Run
    from holdfast.runs.store import Store

AnyAgent = Agent | BlockingAgent


def agents_in(found: Any) -> Iterator[AnyAgent]:
    """The agent that was named, or those of the module that was."""
    candidates = vars(found).values() if isinstance(found, ModuleType) else [found]
    return (each for each in candidates if isinstance(each, AnyAgent))


def agent_named(name: str) -> AnyAgent | None:
    """The agent of a module that runs the function `module:name`; None if there is none."""
    module = load(name.partition(":")[0])
    return next((agent for agent in agents_in(module) if core_of(agent).name == name), None)


def core_of(agent: AnyAgent) -> AgentCore:
    """What both kinds of agent have in common."""
    return agent._core  # noqa: SLF001  not for users


def refusal_of(core: AgentCore) -> str:
    """Why an agent cannot be resumed from here; empty if it can."""
    if core.is_stream:
        return f"agent {core.name} yields: stream the thread again from your program"
    if core.required:
        return f"agent {core.name} has to be given {', '.join(core.required)}: run it again from your program"
    return ""


def resume_agent(session: "Session", agent: AnyAgent, thread_id: str) -> Any:
    """Go on with a thread that the agent was run on; its task is recorded."""
    core = core_of(agent)
    if refusal := refusal_of(core):
        raise ConfigurationError(refusal)
    if not function_of(session.store, thread_id):
        raise NotFound(f"thread {thread_id!r} was not started by an agent")

    async def act(store: "Store") -> Any:
        async with store.run(thread_id) as run:
            return await core.resume(run, {})

    return in_world_of(session, act, blocking=isinstance(agent, BlockingAgent))


def recover_agent(session: "Session", agent: AnyAgent, skipped: tuple[str, ...], max_attempts: int) -> Recovery:
    """Go on with those of these threads that the agent was run on, and no others."""
    core, blocking = core_of(agent), isinstance(agent, BlockingAgent)
    found = [thread_id for thread_id in skipped if function_of(session.store, thread_id) == AGENT + core.name]
    if refusal_of(core) or not found:
        return Recovery()

    def wait_for(run: "Run") -> Any:
        return run_blocking(core.resume(run, {}))

    async def go_on(run: "Run") -> Any:
        return await core.resume(run, {})

    async def act(store: "Store") -> Recovery:
        return await Recoverer(store, wait_for if blocking else go_on, Terms(wait=0), max_attempts).resume_all(found)

    return in_world_of(session, act, blocking=blocking)
