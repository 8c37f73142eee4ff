"""Reading back: rows become cells, and cells become the state that was saved.

In two halves, so that the caller can fetch blobs between them: `fold` applies the rows, `fill` brings the bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.codec import decode
from holdfast.history.binding import BODY, META, Binding
from holdfast.history.cells import Cell, Chunk, Document, Kind, Path, Piece, Ref, Rope
from holdfast.history.draft import STATE
from holdfast.history.format import Header, Script, damaged, decode_script, verify_row
from holdfast.history.log import Log
from holdfast.history.opening import close_state
from holdfast.history.splice import splice
from holdfast.history.tuning import Tuning
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.rows import Row


class Folded(NamedTuple):
    """A log whose cells still lack their bytes."""

    binding: Binding
    header: Header
    digest: bytes
    cells: dict[Path, tuple[Kind, int, Rope[Piece]]]
    row_bytes: int
    manifest: int

    def blobs(self) -> list[bytes]:
        """The blobs needed to fill the cells."""
        pieces = (piece for _, _, rope in self.cells.values() for piece in rope.all())
        return list({piece.blob: None for piece in pieces if isinstance(piece, Ref)})

    def meta(self) -> bytes:
        """The metadata of the last row, unsealed."""
        return self.binding.unseal(self.header.meta, self.header.seq, META)


def _check_range(binding: Binding, rows: Sequence[Row], seq: int) -> None:
    found = [row.seq for row in rows]
    if not rows or found != list(range(rows[-1].base, seq + 1)):
        name = binding.row_name(seq)
        raise Corrupt(f"{name} cannot be restored: rows {found[:3]}… do not lead up to it", record=name)


def _apply(cells: dict[Path, tuple[Kind, int, Rope[Piece]]], paths: list[Path], script: Script) -> None:
    for index, kind, count, operations in script.cells:
        path = paths[index]
        old = cells.get(path)
        cells[path] = (kind, count, splice(old[2] if old else Rope([]), operations))


def fold(binding: Binding, rows: Sequence[Row], seq: int) -> Folded:
    """Apply rows base..seq in order, verifying each digest and the chain between them."""
    _check_range(binding, rows, seq)
    cells: dict[Path, tuple[Kind, int, Rope[Piece]]] = {}
    paths: list[Path] = []
    parent, base, total = b"", rows[0].seq, 0
    for row in rows:
        header = verify_row(binding, row, parent)
        if header.base != base or header.is_keyframe != (row.seq == base):
            raise damaged(row.seq, binding.thread_id, "it belongs to another keyframe")
        script = decode_script(binding, header, binding.unseal(row.body, row.seq, BODY))
        try:
            if script.paths is None:
                _apply(cells, paths, script)
            else:
                paths = script.paths
                _apply(cells, paths, script)
                cells = {path: cells[path] for path in paths}
        except (ValueError, IndexError, KeyError) as error:
            raise damaged(row.seq, binding.thread_id, repr(error)) from error
        parent = row.digest
        total += len(row.header) + len(row.body)
    manifest = len(rows[0].header) + len(rows[0].body)
    return Folded(binding, header, parent, cells, total - manifest, manifest)


def _chunks(pieces: Rope[Piece], blobs: Mapping[bytes, bytes]) -> list[Chunk]:
    return [
        memoryview(blobs[piece.blob])[piece.offset : piece.offset + piece.length] if isinstance(piece, Ref) else piece
        for piece in pieces.all()
    ]


def fill(folded: Folded, stored: Mapping[bytes, bytes], tuning: Tuning) -> Log:
    """The log with the bytes of its cells; `stored` holds every blob of `folded.blobs()`."""
    binding = folded.binding
    blobs = {blob: binding.unseal_blob(blob, stored[blob]) for blob in folded.blobs()}
    document: Document = {}
    for path, (kind, count, pieces) in folded.cells.items():
        chunks = _chunks(pieces, blobs)
        document[path] = Cell(kind, count, sum(map(len, chunks)), pieces, Rope(chunks))
    header = folded.header
    return Log(
        binding,
        tuning,
        document,
        header.seq,
        header.base,
        header.checkpoint,
        folded.digest,
        folded.row_bytes,
        folded.manifest,
        {path: number for number, path in enumerate(document)},
    )


def read_state(binding: Binding, document: Document) -> Any:
    """The state in a document, decoded anew: the caller's own copy."""
    try:
        return close_state(
            ((path, decode(cell.encoded())) for path, cell in document.items() if path[0] == "state"), STATE
        )
    except CodecError as error:
        if type(error) is not CodecError:
            raise
        raise Corrupt(
            f"the state of {binding.thread_id!r} cannot be decoded: {error}", record=binding.thread_id
        ) from error


def read_list(document: Document, path: Path) -> list[Any]:
    """An internal list, decoded; empty if it is not there."""
    cell = document.get(path)
    return [] if cell is None else decode(cell.encoded())
