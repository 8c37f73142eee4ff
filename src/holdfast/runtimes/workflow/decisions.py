"""The decisions of a superstep: who receives what, when a fan-in is ready, how state is merged. Pure.

`execution.py` calls the handlers and conditions, and passes their results to `committed`.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.graph import Edge, Graph, Reducer, Renaming
from holdfast.runtimes.workflow.snapshot import Message, Pending, Snapshot

Buffers: TypeAlias = dict[str, dict[str, list[Any]]]
Reducers: TypeAlias = Mapping[str, Reducer]


class Sent(msgspec.Struct, frozen=True):
    """A sent message and its destinations: pairs of an edge's id and one of its targets."""

    source: str
    data: bytes
    """The message, encoded when it was sent: each target gets its own copy."""
    places: list[tuple[str, str]] = []
    target: str | None = None
    """The only target, if the handler named one."""


class Write(msgspec.Struct, frozen=True):
    """What an executor did to one key of the state: set it, or passed deltas to its reducer."""

    value: Any = None
    is_set: bool = False
    deltas: list[Any] = []


class Result(msgspec.Struct, frozen=True):
    """What an executor did in one superstep."""

    sent: list[Sent] = []
    outputs: list[Any] = []
    writes: dict[str, Write] = {}
    asked: list[Pending] = []

    def plain(self) -> list[Any]:
        """Return the result in the form a note stores."""
        writes = {key: astuple(each) for key, each in self.writes.items()}
        return [[*map(astuple, self.sent)], self.outputs, writes, [*map(astuple, self.asked)]]

    @classmethod
    def of(cls, plain: Any) -> "Result":
        """Read a result from a note; TypeError or ValueError if it is not one."""
        sent, outputs, writes, asked = plain
        return cls(
            [Sent(*each) for each in sent],
            outputs,
            {key: Write(*each) for key, each in writes.items()},
            [Pending.of(each) for each in asked],
        )

    def renamed(self, to: Renaming) -> "Result":
        """Return the same result under the new ids."""
        edges = to.edges
        return Result(
            [Sent(to.id(each.source), each.data, [(edges[e], to.id(t)) for e, t in each.places]) for each in self.sent],
            self.outputs,
            {to.key(key): write for key, write in self.writes.items()},
            [replace(each, executor=to.id(each.executor)) for each in self.asked],
        )


def deliveries(graph: Graph, snapshot: Snapshot) -> dict[str, list[Message]]:
    """Return the messages of the next superstep by executor, in the order of the graph and of arrival."""
    found: dict[str, list[Message]] = {}
    for message in snapshot.messages:
        found.setdefault(message.target, []).append(message)
    return {id_: found[id_] for id_ in graph.nodes if id_ in found}


def targets_of(edge: Edge, verdicts: list[Any]) -> list[str]:
    """Return the targets of an edge that get a message, given the verdicts of its functions."""
    if edge.kind == "switch":
        case = next((at for at, verdict in enumerate(verdicts) if verdict), len(edge.conditions))
        return [*edge.targets[case : case + 1]]
    if edge.kind != "choice":
        return list(edge.targets) if all(verdicts) else []
    chosen = verdicts[0]
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise ConfigurationError(f"{edge.conditions[0]} must return a list of target ids, got {chosen!r}")
    ids = [getattr(each, "id", each) for each in chosen]
    unknown = [repr(each) for each in ids if each not in edge.targets]
    if unknown:
        raise ConfigurationError(
            f"{edge.conditions[0]} after executor {edge.sources[0]!r} must choose among the targets"
            f" {', '.join(map(repr, edge.targets))}, got {', '.join(unknown)}"
        )
    return [each for each in edge.targets if each in ids]


