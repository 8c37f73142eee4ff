"""Reading and replacing head objects. Records seen lately are cached with their tags: a commit need not read first."""

from collections import OrderedDict
from secrets import randbelow
from threading import Lock
from time import sleep
from typing import NamedTuple

from holdfast.records.errors import Corrupt, StoreUnavailable
from holdfast.records.identity import shown_id_of
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.names import era_of, hash_of, head_name, root_of, segment_version
from holdfast.stores.objects.record import NO_LEFTOVERS, Record, decode_record, encode_record

CACHED = 1024
"""Records of about 32 KB each, with the rows in them."""

ATTEMPTS = 64

LOST_VERSIONS = 1 << 20
"""How far a lost record may have been ahead of the last segment: a record without new rows puts no segment."""


class Stored(NamedTuple):
    """A record as it was read or written, and the tag of its object: None if there is no object."""

    record: Record
    tag: str | None = None
    is_swept: bool = False
    """True if this process has deleted the record's leftovers."""


class Heads:
    """The head objects. No cached record is trusted for a commit: its tag is compared."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._cache: OrderedDict[bytes, Stored] = OrderedDict()
        self._lock = Lock()

    def cached(self, thread: bytes) -> Stored | None:
        """Return the record that was seen last, which may be outdated."""
        with self._lock:
            return self._cache.get(thread)

    def fetch(self, thread: bytes, *, replace_damaged: bool = False) -> Stored:
        """Read the record; an empty one if there is none.

        A damaged one raises `Corrupt`; with `replace_damaged`, return one without a head, to be replaced as a whole.
        """
        found = self._calls.get(head_name(thread))
        if found is not None:
            try:
                return self._remember(Stored(decode_record(head_name(thread), found[0]), found[1]))
            except Corrupt:
                if not replace_damaged:
                    raise
                return Stored(self._lost_record(thread), found[1])
        with self._lock:
            self._cache.pop(thread, None)
        return Stored(Record(thread))

    def _lost_record(self, thread: bytes) -> Record:
        """Return a record in the last era that the names of a thread's objects show, with a later version than all."""
        era = version = 0
        for name in self._calls.names(root_of(hash_of(thread))):
            era, version = max(era, era_of(name)), max(version, segment_version(name))
        return Record(thread, version=version + LOST_VERSIONS, era=era)

    def read(self, name: str) -> Record | None:
        """Read the record in an object, without caching it."""
        found = self._calls.get(name)
        return None if found is None else decode_record(name, found[0])

    def replace(self, old: Stored, record: Record, *, is_swept: bool = False) -> Stored | None:
        """Put a record in place of an old one; None if that is no longer the current one."""
        tag = self._calls.replace(head_name(record.thread), encode_record(record), old.tag)
        return None if tag is None else self._remember(Stored(record, tag, is_swept))

    def note_swept(self, stored: Stored) -> None:
        """Note that the leftovers of a record are deleted: the next record need not list them."""
        self._remember(stored._replace(is_swept=True))

    def _remember(self, stored: Stored) -> Stored:
        """Cache a record unless a newer one is cached: a slow reply must not bring back an old one."""
        record = stored.record
        with self._lock:
            other = self._cache.pop(record.thread, stored)
            if other.record.version == record.version:
                is_swept = stored.is_swept or other.is_swept or record.leftovers == NO_LEFTOVERS
                other = stored = stored._replace(is_swept=is_swept)
            self._cache[record.thread] = max(other, stored, key=lambda each: each.record.version)
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return stored


def conflicting(thread: bytes) -> StoreUnavailable:
    """Return the error after the last attempt, when each conflicted with another write."""
    return StoreUnavailable(
        f"gave up after {ATTEMPTS} conflicting writes to thread {shown_id_of(thread)!r}; retry later"
    )


def pause(attempt: int) -> None:
    """Sleep after a conflict: not at all the first time, then for a random time that grows to 50 ms."""
    sleep(randbelow(min(attempt, 25) * 2 + 1) / 1000)
