"""What differs between two states, by path: old and new, exactly (1, True and 1.0 are three values)."""

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.codec import encode
from holdfast.records.checkpoint import Change


def _same(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) and encode(old) == encode(new))


def _dicts(old: dict[Any, Any], new: dict[Any, Any], path: tuple[Any, ...]) -> Iterator[Change]:
    for key, value in old.items():
        if key in new:
            yield from _compare(value, new[key], (*path, key))
        else:
            yield Change((*path, key), "removed", value, None)
    for key, value in new.items():
        if key not in old:
            yield Change((*path, key), "added", None, value)


def _common_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and _same(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    return start, end


def _sequences(old: Sequence[Any], new: Sequence[Any], path: tuple[Any, ...]) -> Iterator[Change]:
    """Items are paired between what the two have in common at both ends; the surplus was added or removed."""
    start, end = _common_ends(old, new)
    old_stop, new_stop = len(old) - end, len(new) - end
    both = min(old_stop, new_stop)
    for index in range(start, both):
        yield from _compare(old[index], new[index], (*path, index))
    for index in range(both, old_stop):
        yield Change((*path, index), "removed", old[index], None)
    for index in range(both, new_stop):
        yield Change((*path, index), "added", None, new[index])


def _compare(old: Any, new: Any, path: tuple[Any, ...]) -> Iterator[Change]:
    if type(old) is type(new) is dict:
        yield from _dicts(old, new, path)
    elif type(old) is type(new) and type(old) in {list, tuple}:
        yield from _sequences(old, new, path)
    elif not _same(old, new):
        yield Change(path, "changed", old, new)


def diff(old: Any, new: Any) -> list[Change]:
    """Every difference, outermost first. Dicts that differ only in the order of their keys do not differ here."""
    return list(_compare(old, new, ()))
