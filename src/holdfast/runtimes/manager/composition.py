"""Composites of agents: sequential, parallel, or repeated.

The output of each finished agent is recorded. A resumed run replays these outputs, and so resumes at the stage, the
iteration and the branches that were not finished.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from holdfast.codec import decode, encode
from holdfast.records.arguments import text_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.tracebacks import hide_our_frames
from holdfast.runs.driver import Driver, Durable, Run, Store, Terms, claim, fresh_id, note, read_note, store_finder
from holdfast.runtimes.manager.events import name_of

AGENT_DONE = "agent_done"
"""The kind of note that holds an agent's output."""
SEQUENTIAL, PARALLEL, LOOP = "sequential", "parallel", "loop"
"""The workflow types, as they are stored."""


class AgentContext(msgspec.Struct, kw_only=True):
    """The position of an agent in its composite. Agents get it as their second argument."""

    thread_id: str
    branch: str
    """The path of names from the root, such as `root.coordinator.researcher`."""
    workflow_type: str = ""
    """The type of the innermost composite: `sequential`, `parallel` or `loop`."""
    workflow_stage: int = 0
    """The index in that composite, from 0."""
    loop_iteration: int = 0
    """The iteration of the innermost `repeat`, from 1; 0 outside a `repeat`."""
    loop_max_iterations: int = 0
    is_stopped: bool = False

    def stop(self) -> None:
        """End the innermost `repeat` after this iteration."""
        self.is_stopped = True


class Position(msgspec.Struct, frozen=True):
    """A position in the tree of agents that is being executed."""

    driver: Driver
    context: AgentContext
    path: str = "0"
    """The indexes from the root: they are the same in every process."""
    repeat: AgentContext | None = None
    """The context of the innermost `repeat`, which `stop` ends."""

    def child(self, index: int, agent: Any, **changes: Any) -> "Position":
        """Return the position of an agent of this composite; `changes` apply to its context."""
        branch = f"{self.context.branch}.{name_of(agent)}"
        context = msgspec.structs.replace(self.context, branch=branch, **changes)
        return Position(self.driver, context, f"{self.path}.{index}", self.repeat)


class CompositeBase:
    """The part of a composite that both worlds share."""

    def __init__(self, kind: str, agents: Any, name: str | None, max_iterations: int = 1) -> None:
        if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
            raise ConfigurationError(f"the agents of a {kind} must be a list of at least one agent, got {agents!r}")
        for agent in agents:
            _check_agent(agent)
        whole_number(max_iterations, "max_iterations", least=1)
        self.name = text_or_none(name, "name") or kind
        """The composite's name: the first part of its agents' branches."""
        self.sub_agents = list(agents)
        """Its agents."""
        self._kind = kind
        self._max_iterations = max_iterations

    def _shape(self) -> list[Any]:
        """Return the kinds and names of the tree. They must not change while a thread is unfinished."""
        return [self._kind, self.name, self._max_iterations, *map(_shape_of, self.sub_agents)]

    async def _result(self, given: Any, thread_id: str | None, store: Store, terms: Terms) -> Any:
        """Return the stored output of a thread, or run its unfinished agents."""
        name = fresh_id(store, self.name) if thread_id is None else thread_id
        try:
            async with claim(store, name, terms) as run:
                return await self._work(run, given)
        except Exception as error:
            hide_our_frames(error)
            raise

    async def _work(self, run: Run, given: Any) -> Any:
        """Run the composite on a claimed thread and return its output."""
        driver = Driver(run)
        arguments = encode([given, self._shape()], path="input")
        await driver.start(f"workflow:{self.name}", arguments, "input or agents", {"workflow": self.name})
        if run.finished:
            return run.result
        with driver.body():
            output = await self._execute(
                Position(driver, AgentContext(thread_id=run.thread_id, branch=self.name)), given
            )
        await run.complete(output)
        return output

    async def _resumed(self, run: Run) -> Any:
        """Resume a thread that a recovery claimed, with its recorded input."""
        driver = Driver(run)
        started = driver.record.started
        if started is None or started.function != f"workflow:{self.name}":
            driver.leave_untouched()
            raise ConfigurationError(
                f"thread {run.thread_id!r} was not started by {self.name!r}, so it cannot be resumed by it"
            )
        return await self._work(run, decode(started.arguments)[0])

    async def _execute(self, position: Position, given: Any) -> Any:
        """Execute the agents of this composite."""
        kinds = {SEQUENTIAL: self._run_sequential, PARALLEL: self._run_parallel, LOOP: self._run_repeated}
        return await kinds[self._kind](position, given)

    async def _run_sequential(self, position: Position, given: Any) -> Any:
        for stage, agent in enumerate(self.sub_agents):
            given = await _execute(
                position.child(stage, agent, workflow_type=SEQUENTIAL, workflow_stage=stage), agent, given
            )
        return given

    async def _run_parallel(self, position: Position, given: Any) -> list[Any]:
        """Return all outputs in order. If an agent fails, the others finish first, so they are not executed again."""
        branches = []
        for stage, agent in enumerate(self.sub_agents):
            child = position.child(stage, agent, workflow_type=PARALLEL, workflow_stage=stage)
            branches.append(partial(_execute, child, agent, given))
        return await position.driver.together(branches)

    async def _run_repeated(self, position: Position, given: Any) -> Any:
        agent, most = self.sub_agents[0], self._max_iterations
        for iteration in range(1, most + 1):
            changes = {"workflow_type": LOOP, "loop_iteration": iteration, "loop_max_iterations": most}
            child = position.child(iteration, agent, workflow_stage=0, **changes)
            given = await _execute(msgspec.structs.replace(child, repeat=position.context), agent, given)
            if position.context.is_stopped:
                break
        return given


