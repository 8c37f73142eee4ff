"""The graph of a workflow: nodes, edges, their signature, and the differences between two graphs.

Sub-workflows are flattened: their nodes and edges are part of the graph, with ids that begin with the sub-workflow's id
(`sub/worker`). The node of a sub-workflow sends what the sub-workflow yields.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, TypeAlias
from warnings import warn

import msgspec

from holdfast.codec import encode
from holdfast.records.errors import HoldfastWarning
from holdfast.records.type_hints import hint_name
from holdfast.runtimes.workflow.executors import Executor, Handlers, WorkflowExecutor

EdgeKind: TypeAlias = Literal["edge", "fan_out", "fan_in", "switch", "choice"]
Predicate: TypeAlias = Callable[..., Any]
Reducer: TypeAlias = Callable[[Any, Any], Any]


class Node(msgspec.Struct, frozen=True):
    """An executor in the graph, or a whole sub-workflow."""

    id: str
    executor: Executor
    handlers: Handlers
    within: str = ""
    """The id of the sub-workflow that contains it; empty at the top level."""

    @property
    def is_workflow(self) -> bool:
        """True for the node of a sub-workflow, which executes nothing itself."""
        return isinstance(self.executor, WorkflowExecutor)

    @property
    def takes(self) -> list[str]:
        """The names of the types that its handlers accept."""
        return [hint_name(each.takes[0]) for each in self.handlers.messages]

    @property
    def answers(self) -> list[str]:
        """The names of the request and response types that its response handlers accept."""
        return [" -> ".join(map(hint_name, each.takes)) for each in self.handlers.responses]

    def within_workflow(self, id_: str) -> "Node":
        """Return this node as part of a sub-workflow."""
        return Node(f"{id_}/{self.id}", self.executor, self.handlers, f"{id_}/{self.within}".rstrip("/"))


class Edge(msgspec.Struct, frozen=True):
    """Carries messages from sources to targets. Only a fan-in has several sources."""

    kind: EdgeKind
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    """The names of the functions: at most one for an edge, one for a choice, one per case for a switch (in the order of
    the targets; the default is an additional target)."""
    functions: tuple[Predicate, ...] = ()

    @property
    def id(self) -> str:
        """The id of the edge in checkpoints."""
        return _shown([self.kind, self.sources, self.targets, self.conditions])

    def within(self, prefix: str) -> "Edge":
        """Return this edge as part of a sub-workflow whose ids begin with a prefix."""
        sources, targets = (tuple(prefix + each for each in ids) for ids in (self.sources, self.targets))
        return Edge(self.kind, sources, targets, self.conditions, self.functions)


class Graph(msgspec.Struct, frozen=True, dict=True):
    """Nodes by id in the order they were added, edges, and the start node."""

    start: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    reducers: Mapping[str, Reducer] = {}
    """The reducers by key of the shared state; keys of a sub-workflow begin with its id (`sub/`)."""

    def entry(self, target: str) -> str:
        """Return the executor that gets the messages to a node: for a sub-workflow its start executor."""
        executor = self.nodes[target].executor
        return self.entry(f"{target}/{executor.graph.start}") if isinstance(executor, WorkflowExecutor) else target

    def edges_from(self, source: str) -> list[Edge]:
        """Return the edges that start at a node."""
        return self._from.get(source, [])

    @cached_property
    def _from(self) -> dict[str, list[Edge]]:
        known: dict[str, list[Edge]] = {}
        for edge in self.edges:
            for source in edge.sources:
                known.setdefault(source, []).append(edge)
        return known

    @cached_property
    def edges_by_id(self) -> dict[str, Edge]:
        """The edges by their ids in checkpoints."""
        return {edge.id: edge for edge in self.edges}

    def yields_to(self, node: Node) -> str:
        """Return the sub-workflow that sends what a node yields; empty if it is an output of the whole workflow."""
        outer = node.within
        while outer and not self.edges_from(outer):
            outer = self.nodes[outer].within
        return outer

    def plain(self) -> dict[str, Any]:
        """Return the graph as plain data; it is stored once per signature, and compared."""
        nodes = {
            node.id: {
                "takes": sorted(node.takes),
                **({"answers": sorted(node.answers)} if node.answers else {}),
                **({"kind": "workflow"} if node.is_workflow else {}),
            }
            for node in self.nodes.values()
        }
        edges = [[each.kind, list(each.sources), list(each.targets), list(each.conditions)] for each in self.edges]
        return {"start": self.start, "nodes": nodes, "edges": sorted(edges)}

    @cached_property
    def signature(self) -> str:
        """A digest of ids, handler types, edges and condition names: the same in every process."""
        plain = self.plain()
        nodes = sorted((id_, sorted(node.items())) for id_, node in plain["nodes"].items())
        return sha256(encode([plain["start"], nodes, plain["edges"]])).hexdigest()[:16]

    @cached_property
    def _warned(self) -> set[str]:
        return set()

    def warn_once(self, text: str) -> None:
        """Warn of a probable mistake, the first time it happens."""
        if text not in self._warned:
            self._warned.add(text)
            warn(text, HoldfastWarning, stacklevel=2)


class Renaming(msgspec.Struct, frozen=True):
    """Maps the ids of a stored graph to those of a program that renamed some nodes."""

    renamed: Mapping[str, str]
    stored: Mapping[str, Any]

    def id(self, old: str) -> str:
        """Return the new id of a node; its sub-workflow may be renamed too."""
        if old in self.renamed or "/" not in old:
            return self.renamed.get(old, old)
        outer, _, inner = old.rpartition("/")
        return f"{self.id(outer)}/{inner}"

    def key(self, old: str) -> str:
        """Return the new key of the shared state: keys of a sub-workflow begin with its id."""
        around = [id_ for id_, node in self.stored["nodes"].items() if "kind" in node and old.startswith(f"{id_}/")]
        outer = max(around, key=len, default="")
        return self.id(outer) + old[len(outer) :] if outer else old

    @property
    def edges(self) -> dict[str, str]:
        """The new ids of edges by their old ids."""
        return {_shown(each): _shown(self._edge(each)) for each in self.stored["edges"]}

    def merged(self) -> Iterator[str]:
        """Describe the stored nodes that would share a new id."""
        known: dict[str, str] = {}
        for old in self.stored["nodes"]:
            other = known.setdefault(self.id(old), old)
            if other != old:
                yield f"executors {other!r} and {old!r} would both be {self.id(old)!r}"

    def plain(self) -> dict[str, Any]:
        """Return the stored graph under the new ids."""
        nodes = {self.id(each): node for each, node in self.stored["nodes"].items()}
        edges = sorted(map(self._edge, self.stored["edges"]))
        return {"start": self.id(self.stored["start"]), "nodes": nodes, "edges": edges}

    def _edge(self, edge: list[Any]) -> list[Any]:
        kind, sources, targets, names = edge
        return [kind, [*map(self.id, sources)], [*map(self.id, targets)], names]


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the differences between two graphs."""
    found, old, new = list[str](), stored["nodes"], now["nodes"]
    for what, one, other in ("removed", stored, now), ("added", now, stored):
        found += [f"executor {each!r} was {what}" for each in one["nodes"] if each not in other["nodes"]]
    for each in [each for each in old if each in new and old[each] != new[each]]:
        before, after = ([*node["takes"], *node.get("answers", ())] for node in (old[each], new[each]))
        found.append(f"executor {each!r} handled {', '.join(before)}, now {', '.join(after)}")
    for what, one, other in ("removed", stored, now), ("added", now, stored):
        found += [f"{_shown(each)} was {what}" for each in one["edges"] if each not in other["edges"]]
    if stored["start"] != now["start"]:
        found.append(f"the start was {stored['start']!r}, now {now['start']!r}")
    return found


def _shown(edge: list[Any]) -> str:
    kind, sources, targets, names = edge
    conditions = f"[{', '.join(names)}]" if names else ""
    return f"{kind}: {' + '.join(sources)} -> {' + '.join(targets)}{conditions}"
