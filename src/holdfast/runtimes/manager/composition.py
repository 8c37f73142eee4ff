"""Agents made of agents: one after the other, side by side, or again and again.

Each agent that finished is noted with its output. A run that is resumed replays those, and so continues at the stage,
the iteration and the branches that were not finished.
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
"""The document's workflow types."""


class AgentContext(msgspec.Struct, kw_only=True):
    """Where an agent of a composite is called: its second argument."""

    thread_id: str
    branch: str
    """The path of names from the root, such as `root.coordinator.researcher`."""
    workflow_type: str = ""
    """That of the innermost composite around it: `sequential`, `parallel` or `loop`."""
    workflow_stage: int = 0
    """Its place in that composite, from 0."""
    loop_iteration: int = 0
    """The iteration of the innermost `repeat`, from 1; 0 outside of one."""
    loop_max_iterations: int = 0
    is_stopped: bool = False

    def stop(self) -> None:
        """End the innermost `repeat` after this iteration."""
        self.is_stopped = True


class Place(msgspec.Struct, frozen=True):
    """Where in a tree of agents the execution is."""

    driver: Driver
    context: AgentContext
    path: str = "0"
    """The indexes from the root: the agents are the same in every process, so their places are too."""
    around: AgentContext | None = None
    """The context of the innermost `repeat` around it, which `stop` ends."""

    def below(self, index: int, agent: Any, **changes: Any) -> "Place":
        """Return the place of an agent in the composite that is here; `changes` are those of its context."""
        branch = f"{self.context.branch}.{name_of(agent)}"
        context = msgspec.structs.replace(self.context, branch=branch, **changes)
        return Place(self.driver, context, f"{self.path}.{index}", self.around)


class CompositeBase:
    """The agents of a composite, and how they are executed: in both worlds the same."""

    def __init__(self, kind: str, agents: Any, name: str | None, max_iterations: int = 1) -> None:
        if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
            raise ConfigurationError(f"{kind} takes a list of at least one agent, got {agents!r}")
        for agent in agents:
            _check_agent(agent)
        whole_number(max_iterations, "max_iterations", least=1)
        self.name = text_or_none(name, "name") or kind
        """The composite's name: the first of its agents' branches."""
        self.sub_agents = list(agents)
        """The agents that it is made of."""
        self._kind = kind
        self._max_iterations = max_iterations

    def _shape(self) -> list[Any]:
        """Return the kinds and names of the tree: what must be the same when a thread is resumed."""
        return [self._kind, self.name, self._max_iterations, *map(_shape_of, self.sub_agents)]

    async def _result(self, given: Any, thread_id: str | None, store: Store, terms: Terms) -> Any:
        """Return the output on a thread: the stored one, or what the agents that have not finished make."""
        name = fresh_id(store, self.name) if thread_id is None else thread_id
        try:
            async with claim(store, name, terms) as run:
                return await self._work(run, given)
        except Exception as error:
            hide_our_frames(error)
            raise

    async def _work(self, run: Run, given: Any) -> Any:
        """Return the output within a run."""
        driver = Driver(run)
        arguments = encode([given, self._shape()], path="input")
        await driver.start(f"workflow:{self.name}", arguments, "input or agents", {"workflow": self.name})
        if run.finished:
            return run.result
        with driver.body():
            output = await self._execute(Place(driver, AgentContext(thread_id=run.thread_id, branch=self.name)), given)
        await run.complete(output)
        return output

    async def _resumed(self, run: Run) -> Any:
        """Return the output of a thread that a recovery claimed; its input is recorded."""
        driver = Driver(run)
        started = driver.record.started
        if started is None or started.function != f"workflow:{self.name}":
            driver.leave_untouched()
            raise ConfigurationError(f"thread {run.thread_id!r} was not started by {self.name!r}; it cannot resume it")
        return await self._work(run, decode(started.arguments)[0])

    async def _execute(self, place: Place, given: Any) -> Any:
        """Execute the agents of this composite."""
        kinds = {SEQUENTIAL: self._in_order, PARALLEL: self._side_by_side, LOOP: self._again_and_again}
        return await kinds[self._kind](place, given)

    async def _in_order(self, place: Place, given: Any) -> Any:
        for stage, agent in enumerate(self.sub_agents):
            given = await _execute(
                place.below(stage, agent, workflow_type=SEQUENTIAL, workflow_stage=stage), agent, given
            )
        return given

    async def _side_by_side(self, place: Place, given: Any) -> list[Any]:
        """The outputs of all, in their order. If some fail, the others finish first: they are not executed again."""
        branches = []
        for stage, agent in enumerate(self.sub_agents):
            below = place.below(stage, agent, workflow_type=PARALLEL, workflow_stage=stage)
            branches.append(partial(_execute, below, agent, given))
        return await place.driver.together(branches)

    async def _again_and_again(self, place: Place, given: Any) -> Any:
        agent, most = self.sub_agents[0], self._max_iterations
        for iteration in range(1, most + 1):
            changes = {"workflow_type": LOOP, "loop_iteration": iteration, "loop_max_iterations": most}
            below = place.below(iteration, agent, workflow_stage=0, **changes)
            given = await _execute(msgspec.structs.replace(below, around=place.context), agent, given)
            if place.context.is_stopped:
                break
        return given


