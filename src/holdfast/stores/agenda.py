"""The agenda: which threads of a queue are due, for processes that look for work.

A thread's entry follows from its head alone (`entry_of`). A swap says whether it changes the entry (`Swap.moves`):
`swap_of` decides that, and a backend that keeps entries updates them in the swap. Three rules: appends and renewals of
a lease never touch the agenda; an entry may be early, never late, since a look at the head decides; `verify` compares
all heads with the agenda.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from holdfast.records.head import Head
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.records.words import Status

PARKED = 1 << 60
"""The due time of a thread that only an answer makes due."""
HIDE = 2_000_000
"""For how many microseconds nobody else is given an entry that was taken."""
UNREADABLE = 60_000_000
"""For how many microseconds nobody is given a thread that cannot be read."""
TELL = "tell:"
"""How the key of a message begins that asks a thread to wake another one when it ends: it calls the thread itself to
nothing. Its value names the other one."""
UNHELD = {Status.QUEUED.value, Status.WORKING.value}
OPEN = (*sorted(UNHELD), Status.INPUT_REQUIRED.value)
"""The statuses of threads that have an entry."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What the agenda has of a thread. Times are microseconds since 1970."""

    queue: str
    route: bytes
    priority: int
    lane: bytes
    held: bool
    due: int


class Due(msgspec.Struct, frozen=True):
    """A thread that was taken from the agenda, with its head as it is stored."""

    thread: bytes
    entry: Entry
    head: bytes


class Pace(msgspec.Struct, frozen=True):
    """A rate: the key of its bucket, what one unit costs, and how far the bucket may run ahead, in microseconds."""

    bucket: bytes
    cost: int
    burst: int


class QueueLimits(msgspec.Struct, frozen=True):
    """What the workers of a queue agree on."""

    concurrency: int | None = None
    """The most entries of the queue that are held at once."""
    each: int | None = None
    """The most entries of one lane that are held at once."""
    pace: Pace | None = None
    """Charged one unit for each thread that begins: its route is one of `unbegun`."""
    unbegun: frozenset[bytes] = frozenset()


NO_LIMITS = QueueLimits()


class Taken(msgspec.Struct, frozen=True):
    """What `take` found: the due threads, when a look can find more (`PARKED` if never), and the last lane served.

    If limits hold back what is due, a look can find more when the pace allows it, or when an entry that is held is due.
    """

    entries: Sequence[Due]
    next_due: int
    last_lane: bytes
    has_more: bool = False
    """True if due threads were left: there are too many, limits hold them back, or others are just taking them."""


class Depth(msgspec.Struct, frozen=True):
    """How many threads of a queue are ready, delayed, running, and waiting for an answer."""

    ready: int = 0
    delayed: int = 0
    running: int = 0
    waiting: int = 0
    oldest_ready: int = 0
    """Since when the oldest ready thread is due; 0 if none is ready."""


@runtime_checkable
class Agenda(Protocol):
    """An optional interface of a backend: it keeps the entries of all threads, and finds those that are due."""

    def take(
        self,
        prefix: bytes,
        queue: str,
        routes: Collection[bytes],
        most: int,
        after: bytes = b"",
        limits: QueueLimits = NO_LIMITS,
        low: int = 0,
    ) -> Taken:
        """Take up to `most` due threads with one of these routes, whose keys begin with `prefix`.

        Nobody else is given them for `HIDE`: they are marked as held until then. First come those that were held and
        are due, whose owner may be dead: they have their place, and no limit holds them back. Then come the others, by
        priority, then lanes in turn, beginning after the lane `after`, then by their due time. What was due before
        `low` is not searched for, held or not: after a look that left nothing due, raise it to about the time of that
        look. Entries can become visible late, so look from 0 on every few seconds. A thread whose head cannot be read
        is given too, and nobody holds it then: see `after_taking`.
        """
        ...

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """Leave a message for a thread, as `Backend.post` does, and make the thread due: both, or neither."""
        ...

    def look_again(self, thread: bytes, due: int) -> None:
        """Make the entry what the thread's present head says, except that it is due at `due` if that is earlier.

        If it is due by now, and was taken a moment ago, it stays as it is: see `after_call`.
        """
        ...

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """Count the threads of a queue."""
        ...

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """Return all entries of threads whose keys begin with `prefix`, to compare them with the heads."""
        ...

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """Charge a bucket, and return 0; or return for how many microseconds to wait, and charge nothing.

        A bucket is the time at which it is paid off. It is charged, even with more than is left, if that is at most
        `burst` ahead of now. A negative `cost` returns what was not used.
        """
        ...

    def now(self) -> int:
        """Return the time of the store, in microseconds since 1970: entries are due by it, and leases expire by it.

        It is called often, also where nothing may block: once the store is open, it neither blocks nor fails.
        """
        ...


