"""Making one swap: objects first, then the head, then the removal of what no longer counts, or never did."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import randbelow
from time import sleep

from holdfast.records.errors import Corrupt, StoreError, StoreUnavailable
from holdfast.records.rows import Swap
from holdfast.stores.backend import replaces_lost_head
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.changes import Change, Changes
from holdfast.stores.objects.heads import Heads, Kept
from holdfast.stores.objects.litter import Litter
from holdfast.stores.objects.log import ObjectLog
from holdfast.stores.objects.record import Record

ATTEMPTS = 64


class Swaps:
    """The swaps of an object store."""

    def __init__(self, calls: Calls, heads: Heads, log: ObjectLog, tail_bytes: int) -> None:
        self._heads = heads
        self._log = log
        self._changes = Changes(log, tail_bytes)
        self._litter = Litter(calls, log)

    def make(self, swap: Swap) -> bool:
        """See `Backend.swap`."""
        kept, tried = self._present(swap), list[Change]()
        for attempt in range(ATTEMPTS):
            if kept.record.head != swap.expected:
                self._take_back(tried, swap, kept.record)
                return False
            try:
                change = self._changes.of(kept, swap)
            except Corrupt:
                known, kept = kept, self._fetch(swap)
                if kept.tag == known.tag:
                    self._take_back(tried, swap, kept.record)
                    raise
                continue  # what is missing was dropped, or put elsewhere, with a record that came between
            tried.append(change)
            replaced = self._replaced(kept, tried, swap)
            if replaced is None:
                pause(attempt)
                kept = self._fetch(swap)
            # A client beneath us may have repeated a put whose reply was lost, and so be refused by itself.
            if replaced or kept.record.writer == change.record.writer:
                self._tidy(replaced or kept, tried[:-1], swap)
                return True
        self._take_back(tried, swap, kept.record)
        raise always_written(swap.thread)

    def _present(self, swap: Swap) -> Kept:
        """The record to begin with. One seen before needs no call if its head is as expected, nor does none."""
        known = self._heads.known(swap.thread)
        if known is None and not swap.expected:
            return Kept(Record(swap.thread))
        return known if known and known.record.head == swap.expected else self._fetch(swap)

    def _fetch(self, swap: Swap) -> Kept:
        return self._heads.fetch(swap.thread, also_lost=replaces_lost_head(swap))

    def _replaced(self, kept: Kept, tried: Sequence[Change], swap: Swap) -> Kept | None:
        """Put what comes first, then replace the head; None if it is not the present one any more.

        If that fails, and cannot come true any more, what was put is removed: it may hold what others have erased.
        """
        *before, change = tried
        known = {name for each in before for name in each.objects}
        try:
            self._log.put({name: data for name, data in change.objects.items() if name not in known})
            return self._heads.replace(kept, change.record)
        except StoreError:
            with suppress(StoreError):
                found = self._heads.fetch(swap.thread) if change.objects else kept
                if found.tag != kept.tag:
                    self._take_back(tried, swap, found.record)
            raise

    # Removing

    def sweep(self, kept: Kept) -> bool:
        """Remove what a record has dropped. False if that failed: then the next swap tries again."""
        if not kept.is_swept:
            try:
                self._log.delete(self._litter.dropped(kept.record))
            except StoreError:
                return False
            self._heads.swept(kept)
        return True

    def _tidy(self, kept: Kept, tried: Sequence[Change], swap: Swap) -> None:
        """Remove what a record has dropped, and what attempts before it have put in vain."""
        is_swept = self.sweep(kept)
        if tried:
            self._remove(lambda: self._litter.in_vain(tried, kept.record))
        if swap.drop.secure and not is_swept:
            raise StoreUnavailable("the past is dropped, but not all of its objects could be removed; erase again")

    def _take_back(self, tried: Sequence[Change], swap: Swap, record: Record) -> None:
        """Remove what a refused swap has put."""
        if tried:
            self._remove(lambda: self._litter.in_vain(tried, record))
            self._remove(lambda: self._litter.refused_blobs(tried[-1], swap, record))

    def _remove(self, litter: Callable[[], list[str]]) -> None:
        """If that fails, nothing of it counts all the same."""
        with suppress(StoreError):
            self._log.delete(litter())


def always_written(thread: bytes) -> StoreUnavailable:
    """The error after the last attempt, when each conflicted with another write."""
    name = thread[1 + thread[0] :].decode(errors="replace")
    return StoreUnavailable(f"gave up after {ATTEMPTS} conflicting writes to thread {name!r}; retry later")


def pause(attempt: int) -> None:
    """Only a collision costs time: at once the first time, then a random while, longer each time."""
    sleep(randbelow(min(attempt, 25) * 2 + 1) / 1000)
