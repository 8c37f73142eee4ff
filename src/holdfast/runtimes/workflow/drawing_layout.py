"""The places of shapes in layers, and the ways of lines between them. Pure: sizes in, coordinates out.

Lines go down from layer to layer; those that close a circle are turned around for it. A line that passes a layer, and
the name of a condition, take a place of their own in it, so that no line runs through a box or a name.
"""

from bisect import bisect, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from holdfast.runtimes.workflow.drawing import Line

BETWEEN_ITEMS, BETWEEN_LAYERS = 28.0, 40.0
_SWEEPS = 12
_PULLS = {(False, False): 1.0, (False, True): 0.1, (True, False): 1.0, (True, True): 8.0}
"""How much an item is drawn to a neighbour, by which of the two is a line that passes: lines follow boxes."""


class Item(msgspec.Struct, eq=False):
    """Something that has a place in a layer: a shape, a label, or a line that passes."""

    key: str
    left: float
    """How far it reaches from its middle; a loop on its right side makes the two differ."""
    right: float
    height: float
    layer: int = 0
    x: float = 0
    y: float = 0
    above: list["Item"] = []
    below: list["Item"] = []

    def __repr__(self) -> str:
        return f"Item({self.key!r}, layer={self.layer}, x={self.x})"

    @property
    def is_bend(self) -> bool:
        """True for a line that passes, which should stay straight."""
        return not self.key


class Way(msgspec.Struct, eq=False):
    """The way of one line, downwards; `is_turned` if the line itself goes up. The label is an item on the way."""

    line: Line
    items: list[Item]
    label: Item | None = None
    is_turned: bool = False


class Layout(msgspec.Struct):
    """All places: `tops` and `bottoms` are those of the layers."""

    items: dict[str, Item]
    ways: list[Way]
    width: float
    height: float
    tops: list[float]
    bottoms: list[float]


def lay_out(items: dict[str, Item], lines: Sequence[Line], label_sizes: dict[str, tuple[float, float]]) -> Layout:
    """Place the items, the first on top, and find the ways of lines between different items."""
    ways = _ways(items, [line for line in lines if line.source != line.target], label_sizes)
    everything = [*items.values(), *(way.label for way in ways if way.label is not None)]
    _assign_layers(everything, ways)
    layers: list[list[Item]] = [[] for _ in range(1 + max(item.layer for item in everything))]
    for item in everything:
        layers[item.layer].append(item)
    for way in ways:
        _bend(way, layers)
    layers = _ordered(layers)
    width = _place_across(layers, ways)
    tops, bottoms = _place_down(layers)
    return Layout(items, ways, width, bottoms[-1], tops, bottoms)


# Layers


def _ways(items: dict[str, Item], lines: Sequence[Line], label_sizes: dict[str, tuple[float, float]]) -> list[Way]:
    turned = _closing(next(iter(items)), lines)
    ways = []
    for number, line in enumerate(lines):
        ends = [items[line.source], items[line.target]]
        if number in turned:
            ends.reverse()
        label = None
        if line.label:
            width, height = label_sizes[line.label]
            label = Item(f"label {number}", width / 2, width / 2, height)
        between = [] if label is None else [label]
        ways.append(Way(line, [ends[0], *between, ends[1]], label, number in turned))
    return ways


def _closing(start: str, lines: Sequence[Line]) -> set[int]:
    """The numbers of the lines that lead back to where one came from, on a walk from the start."""
    following: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        following.setdefault(line.source, []).append(number)
    found: set[int] = set()
    seen, path = {start}, {start}
    walk = [(start, iter(following.get(start, ())))]
    while walk:
        here, rest = walk[-1]
        number = next(rest, -1)
        if number < 0:
            walk.pop()
            path.discard(here)
            continue
        target = lines[number].target
        if target in path:
            found.add(number)
        elif target not in seen:
            seen.add(target)
            path.add(target)
            walk.append((target, iter(following.get(target, ()))))
    return found


def _assign_layers(items: Sequence[Item], ways: Sequence[Way]) -> None:
    """Put each item below all that lead to it, as high as that allows."""
    following: dict[int, list[Item]] = {}
    waiting = {id(item): 0 for item in items}
    for upper, lower in (pair for way in ways for pair in pairwise(way.items)):
        following.setdefault(id(upper), []).append(lower)
        waiting[id(lower)] += 1
    ready = [item for item in items if not waiting[id(item)]]
    for item in ready:  # grows while it is walked
        for lower in following.get(id(item), ()):
            lower.layer = max(lower.layer, item.layer + 1)
            waiting[id(lower)] -= 1
            if not waiting[id(lower)]:
                ready.append(lower)


def _bend(way: Way, layers: list[list[Item]]) -> None:
    """Give the line a place in each layer that it passes, and make neighbours of what follows each other."""
    whole = [way.items[0]]
    for lower in way.items[1:]:
        for layer in range(whole[-1].layer + 1, lower.layer):
            whole.append(Item("", 4, 4, 0, layer))
            layers[layer].append(whole[-1])
        whole.append(lower)
    way.items = whole
    for upper, lower in pairwise(whole):
        upper.below.append(lower)
        lower.above.append(upper)


