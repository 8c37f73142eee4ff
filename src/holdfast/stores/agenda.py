"""The agenda: which threads of a queue are due, for processes that look for work.

A thread's entry follows from its head alone (`entry_of`). A swap says whether it changes the entry (`Swap.moves`):
`swap_of` decides that, and a backend that keeps entries updates them in the swap. Three rules: appends and renewals of
a lease never touch the agenda; an entry may be early, never late, since a look at the head decides; `verify` compares
all heads with the agenda.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from time import time_ns
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from holdfast.records.head import Head
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.records.words import Status
from holdfast.stores.backend import Backend, all_heads, readable_head

PARKED = 1 << 60
"""The due time of a thread that only an answer makes due."""
HIDE = 2_000_000
"""For how many microseconds nobody else is given an entry that was taken."""
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


class Taken(msgspec.Struct, frozen=True):
    """What `take` found: the due threads, when the next one is due (`PARKED` if never), and the last lane served."""

    entries: Sequence[Due]
    next_due: int
    last_lane: bytes


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

    def take(self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, after: bytes = b"") -> Taken:
        """Take up to `most` due threads with one of these routes, whose keys begin with `prefix`.

        Nobody else is given them for `HIDE`: they are marked as held until then. First come those that were held and
        are due, whose owner may be dead; then the others, by priority, then lanes in turn, beginning after the lane
        `after`, then by their due time.
        """
        ...

    def look_again(self, thread: bytes, due: int) -> None:
        """Make the entry what the thread's present head says, except that it is due at `due` if that is earlier."""
        ...

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """Count the threads of a queue."""
        ...

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """Return all entries of threads whose keys begin with `prefix`, to compare them with the heads."""
        ...

    def now(self) -> int:
        """Return the time of the store, in microseconds since 1970: entries are due by it."""
        ...


class Listener(Protocol):
    """Waits for announcements. One thread uses it."""

    def wait(self, timeout: float) -> bool:
        """Block for up to `timeout` seconds. True if something was announced; that may be wrong, and may be early."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """An optional interface of a backend: it tells idle workers at once that something is due."""

    def announce(self, prefix: bytes, queues: Collection[str]) -> None:
        """Announce that threads of these queues are due, after the commit. A hint: it may be lost. Never raises."""
        ...

    def listener(self, prefix: bytes) -> Listener:
        """Return a listener for announcements of threads whose keys begin with `prefix`."""
        ...


@runtime_checkable
class OneHost(Protocol):
    """An optional interface of a backend whose users are all on one host: they can see which owners are dead."""

    def held(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the threads that a run holds and that have an entry, with their heads."""
        ...


def entry_of(head: Head) -> Entry | None:
    """Return the entry of a thread with this head; None if it has none."""
    if not head.route or head.deleted or head.status not in OPEN:
        return None
    if head.owner:
        held, due = True, head.expires_at
    elif head.status in UNHELD:
        held, due = False, head.expires_at or head.updated_at
    else:
        held, due = False, head.expires_at or PARKED
    return Entry(head.queue, head.route, head.priority, head.lane, held, due)


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
) -> Swap:
    """Return the swap from one head to another: the one place that decides whether it changes the agenda."""
    is_moved = drop.everything or moves(old, head)
    return Swap(thread, expected, replacement, head, rows, blobs or {}, consumed, drop, size, is_moved)


def earlier(entry: Entry, due: int) -> Entry:
    """Return the entry, due at `due` if that is earlier."""
    return replace(entry, due=due) if due < entry.due else entry


def agrees(entry: Entry | None, wanted: Entry | None, now: int) -> bool:
    """True if a stored entry is one that a thread may have: as its head says, earlier, or just taken."""
    if entry is None or wanted is None:
        return entry is wanted
    is_taken = entry.held and entry.due <= now + HIDE
    same = replace(entry, due=wanted.due, held=wanted.held) == wanted
    return same and (is_taken or (entry.held == wanted.held and entry.due <= wanted.due))


# Choosing, for backends that have all entries at hand


def chosen(
    entries: Iterable[tuple[bytes, Entry]], queue: str, routes: Collection[bytes], most: int, after: bytes, now: int
) -> tuple[list[tuple[bytes, Entry]], int]:
    """Return the entries that `take` gives, in order, and when the next one is due."""
    served = [each for each in entries if each[1].queue == queue and each[1].route in routes]
    due = [each for each in served if each[1].due <= now]
    held = [each for each in due if each[1].held]
    held.sort(key=lambda each: (-each[1].priority, each[1].due, each[0]))
    picked = (held + in_turn([each for each in due if not each[1].held], after))[:most]
    taken = {thread for thread, _ in picked}
    return picked, min((now + HIDE if thread in taken else entry.due for thread, entry in served), default=PARKED)


