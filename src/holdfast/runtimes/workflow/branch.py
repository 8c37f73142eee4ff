"""One executor in one superstep: call its handlers, route its messages, and record its result."""

from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError
from holdfast.records.type_hints import hint_name
from holdfast.runs.driver import Driver, Note, failed_steps, note, read_note, text_of
from holdfast.runtimes.workflow.context import DONE, ContextBase, Work
from holdfast.runtimes.workflow.decisions import Result, Sent, refuse_conflict, targets_of
from holdfast.runtimes.workflow.graph import Edge, Graph, Node
from holdfast.runtimes.workflow.instances import ExecutorInstances
from holdfast.runtimes.workflow.snapshot import Message, Snapshot

EXECUTOR = "executor"
"""The kind of note for the result of an executor in a superstep."""
NOTHING = encode(None)
ENDS_OF_PROGRAMS = (KeyboardInterrupt, SystemExit, GeneratorExit)
Route: TypeAlias = tuple[Edge, list[str], list[str]]
"""An edge for a message, the targets that its conditions chose, and those of them with a handler for it."""


class Superstep(msgspec.Struct):
    """The data that the branches of one superstep share."""

    graph: Graph
    driver: Driver
    instances: ExecutorInstances
    context: type[ContextBase]
    snapshot: Snapshot
    saved: dict[str, Any]
    """The saved states of executors, including those of this superstep."""
    is_parallel: bool
    """True if several executors take part: then each result is recorded as soon as it is done."""
    written: dict[str, str] = {}
    """The executor that wrote each key of the state; see `refuse_conflict`."""

    @property
    def number(self) -> int:
        """The number of the superstep, from 1."""
        return self.snapshot.iteration + 1


def work_key(snapshot: Snapshot, id_: str, index: int = 0) -> str:
    """Return the key of an executor's work, or of its message at an index: the same in every process."""
    place = f"{snapshot.generation}.{snapshot.iteration + 1}.{index}:{snapshot.former.get(id_, id_)}"
    return Driver.key(EXECUTOR, place)


def noted_result(driver: Driver, key: str) -> Result | None:
    """Return the recorded result of an executor; None if it has none, or was recorded with its checkpoint."""
    known = driver.noted(EXECUTOR, key)
    if known is None or "_result" not in read_note(known, dict):
        return None
    return read_note(known, lambda content: Result.of(content["_result"]))


class Ended(msgspec.Struct, frozen=True):
    """How a branch ended: with a result, with an error, or waiting."""

    id: str
    result: Result | None = None
    line: Note | None = None
    """The note of a result that is not stored yet."""
    error: BaseException | None = None
    """Not an `Exception` if the run waits."""


