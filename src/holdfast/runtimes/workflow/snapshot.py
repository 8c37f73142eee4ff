"""What a checkpoint of a workflow holds, and how it lies in the state of its thread. Pure.

The stored parts are cells of their own: what did not change costs nothing, and a list that grows costs its growth. So
the payload of a single message is stored as itself, and not in a list of one.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.records.errors import Corrupt
from holdfast.records.request import Answer
from holdfast.runtimes.workflow.graph import Renaming

VERSION = 1
"""The version of this form."""


class Message(msgspec.Struct, frozen=True):
    """A message on its way to an executor."""

    source: str
    target: str
    data: Any
    request: Any = None
    """The request that `data` is the response to, in a list of one; None for any other message."""

    @property
    def contents(self) -> tuple[Any, ...]:
        """What a handler is called with: the message, or the request and the response."""
        return (self.data,) if self.request is None else (self.request[0], self.data)


class Pending(msgspec.Struct, frozen=True):
    """A request that waits for its response."""

    executor: str
    data: Any
    choices: tuple[str, ...] = ()
    is_bool: bool = False
    """True if the handler is given True for the first choice, and False for the other."""

    def plain(self) -> list[Any]:
        """The request as it is stored."""
        return [self.executor, self.data, list(self.choices), self.is_bool]

    @classmethod
    def of(cls, plain: Any) -> "Pending":
        """Read a request; raises TypeError or ValueError for what is none."""
        executor, data, choices, is_bool = plain
        return cls(executor, data, tuple(choices), is_bool)

    def response(self, answer: Answer) -> Any:
        """What the handler is given for an answer."""
        if not self.choices:
            return answer.value
        return answer.choice == self.choices[0] if self.is_bool else answer.choice


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow between two supersteps: everything that the next one needs."""

    workflow: str
    signature: str
    version: int = VERSION
    generation: int = 0
    """How often it was started afresh, because its checkpoints did not fit the graph."""
    iteration: int = 0
    """How many supersteps are done."""
    messages: list[Message] = []
    state: dict[str, Any] = {}
    executors: dict[str, Any] = {}
    """What executors saved, by id."""
    buffers: dict[str, dict[str, list[Any]]] = {}
    """What waits at fan-ins for the other sources: by edge, by source, in the order of arrival."""
    requests: dict[str, Pending] = {}
    outputs: list[Any] = []

    def changes_since(self, before: "Snapshot | None") -> dict[str, Any]:
        """The top-level keys of the state that differ from those of an earlier snapshot."""
        names = self.__struct_fields__
        changed = [name for name in names if before is None or getattr(self, name) is not getattr(before, name)]
        return {name: _PACKED.get(name, _as_it_is)(getattr(self, name)) for name in changed}

    @classmethod
    def of(cls, state: Any, where: str) -> "Snapshot":
        """Read a snapshot from the state of a thread; `Corrupt` if that is none."""
        try:
            fields = {name: _READ.get(name, _as_it_is)(state[name]) for name in cls.__struct_fields__}
            return msgspec.convert(fields, cls)
        except (msgspec.ValidationError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise Corrupt(f"{where} does not hold the checkpoint of a workflow: {error!r}", record="state") from error

    def renamed(self, to: Renaming, workflow: str, signature: str) -> "Snapshot":
        """The same with the ids of now, and the name and signature of the workflow that has those."""
        new, edges = to.id, to.edges
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
        )


def _as_it_is(value: Any) -> Any:
    return value


def _packed_messages(messages: list[Message]) -> dict[str, Any]:
    routes = [[each.source, each.target, *([each.request[0]] if each.request else [])] for each in messages]
    data = messages[0].data if len(messages) == 1 else [each.data for each in messages]
    return {"routes": routes, "data": data}


def _read_messages(packed: Any) -> list[Message]:
    routes, data = packed["routes"], packed["data"]
    contents = [data] if len(routes) == 1 else data
    return [
        Message(each[0], each[1], item, list(each[2:]) or None) for each, item in zip(routes, contents, strict=True)
    ]


def _packed_requests(requests: Mapping[str, Pending]) -> dict[str, Any]:
    return {key: each.plain() for key, each in requests.items()}


def _read_requests(packed: Any) -> dict[str, Pending]:
    return {key: Pending.of(each) for key, each in packed.items()}


_PACKED: dict[str, Any] = {"messages": _packed_messages, "requests": _packed_requests}
_READ: dict[str, Any] = {"messages": _read_messages, "requests": _read_requests}
