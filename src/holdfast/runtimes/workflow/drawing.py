"""The drawing of a workflow: a figure of shapes and lines, as Mermaid text or as an SVG picture. Pure.

Ids and names of conditions come from anywhere. Both writers escape them, and the parts of a figure have keys of ours.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.graph import Edge, Graph, Node

DrawingForm: TypeAlias = Literal["mermaid", "svg"]
ShapeKind: TypeAlias = Literal["start", "executor", "workflow", "fan_in", "switch", "choice"]


class Shape(msgspec.Struct, frozen=True):
    """One part of a figure: an executor, a sub-workflow with a figure of its own, or where lines join or part."""

    kind: ShapeKind
    text: str = ""
    note: str = ""
    """The types that it takes."""
    asks: str = ""
    """What it asks of people, and the type of their response."""
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


def draw(graph: Graph, form: DrawingForm) -> str:
    """The drawing of a graph as text in this form."""
    if form == "mermaid":
        return mermaid_of(figure_of(graph))
    if form == "svg":
        # The layout is loaded when a picture is wanted: no run needs it.
        from holdfast.runtimes.workflow.drawing_svg import svg_of

        return svg_of(figure_of(graph))
    raise ConfigurationError(f"draw makes 'mermaid' or 'svg', got {form!r}")


# The figure


def figure_of(graph: Graph, within: str = "") -> Figure:
    """The figure of a graph, or of the sub-workflow in it that has this id."""
    nodes = [node for node in graph.nodes.values() if node.within == within]
    edges = [edge for edge in graph.edges if graph.nodes[edge.sources[0]].within == within]
    start = f"{within}/{graph.nodes[within].executor.graph.start}" if within else graph.start  # type: ignore[attr-defined]
    shapes = {"start": Shape("start")} | {_key(node.id): _shape(graph, node) for node in nodes}
    lines = [Line("start", _key(start))]
    for number, edge in enumerate(edges):
        if edge.kind in {"fan_in", "switch", "choice"}:
            shapes[f"edge {number}"] = Shape(edge.kind, edge.conditions[0] if edge.kind == "choice" else "")
        lines += _lines(edge, f"edge {number}")
    return Figure(shapes, lines)


def _key(id_: str) -> str:
    return f"node {id_}"


def _shape(graph: Graph, node: Node) -> Shape:
    text = node.id.removeprefix(f"{node.within}/") if node.within else node.id
    if node.is_workflow:
        return Shape("workflow", text, inner=figure_of(graph, node.id))
    return Shape("executor", text, " | ".join(node.takes), " | ".join(node.answers))


def _lines(edge: Edge, joint: str) -> Iterator[Line]:
    """The lines of an edge. A fan-in, a switch and a choice have a shape of their own, which the lines go through."""
    sources, targets = [*map(_key, edge.sources)], [*map(_key, edge.targets)]
    if edge.kind in {"edge", "fan_out"}:
        label = edge.conditions[0] if edge.conditions else ""
        yield from (Line(sources[0], target, label, bool(label)) for target in targets)
        return
    yield from (Line(source, joint) for source in sources)
    labels = (*edge.conditions, "default") if edge.kind == "switch" else ("",) * len(targets)
    yield from (
        Line(joint, target, label, edge.kind != "fan_in") for target, label in zip(targets, labels, strict=False)
    )


# Mermaid

_BRACKETS = {"executor": "[]", "start": ("((", "))"), "fan_in": ("((", "))"), "switch": "{}", "choice": "{}"}
_WORDS = {"start": "start", "fan_in": "all", "switch": "switch"}


def mermaid_of(figure: Figure) -> str:
    """The figure as a Mermaid flowchart."""
    return "\n".join(["flowchart TD", *_flowchart(figure, {}, "    ")]) + "\n"


def _flowchart(figure: Figure, numbers: dict[tuple[int, str], str], indent: str) -> Iterator[str]:
    for key, shape in figure.shapes.items():
        number = numbers[id(figure), key] = f"n{len(numbers)}"
        if shape.inner is not None:
            yield f'{indent}subgraph {number}["{_quoted(shape.text)}"]'
            yield from _flowchart(shape.inner, numbers, indent + "    ")
            yield f"{indent}end"
        else:
            opening, closing = _BRACKETS[shape.kind]
            texts = [shape.text or _WORDS[shape.kind], *(["asks " + shape.asks] if shape.asks else [])]
            yield f'{indent}{number}{opening}"{"<br/>".join(map(_quoted, texts))}"{closing}'
    for line in figure.lines:
        arrow = "-.->" if line.is_dashed else "-->"
        label = f'|"{_quoted(line.label)}"|' if line.label else ""
        yield f"{indent}{numbers[id(figure), line.source]} {arrow}{label} {numbers[id(figure), line.target]}"


_SAFE = re.compile(r"[^\W_]|(?<=[^\W_])[_/-](?=[^\W_])|(?<=\S) (?=\S)")
"""What means nothing in Mermaid, nor in the Markdown and HTML it makes: letters, digits, and what joins them."""


def _quoted(text: str) -> str:
    """The text with all else as numbers of characters, which Mermaid resolves after it has read the rest."""
    shown = printable(text)
    safe = {found.start() for found in _SAFE.finditer(shown)}
    return "".join(char if at in safe else f"#{ord(char)};" for at, char in enumerate(shown))


def printable(text: str) -> str:
    """The text with control characters, invisible ones and lone surrogates as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
