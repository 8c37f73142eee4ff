"""The end of a thread's log, and how a change becomes its next row (`next_row`)."""

from typing import Any

import msgspec

from holdfast.codec.pieces import container
from holdfast.history.binding import BODY, Binding, place_of
from holdfast.history.cells import Cell, Document, Kind, Path, Piece, Ref, Rope, rope
from holdfast.history.draft import Draft
from holdfast.history.edits import edit
from holdfast.history.format import (
    APPEND_FLAGS,
    DELTA_FLAGS,
    KEYFRAME_FLAGS,
    CellScript,
    Header,
    Script,
    Stored,
    encode_header,
    encode_plain_header,
    encode_script,
)
from holdfast.history.growth import Growth, growth_of
from holdfast.history.keyframes import is_due, repack
from holdfast.history.opening import make_room, takes_append
from holdfast.history.splice import splice
from holdfast.history.tuning import Tuning
from holdfast.history.weight import refuse_heavy
from holdfast.records.rows import Row

NO_BLOBS: dict[bytes, bytes] = {}


class Log(msgspec.Struct, frozen=True, gc=False):
    """A thread's log up to `seq`. Immutable: writing a row gives a new log."""

    binding: Binding
    tuning: Tuning
    cells: Document
    """As of the last row that did not just append an item to a growing list."""
    seq: int = 0
    base: int = 0
    checkpoint: int = 0
    digest: bytes = b""
    row_bytes: int = 0
    """Bytes of rows since the keyframe."""
    manifest: int = 0
    """Bytes of the keyframe itself."""
    index: dict[Path, int] = {}
    """The position of each path in the document."""
    growth: Growth | None = None
    """The list that grows, and how many of its items belong to this log."""
    grown: int = 0

    @property
    def document(self) -> Document:
        """All cells. Where a list has grown, they are made for this call."""
        return self.cells if self.growth is None else self.growth.document(self.grown)

    @property
    def state_cells(self) -> Document:
        """Enough of the document to read or compare the state: the journal may lack its newest entries."""
        return self.cells if self.growth is None or self.growth.path[0] != "state" else self.document

    def folded(self) -> Document:
        """The same, for the writer of the next row, and for no other use meanwhile."""
        return self.cells if self.growth is None else self.growth.folded(self.grown)


class Change(msgspec.Struct, kw_only=True):
    """What one row changes."""

    draft: Draft | None = None
    """The new state; None leaves it as it is."""
    leaves: dict[Path, object] = {}
    adopted: Document | None = None
    """Cells of another thread, for a fork."""
    appends: tuple[tuple[Path, bytes], ...] = ()
    """Encoded items, each with the list that it is appended to."""
    checkpoint: int | None = None
    """The checkpoint whose state this is, if the row is not a checkpoint itself."""
    fresh: bool = False
    """Write a keyframe that shares no blob with any older row."""


