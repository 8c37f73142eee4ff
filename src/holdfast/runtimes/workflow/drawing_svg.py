"""Draw a workflow as an SVG picture: no script, no style sheet, nothing to load, all text escaped. Pure.

Shapes are placed in layers, and lines connect adjacent layers. A line has its own box in every layer it passes, and the
first box has its label: so no line crosses a shape or the label of another line.
"""

from html import escape
from itertools import accumulate, pairwise
from unicodedata import east_asian_width

import msgspec

from holdfast.runtimes.workflow.drawing import Line, Shape

_MARGIN, _BETWEEN_BOXES, _BETWEEN_LAYERS, _SWEEPS = 16.0, 28.0, 48.0, 60
_FILLS = {"start": "#d9f2e3", "executor": "#e6f0fa", "workflow": "#f7f9fb", "label": "#ffffff"}
_JOINT_FILL, _INK, _GREY = "#fff3d6", "#1f2933", "#52606d"


class Box(msgspec.Struct, eq=False):
    """A box in a layer: a shape, or a line that passes through."""

    layer: int
    shape: Shape | None = None
    width: float = 8.0
    height: float = 0.0
    inner: str = ""
    x: float = 0.0
    top: float = 0.0
    bottom: float = 0.0
    near: list["Box"] = []
    """The boxes in other layers that its lines connect to."""


def svg_of(workflow: Shape) -> str:
    """Draw the workflow as the text of an SVG file."""
    elements, width, height = _picture(workflow)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f}'
        f' {height:.0f}" font-family="system-ui, sans-serif" font-size="13" text-anchor="middle" role="img">\n'
        '<marker id="head" refX="9" refY="5" markerWidth="9" markerHeight="10" markerUnits="userSpaceOnUse"'
        f' orient="auto-start-reverse"><path d="M 0 0 L 9 5 L 0 10 Z" fill="{_GREY}"/></marker>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{elements}</svg>\n'
    )


def _picture(workflow: Shape) -> tuple[str, float, float]:
    """Return the elements of a workflow, and their width and height including the margin."""
    boxes = {key: _box(shape) for key, shape in workflow.shapes.items()}
    _assign_layers(boxes, workflow.lines)
    ways = [_way(boxes[line.source], boxes[line.target], line.label) for line in workflow.lines]
    for box in boxes.values():
        box.width = max(box.width, 12.0 * len(box.near))
    everything = list(dict.fromkeys([*boxes.values(), *(box for way in ways for box in way)]))
    layers = [[box for box in everything if box.layer == layer] for layer in sorted({box.layer for box in everything})]
    _place(layers)
    drawn = [_arrow(line, boxes[line.target], way) for line, way in zip(workflow.lines, ways, strict=True)]
    drawn += [_drawn(box, box.shape) for box in everything if box.shape]
    return "".join(drawn), max(box.x + box.width / 2 for box in everything) + _MARGIN, layers[-1][0].bottom + _MARGIN


def _box(shape: Shape, layer: int = 0) -> Box:
    texts = (shape.text, *shape.notes)
    width = 24 + max(sum(13.0 if east_asian_width(char) in "WF" else 7.5 for char in text) for text in texts)
    if shape.kind != "workflow":
        return Box(layer, shape, max(60.0, width), 14.0 + 16 * len(texts))
    elements, inner_width, inner_height = _picture(shape)
    inner = f'<g transform="translate({-inner_width / 2:.1f} 0)">\n{elements}</g>\n'
    return Box(layer, shape, max(width, inner_width), 16 + inner_height, inner)


def _assign_layers(boxes: dict[str, Box], lines: list[Line]) -> None:
    """Place each box below its predecessors, ignoring lines that lead back to an earlier shape."""
    after = {key: iter([line.target for line in lines if line.source == key]) for key in boxes}
    walk = [next(iter(boxes))]
    seen, order = {*walk}, list[str]()
    while walk:
        target = next(after[walk[-1]], None)
        if target is None:
            order.insert(0, walk.pop())
        elif target not in seen:
            seen.add(target)
            walk.append(target)
    ends = [(*sorted((order.index(line.source), order.index(line.target))), 2 if line.label else 1) for line in lines]
    for upper, lower, distance in sorted(ends):
        if upper < lower:
            boxes[order[lower]].layer = max(boxes[order[lower]].layer, boxes[order[upper]].layer + distance)


