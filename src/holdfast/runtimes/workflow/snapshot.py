"""The content of a workflow's checkpoint, and its form in the state of the thread. Pure.

Each part is a separate cell: unchanged parts cost nothing, and a growing list costs only its new items. The payload of
a single message is stored directly, not in a list of one, for the same reason.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint, KeyReused
from holdfast.records.request import Answer
from holdfast.runtimes.workflow.graph import Graph, Renaming, differences

VERSION = 1
"""The version of the stored form."""


class Message(msgspec.Struct, frozen=True):
    """A message on its way to an executor."""

    source: str
    target: str
    data: Any
    request: Any = None
    """The answered request in a list of one, if `data` is a response; else None."""

    @property
    def contents(self) -> tuple[Any, ...]:
        """The arguments of the handler: the message, or the request and the response."""
        return (self.data,) if self.request is None else (self.request[0], self.data)


class Pending(msgspec.Struct, frozen=True):
    """A request that waits for its response."""

    executor: str
    data: Any
    choices: tuple[str, ...] = ()
    is_bool: bool = False
    """True if the handler gets True for the first choice, and False for the other."""
    takes: bytes = b""
    """The types of the response; see `answer_types`."""

    @classmethod
    def of(cls, plain: Any) -> "Pending":
        """Read a request from its fields; TypeError or ValueError if they do not fit."""
        executor, data, choices, *others = plain
        return cls(executor, data, tuple(choices), *others)

    def response(self, answer: Answer) -> Any:
        """Return the value that the handler gets for an answer."""
        if not self.choices:
            return answer.value
        return answer.choice == self.choices[0] if self.is_bool else answer.choice


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow between two supersteps: everything the next one needs."""

    workflow: str
    signature: str
    version: int = VERSION
    generation: int = 0
    """The count of fresh starts after an incompatible checkpoint."""
    iteration: int = 0
    """The count of committed supersteps."""
    messages: list[Message] = []
    state: dict[str, Any] = {}
    executors: dict[str, Any] = {}
    """The saved states of executors, by id."""
    buffers: dict[str, dict[str, list[Any]]] = {}
    """Messages that wait at fan-ins for other sources: by edge and source, in the order of arrival."""
    requests: dict[str, Pending] = {}
    outputs: list[Any] = []
    former: dict[str, str] = {}
    """The old ids of renamed executors, until the superstep that was under way is committed."""

    def changes_since(self, before: "Snapshot | None") -> dict[str, Any]:
        """The top-level keys of the state that differ from those of an earlier snapshot."""
        names = self.__struct_fields__
        changed = [name for name in names if before is None or getattr(self, name) is not getattr(before, name)]
        return {name: _packed(name, getattr(self, name)) for name in changed}

    @classmethod
    def of(cls, state: Any, where: str) -> "Snapshot":
        """Read a snapshot from the state of a thread; `Corrupt` if that is none."""
        try:
            stored = {"former": {}, **state}
            fields = {name: _unpacked(name, stored[name]) for name in cls.__struct_fields__}
            return msgspec.convert(fields, cls)
        except (msgspec.ValidationError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise Corrupt(f"{where} does not hold a checkpoint of a workflow: {error!r}", record="state") from error

    def check_name(self, workflow: str, where: str, *, is_named: bool) -> None:
        """Raise `KeyReused` if it belongs to another workflow. `is_named` is False for a name made of the signature."""
        if is_named and self.workflow != workflow:
            raise KeyReused(f"{where} runs workflow {self.workflow!r}, not {workflow!r}; use another id")

    def renaming(self, graph: Graph, renamed: Mapping[str, str], stored: Any, where: str) -> Renaming | None:
        """Return how its ids differ from those of a graph; None if they do not. `stored` is the graph that wrote it.

        `IncompatibleCheckpoint` if more than ids differ.
        """
        if self.version != VERSION:
            raise IncompatibleCheckpoint(f"{where} holds a checkpoint of version {self.version}, not {VERSION}")
        if self.signature == graph.signature:
            return None
        renaming = Renaming(renamed, stored or {"start": "", "nodes": {}, "edges": []})
        before, now = renaming.plain(), graph.plain()
        differing = [*renaming.merged(), *differences(before, now)]
        if not differing:
            return renaming
        gone, new = ({*a["nodes"]} - {*b["nodes"]} for a, b in ((before, now), (now, before)))
        migrate = ".migrate(renamed={'old': 'new'}) or " if gone and len(gone) == len(new) else ""
        raise IncompatibleCheckpoint(
            f"{where} was written by another graph of workflow {self.workflow!r}: {'; '.join(differing)}. Resume it"
            f" with the graph that wrote it, or use {migrate}on_incompatible='fresh'"
        )

    def renamed(self, to: Renaming, workflow: str, signature: str) -> "Snapshot":
        """Return the snapshot under the new ids, with the workflow's name and signature."""
        new, edges, nodes = to.id, to.edges, to.stored["nodes"]
        return replace(
            self,
            workflow=workflow,
            signature=signature,
            messages=[replace(each, source=new(each.source), target=new(each.target)) for each in self.messages],
            state={to.key(key): value for key, value in self.state.items()},
            executors={new(each): saved for each, saved in self.executors.items()},
            buffers={
                edges[edge]: {new(source): waiting for source, waiting in sources.items()}
                for edge, sources in self.buffers.items()
            },
            requests={key: replace(each, executor=new(each.executor)) for key, each in self.requests.items()},
            former={new(each): old for each in nodes if (old := self.former.get(each, each)) != new(each)},
        )


def _packed(name: str, value: Any) -> Any:
    """Return a field in its stored form."""
    if name == "requests":
        return {key: astuple(each) for key, each in value.items()}
    if name != "messages":
        return value
    routes = [[each.source, each.target, *([each.request[0]] if each.request else [])] for each in value]
    return {"routes": routes, "data": value[0].data if len(value) == 1 else [each.data for each in value]}


def _unpacked(name: str, stored: Any) -> Any:
    """Return a field from its stored form."""
    if name == "requests":
        return {key: Pending.of(each) for key, each in stored.items()}
    if name != "messages":
        return stored
    routes, data = stored["routes"], stored["data"]
    pairs = zip(routes, [data] if len(routes) == 1 else data, strict=True)
    return [Message(each[0], each[1], item, list(each[2:]) or None) for each, item in pairs]
