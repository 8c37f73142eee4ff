"""Threads in an object store, over five calls (`Objects`): the base of the S3 store, and of stores that users write.

A swap puts new blobs and a segment of rows side by side, and then the head object, on the condition that nobody else
has: 1 call if its rows ride in the head or if there are none, 2 if rows leave it, 1 for each blob, and 1 or 2 more if
the status changes. A restore costs the head, one listing unless all rows ride in it, and each segment and blob, side by
side.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from secrets import token_hex

from msgspec.structs import replace

from holdfast.history.tuning import Tuning
from holdfast.records.errors import Corrupt, HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.records.identity import shown_id_of
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing
from holdfast.stores.objects.calls import Calls, Objects
from holdfast.stores.objects.heads import Heads, Kept
from holdfast.stores.objects.listing import Finder
from holdfast.stores.objects.litter import seq_of
from holdfast.stores.objects.log import Found, ObjectLog, blob_object, post_object
from holdfast.stores.objects.names import MARKS, SPACES, hash_in, head_of, marker_name, nameless_hash, space_of
from holdfast.stores.objects.probe import check_format, probe
from holdfast.stores.objects.record import Record, bind, mark_names, posted, unbind
from holdfast.stores.objects.swaps import ATTEMPTS, Swaps, always_written, pause

__all__ = ["ObjectBackend", "Objects"]

TUNING = Tuning(
    inline_max=65536,
    keyframe_rows=48,
    keyframe_rows_max=256,
    keyframe_bytes=1 << 20,
    pack_max=4 << 20,
    small_piece=32768,
)
"""Every segment and blob costs a request of its own, whatever its size: so few of them, and larger ones."""

PARALLEL = 16
TAIL_BYTES = 32768
"""So many bytes of rows may ride in the head object: a put of that size takes hardly longer than a small one."""


class ObjectBackend:
    """The interface of `Backend` over an object store. Subclass it to give a store its own `kind`."""

    kind = "objects"
    inline = False

    def __init__(
        self,
        objects: Objects,
        *,
        durability: Durability = Durability.DURABLE,
        tuning: Tuning = TUNING,
        parallel: int = PARALLEL,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        self.tuning = tuning
        self._durability = durability
        self._calls = Calls(objects, parallel)
        self._heads = Heads(self._calls)
        self._log = ObjectLog(self._calls)
        self._swaps = Swaps(self._calls, self._heads, self._log, tail_bytes)
        self._finder = Finder(self._calls, self._heads)
        self._is_probed = False

    def open(self) -> None:
        """Refuses a store that ignores conditions. About ten calls."""
        self._calls.check_open()
        if not self._is_probed:
            check_format(self._calls)
            probe(self._calls)
            self._is_probed = True

    def close(self) -> None:
        """See `Backend.close`."""
        self._calls.close()

    def guarantee(self) -> Guarantee:
        """The level this backend was made with: what an acknowledged put survives, only its objects know."""
        self._calls.check_open()
        return Guarantee(level=self._durability, store=self.kind)

    def check(self) -> list[str]:
        """See `Backend.check`: reads the head object of every thread, and lists all objects."""
        found = sorted(filter(None, map(hash_in, self._calls.names(""))))
        marks, markers = set(self._calls.names(MARKS)), list(self._calls.names(SPACES))  # later: they are put first
        listed = {marker.rpartition("/")[2] for marker in markers}
        problems = self._calls.each(lambda marker: self._problem(marker, marks), markers)
        problems += self._calls.each(self._unlisted, [each for each in found if each not in listed])
        return [problem for problem in problems if problem]

    def _unlisted(self, thread_hash: str) -> str:
        """What is wrong with a thread without a marker. One that only has posts needs none."""
        try:
            kept = self._heads.read(head_of(thread_hash))
        except Corrupt as error:
            return f"{error}; and no marker says whose it is"
        if kept is None or not kept.record.head:
            return ""
        thread = kept.record.thread
        return f"object {marker_name(thread)} is missing: listings leave thread {shown_id_of(thread)!r} out"

    def _problem(self, marker: str, marks: Collection[str]) -> str:
        head = head_of(marker.rpartition("/")[2])
        try:
            kept = self._heads.read(head)
        except Corrupt as error:
            return str(error)
        missing = [name for name in _marks(kept) if name not in marks]
        # A commit since then may have made the mark, or made it untrue.
        if not any(self._calls.get(name) is None and name in _marks(self._heads.read(head)) for name in missing):
            return ""
        return f"object {missing[0]} is missing: listings by status and label leave its thread out"

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`. 1 call for each thread."""
        self._calls.check_open()
        return self._calls.each(self._head, threads)

    def _head(self, thread: bytes) -> bytes | None:
        kept = self._heads.fetch(thread)
        if kept.record.leftovers.eras:
            # Nobody writes to a deleted thread any more, so what a crash left of it goes when it is looked at.
            self._swaps.sweep(kept)
        return kept.record.head or None

    # Swaps

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`. Never waits for another writer.

        1 call for the head, 1 for each new blob, and 1 for all rows that leave it or are too large for it; 1 more for a
        new thread, or if the thread was last written by another process. Rows that are dropped cost a listing, and 2
        calls for each segment that is cut, and what is removed 1 each.
        """
        self._calls.check_open()
        outcomes = self._calls.each(self._attempted, swaps)
        errors = [outcome for outcome in outcomes if not isinstance(outcome, bool)]
        if errors:
            raise errors[0] if len(swaps) == 1 else _in_common(outcomes, errors)
        return [outcome is True for outcome in outcomes]

    def _attempted(self, swap: Swap) -> bool | HoldfastError:
        try:
            return self._swaps.make(swap)
        except HoldfastError as error:
            return error

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: a damaged head object whose marker does not say whose it is."""
        thread_hash = nameless_hash(thread)
        if thread_hash:
            try:
                self._heads.read(head_of(thread_hash))
            except Corrupt:
                root = head_of(thread_hash).removesuffix("head")
                self._log.delete([*self._calls.names(root), space_of(thread) + thread_hash])

    # Rows and blobs

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`. 1 call for each segment, and 1 for each thousand of them between the base and the newest.

        No call if all of the rows ride in the head.
        """
        self._calls.check_open()
        known = self._heads.known(thread)
        record = known.record if known and known.record.holds(seq) else self._heads.fetch(thread).record
        return self._steady(record, lambda each: self._log.restored(each, seq, self.tuning.keyframe_rows_max))

    def _steady(self, record: Record, read: Callable[[Record], Found]) -> list[Row]:
        """What is read under a record. If not all of it was there, the record must be the present one."""
        for _ in range(ATTEMPTS):
            found = read(record)
            if found.is_whole:
                return found.rows
            version, record = record.version, self._heads.fetch(record.thread).record
            if record.version == version:
                return found.rows
        raise always_written(record.thread)

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`. 1 call for each."""
        self._calls.check_open()
        wanted = list(ids)
        record = (self._heads.known(thread) or self._heads.fetch(thread)).record
        found = self._calls.each(self._calls.get, [blob_object(record, blob) for blob in wanted])
        return {blob: content[0] for blob, content in zip(wanted, found, strict=True) if content}

    def strays(self, thread: bytes, last: int, known: Collection[bytes]) -> list[bytes]:
        """See `Littering.strays`. 1 call for the head, and 1 for each thousand blobs."""
        self._calls.check_open()
        record = self._heads.fetch(thread).record
        blobs = takewhile(lambda blob: seq_of(blob) <= last, self._log.blob_ids(record))
        return [blob for blob in blobs if blob not in known]

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`. Calls as for `rows`: segments are read whole."""
        self._calls.check_open()
        record = self._heads.fetch(thread).record
        rows = self._steady(record, lambda each: self._log.newest(each, before, limit))
        return [replace(row, body=b"") for row in rows]

    # Threads

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`: in the order of the hashes of their keys, which is stable.

        1 call for each thousand names, and 1 for each head: of the threads with the first of the labels; else with the
        statuses; else, and for `idle` and `complete`, of all threads in the namespace, until `limit` match.
        """
        self._calls.check_open()
        return self._finder.threads(prefix, statuses, labels, cursor, limit)

    # Posts

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`. 3 calls: the head is read, the post put, and the head replaced by one that has it.

        So a post is consumed or dropped exactly when a head says so, and its key is free again in that moment.
        """
        name, placed = token_hex(16), ""
        for attempt in range(ATTEMPTS):
            kept = self._heads.fetch(thread)
            held, place = kept.record.posts.get(key), post_object(kept.record, name)
            if held is not None:
                self._withdraw(placed if held != name else "")
                return held == name
            if place != placed:
                self._withdraw(placed)
                self._put_post(kept, place, value)
                placed = place
            if self._heads.replace(kept, posted(kept.record, key, name), is_swept=kept.is_swept):
                return True
            pause(attempt)
        raise always_written(thread)

    def _put_post(self, kept: Kept, place: str, value: bytes) -> None:
        marker = {marker_name(kept.record.thread): kept.record.thread} if kept.tag is None else {}
        self._log.put({place: bind(place, value), **marker})

    def _withdraw(self, placed: str) -> None:
        """Remove a post that no head speaks of: another of its key was faster, or the thread was deleted."""
        if placed:
            with suppress(StoreError):
                self._calls.delete(placed)

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`. 1 call for the head, and 1 for each post."""
        for _ in range(ATTEMPTS):
            record = self._heads.fetch(thread).record
            names = [post_object(record, name) for _, name in sorted(record.posts.items())]
            found = self._calls.each(self._calls.get, names)
            if None not in found or self._heads.fetch(thread).record.version == record.version:
                return dict(zip(sorted(record.posts), map(_value, names, found), strict=True))
        raise always_written(thread)

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """See `Overlooking.inboxes`. As many calls as one by one, but side by side."""
        return self._calls.each(self.inbox, threads)


def _marks(kept: Kept | None) -> list[str]:
    return mark_names(kept.record) if kept else []


def _value(name: str, found: tuple[bytes, str] | None) -> bytes:
    if found is None:
        raise Corrupt(f"object {name} is missing", record=f"object {name}")
    return unbind(name, found[0])


def _in_common(outcomes: Sequence[bool | HoldfastError], errors: Sequence[HoldfastError]) -> StoreError:
    """One error for a batch. Nothing was written by it only if no swap of it was made, nor perhaps made."""
    first, count = errors[0], len(outcomes)
    unsure = any(outcome is True or isinstance(outcome, OutcomeUnknown) for outcome in outcomes)
    error = OutcomeUnknown if unsure else StoreUnavailable
    failure = error(f"{len(errors)} of {count} swaps failed; the first: {first}")
    failure.__cause__ = first
    return failure