def committed(graph: Graph, snapshot: Snapshot, results: Mapping[str, Result], saved: dict[str, Any]) -> Snapshot:
    """Return the snapshot after a superstep, given the results and saved states of its executors, in graph order."""
    messages, buffers = routed(graph, snapshot.buffers, results)
    outputs, state = list[Any](), snapshot.state
    for result in results.values():
        outputs += result.outputs
        for key, write in result.writes.items():
            state = {**state, key: applied(graph.reducers, state, key, write)}
    return replace(
        snapshot,
        iteration=snapshot.iteration + 1,
        messages=messages,
        state=state,
        executors=saved,
        buffers=buffers,
        outputs=[*snapshot.outputs, *outputs] if outputs else snapshot.outputs,
        former=snapshot.former and {},
    )


_CONCATENATE = (operator.add, operator.concat)
"""Reducers that only append to lists; others could change the existing items."""


def routed(graph: Graph, buffers: Buffers, results: Mapping[str, Result]) -> tuple[list[Message], Buffers]:
    """Return the messages of the next superstep, and those that wait at fan-ins for other sources."""
    messages = list[Message]()
    for sent in (each for result in results.values() for each in result.sent):
        for edge_id, target in sent.places:
            edge, data = graph.edges_by_id[edge_id], decode(sent.data)
            if edge.kind == "fan_in":
                ready, buffers = _buffered(graph, edge, buffers, sent.source, data)
                messages += ready
            else:
                messages.append(Message(sent.source, graph.entry(target), data))
    return messages, buffers


def _buffered(graph: Graph, edge: Edge, buffers: Buffers, source: str, data: Any) -> tuple[list[Message], Buffers]:
    """Add a message to a fan-in. Return what it delivers, once every source has sent one, and what still waits."""
    before = buffers.get(edge.id, {})
    waiting = {**before, source: [*before.get(source, ()), data]}
    others = {other: each for other, each in buffers.items() if other != edge.id}
    if not all(waiting.get(each) for each in edge.sources):
        return [], {**others, edge.id: waiting}
    gathered = [waiting[each][0] for each in edge.sources]
    left = {each: rest for each, items in waiting.items() if (rest := items[1:])}
    message = Message(source, graph.entry(edge.targets[0]), gathered)
    return [message], {**others, edge.id: left} if left else others


def grown(reducers: Reducers, state: Mapping[str, Any], results: Mapping[str, Result]) -> dict[str, list[Any]] | None:
    """Return the items that the superstep appends to lists of the state; None if it changes the state otherwise."""
    found: dict[str, list[Any]] = {}
    for result in results.values():
        for key, write in result.writes.items():
            lists = [state.get(key), *write.deltas]
            if write.is_set or reducers[key] not in _CONCATENATE or any(type(each) is not list for each in lists):
                return None
            found.setdefault(key, []).extend(item for delta in write.deltas for item in delta)
    return found


def applied(reducers: Reducers, state: Mapping[str, Any], key: str, write: Write) -> Any:
    """Return the value of a key after a write. The first delta of a key without a value becomes its value.

    A reducer gets copies, unless it is known not to change its arguments.
    """
    values = [write.value] if write.is_set else [state[key]] if key in state else []
    values += write.deltas
    if len(values) > 1 and reducers[key] not in _CONCATENATE:
        values = decode(encode(values, path=f"state[{key!r}]"))
    value = values[0]
    for delta in values[1:]:
        try:
            value = reducers[key](value, delta)
        except Exception as error:
            raise ConfigurationError(f"the reducer of key {key!r} failed: {type(error).__name__}: {error}") from error
    return value


def refuse_conflict(executor: str, writes: Mapping[str, Write], written: dict[str, str]) -> None:
    """Raise if an executor sets a key that another wrote in this superstep, or updates one that another set.

    `written` maps each key to the executor that set it, or to "" if the key was updated; this function fills it.
    """
    for key, write in writes.items():
        owner = executor if write.is_set else ""
        other = written.setdefault(key, owner)
        if other != owner:
            raise ConfigurationError(
                f"executor {executor!r} and {repr(other) if other else 'another'} both wrote the key {key!r} of the"
                " state in one superstep, so one write would be lost; add a reducer for the key and use"
                " update_state, or write it in one executor"
            )
