"""The figure of a workflow as an SVG picture: no script, no style sheet, nothing loaded, every text escaped. Pure."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

import msgspec

from holdfast.runtimes.workflow.drawing import Figure, Line, Shape, printable
from holdfast.runtimes.workflow.drawing_layout import Item, Layout, Way, lay_out

_MARGIN, _INSET, _TITLE = 16.0, 18.0, 26.0
_SIZE, _SMALL = 14, 11.5
_LONGEST = 44
_INK, _LINE, _QUIET, _ASKS = "#1f2933", "#52606d", "#616e7c", "#9c4a00"
_BOX, _BOX_EDGE, _INNER_EDGE = "#eef4fb", "#3d6ea5", "#9fb3c8"
_POINTS = ("start", "switch", "choice")
"""The shapes whose lines meet in one point; on others they lie side by side."""
_INNER = ("#f7f9fb", "#ffffff")
"""The grounds of sub-workflows, which take turns as they nest."""


class _Picture(msgspec.Struct):
    """A figure with its layout, and the pictures of its sub-workflows by key."""

    figure: Figure
    layout: Layout
    inner: dict[str, "_Picture"]


def svg_of(figure: Figure) -> str:
    """The figure as the text of an SVG file."""
    picture = _laid_out(figure)
    width, height = picture.layout.width + 2 * _MARGIN, picture.layout.height + 2 * _MARGIN
    parts = _drawn(picture, _MARGIN, _MARGIN, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="{_SIZE}" role="img">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{"".join(parts)}</svg>\n'
    )


# Sizes


def _laid_out(figure: Figure) -> _Picture:
    inner = {key: _laid_out(shape.inner) for key, shape in figure.shapes.items() if shape.inner is not None}
    items = {key: _item(key, shape, inner.get(key), figure.lines) for key, shape in figure.shapes.items()}
    for key, label in _loops(figure).items():
        items[key].right += 34 + (_text_width(label, _SMALL) if label else 0)
    labels = {line.label: (_text_width(line.label, _SMALL) + 8, 20.0) for line in figure.lines if line.label}
    return _Picture(figure, lay_out(items, figure.lines, labels), inner)


def _item(key: str, shape: Shape, inner: _Picture | None, lines: Sequence[Line]) -> Item:
    width, height = _size(shape, inner)
    if shape.kind not in _POINTS:
        degree = max(sum(line.source == key for line in lines), sum(line.target == key for line in lines))
        width = max(width, 12.0 * (degree + 1))
    return Item(key, width / 2, width / 2, height)


def _size(shape: Shape, inner: _Picture | None) -> tuple[float, float]:
    if inner is not None:
        width = max(inner.layout.width, _text_width(shape.text, _SIZE)) + 2 * _INSET
        return width, inner.layout.height + 2 * _INSET + _TITLE
    if shape.kind == "start":
        return 14.0, 14.0
    if shape.kind == "fan_in":
        return 56.0, 6.0
    if shape.kind == "executor":
        notes = _notes(shape)
        widths = [_text_width(shape.text, _SIZE), *(_text_width(note, _SMALL) for note, _ in notes)]
        return max(80.0, max(widths) + 28), 38.0 + 16 * len(notes)
    return (26.0, 26.0) if not shape.text else (_text_width(shape.text, _SMALL) + 56, 40.0)


def _notes(shape: Shape) -> list[tuple[str, str]]:
    """The small lines in a box, with their colours."""
    asks = [(f"asks {shape.asks}", _ASKS)] if shape.asks else []
    return [*([(shape.note, _QUIET)] if shape.note != "Any" else []), *asks]


def _loops(figure: Figure) -> dict[str, str]:
    """The shapes with lines to themselves, and the names of those lines' conditions."""
    found: dict[str, list[str]] = {}
    for line in figure.lines:
        if line.source == line.target:
            found.setdefault(line.source, []).extend([line.label] if line.label else [])
    return {key: ", ".join(labels) for key, labels in found.items()}


def _text_width(text: str, size: float) -> float:
    return sum(1.0 if east_asian_width(char) in "WF" else 0.57 for char in _shown(text)) * size


