"""Threads in an object store, over five calls (`Objects`): the base of the S3 store, and of stores that users write.

A swap puts new blobs and segments in parallel, then replaces the head object on the condition that it has not changed.
The head lists all that counts, so a reader needs the head, and then the segments and blobs, in parallel.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from secrets import token_hex

from msgspec.structs import replace

from holdfast.history.tuning import Tuning
from holdfast.records.errors import Corrupt, HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing
from holdfast.stores.objects.calls import Calls, Objects
from holdfast.stores.objects.heads import ATTEMPTS, Heads, conflicting, pause
from holdfast.stores.objects.listing import Listings
from holdfast.stores.objects.log import Log
from holdfast.stores.objects.names import blob_of, head_of, marker_name, placeholder_hash, root_of, space_of
from holdfast.stores.objects.probe import check_format, probe
from holdfast.stores.objects.record import bind, posted, unbind
from holdfast.stores.objects.swap import Swaps, seq_of

__all__ = ["ObjectBackend", "Objects"]

TUNING = Tuning(
    inline_max=65536,
    keyframe_rows=48,
    keyframe_rows_max=256,
    keyframe_bytes=1 << 20,
    pack_max=4 << 20,
    small_piece=32768,
)
"""Every segment and blob costs a request, whatever its size: so they are few and large."""

PARALLEL = 16
TAIL_BYTES = 32768
"""How many bytes of rows the head object may hold: a put of that size takes hardly longer than a small one."""


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
        self._log = Log(self._calls, self._heads)
        self._swaps = Swaps(self._calls, self._heads, self._log, tail_bytes)
        self._listings = Listings(self._calls, self._heads)
        self._is_probed = False

    def open(self) -> None:
        """See `Backend.open`. Refuse a store that ignores conditions. About ten calls."""
        self._calls.check_open()
        if not self._is_probed:
            check_format(self._calls)
            probe(self._calls)
            self._is_probed = True

    def close(self) -> None:
        """See `Backend.close`."""
        self._calls.close()

    def guarantee(self) -> Guarantee:
        """Return the level this backend was made with: only the author of its calls knows what a put survives."""
        self._calls.check_open()
        return Guarantee(level=self._durability, store=self.kind)

    def check(self) -> list[str]:
        """See `Backend.check`. Reads the head object of every thread, and lists all objects."""
        return self._listings.check()

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`. 1 call for each thread."""
        self._calls.check_open()
        return self._calls.each(self._head, threads)

    def _head(self, thread: bytes) -> bytes | None:
        stored = self._heads.fetch(thread)
        if stored.record.leftovers.eras:
            # Nobody writes to a deleted thread any more, so a reader deletes what a crash left of it.
            self._swaps.sweep(stored)
        return stored.record.head or None

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`. Never waits for another writer.

        1 call for the head, 1 for each new blob, and 1 for all rows that move out of the head or are too large for it;
        1 more for a new thread, or if another process wrote the thread last. Dropping rows costs a listing, 2 calls for
        each segment that is cut, and 1 for each object that is deleted.
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
        """See `Misplacing.drop_misplaced`: a damaged head object whose marker is lost too."""
        thread_hash = placeholder_hash(thread)
        if thread_hash:
            try:
                self._heads.read(head_of(thread_hash))
            except Corrupt:
                self._calls.delete_all([*self._calls.names(root_of(thread_hash)), space_of(thread) + thread_hash])

    # Rows and blobs

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`. 1 call for each segment; none if the head has all of the rows."""
        self._calls.check_open()
        return self._log.restore(thread, seq)

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`. 1 call for the head, and 1 for each segment, which is read whole."""
        self._calls.check_open()
        return [replace(row, body=b"") for row in self._log.newest(thread, before, limit)]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`. 1 call for each."""
        self._calls.check_open()
        wanted = list(ids)
        record = (self._heads.cached(thread) or self._heads.fetch(thread)).record
        found = self._calls.each(self._calls.get, [record.blob_name(blob) for blob in wanted])
        return {blob: content[0] for blob, content in zip(wanted, found, strict=True) if content}

    def strays(self, thread: bytes, last: int, known: Collection[bytes]) -> list[bytes]:
        """See `Littering.strays`. 1 call for the head, and 1 for each thousand blobs."""
        self._calls.check_open()
        folder = self._heads.fetch(thread).record.blob_name(b"")
        blobs = filter(None, (blob_of(name.removeprefix(folder)) for name in self._calls.names(folder)))
        return [blob for blob in takewhile(lambda blob: seq_of(blob) <= last, blobs) if blob not in known]

    # Threads

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`. Ordered by the hashes of the keys, which is stable.

        1 call for each thousand names, and 1 for each head: of the threads with the first of the labels; else with the
        statuses; else, and for `idle` and `complete`, of all threads in the namespace, until `limit` match.
        """
        self._calls.check_open()
        return self._listings.threads(prefix, statuses, labels, cursor, limit)

    # Posts

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`. 3 calls: read the head, put the post, and replace the head by one that lists it.

        So a post is consumed or dropped exactly when a head says so, and its key is free again at that moment.
        """
        post, placed = token_hex(16), ""
        for attempt in range(ATTEMPTS):
            stored = self._heads.fetch(thread)
            other, name = stored.record.posts.get(key), stored.record.post_name(post)
            if other is not None:
                self._withdraw(placed if other != post else "")
                return other == post
            if name != placed:
                self._withdraw(placed)
                marker = {marker_name(thread): thread} if stored.tag is None else {}
                self._calls.put_all({name: bind(name, value), **marker})
                placed = name
            if self._heads.replace(stored, posted(stored.record, key, post), is_swept=stored.is_swept):
                return True
            pause(attempt)
        raise conflicting(thread)

    def _withdraw(self, placed: str) -> None:
        """Delete a post that no head lists: another post of its key won, or the thread was deleted."""
        if placed:
            with suppress(StoreError):
                self._calls.delete(placed)

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`. 1 call for the head, and 1 for each post."""
        for _ in range(ATTEMPTS):
            record = self._heads.fetch(thread).record
            names = [record.post_name(post) for _, post in sorted(record.posts.items())]
            found = self._calls.each(self._calls.get, names)
            if None not in found or self._heads.fetch(thread).record.version == record.version:
                return dict(zip(sorted(record.posts), map(_value, names, found), strict=True))
        raise conflicting(thread)

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """See `Overlooking.inboxes`. As many calls as one by one, but in parallel."""
        return self._calls.each(self.inbox, threads)


def _value(name: str, found: tuple[bytes, str] | None) -> bytes:
    if found is None:
        raise Corrupt(f"object {name} is missing", record=f"object {name}")
    return unbind(name, found[0])


def _in_common(outcomes: Sequence[bool | HoldfastError], errors: Sequence[HoldfastError]) -> StoreError:
    """Return one error for a batch. Nothing was written only if no swap of it was made, or may have been made."""
    first, count = errors[0], len(outcomes)
    unsure = any(outcome is True or isinstance(outcome, OutcomeUnknown) for outcome in outcomes)
    error = OutcomeUnknown if unsure else StoreUnavailable
    failure = error(f"{len(errors)} of {count} swaps failed; the first: {first}")
    failure.__cause__ = first
    return failure
