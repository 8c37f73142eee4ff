"""Build a workflow: collect executors and edges, flatten sub-workflows, check the graph."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

import msgspec

from holdfast.records.arguments import check_labels, check_options, mapping_or_none, text_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.type_hints import hint_name, may_meet, members
from holdfast.runs.driver import Service, ServiceOptions, Terms
from holdfast.runtimes.workflow.executors import Executor, Handlers, WorkflowExecutor, handlers_of
from holdfast.runtimes.workflow.graph import Edge, EdgeKind, Graph, Node, Predicate, Reducer

OnIncompatible: TypeAlias = Literal["raise", "fresh"]
Where: TypeAlias = Executor | str
"""An executor, or the id of one that another call adds."""


class WorkflowOptions(ServiceOptions, total=False):
    """The keyword options of a builder, except its start executor and store."""

    name: str | None
    max_supersteps: int
    reducers: Mapping[str, Reducer] | None
    on_incompatible: OnIncompatible
    labels: Mapping[str, str] | None
    lease: timedelta | float
    wait: timedelta | float | None


class WorkflowTerms(msgspec.Struct, frozen=True):
    """A checked workflow: its graph and its options."""

    graph: Graph
    name: str
    is_named: bool
    """False if the name is derived from the graph's signature."""
    max_supersteps: int
    on_incompatible: OnIncompatible
    renamed: Mapping[str, str]
    labels: dict[str, str]
    run: Terms
    service: Service

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels of its threads."""
        return {**self.labels, "workflow": self.name}


class BuilderBase:
    """The part of a builder that both worlds share."""

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
        """Send messages from one executor to another: all of them, or those for which `condition(message)` is true."""
        return self._connect("edge", [source], [target], [] if condition is None else [(condition, name)])

    def add_fan_out(self, source: Where, targets: Sequence[Where]) -> Self:
        """Send each message of an executor to all targets."""
        return self._connect("fan_out", [source], targets)

    def add_fan_in(self, sources: Sequence[Where], target: Where) -> Self:
        """Deliver a list with one message from each source, in the order of the sources, once all have sent one."""
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

        Without a default, a message for which no case is true is dropped, with a warning. `names` name the conditions.
        """
        listed = _several(cases, "add_switch")
        if not all(isinstance(each, tuple) and len(each) == 2 for each in listed):
            raise ConfigurationError(f"the cases of add_switch must be pairs (condition, executor), got {cases!r}")
        given = [None] * len(listed) if names is None else list(names)
        if len(given) != len(listed):
            raise ConfigurationError(
                f"add_switch: `names` must have one name per case ({len(listed)}), got {len(given)}"
            )
        targets = [*(target for _, target in listed), *([] if default is None else [default])]
        conditions = zip((condition for condition, _ in listed), given, strict=True)
        return self._connect("switch", [source], targets, conditions)

    def add_multi_selection(
        self, source: Where, targets: Sequence[Where], choose: Predicate, *, name: str | None = None
    ) -> Self:
        """Send each message to the targets whose ids `choose(message, target_ids)` returns."""
        return self._connect("choice", [source], targets, [(choose, name)])

    def add_chain(self, executors: Sequence[Where]) -> Self:
        """Send the messages of each executor to the next."""
        for source, target in pairwise(_several(executors, "add_chain")):
            self.add_edge(source, target)
        return self

    def migrate(self, *, renamed: Mapping[str, str]) -> Self:
        """Resume threads that were written under other executor ids: `renamed={"old": "new"}`."""
        found = mapping_or_none(renamed, "renamed") or {}
        if not all(type(each) is str for pair in found.items() for each in pair):
            raise ConfigurationError(f"`renamed` must map old ids to new ids, got {renamed!r}")
        self._renamed |= found
        new = list(self._renamed.values())
        twice = [old for old, each in self._renamed.items() if new.count(each) > 1]
        if twice:
            raise ConfigurationError(
                f"`renamed` maps {' and '.join(map(repr, twice))} to one id, but their saved states cannot be merged;"
                " resume such threads with the graph that wrote them"
            )
        return self

    # Collecting

    def _connect(
        self,
        kind: EdgeKind,
        sources: Sequence[Where],
        targets: Sequence[Where],
        conditions: Iterable[tuple[Predicate, str | None]] = (),
    ) -> Self:
        call = "add_multi_selection" if kind == "choice" else f"add_{kind}"
        ends = [tuple(self._add(each, call) for each in _several(listed, call)) for listed in (sources, targets)]
        repeated = [each for ids in ends for each in ids if ids.count(each) > 1]
        if repeated and kind != "switch":  # each message takes one case of a switch
            raise ConfigurationError(
                f"{call}: executor {repeated[0]!r} is listed twice, so each message would arrive twice"
            )
        named = [(_condition_name(function, name, call, ends[0][0]), function) for function, name in conditions]
        edge = Edge(kind, ends[0], ends[1], tuple(name for name, _ in named), tuple(each for _, each in named))
        if edge.id in self._edges:
            raise ConfigurationError(f"{call}: {edge.id} exists already, so each message would arrive twice")
        self._edges[edge.id] = edge
        return self

    def _add(self, given: Any, call: str) -> str:
        if isinstance(given, str):
            return given
        if isinstance(given, type) and issubclass(given, Executor):
            raise ConfigurationError(f"{call}: {given.__name__} is a class; pass an instance: {given.__name__}(id=...)")
        if not isinstance(given, Executor):
            raise ConfigurationError(
                f"{call}: {given!r} is not an executor; decorate a function with @holdfast.executor, or wrap a"
                " workflow in a WorkflowExecutor"
            )
        id_ = getattr(given, "id", None)
        if not isinstance(id_, str) or not id_:
            raise ConfigurationError(f"{call}: {type(given).__name__} has no id; call super().__init__(id=...)")
        if self._executors.setdefault(id_, given) is not given:
            raise ConfigurationError(f"{call}: two executors have the id {id_!r}; ids must be unique")
        return id_

    # Building

    def _terms(self) -> WorkflowTerms:
        given, graph = self._options.get, self._graph()
        _check_known("migrate", self._renamed.values(), graph.nodes)
        name, on_incompatible = text_or_none(given("name"), "name"), given("on_incompatible", "raise")
        if on_incompatible not in {"raise", "fresh"}:
            raise ConfigurationError(f"`on_incompatible` must be 'raise' or 'fresh', got {on_incompatible!r}")
        return WorkflowTerms(
            graph,
            name or f"workflow-{graph.signature}",
            name is not None,
            whole_number(given("max_supersteps", 100), "max_supersteps", least=1),
            on_incompatible,
            dict(self._renamed),
            check_labels(given("labels")) or {},
            Terms(given("lease", 30), given("wait")),
            Service.of(self._options),
        )

    def _graph(self) -> Graph:
        for edge in self._edges.values():
            _check_known(edge.id, (*edge.sources, *edge.targets), self._executors)
        reducers: dict[Any, Any] = dict(mapping_or_none(self._options.get("reducers"), "reducers") or {})
        for key, function in reducers.items():
            if type(key) is not str or not callable(function):
                raise ConfigurationError(f"`reducers` must map keys (str) to functions, got {key!r}: {function!r}")
        nodes, edges, declared = list[Node](), list(self._edges.values()), dict[object, Handlers]()
        for id_, each in self._executors.items():
            nodes.append(Node(id_, each, handlers_of(each, declared)))
            if isinstance(each, WorkflowExecutor):
                inner, prefix = each.graph, f"{id_}/"
                nodes += [node.within_workflow(id_) for node in inner.nodes.values()]
                edges += [edge.within(prefix) for edge in inner.edges]
                reducers |= {prefix + key: function for key, function in inner.reducers.items()}
        ids = [node.id for node in nodes]
        twice = [id_ for id_ in ids if ids.count(id_) > 1] if len({*ids}) < len(ids) else []
        if twice:
            raise ConfigurationError(f"two executors have the id {twice[0]!r}; ids must be unique")
        graph = Graph(self._start, {node.id: node for node in nodes}, tuple(edges), reducers)
        check_graph(graph)
        return graph


