"""The interface a store is built on: blocking, small, and about bytes only.

There is one atomic operation, `swap`: replace the head of a thread if its bytes are still the expected ones, and change
the log with it. Commits, claims, renewals, releases, pins, prunes, deletes and revivals are all swaps, decided by pure
functions (stores/decisions.py). A backend knows nothing of leases or fencing. `Swap.head` is the new head, decoded: an
index that a backend keeps beside its threads is updated from it, in the same swap.

Threads are named by their key (records/identity.py): 2 to 641 opaque bytes of any value, injective. A backend raises
`StoreUnavailable` if certainly nothing was written, `OutcomeUnknown` if a write may or may not have happened, `Corrupt`
if its own structures are damaged, `StoreClosed` after `close`. Every method may be called from any thread.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.history.tuning import Tuning
from holdfast.ports import Ports
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import Head, decode_head
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap

PAGE = 1000
DAMAGED = "damaged"
"""Counted in place of a status if the head cannot be read."""


class Busy(Exception):
    """Raised by `swap(wait=False)` if it would have to wait for another writer. Nothing was done."""


class Listing(msgspec.Struct, frozen=True):
    """Threads with their heads, and a cursor for the next page, or None."""

    heads: list[tuple[bytes, bytes]]
    next: str | None


class Backend(Protocol):
    """Everything a store must implement."""

    kind: str
    """The store's name in reports, e.g. `sqlite`."""
    tuning: Tuning
    """Where bytes are placed, depending on what rows and blobs cost to read here."""
    inline: bool
    """True if a small swap is fast enough to run on the event loop itself."""

    def open(self) -> None:
        """Connect, create or migrate. Idempotent.

        Refuses a store written by a newer version, or a durability level that it cannot offer.
        """
        ...

    def close(self) -> None:
        """Release everything. Idempotent. Called while no other method runs."""
        ...

    def guarantee(self) -> Guarantee:
        """Return the effective durability, read from the real settings."""
        ...

    def check(self) -> list[str]:
        """Return what is wrong with the backend's own structures, a sentence each; [] if nothing is."""
        ...

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored head of each thread, None where there is none. Sees every acknowledged swap."""
        ...

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Make each swap all or nothing; True where the head was replaced, False where it was not as expected.

        The swaps name different threads, in ascending order. One refused does not touch the others. If one fails and
        none was made, raises `StoreUnavailable`, also for damage: each can then be tried alone. An acknowledged swap
        has the store's durability. Rows and blobs of a swap may exist already (a repeated write): they are equal,
        so overwriting and keeping them are both right. With `wait=False` raises `Busy` rather than wait for another
        process. A swap that expects no head and drops everything also replaces a head that was lost.
        """
        ...

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """Return rows base..seq of the row at `seq`, in order, in one round trip; missing ones are left out."""
        ...

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the stored bytes of these blobs; missing ones are left out."""
        ...

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """Return up to `limit` rows with seq < `before`, newest first, with empty bodies."""
        ...

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """Threads whose key begins with `prefix` and whose head is listed (`Head.listed_as` is not empty).

        `statuses`: any of these, or all if empty. `labels`: for each collection, the head has one of its tokens.
        The order is stable under paging: newest created first, or another fixed order. A head that cannot be read is
        listed as it is stored; without an index, in every listing. A head that was lost, or differs from the index, is
        listed as `LOST_HEAD`. If even the thread's key cannot be read, list it in every namespace under a name by which
        `Misplacing.drop_misplaced` finds it.
        """
        ...

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """Leave a message for a thread; False if one of that key is there already.

        Needs no lease, and has the store's durability. A swap consumes messages; dropping everything drops them too.
        """
        ...

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """Return the messages left for a thread, in the order of their keys."""
        ...


class Transaction(Protocol):
    """A transaction on the user's own connection."""

    async def begin(self) -> None:
        """Begin it. `ConfigurationError` if the connection belongs to another store, or is in a transaction."""
        ...

    async def join(self) -> None:
        """Become a part of the transaction that is open on the connection: then `commit` only ends this part.

        `ConfigurationError` if the connection belongs to another store, or no transaction is open.
        """
        ...

    async def swap(self, swap: Swap) -> bool:
        """Make one swap in the transaction; False if it was refused."""
        ...

    async def commit(self) -> None:
        """Commit. `OutcomeUnknown` if the reply was lost; any other error means that it was rolled back."""
        ...

    async def roll_back(self, error: BaseException) -> None:
        """Roll back, because of this error. Never raises."""
        ...


