"""Threads in PostgreSQL: any number of processes may share a schema.

A batch of swaps is one statement: a function in the database compares and replaces the heads, so a commit is one round
trip and one transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from threading import Lock

from holdfast.history.tuning import Tuning
from holdfast.ports import Ports, reset_after_fork
from holdfast.records.arguments import whole_number
from holdfast.records.errors import Corrupt, StoreError
from holdfast.records.identity import shown_id_of
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.announcing import Announcer
from holdfast.stores.backend import Listing, replaces_lost_head
from holdfast.stores.postgres.agenda import PostgresAgenda
from holdfast.stores.postgres.announcing import PostgresListener, channel_of
from holdfast.stores.postgres.connections import CONNECTIONS, Source, connections_of, transport_of
from holdfast.stores.postgres.durability import Settings
from holdfast.stores.postgres.listing import LAST, listed_head, listing_query, problem_of
from holdfast.stores.postgres.schema import is_created, migrate, quoted, statements_in
from holdfast.stores.postgres.statements import Statements
from holdfast.stores.postgres.swapping import KEY_BYTES, call_for, key_of, name_of
from holdfast.stores.postgres.transaction import PostgresTransaction

LAST_SEQ = (1 << 31) - 1
PATIENCE_SECONDS = 10.0
PAGE = 500


class PostgresBackend(PostgresAgenda):
    """Implement `Backend` over a schema of a PostgreSQL database, with its agenda."""

    kind = "postgres"
    tuning = Tuning(keyframe_rows=512, keyframe_bytes=196608, assumes_new=True)
    """A round trip costs more than a few hundred rows in it, so keyframes may be far apart."""
    inline = False

    def __init__(
        self,
        source: Source,
        durability: Durability | None = None,
        *,
        schema: str = "holdfast",
        prepare_threshold: int | None = 5,
        connections: int = CONNECTIONS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._quoted = quoted(schema)
        self._level = durability or Durability.DURABLE
        self._demanded = self._level in {Durability.DURABLE, Durability.REPLICATED}
        limit = whole_number(connections, "connections", 1)
        self._connections = connections_of(source, limit, prepare_threshold)
        super().__init__(Statements(self._connections, patience), statements_in(schema), schema)
        notifying, notify = Statements(self._connections, 0), self._sql["notify"]
        self._announcer = Announcer(lambda channel: notifying.read(notify, channel.decode()))
        self._id = b""
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
        self._opening = Lock()

    def exists(self) -> bool:
        """Return whether `open` would find a store, without creating one."""
        return self._statements.run(lambda connection: is_created(connection, self._schema))

    def open(self) -> None:
        """See `Backend.open`."""
        with self._opening:
            if self._id:
                return
            store = self._statements.run(lambda connection: migrate(connection, self._schema))
            self._settings().check(self._level)
            self.now()
            self._id = store

    def close(self) -> None:
        """See `Backend.close`."""
        self._announcer.close()
        self._statements.close()

    def _settings(self) -> Settings:
        return Settings(*self._statements.read(self._sql["read_settings"], self._quoted)[0])

    def guarantee(self) -> Guarantee:
        """See `Backend.guarantee`: the level that the server's settings give."""
        return self._settings().guarantee(self.kind, self._statements.run(transport_of))

    def check(self) -> list[str]:
        """See `Backend.check`: every head against its columns, and no row without a thread."""
        try:
            orphan = self._statements.read(self._sql["read_orphan"])
            found = [f"rows or an entry of no thread, under the key {orphan[0][0].hex()}"] if orphan else []
            page = self._statements.read(self._sql["read_all_threads"], LAST, PAGE)
            while page:
                found += filter(None, (problem_of(*columns) for _, *columns in page))
                page = self._statements.read(self._sql["read_all_threads"], page[-1][0], PAGE)
        except StoreError as error:
            return [str(error)]
        return found

    # Writing

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`: one statement, and one round trip."""
        if not swaps:
            return []
        name, parameters = call_for(swaps, demanded=self._demanded)
        outcome = self._statements.write(self._sql[name], *parameters)[0][0]
        if name == "swap_row":
            return [outcome]
        return [is_made or self._bury(swap) for is_made, swap in zip(outcome, swaps, strict=True)]

    def _bury(self, swap: Swap) -> bool:
        """Replace a lost head by a tombstone; False if the head is sound, or the swap is not a tombstone."""
        if not (replaces_lost_head(swap) and swap.head.deleted):
            return False
        parameters = (key_of(swap.thread), swap.thread, swap.replacement, self._demanded)
        return bool(self._statements.write(self._sql["bury"], *parameters))

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: every entry under a key that is not its own. Reads the table of threads."""
        shown, namespace = shown_id_of(thread), thread[: 1 + thread[0]]
        for key, listed in self._statements.read(self._sql["find_misplaced"], KEY_BYTES):
            if listed.startswith(namespace) and shown_id_of(listed) == shown:
                self._statements.write(self._sql["drop_misplaced"], key, listed)

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        return bool(self._statements.write(self._sql["insert_post"], key_of(thread), name_of(key), value))

    def transaction(self, connection: object, ports: Ports) -> PostgresTransaction:
        """See `Transacting.transaction`."""
        return PostgresTransaction(ports, connection, self._sql, self._id, demanded=self._demanded)

    # Announcing

    def announce(self, prefix: bytes) -> None:
        """See `Announcing.announce`: by NOTIFY, after a commit and in no transaction."""
        self._announcer.announce(channel_of(self._id, prefix).encode())

    def listener(self, prefix: bytes) -> PostgresListener:
        """See `Announcing.listener`."""
        self.open()
        return PostgresListener(self._connections.alone, channel_of(self._id, prefix))

    # Reading

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        keys = {key_of(thread): thread for thread in threads}
        if not keys:
            return []
        found: dict[bytes, bytes | None] = {}
        for key, thread, head, is_orphan in self._statements.read(self._sql["read_heads"], list(keys)):
            if is_orphan or thread not in {None, keys[key]}:
                raise Corrupt(
                    f"the PostgreSQL tables are damaged: thread {shown_id_of(keys[key])!r} has no head, or the key of"
                    " another thread",
                    record=f"head of {shown_id_of(keys[key])!r}",
                )
            found[keys[key]] = head
        return [found[thread] for thread in threads]

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`: one range of the table."""
        if not 0 < seq <= LAST_SEQ:
            return []
        return [Row(*found) for found in self._statements.read(self._sql["read_rows"], key_of(thread), seq)]

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        above = LAST_SEQ if before is None else min(before, LAST_SEQ)
        found = self._statements.read(self._sql["read_index"], key_of(thread), above, limit)
        return [Row(*each) for each in found]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        if not ids:
            return {}
        return dict(self._statements.read(self._sql["read_blobs"], key_of(thread), list(ids)))

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`: newest created first."""
        sql, parameters = listing_query(self._sql["read_threads"], prefix, statuses, labels, cursor, limit)
        found = self._statements.read(sql, *parameters)
        page = found[:limit]
        heads = [(columns[1], listed_head(*columns)) for _, *columns in page]
        return Listing(heads, str(page[-1][0]) if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`: the server counts, in one round trip."""
        return dict(self._statements.read(self._sql["count_threads"], len(prefix), prefix))

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        return self.inboxes([thread])[0]

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        """See `Overlooking.inboxes`: one round trip."""
        found: dict[bytes, dict[str, bytes]] = {key_of(thread): {} for thread in threads}
        for key, name, value in self._statements.read(self._sql["read_posts"], list(found)):
            found[key][name.decode("utf-8", "surrogatepass")] = value
        return [found[key_of(thread)] for thread in threads]
