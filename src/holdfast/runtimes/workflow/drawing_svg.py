"""The figure of a workflow as an SVG picture: no script, no style sheet, nothing loaded, every text escaped. Pure."""

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from unicodedata import east_asian_width

import msgspec

from holdfast.runtimes.workflow.drawing import Figure, Line, Shape, printable
from holdfast.runtimes.workflow.drawing_layout import Item, Way, closing, lay_out

_MARGIN, _INSET, _TITLE = 16.0, 18.0, 26.0
_SIZE, _SMALL = 14, 11.5
_LONGEST = 44
_INK, _LINE, _QUIET = "#1f2933", "#52606d", "#616e7c"
_COLOURS = {"executor": ("#eef4fb", "#3d6ea5"), "workflow": ("#f7f9fb", "#9fb3c8"), "fan_in": (_INK, _INK)}
_POINTS = ("start", "switch", "choice")
"""The shapes whose lines meet in one point; on others they lie side by side."""


class Picture(msgspec.Struct):
    """A figure with the places of its shapes and lines, and the pictures of its sub-workflows by key."""

    figure: Figure
    items: dict[str, Item]
    ways: list[Way]
    layers: list[list[Item]]
    inner: dict[str, "Picture"]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        return max(item.x + item.right for layer in self.layers for item in layer), self.layers[-1][0].bottom


def svg_of(figure: Figure) -> str:
    """The figure as the text of an SVG file."""
    picture = picture_of(figure)
    width, height = (length + 2 * _MARGIN for length in picture.size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" role="img">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{"".join(_drawn(picture, _MARGIN, _MARGIN))}</svg>\n'
    )


# Sizes and places


def picture_of(figure: Figure) -> Picture:
    """The figure with the places of everything in it."""
    inner = {key: picture_of(shape.inner) for key, shape in figure.shapes.items() if shape.inner is not None}
    items = {key: _item(key, figure, inner.get(key)) for key in figure.shapes}
    between = [line for line in figure.lines if line.source != line.target]
    turned = closing(next(iter(items)), between)
    ways = [_way(items, line, is_turned=number in turned) for number, line in enumerate(between)]
    return Picture(figure, items, ways, lay_out([*items.values()], ways), inner)


def _item(key: str, figure: Figure, inner: Picture | None) -> Item:
    shape, loop = figure.shapes[key], _loop_label(figure, key)
    width, height = _size(shape, inner)
    ends = [[line.source for line in figure.lines], [line.target for line in figure.lines]]
    if shape.kind not in _POINTS:
        width = max(width, 12.0 * (1 + max(each.count(key) for each in ends)))
    return Item(key, width / 2, width / 2 + (0 if loop is None else 34 + _text_width(loop, _SMALL)), height)


def _size(shape: Shape, inner: Picture | None) -> tuple[float, float]:
    if inner is not None:
        width, height = inner.size
        return max(width, _text_width(shape.text, _SIZE)) + 2 * _INSET, height + 2 * _INSET + _TITLE
    if shape.kind == "executor":
        widths = [_text_width(shape.text, _SIZE), *(_text_width(note, _SMALL) for note in shape.notes)]
        return max(80.0, max(widths) + 28), 38.0 + 16 * len(shape.notes)
    if shape.kind == "choice":
        return _text_width(shape.text, _SMALL) + 56, 40.0
    return {"start": (14.0, 14.0), "fan_in": (56.0, 6.0)}.get(shape.kind, (26.0, 26.0))


def _loop_label(figure: Figure, key: str) -> str | None:
    """The names of the conditions of a shape's lines to itself; None if it has none."""
    labels = [line.label for line in figure.lines if line.source == line.target == key]
    return ", ".join(label for label in labels if label) if labels else None


def _way(items: dict[str, Item], line: Line, *, is_turned: bool) -> Way:
    half = _text_width(line.label, _SMALL) / 2 + 4
    label = [Item("label", half, half, 20.0)] if line.label else []
    ends = [items[line.source], *label, items[line.target]]
    return Way(line, ends[::-1] if is_turned else ends, is_turned)


def _text_width(text: str, size: float) -> float:
    return sum(1.0 if east_asian_width(char) in "WF" else 0.57 for char in _shown(text)) * size


