"""Executors: what is declared of them. A handler is chosen by the type of the message."""

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
    """One handler of an executor: the method, the types it takes, and what it says it sends and yields."""

    method: str
    takes: tuple[Any, ...]
    """The type of the message; of a response handler those of the request and of the response."""
    sends: Any
    yields: Any

    def accepts(self, *values: Any) -> bool:
        """Return True if it takes these values."""
        return all(map(fits, values, self.takes))

    def names(self, *values: Any) -> bool:
        """Return True if it names the very classes of these values."""
        kinds = [[get_origin(each) or each for each in members(hint)] for hint in self.takes]
        return all(type(value) in allowed for value, allowed in zip(values, kinds, strict=True))


class Handlers(msgspec.Struct, frozen=True):
    """The handlers of an executor."""

    messages: tuple[Handler, ...]
    responses: tuple[Handler, ...] = ()

    @property
    def all(self) -> tuple[Handler, ...]:
        """Those of messages and those of responses."""
        return self.messages + self.responses

    def find(self, *values: Any) -> Handler | None:
        """The handler for a message, or for a request and its response: one that names its class, else the first."""
        among = [each for each in (self.messages, self.responses)[len(values) - 1] if each.accepts(*values)]
        return next((each for each in among if each.names(*values)), among[0] if among else None)


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
        if not hasattr(workflow, "graph"):
            raise ConfigurationError(f"WorkflowExecutor takes what WorkflowBuilder.build() makes, got {workflow!r}")
        super().__init__(id or workflow.name)
        self.workflow = workflow
        self.graph: Graph = workflow.graph


def handlers_of(executor: Executor, known: dict[object, Handlers]) -> Handlers:
    """What an executor declares; the types that it names are registered as storable. `known`: of other executors."""
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
                f"executor {executor.id!r}: {one.method} and {other.method} both take {kinds}; remove it from one"
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
