"""The end of a thread's log, and how a change becomes its next row (`next_row`)."""

from typing import Any

import msgspec

from holdfast.codec.pieces import container
from holdfast.history.binding import BODY, Binding, place_of
from holdfast.history.cells import (
    Cell,
    Chunk,
    Document,
    Operation,
    Path,
    Piece,
    Ref,
    Rope,
    empty_list,
    refuse_heavy,
    splice,
)
from holdfast.history.edits import edit
from holdfast.history.format import (
    APPEND_FLAGS,
    DELTA_FLAGS,
    KEYFRAME_FLAGS,
    MAX_APPEND_INDEX,
    CellScript,
    Header,
    Script,
    encode_append,
    encode_header,
    encode_script,
)
from holdfast.history.keyframes import is_due, repack
from holdfast.history.state_cells import Draft, add_cell, takes_append
from holdfast.history.tuning import Tuning
from holdfast.records.rows import Row


class Log(msgspec.Struct, frozen=True, gc=False):
    """A thread's log up to `seq`. Immutable: writing a row returns a new log."""

    binding: Binding
    tuning: Tuning
    document: Document
    seq: int = 0
    base: int = 0
    checkpoint: int = 0
    digest: bytes = b""
    row_bytes: int = 0
    """Bytes of the rows since the keyframe."""
    manifest: int = 0
    """Bytes of the keyframe itself."""
    index: dict[Path, int] = {}
    """The position of each path in the document."""


class Change(msgspec.Struct, kw_only=True):
    """What one row changes."""

    draft: Draft | None = None
    """The new state; None leaves it as it is. For a fork also the other cells of the thread it starts from."""
    leaves: dict[Path, object] = {}
    appends: tuple[tuple[Path, bytes], ...] = ()
    """Encoded items, each with the path of the list it is appended to."""
    checkpoint: int | None = None
    """The checkpoint whose state this is, if the row is not a checkpoint itself."""
    fresh: bool = False
    """Write a keyframe that shares no blob with any older row."""