def _check_agent(agent: Any) -> None:
    if isinstance(agent, Durable):
        raise ConfigurationError(
            f"{name_of(agent)} is a durable function with its own threads, not an agent; pass a function (input, ctx)"
            " that calls it, and its steps are recorded in the thread of the composite"
        )
    if not (callable(agent) or callable(getattr(agent, "run", None))):
        raise ConfigurationError(f"an agent must be a function (input, ctx), an Agent or a composite, got {agent!r}")


def _shape_of(agent: Any) -> Any:
    return agent._shape() if isinstance(agent, CompositeBase) else name_of(agent)  # noqa: SLF001  one file


async def _execute(position: Position, agent: Any, given: Any) -> Any:
    if isinstance(agent, CompositeBase):
        return await agent._execute(position, given)  # noqa: SLF001  one file
    key = position.driver.key("agent", position.path)
    return await position.driver.alone(key, partial(_replayed_or_called, position, key, agent, given))


async def _replayed_or_called(position: Position, key: str, agent: Any, given: Any) -> Any:
    driver, context = position.driver, position.context
    known = driver.noted(AGENT_DONE, key)
    if known is not None:
        output, is_stopped = decode(known.value), read_note(known, lambda content: bool(content["is_stopped"]))
    else:
        started_at = driver.ports.now()
        output = await driver.invoke(key, _call_of(position, agent, given))
        is_stopped = context.is_stopped
        await _record_output(position, key, output, max(driver.ports.now() - started_at, 0))
    if is_stopped and position.repeat is not None:
        position.repeat.is_stopped = True
    return output


def _call_of(position: Position, agent: Any, given: Any) -> Any:
    """Return the call of an agent. An agent with its own threads gets one named after its position in this thread."""
    if callable(getattr(agent, "run", None)):
        return partial(agent.run, given, thread_id=f"{position.context.thread_id}:{position.path}")
    return partial(agent, given, position.context)


async def _record_output(position: Position, key: str, output: Any, took: int) -> None:
    """Record the output, and store the position of the workflow in the state."""
    driver, context = position.driver, position.context
    fields = {name: getattr(context, name) for name in ("branch", *WORKFLOW_FIELDS)}
    name, content = context.branch.rpartition(".")[2], {**fields, "is_stopped": context.is_stopped}
    value = encode(output, path=f"output of {context.branch}")
    driver.change_state({"agent_name": name, "agent_state": fields})
    done = note(AGENT_DONE, content, driver.ports.now(), key=key, value=value, action=name, took=took)
    await driver.write(done, metadata={"agent": name, **fields})


WORKFLOW_FIELDS = ("workflow_type", "workflow_stage", "loop_iteration", "loop_max_iterations")


class Composite(CompositeBase):
    """An agent composed of other agents: see `sequential`, `parallel` and `repeat`."""

    async def run(
        self,
        given: Any,
        *,
        thread_id: str | None = None,
        store: Store | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
    ) -> Any:
        """Return the composite's output. Resumes an unfinished thread; returns the stored output of a finished one."""
        return await self._result(given, thread_id, store_finder(store)(), Terms(lease, wait))

    async def resume(self, run: Run) -> Any:
        """Resume a claimed thread: `await store.recover(composite.resume, labels={"workflow": "my_name"})`."""
        return await self._resumed(run)


def sequential(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """Run agents in sequence: the output of each is the input of the next."""
    return Composite(SEQUENTIAL, agents, name)


def parallel(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """Run agents in parallel, each with the same input. The output is the list of their outputs, in order."""
    return Composite(PARALLEL, agents, name)


def repeat(agent: Any, *, max_iterations: int, name: str | None = None) -> Composite:
    """Run an agent up to `max_iterations` times; each output is the next input. `ctx.stop()` ends it early."""
    return Composite(LOOP, [agent], name, max_iterations)
