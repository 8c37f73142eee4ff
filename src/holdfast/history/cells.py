"""Cells: the parts of a state that are compared and stored separately.

The body of a cell is its encoding without the container's header, so an append to a list is a byte append to the body.
It is held twice: as `chunks` (bytes in memory, to compare with) and as `pieces` (where those bytes are stored).
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.codec.limits import MOST_PER_BYTE, Limits, exact_memory, limit_exceeded, most_memory
from holdfast.codec.pieces import container_header
from holdfast.records.errors import Corrupt

Path: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["value", "list", "map"]
T = TypeVar("T")


class Ref(msgspec.Struct, frozen=True, gc=False):
    """A part of a blob: `length` bytes at `offset` of the blob `blob`.

    The whole blob has `size` bytes before sealing and `stored` bytes after it.
    """

    blob: bytes
    offset: int
    length: int
    size: int
    stored: int


Piece: TypeAlias = bytes | Ref
Chunk: TypeAlias = bytes | memoryview
Operation: TypeAlias = tuple[int, int] | Piece | None
"""One part of a new body: a range (offset, length) of the old body, a piece, or None for the whole old body."""


def referred(ref: Ref, blobs: Mapping[bytes, bytes]) -> memoryview:
    """Return the bytes that a reference points to, from unsealed blobs."""
    part = memoryview(blobs[ref.blob])[ref.offset : ref.offset + ref.length]
    if len(part) != ref.length:
        name = f"blob {ref.blob.hex()}"
        raise Corrupt(f"{name} is damaged: it ends before byte {ref.offset + ref.length}", record=name)
    return part


def piece_length(piece: Piece) -> int:
    """Return how many bytes of the body a piece provides."""
    return piece.length if isinstance(piece, Ref) else len(piece)


class Rope(msgspec.Struct, Generic[T], eq=False, gc=False):
    """The first `length` items of a list. Longer ropes share the list, so adding an item takes constant time.

    Immutable as a value: only the longest rope on a list grows it in place; any other copies it first.
    """

    items: list[T]
    length: int

    def plus(self, item: T) -> "Rope[T]":
        """Return this rope with one more item."""
        items, length = self.items, self.length
        if len(items) != length:
            items = items[:length]
        items.append(item)
        return Rope(items, length + 1)

    def all(self) -> list[T]:
        """Return the items as a new list."""
        return self.items[: self.length]

    def __len__(self) -> int:
        return self.length


def rope(items: list[T]) -> Rope[T]:
    """Return a rope of these items. It takes over the list."""
    return Rope(items, len(items))


class Cell(msgspec.Struct, eq=False, gc=False):
    """One cell: `count` items (of a list or map) in `size` bytes of body. Immutable as a value."""

    kind: Kind
    count: int
    size: int
    pieces: Rope[Piece]
    chunks: Rope[Chunk]
    leaf: object = None
    """The object it was made from, if that is immutable."""
    memory: int | None = None
    """An upper bound of the memory its value takes; None until it is counted."""

    def body(self) -> Chunk:
        """Return the body in one piece. The chunks are joined once."""
        chunks = self.chunks
        if chunks.length == 1:
            return chunks.items[0]
        body = b"".join(chunks.all())
        self.chunks = rope([body])
        return body

    def encoded(self) -> bytes:
        """Return the encoding of the cell's value."""
        chunks = self.chunks.all()
        return b"".join(chunks if self.kind == "value" else (container_header(self.kind, self.count), *chunks))

    def most_memory(self) -> int:
        """Return an upper bound of the memory its value takes. It is counted once; appended items add to it."""
        if self.memory is None:
            self.memory = most_memory(self.encoded())
        return self.memory

    def with_appended(self, item: Chunk, stored: Piece) -> "Cell":
        """Return this list with one more encoded item, in constant time."""
        pieces, chunks = self.pieces.plus(stored), self.chunks.plus(item)
        memory = None if self.memory is None else self.memory + most_memory(item)
        return Cell(self.kind, self.count + 1, self.size + len(item), pieces, chunks, None, memory)


def empty_list() -> Cell:
    """Return a list without items, that is not stored yet."""
    return Cell("list", 0, 0, rope([]), rope([]))


Document: TypeAlias = dict[Path, Cell]
"""All cells of a thread at one seq, in order. Never changed in place: a new row makes a new document."""

_HEADER_BYTES = 5
_INTERNAL_LIMITS = {"keys": Limits(memory=2**30), "journal": Limits(memory=2**40)}
"""The limits of cells that are not part of the state. A journal's entries hold encodings, each decoded separately."""


def refuse_heavy(document: Document, root: str, limits: Limits) -> None:
    """Raise LimitExceeded if the cells below `root` together are too long, or would take too much memory.

    Cheap upper bounds come first; only what they cannot clear is counted. Cells may share the bytes of a blob: each is
    charged for them.
    """
    limits = _INTERNAL_LIMITS.get(root, limits)
    cells = [cell for path, cell in document.items() if path[0] == root]
    size = sum([cell.size + _HEADER_BYTES for cell in cells])
    if size > limits.size:
        raise limit_exceeded(f"the {root}", f"takes {size} bytes, more", limits.size, "size")
    if size * MOST_PER_BYTE <= limits.memory or sum(cell.most_memory() for cell in cells) <= limits.memory:
        return
    memory = 0
    for cell in cells:
        cell.memory = exact_memory(cell.encoded(), limits)
        memory += cell.memory
        if memory > limits.memory:
            raise limit_exceeded(f"the {root}", "would take more memory", limits.memory, "memory")


def cut(piece: Piece, start: int, stop: int) -> Piece:
    """Return a part of a piece."""
    if isinstance(piece, Ref):
        return replace(piece, offset=piece.offset + start, length=stop - start)
    return piece[start:stop]


def splice(pieces: Rope[Piece], operations: list[Operation]) -> Rope[Piece]:
    """Return the pieces of the new body. An append takes constant time."""
    if len(operations) == 2 and operations[0] is None and isinstance(operations[1], bytes | Ref):
        return pieces.plus(operations[1])
    old = pieces.all()
    new: list[Piece] = []
    starts: list[int] = []
    for operation in operations:
        if operation is None:
            new.extend(old)
        elif isinstance(operation, bytes | Ref):
            new.append(operation)
        else:
            starts = starts or list(accumulate(map(piece_length, old), initial=0))
            new.extend(_range(old, starts, *operation))
    return rope(new)


def _range(pieces: list[Piece], starts: list[int], offset: int, length: int) -> list[Piece]:
    """Return `length` bytes at `offset`. `starts` are the offsets of the pieces, and of the end."""
    stop = offset + length
    if offset < 0 or length < 0 or stop > starts[-1]:
        raise ValueError(f"copies {length} bytes at {offset} of a body of {starts[-1]}")
    found: list[Piece] = []
    at = bisect_right(starts, offset) - 1
    while offset < stop:
        start, end = starts[at], min(stop, starts[at + 1])
        is_whole = offset == start and end == starts[at + 1]
        found.append(pieces[at] if is_whole else cut(pieces[at], offset - start, end - start))
        offset, at = end, at + 1
    return found
