"""One executor in one superstep: its handlers are called, its messages routed, and what it did is noted at once."""

from functools import partial
from typing import Any

import msgspec

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError
from holdfast.runs.driver import Driver, Note, failed_steps, note, read_note, text_of
from holdfast.runtimes.workflow.context import ContextBase, Posted, Work
from holdfast.runtimes.workflow.decisions import Result, Sent, refuse_conflict, targets_of
from holdfast.runtimes.workflow.graph import Edge, Graph, Node, Renaming
from holdfast.runtimes.workflow.message_types import hint_name
from holdfast.runtimes.workflow.seats import Seats
from holdfast.runtimes.workflow.snapshot import Message, Snapshot

EXECUTOR = "executor"
"""The kind of note that says what an executor did in a superstep."""
NOTHING = encode(None)
ENDS_OF_PROGRAMS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class Superstep(msgspec.Struct):
    """What the branches of one superstep share."""

    graph: Graph
    driver: Driver
    seats: Seats
    context: type[ContextBase]
    snapshot: Snapshot
    saved: dict[str, Any]
    """What executors saved, those of this superstep included."""
    renaming: Renaming
    """How the ids differ from those of when the superstep was begun."""
    is_parallel: bool
    """True if several executors take part: then each is noted as soon as it is done."""
    written: dict[str, str] = {}
    """Which executor set a key of the state; see `refuse_conflict`."""

    @property
    def number(self) -> int:
        """Supersteps are numbered from 1."""
        return self.snapshot.iteration + 1

    def key(self, id_: str, index: int = 0) -> str:
        """The key of an executor's work, or of its message at an index: the same in every process."""
        place = f"{self.snapshot.generation}.{self.number}.{index}:{self.renaming.old_ids.get(id_, id_)}"
        return self.driver.key(EXECUTOR, place)


class Ended(msgspec.Struct, frozen=True):
    """How a branch ended: with a result, or an error, or it waits."""

    id: str
    result: Result | None = None
    line: Note | None = None
    """The note of a result that is not written yet."""
    error: Exception | None = None
    waits: BaseException | None = None


