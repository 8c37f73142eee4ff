"""Building a workflow: executors and edges are collected, sub-workflows opened, and the whole is checked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias, TypedDict

import msgspec

from holdfast.records.arguments import check_labels, check_options, mapping_or_none, text_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.runs.driver import Terms
from holdfast.runtimes.workflow.executors import Executor, Handlers, WorkflowExecutor, handlers_of
from holdfast.runtimes.workflow.graph import Edge, EdgeKind, Graph, Node, Predicate
from holdfast.runtimes.workflow.validation import check_graph

OnIncompatible: TypeAlias = Literal["raise", "fresh"]
Reducer: TypeAlias = Callable[[Any, Any], Any]
Where: TypeAlias = Executor | str
"""An executor, or the id of one that is added elsewhere."""


class WorkflowOptions(TypedDict, total=False):
    """The keywords of a builder, beside its start executor and store."""

    name: str | None
    max_supersteps: int
    reducers: Mapping[str, Reducer] | None
    on_incompatible: OnIncompatible
    labels: Mapping[str, str] | None
    lease: timedelta | float
    wait: timedelta | float | None


class WorkflowTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow, built and checked: the graph, and how it is run."""

    graph: Graph
    name: str
    is_named: bool
    """False if the name is derived from the graph's signature."""
    max_supersteps: int
    on_incompatible: OnIncompatible
    renamed: Mapping[str, str]
    labels: dict[str, str]
    run: Terms


