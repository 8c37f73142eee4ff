"""Threads in an object store, over five calls (`Objects`): the base of the S3 store, and of stores that users write.

A swap puts new blobs and rows side by side, and then the head object, on the condition that nobody else has: 2 calls
for a row, 1 for one that rides in the head or for a head alone, and 1 or 2 more if the status changes. A restore costs
the head, one listing unless all rows ride in it, and each row and blob, side by side.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from secrets import randbelow, token_hex
from time import sleep

from msgspec.structs import replace

from holdfast.history.tuning import Tuning
from holdfast.records.errors import Corrupt, HoldfastError, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing
from holdfast.stores.objects.calls import Calls, Objects
from holdfast.stores.objects.heads import Heads, Kept
from holdfast.stores.objects.listing import Finder
from holdfast.stores.objects.log import NO_CHANGE, Change, ObjectLog, blob_object, post_object
from holdfast.stores.objects.marks import mark_name
from holdfast.stores.objects.names import MARKS, SPACES, head_of, marker_name
from holdfast.stores.objects.probe import check_format, probe
from holdfast.stores.objects.record import Record, bind, posted, unbind

__all__ = ["ObjectBackend", "Objects"]

TUNING = Tuning(
    inline_max=65536,
    keyframe_rows=48,
    keyframe_rows_max=256,
    keyframe_bytes=1 << 20,
    pack_max=4 << 20,
    small_piece=32768,
)
"""Every row and blob costs a request of its own, whatever its size: so few of them, and larger ones."""

PARALLEL = 16
TAIL_BYTES = 32768
"""So many bytes of rows may ride in the head object: a put of that size takes hardly longer than a small one."""
ATTEMPTS = 64


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
        self._log = ObjectLog(self._calls, tail_bytes)
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
        """See `Backend.check`: reads the head object of every thread, and lists all marks."""
        marks = set(self._calls.names(MARKS))
        problems = self._calls.each(lambda marker: self._problem(marker, marks), list(self._calls.names(SPACES)))
        return [problem for problem in problems if problem]

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
            self._sweep(kept)
        return kept.record.head or None

    # Swaps

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`. Never waits for another writer.

        1 call for the head, and 1 for each new blob and each row that does not ride in it; 1 more for a new thread, or
        if the thread was last written by another process.
        """
        self._calls.check_open()
        outcomes = self._calls.each(self._attempted, swaps)
        errors = [outcome for outcome in outcomes if not isinstance(outcome, bool)]
        if errors:
            raise errors[0] if len(swaps) == 1 else _in_common(outcomes, errors)
        return [outcome is True for outcome in outcomes]

    def _attempted(self, swap: Swap) -> bool | HoldfastError:
        try:
            return self._swap_one(swap)
        except HoldfastError as error:
            return error

    def _swap_one(self, swap: Swap) -> bool:
        kept, change = self._present(swap), NO_CHANGE
        for attempt in range(ATTEMPTS):
            if kept.record.head != swap.expected:
                self._take_back(change, swap, kept.record)
                return False
            try:
                before, change = change, self._log.change(kept, swap)
            except Corrupt:
                known, kept = kept, self._heads.fetch(swap.thread)
                if kept.tag == known.tag:
                    raise
                continue  # what is missing was dropped with a record that came between
            self._log.put({name: data for name, data in change.objects.items() if name not in before.objects})
            replaced = self._replaced(kept, change, swap)
            if replaced is None:
                _pause(attempt)
                kept = self._heads.fetch(swap.thread)
            # A client beneath us may have repeated a put whose reply was lost, and so be refused by itself.
            if replaced or kept.record.writer == change.record.writer:
                self._sweep(replaced or kept)
                return True
        raise _always_written(swap.thread)

    def _replaced(self, kept: Kept, change: Change, swap: Swap) -> Kept | None:
        """Replace the head. If nobody knows whether it was, and it can no longer be, what was put for it is removed."""
        try:
            return self._heads.replace(kept, change.record)
        except OutcomeUnknown:
            with suppress(StoreError):
                found = self._heads.fetch(swap.thread)
                if found.tag != kept.tag and found.record.head not in {swap.expected, swap.replacement}:
                    self._take_back(change, swap, found.record)
            raise

    def _present(self, swap: Swap) -> Kept:
        """The record to begin with. One seen before needs no call if its head is as expected, nor does none."""
        known = self._heads.known(swap.thread)
        if known is None and not swap.expected:
            return Kept(Record(swap.thread))
        return known if known and known.record.head == swap.expected else self._heads.fetch(swap.thread)

    def _take_back(self, change: Change, swap: Swap, record: Record) -> None:
        """Remove what a refused swap has put. It was refused all the same if that fails, and nothing of it counts."""
        with suppress(StoreError):
            self._log.delete(self._log.garbage(change, swap, record))

    def _sweep(self, kept: Kept) -> None:
        """Remove what a record has dropped. If that fails, the next swap tries again."""
        if not kept.is_swept:
            with suppress(StoreError):
                self._log.delete(self._log.leftovers(kept.record))
                self._heads.swept(kept)

    # Rows and blobs

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`. 1 call for each row, and 1 for each thousand rows between the base and the newest."""
        self._calls.check_open()
        record = self._record_with(thread, seq)
        return self._log.read(record, self._log.restoring(record, seq, self.tuning.keyframe_rows_max))

    def _record_with(self, thread: bytes, seq: int) -> Record:
        """A record that knows the row, if there is one: what was committed stays so, until it is dropped."""
        known = self._heads.known(thread)
        return known.record if known and known.record.stretch_of(seq) else self._heads.fetch(thread).record

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
        return [blob for blob in self._log.blob_ids(record, last) if blob not in known]

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`. As many calls as rows, which are read whole, and as for `rows`."""
        self._calls.check_open()
        record = self._heads.fetch(thread).record
        rows = self._log.read(record, self._log.newest(record, before, limit))
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
            _pause(attempt)
        raise _always_written(thread)

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
        raise _always_written(thread)

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """See `Overlooking.inboxes`. As many calls as one by one, but side by side."""
        return self._calls.each(self.inbox, threads)


def _marks(kept: Kept | None) -> list[str]:
    return [mark_name(kept.record.thread, *mark) for mark in kept.record.marks.items()] if kept else []


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


def _always_written(thread: bytes) -> StoreUnavailable:
    name = thread[1 + thread[0] :].decode(errors="replace")
    return StoreUnavailable(f"thread {name!r} is being written to all the time; try again")


def _pause(attempt: int) -> None:
    """Only a collision costs time: at once the first time, then a random while, longer each time."""
    sleep(randbelow(min(attempt, 25) * 2 + 1) / 1000)
