"""The places of shapes in layers, and the ways of lines between them. Pure: sizes in, coordinates out.

Lines go down from layer to layer; those that close a circle are turned around for it. A line that passes a layer, and
the name of a condition, take a place of their own in it, so that no line runs through a box or a name.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from holdfast.runtimes.workflow.drawing import Line

BETWEEN_ITEMS, BETWEEN_LAYERS = 28.0, 40.0
_SWEEPS = 8
_PULLS = {(False, False): 1.0, (False, True): 0.1, (True, False): 1.0, (True, True): 8.0}
"""How much an item is drawn to a neighbour, by which of the two is a line that passes: lines follow boxes."""


class Item(msgspec.Struct, eq=False):
    """Something that has a place in a layer: a shape, a name, or, without a key, a line that passes."""

    key: str
    left: float
    """How far it reaches from its middle; a loop on its right side makes the two differ."""
    right: float
    height: float
    layer: int = 0
    x: float = 0.0
    top: float = 0.0
    """Where its layer begins and ends. It lies in the middle between them."""
    bottom: float = 0.0
    near: list["Item"] = []
    """The items above and below that its lines lead to."""

    def __repr__(self) -> str:
        return f"Item({self.key!r}, layer={self.layer}, x={self.x})"


class Way(msgspec.Struct, eq=False):
    """The way of one line, downwards; `is_turned` if the line itself goes up."""

    line: Line
    items: list[Item]
    is_turned: bool


def lay_out(items: Sequence[Item], ways: Sequence[Way]) -> list[list[Item]]:
    """Place the items, with those on the ways between them, and return the layers."""
    everything = list({id(item): item for item in (*items, *(item for way in ways for item in way.items))}.values())
    _assign_layers(ways)
    layers: list[list[Item]] = [[] for _ in range(1 + max(item.layer for item in everything))]
    for item in everything:
        layers[item.layer].append(item)
    for way in ways:
        _bend(way, layers)
    _order(layers)
    _place_across(layers)
    for way in ways:
        _straighten([item for item in way.items if not item.key], layers)
    _place_down(layers)
    return layers


def closing(start: str, lines: Sequence[Line]) -> set[int]:
    """The numbers of the lines that lead back to where one came from, on a walk from the start."""
    found, seen, path = set[int](), {start}, {start}
    walk = [(start, iter([*enumerate(lines)]))]
    while walk:
        here, rest = walk[-1]
        number, target = next(((number, line.target) for number, line in rest if line.source == here), (-1, ""))
        if number < 0:
            path.discard(walk.pop()[0])
        elif target in path:
            found.add(number)
        elif target not in seen:
            seen.add(target)
            path.add(target)
            walk.append((target, iter([*enumerate(lines)])))
    return found


def _assign_layers(ways: Sequence[Way]) -> None:
    """Put each item below all that lead to it, as high as that allows."""
    pairs, moved = [pair for way in ways for pair in pairwise(way.items)], True
    while moved:
        moved = False
        for upper, lower in pairs:
            if lower.layer <= upper.layer:
                lower.layer, moved = upper.layer + 1, True


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
        upper.near.append(lower)
        lower.near.append(upper)


def _order(layers: list[list[Item]]) -> None:
    """Sort each layer by the middle of the neighbours in the layer before it, downwards and upwards in turn."""
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for layer in layers if is_down else reversed(layers):
            places = [[each.x for each in item.near if (each.layer < item.layer) == is_down] for item in layer]
            middles = {id(item): sum(x) / len(x) if x else item.x for item, x in zip(layer, places, strict=True)}
            layer.sort(key=lambda item, middles=middles: middles[id(item)])  # type: ignore[misc]
            for at, item in enumerate(layer):
                item.x = at


def _place_across(layers: list[list[Item]]) -> None:
    """Move each item towards the middle of its neighbours, as far as those beside it allow."""
    for layer in layers:
        _settle(layer, [0.0] * len(layer))
    for sweep in range(6 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _settle(layer, [_wanted(item) for item in layer])


def _wanted(item: Item) -> float:
    pulls = [(_PULLS[not item.key, not each.key], each.x) for each in item.near]
    return sum(pull * x for pull, x in pulls) / sum(pull for pull, _ in pulls) if pulls else item.x


def _settle(layer: list[Item], wanted: list[float]) -> None:
    """The places nearest to those wanted that keep order and distance: pools of touching items share their middle."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + left.right + BETWEEN_ITEMS + right.left)
    pools: list[tuple[float, float, int]] = []
    for item, want, offset in zip(layer, wanted, offsets, strict=True):
        pool = (want - offset, 1.0 if item.key else 0.1, 1)
        while pools and pools[-1][0] >= pool[0]:
            place, weight, count = pools.pop()
            together = weight + pool[1]
            pool = ((place * weight + pool[0] * pool[1]) / together, together, count + pool[2])
        pools.append(pool)
    places = [place for place, _, count in pools for _ in range(count)]
    for item, place, offset in zip(layer, places, offsets, strict=True):
        item.x = place + offset


def _straighten(bends: list[Item], layers: list[list[Item]]) -> None:
    """Put the bends of a line below each other where there is room for that."""
    low, high = float("-inf"), float("inf")
    for bend in bends:
        layer, at = layers[bend.layer], next(at for at, each in enumerate(layers[bend.layer]) if each is bend)
        if at:
            low = max(low, layer[at - 1].x + layer[at - 1].right + bend.left + BETWEEN_ITEMS / 2)
        if at + 1 < len(layer):
            high = min(high, layer[at + 1].x - layer[at + 1].left - bend.right - BETWEEN_ITEMS / 2)
    if bends and low <= high:
        place = min(high, max(low, sum(bend.x for bend in bends) / len(bends)))
        for bend in bends:
            bend.x = place


def _place_down(layers: list[list[Item]]) -> None:
    """Put the layers below each other, with more room above one that lines reach from far away: they are not flat."""
    left = min(item.x - item.left for layer in layers for item in layer)
    bottom = -BETWEEN_LAYERS
    for layer in layers:
        reaches = [abs(item.x - each.x) for item in layer for each in item.near if each.layer < item.layer]
        top = bottom + max(BETWEEN_LAYERS, min(110.0, max(reaches, default=0.0) / 7))
        bottom = top + max(item.height for item in layer)
        for item in layer:
            item.top, item.bottom = top, bottom
    for item in (item for layer in layers for item in layer):
        item.x -= left