def _check_agent(agent: Any) -> None:
    if isinstance(agent, Durable):
        raise ConfigurationError(
            f"{name_of(agent)} is a durable function, which has threads of its own, and not an agent; give a function"
            " (input, ctx) that calls it: its steps are then recorded in the thread of the composite"
        )
    if not (callable(agent) or callable(getattr(agent, "run", None))):
        raise ConfigurationError(f"{agent!r} is not an agent: a function (input, ctx), an Agent, or a composite")


def _shape_of(agent: Any) -> Any:
    return agent._shape() if isinstance(agent, CompositeBase) else name_of(agent)  # noqa: SLF001  one file


async def _execute(place: Place, agent: Any, given: Any) -> Any:
    if isinstance(agent, CompositeBase):
        return await agent._execute(place, given)  # noqa: SLF001  one file
    key = place.driver.key("agent", place.path)
    return await place.driver.alone(key, partial(_replayed_or_called, place, key, agent, given))


async def _replayed_or_called(place: Place, key: str, agent: Any, given: Any) -> Any:
    driver, context = place.driver, place.context
    known = driver.noted(AGENT_DONE, key)
    if known is not None:
        output, is_stopped = decode(known.value), read_note(known, lambda content: bool(content["is_stopped"]))
    else:
        started_at = driver.ports.now()
        output = await driver.invoke(key, _call_of(place, agent, given))
        is_stopped = context.is_stopped
        await _write_down(place, key, output, max(driver.ports.now() - started_at, 0))
    if is_stopped and place.around is not None:
        place.around.is_stopped = True
    return output


def _call_of(place: Place, agent: Any, given: Any) -> Any:
    """The call of an agent. One that has threads of its own gets one that belongs to its place in this thread."""
    if callable(getattr(agent, "run", None)):
        return partial(agent.run, given, thread_id=f"{place.context.thread_id}:{place.path}")
    return partial(agent, given, place.context)


async def _write_down(place: Place, key: str, output: Any, took: int) -> None:
    """Note the output, and in the state where the workflow stands, under the document's names."""
    driver, context = place.driver, place.context
    standing = {name: getattr(context, name) for name in ("branch", *WORKFLOW_FIELDS)}
    name, content = context.branch.rpartition(".")[2], {**standing, "is_stopped": context.is_stopped}
    value = encode(output, path=f"output of {context.branch}")
    driver.change_state({"agent_name": name, "agent_state": standing})
    done = note(AGENT_DONE, content, driver.ports.now(), key=key, value=value, action=name, took=took)
    await driver.write(done, metadata={"agent": name, **standing})


WORKFLOW_FIELDS = ("workflow_type", "workflow_stage", "loop_iteration", "loop_max_iterations")


class Composite(CompositeBase):
    """An agent made of agents: see `sequential`, `parallel` and `repeat`."""

    async def run(
        self,
        given: Any,
        *,
        thread_id: str | None = None,
        store: Store | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
    ) -> Any:
        """Return the composite's output. An unfinished thread is resumed; a finished one has its output already."""
        return await self._result(given, thread_id, store_finder(store)(), Terms(lease, wait))

    async def resume(self, run: Run) -> Any:
        """Resume a claimed thread: `await store.recover(composite.resume, labels={"workflow": "my_name"})`."""
        return await self._resumed(run)


def sequential(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """Run agents one after the other: the output of each is the input of the next."""
    return Composite(SEQUENTIAL, agents, name)


def parallel(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """Run agents side by side, each with the same input. The output is the list of theirs, in their order."""
    return Composite(PARALLEL, agents, name)


def repeat(agent: Any, *, max_iterations: int, name: str | None = None) -> Composite:
    """Run an agent up to `max_iterations` times, its output the next input; `ctx.stop()` ends it sooner."""
    return Composite(LOOP, [agent], name, max_iterations)
