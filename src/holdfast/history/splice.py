"""Applying operations to the pieces of a cell: one function for the writer and for the reader."""

from bisect import bisect_right
from itertools import accumulate

from msgspec.structs import replace

from holdfast.history.cells import Piece, Ref, Rope, piece_length, rope
from holdfast.history.format import Stored


def cut(piece: Piece, start: int, stop: int) -> Piece:
    """A part of a piece."""
    if isinstance(piece, Ref):
        return replace(piece, offset=piece.offset + start, length=stop - start)
    return piece[start:stop]


class _Old:
    """The old pieces, addressable by offset."""

    def __init__(self, pieces: Rope[Piece]) -> None:
        self.pieces = pieces.all()
        self.starts = list(accumulate(map(piece_length, self.pieces), initial=0))

    def range(self, offset: int, length: int) -> list[Piece]:
        stop = offset + length
        if offset < 0 or length < 0 or stop > self.starts[-1]:
            raise ValueError(f"copies {length} bytes at {offset} of a body of {self.starts[-1]}")
        found: list[Piece] = []
        at = bisect_right(self.starts, offset) - 1
        while offset < stop:
            start = self.starts[at]
            end = min(stop, self.starts[at + 1])
            piece = self.pieces[at]
            whole = offset == start and end == self.starts[at + 1]
            found.append(piece if whole else cut(piece, offset - start, end - start))
            offset, at = end, at + 1
        return found


def splice(pieces: Rope[Piece], operations: list[Stored]) -> Rope[Piece]:
    """The pieces after the operations; flat for an append."""
    if len(operations) == 2 and operations[0] is None and type(operations[1]) in {bytes, Ref}:
        return pieces.plus(operations[1])  # type: ignore[arg-type]  # a piece, as was just checked
    if len(operations) == 1 and type(operations[0]) in {bytes, Ref}:
        return rope([operations[0]])  # type: ignore[list-item]  # likewise
    old = _Old(pieces)
    new: list[Piece] = []
    for operation in operations:
        if operation is None:
            new.extend(old.pieces)
        elif isinstance(operation, bytes | Ref):
            new.append(operation)
        else:
            new.extend(old.range(*operation))
    return rope(new)
