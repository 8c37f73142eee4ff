"""Objects that no longer count, or never will: found by proof, from the record, and never by a clock."""

from collections.abc import Sequence
from itertools import takewhile

from holdfast.history.binding import SEQ_BYTES
from holdfast.records.rows import Swap
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.changes import Change
from holdfast.stores.objects.log import ObjectLog, blob_object, post_object, segment_objects
from holdfast.stores.objects.names import era_root, marker_name, root_of
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
            names += segment_objects(record, dead(listed, listed, record.stretches, record.version))
        if left.eras:
            present = era_root(record.thread, record.era)
            names += takewhile(lambda name: name < present, self._calls.names(root_of(record.thread)))
        return names

    def in_vain(self, changes: Sequence[Change], record: Record) -> list[str]:
        """What was put for changes of records before this one, and is certainly not in the log under it.

        Blobs are not named after a record, so they are only among it if they are of an earlier era.
        """
        names = {name for change in changes for name in change.marks}
        names |= {name for change in changes if change.record.era < record.era for name in change.objects}
        later = [change for change in changes if change.record.era > record.era]
        names |= {name for change in later for name in segment_objects(change.record, change.segments)}
        names -= {marker_name(record.thread), *mark_names(record)}
        segments = [name for change in changes if change.record.era == record.era for name in change.segments]
        if not segments:
            return [*names]
        listed = self._log.listed(record, min(name.first for name in segments))
        return [*names, *segment_objects(record, dead(segments, listed, record.stretches, record.version))]

    def refused_blobs(self, change: Change, swap: Swap, record: Record) -> list[str]:
        """The blobs of a swap that was refused under this record, and that no winner wrote too.

        A blob's id begins with the seq of its row, so only the rows of the same seqs can have written it, and the same
        content at the same seq has the same id. If one of these rows is gone already, or not yet written, that
        cannot be decided, and the blobs stay.
        """
        if not swap.blobs or change.record.era != record.era:
            return []
        passed = {row.seq for row in swap.rows if row.seq <= record.last}
        rows = self._log.between(record, min(passed), max(passed)) if passed else []
        if not passed <= {row.seq for row in rows}:
            return []
        written = {blob for row in rows for blob in row.blobs}
        refused = (blob for blob in swap.blobs if seq_of(blob) in passed and blob not in written)
        return [blob_object(record, blob) for blob in refused]


def seq_of(blob: bytes) -> int:
    """The seq of the row that wrote a blob."""
    return int.from_bytes(blob[:SEQ_BYTES], "big")
