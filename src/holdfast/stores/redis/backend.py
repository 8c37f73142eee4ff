"""Implement `Backend` over Redis or Valkey. A swap is one script, on one server, in one round trip."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Lock
from typing import Any, TypedDict, Unpack

from msgspec.structs import replace
from redis.exceptions import ResponseError

from holdfast.history.tuning import Tuning
from holdfast.ports import reset_after_fork
from holdfast.records.arguments import duration_us, whole_number
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.identity import thread_id_of
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.agenda import NO_LIMITS, OPEN, Depth, Entry, Listener, QueueLimits, Taken
from holdfast.stores.announcing import Announcer
from holdfast.stores.backend import Listing, all_heads, count_listed, readable_head
from holdfast.stores.redis.agenda import RedisAgenda
from holdfast.stores.redis.announcements import RedisListener, channel_of
from holdfast.stores.redis.durability import SETTINGS, ServerFacts, check_server
from holdfast.stores.redis.errors import translated
from holdfast.stores.redis.keys import SHARDS, Keys, shard_of, unpack_row
from holdfast.stores.redis.listing import Pages
from holdfast.stores.redis.pools import pools_of
from holdfast.stores.redis.repair import Repair
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.settings import Source, from_client, from_url, options_in
from holdfast.stores.redis.swapping import Swaps, permission_trials
from holdfast.stores.redis.wire import Request, Wire, checked
from holdfast.stores.server_clock import ServerClock

FORMAT = 1
NEEDS_WHOLE = 2
SCRIPTS = ("swap", "rows", "index", "post", "agenda", "spend")


class Options(TypedDict, total=False):
    """The options of a Redis store besides its URL: see `holdfast.RedisStore`."""

    prefix: str
    assume: Durability | str | None
    replicas: int
    life: timedelta | float | None
    keep_pinned: bool
    connections: int
    patience: float


class RedisBackend:
    """Threads in Redis or Valkey, given by a URL (stores/redis/settings.py) or a client of redis-py.

    `prefix` begins every key. `assume` states the durability of a server whose settings are not readable. `replicas`:
    how many must have a write before it is acknowledged. The server deletes a thread that was not written to for
    `life`, unless a checkpoint of it is pinned and `keep_pinned` is true. Up to `connections` are made to each server;
    an outage is retried for up to `patience` seconds.
    """

    kind = "redis"
    tuning = Tuning(assumes_new=True)
    """A row costs what it costs SQLite, and all blobs of a restore come in one reply."""
    inline = False

    def __init__(self, source: Source, durability: Durability | None = None, **options: Unpack[Options]) -> None:
        named: dict[str, Any] = {}
        if isinstance(source, str):
            source, named = options_in(source)
        settings = from_url(source) if isinstance(source, str) else from_client(source)
        named.update(options)
        self.keys = Keys(named.get("prefix", "holdfast"))
        self._durability = durability or _level(named.get("durability"), "durability") or Durability.DURABLE
        self._assume = _level(named.get("assume"), "assume")
        self._replicas = whole_number(named.get("replicas", 0), "replicas")
        self._life = _life(named.get("life"))
        connections = whole_number(named.get("connections", 32), "connections", 1)
        patience = duration_us(named.get("patience", 10.0), "patience") / 1e6
        self.wire = Wire(pools_of(settings, self.keys, connections), self._replicas, patience)
        self._transport = settings.transport
        self.identity = (settings.identity, self._durability, repr(sorted(named.items())))
        self._swaps = Swaps(self.keys, self._life, keep_pinned=named.get("keep_pinned", True))
        self._pages = Pages(self.wire.read, self.wire.read_each, self.keys)
        self._repair = Repair(self.wire, self.keys)
        self._clock = ServerClock(self._server_time)
        self._agenda = RedisAgenda(self.wire, self.keys, self._clock)
        self._announcer = Announcer(lambda channel: self.wire.once([Request(0, (b"PUBLISH", channel, b""))]))
        self._is_open = False
        self._is_doubtful = False
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
        self._opening = Lock()

    def open(self) -> None:
        """See `Backend.open`: one round trip to each server, and one for the format."""
        with self._opening:
            if not self._is_open:
                self.guarantee()
                self._check_format()
                self._load_scripts()
                self._clock.now()
                self._is_open = True

    def _check_format(self) -> None:
        place = Request(0, (b"SET", self.keys.format, FORMAT, b"NX")), Request(0, (b"GET", self.keys.format))
        _, found, *_ = self.wire.read([*place, *permission_trials(self.keys)])
        if found is None or not found.isdigit() or len(found) > 9 or int(found) > FORMAT:
            raise IncompatibleCheckpoint(
                f"the data in Redis under {self.keys.prefix!r} has format {found!r}, which this Holdfast does not know;"
                " upgrade holdfast, or use another prefix"
            )

    def _load_scripts(self) -> None:
        """Load the scripts, if that is permitted, so that the first use of each is one round trip too."""
        shards = self.wire.one_shard_each()
        loads = [(b"SCRIPT", b"LOAD", script(name).source) for name in SCRIPTS]
        self.wire.attempt([Request(shard, load) for shard in shards for load in loads], writing=False)

    def close(self) -> None:
        """See `Backend.close`. A client of the caller stays open: its connections were never used."""
        self._announcer.close()
        self.wire.close()

    def guarantee(self) -> Guarantee:
        """See `Backend.guarantee`: the level of the weakest server."""
        servers = [self._facts_of(shard) for shard in self.wire.one_shard_each()]
        levels = [check_server(facts, self._durability, self._replicas, self._assume) for facts in servers]
        facts = servers[0]
        details = {
            "server": self.wire.kind,
            "transport": self._transport,
            "version": facts.info.get("valkey_version") or facts.info.get("redis_version", ""),
            **(facts.settings or {"settings": "not readable; the level is as assumed"}),
            **({"replicas": f"{self._replicas} before an acknowledgement (WAIT)"} if self._replicas else {}),
            **({"life": f"{self._life} ms after the last write"} if self._life is not None else {}),
        }
        return Guarantee(level=min(levels, key=list(Durability).index), store=self.kind, details=details)

    def _facts_of(self, shard: int) -> ServerFacts:
        requests = [Request(shard, (b"INFO",))]
        requests += [Request(shard, (b"CONFIG", b"GET", name.encode())) for name in SETTINGS]
        info, *settings = self.wire.attempt(requests, writing=False)
        checked([info], writing=False)
        return ServerFacts(_settings(settings), _info(info))

    def check(self) -> list[str]:
        """See `Backend.check`: compare every head with its listings, and back. Scans all keys."""
        return self._repair.problems()

    # Writing

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`. One round trip for all, or one to each node of a cluster at the same time.

        If the agenda changes, two more: before it and after it.
        """
        for swap in swaps:
            if swap.drop.everything and (not swap.expected or readable_head(swap.thread, swap.expected) is None):
                self._repair.unlist(swap.thread)
        marks = self._agenda.mark(swaps)
        replies = self.wire.attempt([self._swaps.request(swap) for swap in swaps], writing=True)
        again = [at for at, reply in enumerate(replies) if reply == NEEDS_WHOLE]
        if again:
            whole = [self._swaps.request(swaps[at], persist=True) for at in again]
            for at, reply in zip(again, self.wire.attempt(whole, writing=True), strict=True):
                replies[at] = reply
        if any(isinstance(reply, Exception) for reply in replies):
            raise self._failure(replies)
        accepted = [reply == 1 for reply in replies]
        with suppress(StoreError):  # the swaps are made, and a worker will settle the marked entries
            self._agenda.settle(marks, swaps, accepted)
        return accepted

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: reads all listings by status of the thread's namespace."""
        self._repair.drop_misplaced(thread)

    def _failure(self, replies: list[Any]) -> Exception:
        """Return the error for several swaps of which some failed: one that is true of all of them."""
        self._is_doubtful = self._replicas > 0
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        errors = [translated(reply, writing=True) for reply in failed]
        for error, reply in zip(errors, failed, strict=True):
            error.__cause__ = reply
        if len(replies) == 1:
            return errors[0]
        unsure = len(errors) < len(replies) or any(isinstance(error, OutcomeUnknown) for error in errors)
        kind = OutcomeUnknown if unsure else StoreUnavailable
        failure = kind(f"{len(errors)} of {len(replies)} writes failed; the first: {errors[0]}")
        failure.__cause__ = errors[0]
        return failure

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        shard = shard_of(thread)
        keys = (self.keys.thread(shard, thread), self.keys.posts(shard, thread))
        life = b"" if self._life is None else self._life
        request = script("post").request(shard, keys, (key.encode(), value, life))
        (is_new,) = checked(self.wire.attempt([request], writing=True), writing=True)
        return bool(is_new)

    # Reading

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        if self._is_doubtful:
            self._confirm()
        found = self.wire.read([self._get(thread, b"HMGET", b"h", b"t") for thread in threads]) if threads else []
        return [_head(*each) for each in zip(threads, found, strict=True)]

    def _confirm(self) -> None:
        """After a write that too few replicas have, refuse reads until the replicas have caught up."""
        requests = [Request(shard, (b"SET", self.keys.base(shard) + b"w", 1)) for shard in range(SHARDS)]
        replies = self.wire.attempt(requests, writing=True)
        if any(isinstance(reply, Exception) for reply in replies):
            raise StoreUnavailable("the replicas of Redis have not caught up with a write yet; retry later")
        self._is_doubtful = False

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`."""
        shard = shard_of(thread)
        request = script("rows").request(shard, (self.keys.thread(shard, thread),), (seq,))
        (found,) = self.wire.read([request])
        first = seq - len(found) + 1
        return [unpack_row(at, data) for at, data in enumerate(found, first) if data is not None]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        wanted = list(ids)
        if not wanted:
            self.wire.check_open()
            return {}
        (found,) = self.wire.read([self._get(thread, b"HMGET", *(b"b" + blob for blob in wanted))])
        return {blob: data for blob, data in zip(wanted, found, strict=True) if data is not None}

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        shard = shard_of(thread)
        bounds = tuple(b"" if bound is None else b"%d" % bound for bound in (before, limit))
        (found,) = self.wire.read([script("index").request(shard, (self.keys.thread(shard, thread),), bounds)])
        return [replace(unpack_row(seq, data), body=b"") for seq, data in zip(found[::2], found[1::2], strict=True)]

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        return self.inboxes([thread])[0]

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """See `Overlooking.inboxes`. One round trip, or one to each node of a cluster."""
        shards = [(shard_of(thread), thread) for thread in threads]
        requests = [Request(shard, (b"HGETALL", self.keys.posts(shard, thread))) for shard, thread in shards]
        return [
            dict(sorted((key.decode(), value) for key, value in zip(found[::2], found[1::2], strict=True)))
            for found in self.wire.read(requests)
        ]

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`: newest created first."""
        return self._pages.page(prefix, statuses, labels, cursor, limit)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`: the sizes of the listings by status, in one round trip."""
        found = self._pages.counts(prefix)
        return count_listed(self, prefix) if found is None else found

    # The agenda

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
        """See `Agenda.take`: two round trips, or one if nothing is due; a pace costs two more."""
        return self._agenda.take(prefix, queue, routes, most, after, limits)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self._agenda.look_again(thread, due)

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`: the entry is marked before the message is left, and due after it."""
        return self._agenda.call(thread, lambda: self.post(thread, key, value), self.now())

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return self._agenda.depth(prefix, queue)

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        return self._agenda.entries(prefix)

    def sweep(self, prefix: bytes) -> int:
        """See `Sweeping.sweep`: reads the heads of all open threads."""
        return self._agenda.repair(prefix, dict(all_heads(self, prefix, OPEN)))

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`."""
        return self._agenda.spend(bucket, cost, burst)

    def now(self) -> int:
        """See `Agenda.now`: the clock of the server that has the first shard."""
        return self._clock.now()

    def _server_time(self) -> int:
        ((seconds, microseconds),) = self.wire.read([Request(0, (b"TIME",))])
        return int(seconds) * 1_000_000 + int(microseconds)

    def announce(self, prefix: bytes) -> None:
        """See `Announcing.announce`."""
        self._announcer.announce(channel_of(self.keys, prefix))

    def listener(self, prefix: bytes) -> Listener:
        """See `Announcing.listener`."""
        return RedisListener(self.wire.connection, channel_of(self.keys, prefix))

    def _get(self, thread: bytes, command: bytes, *fields: bytes) -> Request:
        shard = shard_of(thread)
        return Request(shard, (command, self.keys.thread(shard, thread), *fields))


def _head(thread: bytes, found: tuple[bytes | None, bytes | None]) -> bytes | None:
    """Return the head of a thread from its stored head and newest seq. Rows without a head are damage."""
    head, last = found
    if head == b"" or (head is None and last is not None):
        record = f"head of {thread_id_of(thread)!r}"
        raise Corrupt(f"{record} is damaged: it is empty, or missing while there are rows", record=record)
    return head


def _settings(replies: list[Any]) -> dict[str, str] | None:
    """Return the settings; None if one of them is not readable."""
    if any(isinstance(reply, ResponseError) or len(reply) != 2 for reply in replies):
        return None
    return {name.decode(): value.decode() for name, value in replies}


def _info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _level(word: Durability | str | None, name: str) -> Durability | None:
    try:
        return None if word is None else Durability(word)
    except ValueError:
        raise ConfigurationError(f"`{name}` must be one of {', '.join(Durability)}, got {word!r}") from None


def _life(life: timedelta | float | None) -> int | None:
    """Return how long a thread lives, in milliseconds; None for ever."""
    return None if life is None else max(1, duration_us(life, "life") // 1000)