# Order within the layers: few crossings


def _ordered(layers: list[list[Item]]) -> list[list[Item]]:
    best, fewest = layers, _crossings(layers)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        layers = _swept(layers, down=sweep % 2 == 0)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = layers, crossings
    return best


def _swept(layers: list[list[Item]], *, down: bool) -> list[list[Item]]:
    layers = [*layers]
    for number in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
        fixed = _positions(layers[number - 1 if down else number + 1])
        here = _positions(layers[number])

        def middle(item: Item, fixed: dict[int, int] = fixed, here: dict[int, int] = here) -> float:
            others = item.above if down else item.below
            return sum(fixed[id(each)] for each in others) / len(others) if others else here[id(item)]

        layers[number] = sorted(layers[number], key=middle)
    return layers


def _positions(layer: Iterable[Item]) -> dict[int, int]:
    return {id(item): at for at, item in enumerate(layer)}


def _crossings(layers: list[list[Item]]) -> int:
    count = 0
    for upper, lower in pairwise(layers):
        positions = _positions(lower)
        passed: list[int] = []
        for item in upper:
            ends = sorted(positions[id(each)] for each in item.below)
            count += sum(len(passed) - bisect(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return count


# Coordinates


def _place_across(layers: list[list[Item]], ways: Sequence[Way]) -> float:
    """Move each item towards the middle of its neighbours, as far as those beside it allow; return the width."""
    for layer in layers:
        _settle(layer, [(0.0, 1.0)] * len(layer))
    for sweep in range(4 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _settle(layer, [_wanted(item) for item in layer])
    _straighten(layers, ways)
    left = min(item.x - item.left for layer in layers for item in layer)
    for layer in layers:
        for item in layer:
            item.x -= left
    return max(item.x + item.right for layer in layers for item in layer)


def _wanted(item: Item) -> tuple[float, float]:
    """The place that an item would like, and its weight against those beside it: lines make way for boxes."""
    pulls = [(_PULLS[item.is_bend, each.is_bend], each.x) for each in (*item.above, *item.below)]
    total = sum(pull for pull, _ in pulls)
    return sum(pull * x for pull, x in pulls) / total if total else item.x, 0.1 if item.is_bend else 1.0


def _settle(layer: list[Item], wanted: list[tuple[float, float]]) -> None:
    """The places nearest to those wanted that keep order and distance: pools of touching items share their middle."""
    offsets, reach = [], 0.0
    for at, item in enumerate(layer):
        reach += (layer[at - 1].right + BETWEEN_ITEMS + item.left) if at else 0.0
        offsets.append(reach)
    pools: list[tuple[float, float, int]] = []
    for (want, pull), offset in zip(wanted, offsets, strict=True):
        pool = (want - offset, pull, 1)
        while pools and pools[-1][0] >= pool[0]:
            place, weight, count = pools.pop()
            together = weight + pool[1]
            pool = ((place * weight + pool[0] * pool[1]) / together, together, count + pool[2])
        pools.append(pool)
    places = [place for place, _, count in pools for _ in range(count)]
    for item, place, offset in zip(layer, places, offsets, strict=True):
        item.x = place + offset


def _straighten(layers: list[list[Item]], ways: Sequence[Way]) -> None:
    """Put the bends of a line below each other where there is room for that."""
    positions = [_positions(layer) for layer in layers]
    for way in ways:
        bends = [item for item in way.items if item.is_bend]
        low, high = float("-inf"), float("inf")
        for bend in bends:
            layer, at = layers[bend.layer], positions[bend.layer][id(bend)]
            if at:
                low = max(low, layer[at - 1].x + layer[at - 1].right + bend.left + BETWEEN_ITEMS / 2)
            if at + 1 < len(layer):
                high = min(high, layer[at + 1].x - layer[at + 1].left - bend.right - BETWEEN_ITEMS / 2)
        if bends and low <= high:
            place = min(high, max(low, sum(bend.x for bend in bends) / len(bends)))
            for bend in bends:
                bend.x = place


def _place_down(layers: list[list[Item]]) -> tuple[list[float], list[float]]:
    tops, bottoms, bottom = [], [], 0.0
    for number, layer in enumerate(layers):
        height = max(item.height for item in layer)
        top = bottom + (_gap(layer) if number else 0.0)
        bottom = top + height
        tops.append(top)
        bottoms.append(bottom)
        for item in layer:
            item.y = top + height / 2
    return tops, bottoms


def _gap(layer: list[Item]) -> float:
    """More room above a layer that lines reach from far away, so that they are not flat."""
    furthest = max((abs(item.x - each.x) for item in layer for each in item.above), default=0.0)
    return max(BETWEEN_LAYERS, min(110.0, furthest / 7))