class Listener(Protocol):
    """Hears what is announced."""

    @property
    def is_connected(self) -> bool:
        """False while nothing can be heard: those who wait must look more often."""
        ...

    def wait(self, timeout: float) -> bool:
        """Block until something is announced, and return True; False after `timeout` seconds. True may be in vain."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """An optional interface of a backend: it tells other processes at once that a thread is due.

    An announcement is a hint, and may be lost: the agenda alone says what is due.
    """

    def announce(self, prefix: bytes) -> None:
        """Notify listeners that threads of this namespace may be due. Never raises. Not within a transaction."""
        ...

    def listener(self, prefix: bytes) -> Listener:
        """Return a listener for announcements from now on."""
        ...


@runtime_checkable
class OneHost(Protocol):
    """An optional interface of a backend whose users are all on one host: they can see which owners are dead."""

    def held(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the threads that a run holds and that have an entry, with their heads."""
        ...


@runtime_checkable
class Sweeping(Protocol):
    """An optional interface of a backend whose agenda needs care now and then."""

    def sweep(self, prefix: bytes) -> int:
        """Repair the entries that differ from the heads of open threads, and return how many; drop what is useless."""
        ...


def entry_of(head: Head) -> Entry | None:
    """Return the entry of a thread with this head; None if it has none."""
    if not head.route or head.deleted or head.status not in OPEN:
        return None
    due = head.expires_at
    if not head.owner:  # never earlier than it was written: a look need not search the past for new entries
        is_parked = not due and head.status not in UNHELD
        due = PARKED if is_parked else max(due, head.updated_at)
    return Entry(head.queue, head.route, head.priority, head.lane, bool(head.owner), due)


def entry_after(swap: Swap, messages: Collection[str]) -> Entry | None:
    """Return the entry of a thread after a swap, if these messages wait for the thread then.

    One that the writer has not heard makes it due at once.
    """
    entry, heard = entry_of(swap.head), swap.heard
    if entry is None or heard is None:
        return entry
    is_called = any(key not in heard and not key.startswith(TELL) for key in messages)
    return earlier(entry, swap.head.updated_at) if is_called else entry


def moves(old: Head, new: Head) -> bool:
    """True if the entry changes: always, but for a lease that is renewed and for a due time that only its age moves."""
    if not old.route and not new.route:
        return False
    before, after = entry_of(old), entry_of(new)
    if before is None or after is None:
        return before is not after
    if replace(before, due=after.due) != after or after.due < before.due:
        return True
    return old.token != new.token if after.held else old.expires_at != new.expires_at


def swap_of(
    thread: bytes,
    old: Head,
    expected: bytes,
    head: Head,
    replacement: bytes,
    rows: tuple[Row, ...] = (),
    blobs: Mapping[bytes, bytes] | None = None,
    consumed: tuple[str, ...] = (),
    drop: Drop = KEEP_ALL,
    size: int = 0,
    heard: frozenset[str] | None = None,
) -> Swap:
    """Return the swap from one head to another: the one place that decides whether it changes the agenda."""
    is_moved = drop.everything or moves(old, head)
    return Swap(thread, expected, replacement, head, rows, blobs or {}, consumed, drop, size, is_moved, heard)


def place_of(thread: bytes, queue: str) -> bytes:
    """Return where a thread queues, or all threads with its namespace: the namespace and the queue, as one key."""
    return thread[: 1 + thread[0]] + queue.encode("utf-8", "surrogatepass")


def queue_in(place: bytes, thread: bytes) -> str:
    """Return the queue of a thread with this place; of one in another namespace, the place itself."""
    return place.removeprefix(thread[: 1 + thread[0]]).decode("utf-8", "backslashreplace")


def earlier(entry: Entry, due: int) -> Entry:
    """Return the entry, due at `due` if that is earlier."""
    return replace(entry, due=due) if due < entry.due else entry


def after_call(entry: Entry | None, wanted: Entry | None, due: int, now: int) -> Entry | None:
    """Return what `look_again` makes of an entry, if the head wants another one.

    Who has taken a thread claims it in a moment, and sees the message that it was called for. Were it free meanwhile,
    another thread would get its place, and both would be held.
    """
    is_taken = entry is not None and wanted is not None and entry.held and not wanted.held and entry.due > now
    if is_taken and due <= now:
        return entry
    return wanted and earlier(wanted, due)


def after_taking(entry: Entry, now: int, *, is_readable: bool) -> Entry:
    """Return what `take` makes of an entry: held for a moment; if its head cannot be read, free, and due much later."""
    return replace(entry, held=is_readable, due=now + (HIDE if is_readable else UNREADABLE))


def agrees(entry: Entry | None, wanted: Entry | None, now: int) -> bool:
    """True if a stored entry is one that a thread may have: as its head says, earlier, or just taken."""
    if entry is None or wanted is None:
        return entry is wanted
    is_taken = entry.held and entry.due <= now + HIDE
    same = replace(entry, due=wanted.due, held=wanted.held) == wanted
    return same and (is_taken or (entry.held == wanted.held and entry.due <= wanted.due))
