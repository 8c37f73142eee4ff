"""The interface a store is built on: blocking, small, and about bytes only.

There is one atomic operation, `swap`: replace the head of a thread if its bytes are still the expected ones, and change
the log with it. Commits, claims, renewals, releases, pins, prunes, deletes and revivals are all swaps, decided by pure
functions (stores/decisions.py), so a backend holds no rules about leases or fencing, and cannot get them wrong.

Threads are named by their key (records/identity.py): 2 to 641 opaque bytes, of any value, injective. What a backend
raises: `StoreUnavailable` if certainly nothing was written, `OutcomeUnknown` if a write may or may not have happened,
`Corrupt` if its own structures are damaged, `StoreClosed` after `close`. Every method may be called from any thread.
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
"""In the place of a status, where threads are counted: the head cannot be read."""


class Busy(Exception):
    """`swap(wait=False)` would have had to wait for another writer. Nothing was done."""


class Listing(msgspec.Struct, frozen=True):
    """Threads with their heads, and a cursor for those that follow, or None."""

    heads: list[tuple[bytes, bytes]]
    next: str | None


class Backend(Protocol):
    """All that a store must offer."""

    kind: str
    """The store's name in reports, e.g. `sqlite`."""
    tuning: Tuning
    """Where bytes should go, from what a row and a blob cost to read here."""
    inline: bool
    """True if a small swap is fast enough to be made on the event loop itself."""

    def open(self) -> None:
        """Connect, create or migrate. Idempotent.

        Refuses a store written by a newer version, or a durability level that cannot be given.
        """
        ...

    def close(self) -> None:
        """Release everything. Idempotent. Called while no other method runs."""
        ...

    def guarantee(self) -> Guarantee:
        """The effective durability, read from the real settings."""
        ...

    def check(self) -> list[str]:
        """What is wrong with the backend's own structures, a sentence each; [] if nothing is."""
        ...

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """The stored head of each thread, None where there is none. A read after an acknowledged swap sees it."""
        ...

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Make each swap all or nothing; True where the head was replaced, False where it was not as expected.

        The swaps name different threads, in ascending order. One refused does not touch the others. An acknowledged
        swap has the store's durability. Rows and blobs of a swap may exist already (a repeated write): then they are
        written again or left, both are right, since they are equal. With `wait=False` raises `Busy` rather than wait
        for another process. A swap that expects no head and drops everything also replaces a head that was lost.
        """
        ...

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """Rows base..seq of the row at `seq`, in order, in one round trip; those that are there, [] if none."""
        ...

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """The stored bytes of these blobs; an id that is not there is left out."""
        ...

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """Rows with seq < `before`, newest first, at most `limit`, with empty bodies."""
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
        The order is stable under paging: newest created first, or whatever fixed order the store has. A head that
        cannot be read is listed too, as it is stored: where there is no index, whatever is asked for. One that was
        lost, or differs from the index, is listed as `LOST_HEAD`. If not even the thread's key can be read, list it in
        every namespace under a name that `Misplacing.drop_misplaced` finds it by.
        """
        ...

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """Leave a message for a thread; False if one of that key is there already.

        Needs no lease, and has the store's durability. A swap consumes messages; dropping everything drops them too.
        """
        ...

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """The messages left for a thread, in the order of their keys."""
        ...


class Transaction(Protocol):
    """A transaction on a connection of the user's."""

    async def begin(self) -> None:
        """Begin it. `ConfigurationError` if the connection does not lead to this store, or is in a transaction."""
        ...

    async def swap(self, swap: Swap) -> bool:
        """Make one swap in it; False if it was refused."""
        ...

    async def commit(self) -> None:
        """Commit. `OutcomeUnknown` if the reply was lost; any other error says that it was rolled back."""
        ...

    async def roll_back(self, error: BaseException) -> None:
        """Undo everything, because of this error. Raises nothing of its own."""
        ...


@runtime_checkable
class Transacting(Protocol):
    """What a backend offers besides if a swap can be part of a transaction of the user's."""

    def transaction(self, connection: object, ports: Ports) -> Transaction:
        """A transaction on that connection, not yet begun."""
        ...


@runtime_checkable
class Littering(Protocol):
    """What a backend offers besides if a swap that was never committed can leave blobs behind."""

    def strays(self, thread: bytes, last: int, known: Collection[bytes]) -> list[bytes]:
        """The ids of blobs that were written for rows up to `last`, and are not among the known ones.

        If `known` are the blobs of all rows, and `last` is the newest row, nobody can commit them any more.
        """
        ...


@runtime_checkable
class Overlooking(Protocol):
    """What a backend offers besides if to look into many inboxes at once costs less than one by one."""

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """`Backend.inbox` of each thread."""
        ...


@runtime_checkable
class Counting(Protocol):
    """What a backend offers besides if it can count threads without reading all of their heads."""

    def counts(self, prefix: bytes) -> dict[str, int]:
        """How many threads `Backend.threads` would list under each status, for that prefix; none of them is zero."""
        ...


@runtime_checkable
class Misplacing(Protocol):
    """What a backend offers besides if its index can list a thread where `heads` does not look for it."""

    def drop_misplaced(self, thread: bytes) -> None:
        """Drop all that is listed under this key, and is not the thread that `heads` finds."""
        ...


def replaces_lost_head(swap: Swap) -> bool:
    """True if a swap puts a tombstone where no head is expected: also where one was lost."""
    return swap.drop.everything and not swap.expected


def counts(backend: Backend, prefix: bytes) -> dict[str, int]:
    """How many threads there are of each status, by the backend's index; by listing all where it has none."""
    return backend.counts(prefix) if isinstance(backend, Counting) else count_listed(backend, prefix)


def count_listed(backend: Backend, prefix: bytes) -> dict[str, int]:
    """The same by listing all threads: for backends without an index of statuses."""
    return dict(Counter(counted_as(*entry) for entry in all_heads(backend, prefix)))


def all_heads(backend: Backend, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every listed thread under a prefix, with its head, page by page."""
    cursor: str | None = None
    while True:
        listing = backend.threads(prefix, (), (), cursor, PAGE)
        yield from listing.heads
        cursor = listing.next
        if cursor is None:
            return


def inboxes(backend: Backend, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
    """The messages left for each of these threads."""
    if len(threads) > 1 and isinstance(backend, Overlooking):
        return backend.inboxes(threads)
    return [backend.inbox(thread) for thread in threads]


def readable_head(thread: bytes, encoded: bytes) -> Head | None:
    """The head in these bytes; None if it is damaged, or a newer version wrote it."""
    try:
        return decode_head(thread, encoded)
    except (Corrupt, IncompatibleCheckpoint):
        return None


def counted_as(thread: bytes, encoded: bytes) -> str:
    """The status to count a thread under; empty for one that is not listed."""
    head = readable_head(thread, encoded)
    return DAMAGED if head is None else head.listed_as


def belongs(thread: bytes, encoded: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> bool:
    """True if a stored head belongs into a listing. One that cannot be read belongs into each: it may be any."""
    head = readable_head(thread, encoded)
    return head is None or matches(head, statuses, labels)


def matches(head: Head, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> bool:
    """True if a thread belongs into a listing: the filter of `Backend.threads`, for backends without an index."""
    listed = head.listed_as
    if not listed or (statuses and listed not in statuses):
        return False
    return all(any(token in head.labels for token in choices) for choices in labels)
