"""Applying further rows to a log in memory: to catch up with other writers (`advance`), and to verify (`inspect`)."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.history.binding import BODY, Binding
from holdfast.history.cells import (
    Cell,
    Chunk,
    Document,
    Kind,
    Operation,
    Path,
    Ref,
    empty_list,
    referred,
    refuse_heavy,
    rope,
    splice,
)
from holdfast.history.entries import JOURNAL, parsed_entries
from holdfast.history.format import APPEND, Header, Script, damaged, decode_append, decode_script, verify_row
from holdfast.history.lazy_steps import check_entry
from holdfast.history.log import Log, positions
from holdfast.history.restore import KEYS, check_range, decoded_cell, fill, fold, read_keys, read_state
from holdfast.history.tuning import Tuning
from holdfast.records.rows import Row


def advance(log: Log, rows: Sequence[Row], blobs: Mapping[bytes, bytes]) -> Log | None:
    """Return the log after the rows that follow it; None if one of them is a keyframe, or a row is missing.

    `blobs` holds the unsealed bytes of every blob the rows refer to.
    """
    for row in rows:
        header = verify_row(log.binding, row, log.digest)
        if header.is_keyframe or row.seq != log.seq + 1:
            return None
        body = log.binding.unseal(row.body, row.seq, BODY)
        try:
            if header.flags & APPEND:
                document = _appended(log, *decode_append(body))
            else:
                document = _apply(log, decode_script(log.binding, header, body), blobs)
            log = _after(log, header, row, document)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise damaged(row.seq, log.binding.thread_id, repr(error)) from error
    return log


def _appended(log: Log, index: int, item: bytes) -> Document:
    path = list(log.document)[index]
    return {**log.document, path: log.document[path].with_appended(item, item)}


def _apply(log: Log, script: Script, blobs: Mapping[bytes, bytes]) -> Document:
    document = dict(log.document)
    paths = list(log.document) if script.paths is None else script.paths
    for index, kind, count, operations in script.cells:
        path = paths[index]
        document[path] = _edited(document.get(path), kind, count, operations, blobs)
    return document if script.paths is None else {path: document[path] for path in paths}


def _edited(
    old: Cell | None, kind: Kind, count: int, operations: list[Operation], blobs: Mapping[bytes, bytes]
) -> Cell:
    cell = old or empty_list()
    if len(operations) == 2 and operations[0] is None and isinstance(operations[1], bytes | Ref):
        [added] = _chunks(cell, operations[1], blobs)
        return replace(cell.with_appended(added, operations[1]), kind=kind, count=count)
    pieces = splice(cell.pieces, operations)
    found = [chunk for operation in operations for chunk in _chunks(cell, operation, blobs)]
    return Cell(kind, count, sum(map(len, found)), pieces, rope(found))


def _chunks(old: Cell, operation: Operation, blobs: Mapping[bytes, bytes]) -> list[Chunk]:
    if operation is None:
        return old.chunks.all()
    if isinstance(operation, bytes):
        return [operation]
    if isinstance(operation, Ref):
        return [referred(operation, blobs)]
    offset, length = operation
    return [memoryview(old.body())[offset : offset + length]]


def _after(log: Log, header: Header, row: Row, document: Document) -> Log:
    return replace(
        log,
        document=document,
        seq=row.seq,
        base=row.base,
        checkpoint=header.checkpoint,
        digest=row.digest,
        row_bytes=log.row_bytes + len(row.header) + len(row.body),
        index=log.index if list(document) == list(log.index) else positions(document),
    )


def inspect(
    binding: Binding, rows: Sequence[Row], seq: int, stored: Mapping[bytes, bytes], tuning: Tuning, known: bytes
) -> Log:
    """Return the log after rows base..seq. Raises for the first row that does not follow, or cannot be decoded.

    What each row changed is decoded once and dropped; of a row that only adds items to a list, these items. So it costs
    what was written, not what it adds up to. `known` is the start of the journal's body that was checked before.
    """
    check_range(binding, rows, seq)
    log = fill(fold(binding, rows[:1], rows[0].seq), stored, tuning)
    _check_changes(log, {}, known)
    for row in rows[1:]:
        before, after = log.document, advance(log, [row], _Unsealed(binding, stored))
        if after is None or row.base != rows[0].seq:
            raise damaged(row.seq, binding.thread_id, "it belongs to another keyframe")
        log = after
        _check_changes(log, before, known)
    return log


class _Unsealed(dict[bytes, bytes]):
    """The blobs of one row, each unsealed at its first use."""

    def __init__(self, binding: Binding, stored: Mapping[bytes, bytes]) -> None:
        super().__init__()
        self._binding = binding
        self._stored = stored

    def __missing__(self, blob: bytes) -> bytes:
        self[blob] = data = self._binding.unseal_blob(blob, self._stored.get(blob))
        return data


def _check_changes(log: Log, before: Document, known: bytes) -> None:
    """Decode what a row changed. The rest was decoded with the row that wrote it."""
    binding, document = log.binding, log.document
    changed = [path for path, cell in document.items() if cell is not before.get(path)]
    if any(path[0] == "state" for path in changed):
        refuse_heavy(document, "state", binding.limits)
    for path in changed:
        _check_part(binding, path, _added_part(before.get(path), document[path]), known)
    _check_nesting(binding, document)


def _added_part(old: Cell | None, new: Cell) -> Cell:
    """Return a list of the items that a list was extended by; the whole cell if it changed in another way."""
    if old is None or not new.kind == old.kind == "list" or new.chunks.items is not old.chunks.items:
        return new
    added = new.chunks.items[old.chunks.length : new.chunks.length]
    if not added or new.count <= old.count:
        return new
    return Cell("list", new.count - old.count, sum(map(len, added)), rope([]), rope(added))


def _check_part(binding: Binding, path: Path, part: Cell, known: bytes) -> None:
    if path[0] == "state":
        decoded_cell(binding, part)
    elif path == KEYS:
        read_keys(binding, {KEYS: part})
    elif path == JOURNAL:
        entries = parsed_entries(part)
        if not known.startswith(part.body()):
            for entry in entries:
                check_entry(entry)


def _check_nesting(binding: Binding, document: Document) -> None:
    """Refuse a cell inside another that is not a dict. No saved state has such cells."""
    paths = [path for path in document if path[0] == "state"]
    if any(path[:length] in document for path in paths for length in range(1, len(path))):
        read_state(binding, document)