def _shown(text: str) -> str:
    text = printable(text[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# Drawing


def _drawn(picture: Picture, left: float, top: float) -> Iterator[str]:
    """The parts of a figure whose upper left corner is there."""
    yield f'<g transform="translate({left:.1f} {top:.1f})">\n'
    leaves, reaches = _ends(picture, 0), _ends(picture, -1)
    for number, way in enumerate(picture.ways):
        yield from _line(way, leaves[number], reaches[number])
    for key, shape in picture.figure.shapes.items():
        loop = _loop_label(picture.figure, key)
        if loop is not None:
            yield from _loop(picture.items[key], loop)
        title = f"<title>{escape(printable(shape.text))}</title>" if shape.text else ""
        yield f"<g>{title}\n{''.join(_shape(shape, picture.items[key], picture.inner.get(key)))}</g>\n"
    yield "</g>\n"


def _shape(shape: Shape, item: Item, inner: Picture | None) -> Iterator[str]:
    x, half, height = item.x, item.left, item.height
    y = (item.top + item.bottom) / 2
    top = y - height / 2
    if shape.kind == "start":
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{_INK}"/>\n'
    elif shape.kind in _POINTS:
        corners = (
            f"M {x:.1f} {top:.1f} L {x + half:.1f} {y:.1f} L {x:.1f} {top + height:.1f} L {x - half:.1f} {y:.1f} Z"
        )
        yield f'<path d="{corners}" fill="#fff8e6" stroke="#b7791f" stroke-width="1.5"/>\n'
        yield _text(shape.text, x, y + 4, _SMALL, _INK)
    else:
        fill, edge = _COLOURS[shape.kind]
        yield (
            f'<rect x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{height:.1f}"'
            f' rx="{min(8, height / 2)}" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>\n'
        )
        yield _text(shape.text, x, top + 24, _SIZE, _INK)
        for number, note in enumerate(shape.notes):
            yield _text(note, x, top + 41 + 16 * number, _SMALL, _QUIET)
        if inner is not None:
            yield from _drawn(inner, x - inner.size[0] / 2, top + _TITLE + _INSET)


def _text(text: str, x: float, y: float, size: float, colour: str, anchor: str = "middle") -> str:
    style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(_shown(text))}</text>\n' if text else ""


# Lines


def _ends(picture: Picture, end: int) -> dict[int, float]:
    """Where each way leaves its upper shape, or reaches its lower one: side by side, in the order of the other ends."""
    found: dict[int, float] = {}
    for key, item in picture.items.items():
        numbers = [number for number, way in enumerate(picture.ways) if way.items[end] is item]
        numbers.sort(key=lambda number: picture.ways[number].items[1 if end == 0 else -2].x)
        is_point = picture.figure.shapes[key].kind in _POINTS
        step = 0.0 if is_point else min(24.0, (2 * item.left - 16) / max(1, len(numbers)))
        found |= {number: item.x + step * (at - (len(numbers) - 1) / 2) for at, number in enumerate(numbers)}
    return found


def _line(way: Way, leaves: float, reaches: float) -> Iterator[str]:
    """A line that curves between layers, and is straight within them: there it has a place of its own."""
    upper, lower = way.items[0], way.items[-1]
    start, end = ((item.top + item.bottom + sign * item.height) / 2 for item, sign in ((upper, 1), (lower, -1)))
    places = [leaves, *(item.x for item in way.items[1:-1]), reaches]
    path = [f"M {leaves:.1f} {start:.1f}"]
    for (here, x), (there, to) in pairwise(zip(way.items, places, strict=True)):
        middle = (here.bottom + there.top) / 2
        path.append(
            f"V {here.bottom + 6:.1f} C {x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {there.top - 12:.1f}"
        )
        if there.key == "label":
            y = (there.top + there.bottom) / 2
            path.append(f"V {y - 9:.1f} M {to:.1f} {y + 9:.1f}")
            yield _text(way.line.label, to, y + 4, _SMALL, _INK)
    yield _stroke(" ".join([*path, f"V {end:.1f}"]), dashed=way.line.is_dashed)
    yield _head(leaves, start, 0, 1) if way.is_turned else _head(reaches, end, 0, -1)


def _stroke(path: str, *, dashed: bool) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5"{dashes}/>\n'


def _head(x: float, y: float, across: int, down: int) -> str:
    """The head of an arrow whose tip is there; its foot lies in this direction from the tip."""
    foot, side = (x + 9 * across, y + 9 * down), (4.5 * down, 4.5 * across)
    corners = " L ".join(f"{foot[0] + sign * side[0]:.1f} {foot[1] + sign * side[1]:.1f}" for sign in (1, -1))
    return f'<path d="M {x:.1f} {y:.1f} L {corners} Z" fill="{_LINE}"/>\n'


def _loop(item: Item, label: str) -> Iterator[str]:
    """A line from a shape to itself, on its right side."""
    x, y = item.x + item.left, (item.top + item.bottom) / 2
    curve = f"C {x + 32:.1f} {y - 22:.1f} {x + 32:.1f} {y + 22:.1f} {x:.1f} {y + 9:.1f}"
    yield _stroke(f"M {x:.1f} {y - 9:.1f} {curve}", dashed=bool(label))
    yield _head(x, y + 9, 1, 0)
    yield _text(label, x + 28, y + 4, _SMALL, _INK, "start")
