"""The agenda in PostgreSQL: a table of entries, and a function that takes the due ones in one round trip."""

from collections.abc import Collection
from functools import partial
from hashlib import sha256
from typing import Any

from holdfast.records.head import Head
from holdfast.stores.agenda import (
    NO_LIMITS,
    UNREADABLE,
    Depth,
    Due,
    Entry,
    QueueLimits,
    Taken,
    after_call,
    entry_of,
    place_of,
    queue_in,
)
from holdfast.stores.backend import readable_head
from holdfast.stores.choosing import last_lane_of
from holdfast.stores.postgres.connections import Connection
from holdfast.stores.postgres.statements import Statements
from holdfast.stores.postgres.swapping import key_of, moves_columns, name_of
from holdfast.stores.server_clock import ServerClock


class PostgresAgenda:
    """Implement `Agenda`: `prefix` is the whole prefix of a namespace."""

    def __init__(self, statements: Statements, sql: dict[str, str], schema: str) -> None:
        self._statements = statements
        self._sql = sql
        self._schema = schema
        self._clock = ServerClock(lambda: int(statements.read(sql["read_clock"])[0][0]))

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
        """See `Agenda.take`. It is repeated after a broken connection: what was taken in vain is hidden for a while."""
        parameters = [place_of(prefix, queue), list(routes), most, after, low, *self._limits(prefix, queue, limits)]
        *found, (*_, has_more, next_due) = self._statements.read(self._sql["take"], *parameters)
        dues = [Due(thread, Entry(queue, *columns), head) for thread, head, *columns in found]
        if damaged := [key_of(due.thread) for due in dues if readable_head(due.thread, due.head) is None]:
            self._statements.write(self._sql["postpone"], damaged, self.now() + UNREADABLE)
        return Taken(dues, next_due, last_lane_of([due.entry for due in dues], after), bool(has_more))

    def _limits(self, prefix: bytes, queue: str, limits: QueueLimits) -> list[Any]:
        """Return the parameters for limits; the first one is the lock that their takers share, None without limits."""
        if limits.concurrency is None and limits.each is None and limits.pace is None:
            return [None] * 6 + [[]]
        shared = sha256(f"holdfast agenda {self._schema} ".encode() + place_of(prefix, queue)).digest()[:8]
        pace = (limits.pace.bucket, limits.pace.cost, limits.pace.burst) if limits.pace else (None, None, None)
        lock = int.from_bytes(shared, "big", signed=True)
        return [lock, limits.concurrency, limits.each, *pace, list(limits.unbegun)]

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`: in a transaction that keeps others from replacing the head."""
        self._statements.run(lambda connection: self._look_again(connection, thread, due))

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`: in the transaction that makes the thread due."""
        post = (key_of(thread), name_of(key), value)
        call = partial(self._look_again, thread=thread, due=self.now(), post=post)
        return self._statements.run(call, writing=True)

    def _look_again(
        self, connection: Connection, thread: bytes, due: int, post: tuple[bytes, bytes, bytes] | None = None
    ) -> bool:
        """Set the entry by the head, and leave a message; False if there is one under its key."""
        execute, key = self._statements.execute, key_of(thread)
        with connection.transaction():
            for (encoded,) in execute(connection, self._sql["lock_head"], (key, thread)):
                found = execute(connection, self._sql["lock_entry"], (key,))
                entry = next((_entry(thread, *columns) for columns in found), None)
                wanted = entry_of(readable_head(thread, encoded) or Head())
                columns = moves_columns({1: (thread, after_call(entry, wanted, due, self.now()))})
                execute(connection, self._sql["move"], ([key], *columns))
            return post is None or bool(execute(connection, self._sql["insert_post"], post))

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return Depth(*self._statements.read(self._sql["measure_queue"], place_of(prefix, queue), self.now())[0])

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        found = self._statements.read(self._sql["read_entries"], len(prefix), prefix)
        return {thread: _entry(thread, *columns) for thread, *columns in found}

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`."""
        return int(self._statements.write(self._sql["spend"], bucket, cost, burst)[0][0])

    def sweep(self, _prefix: bytes) -> int:
        """See `Sweeping.sweep`: entries need no repair, but buckets that are paid off are deleted."""
        self._statements.write(self._sql["drop_paid_buckets"])
        return 0

    def now(self) -> int:
        """See `Agenda.now`: the server's clock."""
        return self._clock.now()


def _entry(thread: bytes, place: bytes, *columns: Any) -> Entry:
    return Entry(queue_in(place, thread), *columns)