def _shown(text: str) -> str:
    text = printable(text[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# Drawing


def _drawn(picture: _Picture, left: float, top: float, depth: int) -> Iterator[str]:
    """The parts of a figure whose upper left corner is there: lines, shapes, and the names of conditions."""
    yield f'<g transform="translate({left:.1f} {top:.1f})">\n'
    ends = _ends(picture)
    for way in picture.layout.ways:
        yield from _way(way, picture.layout, *ends[id(way)])
    for key, label in _loops(picture.figure).items():
        yield from _loop(picture.layout.items[key], label)
    for key, shape in picture.figure.shapes.items():
        title = f"<title>{_escaped(shape.text)}</title>" if shape.text else ""
        yield f"<g>{title}\n{''.join(_shape(shape, picture.layout.items[key], picture.inner.get(key), depth))}</g>\n"
    yield "</g>\n"


def _shape(shape: Shape, item: Item, inner: _Picture | None, depth: int) -> Iterator[str]:
    x, y, half, height = item.x, item.y, item.left, item.height
    top = y - height / 2
    if shape.kind == "start":
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{_INK}"/>\n'
    elif shape.kind == "fan_in":
        yield _rectangle(x - half, top, 2 * half, height, 3, _INK, _INK)
    elif shape.kind in {"switch", "choice"}:
        yield (
            f'<path d="M {x:.1f} {top:.1f} L {x + half:.1f} {y:.1f} L {x:.1f} {top + height:.1f}'
            f' L {x - half:.1f} {y:.1f} Z" fill="#fff8e6" stroke="#b7791f" stroke-width="1.5"/>\n'
        )
        yield _text(shape.text, x, y + 4, _SMALL, _INK) if shape.text else ""
    elif inner is not None:
        yield _rectangle(x - half, top, 2 * half, height, 10, _INNER[depth % 2], _INNER_EDGE)
        yield _text(shape.text, x - half + 14, top + 21, _SIZE, _QUIET, "start")
        yield from _drawn(inner, x - inner.layout.width / 2, top + _TITLE + _INSET, depth + 1)
    else:
        yield _rectangle(x - half, top, 2 * half, height, 8, _BOX, _BOX_EDGE)
        yield _text(shape.text, x, top + 24, _SIZE, _INK)
        for number, (note, colour) in enumerate(_notes(shape)):
            yield _text(note, x, top + 41 + 16 * number, _SMALL, colour)


def _rectangle(left: float, top: float, width: float, height: float, radius: float, fill: str, edge: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"'
        f' fill="{fill}" stroke="{edge}" stroke-width="1.5"/>\n'
    )


def _text(text: str, x: float, y: float, size: float, colour: str, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">'
        f"{_escaped(_shown(text))}</text>\n"
    )


def _escaped(text: str) -> str:
    return escape(printable(text))


# Lines


def _ends(picture: _Picture) -> dict[int, tuple[float, float]]:
    """Where each way leaves its upper shape and reaches its lower one: side by side, in the order of the other ends."""
    found: dict[int, list[float]] = {id(way): [0.0, 0.0] for way in picture.layout.ways}
    for end, beside in ((0, 1), (-1, -2)):
        groups: dict[str, list[Way]] = {}
        for way in picture.layout.ways:
            groups.setdefault(way.items[end].key, []).append(way)
        for key, ways in groups.items():
            item = picture.layout.items[key]
            step = 0.0 if picture.figure.shapes[key].kind in _POINTS else min(24.0, (2 * item.left - 16) / len(ways))
            ways.sort(key=lambda way: way.items[beside].x)
            for number, way in enumerate(ways):
                found[id(way)][end] = item.x + step * (number - (len(ways) - 1) / 2)
    return {key: (upper, lower) for key, (upper, lower) in found.items()}


def _way(way: Way, layout: Layout, leaves: float, reaches: float) -> Iterator[str]:
    upper, lower = way.items[0], way.items[-1]
    places = [leaves, *(item.x for item in way.items[1:-1]), reaches]
    start, end = upper.y + upper.height / 2, lower.y - lower.height / 2
    path = [f"M {leaves:.1f} {start:.1f} V {layout.bottoms[upper.layer]:.1f}"]
    for (here, x), (there, to) in pairwise(zip(way.items, places, strict=True)):
        path.append(_curve(x, layout.bottoms[here.layer], to, layout.tops[there.layer]))
        if there is way.label:
            path.append(f"V {there.y - 9:.1f} M {to:.1f} {there.y + 9:.1f} V {layout.bottoms[there.layer]:.1f}")
        elif there is not lower:
            path.append(f"V {layout.bottoms[there.layer]:.1f}")
    path.append(f"V {end:.1f}")
    yield _stroke(" ".join(path), dashed=way.line.is_dashed)
    yield _head(leaves, start, 0, 1) if way.is_turned else _head(reaches, end, 0, -1)
    if way.label is not None:
        yield _text(way.line.label, way.label.x, way.label.y + 4, _SMALL, _INK)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """A curve between two layers. It begins and ends straight, so that the heads of arrows lie on their lines."""
    middle = (y + to_y) / 2
    return f"V {y + 6:.1f} C {x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y - 12:.1f} V {to_y:.1f}"


def _stroke(path: str, *, dashed: bool) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5"{dashes}/>\n'


def _head(x: float, y: float, across: int, down: int) -> str:
    """The head of an arrow whose tip is there; its foot lies in this direction from the tip."""
    foot_x, foot_y = x + 9 * across, y + 9 * down
    return (
        f'<path d="M {x:.1f} {y:.1f} L {foot_x + 4.5 * down:.1f} {foot_y + 4.5 * across:.1f}'
        f' L {foot_x - 4.5 * down:.1f} {foot_y - 4.5 * across:.1f} Z" fill="{_LINE}"/>\n'
    )


def _loop(item: Item, label: str) -> Iterator[str]:
    """A line from a shape to itself, on its right side."""
    x, y = item.x + item.left, item.y
    yield _stroke(
        f"M {x:.1f} {y - 9:.1f} C {x + 32:.1f} {y - 22:.1f} {x + 32:.1f} {y + 22:.1f} {x:.1f} {y + 9:.1f}",
        dashed=bool(label),
    )
    yield _head(x, y + 9, 1, 0)
    if label:
        yield _text(label, x + 28, y + 4, _SMALL, _INK, "start")