class BuilderBase:
    """What the builders of both worlds collect."""

    def _collect(self, start_executor: Executor, options: Mapping[str, Any]) -> None:
        check_options(options, ("store", *WorkflowOptions.__annotations__))
        self._options = dict(options)
        self._executors: dict[str, Executor] = {}
        self._edges: dict[str, Edge] = {}
        self._renamed: dict[str, str] = {}
        self._start = self._add(start_executor, "start_executor")

    def add_edge(
        self, source: Where, target: Where, condition: Predicate | None = None, *, name: str | None = None
    ) -> Self:
        """Send the messages of one executor to another: all, or those for which `condition(message)` is true."""
        conditions = [] if condition is None else [(condition, name)]
        return self._connect("edge", [source], [target], conditions)

    def add_fan_out(self, source: Where, targets: Sequence[Where]) -> Self:
        """Send each message of an executor to all of these."""
        return self._connect("fan_out", [source], targets)

    def add_fan_in(self, sources: Sequence[Where], target: Where) -> Self:
        """Deliver a list with one message of each source, in the order of the sources, once all have sent one."""
        return self._connect("fan_in", sources, [target])

    def add_switch(
        self,
        source: Where,
        cases: Sequence[tuple[Predicate, Where]],
        default: Where | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Send each message to the target of the first case whose condition is true, else to the default.

        Without a default, a message for which no case is true is not sent. `names` name the conditions.
        """
        cases = _pairs(cases)
        given = [None] * len(cases) if names is None else list(names)
        if len(given) != len(cases):
            raise ConfigurationError(f"add_switch: names has {len(given)} names for {len(cases)} cases")
        targets = [*(target for _, target in cases), *([] if default is None else [default])]
        conditions = [(condition, name) for (condition, _), name in zip(cases, given, strict=True)]
        return self._connect("switch", [source], targets, conditions)

    def add_multi_selection(
        self, source: Where, targets: Sequence[Where], choose: Predicate, *, name: str | None = None
    ) -> Self:
        """Send each message to those of the targets whose ids `choose(message, target_ids)` returns."""
        return self._connect("choice", [source], targets, [(choose, name)])

    def add_chain(self, executors: Sequence[Where]) -> Self:
        """Send the messages of each executor to the next."""
        listed = _several(executors, "add_chain")
        for source, target in pairwise(listed):
            self.add_edge(source, target)
        return self

    def migrate(self, *, renamed: Mapping[str, str]) -> Self:
        """Resume threads that were written when some executors had other ids: `renamed={"old": "new"}`."""
        found = dict(mapping_or_none(renamed, "renamed") or {})
        if not all(type(each) is str for pair in found.items() for each in pair):
            raise ConfigurationError(f"renamed must map old ids to new ids, got {renamed!r}")
        self._renamed |= found
        return self

    # Collecting

    def _connect(
        self,
        kind: EdgeKind,
        sources: Sequence[Where],
        targets: Sequence[Where],
        conditions: Iterable[tuple[Predicate, str | None]] = (),
    ) -> Self:
        call = {"choice": "add_multi_selection"}.get(kind, f"add_{kind}")
        ids = [tuple(self._add(each, call) for each in _several(listed, call)) for listed in (sources, targets)]
        _refuse_repeated(kind, ids, call)
        named = [(_condition_name(function, name, call, ids[0][0]), function) for function, name in conditions]
        edge = Edge(kind, ids[0], ids[1], tuple(name for name, _ in named), tuple(each for _, each in named))
        if edge.id in self._edges:
            raise ConfigurationError(f"{call}: {edge.id} is there already, and each message would come twice")
        self._edges[edge.id] = edge
        return self

    def _add(self, given: Any, call: str) -> str:
        if isinstance(given, str):
            return given
        if not isinstance(given, Executor):
            raise ConfigurationError(
                f"{call}: {given!r} is not an executor; decorate a function with @holdfast.executor, and put a"
                " workflow into a WorkflowExecutor"
            )
        id_: str | None = getattr(given, "id", None)
        if not isinstance(id_, str) or not id_:
            raise ConfigurationError(f"{call}: {type(given).__name__} has no id; call super().__init__(id=...)")
        if self._executors.setdefault(id_, given) is not given:
            raise ConfigurationError(f"{call}: two executors have the id {id_!r}; give each its own")
        return id_

    # Building

    def _terms(self) -> WorkflowTerms:
        given = self._options.get
        graph = self._graph()
        name = text_or_none(given("name"), "name")
        on_incompatible = given("on_incompatible", "raise")
        if on_incompatible not in {"raise", "fresh"}:
            raise ConfigurationError(f"on_incompatible must be 'raise' or 'fresh', got {on_incompatible!r}")
        run = Terms(given("lease", 30), given("wait"))
        run.check()
        return WorkflowTerms(
            graph=graph,
            name=name or f"workflow-{graph.signature}",
            is_named=name is not None,
            max_supersteps=whole_number(given("max_supersteps", 100), "max_supersteps", least=1),
            on_incompatible=on_incompatible,
            renamed=dict(self._renamed),
            labels=check_labels(given("labels")) or {},
            run=run,
        )

    def _graph(self) -> Graph:
        for edge in self._edges.values():
            unknown = [end for end in (*edge.sources, *edge.targets) if end not in self._executors]
            if unknown:
                known = ", ".join(map(repr, self._executors))
                raise ConfigurationError(f"{edge.id}: there is no executor {unknown[0]!r}; known are {known}")
        nodes: dict[str, Node] = {}
        edges: list[Edge] = []
        reducers = _reducers(self._options.get("reducers"))
        declared: dict[object, Handlers] = {}
        for id_, each in self._executors.items():
            _refuse_known(id_, nodes)
            nodes[id_] = Node(id_, each, handlers_of(each, declared))
            if isinstance(each, WorkflowExecutor):
                _open(id_, each.graph, nodes, edges, reducers)
        graph = Graph(self._start, nodes, (*self._edges.values(), *edges), reducers)
        check_graph(graph)
        return graph


def _refuse_repeated(kind: EdgeKind, ends: list[tuple[str, ...]], call: str) -> None:
    """Only the cases of a switch may have one target: each message goes to one of them."""
    repeated = [each for ids in ends for each in ids if ids.count(each) > 1]
    if repeated and kind != "switch":
        raise ConfigurationError(f"{call}: executor {repeated[0]!r} is listed twice, and each message would come twice")


def _open(id_: str, inner: Graph, nodes: dict[str, Node], edges: list[Edge], reducers: dict[str, Reducer]) -> None:
    """Add the nodes and edges of a sub-workflow."""
    prefix = f"{id_}/"
    for node in inner.nodes.values():
        within = f"{prefix}{node.within}" if node.within else id_
        _refuse_known(prefix + node.id, nodes)
        nodes[prefix + node.id] = Node(prefix + node.id, node.executor, node.handlers, within)
    edges += [edge.within(prefix) for edge in inner.edges]
    reducers |= {prefix + key: function for key, function in inner.reducers.items()}


def _refuse_known(id_: str, nodes: dict[str, Node]) -> None:
    if id_ in nodes:
        raise ConfigurationError(f"two executors have the id {id_!r}; give each its own")


def _reducers(given: object) -> dict[str, Reducer]:
    found: dict[Any, Any] = dict(mapping_or_none(given, "reducers") or {})
    for key, function in found.items():
        if type(key) is not str or not callable(function):
            raise ConfigurationError(f"reducers must map keys (str) to functions, got {key!r}: {function!r}")
    return found


def _several(given: Any, call: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConfigurationError(f"{call} takes a list of at least one executor, got {given!r}")
    return list(given)


def _pairs(cases: Any) -> list[tuple[Predicate, Where]]:
    listed = _several(cases, "add_switch")
    if not all(isinstance(each, tuple) and len(each) == 2 for each in listed):
        raise ConfigurationError(f"add_switch takes cases as pairs (condition, executor), got {cases!r}")
    return listed


def _condition_name(function: Any, name: str | None, call: str, source: str) -> str:
    if not callable(function):
        raise ConfigurationError(f"{call}: a condition after executor {source!r} must be a function, got {function!r}")
    found = text_or_none(name, "name") or str(getattr(function, "__name__", "<lambda>"))
    if found == "<lambda>":
        raise ConfigurationError(
            f"{call}: a condition after executor {source!r} has no name, which checkpoints would know it by;"
            f" give {'names=[...]' if call == 'add_switch' else 'name='}, or use a def"
        )
    return found
