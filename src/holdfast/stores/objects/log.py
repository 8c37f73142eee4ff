"""The rows, blobs and posts of a thread as objects: which of them a record speaks of, and which can go."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.history.binding import SEQ_BYTES
from holdfast.records.errors import Corrupt
from holdfast.records.rows import Row, Swap
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.heads import Kept
from holdfast.stores.objects.marks import mark_name
from holdfast.stores.objects.names import RowName, blob_of, era_root, head_name, marker_name, root_of
from holdfast.stores.objects.record import (
    NO_LEFTOVERS,
    Record,
    Stretch,
    chain,
    decode_row,
    encode_row,
    linked,
    new_rows,
    next_era,
    placed,
    swapped,
)


class Change(NamedTuple):
    """What a swap puts: the objects that come first, and the record that makes them count."""

    record: Record
    rows: dict[RowName, bytes]
    objects: dict[str, bytes]
    marks: tuple[str, ...] = ()
    left: tuple[RowName, ...] = ()
    """Committed rows that rode in the head until now, and are among the objects."""


NO_CHANGE = Change(Record(b""), {}, {})


def row_object(record: Record, name: RowName) -> str:
    """The whole name of a row object."""
    return f"{era_root(record.thread, record.era)}rows/{name}"


def blob_object(record: Record, blob: bytes) -> str:
    """The whole name of a blob object."""
    return f"{era_root(record.thread, record.era)}blobs/{blob.hex()}"


def post_object(record: Record, name: str) -> str:
    """The whole name of a post object."""
    return f"{era_root(record.thread, record.era)}posts/{name}"


class ObjectLog:
    """The objects below the head objects."""

    def __init__(self, calls: Calls, tail_bytes: int) -> None:
        self._calls = calls
        self._tail_bytes = tail_bytes

    # Rows

    def listed(self, record: Record, start: int, stop: int) -> list[RowName]:
        """The names of all rows from seq `start` to before `stop`, in the chain or not."""
        rows = f"{era_root(record.thread, record.era)}rows/"
        names = map(RowName.parse, self._calls.names(rows, f"{rows}{max(start, 0):012}"))
        listed = takewhile(lambda name: name.seq < stop, filter(None, names))
        return list(dict.fromkeys([*listed, *(name for name, _ in record.tail if start <= name.seq < stop)]))

    def committed(self, record: Record, stretch: Stretch, start: int) -> list[RowName]:
        """The rows of a stretch from seq `start` on, newest first. No call if all of them ride in the record."""
        riding = [name for name, _ in record.tail]
        if riding and riding[0].seq <= start:
            return chain(linked(name for name in riding if name.seq >= start), stretch)
        return chain(linked(self.listed(record, start, stretch.last + 1)), stretch)

    def _between(self, record: Record, first: int, last: int) -> tuple[list[RowName], dict[int, RowName]]:
        """All row objects from seq `first` to `last`, and those of them that are in the log, by seq."""
        stretches = [stretch for stretch in record.stretches if stretch.last >= first and stretch.first <= last]
        listed = self.listed(record, first, max([last, *(stretch.last for stretch in stretches)]) + 1)
        links = linked(listed)
        taken = {name.seq: name for stretch in stretches for name in chain(links, stretch) if name.seq <= last}
        return [name for name in listed if name.seq <= last], taken

    def restoring(self, record: Record, seq: int, span: int) -> list[RowName]:
        """The rows that a restore of `seq` reads, in order. `span` is how many they are at most, by a good guess."""
        stretch = record.stretch_of(seq)
        if stretch is None:
            return []
        start = max(stretch.first, stretch.base if seq == stretch.last else seq - span)
        found = [name for name in self.committed(record, stretch, start) if name.seq <= seq]
        if not found or found[0].seq != seq:
            return []
        base = found[0].base
        if base < start:
            found = list(self._between(record, base, seq)[1].values())
        return sorted(name for name in found if name.seq >= base)

    def newest(self, record: Record, before: int | None, limit: int | None) -> list[RowName]:
        """The rows with seq < `before`, newest first, at most `limit`."""
        found: list[RowName] = []
        for stretch in reversed(record.stretches):
            stop = stretch.last + 1 if before is None else min(before, stretch.last + 1)
            start = stretch.first if limit is None else max(stretch.first, stop - limit + len(found))
            if start < stop:
                found += [name for name in self.committed(record, stretch, start) if name.seq < stop]
        return found

    def read(self, record: Record, names: Sequence[RowName]) -> list[Row]:
        """These rows, as far as they are there."""
        return [found[0] for found in self._read_objects(record, names) if found]

    def _read_objects(self, record: Record, names: Sequence[RowName]) -> list[tuple[Row, tuple[bytes, ...]] | None]:
        tail = dict(record.tail)

        def read(name: RowName) -> tuple[Row, tuple[bytes, ...]] | None:
            whole = row_object(record, name)
            found = (tail[name], "") if name in tail else self._calls.get(whole)
            return None if found is None else decode_row(whole, name, found[0])

        return [read(name) for name in names] if tail.keys() >= {*names} else self._calls.each(read, names)

    # Writing

    def change(self, kept: Kept, swap: Swap) -> Change:
        """What to put so that a swap is made of this record."""
        record = replace(kept.record, leftovers=NO_LEFTOVERS) if kept.is_swept else kept.record
        record = next_era(record) if swap.drop.everything else replace(record, stretches=self._without(record, swap))
        new = new_rows(record, swap)
        rows = {name: encode_row(row, () if number else swap.blobs) for number, (name, row) in enumerate(new.items())}
        objects = {blob_object(record, blob): data for blob, data in swap.blobs.items()}
        tail = {name: data for name, data in record.tail if record.stretch_of(name.seq)}
        riding, settled = placed(tail, rows, self._tail_bytes)
        objects |= {row_object(record, name): data for name, data in settled.items()}
        left = tuple(name for name in settled if name in tail)
        if kept.tag is None:
            objects[marker_name(swap.thread)] = swap.thread
        replaced = swapped(record, swap, new.values(), riding)
        marks = _new_marks(record, replaced)
        return Change(replaced, rows, objects | dict.fromkeys(marks, b""), marks, left)

    def _without(self, record: Record, swap: Swap) -> tuple[Stretch, ...]:
        stretches: Iterable[Stretch] = record.stretches
        for start, stop in swap.drop.rows:
            stretches = [part for stretch in stretches for part in self._parts(record, stretch, start, stop)]
        return tuple(stretches)

    def _parts(self, record: Record, stretch: Stretch, start: int, stop: int) -> Iterator[Stretch]:
        """What is left of a stretch without the rows from `start` to before `stop`."""
        if start >= stop or stop <= stretch.first or stretch.last < start:
            yield stretch
            return
        if stretch.first < start:
            yield self._ending(record, stretch, start - 1)
        if stop <= stretch.last:
            yield replace(stretch, first=stop)

    def _ending(self, record: Record, stretch: Stretch, seq: int) -> Stretch:
        """The stretch up to `seq`: its end must be on record before the row that names it is gone."""
        found = self.committed(record, stretch, seq)
        if not found or found[-1].seq != seq:
            name = f"row {seq} in {head_name(record.thread)}"
            raise Corrupt(f"{name} is missing: rows beside it cannot be dropped", record=name)
        return Stretch(stretch.first, seq, found[-1].base, bytes.fromhex(found[-1].digest))

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Put objects side by side. Those that exist are equal, and left."""
        self._calls.each(lambda item: self._calls.put_if_absent(*item), list(objects.items()))

    def blob_ids(self, record: Record, last: int) -> Iterator[bytes]:
        """The blobs that are there for rows up to `last`, committed or not: an id begins with the seq of its row."""
        root = f"{era_root(record.thread, record.era)}blobs/"
        blobs = (blob_of(name.removeprefix(root)) for name in self._calls.names(root))
        return takewhile(lambda blob: _seq_of(blob) <= last, (blob for blob in blobs if blob))

    # Removing

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects side by side."""
        self._calls.each(self._calls.delete, list(names))

    def leftovers(self, record: Record) -> list[str]:
        """The names of all objects that no longer count since rows, blobs, posts or everything was dropped."""
        left = record.leftovers
        names = [blob_object(record, blob) for blob in left.blobs]
        names += [post_object(record, name) for name in left.posts]
        names += left.marks
        if left.rows_below:
            names += self._dead_rows(record, left.rows_below)
        if left.eras:
            present = era_root(record.thread, record.era)
            names += takewhile(lambda name: name < present, self._calls.names(root_of(record.thread)))
        return names

    def _dead_rows(self, record: Record, below: int) -> list[str]:
        """Rows below a seq that can go."""
        listed, taken = self._between(record, 0, below - 1)
        return [row_object(record, name) for name in listed if self._is_dead(record, name, taken)]

    def _is_dead(self, record: Record, name: RowName, taken: Mapping[int, RowName]) -> bool:
        """True for a row in no stretch, and for one beside the one of its seq. Where that is missing, nobody knows."""
        return record.stretch_of(name.seq) is None or taken.get(name.seq, name) != name

    def garbage(self, change: Change, swap: Swap, record: Record) -> list[str]:
        """What a refused swap may take away again: objects that are certainly not in the log under `record`.

        A row above the last may still be committed: by another process that writes an equal one and finds it there.
        """
        if change.record.era < record.era:
            return [name for name in change.objects if name != marker_name(swap.thread)]
        if change.record.era > record.era:
            return [*change.marks]
        dropped = [row_object(record, name) for name in change.left if record.stretch_of(name.seq) is None]
        passed = [name for name in change.rows if name.seq <= record.last]
        if not passed:
            return [*change.marks, *dropped]
        _, taken = self._between(record, passed[0].seq, passed[-1].seq)
        rows = [row_object(record, name) for name in passed if self._is_dead(record, name, taken)]
        rows = [name for name in rows if name in change.objects]
        blobs = self._dead_blobs(record, swap, passed, taken)
        return [*change.marks, *dropped, *rows, *(blob_object(record, blob) for blob in blobs)]

    def _dead_blobs(
        self, record: Record, swap: Swap, passed: Sequence[RowName], taken: Mapping[int, RowName]
    ) -> list[bytes]:
        """The blobs of a refused swap that no winner wrote too: the same content at the same seq has the same id.

        A blob's id begins with the seq of its row, so only the rows of the same seqs can have written it. If one of
        them is gone already, nobody knows, and the blobs stay.
        """
        if not swap.blobs or any(name.seq not in taken for name in passed):
            return []
        objects = self._read_objects(record, list(taken.values()))
        if None in objects:
            return []
        written = {blob for found in objects if found for blob in found[1]}
        return [blob for blob in swap.blobs if _seq_of(blob) <= record.last and blob not in written]


def _new_marks(old: Record, new: Record) -> tuple[str, ...]:
    return tuple(mark_name(new.thread, word, rest) for word, rest in new.marks.items() if word not in old.marks)


def _seq_of(blob: bytes) -> int:
    return int.from_bytes(blob[:SEQ_BYTES], "big")