def in_turn(entries: list[tuple[bytes, Entry]], after: bytes) -> list[tuple[bytes, Entry]]:
    """Order entries by priority, then lanes in turn from the one after `after` on, then by due time."""
    turns = Counter[tuple[int, bytes]]()
    ranked = []
    for thread, entry in sorted(entries, key=lambda each: (each[1].due, each[0])):
        lane = (entry.priority, entry.lane)
        turns[lane] += 1
        ranked.append(((-entry.priority, turns[lane], entry.lane <= after, entry.lane), (thread, entry)))
    return [each for _, each in sorted(ranked, key=lambda each: each[0])]


def last_lane_of(entries: Sequence[Entry], after: bytes) -> bytes:
    """Return the lane to continue after: that of the last entry taken which nobody held."""
    return next((entry.lane for entry in reversed(entries) if not entry.held), after)


def depth_of(entries: Iterable[Entry], queue: str, now: int) -> Depth:
    """Count the entries of a queue."""
    found = [entry for entry in entries if entry.queue == queue]
    free = [entry.due for entry in found if not entry.held]
    ready = [due for due in free if due <= now]
    return Depth(
        ready=len(ready),
        delayed=sum(now < due < PARKED for due in free),
        running=len(found) - len(free),
        waiting=sum(due >= PARKED for due in free),
        oldest_ready=min(ready, default=0),
    )


class ListedAgenda:
    """An agenda for a backend without one: it lists the open threads at each call.

    What it gives and hides is known to this object alone: two processes may be given the same thread, and the claim of
    one of them is refused. A thread that waits for an answer is due once there are messages that it was not given with.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._hidden: dict[bytes, int] = {}
        self._poked: dict[bytes, int] = {}
        self._messages: dict[bytes, set[str]] = {}
        """The messages that each waiting thread has had when it was last given."""

    def take(self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, after: bytes = b"") -> Taken:
        """See `Agenda.take`."""
        now, heads = self.now(), self._heads(prefix)
        self._hidden = {thread: until for thread, until in self._hidden.items() if until > now}
        entries = self._entries(heads)
        picked, next_due = chosen(entries.items(), queue, routes, most, after, now)
        for thread, _ in picked:
            self._hidden[thread] = now + HIDE
            self._poked.pop(thread, None)
            self._messages[thread] = set(self._backend.inbox(thread))
        last_lane = last_lane_of([entry for _, entry in picked], after)
        return Taken([Due(thread, entry, heads[thread]) for thread, entry in picked], next_due, last_lane)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self._hidden.pop(thread, None)
        self._poked[thread] = due

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return depth_of(self.entries(prefix).values(), queue, self.now())

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        return self._entries(self._heads(prefix))

    def now(self) -> int:
        """See `Agenda.now`: the clock of this host."""
        return time_ns() // 1000

    def _heads(self, prefix: bytes) -> dict[bytes, bytes]:
        return dict(all_heads(self._backend, prefix, OPEN))

    def _entries(self, heads: Mapping[bytes, bytes]) -> dict[bytes, Entry]:
        """Return the entries of these threads. One that was poked is due earlier, one that was taken is hidden."""
        found: dict[bytes, Entry] = {}
        for thread, encoded in heads.items():
            head = readable_head(thread, encoded)
            entry = None if head is None else entry_of(head)
            if head is not None and entry is not None:
                called_at = head.updated_at if self._is_called(thread, head) else PARKED
                entry = earlier(entry, min(called_at, self._poked.get(thread, PARKED)))
                until = self._hidden.get(thread)
                found[thread] = entry if until is None else replace(entry, held=True, due=until)
        return found

    def _is_called(self, thread: bytes, head: Head) -> bool:
        """True if a waiting thread has new messages."""
        if head.status != Status.INPUT_REQUIRED.value:
            return False
        return not self._messages.get(thread, set()).issuperset(self._backend.inbox(thread))


def agenda_of(backend: Backend) -> Agenda:
    """Return the agenda of a backend: its own, or one that lists its threads."""
    return backend if isinstance(backend, Agenda) else ListedAgenda(backend)