class NotACell(Exception):
    """An append to a list that lies within a larger cell: the whole state has to be saved."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """A row to commit, its new blobs, and the log as it is once they are committed."""

    log: Log
    row: Row
    blobs: dict[bytes, bytes]


class Revision:
    """Collects what one row changes. Inserts are put in their place, inline or in a blob, as they come."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._scripts: list[tuple[Path, Cell, list[Stored]]] = []
        self._inserted = 0
        self._index: dict[Path, int] | None = log.index
        self._grown: set[str] = set()
        self.blobs: dict[bytes, bytes] = {}
        self.document = log.folded()
        self._before = self.document

    def replace_state(self, draft: Draft, leaves: dict[Path, object]) -> None:
        """The state becomes what the draft holds; internal cells stay as they are."""
        known = self._before
        document: Document = {}
        self._index = None
        self._grown.add("state")
        for path, value in draft.items():
            old = known.get(path)
            document[path] = old if old is value else self._drafted(path, old, value, leaves.get(path))
        for path, cell in self.document.items():
            if path[0] != "state":
                document[path] = cell
        self.document = document

    def adopt(self, document: Document) -> None:
        """Cells of another thread become this one's own, with a copy of their bytes."""
        adopted = {path: self._drafted(path, None, cell, None) for path, cell in document.items()}
        self.document = {**self.document, **adopted}
        self._index = None
        self._grown.add("state")

    def append(self, path: Path, item: bytes) -> None:
        """One more encoded item for the list at `path`, which is made if it is not there."""
        cell = self.document.get(path)
        self._grown.add(path[0])
        if cell is None:
            cell = Cell("list", 0, 0, rope([]), rope([]))
            self.document = make_room(self.document, path, cell)
            self._index = None
        piece = self._place(item)
        cell = cell.with_appended(item, piece)
        self.document = {**self.document, path: cell}
        self._scripts.append((path, cell, [None, piece] if cell.count > 1 else [piece]))

    def _drafted(self, path: Path, old: Cell | None, value: bytes | Cell, leaf: object) -> Cell:
        encoded = value if isinstance(value, bytes) else value.encoded()
        kind, count, header = container(encoded)
        if old is None:
            return self._rewritten(path, kind, count, encoded[header:], leaf)
        operations = edit(old, kind, count, encoded, header)
        if operations is None:
            return old if old.leaf is leaf else Cell(kind, count, old.size, old.pieces, old.chunks, leaf, old.memory)
        if len(operations) == 1 and type(operations[0]) is bytes:
            return self._rewritten(path, kind, count, operations[0], leaf)
        stored: list[Stored] = [self._place(each) if type(each) is bytes else each for each in operations]
        body = memoryview(encoded)[header:] if header else encoded
        cell = Cell(kind, count, len(body), splice(old.pieces, stored), rope([body]), leaf)
        self._scripts.append((path, cell, stored))
        return cell

    def _rewritten(self, path: Path, kind: Kind, count: int, body: bytes, leaf: object) -> Cell:
        placed = [self._place(body)] if body else []
        chunks: Rope[Any] = rope([body])
        # Bytes that lie inline are themselves the piece: one rope is both.
        cell = Cell(kind, count, len(body), chunks if body in placed else rope(placed), chunks, leaf)
        self._scripts.append((path, cell, list(placed)))
        return cell

    def _place(self, data: bytes) -> Piece:
        self._inserted += len(data)
        return data if len(data) < self._log.tuning.inline_max else self._insert(data)

    def _pack(self, data: bytes) -> Ref:
        return self._insert(data, dense=True)

    def _insert(self, data: bytes, *, dense: bool = False) -> Ref:
        blob, stored = self._log.binding.seal_blob(data, self._log.seq + 1, dense=dense)
        self.blobs[blob] = stored
        return Ref(blob, 0, len(data), len(data), len(stored))

    def write(self, meta: bytes, *, checkpoint: int | None = None, fresh: bool = False) -> Written:
        """The row that carries all of this: a checkpoint of its own, or a journal row whose state is `checkpoint`'s.

        `fresh` makes a keyframe that shares no blob with any older row. Raises LimitExceeded if what was changed could
        not be read again within the limits.
        """
        for root in self._grown:
            refuse_heavy(self.document, root, self._log.binding.limits)
        newest = self._log.seq + 1 if checkpoint is None else checkpoint
        if fresh:
            self.blobs.clear()
        if fresh or self._wants_keyframe():
            return self._write_keyframe(meta, newest, fresh)
        return self._write_delta(meta, newest)

    def _wants_keyframe(self) -> bool:
        log = self._log
        if log.seq == 0:
            return True
        size = sum(cell.size for cell in self.document.values()) if self._inserted > log.tuning.inline_max else 0
        return is_due(log.tuning, log.seq + 1 - log.base, log.row_bytes, log.manifest, self._inserted, size)

    def _write_keyframe(self, meta: bytes, newest: int, fresh: bool) -> Written:
        self.document = repack(self.document, self._log.tuning, self._insert if fresh else self._pack, copy_all=fresh)
        cells: list[CellScript] = [
            (index, cell.kind, cell.count, list(cell.pieces.all())) for index, cell in enumerate(self.document.values())
        ]
        paths = list(self.document)
        self._index = {path: number for number, path in enumerate(paths)}
        return self._row(Script(paths, cells), meta, self._log.seq + 1, newest)

    def _write_delta(self, meta: bytes, newest: int) -> Written:
        paths = self._changed_paths()
        index = self._index or {}
        cells: list[CellScript] = [(index[path], cell.kind, cell.count, stored) for path, cell, stored in self._scripts]
        return self._row(Script(paths, cells), meta, self._log.base, newest)

    def _changed_paths(self) -> list[Path] | None:
        """The paths, if they are not those of the row before; and their positions brought up to date."""
        if self._index is not None:
            return None
        paths = list(self.document)
        if paths == list(self._log.index):
            self._index = self._log.index
            return None
        self._index = {path: number for number, path in enumerate(paths)}
        return paths

    def _row(self, script: Script, meta: bytes, base: int, newest: int) -> Written:
        log, seq, binding = self._log, self._log.seq + 1, self._log.binding
        content, refs = encode_script(script)
        body = binding.seal(content, seq, BODY)
        fields = Header(DELTA_FLAGS, len(body), b"", seq - newest)
        if refs:
            fields.blobs, fields.blob_sizes = b"".join(refs), tuple([ref.stored for ref in refs.values()])
        if base == seq:
            fields.flags, fields.parent = KEYFRAME_FLAGS, log.digest
        place = place_of(seq, seq - base)
        fields.meta = binding.seal_meta(meta, place, fields.fields)
        header = encode_header(fields, place, binding.check_start)
        digest, size = binding.digest(log.digest, place, header, body), len(header) + len(body)
        row_bytes, manifest = (0, size) if base == seq else (log.row_bytes + size, log.manifest)
        index = self._index or {}
        after = Log(binding, log.tuning, self.document, seq, base, newest, digest, row_bytes, manifest, index)
        return Written(after, Row(seq, base, digest, header, body), self.blobs)


