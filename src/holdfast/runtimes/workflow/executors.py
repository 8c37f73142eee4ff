"""Executors and their handlers. The type of a message selects the handler."""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, overload

import msgspec

from holdfast.records.arguments import text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.signatures import parameters_of
from holdfast.records.type_hints import fits, hint_name, members
from holdfast.runs.driver import annotations_of

if TYPE_CHECKING:
    from holdfast.runtimes.workflow.graph import Graph

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__holdfast_handles__"
MESSAGE, RESPONSE = "message", "response"


class Handler(msgspec.Struct, frozen=True):
    """One handler of an executor: the method, the types it accepts, and those it declares to send and yield."""

    method: str
    takes: tuple[Any, ...]
    """The type of the message; for a response handler the types of the request and of the response."""
    sends: Any
    yields: Any

    def accepts(self, *values: Any) -> bool:
        """True if it accepts these values."""
        return all(map(fits, values, self.takes))

    def names(self, *values: Any) -> bool:
        """True if it names exactly the classes of these values."""
        kinds = [[get_origin(each) or each for each in members(hint)] for hint in self.takes]
        return all(type(value) in allowed for value, allowed in zip(values, kinds, strict=True))


class Handlers(msgspec.Struct, frozen=True):
    """The handlers of an executor."""

    messages: tuple[Handler, ...]
    responses: tuple[Handler, ...] = ()

    @property
    def all(self) -> tuple[Handler, ...]:
        """The handlers of messages and of responses."""
        return self.messages + self.responses

    def find(self, *values: Any) -> Handler | None:
        """Return the handler for a message, or for a request and its response: an exact match, else the first."""
        among = [each for each in (self.messages, self.responses)[len(values) - 1] if each.accepts(*values)]
        return next((each for each in among if each.names(*values)), among[0] if among else None)


def handler(method: F) -> F:
    """Declare a handler for messages of the type of its first parameter: `(self, message, ctx)`."""
    return _marked(method, MESSAGE)


def response_handler(method: F) -> F:
    """Declare a handler for responses to requests of its executor: `(self, request, response, ctx)`."""
    return _marked(method, RESPONSE)


def _marked(method: F, kind: str) -> F:
    if not callable(method):
        raise ConfigurationError(f"@handler and @response_handler must decorate a method, got {method!r}")
    setattr(method, _MARK, kind)
    return method


class Executor:
    """A node of a workflow. Each method with `@handler` handles one type of message and may send others.

    An executor with its own state returns it in `on_checkpoint_save` and restores it in `on_checkpoint_restore`. Both
    may be async, except in `holdfast.sync`.
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002  the public name
        self.id = text_or_none(id, "id") or type(self).__name__

    def on_checkpoint_save(self) -> Any:
        """Return the executor's own state as a dict; it is stored with each checkpoint."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> Any:
        """Restore the state that `on_checkpoint_save` returned."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, 'id', None)!r})"


class FunctionExecutor(Executor):
    """An executor with a single function."""

    def __init__(self, function: Callable[..., Any], id: str | None = None) -> None:  # noqa: A002  as in Executor
        super().__init__(id or getattr(function, "__name__", None))
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Call the function directly."""
        return self.function(*args)


@overload
def executor(function: Callable[..., Any], /) -> FunctionExecutor: ...
@overload
def executor(*, id: str | None = None) -> Callable[[Callable[..., Any]], FunctionExecutor]: ...
def executor(function: Callable[..., Any] | None = None, /, *, id: str | None = None) -> Any:  # noqa: A002
    """Make an executor of a function `(message, ctx)`: `@executor`, or `@executor(id="upper")`."""
    if function is not None and not callable(function):
        raise ConfigurationError(
            f"@executor must decorate a function, got {function!r}; pass the id as @executor(id=...)"
        )
    return FunctionExecutor(function, id) if function is not None else lambda given: FunctionExecutor(given, id)


class WorkflowExecutor(Executor):
    """A workflow as a node of another. It handles what its start executor handles, and sends what it yields."""

    def __init__(self, workflow: Any, id: str | None = None) -> None:  # noqa: A002  as in Executor
        if not hasattr(workflow, "graph"):
            raise ConfigurationError(
                f"`workflow` must be a Workflow, as WorkflowBuilder.build() returns it, got {workflow!r}"
            )
        super().__init__(id or workflow.name)
        self.workflow = workflow
        self.graph: Graph = workflow.graph


def handlers_of(executor: Executor, known: dict[object, Handlers]) -> Handlers:
    """Return the handlers of an executor, and register their types as storable. `known` caches those of classes."""
    kind = type(executor)
    if isinstance(executor, FunctionExecutor):
        return Handlers((_read(executor, executor.function, "function", MESSAGE),))
    if kind not in known:
        names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
        known[kind] = Handlers(*(_marked_with(mark, executor, names) for mark in (MESSAGE, RESPONSE)))
    return known[kind]


def _marked_with(mark: str, executor: Executor, names: Iterable[str]) -> tuple[Handler, ...]:
    methods = [(name, getattr(type(executor), name)) for name in names]
    found = tuple(_read(executor, each, name, mark) for name, each in methods if getattr(each, _MARK, None) == mark)
    for one, other in combinations(found, 2):
        shared = [{*members(each)} & {*members(its)} for each, its in zip(one.takes, other.takes, strict=True)]
        if all(shared):
            kinds = " and ".join(" or ".join(sorted(map(hint_name, each))) for each in shared)
            raise ConfigurationError(
                f"executor {executor.id!r}: {one.method} and {other.method} both handle {kinds}; remove it from one"
            )
    return found


def _read(executor: Executor, function: Callable[..., Any], name: str, kind: str) -> Handler:
    where = f"executor {executor.id!r}: {getattr(function, '__qualname__', name)}"
    names = parameters_of(function).names[0 if isinstance(executor, FunctionExecutor) else 1 :]
    wanted = "message, ctx" if kind == MESSAGE else "request, response, ctx"
    if len(names) != len(wanted.split(", ")):
        raise ConfigurationError(f"{where} must take ({wanted}), got ({', '.join(names)})")
    hints = annotations_of(function, where)
    sends, yields = (*get_args(hints.get(names[-1], Any)), Any, Any)[:2]
    return Handler(name, tuple(hints.get(each, Any) for each in names[:-1]), sends, yields)
