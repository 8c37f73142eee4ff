"""The drawing of a workflow: a figure of shapes and lines, as Mermaid text or as an SVG picture. Pure.

Ids and names of conditions come from anywhere: both writers escape them.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.graph import Edge, Graph, Node

JOINTS = ("fan_in", "switch", "choice")
"""The edges that have a shape of their own, where their lines join or part."""
_WORDS = {"start": "start", "fan_in": "all", "switch": "switch"}
_BRACKETS = {"executor": ("[", "]"), "switch": ("{", "}"), "choice": ("{", "}")}
_SAFE = re.compile(r"[^\W_]|(?<=[^\W_])[_/-](?=[^\W_])|(?<=\S) (?=\S)")
"""What means nothing in Mermaid, nor in the Markdown and HTML it makes: letters, digits, and what joins them."""


class Shape(msgspec.Struct, frozen=True):
    """One part of a figure: start, executor, workflow or a joint. Its notes say what it takes, and asks of people."""

    kind: str
    text: str = ""
    notes: tuple[str, ...] = ()
    inner: "Figure | None" = None


class Line(msgspec.Struct, frozen=True):
    """An arrow between two shapes, with the name of its condition. Dashed if not every message takes it."""

    source: str
    target: str
    label: str = ""
    is_dashed: bool = False


class Figure(msgspec.Struct, frozen=True):
    """The shapes by key, the start first, and the lines between them."""

    shapes: dict[str, Shape]
    lines: list[Line]


def draw(graph: Graph, form: str) -> str:
    """The drawing of a graph as text in this form."""
    if form == "mermaid":
        return "\n".join(["flowchart TD", *_flowchart(figure_of(graph), {}, "    "), ""])
    if form == "svg":
        from holdfast.runtimes.workflow.drawing_svg import svg_of

        return svg_of(figure_of(graph))
    raise ConfigurationError(f"draw makes 'mermaid' or 'svg', got {form!r}")


def figure_of(graph: Graph, within: str = "") -> Figure:
    """The figure of a graph, or of the sub-workflow in it that has this id."""
    inner: Any = graph.nodes[within].executor if within else None
    start, first = f"start {within}", f"{within}/{inner.graph.start}" if within else graph.start
    shapes = {start: Shape("start")}
    shapes |= {f"node {node.id}": _shape(graph, node) for node in graph.nodes.values() if node.within == within}
    lines = [Line(start, f"node {first}")]
    for edge in graph.edges:
        if graph.nodes[edge.sources[0]].within == within:
            sources, targets = ([f"node {each}" for each in ids] for ids in (edge.sources, edge.targets))
            if edge.kind in JOINTS:
                joint = f"edge {edge.id}"
                shapes[joint] = Shape(edge.kind, edge.conditions[0] if edge.kind == "choice" else "")
                lines += [Line(source, joint) for source in sources]
                sources = [joint]
            labelled = zip(targets, _labels(edge), strict=False)
            lines += [Line(sources[0], target, label, bool(edge.conditions)) for target, label in labelled]
    return Figure(shapes, lines)


def _shape(graph: Graph, node: Node) -> Shape:
    text = node.id.removeprefix(f"{node.within}/") if node.within else node.id
    if node.is_workflow:
        return Shape("workflow", text, inner=figure_of(graph, node.id))
    takes = [" | ".join(node.takes)] if node.takes != ["Any"] else []
    return Shape("executor", text, (*takes, *(f"asks {each}" for each in node.answers)))


def _labels(edge: Edge) -> list[str]:
    if edge.kind == "switch":
        return [*edge.conditions, "default"]
    return [edge.conditions[0] if edge.kind == "edge" and edge.conditions else ""] * len(edge.targets)


def _flowchart(figure: Figure, names: dict[str, str], indent: str) -> Iterator[str]:
    for key, shape in figure.shapes.items():
        name = names[key] = f"n{len(names)}"
        text = _quoted(shape.text or _WORDS[shape.kind])
        if shape.inner is not None:
            yield f'{indent}subgraph {name}["{text}"]'
            yield from _flowchart(shape.inner, names, indent + "    ")
            yield f"{indent}end"
        else:
            opening, closing = _BRACKETS.get(shape.kind, ("((", "))"))
            yield f'{indent}{name}{opening}"{text}"{closing}'
    for line in figure.lines:
        label = f'|"{_quoted(line.label)}"|' if line.label else ""
        yield f"{indent}{names[line.source]} {'-.->' if line.is_dashed else '-->'}{label} {names[line.target]}"


def _quoted(text: str) -> str:
    """The text with all else as numbers of characters, which Mermaid resolves after it has read the rest."""
    shown = printable(text)
    safe = {found.start() for found in _SAFE.finditer(shown)}
    return "".join(char if at in safe else f"#{ord(char)};" for at, char in enumerate(shown))


def printable(text: str) -> str:
    """The text with control characters, invisible ones and lone surrogates as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
