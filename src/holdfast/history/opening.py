"""Opening a state into cells, and closing cells into a state again.

The top dict (up to 1,024 keys) and small dicts within it (up to 64 keys, two levels down) are opened; any other value
is one cell. The ordered list of paths alone says how the dicts were nested, since an empty dict is never opened.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.history.cells import Path
from holdfast.records.errors import UnstorableValue

TOP_KEYS = 1024
NESTED_KEYS = 64
NESTED_LEVELS = 2
_STR = frozenset({str})


def is_key(key: object) -> bool:
    """True for a key that a path can hold: a str without lone surrogates, which the codec has to wrap."""
    if type(key) is not str:
        return False
    if key.isascii():
        return True
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_keys(value: dict[Any, Any]) -> bool:
    """True if all keys of a dict are such. Of ASCII alone, as most are, one look is enough for all."""
    return _STR.issuperset(map(type, value)) and ("".join(value).isascii() or all(map(is_key, value)))


def _opens(value: dict[Any, Any], level: int) -> bool:
    return level <= NESTED_LEVELS and 0 < len(value) <= NESTED_KEYS and _has_keys(value)


def _open_into(opened: dict[Path, Any], value: dict[str, Any], path: Path, level: int) -> None:
    for key, item in value.items():
        if type(item) is dict and _opens(item, level):
            _open_into(opened, item, (*path, key), level + 1)
        else:
            opened[*path, key] = item


def open_state(state: Any, root: Path) -> dict[Path, Any]:
    """The state's cells by path; a single cell at `root` if it cannot be opened."""
    if type(state) is dict and 0 < len(state) <= TOP_KEYS and _has_keys(state):
        opened: dict[Path, Any] = {}
        _open_into(opened, state, root, 1)
        return opened
    return {root: state}


def make_room(document: dict[Path, Any], path: Path, cell: Any) -> dict[Path, Any]:
    """The document with a new cell: in place of the empty dict it is put into, or else at the end."""
    empty = next((path[:length] for length in range(1, len(path)) if path[:length] in document), None)
    if empty is None:
        return {**document, path: cell}
    return {path if at == empty else at: cell if at == empty else old for at, old in document.items()}


def takes_append(document: dict[Path, Any], path: Path) -> bool:
    """True if the list at `path` is a cell of its own, or can become one."""
    cell = document.get(path)
    if cell is not None:
        return bool(cell.kind == "list")
    if len(path) > 2 + NESTED_LEVELS or any(other[: len(path)] == path for other in document):
        return False
    above = (document[path[:length]] for length in range(1, len(path)) if path[:length] in document)
    return all(outer.kind == "map" and outer.count == 0 for outer in above)


def close_state(cells: Iterable[tuple[Path, Any]], root: Path) -> Any:
    """The state whose cells these are: the inverse of `open_state`."""
    state: dict[str, Any] = {}
    depth = len(root)
    for path, value in cells:
        if len(path) == depth:
            return value
        inner = state
        for key in path[depth:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return state


def with_appended(state: Any, path: Sequence[str], item: Any) -> Any:
    """The state, changed in place, with one more item in the list at `path`; a clear refusal if there is no list."""
    inner = state
    for depth, key in enumerate(path):
        name = "state" + "".join(f'["{part}"]' for part in path[:depth])
        if type(inner) is not dict:
            raise UnstorableValue(f"append: {name} is not a dict but {type(inner).__name__}", path=name)
        inner = inner.setdefault(key, [] if depth == len(path) - 1 else {})
    name = "state" + "".join(f'["{part}"]' for part in path)
    if type(inner) is not list:
        raise UnstorableValue(f"append: {name} is not a list but {type(inner).__name__}", path=name)
    inner.append(item)
    return state
