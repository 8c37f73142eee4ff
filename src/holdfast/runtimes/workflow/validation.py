"""What is checked when a workflow is built. Each error names the executor, and says what to change."""

from collections.abc import Iterator
from typing import Any

from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.graph import Edge, Graph, Node
from holdfast.runtimes.workflow.message_types import hint_name, may_meet, members


def check_graph(graph: Graph) -> None:
    """Raise `ConfigurationError` for a graph that cannot work."""
    for node in graph.nodes.values():
        _check_handlers(node)
    _check_reachable(graph)
    for node in graph.nodes.values():
        _check_messages(graph, node)


def _check_handlers(node: Node) -> None:
    if not node.handlers.messages and not node.is_workflow:
        raise ConfigurationError(
            f"executor {node.id!r} has no handler: decorate a method (self, message, ctx) with @holdfast.handler"
        )


def _check_reachable(graph: Graph) -> None:
    waiting, reached = [graph.start], {graph.start}
    while waiting:
        for target in _following(graph, waiting.pop()):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    lost = [each for each in graph.nodes if each not in reached]
    if lost:
        raise ConfigurationError(
            f"no message can reach executor {', '.join(map(repr, lost))} from the start {graph.start!r}; add an edge"
            " to it, or leave it out"
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
    """Each type that an executor says it sends is taken by a target, and each target takes something of it."""
    sent = _sent(graph, node)
    edges = graph.edges_from(node.id)
    if sent is None or not edges:
        return
    for edge in edges:
        for target in edge.targets:
            if not any(_takes(graph, edge, target, each) for each in sent):
                raise ConfigurationError(
                    f"executor {target!r} takes {_all_taken(graph, target)}, and executor {node.id!r} sends it"
                    f" {_named(edge, sent)}: add a handler, or remove the edge"
                )
    for each in sent:
        if not any(_takes(graph, edge, target, each) for edge in edges for target in edge.targets):
            raise ConfigurationError(
                f"executor {node.id!r} sends {hint_name(each)}, and no handler of"
                f" {', '.join(repr(target) for edge in edges for target in edge.targets)} takes that"
            )


def _sent(graph: Graph, node: Node) -> list[Any] | None:
    """The types that a node sends, as far as its handlers say; None if one does not say."""
    hints = [each.sends for each in (*node.handlers.messages, *node.handlers.responses)]
    if node.is_workflow:
        inner = [each for each in graph.nodes.values() if graph.yields_to(each) == node.id and not each.is_workflow]
        hints = [each.yields for one in inner for each in (*one.handlers.messages, *one.handlers.responses)]
    sent = [each for hint in hints for each in members(hint)]
    return None if Any in sent or not sent else sent


def _takes(graph: Graph, edge: Edge, target: str, sent: Any) -> bool:
    hint = list[sent] if edge.kind == "fan_in" else sent
    handlers = graph.nodes[graph.entry(target)].handlers
    return any(may_meet(hint, each.takes[0]) for each in handlers.messages)


def _all_taken(graph: Graph, target: str) -> str:
    return " or ".join(graph.nodes[graph.entry(target)].takes)


def _named(edge: Edge, sent: list[Any]) -> str:
    return " or ".join(hint_name(list[each] if edge.kind == "fan_in" else each) for each in sent)  # type: ignore[valid-type]