class Branch:
    """One executor in one superstep."""

    def __init__(self, step: Superstep, node: Node, messages: list[Message]) -> None:
        self._step = step
        self._node = node
        self._messages = messages
        self._work = Work(step.graph, node, step.snapshot, step.driver)

    def replayed(self) -> Ended | None:
        """Return the recorded ending of the branch; None if there is none."""
        result = noted_result(self._step.driver, work_key(self._step.snapshot, self._node.id))
        if result is None:
            return None
        refuse_conflict(self._node.id, result.writes, self._step.written)
        return Ended(self._node.id, result)

    async def run(self) -> Ended:
        """Call the handlers. An error is returned, not raised, so that the other branches can finish."""
        driver = self._step.driver
        try:
            return await self._done()
        except ENDS_OF_PROGRAMS:
            raise
        except BaseException as error:
            if driver.ports.is_raised_cancellation(error):
                cause, error = error, RuntimeError(f"{type(error).__name__}, but its run was not cancelled")
                error.__cause__ = cause
            if isinstance(error, Exception):
                await self._record_failure(error)
            elif not driver.is_waiting:
                raise
            return Ended(self._node.id, error=error)

    async def _done(self) -> Ended:
        step, id_, started_at = self._step, self._node.id, self._step.driver.ports.now()
        for index, message in enumerate(self._messages):
            await self._handle(message, work_key(step.snapshot, id_, index))
        self._work.is_done = True
        result = await self._result()
        content = {"_result": result.plain()} if step.is_parallel else {}
        line = self._line(content, value=NOTHING, took=max(step.driver.ports.now() - started_at, 0))
        saved = await step.instances.save(id_)
        if step.is_parallel:
            await self._record(line, saved)
            return Ended(id_, result)
        if saved is not None:
            step.saved = {**step.saved, id_: saved}
        return Ended(id_, result, line)

    async def _handle(self, message: Message, key: str) -> None:
        handler = self._node.handlers.find(*message.contents)
        if handler is None:
            kinds = " and ".join(hint_name(type(each)) for each in message.contents)
            raise self._work.error(
                f" has no handler for {kinds} from {message.source!r}; it accepts"
                f" {', '.join([*self._node.takes, *self._node.answers])}"
            )
        executor, context = (
            self._step.instances.find(self._node.id, self._node.executor),
            self._step.context(self._work),
        )
        method = getattr(executor, handler.method)
        returned = await self._step.driver.invoke(key, partial(method, *message.contents, context))
        name = getattr(method, "__name__", handler.method)
        self._work.check_awaited(name)
        if returned is not None and returned is not DONE:
            self._step.graph.warn_once(
                f"executor {self._node.id!r}: {name} returned {hint_name(type(returned))}, which is ignored;"
                " use ctx.send_message or ctx.yield_output"
            )

    async def _result(self) -> Result:
        work = self._work
        sent = [replace(each, places=await self._places(each)) for each in work.sent]
        refuse_conflict(self._node.id, work.writes, self._step.written)
        return Result(sent, work.outputs, work.writes, work.asked)

    async def _places(self, sent: Sent) -> list[tuple[str, str]]:
        """Return where a message goes: along each edge to the chosen targets that have a handler for it."""
        data, graph = decode(sent.data), self._step.graph
        kind = hint_name(type(data))
        routes = list[Route]()
        for edge in graph.edges_from(sent.source):
            if sent.target in {None, *edge.targets}:
                allowed = targets_of(edge, await self._verdicts(edge, sent.data))
                chosen = [each for each in allowed if sent.target in {None, each}]
                nodes = {each: graph.nodes[graph.entry(each)] for each in chosen}
                taken = [to for to, node in nodes.items() if edge.kind == "fan_in" or node.handlers.find(data)]
                routes.append((edge, chosen, taken))
        places = [(edge.id, to) for edge, _, taken in routes for to in taken]
        chosen = [repr(to) for _, chosen, _ in routes for to in chosen]
        if chosen and not places:
            raise ConfigurationError(
                f"executor {sent.source!r} sends {kind}, but no handler of {', '.join(chosen)} accepts it"
            )
        self._warn_of_dropped(sent, routes, kind)
        return places

    def _warn_of_dropped(self, sent: Sent, routes: list[Route], kind: str) -> None:
        """Warn of a message that a switch or a selection dropped, or that no edge took."""
        is_dropped = not any(chosen or edge.kind == "choice" for edge, chosen, _ in routes)
        lost, to = list[str](), f" to {sent.target!r}" if sent.target else ""
        what = f"a message of type {kind} of executor {sent.source!r}{to} was dropped at"
        for edge, chosen, taken in routes:
            if chosen and not taken and edge.kind in {"switch", "choice"}:
                targets = ", ".join(map(repr, chosen))
                self._step.graph.warn_once(f"{what} {edge.id}, because no handler of {targets} accepts it")
            elif not chosen and (is_dropped or (edge.kind == "switch" and not to)) and not self._is_loop_end(edge):
                lost.append(edge.id)
        if lost:
            why = "no condition sends it there" if to else "no condition is true"
            hint = "add an edge or a default that takes it"
            self._step.graph.warn_once(f"{what} {'; '.join(lost)}, because {why}; {hint}")

    def _is_loop_end(self, edge: Edge) -> bool:
        """True for an edge to itself whose condition may end the loop: the executor sent or yielded something else."""
        is_loop = edge.kind == "edge" and edge.sources == edge.targets
        return is_loop and bool(self._work.outputs or any(each.source != self._node.id for each in self._work.sent))

    async def _verdicts(self, edge: Edge, data: bytes) -> list[Any]:
        """Call the functions of an edge with a message; for a switch, up to the first that returns true."""
        ids = ([*edge.targets],) if edge.kind == "choice" else ()
        verdicts = list[Any]()
        for function in edge.functions:
            verdicts.append(await self._step.driver.ports.call(function, decode(data), *ids))
            if verdicts[-1] and edge.kind == "switch":
                break
        return verdicts

    def _line(self, content: dict[str, Any], **fields: Any) -> Note:
        fields |= {"key": work_key(self._step.snapshot, self._node.id), "action": self._node.id}
        return note(EXECUTOR, {"superstep": self._step.number, **content}, self._step.driver.ports.now(), **fields)

    async def _record(self, line: Note, saved: Any) -> None:
        """Record a result, in one row with the executor's saved state."""
        step, id_ = self._step, self._node.id

        def change() -> dict[str, Any]:
            step.saved = {**step.saved, id_: saved}
            return {"executors": step.saved}

        metadata: dict[str, str | int] = {"superstep": step.number, EXECUTOR: id_}
        await step.driver.write(line, journal=True, metadata=metadata, change=None if saved is None else change)

    async def _record_failure(self, error: Exception) -> None:
        """Record an error, so that its failed steps are executed again."""
        step, kind = self._step, type(error).__name__
        if not step.driver.is_lost:
            line = self._line({}, error=f"{kind}: {text_of(error)}", failed=failed_steps(error))
            metadata: dict[str, str | int] = {"superstep": step.number, EXECUTOR: self._node.id, "error": kind}
            await step.driver.write(line, journal=True, metadata=metadata)
