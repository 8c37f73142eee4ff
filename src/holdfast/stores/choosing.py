"""Which due threads a look is given: the model of all agendas. Pure functions; also the arithmetic of rates."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from holdfast.stores.agenda import HIDE, PARKED, Depth, Entry, Pace, QueueLimits

PRIORITIES = (2, 1, 0, -1, -2)

Placed: TypeAlias = tuple[bytes, Entry]
"""A thread and its entry."""
First: TypeAlias = Callable[[int, bytes, Collection[bytes], Collection[bytes]], Placed | None]
"""Finds the first due entry that nobody holds, by lane and due time: of a priority, from a lane on, of one of some
routes, and not of some threads."""


class Look(NamedTuple):
    """What one call of `take` asks for, at which time, and when the bucket of its pace is paid off."""

    queue: str
    routes: Collection[bytes]
    most: int
    after: bytes
    limits: QueueLimits
    low: int
    now: int
    paid_off: int = 0

    @property
    def wait(self) -> int:
        """For how many microseconds the pace lets no further thread begin."""
        pace = self.limits.pace
        return max(0, self.paid_off - pace.burst - self.now) if pace else 0

    @property
    def units(self) -> int:
        """How many threads the pace lets begin now."""
        pace = self.limits.pace
        return self.most if pace is None else units_of(pace, self.paid_off, self.now)


class Choice(NamedTuple):
    """What a look is given, when the next look can find more, and whether due threads are left."""

    picked: list[Placed]
    next_due: int
    has_more: bool


def choose(entries: Iterable[Placed], look: Look) -> Choice:
    """Return the entries that `take` gives, in order."""
    of_queue = [each for each in entries if each[1].queue == look.queue]
    served = [each for each in of_queue if each[1].route in look.routes]
    due = [each for each in served if look.low <= each[1].due <= look.now]
    held = sorted((each for each in due if each[1].held), key=_by_age)[: look.most]
    busy = Counter(entry.lane for _, entry in of_queue if entry.held)
    room = room_of(look, len(held), busy.total())
    picked = [*held, *pick(finder(each for each in due if not each[1].held), look, room, busy)]
    times = [entry.due for _, entry in served if entry.due > look.now] + [look.now + HIDE] * bool(picked)
    has_more = len(due) > len(picked)
    if has_more:
        times += [entry.due for _, entry in of_queue if entry.held and entry.due > look.now]
    return Choice(picked, next_look(times, look, picked, has_more=has_more), has_more)


def _by_age(placed: Placed) -> tuple[int, bytes]:
    return placed[1].due, placed[0]


def finder(free: Iterable[Placed]) -> First:
    """Return a `First` over these entries."""
    ordered = sorted(free, key=lambda each: (each[1].priority, each[1].lane, *_by_age(each)))
    keys = [(entry.priority, entry.lane) for _, entry in ordered]

    def first(priority: int, lane: bytes, routes: Collection[bytes], but: Collection[bytes]) -> Placed | None:
        for index in range(bisect_left(keys, (priority, lane)), bisect_left(keys, (priority + 1, b""))):
            thread, entry = ordered[index]
            if entry.route in routes and thread not in but:
                return thread, entry
        return None

    return first


# What every backend decides alike


def room_of(look: Look, given: int, held: int) -> int:
    """Return how many entries may be given besides those `given` already, if `held` ones of the queue are."""
    concurrency = look.limits.concurrency
    room = look.most - given
    return max(0, room if concurrency is None else min(room, concurrency - held))


def pick(first: First, look: Look, room: int, busy: Counter[bytes]) -> list[Placed]:
    """Return up to `room` free entries: by priority, then one of each lane in turn, from the one after `after` on.

    A lane gets no more than may be held of it, if `busy` is what is held of each. When the pace allows no more threads
    to begin, only those that had begun are given.
    """
    each, units = look.limits.each, look.units
    routes: Collection[bytes] = look.routes
    held, picked = busy.copy(), dict[bytes, Entry]()
    for priority in PRIORITIES:
        lane, is_fruitful = look.after + b"\0", True
        while len(picked) < room:
            if not units:
                routes = [route for route in look.routes if route not in look.limits.unbegun]
            found = first(priority, lane, routes, picked)
            if found is not None:
                thread, entry = found
                lane = entry.lane + b"\0"
                if each is None or held[entry.lane] < each:
                    picked[thread] = entry
                    held[entry.lane] += 1
                    units -= entry.route in look.limits.unbegun
                    is_fruitful = True
            elif is_fruitful and lane:
                lane, is_fruitful = b"", False  # the next turn
            else:
                break
    return list(picked.items())


def next_look(times: Iterable[int], look: Look, picked: list[Placed], *, has_more: bool) -> int:
    """Return when a look can find more: at one of these times; if something due is left, now, or as the pace allows."""
    if not has_more:
        return min(times, default=PARKED)
    if len(picked) == look.most:
        return look.now
    wait = look._replace(paid_off=paid_off_by(look, picked)).wait
    return min((*times, look.now + wait if wait else PARKED))


def last_lane_of(entries: Sequence[Entry], after: bytes) -> bytes:
    """Return the lane to continue after: that of the last entry taken which nobody held."""
    return next((entry.lane for entry in reversed(entries) if not entry.held), after)


# Rates: a bucket is the time at which it is paid off


def charged(paid_off: int, cost: int, burst: int, now: int) -> tuple[int, int]:
    """Return how long to wait before a bucket can be charged (0: it is), and when it is then paid off."""
    wait = max(0, paid_off - burst - now)
    return wait, paid_off if wait else max(paid_off, now) + cost


def units_of(pace: Pace, paid_off: int, now: int) -> int:
    """Return how many units a bucket grants now, charged one by one."""
    ahead = max(paid_off, now) - now
    return (pace.burst - ahead) // pace.cost + 1 if ahead <= pace.burst else 0


def paid_off_by(look: Look, picked: Iterable[Placed]) -> int:
    """Return when the bucket of a look's pace is paid off, after it is charged for what was picked."""
    pace = look.limits.pace
    begun = sum(not entry.held and entry.route in look.limits.unbegun for _, entry in picked)
    return max(look.paid_off, look.now) + begun * pace.cost if pace and begun else look.paid_off


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
