"""Cells: the parts of a state that are compared and stored on their own.

The body of a cell is its encoding without the container's header, so an append to a list is a byte append to the body.
It is known twice: as `chunks` (bytes in memory, to compare with) and as `pieces` (where those bytes are stored).
"""

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.codec.limits import most_memory
from holdfast.codec.pieces import container_header
from holdfast.records.errors import Corrupt

Path: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["value", "list", "map"]
T = TypeVar("T")


class Ref(msgspec.Struct, frozen=True, gc=False):
    """A part of a blob: `length` bytes at `offset` of the blob `blob`.

    The whole blob is `size` bytes long before sealing, and `stored` bytes as it is kept.
    """

    blob: bytes
    offset: int
    length: int
    size: int
    stored: int


Piece: TypeAlias = bytes | Ref
Chunk: TypeAlias = bytes | memoryview


def referred(ref: Ref, blobs: Mapping[bytes, bytes]) -> memoryview:
    """The bytes that a reference is to, out of unsealed blobs."""
    part = memoryview(blobs[ref.blob])[ref.offset : ref.offset + ref.length]
    if len(part) != ref.length:
        name = f"blob {ref.blob.hex()}"
        raise Corrupt(f"{name} is damaged: it ends before byte {ref.offset + ref.length}", record=name)
    return part


def piece_length(piece: Piece) -> int:
    """How many bytes of the body a piece gives."""
    return piece.length if isinstance(piece, Ref) else len(piece)


class Rope(msgspec.Struct, Generic[T], eq=False, gc=False):
    """The first `length` items of a list, which it shares with its successors, so that growing it by one is flat.

    Immutable as a value: only the longest of the ropes on one list may grow in place; any other copies first.
    """

    items: list[T]
    length: int

    def plus(self, item: T) -> "Rope[T]":
        """This rope and one more item."""
        items, length = self.items, self.length
        if len(items) != length:
            items = items[:length]
        items.append(item)
        return Rope(items, length + 1)

    def plus_all(self, more: list[T]) -> "Rope[T]":
        """This rope and more items."""
        items = self.items if len(self.items) == self.length else self.all()
        items.extend(more)
        return Rope(items, self.length + len(more))

    def all(self) -> list[T]:
        """The items, as a list of its own."""
        return self.items[: self.length]

    def __len__(self) -> int:
        return self.length


def rope(items: list[T]) -> Rope[T]:
    """These items; the list is the rope's from here on."""
    return Rope(items, len(items))


class Cell(msgspec.Struct, eq=False, gc=False):
    """One cell: `count` items (of a list or map) in `size` bytes of body. Immutable as a value."""

    kind: Kind
    count: int
    size: int
    pieces: Rope[Piece]
    chunks: Rope[Chunk]
    leaf: object = None
    """The very object it was made of, if that cannot change."""
    memory: int | None = None
    """At least what its value takes in memory, once `most_memory` was asked."""

    def body(self) -> Chunk:
        """The body in one piece, joined at most once."""
        chunks = self.chunks
        if chunks.length == 1:
            return chunks.items[0]
        body = b"".join(chunks.all())
        self.chunks = rope([body])
        return body

    def encoded(self) -> bytes:
        """The cell's value as one encoding."""
        chunks = self.chunks.all()
        return b"".join(chunks if self.kind == "value" else (container_header(self.kind, self.count), *chunks))

    def most_memory(self) -> int:
        """At least what its value takes in memory. Counted once; appended items add to it."""
        if self.memory is None:
            self.memory = most_memory(self.encoded())
        return self.memory

    def with_appended(self, item: Chunk, stored: Piece) -> "Cell":
        """This list with one more encoded item, at flat cost."""
        pieces, chunks = self.pieces.plus(stored), self.chunks.plus(item)
        return Cell(self.kind, self.count + 1, self.size + len(item), pieces, chunks, None, self._memory_with([item]))

    def with_all(self, items: list[bytes]) -> "Cell":
        """This list with more encoded items, which lie inline, at the cost of these."""
        pieces, chunks = self.pieces.plus_all([*items]), self.chunks.plus_all([*items])
        count, size = self.count + len(items), self.size + sum(map(len, items))
        return Cell(self.kind, count, size, pieces, chunks, None, self._memory_with(items))

    def _memory_with(self, items: Sequence[Chunk]) -> int | None:
        return None if self.memory is None else self.memory + sum(map(most_memory, items))

    def copy(self) -> "Cell":
        """The same on lists of its own, which may grow whatever others do meanwhile."""
        pieces, chunks = rope(self.pieces.all()), rope(self.chunks.all())
        return Cell(self.kind, self.count, self.size, pieces, chunks, self.leaf, self.memory)


Document: TypeAlias = dict[Path, Cell]
"""All cells of a thread at one seq, in their order. Never changed in place: a new row makes a new document."""
