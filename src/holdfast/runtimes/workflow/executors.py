"""Executors: what is declared of them. A handler is chosen by the type of the message."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

import msgspec

from holdfast.records.arguments import text_or_none
from holdfast.records.callables import parameters_of
from holdfast.records.errors import ConfigurationError
from holdfast.runs.driver import annotations_of
from holdfast.runtimes.workflow.message_types import fits, is_exactly

if TYPE_CHECKING:
    from holdfast.runtimes.workflow.graph import Graph

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__holdfast_handles__"
MESSAGE, RESPONSE = "message", "response"


class Handler(msgspec.Struct, frozen=True):
    """One handler of an executor: the method, the types it takes, and what it says it sends and yields."""

    method: str
    takes: tuple[Any, ...]
    """The type of the message; of a response handler those of the request and of the response."""
    sends: Any
    yields: Any

    def accepts(self, *values: Any) -> bool:
        """Return True if it takes these values."""
        return all(map(fits, values, self.takes))

    def is_for(self, *values: Any) -> bool:
        """Return True if it names the very classes of these values."""
        return all(map(is_exactly, values, self.takes))


class Handlers(msgspec.Struct, frozen=True):
    """The handlers of an executor."""

    messages: tuple[Handler, ...]
    responses: tuple[Handler, ...]

    def find(self, *values: Any) -> Handler | None:
        """The handler for a message, or for a request and its response: one that names its class, else the first."""
        among = [each for each in (self.messages, self.responses)[len(values) - 1] if each.accepts(*values)]
        return next((each for each in among if each.is_for(*values)), among[0] if among else None)


def handler(method: F) -> F:
    """Declare that a method handles messages of the type that its first parameter names: `(self, message, ctx)`."""
    return _marked(method, MESSAGE)


def response_handler(method: F) -> F:
    """Declare that a method handles the responses to requests of its executor: `(self, request, response, ctx)`."""
    return _marked(method, RESPONSE)


def _marked(method: F, kind: str) -> F:
    if not callable(method):
        raise ConfigurationError(f"@handler and @response_handler decorate a method, got {method!r}")
    setattr(method, _MARK, kind)
    return method


class Executor:
    """A node of a workflow. Its methods with `@handler` take messages, one type each, and send others on.

    An executor that keeps something between messages saves it in `on_checkpoint_save` and takes it back in
    `on_checkpoint_restore`. Both may be async, except in `holdfast.sync`.
    """

    def __init__(self, id: str | None = None) -> None:  # noqa: A002  the document's name
        self.id = text_or_none(id, "id") or type(self).__name__

    def on_checkpoint_save(self) -> Any:
        """Return what the executor keeps, as a dict: it is stored with each checkpoint."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> Any:
        """Take back what `on_checkpoint_save` returned."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, 'id', None)!r})"


class FunctionExecutor(Executor):
    """An executor that is one function."""

    def __init__(self, function: Callable[..., Any], id: str | None = None) -> None:  # noqa: A002  as in Executor
        super().__init__(id or getattr(function, "__name__", None))
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Call the function, as it is."""
        return self.function(*args)


@overload
def executor(function: Callable[..., Any], /) -> FunctionExecutor: ...
@overload
def executor(*, id: str | None = None) -> Callable[[Callable[..., Any]], FunctionExecutor]: ...
def executor(function: Callable[..., Any] | None = None, /, *, id: str | None = None) -> Any:  # noqa: A002
    """Make an executor of a function `(message, ctx)`: `@executor`, or `@executor(id="upper")`."""
    if function is not None and not callable(function):
        raise ConfigurationError(f"@executor decorates a function, got {function!r}; give the id as @executor(id=...)")
    return FunctionExecutor(function, id) if function is not None else lambda given: FunctionExecutor(given, id)


class WorkflowExecutor(Executor):
    """A workflow as a node of another. It takes what its start executor takes, and sends on what it yields."""

    def __init__(self, workflow: Any, id: str | None = None) -> None:  # noqa: A002  as in Executor
        graph = getattr(workflow, "graph", None)
        if graph is None:
            raise ConfigurationError(f"WorkflowExecutor takes what WorkflowBuilder.build() makes, got {workflow!r}")
        super().__init__(id or workflow.name)
        self.workflow = workflow
        self.graph: Graph = graph


def handlers_of(executor: Executor, known: dict[object, Handlers]) -> Handlers:
    """What an executor declares; the types that it names are registered as storable. `known`: of other executors."""
    declared = executor.function if isinstance(executor, FunctionExecutor) else type(executor)
    if declared not in known:
        known[declared] = _declared(executor)
    return known[declared]


def _declared(executor: Executor) -> Handlers:
    if isinstance(executor, FunctionExecutor):
        return Handlers((_read(executor, executor.function, "function", MESSAGE),), ())
    found: dict[str, list[Handler]] = {MESSAGE: [], RESPONSE: []}
    for name in _names_in_order(type(executor)):
        method = getattr(type(executor), name)
        kind = getattr(method, _MARK, None)
        if kind is not None:
            found[kind].append(_read(executor, method, name, kind))
    return Handlers(tuple(found[MESSAGE]), tuple(found[RESPONSE]))


def _names_in_order(cls: type) -> list[str]:
    return list(dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base)))


def _read(executor: Executor, function: Callable[..., Any], name: str, kind: str) -> Handler:
    where = f"executor {executor.id!r}: {getattr(function, '__qualname__', name)}"
    names = parameters_of(function).names[0 if isinstance(executor, FunctionExecutor) else 1 :]
    wanted = "message, ctx" if kind == MESSAGE else "request, response, ctx"
    if len(names) != len(wanted.split(", ")):
        raise ConfigurationError(f"{where} must take ({wanted}), got ({', '.join(names)})")
    hints = annotations_of(function, where)
    context = get_args(hints.get(names[-1], Any))
    sends, yields = (*context, Any, Any)[:2]
    return Handler(name, tuple(hints.get(each, Any) for each in names[:-1]), sends, yields)
