"""Reading and replacing the head objects of threads, with their tags kept, so that a commit need not read first."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from holdfast.records.errors import Corrupt
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.names import SegmentName, era_of, head_name, root_of
from holdfast.stores.objects.record import NO_LEFTOVERS, Record, decode_record, encode_record

KEPT = 1024
"""Some 32 MB at most, with the rows that ride in them."""


LOST_VERSIONS = 1 << 20
"""How far a lost record may have been ahead of the last segment: records without new rows have no segment."""


class Kept(NamedTuple):
    """A record as it was read or written, and its object's tag: None if there is no object."""

    record: Record
    tag: str | None = None
    is_swept: bool = False
    """True if this process has removed the record's leftovers."""


class Heads:
    """The heads that this process has seen lately. Nothing here is trusted for a commit: the tag is compared."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._lock = Lock()

    def known(self, thread: bytes) -> Kept | None:
        """The record that was seen last, perhaps an old one."""
        with self._lock:
            return self._kept.get(thread)

    def fetch(self, thread: bytes, *, also_lost: bool = False) -> Kept:
        """The record as it is now; an empty one if there is none.

        A damaged one is `Corrupt`; with `also_lost`, it is one without a head, to be replaced as a whole.
        """
        found = self._calls.get(head_name(thread))
        if found is not None:
            try:
                return self._remember(Kept(decode_record(head_name(thread), found[0]), found[1]))
            except Corrupt:
                if not also_lost:
                    raise
                return Kept(self._lost_record(thread), found[1])
        with self._lock:
            self._kept.pop(thread, None)
        return Kept(Record(thread))

    def _lost_record(self, thread: bytes) -> Record:
        """What the names of a thread's objects say of it: enough to begin an era after all of them."""
        era = version = 0
        for name in self._calls.names(root_of(thread)):
            era = max(era, era_of(name))
            segment = SegmentName.parse(name)
            version = max(version, segment.version if segment else 0)
        return Record(thread, version=version + LOST_VERSIONS, era=era)

    def read(self, name: str) -> Kept | None:
        """The record in an object, not remembered."""
        found = self._calls.get(name)
        return None if found is None else Kept(decode_record(name, found[0]), found[1])

    def replace(self, old: Kept, record: Record, *, is_swept: bool = False) -> Kept | None:
        """Put a record in place of an old one; None if that is not the present one any more."""
        tag = self._calls.replace(head_name(record.thread), encode_record(record), old.tag)
        return None if tag is None else self._remember(Kept(record, tag, is_swept))

    def swept(self, kept: Kept) -> None:
        """Note that the leftovers of a record are gone: the next record need not carry them."""
        self._remember(kept._replace(is_swept=True))

    def _remember(self, kept: Kept) -> Kept:
        """Keep a record unless a newer one is kept: a slow reply must not bring back an old one."""
        record = kept.record
        with self._lock:
            other = self._kept.pop(record.thread, kept)
            if other.record.version == record.version:
                is_swept = kept.is_swept or other.is_swept or record.leftovers == NO_LEFTOVERS
                other = kept = kept._replace(is_swept=is_swept)
            self._kept[record.thread] = max(other, kept, key=lambda each: each.record.version)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return kept
