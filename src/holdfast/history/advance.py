"""Catching up: rows that somebody else wrote are applied to a log in memory, without loading the thread again."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.history.binding import BODY
from holdfast.history.cells import Cell, Chunk, Document, Kind, Ref, referred, rope
from holdfast.history.format import APPEND, Header, Script, Stored, damaged, decode_append, decode_script, verify_row
from holdfast.history.log import Log
from holdfast.history.splice import splice
from holdfast.records.rows import Row


def advance(log: Log, rows: Sequence[Row], blobs: Mapping[bytes, bytes]) -> Log | None:
    """The log after these rows, which follow it; None if a keyframe is among them, which stands on its own.

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


def _edited(old: Cell | None, kind: Kind, count: int, operations: list[Stored], blobs: Mapping[bytes, bytes]) -> Cell:
    cell = old or Cell(kind, 0, 0, rope([]), rope([]))
    if len(operations) == 2 and operations[0] is None and isinstance(operations[1], bytes | Ref):
        [added] = _chunks(cell, operations[1], blobs)
        return replace(cell.with_appended(added, operations[1]), kind=kind, count=count)
    pieces = splice(cell.pieces, operations)
    found = [chunk for operation in operations for chunk in _chunks(cell, operation, blobs)]
    return Cell(kind, count, sum(map(len, found)), pieces, rope(found))


def _chunks(old: Cell, operation: Stored, blobs: Mapping[bytes, bytes]) -> list[Chunk]:
    if operation is None:
        return old.chunks.all()
    if isinstance(operation, bytes):
        return [operation]
    if isinstance(operation, Ref):
        return [referred(operation, blobs)]
    offset, length = operation
    return [memoryview(old.body())[offset : offset + length]]


def _after(log: Log, header: Header, row: Row, document: Document) -> Log:
    same_paths = list(document) == list(log.index)
    return Log(
        log.binding,
        log.tuning,
        document,
        row.seq,
        row.base,
        header.checkpoint,
        row.digest,
        log.row_bytes + len(row.header) + len(row.body),
        log.manifest,
        log.index if same_paths else {path: number for number, path in enumerate(document)},
    )