def _way(source: Box, target: Box, label: str) -> list[Box]:
    """Return the boxes of a line from its upper to its lower end. A loop ends at its label."""
    upper, lower = sorted((source, target), key=lambda box: box.layer)
    way = [upper, *(Box(layer) for layer in range(upper.layer + 1, lower.layer)), lower]
    if label or upper is lower:
        way[1] = _box(Shape("label", f"↻ {label}" if upper is lower else label), upper.layer + 1)
    for here, there in pairwise(way):
        here.near.append(there)
        there.near.append(here)
    return way


def _place(layers: list[list[Box]]) -> None:
    """Move boxes towards their neighbours: first sort each layer, then keep its order. Then stack the layers."""
    for sweep in range(_SWEEPS):
        is_down, is_sorting = sweep % 2 == 0, sweep < _SWEEPS / 2
        for layer in layers if is_down else reversed(layers):
            for box in layer:
                near = [each for each in box.near if not is_sorting or (each.layer < box.layer) == is_down]
                near += [each for each in near if not box.shape and not each.shape] * 7  # long lines are straight
                box.x = sum(each.x for each in near) / len(near) if near else box.x
            if is_sorting:
                layer.sort(key=lambda box: box.x)
            _keep_apart(layer)
    left, top = min(box.x - box.width / 2 for layer in layers for box in layer) - _MARGIN, _MARGIN
    for layer in layers:
        bottom = top + max(box.height for box in layer)
        for box in layer:
            box.x, box.top, box.bottom = box.x - left, top, bottom
        top = bottom + _BETWEEN_LAYERS


def _keep_apart(layer: list[Box]) -> None:
    """Place each box halfway between its positions when overlaps are resolved to the right and to the left."""
    gaps = ((left.width + right.width) / 2 + _BETWEEN_BOXES for left, right in pairwise(layer))
    offsets = [*accumulate(gaps, initial=0.0)]
    wanted = [box.x - offset for box, offset in zip(layer, offsets, strict=True)]
    rights, lefts = [*accumulate(wanted, max)], [*accumulate(wanted[::-1], min)][::-1]
    for box, offset, right, left in zip(layer, offsets, rights, lefts, strict=True):
        box.x = offset + (right + left) / 2


def _port(box: Box, other: Box) -> float:
    """Return where a line to the other box starts: the lines of a side keep the order of the boxes they lead to."""
    side = [each for each in box.near if (each.layer < box.layer) == (other.layer < box.layer)]
    place = sorted(side, key=lambda each: each.x).index(other) - (len(side) - 1) / 2
    return box.x + place * min(24.0, (box.width - 12) / len(side))


def _arrow(line: Line, target: Box, way: list[Box]) -> str:
    """Return an arrow that curves between layers and is straight inside them."""
    path = f"M {_port(way[0], way[1]):.1f} {(way[0].top + way[0].bottom + way[0].height) / 2:.1f}"
    for here, there in pairwise(way):
        x, to, middle = _port(here, there), _port(there, here), (here.bottom + there.top) / 2
        path += f" L {x:.1f} {here.bottom + 6:.1f}"
        path += f" C {x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {there.top - 10:.1f}"
    path += f" L {to:.1f} {(way[-1].top + way[-1].bottom - way[-1].height) / 2:.1f}"
    head, dashes = "end" if way[-1] is target else "start", ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.5"{dashes} marker-{head}="url(#head)"/>\n'


def _drawn(box: Box, shape: Shape) -> str:
    top, radius = (box.top + box.bottom - box.height) / 2, 6 if shape.kind in ("executor", "workflow") else 15
    texts = [
        f'<text x="{box.x:.1f}" y="{top + 19.5 + 16 * at:.1f}" fill="{_GREY if at else _INK}">{escape(text)}</text>\n'
        for at, text in enumerate((shape.text, *shape.notes))
    ]
    inner = f'<g transform="translate({box.x:.1f} {top + 16:.1f})">\n{box.inner}</g>\n' if box.inner else ""
    return (
        f'<rect x="{box.x - box.width / 2:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        f' rx="{radius}" fill="{_FILLS.get(shape.kind, _JOINT_FILL)}" stroke="{_GREY}"/>\n{"".join(texts)}{inner}'
    )
