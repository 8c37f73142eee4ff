"""Reading: rows become cells, and cells become the state that was saved.

It takes two steps, so that the caller can fetch blobs between them: `fold` applies the rows, `fill` adds the bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.codec import tags
from holdfast.codec.decoding import decode_weighed
from holdfast.history.binding import BODY, Binding
from holdfast.history.cells import Cell, Document, Kind, Path, Piece, Ref, referred, refuse_heavy, rope, splice
from holdfast.history.format import APPEND, Header, Script, damaged, decode_append, decode_script, verify_row
from holdfast.history.log import Log, positions
from holdfast.history.state_cells import join_state
from holdfast.history.tuning import Tuning
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.ranges import UNDECODABLE, Moment, Seq
from holdfast.records.rows import Row

Pieces: TypeAlias = tuple[Kind, int, list[Piece]]
"""A cell without its bytes: kind, count, and where its body is."""


class Folded(msgspec.Struct, frozen=True):
    """A log whose cells have no bytes yet."""

    binding: Binding
    header: Header
    digest: bytes
    cells: dict[Path, Pieces]
    row_bytes: int
    manifest: int

    def blobs(self) -> list[bytes]:
        """Return the blobs needed to fill the cells."""
        pieces = (piece for _, _, pieces in self.cells.values() for piece in pieces)
        return list({piece.blob: None for piece in pieces if isinstance(piece, Ref)})


def check_range(binding: Binding, rows: Sequence[Row], seq: int) -> None:
    """Raise `Corrupt` unless these are the rows from a keyframe up to `seq`."""
    found = [row.seq for row in rows]
    first = seq + 1 - len(rows)
    if not rows or rows[-1].base != first or found != list(range(first, seq + 1)):
        raise damaged(seq, binding.thread_id, f"rows {found[:3]}… do not lead up to it")


class _Fold:
    """Cells under construction. Only this fold uses them, so lists grow in place."""

    def __init__(self) -> None:
        self.cells: dict[Path, Pieces] = {}
        self.paths: list[Path] = []

    def apply(self, script: Script) -> None:
        if script.paths is not None:
            self.paths = script.paths
        for index, kind, count, operations in script.cells:
            path = self.paths[index]
            old = self.cells.get(path)
            pieces = splice(rope(old[2] if old else []), operations).all()
            self.cells[path] = (kind, count, pieces)
        if script.paths is not None:
            self.cells = {path: self.cells[path] for path in script.paths}

    def append(self, index: int, item: bytes) -> None:
        path = self.paths[index]
        kind, count, pieces = self.cells[path]
        pieces.append(item)
        self.cells[path] = (kind, count + 1, pieces)


def fold(binding: Binding, rows: Sequence[Row], seq: int) -> Folded:
    """Apply rows base..seq in order, verifying each digest and the chain between them."""
    check_range(binding, rows, seq)
    state = _Fold()
    parent, base, total = b"", rows[0].seq, 0
    for row in rows:
        header = verify_row(binding, row, parent)
        if header.back != row.seq - base or header.is_keyframe != (row.seq == base):
            raise damaged(row.seq, binding.thread_id, "it belongs to another keyframe")
        body = binding.unseal(row.body, row.seq, BODY)
        try:
            if header.flags & APPEND:
                state.append(*decode_append(body))
            else:
                state.apply(decode_script(binding, header, body))
        except (*UNDECODABLE, ValueError, TypeError, IndexError, KeyError) as error:
            raise damaged(row.seq, binding.thread_id, repr(error)) from error
        parent = row.digest
        total += len(row.header) + len(row.body)
    manifest = len(rows[0].header) + len(rows[0].body)
    return Folded(binding, header, parent, state.cells, total - manifest, manifest)


def fill(folded: Folded, stored: Mapping[bytes, bytes], tuning: Tuning) -> Log:
    """Return the log with the bytes of its cells; `stored` must hold every blob of `folded.blobs()`."""
    binding = folded.binding
    blobs = {blob: binding.unseal_blob(blob, stored.get(blob)) for blob in folded.blobs()}
    document: Document = {}
    for path, (kind, count, pieces) in folded.cells.items():
        chunks = [referred(piece, blobs) if isinstance(piece, Ref) else piece for piece in pieces]
        document[path] = Cell(kind, count, sum(map(len, chunks)), rope(pieces), rope(chunks))
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
        positions(document),
    )


def read_state(binding: Binding, document: Document) -> Any:
    """Decode the state in a document. Raises LimitExceeded if the whole state is beyond the limits."""
    refuse_heavy(document, "state", binding.limits)
    cells = [(path, decoded_cell(binding, cell)) for path, cell in document.items() if path[0] == "state"]
    try:
        return join_state(cells)
    except (AttributeError, TypeError) as error:  # one cell is inside another
        raise _undecodable(binding, error) from error


def decoded_cell(binding: Binding, cell: Cell) -> Any:
    """Decode a cell of a state that is within the limits."""
    try:
        return decode_weighed(cell.encoded(), binding.limits)
    except CodecError as error:
        if type(error) is not CodecError:
            raise
        raise _undecodable(binding, error) from error


def _undecodable(binding: Binding, error: Exception) -> Corrupt:
    return Corrupt(f"the state of {binding.thread_id!r} cannot be decoded: {error}", record=binding.thread_id)


KEYS: Path = ("keys",)
KeyEntry: TypeAlias = tuple[str, Seq, bytes, Moment, Seq]
"""An idempotency key: its text, its seq, the fingerprint, when it was used, how many rows back its parent is."""
_decode_keys = msgspec.msgpack.Decoder(list[tuple[str | msgspec.msgpack.Ext, Seq, bytes, Moment, Seq]]).decode


def read_keys(binding: Binding, document: Document) -> list[KeyEntry]:
    """Return the idempotency keys in a document; raise `Corrupt` if they cannot be read."""
    cell = document.get(KEYS)
    if cell is None:
        return []
    try:
        return [(_key_text(entry[0]), *entry[1:]) for entry in _decode_keys(cell.encoded())]
    except UNDECODABLE as error:
        name = f"idempotency keys of {binding.thread_id!r}"
        raise Corrupt(f"the {name} cannot be read: {error}", record=name) from error


def _key_text(key: str | msgspec.msgpack.Ext) -> str:
    """Return the text of a key. One with lone surrogates is stored as an extension."""
    if isinstance(key, str):
        return key
    if key.code != tags.SURROGATES:
        raise msgspec.ValidationError("a key is not text")
    return bytes(key.data).decode("utf-8", "surrogatepass")
