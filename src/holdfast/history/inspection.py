"""Checking the rows of one keyframe, the oldest first: what each row changed is decoded once, and dropped.

A row that only adds items to a list is checked by these items: a walk costs what was written, not what it adds up to.
"""

from collections.abc import Mapping, Sequence

from holdfast.history.advance import advance
from holdfast.history.binding import Binding
from holdfast.history.cells import Cell, Document, Path, rope
from holdfast.history.entries import JOURNAL
from holdfast.history.format import damaged
from holdfast.history.lazy_steps import check_entry
from holdfast.history.log import Log
from holdfast.history.restore import KEYS, check_range, decoded_cell, fill, fold, read_keys, read_state
from holdfast.history.stored_entries import parsed_entries
from holdfast.history.tuning import Tuning
from holdfast.history.weight import refuse_heavy
from holdfast.records.rows import Row


def inspect(
    binding: Binding, rows: Sequence[Row], seq: int, stored: Mapping[bytes, bytes], tuning: Tuning, known: bytes
) -> Log:
    """The log after rows base..seq. Raises for the first row that does not follow, or that cannot be decoded.

    `known` is the body of a journal whose values were checked before: what begins it is not decoded again.
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
    """The blobs of one row, each unsealed when it is needed first."""

    def __init__(self, binding: Binding, stored: Mapping[bytes, bytes]) -> None:
        super().__init__()
        self._binding = binding
        self._stored = stored

    def __missing__(self, blob: bytes) -> bytes:
        self[blob] = data = self._binding.unseal_blob(blob, self._stored.get(blob))
        return data


def _check_changes(log: Log, before: Document, known: bytes) -> None:
    """Decode what a row changed. What it left alone was decoded with the row that wrote it."""
    binding, document = log.binding, log.document
    changed = [path for path, cell in document.items() if cell is not before.get(path)]
    if any(path[0] == "state" for path in changed):
        refuse_heavy(document, "state", binding.limits)
    for path in changed:
        _check_part(binding, path, _added_part(before.get(path), document[path]), known)
    _check_nesting(binding, document)


def _added_part(old: Cell | None, new: Cell) -> Cell:
    """The items that a list was extended by, as a list of their own; all of the cell if it was changed otherwise."""
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
    """A cell that lies within another must find a dict there. No state that was saved has such cells."""
    paths = [path for path in document if path[0] == "state"]
    if any(path[:length] in document for path in paths for length in range(1, len(path))):
        read_state(binding, document)
