"""The agenda: entries by queue, in another shard than their threads.

A swap and its entry are on different nodes of a cluster, so they cannot change together. Before a swap, the entry is
marked: somebody will look at the thread soon, whether the swap is made or not. After it, the entry is settled: it is
what the head says. A writer that dies between them leaves an early entry, and the worker that takes it looks at the
head.

Each mark has a ticket. Only the writer whose ticket is still on the entry may make it later, or remove it: the others
know an older head, or one that is about to change. They make it earlier at most.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from os import urandom
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from holdfast.records.errors import StoreError
from holdfast.records.head import LOST_HEAD, Head
from holdfast.records.rows import Swap
from holdfast.stores.agenda import (
    HIDE,
    PARKED,
    Depth,
    Due,
    Entry,
    QueueLimits,
    Taken,
    after_taking,
    agrees,
    earlier,
    entry_after,
    entry_of,
)
from holdfast.stores.backend import readable_head
from holdfast.stores.choosing import last_lane_of
from holdfast.stores.redis.errors import is_wrong_type
from holdfast.stores.redis.keys import SHARDS, Keys, shard_of, space_of
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.wire import Request, Wire
from holdfast.stores.server_clock import ServerClock

HIGHEST_PRIORITY = 2
SETTLED = bytes(8)
PLACE_OF = 16
"""Where the entry begins in a place, behind the ticket."""

Spot: TypeAlias = tuple[str, bytes, Entry | None]
"""A queue, a thread, and the entry that it needs there, if any."""


class Place(NamedTuple):
    """An entry as it is stored."""

    entry: Entry
    is_settled: bool


class RedisAgenda:
    """The agenda of one store. A prefix is that of a namespace."""

    def __init__(self, wire: Wire, keys: Keys, clock: ServerClock) -> None:
        self._wire = wire
        self._keys = keys
        self._clock = clock
        self._script = script("agenda")

    # Around a swap

    def mark(self, swaps: Iterable[Swap]) -> "Marks":
        """Make sure that the threads of these swaps are looked at soon, whatever becomes of the swaps."""
        return self._marked([spot for swap in swaps if swap.moves for spot in _spots_of(swap)])

    def settle(self, marks: "Marks", swaps: Sequence[Swap], accepted: Sequence[bool]) -> None:
        """Make the entries what the heads say now. If that fails, they stay marked."""
        if marks.spots:
            made = {swap.thread: swap for swap, is_made in zip(swaps, accepted, strict=True) if is_made}
            refused = [thread for _, thread, _ in marks.spots if thread not in made]
            wanted = {thread: entry_after(swap, self._messages(swap)) for thread, swap in made.items()}
            self._settle(marks, wanted | (self._wanted(refused) if refused else {}))

    def _marked(self, spots: Sequence[Spot]) -> "Marks":
        marks = Marks(urandom(8), spots)
        self._run("mark", marks.ticket, spots)
        return marks

    def _settle(self, marks: "Marks", wanted: Mapping[bytes, Entry | None], verb: str = "settle") -> None:
        entries = [(queue, thread, wanted.get(thread)) for queue, thread, _ in marks.spots]
        placed = [(*each[:2], each[2] if each[2] and each[2].queue == each[0] else None) for each in entries]
        self._run(verb, marks.ticket, placed)

    def _messages(self, swap: Swap) -> list[str]:
        """Return the messages that wait for the thread of a swap, if they can make it due."""
        if swap.heard is None:
            return []
        shard = shard_of(swap.thread)
        (keys,) = self._wire.read([Request(shard, (b"HKEYS", self._keys.posts(shard, swap.thread)))])
        return [key.decode() for key in keys]

    def look_at(self, spots: Sequence[Spot]) -> None:
        """Make these entries what the present heads say."""
        self._settle(self._marked(spots), self._wanted([thread for _, thread, _ in spots]))

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self.call(thread, lambda: True, due)

    def call(self, thread: bytes, post: Callable[[], bool], due: int) -> bool:
        """Leave a message by `post`, and make the thread due then; return what `post` returned.

        The thread is looked at soon even if this process dies after the message.
        """
        marks = self._marked([(head.queue, thread, None) for head in self._heads([thread]).values() if head.route])
        is_new = post()
        with suppress(StoreError):  # the message is there, and a worker will settle the marked entry
            wanted = {each: entry and earlier(entry, due) for each, entry in self._wanted([thread]).items()}
            self._settle(marks, wanted, "call" if due <= self._clock.now() else "settle")
        return is_new

    def _run(self, verb: str, ticket: bytes, spots: Sequence[Spot]) -> None:
        times = self._times()
        requests = [
            self._request(verb, thread, queue, *times, thread, ticket, (entry and _packed(entry)) or b"")
            for queue, thread, entry in spots
        ]
        if requests:
            self._wire.read(requests)

    def _request(self, verb: str, prefix: bytes, queue: str, *arguments: bytes | int) -> Request:
        shard, space, name = _shard_of(queue), space_of(prefix), queue.encode()
        more = (space + name,) if verb in {"mark", "settle", "call"} else ()
        return self._script.request(shard, self._keys.agenda(shard, space, name), (verb.encode(), *arguments, *more))

    def _times(self) -> tuple[bytes, bytes]:
        now = self._clock.now()
        return _time(now), _time(now + HIDE)

    def _wanted(self, threads: Sequence[bytes]) -> dict[bytes, Entry | None]:
        """Return the entries that the present heads of these threads say."""
        return {thread: entry_of(head) for thread, head in self._heads(threads).items()}

    def _heads(self, threads: Sequence[bytes]) -> dict[bytes, Head]:
        """Return the heads of these threads that can be read."""
        heads = ((thread, readable_head(thread, found)) for thread, found in self._stored(threads))
        return {thread: head for thread, head in heads if head is not None}

    def _stored(self, threads: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return the stored heads of those threads that have one."""
        shards = [(shard_of(thread), thread) for thread in threads]
        asked = [Request(shard, (b"HGET", self._keys.thread(shard, thread), b"h")) for shard, thread in shards]
        found = zip(threads, self._wire.read_each(asked), strict=True)
        return [(thread, LOST_HEAD if is_wrong_type(head) else head) for thread, head in found if head is not None]

    # Taking

    def take(
        self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, after: bytes, limits: QueueLimits
    ) -> Taken:
        """See `Agenda.take`. Units of the pace are charged before the script, and what was not used is returned."""
        pace = limits.pace
        units = None if pace is None else self._spend(pace.bucket, pace.cost, pace.burst, most)[0]
        now = self._clock.now()
        bounds = (_time(now), _time(now + HIDE), _time(now + 1), most, _ordered(after))
        most_held = tuple(b"" if each is None else each for each in (limits.concurrency, limits.each, units))
        asked = [word for route in routes for word in (_ordered(route), b"%d" % (route in limits.unbegun))]
        request = self._request("take", prefix, queue, *bounds, *most_held, *asked)
        ((next_due, has_more, found),) = self._wire.read([request])
        picked = [(thread, _entry(queue, packed)) for thread, packed in zip(found[::2], found[1::2], strict=True)]
        soonest = int.from_bytes(next_due)
        if pace is not None and units is not None:
            used = sum(not entry.held and entry.route in limits.unbegun for _, entry in picked)
            _, paid_off = self._spend(pace.bucket, -pace.cost * (units - used), PARKED, int(units > used))
            wait = paid_off - pace.burst - now
            soonest = min(soonest, now + wait) if has_more and wait > 0 else soonest
        last_lane = last_lane_of([entry for _, entry in picked], after)
        return Taken(self._with_heads(picked), soonest, last_lane, bool(has_more))

    def _with_heads(self, picked: Sequence[tuple[bytes, Entry]]) -> list[Due]:
        """Add the heads. What has no entry in this queue any more was left behind by a writer that died: forget it."""
        heads = dict(self._stored([thread for thread, _ in picked])) if picked else {}
        found = [Due(thread, entry, heads[thread]) for thread, entry in picked if _is_placed(thread, entry, heads)]
        self._postpone([due for due in found if readable_head(due.thread, due.head) is None])
        left = {thread for thread, _ in picked} - {due.thread for due in found}
        if left:
            self.look_at([(entry.queue, thread, None) for thread, entry in picked if thread in left])
        return found

    def _postpone(self, damaged: Sequence[Due]) -> None:
        """Give up the places of threads that cannot be read, until somebody looks at them again."""
        now = self._clock.now()
        later = [(due, after_taking(due.entry, now, is_readable=False)) for due in damaged]
        marks = self._marked([(due.entry.queue, due.thread, entry) for due, entry in later])
        self._run("settle", marks.ticket, marks.spots)

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`. If the reply is lost, it is charged again: more is never granted than the rate allows."""
        charged, paid_off = self._spend(bucket, cost, burst, 1)
        return 0 if charged else max(1, paid_off - burst - self._clock.now())

    def _spend(self, bucket: bytes, cost: int, burst: int, units: int) -> tuple[int, int]:
        shard = shard_of(bucket)
        arguments = (self._clock.now(), cost, burst, units)
        ((charged, paid_off),) = self._wire.read([
            script("spend").request(shard, (self._keys.bucket(shard, bucket),), arguments)
        ])  # fmt: skip
        return charged, int(paid_off)

    # Looking at all of it

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`: one round trip."""
        shard, now = _shard_of(queue), self._clock.now()
        _, _, _, held, free, *_ = self._keys.agenda(shard, space_of(prefix), queue.encode())
        asked = [
            (b"ZCARD", held),
            (b"ZCOUNT", free, 0, now),
            (b"ZCOUNT", free, b"(%d" % now, b"(%d" % PARKED),
            (b"ZCOUNT", free, PARKED, b"+inf"),
            (b"ZRANGEBYSCORE", free, 0, now, b"WITHSCORES", b"LIMIT", 0, 1),
        ]
        running, ready, delayed, waiting, oldest = self._wire.read([Request(shard, each) for each in asked])
        return Depth(ready, delayed, running, waiting, int(float(oldest[1])) if oldest else 0)

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`. What a dead writer left marked counts as taken: a worker will settle it."""
        places = self._places(prefix)
        heads = self._heads([thread for _, thread in places])
        found = {}
        for (queue, thread), place in places.items():
            wanted = entry_of(heads.get(thread, Head()))
            if wanted is not None and wanted.queue == queue:
                found[thread] = place.entry if place.is_settled else replace(wanted, held=True, due=place.entry.due)
        return found

    def _places(self, prefix: bytes) -> dict[tuple[str, bytes], Place]:
        """Return all entries, by queue and thread."""
        asked = [Request(shard, (b"SMEMBERS", self._keys.queues(shard))) for shard in range(SHARDS)]
        queues = [(shard, name) for shard, names in enumerate(self._wire.read(asked)) for name in names]
        ours = [(shard, space_of(name), name) for shard, name in queues if name.startswith(space_of(prefix))]
        named = [(shard, space, name[len(space) :]) for shard, space, name in ours]
        keys = [(shard, self._keys.agenda(shard, space, queue)[0]) for shard, space, queue in named]
        replies = self._wire.read([Request(shard, (b"HGETALL", key)) for shard, key in keys]) if keys else []
        found = {}
        for (_, _, queue), places in zip(named, replies, strict=True):
            for thread, place in zip(places[::2], places[1::2], strict=True):
                found[queue.decode(), thread] = _place(queue.decode(), place)
        return {spot: place for spot, place in found.items() if spot[1].startswith(prefix)}

    def repair(self, prefix: bytes, heads: Mapping[bytes, bytes]) -> int:
        """Settle every entry that differs from its head, and those that no thread has; return how many.

        `heads` are those of all open threads. Only a writer that was paused for longer than `HIDE`, and then died, can
        leave a thread without its entry; a thread that expired leaves an entry.
        """
        entries, now, wrong = self.entries(prefix), self._clock.now(), set[tuple[str, bytes]]()
        for thread, encoded in heads.items():
            head = readable_head(thread, encoded)
            wanted = None if head is None else entry_of(head)
            if wanted is not None and not agrees(entries.get(thread), wanted, now):
                wrong.add((wanted.queue, thread))
        wrong.update(spot for spot in self._places(prefix) if spot[1] not in entries)
        if wrong:
            self.look_at([(queue, thread, None) for queue, thread in sorted(wrong)])
        return len(wrong)


