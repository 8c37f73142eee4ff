"""Draw a workflow as Mermaid text or as an SVG picture. Both escape ids and names. Pure."""

import re
from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.executors import WorkflowExecutor
from holdfast.runtimes.workflow.graph import Graph, Node

_LONGEST = 48
_BRACKETS = {"executor": ("[", "]"), "switch": ("{", "}"), "choice": ("{", "}")}
_UNSAFE = re.compile(r"[^\w /-]|(?<![^\W_])[_/-]|[_/-](?![^\W_])|(?<!\S) | (?!\S)")
"""Characters that may have a meaning in Mermaid, Markdown or HTML."""


class Line(msgspec.Struct, frozen=True):
    """An arrow between two shapes, labelled with its condition. Dashed if it is conditional."""

    source: str
    target: str
    label: str = ""
    is_dashed: bool = False


class Shape(msgspec.Struct, frozen=True):
    """The start, an executor, or a join or fork of lines; or a workflow, which contains shapes by key."""

    kind: str
    text: str
    notes: tuple[str, ...] = ()
    """The types an executor handles, and the requests it makes."""
    shapes: dict[str, "Shape"] = {}
    lines: list[Line] = []


def draw(graph: Graph, form: str) -> str:
    """Draw a graph in this form."""
    if form == "mermaid":
        return "\n".join(["flowchart TD", *_flowchart(_workflow(graph, graph.start), {}, "    "), ""])
    if form == "svg":
        from holdfast.runtimes.workflow.drawing_svg import svg_of

        return svg_of(_workflow(graph, graph.start))
    raise ConfigurationError(f"`form` must be 'mermaid' or 'svg', got {form!r}")


def _workflow(graph: Graph, first: str, within: str = "", text: str = "") -> Shape:
    """Return the shape of a graph, or of the sub-workflow `within` it, with its first executor."""
    shapes, lines = {f"start {within}": Shape("start", "start")}, [Line(f"start {within}", f"node {first}")]
    shapes |= {f"node {node.id}": _node(graph, node) for node in graph.nodes.values() if node.within == within}
    for edge in (each for each in graph.edges if graph.nodes[each.sources[0]].within == within):
        source, names = f"node {edge.sources[0]}", [_shown(name) for name in edge.conditions]
        if edge.kind in ("fan_in", "switch", "choice"):
            source = f"edge {edge.id}"
            shapes[source] = Shape(edge.kind, {"fan_in": "all", "switch": "switch"}.get(edge.kind) or names[0])
            lines += [Line(f"node {each}", source) for each in edge.sources]
        labels = {"edge": names, "switch": [*names, "default"][: len(edge.targets)]}.get(edge.kind, [])
        for target, label in zip_longest(edge.targets, labels, fillvalue=""):
            lines.append(Line(source, f"node {target}", label, bool(names)))
    return Shape("workflow", text, (), shapes, lines)


def _node(graph: Graph, node: Node) -> Shape:
    text = _shown(node.id.removeprefix(node.within and f"{node.within}/"))
    if isinstance(node.executor, WorkflowExecutor):
        return _workflow(graph, f"{node.id}/{node.executor.graph.start}", node.id, text)
    takes = [" | ".join(node.takes)] if node.takes != ["Any"] else []
    return Shape("executor", text, tuple(map(_shown, [*takes, *(f"asks {each}" for each in node.answers)])))


def _shown(text: str) -> str:
    """Return the text, shortened if it is long, with unprintable characters escaped."""
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _flowchart(workflow: Shape, names: dict[str, str], indent: str) -> Iterator[str]:
    for key, shape in workflow.shapes.items():
        name, text = names.setdefault(key, f"n{len(names)}"), _quoted(shape.text)
        if shape.kind == "workflow":
            yield f'{indent}subgraph {name}["{text}"]'
            yield from _flowchart(shape, names, indent + "    ")
            yield f"{indent}end"
        else:
            opening, closing = _BRACKETS.get(shape.kind, ("((", "))"))
            yield f'{indent}{name}{opening}"{text}"{closing}'
    for line in workflow.lines:
        label = f'|"{_quoted(line.label)}"|' if line.label else ""
        yield f"{indent}{names[line.source]} {'-.->' if line.is_dashed else '-->'}{label} {names[line.target]}"


def _quoted(text: str) -> str:
    """Return the text with character codes for unsafe characters: Mermaid decodes them after parsing."""
    return _UNSAFE.sub(lambda found: f"#{ord(found[0])};", text)
