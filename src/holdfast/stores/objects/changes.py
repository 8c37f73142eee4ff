"""What a swap puts: the objects that come first, and the record that makes them count."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.records.errors import Corrupt
from holdfast.records.rows import Swap
from holdfast.stores.backend import replaces_lost_head
from holdfast.stores.objects.heads import Kept
from holdfast.stores.objects.layout import Layout
from holdfast.stores.objects.log import ObjectLog, blob_object, folder_of, segment_objects
from holdfast.stores.objects.names import SegmentName, head_name, marker_name
from holdfast.stores.objects.record import NO_LEFTOVERS, Record, mark_names, new_rows, next_era, placed, swapped
from holdfast.stores.objects.segments import Range, StoredRow, Stretch, without


class Change(NamedTuple):
    """A swap as it is to be made of one record."""

    record: Record
    objects: dict[str, bytes]
    segments: tuple[SegmentName, ...]
    """Those among the objects."""
    marks: tuple[str, ...]
    """Those among the objects."""


class Changes:
    """Decides what a swap changes. Only where it cuts a segment, objects are listed and read for that."""

    def __init__(self, log: ObjectLog, tail_bytes: int) -> None:
        self._log = log
        self._tail_bytes = tail_bytes

    def of(self, kept: Kept, swap: Swap) -> Change:
        """What to put so that a swap is made of this record."""
        record = replace(kept.record, leftovers=NO_LEFTOVERS) if kept.is_swept else kept.record
        record = next_era(record) if swap.drop.everything else record
        layout, dropped = Layout(folder_of(record), record.version + 1), swap.drop.rows
        for stretch in record.stretches:
            self._lay(layout, record, stretch, dropped)
        tail = [row for row in record.tail if without(row.seq, row.seq, dropped)]
        riding, settled = placed(tail, new_rows(record, swap), self._tail_bytes)
        layout.settle(settled)
        replaced = swapped(record, swap, layout.stretches, riding)
        old_marks = mark_names(record)
        marks = tuple(name for name in mark_names(replaced) if name not in old_marks)
        objects = {blob_object(record, blob): data for blob, data in swap.blobs.items()}
        objects |= zip(segment_objects(record, layout.segments), layout.segments.values(), strict=True)
        objects |= {marker_name(swap.thread): swap.thread} if kept.tag is None or replaces_lost_head(swap) else {}
        return Change(replaced, objects | dict.fromkeys(marks, b""), tuple(layout.segments), marks)

    def _lay(self, layout: Layout, record: Record, stretch: Stretch, dropped: Sequence[Range]) -> None:
        """What is left of a stretch. Segments that lose some of their rows are cut: the others get new ones."""
        left = without(stretch.first, stretch.last, dropped)
        if left == [(stretch.first, stretch.last)]:
            layout.stretches.append(stretch)
        elif left:
            names = self._touched(record, stretch, left)
            if left[0][0] < names[0].first:
                layout.stretches.append(Stretch(stretch.first, names[0].first - 1, bytes.fromhex(names[0].previous)))
            cut = self._cut(record, names, dropped)
            for name in names:
                if name in cut:
                    layout.settle(cut[name])
                else:
                    layout.keep(name)

    def _touched(self, record: Record, stretch: Stretch, left: Sequence[Range]) -> list[SegmentName]:
        """The segments from the first on that loses a row and keeps one, or comes after a row that is lost."""
        lowest = left[0][1] + 1 if left[0][0] == stretch.first else left[0][0]
        names = self._log.segments(record, stretch, lowest)
        if not names or names[0].first > lowest:
            raise _missing(record, names[0].first - 1 if names else stretch.last)
        return names

    def _cut(
        self, record: Record, names: Sequence[SegmentName], dropped: Sequence[Range]
    ) -> Mapping[SegmentName, list[StoredRow]]:
        """What is left of each of the segments that lose rows."""
        left = {name: without(name.first, name.last, dropped) for name in names}
        losing = [name for name in names if left[name] != [(name.first, name.last)]]
        halved = [name for name in losing if left[name]]
        contents = self._log.contents(record, halved)
        for name in halved:
            if name not in contents:
                raise _missing(record, name.last)
        return {name: [row for row in contents.get(name, ()) if without(row.seq, row.seq, dropped)] for name in losing}


def _missing(record: Record, seq: int) -> Corrupt:
    name = f"row {seq} in {head_name(record.thread)}"
    return Corrupt(f"{name} is missing: rows beside it cannot be dropped", record=name)
