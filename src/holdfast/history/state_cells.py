"""How a state is split into cells and joined again, and its draft: the cells of a state on its way into a row.

The top dict (up to 1,024 keys) and small dicts inside it (up to 64 keys, two levels down) are split; any other value is
one cell. The ordered list of paths alone says how the dicts were nested, since an empty dict is never split.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from holdfast.codec import DEFAULT, Limits, encode
from holdfast.codec.limits import without_memory
from holdfast.history.cells import Cell, Document, Path
from holdfast.records.errors import CodecError, UnstorableValue
from holdfast.records.shown import kind_of, with_article

STATE: Path = ("state",)
TOP_KEYS = 1024
NESTED_KEYS = 64
NESTED_LEVELS = 2
_STR = frozenset({str})
_LEAVES = frozenset({str, bytes, int, float, bool, type(None)})

Draft: TypeAlias = dict[Path, "bytes | Cell"]
"""Cells by path: encoded, or the cell of the document it was drafted against where nothing can have changed."""


def is_key(key: object) -> bool:
    """True for a key that a path can hold: a str without lone surrogates, which the codec has to wrap."""
    if type(key) is not str:
        return False
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_keys(value: dict[Any, Any]) -> bool:
    """True if a path can hold every key of a dict. Keys that are all ASCII, as most are, take a single check."""
    return _STR.issuperset(map(type, value)) and ("".join(value).isascii() or all(map(is_key, value)))


def split_state(state: Any) -> dict[Path, Any]:
    """Return the values of the state's cells by path; a single cell at `STATE` if it cannot be split."""
    if type(state) is not dict or not 0 < len(state) <= TOP_KEYS or not _has_keys(state):
        return {STATE: state}
    cells: dict[Path, Any] = {}
    _split_into(cells, state, STATE)
    return cells


def _split_into(cells: dict[Path, Any], value: dict[str, Any], path: Path) -> None:
    for key, item in value.items():
        is_small = type(item) is dict and len(path) <= NESTED_LEVELS and 0 < len(item) <= NESTED_KEYS
        if is_small and _has_keys(item):
            _split_into(cells, item, (*path, key))
        else:
            cells[*path, key] = item


def join_state(cells: Iterable[tuple[Path, Any]]) -> Any:
    """Return the state with these cells: the inverse of `split_state`."""
    state: dict[str, Any] = {}
    for path, value in cells:
        if path == STATE:
            return value
        inner = state
        for key in path[1:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return state


def add_cell(document: dict[Path, Any], path: Path, cell: Any) -> dict[Path, Any]:
    """Return the document with a new cell: in place of the empty dict that it is put into, or else at the end."""
    empty = next((path[:length] for length in range(1, len(path)) if path[:length] in document), None)
    if empty is None:
        return {**document, path: cell}
    return {path if at == empty else at: cell if at == empty else old for at, old in document.items()}


def takes_append(document: Document, path: Path) -> bool:
    """True if the list at `path` is a cell, or can become one."""
    cell = document.get(path)
    if cell is not None:
        return cell.kind == "list"
    if len(path) > 2 + NESTED_LEVELS or any(other[: len(path)] == path for other in document):
        return False
    above = (document[path[:length]] for length in range(1, len(path)) if path[:length] in document)
    return all(outer.kind == "map" and outer.count == 0 for outer in above)


def with_appended(state: Any, path: Sequence[str], item: Any) -> Any:
    """Append an item to the list at `path`, in place, and return the state. Missing dicts and the list are added."""
    inner = state
    for depth, key in enumerate(path):
        _check_type(inner, dict, path[:depth])
        inner = inner.setdefault(key, [] if depth == len(path) - 1 else {})
    _check_type(inner, list, path)
    inner.append(item)
    return state


def _check_type(value: Any, wanted: type, keys: Sequence[str]) -> None:
    if type(value) is not wanted:
        name = _name((*STATE, *keys))
        message = f"cannot append: {name} must be {with_article(wanted.__name__)}, got {kind_of(value)}"
        raise UnstorableValue(message, path=name)


def _name(path: Path) -> str:
    return path[0] + "".join(f'["{key}"]' for key in path[1:])


def draft_state(
    state: Any, against: Document | None = None, limits: Limits = DEFAULT
) -> tuple[Draft, dict[Path, object]]:
    """Return the draft of a state, and its leaves, by which the next draft recognizes the same objects.

    Raises `UnstorableValue` for what cannot be stored exactly. The memory a state takes is counted when the row is
    written, and only for cells that changed: to count 5 MB takes 0.2 s, to encode them 0.01 s.
    """
    known, limits = against or {}, without_memory(limits)
    draft: Draft = {}
    leaves: dict[Path, object] = {}
    for path, value in split_state(state).items():
        if type(value) in _LEAVES:
            leaves[path] = value
            cell = known.get(path)
            if cell is not None and cell.leaf is value and value is not None:
                draft[path] = cell
                continue
        try:
            draft[path] = encode(value, limits=limits)
        except CodecError:
            encode(value, path=_name(path), limits=limits)  # raises with the path
            raise
    return draft, leaves


def fingerprint(draft: Draft, *extra: bytes) -> bytes:
    """Return a digest of the content: equal for equal states, whatever was stored before."""
    digest = sha256()
    for path, cell in draft.items():
        encoded = cell.encoded() if isinstance(cell, Cell) else cell
        for part in (*(key.encode() for key in path), encoded):
            digest.update(len(part).to_bytes(8, "big") + part)
    for part in extra:
        digest.update(part)
    return digest.digest()[:16]
