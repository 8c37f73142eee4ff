"""Which due threads a look is given, for backends that have all entries at hand; and the arithmetic of rates."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from holdfast.stores.agenda import HIDE, PARKED, Depth, Entry, Limits, Pace

Placed: TypeAlias = tuple[bytes, Entry]
"""A thread and its entry."""


class Look(NamedTuple):
    """What one call of `take` asks for, at which time, and when the bucket of its pace is paid off."""

    queue: str
    routes: Collection[bytes]
    most: int
    after: bytes
    limits: Limits
    now: int
    paid_off: int = 0

    @property
    def wait(self) -> int:
        """For how many microseconds the pace lets no further thread begin."""
        pace = self.limits.pace
        return max(0, self.paid_off - pace.burst - self.now) if pace else 0


class Choice(NamedTuple):
    """What a look is given, and when the next look can find more."""

    picked: list[Placed]
    next_due: int


def choose(entries: Iterable[Placed], look: Look) -> Choice:
    """Return the entries that `take` gives, in order."""
    of_queue = [each for each in entries if each[1].queue == look.queue]
    served = [each for each in of_queue if each[1].route in look.routes]
    due = [each for each in served if each[1].due <= look.now]
    held = sorted((each for each in due if each[1].held), key=_by_age)[: look.most]
    busy = Counter(entry.lane for _, entry in of_queue if entry.held)
    room = room_of(look, len(held), busy.total())
    free = pick(lambda some, most: _first(some, most, look, busy, due), look, room, busy)
    picked = [*held, *free]
    return Choice(picked, _next_due(of_queue, served, picked, look))


def _by_age(placed: Placed) -> tuple[int, int, bytes]:
    thread, entry = placed
    return -entry.priority, entry.due, thread


def _first(routes: Collection[bytes], most: int, look: Look, busy: Counter[bytes], due: list[Placed]) -> list[Placed]:
    free = [each for each in due if not each[1].held and each[1].route in routes]
    return within_each(in_turn(free, look.after), look.limits.each, busy)[:most]


def _next_due(of_queue: list[Placed], served: list[Placed], picked: list[Placed], look: Look) -> int:
    taken = {thread for thread, _ in picked}
    times = [look.now + HIDE if thread in taken else entry.due for thread, entry in served]
    next_due = min(times, default=PARKED)
    if next_due > look.now or len(picked) == look.most:
        return next_due
    times += [entry.due for _, entry in of_queue if entry.held]
    return after_limits((time for time in times if time > look.now), look, picked)


# What every backend decides alike


def room_of(look: Look, given: int, held: int) -> int:
    """Return how many entries may be given besides those `given` already, if `held` ones of the queue are."""
    concurrency = look.limits.concurrency
    room = look.most - given
    return max(0, room if concurrency is None else min(room, concurrency - held))


def pick(
    first: Callable[[Collection[bytes], int], list[Placed]], look: Look, room: int, busy: Counter[bytes]
) -> list[Placed]:
    """Return the free entries to give. `first` returns the first ones of some routes, in the order of taking."""
    pace, limits = look.limits.pace, look.limits
    if pace is None:
        return first(look.routes, room)
    begun = [route for route in look.routes if route not in limits.unbegun]
    unbegun = [route for route in look.routes if route in limits.unbegun]
    found = first(begun, room) + first(unbegun, min(room, units_of(pace, look.paid_off, look.now)))
    return within_each(in_turn(found, look.after), limits.each, busy)[:room]


def after_limits(times: Iterable[int], look: Look, picked: Iterable[Placed]) -> int:
    """Return when to look again if limits hold back what is due: at one of these times, or as the pace allows."""
    wait = look._replace(paid_off=paid_off_by(look, picked)).wait
    return min((*times, look.now + wait if wait else PARKED), default=PARKED)


def in_turn(entries: list[Placed], after: bytes) -> list[Placed]:
    """Order entries by priority, then lanes in turn from the one after `after` on, then by due time."""
    turns = Counter[tuple[int, bytes]]()
    ranked = []
    for thread, entry in sorted(entries, key=lambda each: (each[1].due, each[0])):
        lane = (entry.priority, entry.lane)
        turns[lane] += 1
        ranked.append(((-entry.priority, turns[lane], entry.lane <= after, entry.lane), (thread, entry)))
    return [each for _, each in sorted(ranked, key=lambda each: each[0])]


def within_each(entries: list[Placed], each: int | None, busy: Counter[bytes]) -> list[Placed]:
    """Leave out what would be more than `each` of one lane, if these numbers of the lanes are held."""
    if each is None:
        return entries
    held, kept = busy.copy(), []
    for placed in entries:
        lane = placed[1].lane
        if held[lane] < each:
            held[lane] += 1
            kept.append(placed)
    return kept


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
