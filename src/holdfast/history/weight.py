"""Whether a document is within the limits: asked before a row is written, and before the state is read.

Cheap bounds come first, and what they cannot clear is counted. A cell remembers its count, so an append stays flat.
"""

from holdfast.codec.limits import MOST_PER_BYTE, Limits, exact_memory
from holdfast.history.cells import Cell, Document
from holdfast.records.errors import LimitExceeded

HEADER_BYTES = 5
_KEYS = Limits(memory=2**30)
"""The limits of the list of idempotency keys."""
_JOURNAL = Limits(memory=2**40)
"""Of the journal the size is limited: its entries hold bytes, each decoded on its own."""


def limits_of(root: str, limits: Limits) -> Limits:
    """The limits of the cells below `root`, in a store with these limits."""
    return limits if root == "state" else _KEYS if root == "keys" else _JOURNAL


def refuse_heavy(document: Document, root: str, limits: Limits) -> None:
    """Raise LimitExceeded if the cells below `root` are too long, or take too much memory, all together."""
    limits = limits_of(root, limits)
    cells = _cells(document, root)
    size = _size(cells)
    if size > limits.size:
        raise _excess(root, f"takes {size} bytes, more", limits.size, "size")
    if _most_memory(cells, limits.memory) > limits.memory:
        memory = 0
        for cell in cells:
            memory += _counted(cell, limits)
            if memory > limits.memory:
                raise _excess(root, "would take more memory", limits.memory, "memory")


def bytes_to_spare(document: Document, root: str, limits: Limits) -> int:
    """How many bytes a list below `root` can surely grow by within the limits; less than 0 if that is not sure."""
    limits = limits_of(root, limits)
    cells = _cells(document, root)
    memory = limits.memory - _most_memory(cells, limits.memory // 2)
    return min(memory // MOST_PER_BYTE, limits.size - _size(cells))


def _size(cells: list[Cell]) -> int:
    """At least the bytes of their encodings. Cells may share the bytes of one blob, and are charged for them each."""
    return sum(cell.size + HEADER_BYTES for cell in cells)


def _most_memory(cells: list[Cell], enough: int) -> int:
    """At least what the values of the cells take in memory: by their length, unless that says more than `enough`."""
    by_length = _size(cells) * MOST_PER_BYTE
    return by_length if by_length <= enough else sum(cell.most_memory() for cell in cells)


def _counted(cell: Cell, limits: Limits) -> int:
    cell.memory = exact_memory(cell.encoded(), limits)
    return cell.memory


def _cells(document: Document, root: str) -> list[Cell]:
    return [cell for path, cell in document.items() if path[0] == root]


def _excess(root: str, why: str, limit: int, name: str) -> LimitExceeded:
    return LimitExceeded(
        f"the {root} {why} than the limit of {limit} bytes; "
        f"store less, or open the store with limits=holdfast.Limits({name}=...)"
    )