@runtime_checkable
class Transacting(Protocol):
    """An optional interface: a swap can be part of the user's transaction."""

    def transaction(self, connection: object, ports: Ports) -> Transaction:
        """Return a transaction on that connection, not yet begun."""
        ...


@runtime_checkable
class Littering(Protocol):
    """An optional interface: a swap that was never committed can leave blobs behind."""

    def strays(self, thread: bytes, last: int, known: Collection[bytes]) -> list[bytes]:
        """Return the ids of blobs that were written for rows up to `last`, and are not among the known ones.

        If `known` are the blobs of all rows, and `last` is the newest row, they can never be committed.
        """
        ...


@runtime_checkable
class Overlooking(Protocol):
    """An optional interface: reading many inboxes at once costs less than one by one."""

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """Return `Backend.inbox` of each thread."""
        ...


@runtime_checkable
class Counting(Protocol):
    """An optional interface: threads can be counted without reading all heads."""

    def counts(self, prefix: bytes) -> dict[str, int]:
        """Count the threads that `Backend.threads` lists under each status, for that prefix; without zeros."""
        ...


@runtime_checkable
class Misplacing(Protocol):
    """An optional interface: the index can list a thread where `heads` does not look for it."""

    def drop_misplaced(self, thread: bytes) -> None:
        """Drop what is listed under this key and is not the thread that `heads` finds."""
        ...


def replaces_lost_head(swap: Swap) -> bool:
    """True if a swap puts a tombstone where no head is expected, or where one was lost."""
    return swap.drop.everything and not swap.expected


def counts(backend: Backend, prefix: bytes) -> dict[str, int]:
    """Count the threads of each status by the backend's index, or by listing all if it has none."""
    return backend.counts(prefix) if isinstance(backend, Counting) else count_listed(backend, prefix)


def count_listed(backend: Backend, prefix: bytes) -> dict[str, int]:
    """Count by listing all threads: for backends without an index of statuses."""
    return dict(Counter(counted_as(*entry) for entry in all_heads(backend, prefix)))


def all_heads(backend: Backend, prefix: bytes, statuses: Collection[str] = ()) -> Iterator[tuple[bytes, bytes]]:
    """Yield every listed thread under a prefix with its head, page by page; with `statuses` only those."""
    cursor: str | None = None
    while True:
        listing = backend.threads(prefix, statuses, (), cursor, PAGE)
        yield from listing.heads
        cursor = listing.next
        if cursor is None:
            return


def inboxes(backend: Backend, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
    """Return the messages left for each of these threads."""
    if len(threads) > 1 and isinstance(backend, Overlooking):
        return backend.inboxes(threads)
    return [backend.inbox(thread) for thread in threads]


def readable_head(thread: bytes, encoded: bytes) -> Head | None:
    """Decode a head; None if it is damaged, or a newer version wrote it."""
    try:
        return decode_head(thread, encoded)
    except (Corrupt, IncompatibleCheckpoint):
        return None


def counted_as(thread: bytes, encoded: bytes) -> str:
    """Return the status to count a thread under; empty for one that is not listed."""
    head = readable_head(thread, encoded)
    return DAMAGED if head is None else head.listed_as


def belongs(thread: bytes, encoded: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> bool:
    """True if a stored head belongs in a listing. One that cannot be read belongs in every listing."""
    head = readable_head(thread, encoded)
    return head is None or matches(head, statuses, labels)


def matches(head: Head, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> bool:
    """True if a thread belongs in a listing: the filter of `Backend.threads`, for backends without an index."""
    listed = head.listed_as
    if not listed or (statuses and listed not in statuses):
        return False
    return all(any(token in head.labels for token in choices) for choices in labels)