class Marks(NamedTuple):
    """The entries that were marked, and the ticket of that."""

    ticket: bytes
    spots: Sequence[Spot]


def _spots_of(swap: Swap) -> list[Spot]:
    """Return the queues that a swap moves a thread to, and from."""
    before = readable_head(swap.thread, swap.expected) if swap.expected else None
    old, new = entry_of(before or Head()), entry_of(swap.head)
    entered = [(new.queue, swap.thread, new)] if new else []
    left = [(old.queue, swap.thread, None)] if old and (new is None or new.queue != old.queue) else []
    return [*entered, *left]


def _is_placed(thread: bytes, entry: Entry, heads: Mapping[bytes, bytes]) -> bool:
    """True if a thread has a head, and that has an entry in this queue, or cannot be read."""
    head = readable_head(thread, heads[thread]) if thread in heads else Head()
    wanted = None if head is None else entry_of(head)
    return head is None or (wanted is not None and wanted.queue == entry.queue)


def _shard_of(queue: str) -> int:
    return shard_of(queue.encode())


def _time(moment: int) -> bytes:
    return max(moment, 0).to_bytes(8)


def _ordered(word: bytes) -> bytes:
    """Return bytes that sort as the word does, whatever follows them."""
    return word.replace(b"\0", b"\0\xff") + b"\0\0"


def _word(ordered: bytes) -> bytes:
    return ordered[:-2].replace(b"\0\xff", b"\0")


def _packed(entry: Entry) -> bytes:
    route, state = _ordered(entry.route), b"0" if entry.held else b"1"
    rank = bytes((HIGHEST_PRIORITY - entry.priority, *_time(entry.due), len(route)))
    return state + rank + route + _ordered(entry.lane)


def _entry(queue: str, packed: bytes) -> Entry:
    lane_at = 11 + packed[10]
    route, lane = _word(packed[11:lane_at]), _word(packed[lane_at:])
    due = int.from_bytes(packed[2:10])
    return Entry(queue, route, HIGHEST_PRIORITY - packed[1], lane, packed[:1] == b"0", due)


def _place(queue: str, place: Any) -> Place:
    return Place(_entry(queue, place[PLACE_OF:]), place[:8] == SETTLED)
