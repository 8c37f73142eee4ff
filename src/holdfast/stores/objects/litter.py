"""Objects that no longer count, or never will: found by proof, from the record, and never by a clock."""

from collections.abc import Sequence
from itertools import takewhile

from holdfast.history.binding import SEQ_BYTES
from holdfast.records.rows import Swap
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.changes import Change
from holdfast.stores.objects.log import ObjectLog, blob_object, folder_of, post_object
from holdfast.stores.objects.names import SegmentName, era_root, marker_name, root_of
from holdfast.stores.objects.record import Record, mark_names
from holdfast.stores.objects.segments import dead


class Litter:
    """What can go."""

    def __init__(self, calls: Calls, log: ObjectLog) -> None:
        self._calls = calls
        self._log = log

    def dropped(self, record: Record) -> list[str]:
        """The names of all objects that no longer count since rows, blobs, posts or everything was dropped."""
        left = record.leftovers
        names = [blob_object(record, blob) for blob in left.blobs]
        names += [post_object(record, name) for name in left.posts]
        names += left.marks
        if left.rows:
            listed = self._log.listed(record)
            names += self._objects(record, dead(listed, listed, record.stretches, record.version))
        if left.eras:
            present = era_root(record.thread, record.era)
            names += takewhile(lambda name: name < present, self._calls.names(root_of(record.thread)))
        return names

    def in_vain(self, changes: Sequence[Change], record: Record) -> list[str]:
        """What was put for changes of records before this one, and is certainly not in the log under it. No blobs.

        Those of an earlier era go too, since nothing of it counts.
        """
        names = {name for change in changes for name in change.marks}
        names |= {name for change in changes if change.record.era < record.era for name in change.objects}
        names -= {marker_name(record.thread), *mark_names(record)}
        segments = [name for change in changes if change.record.era == record.era for name in change.segments]
        if not segments:
            return [*names]
        listed = self._log.listed(record, min(name.first for name in segments))
        return [*names, *self._objects(record, dead(segments, listed, record.stretches, record.version))]

    def refused(self, changes: Sequence[Change], swap: Swap, record: Record) -> list[str]:
        """The same of a swap that was refused under this record, and its blobs that no winner wrote too."""
        names = self.in_vain(changes, record)
        if swap.blobs and changes and changes[-1].record.era == record.era:
            names += [blob_object(record, blob) for blob in self._refused_blobs(swap, record)]
        return names

    def _refused_blobs(self, swap: Swap, record: Record) -> list[bytes]:
        """A blob's id begins with the seq of its row, so only the rows of the same seqs can have written it.

        The same content at the same seq has the same id. If one of these rows is gone already, or not yet written,
        nobody knows, and the blobs stay.
        """
        passed = {row.seq for row in swap.rows if row.seq <= record.last}
        rows = self._log.between(record, min(passed), max(passed)) if passed else []
        if not passed <= {row.seq for row in rows}:
            return []
        written = {blob for row in rows for blob in row.blobs}
        return [blob for blob in swap.blobs if seq_of(blob) in passed and blob not in written]

    def _objects(self, record: Record, names: Sequence[SegmentName]) -> list[str]:
        return [f"{folder_of(record)}{name}" for name in names]


def seq_of(blob: bytes) -> int:
    """The seq of the row that wrote a blob."""
    return int.from_bytes(blob[:SEQ_BYTES], "big")