class NotACell(Exception):
    """The list to append to is inside a larger cell: the whole state has to be saved."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """A row to commit, its new blobs, and the log once they are committed."""

    log: Log
    row: Row
    blobs: dict[bytes, bytes]


class Revision:
    """Collects what one row changes. Inserted bytes go inline or into a blob at once."""

    def __init__(self, log: Log) -> None:
        self.document = log.document
        self.blobs: dict[bytes, bytes] = {}
        self._log = log
        self._index: dict[Path, int] | None = log.index
        """The position of each path; None once paths may have changed."""
        self._scripts: list[tuple[Path, Cell, list[Operation]]] = []
        self._changed_roots: set[str] = set()
        self._inserted = 0

    def replace_state(self, draft: Draft, leaves: dict[Path, object]) -> None:
        """Replace the state by the draft. Cells outside of the state stay unless they are part of it too."""
        known, self._index = self.document, None
        self._changed_roots.add("state")
        document: Document = {}
        for path, value in draft.items():
            old = known.get(path)
            document[path] = old if old is value else self._drafted(path, old, value, leaves.get(path))
        for path, cell in known.items():
            if path[0] != "state":
                document.setdefault(path, cell)
        self.document = document

    def append(self, path: Path, item: bytes) -> None:
        """Append an encoded item to the list at `path`, which is added if it is missing. Raises NotACell."""
        cell = self.document.get(path)
        self._changed_roots.add(path[0])
        if cell is None:
            if not takes_append(self.document, path):
                raise NotACell
            cell, self._index = empty_list(), None
            self.document = add_cell(self.document, path, cell)
        elif cell.kind != "list":
            raise NotACell
        piece = self._place(item)
        operations: list[Operation] = [None, piece] if cell.count else [piece]
        cell = cell.with_appended(item, piece)
        self.document = {**self.document, path: cell}
        self._scripts.append((path, cell, operations))

    def _drafted(self, path: Path, old: Cell | None, value: bytes | Cell, leaf: object) -> Cell:
        """Return the cell that holds a value from here on; if it changed, add the script of the change."""
        encoded = value if isinstance(value, bytes) else value.encoded()
        kind, count, header = container(encoded)
        operations: list[Operation] = [encoded[header:]]
        if old is not None:
            edited = edit(old, kind, count, encoded, header)
            if edited is None:
                same = old.leaf is leaf
                return old if same else Cell(kind, count, old.size, old.pieces, old.chunks, leaf, old.memory)
            operations = edited
        placed: list[Any] = [
            self._place(each) if isinstance(each, bytes) else each for each in operations if each != b""
        ]
        whole = operations[0] if len(operations) == 1 else None
        body: Chunk = whole if isinstance(whole, bytes) else memoryview(encoded)[header:]
        pieces = Rope(placed, len(placed)) if old is None or body is whole else splice(old.pieces, placed)
        cell = Cell(kind, count, len(body), pieces, Rope([body], 1), leaf)
        self._scripts.append((path, cell, placed))
        return cell

    def _place(self, data: bytes) -> Piece:
        self._inserted += len(data)
        return data if len(data) < self._log.tuning.inline_max else self._insert(data)

    def _insert(self, data: bytes, *, dense: bool = False) -> Ref:
        blob, stored = self._log.binding.seal_blob(data, self._log.seq + 1, dense=dense)
        self.blobs[blob] = stored
        return Ref(blob, 0, len(data), len(data), len(stored))

    def _pack(self, data: bytes) -> Ref:
        return self._insert(data, dense=True)

    def write(self, meta: bytes, *, checkpoint: int | None = None, fresh: bool = False) -> Written:
        """Return the row with all changes: a checkpoint, or a journal row whose state is that of `checkpoint`.

        `fresh` makes a keyframe that shares no blob with any older row. Raises LimitExceeded if what was changed could
        not be read again within the limits.
        """
        log = self._log
        for root in self._changed_roots:
            refuse_heavy(self.document, root, log.binding.limits)
        newest = log.seq + 1 if checkpoint is None else checkpoint
        is_keyframe = (
            fresh
            or not log.seq
            or is_due(log.tuning, log.seq + 1 - log.base, log.row_bytes, log.manifest, self._inserted, self.document)
        )
        return self._keyframe(meta, newest, fresh) if is_keyframe else self._delta(meta, newest)

    def _keyframe(self, meta: bytes, newest: int, fresh: bool) -> Written:
        if fresh:
            self.blobs.clear()
        self.document = repack(self.document, self._log.tuning, self._insert if fresh else self._pack, copy_all=fresh)
        cells: list[CellScript] = [
            (at, cell.kind, cell.count, [*cell.pieces.all()]) for at, cell in enumerate(self.document.values())
        ]
        content, refs = encode_script(Script(list(self.document), cells))
        self._index = positions(self.document)
        return self._row(KEYFRAME_FLAGS, content, refs, meta, newest)

    def _delta(self, meta: bytes, newest: int) -> Written:
        paths = None
        if self._index is None:
            is_same = list(self.document) == list(self._log.index)
            paths = None if is_same else list(self.document)
            self._index = self._log.index if is_same else positions(self.document)
        elif (appended := self._appended(self._index)) is not None:
            return self._row(APPEND_FLAGS, appended, {}, meta, newest)
        index = self._index
        cells: list[CellScript] = [(index[path], cell.kind, cell.count, done) for path, cell, done in self._scripts]
        content, refs = encode_script(Script(paths, cells))
        return self._row(DELTA_FLAGS, content, refs, meta, newest)

    def _appended(self, index: dict[Path, int]) -> bytes | None:
        """Return the short form of a row that only appends one inline item to a list, as most rows do; else None."""
        if len(self._scripts) != 1:
            return None
        path, _, operations = self._scripts[0]
        item, at = operations[-1], index[path]
        is_short = operations[0] is None and at <= MAX_APPEND_INDEX
        return encode_append(at, item) if is_short and isinstance(item, bytes) else None

    def _row(self, flags: int, content: bytes, refs: dict[bytes, Ref], meta: bytes, newest: int) -> Written:
        log, seq, binding = self._log, self._log.seq + 1, self._log.binding
        is_keyframe = flags == KEYFRAME_FLAGS
        base = seq if is_keyframe else log.base
        body = binding.seal(content, seq, BODY)
        sizes, parent = tuple([ref.stored for ref in refs.values()]), log.digest if is_keyframe else b""
        header = Header(flags, len(body), b"", seq - newest, b"".join(refs), sizes, parent)
        place = place_of(seq, seq - base)
        header.meta = binding.seal_meta(meta, place, header)
        encoded = encode_header(header, place, binding.check_start)
        digest, size = binding.digest(log.digest, place, encoded, body), len(encoded) + len(body)
        row_bytes, manifest = (0, size) if is_keyframe else (log.row_bytes + size, log.manifest)
        index = self._index or {}
        after = Log(binding, log.tuning, self.document, seq, base, newest, digest, row_bytes, manifest, index)
        return Written(after, Row(seq, base, digest, encoded, body), self.blobs)


def positions(document: Document) -> dict[Path, int]:
    """Return the position of each path in a document."""
    return {path: at for at, path in enumerate(document)}


def next_row(log: Log, change: Change, meta: bytes) -> Written:
    """Return the row with a change. Raises LimitExceeded if the result could not be read within the limits."""
    revision = Revision(log)
    if change.draft is not None:
        revision.replace_state(change.draft, change.leaves)
    for path, item in change.appends:
        revision.append(path, item)
    return revision.write(meta, checkpoint=change.checkpoint, fresh=change.fresh)