def _check_known(where: str, ids: Iterable[str], known: Iterable[str]) -> None:
    unknown = [each for each in ids if each not in known]
    if unknown:
        raise ConfigurationError(f"{where}: unknown executor {unknown[0]!r}; known: {', '.join(map(repr, known))}")


def _several(given: Any, call: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConfigurationError(f"{call} needs a list of at least one executor, got {given!r}")
    return list(given)


def _condition_name(function: Any, name: str | None, call: str, source: str) -> str:
    if not callable(function):
        raise ConfigurationError(f"{call}: a condition after executor {source!r} must be a function, got {function!r}")
    found = text_or_none(name, "name") or str(getattr(function, "__name__", "<lambda>"))
    if found == "<lambda>":
        raise ConfigurationError(
            f"{call}: a condition after executor {source!r} has no name, which checkpoints need to identify it;"
            f" pass {'names=[...]' if call == 'add_switch' else 'name='}, or use a def"
        )
    return found


# Checks: each error names the executor and what to change


def check_graph(graph: Graph) -> None:
    """Raise `ConfigurationError` for a graph that cannot work."""
    for node in graph.nodes.values():
        if not node.handlers.messages and not node.is_workflow:
            raise ConfigurationError(
                f"executor {node.id!r} has no handler; decorate a method (self, message, ctx) with @holdfast.handler"
            )
    _check_reachable(graph)
    for node in graph.nodes.values():
        _check_messages(graph, node)


def _check_reachable(graph: Graph) -> None:
    waiting, reached = [graph.start], {graph.start}
    while waiting:
        following = {*_following(graph, waiting.pop())} - reached
        reached |= following
        waiting += following
    lost = [each for each in graph.nodes if each not in reached]
    if lost:
        raise ConfigurationError(
            f"no message can reach executor {', '.join(map(repr, lost))} from the start {graph.start!r}; add an edge"
        )


def _following(graph: Graph, id_: str) -> Iterator[str]:
    for edge in graph.edges_from(id_):
        yield from edge.targets
    if graph.nodes[id_].is_workflow:
        yield graph.entry(id_)
    outer = graph.yields_to(graph.nodes[id_])
    if outer:
        yield outer


def _check_messages(graph: Graph, node: Node) -> None:
    """Check that each declared type has a target with a handler, and that each target handles one of them."""
    sent, edges = _sent(graph, node), graph.edges_from(node.id)
    ends = [(edge, target) for edge in edges for target in edge.targets]
    for edge, target in ends:
        if sent and not any(_takes(graph, edge, target, each) for each in sent):
            taken = " or ".join(graph.nodes[graph.entry(target)].takes)
            raise ConfigurationError(
                f"executor {target!r} handles {taken}, but executor {node.id!r} sends it"
                f" {' or '.join(hint_name(_delivered(edge, each)) for each in sent)}; add a handler, or remove the edge"
            )
    for each in sent if ends else ():
        if not any(_takes(graph, edge, target, each) for edge, target in ends):
            raise ConfigurationError(
                f"executor {node.id!r} sends {hint_name(each)}, but no handler of"
                f" {', '.join(repr(target) for _, target in ends)} accepts it"
            )


def _sent(graph: Graph, node: Node) -> list[Any]:
    """Return the types that the handlers of a node declare to send; empty if one declares none."""
    hints = [each.sends for each in node.handlers.all]
    if node.is_workflow:
        inner = [each for each in graph.nodes.values() if graph.yields_to(each) == node.id and not each.is_workflow]
        hints = [each.yields for one in inner for each in one.handlers.all]
    sent = [each for hint in hints for each in members(hint)]
    return [] if Any in sent else sent


def _takes(graph: Graph, edge: Edge, target: str, sent: Any) -> bool:
    handlers = graph.nodes[graph.entry(target)].handlers
    return any(may_meet(_delivered(edge, sent), each.takes[0]) for each in handlers.messages)


def _delivered(edge: Edge, sent: Any) -> Any:
    return list[sent] if edge.kind == "fan_in" else sent