def next_row(log: Log, change: Change, meta: bytes) -> Written:
    """The row that carries a change. Raises LimitExceeded if the result could not be read within the limits."""
    if len(change.appends) == 1 and change.draft is None and change.adopted is None and not change.fresh:
        path, item = change.appends[0]
        written = append_flat(log, path, item, meta, change.checkpoint)
        if written is not None:
            return written
    revision = Revision(log)
    if change.adopted is not None:
        revision.adopt(change.adopted)
    if change.draft is not None:
        revision.replace_state(change.draft, change.leaves)
    for path, item in change.appends:
        if not takes_append(revision.document, path):
            raise NotACell
        revision.append(path, item)
    return revision.write(meta, checkpoint=change.checkpoint, fresh=change.fresh)


def append_flat(log: Log, path: Path, item: bytes, meta: bytes, checkpoint: int | None = None) -> Written | None:
    """One item appended to a list, at the cost of the item alone; None where more than that has to be done.

    Nearly all rows are of this kind: an entry of a run's journal, or a message.
    """
    tuning, binding, base, seq, row_bytes = log.tuning, log.binding, log.base, log.seq + 1, log.row_bytes
    back, manifest = seq - base, log.manifest
    if len(item) >= tuning.inline_max or is_due(tuning, back, row_bytes, manifest, 0, 0):
        return None
    growth, cells, grown = log.growth, log.cells, log.grown
    if growth is None or growth.path != path:
        cells, grown = log.folded(), 0
        growth = growth_of(cells, log.index, path, binding.limits)
        if growth is None:
            return None
    if len(item) > growth.spare:
        return None
    since = 0 if checkpoint is None else seq - checkpoint
    body = binding.seal(growth.start + item, seq, BODY)
    place = place_of(seq, back)
    sealed = binding.seal_meta(meta, place, (APPEND_FLAGS, len(body), since, b"", (), b""))
    header = encode_plain_header(APPEND_FLAGS, len(body), sealed, since, place, binding.check_start)
    digest = binding.digest(log.digest, place, header, body)
    row_bytes += len(header) + len(body)
    growth = growth.plus(item, grown)
    newest = seq - since
    after = Log(binding, tuning, cells, seq, base, newest, digest, row_bytes, manifest, log.index, growth, grown + 1)
    return Written(after, Row(seq, base, digest, header, body), NO_BLOBS)