class Branch:
    """One executor in one superstep."""

    def __init__(self, step: Superstep, node: Node, messages: list[Message]) -> None:
        self._step = step
        self._node = node
        self._messages = messages
        self._work = Work(step.graph, node, step.snapshot, step.driver)

    def replayed(self) -> Ended | None:
        """How it ended before, if that was noted.

        What an executor did alone is noted with its checkpoint: if that was deleted, it is executed again.
        """
        known = self._step.driver.noted(EXECUTOR, self._step.key(self._node.id))
        if known is None or "_result" not in read_note(known, dict):
            return None
        result = read_note(known, lambda content: Result.of(content["_result"]))
        result = result.renamed(self._step.renaming) if self._step.renaming.renamed else result
        refuse_conflict(self._node.id, result.writes, self._step.written)
        return Ended(self._node.id, result)

    async def run(self) -> Ended:
        """Call the handlers. An error is returned: the others come to their end first."""
        try:
            return await self._done()
        except ENDS_OF_PROGRAMS:
            raise
        except Exception as error:  # noqa: BLE001  raised once all have ended
            await self._note_failure(error)
            return Ended(self._node.id, error=error)
        except BaseException as waits:
            if not self._step.driver.is_waiting:
                raise
            return Ended(self._node.id, waits=waits)

    async def _done(self) -> Ended:
        driver, started_at = self._step.driver, self._step.driver.ports.now()
        for index, message in enumerate(self._messages):
            await driver.invoke(self._step.key(self._node.id, index), self._call(message))
        self._work.is_done = True
        result = await self._result()
        took = max(driver.ports.now() - started_at, 0)
        content = {"_result": self._as_stored(result).plain()} if self._step.is_parallel else {}
        line = self._line(content, value=NOTHING, took=took)
        saved = await self._step.seats.save(self._node.id) if self._step.seats.saves(self._node.id) else None
        if self._step.is_parallel:
            await self._note(line, saved)
            return Ended(self._node.id, result)
        if saved is not None:
            self._step.saved = {**self._step.saved, self._node.id: saved}
        return Ended(self._node.id, result, line)

    def _call(self, message: Message) -> Any:
        handler = self._node.handlers.find(*message.contents)
        if handler is None:
            kinds = " and ".join(hint_name(type(each)) for each in message.contents)
            raise ConfigurationError(
                f"executor {self._node.id!r} has no handler for {kinds} from {message.source!r}; it takes"
                f" {', '.join([*self._node.takes, *self._node.answers])}"
            )
        executor = self._step.seats.find(self._node.id, self._node.executor)
        return partial(getattr(executor, handler.method), *message.contents, self._step.context(self._work))

    # What it did

    async def _result(self) -> Result:
        work = self._work
        sent = [Sent(each.source, each.data, await self._places(each)) for each in work.posted]
        refuse_conflict(self._node.id, work.writes, self._step.written)
        return Result(sent, work.outputs, work.writes, work.asked)

    async def _places(self, posted: Posted) -> list[tuple[str, str]]:
        """Where a message goes: along each edge to the targets that its conditions allow and whose handlers take it."""
        data, graph = decode(posted.data), self._step.graph
        chosen = [
            (edge, target)
            for edge in graph.edges_from(posted.source)
            for target in targets_of(edge, await self._verdicts(edge, posted.data))
            if posted.target in {None, target}
        ]
        taken = [(edge.id, target) for edge, target in chosen if self._takes(edge, target, data)]
        if chosen and not taken:
            raise ConfigurationError(
                f"executor {posted.source!r} sends {hint_name(type(data))}, and no handler of"
                f" {', '.join(repr(target) for _, target in chosen)} takes that"
            )
        return taken

    async def _verdicts(self, edge: Edge, data: bytes) -> list[Any]:
        """What the functions of an edge say of a message; no case of a switch is asked after the first that is true."""
        ids = ([*edge.targets],) if edge.kind == "choice" else ()
        verdicts = list[Any]()
        for function in edge.functions:
            verdicts.append(await self._step.driver.ports.call(function, decode(data), *ids))
            if verdicts[-1] and edge.kind == "switch":
                break
        return verdicts

    def _takes(self, edge: Edge, target: str, data: Any) -> bool:
        node = self._step.graph.nodes[self._step.graph.entry(target)]
        return edge.kind == "fan_in" or node.handlers.find(data) is not None

    # Notes

    def _as_stored(self, result: Result) -> Result:
        """A result with the ids that the stored checkpoint has: those of now are written with the next one."""
        return result.renamed(self._step.renaming.back()) if self._step.renaming.renamed else result

    def _line(self, content: dict[str, Any], **fields: Any) -> Note:
        id_, content = self._node.id, {"superstep": self._step.number, **content}
        return note(EXECUTOR, content, self._step.driver.ports.now(), key=self._step.key(id_), action=id_, **fields)

    async def _note(self, line: Note, saved: Any) -> None:
        """Note a result, in one row with what the executor saved."""
        step, id_ = self._step, self._node.id

        def change() -> dict[str, Any]:
            step.saved = {**step.saved, id_: saved}
            return {"executors": {step.renaming.back().id(each): state for each, state in step.saved.items()}}

        metadata: dict[str, str | int] = {"superstep": step.number, EXECUTOR: id_}
        await step.driver.write(line, journal=True, metadata=metadata, change=None if saved is None else change)

    async def _note_failure(self, error: Exception) -> None:
        """Note an error, so that the failed steps behind it are executed again."""
        driver, id_ = self._step.driver, self._node.id
        if driver.is_lost:
            return
        line = self._line({}, error=f"{type(error).__name__}: {text_of(error)}", failed=failed_steps(error))
        metadata: dict[str, str | int] = {"superstep": self._step.number, EXECUTOR: id_, "error": type(error).__name__}
        await driver.write(line, journal=True, metadata=metadata)
