"""Keyframes: rows that can be read without older rows. They hold references to blobs, not a copy of the state.

Only bytes that are inline in rows, in tiny pieces, or in blobs that are mostly dead are copied, into packs. So a
keyframe costs what is new since the last one, not the size of the state.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from holdfast.history.cells import Cell, Chunk, Document, Piece, Ref, piece_length, rope
from holdfast.history.tuning import Tuning

Insert: TypeAlias = Callable[[bytes], Ref]
"""Seals bytes as a blob, and returns the reference to them."""

PIECES_PER_CELL = 4096
INLINE_CELL = 512


def is_due(tuning: Tuning, rows: int, row_bytes: int, manifest: int, inserted: int, document: Document) -> bool:
    """True if the next row should be a keyframe."""
    return (
        row_bytes >= max(tuning.keyframe_bytes, 2 * manifest)
        or (rows >= tuning.keyframe_rows and row_bytes >= manifest)
        or rows >= tuning.keyframe_rows_max
        or (inserted > tuning.inline_max and inserted * 2 > sum(cell.size for cell in document.values()))
    )


def live_bytes(cells: Iterable[Cell]) -> Counter[bytes]:
    """Count the bytes of each blob that are in use."""
    live: Counter[bytes] = Counter()
    for cell in cells:
        for piece in cell.pieces.all():
            if isinstance(piece, Ref):
                live[piece.blob] += piece.length
    return live


class _Packer:
    """Rewrites the pieces of cells, gathering what must be copied into packs."""

    def __init__(self, tuning: Tuning, live: Counter[bytes], insert: Insert, *, copy_all: bool) -> None:
        self._tuning = tuning
        self._live = live
        self._insert = insert
        self._copy_all = copy_all

    def repack(self, cell: Cell) -> Cell:
        if cell.size <= INLINE_CELL:
            return _with_pieces(cell, [bytes(cell.body())] if cell.size else [])
        smallest = max(self._tuning.small_piece, cell.size // PIECES_PER_CELL)
        pieces: list[Piece] = []
        run: list[Chunk] = []
        offset = 0
        for piece in cell.pieces.all():
            if not isinstance(piece, Ref):
                run.append(piece)
            elif self._must_copy(piece, smallest):
                run.append(memoryview(cell.body())[offset : offset + piece.length])
            else:
                pieces += self._packed(run)
                pieces.append(piece)
                run = []
            offset += piece_length(piece)
        return _with_pieces(cell, pieces + self._packed(run))

    def _must_copy(self, piece: Ref, smallest: int) -> bool:
        return self._copy_all or piece.length < smallest or self._live[piece.blob] * 2 < piece.size

    def _packed(self, run: list[Chunk]) -> list[Piece]:
        data, step = b"".join(run), self._tuning.pack_max
        return [self._insert(data[at : at + step]) for at in range(0, len(data), step)]


def _with_pieces(cell: Cell, pieces: list[Piece]) -> Cell:
    return Cell(cell.kind, cell.count, cell.size, rope(pieces), cell.chunks, cell.leaf, cell.memory)


def repack(document: Document, tuning: Tuning, insert: Insert, *, copy_all: bool = False) -> Document:
    """Return the document ready for a keyframe; with `copy_all` it refers to no existing blob."""
    live = live_bytes(document.values())
    inline = (len(piece) for cell in document.values() for piece in cell.pieces.all() if not isinstance(piece, Ref))
    if not copy_all and not live and sum(inline) < tuning.inline_max:
        return document
    packer = _Packer(tuning, live, insert, copy_all=copy_all)
    return {path: packer.repack(cell) for path, cell in document.items()}
