"""The context of a handler: it collects messages, outputs, requests and state changes until the executor is done.

Values are copied when they are passed in: changing an object afterwards has no effect.
"""

from collections.abc import Awaitable, Coroutine, Generator
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Generic, Literal, Union, Unpack, get_args, get_origin

import msgspec

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError
from holdfast.records.type_hints import fits, hint_name, may_meet, members
from holdfast.runs.driver import YES_OR_NO, Driver, answer_types
from holdfast.runs.options import StepPolicy
from holdfast.runtimes.workflow.decisions import Sent, Write, applied
from holdfast.runtimes.workflow.graph import Graph, Node
from holdfast.runtimes.workflow.snapshot import Pending, Snapshot

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    SentT = TypeVar("SentT", default=Any)
    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    SentT, OutputT = TypeVar("SentT"), TypeVar("OutputT")

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class _Done(Awaitable[None]):
    """An awaitable that is already done; awaiting it is optional."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE = _Done()


class Work(msgspec.Struct):
    """What the handlers of one executor did so far in one superstep."""

    graph: Graph
    node: Node
    snapshot: Snapshot
    driver: Driver
    sent: list[Sent] = []
    outputs: list[Any] = []
    writes: dict[str, Write] = {}
    asked: list[Pending] = []
    steps: list[tuple[str, Coroutine[Any, Any, Any]]] = []
    """The steps that the handler called, by name, to check that it awaited them."""
    is_done: bool = False
    """True once the handlers have returned: later calls would be lost."""

    def error(self, text: str) -> ConfigurationError:
        """Return an error that names the executor."""
        return ConfigurationError(f"executor {self.node.id!r}{text}")

    def check(self, what: str) -> None:
        """Raise if the handlers have returned."""
        if self.is_done:
            raise self.error(f": {what} after its handler returned would be lost; await everything the handler starts")

    def check_awaited(self, method: str) -> None:
        """Raise if a handler returned without awaiting one of its steps."""
        forgotten = [(name, step) for name, step in self.steps if getcoroutinestate(step) == CORO_CREATED]
        for _, step in forgotten:
            step.close()
        if forgotten:
            raise self.error(f": {method} did not await ctx.step({forgotten[0][0]!r}), so it was not executed")

    def key(self, key: str) -> str:
        """Return the full key of the state: a sub-workflow has its own keys."""
        if type(key) is not str or not key:
            raise self.error(f": a key of the state must be a non-empty str, got {key!r}")
        outer = f"{self.node.within}/" if self.node.within else ""
        for end in (at for at, char in enumerate(key) if char == "/"):
            node = self.graph.nodes.get(outer + key[:end])
            if node is not None and node.is_workflow:
                raise self.error(
                    f": the key {key!r} of the state belongs to the sub-workflow {key[:end]!r}; use another"
                )
        return outer + key


def copied(value: Any, path: str) -> Any:
    """Return an exact copy; `UnstorableValue` if the value cannot be stored."""
    return value if type(value) in _PLAIN else decode(encode(value, path=path))


def copied_plain(value: Any) -> Any:
    """Return a copy of a stored value; for plain lists and dicts four times as fast as encoding them."""
    if type(value) is list:
        return [each if type(each) in _PLAIN else copied_plain(each) for each in value]
    if type(value) is dict:
        return {key: each if type(each) in _PLAIN else copied_plain(each) for key, each in value.items()}
    return copied(value, "state")


class ContextBase:
    """The part of a context that both worlds share and that needs no I/O."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @property
    def executor_id(self) -> str:
        """The id of the executor; inside a sub-workflow it begins with the sub-workflow's id."""
        return self._work.node.id

    @property
    def superstep(self) -> int:
        """The number of the superstep, from 1."""
        return self._work.snapshot.iteration + 1

    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a copy of a value in the shared state: as of the last superstep, plus the changes of this executor."""
        work, name, state = self._work, self._work.key(key), self._work.snapshot.state
        if name in work.writes:
            return copied(applied(work.graph.reducers, state, name, work.writes[name]), f"state[{key!r}]")
        return copied_plain(state[name]) if name in state else default

    def set_state(self, key: str, value: Any) -> None:
        """Set a key of the shared state. It is an error if two executors set the same key in one superstep."""
        self._work.check("set_state")
        self._work.writes[self._work.key(key)] = Write(copied(value, f"state[{key!r}]"), is_set=True)

    def update_state(self, key: str, delta: Any) -> None:
        """Pass a change to the reducer of a key of the shared state. Any number of executors may do so."""
        work, name = self._work, self._work.key(key)
        work.check("update_state")
        if name not in work.graph.reducers:
            raise work.error(
                f": the key {key!r} of the state has no reducer; add one to the builder's reducers=, or use set_state"
            )
        before = work.writes.get(name, Write())
        deltas = [*before.deltas, copied(delta, f"state[{key!r}]")]
        work.writes[name] = Write(before.value, before.is_set, deltas)

    def _send(self, message: Any, target_id: str | None) -> None:
        work = self._work
        work.check("send_message")
        targets = [each for edge in work.graph.edges_from(work.node.id) for each in edge.targets]
        if target_id is not None:
            inner = f"{work.node.within}/{target_id}" if work.node.within else target_id
            target_id = inner if inner in targets else target_id
        if not targets or (target_id is not None and target_id not in targets):
            reason = "has no outgoing edge" if not targets else f"has no edge to {target_id!r}, only to {targets}"
            raise work.error(f" {reason}, so the message would be lost; add an edge, or use yield_output")
        data = encode(message, path=f"message of executor {self.executor_id!r}")
        work.sent.append(Sent(work.node.id, data, target=target_id))

    def _yield(self, output: Any) -> None:
        work = self._work
        work.check("yield_output")
        outer = work.graph.yields_to(work.node)
        data = encode(output, path=f"output of executor {self.executor_id!r}")
        if outer:
            work.sent.append(Sent(outer, data))
        else:
            work.outputs.append(decode(data))

    def _request(self, data: Any, response_type: Any) -> None:
        work = self._work
        work.check("request_info")
        kept, kind = copied(data, f"request of executor {self.executor_id!r}"), hint_name(type(data))
        taken = [each.takes[1] for each in work.node.handlers.responses if each.accepts(kept)]
        hints = [] if response_type is None else [response_type]
        taken = [each for each in taken if all(may_meet(hint, each) for hint in hints)]
        choices = _choices(response_type)
        words = (True, False) if response_type is bool else choices
        taken = [each for each in taken if not words or any(fits(word, each) for word in words)]
        if not taken:
            wanted = "".join(f" and a response of type {hint_name(hint)}" for hint in hints)
            raise work.error(
                f" has no @response_handler for a request of type {kind}{wanted}; without one its response is lost"
            )
        takes = b"" if choices else answer_types(*hints, Union[tuple(taken)])  # noqa: UP007  known at run time only
        work.asked.append(Pending(work.node.id, kept, choices, response_type is bool, takes))

    def _step(self, name: str, function: Any, *args: Any, **policy: Unpack[StepPolicy]) -> Coroutine[Any, Any, Any]:
        step = self._work.driver.step_within(name, function, *args, **policy)
        self._work.steps.append((name, step))
        return step

    def __class_getitem__(cls, given: Any) -> Any:
        """Accept `WorkflowContext[Sent]` without a type for outputs."""
        return super().__class_getitem__(given if isinstance(given, tuple) else (given, Any))  # type: ignore[misc]


def _choices(response_type: Any) -> tuple[str, ...]:
    """Return the choices of a request: yes or no for a bool, the words of a Literal, else none."""
    if response_type is bool:
        return YES_OR_NO
    kinds = members(response_type)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    is_words = all(get_origin(kind) is Literal for kind in kinds) and all(type(word) is str for word in words)
    return tuple(words) if is_words else ()


class WorkflowContext(ContextBase, Generic[SentT, OutputT]):
    """The context that a handler gets: `WorkflowContext[Sent, Output]` declares the types it sends and yields.

    Messages, outputs, requests and state changes take effect when the superstep is committed. A plain function does
    not need to await the calls.
    """

    def send_message(self, message: SentT, target_id: str | None = None) -> Awaitable[None]:
        """Send a message along the edges of this executor, or to one of its targets only."""
        self._send(message, target_id)
        return DONE

    def yield_output(self, output: OutputT) -> Awaitable[None]:
        """Add an output of the workflow. In a sub-workflow it is a message that the sub-workflow sends."""
        self._yield(output)
        return DONE

    def request_info(self, data: Any, response_type: Any = None) -> Awaitable[None]:
        """Ask a person or another program. The `@response_handler` of this executor gets the response later.

        An answer of another type than `response_type` raises `InvalidAnswer`. A `bool` is asked as approve or reject,
        a `Literal` of words as a choice.
        """
        self._request(data, response_type)
        return DONE

    def step(self, name: str, function: Any, *args: Any, **policy: Unpack[StepPolicy]) -> Awaitable[Any]:
        """Execute a step of this handler once; a rerun of the handler replays its result. See `Run.step`.

        Its name, its arguments, and its number among equal calls identify it.
        """
        return self._step(name, function, *args, **policy)
