"""The differences between two states by path, old and new, exactly (1, True and 1.0 are three values).

Nothing recurses, and each part of the two states is visited once, however deep it is.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from holdfast.codec import Limits, encode
from holdfast.history.edits import common_ends
from holdfast.records.checkpoint import Change

Place: TypeAlias = tuple[Any, ...]
Pair: TypeAlias = tuple[Any, Any, Place]
"""An old and a new value, and where they are."""

_OPENED: Final = frozenset({dict, list, tuple})
_LIMITS: Final = Limits(size=2**40, memory=2**40)
"""The states were read within the limits of their store."""


class _Numbers:
    """Numbers for values: two values have the same number if and only if they are exactly equal."""

    def __init__(self) -> None:
        self._by_content: dict[Any, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, value: Any) -> int:
        """Return the number of a value; `add` must have numbered a container before."""
        if type(value) in _OPENED:
            return self._by_id[id(value)]
        return self._numbered((type(value), encode(value, limits=_LIMITS)))

    def add(self, value: Any) -> None:
        """Number the containers in a value, innermost first."""
        found = [value] if type(value) in _OPENED else []
        for container in found:
            found += [part for part in _parts(container) if type(part) in _OPENED]
        for container in reversed(found):
            self._by_id[id(container)] = self._numbered(self._content(container))

    def _content(self, container: Any) -> tuple[Any, ...]:
        """Return what a container holds itself, and the numbers of the containers in it."""
        parts = list(_parts(container))
        inner = tuple((index, self.of(part)) for index, part in enumerate(parts) if type(part) in _OPENED)
        held = [None if type(part) in _OPENED else part for part in parts]
        keys = list(container) if type(container) is dict else None
        return type(container), encode([keys, held], limits=_LIMITS), inner

    def _numbered(self, content: Any) -> int:
        return self._by_content.setdefault(content, len(self._by_content))


def diff(old: Any, new: Any) -> list[Change]:
    """Return every difference, outermost first. The order of a dict's keys does not matter."""
    numbers = _Numbers()
    numbers.add(old)
    numbers.add(new)
    changes: list[Change] = []
    waiting: list[Iterator[Pair | Change]] = [iter([(old, new, ())])]
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
        elif isinstance(found, Change):
            changes.append(found)
        else:
            waiting.append(_compared(numbers, *found))
    return changes


def _compared(numbers: _Numbers, old: Any, new: Any, path: Place) -> Iterator[Pair | Change]:
    """Yield the differences of two values, and the pairs of values in them to compare next."""
    if type(old) is type(new) is dict:
        return _dicts(old, new, path)
    if type(old) is type(new) and type(old) in _OPENED:
        return _sequences(numbers, old, new, path)
    is_same = old is new or (type(old) is type(new) and numbers.of(old) == numbers.of(new))
    return iter(() if is_same else (Change(path, "changed", old, new),))


def _dicts(old: dict[Any, Any], new: dict[Any, Any], path: Place) -> Iterator[Pair | Change]:
    for key, value in old.items():
        if key in new:
            yield value, new[key], (*path, key)
        else:
            yield Change((*path, key), "removed", value, None)
    for key, value in new.items():
        if key not in old:
            yield Change((*path, key), "added", None, value)


def _sequences(numbers: _Numbers, old: Sequence[Any], new: Sequence[Any], path: Place) -> Iterator[Pair | Change]:
    """Skip what is common at both ends and pair the items between; the surplus was added or removed."""
    start, end = common_ends(list(map(numbers.of, old)), list(map(numbers.of, new)))
    old_stop, new_stop = len(old) - end, len(new) - end
    both = min(old_stop, new_stop)
    for index in range(start, both):
        yield old[index], new[index], (*path, index)
    for index in range(both, old_stop):
        yield Change((*path, index), "removed", old[index], None)
    for index in range(both, new_stop):
        yield Change((*path, index), "added", None, new[index])


def _parts(container: Any) -> Any:
    return container.values() if type(container) is dict else container
