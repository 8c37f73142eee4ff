"""Who is raced on PostgreSQL: each saver over a database of its own, with what its own documents advise."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, AwaitableSaver, Contender, Saver
from benchmarks.holdfast_options import StoreOptions
from benchmarks.peer_langgraph import checkpoint_of, config_of
from benchmarks.postgres.server import Server
from benchmarks.workloads import State, encoded

METADATA = {"source": "loop", "step": 0, "parents": {}}
POOL = 32


@dataclass(frozen=True)
class PostgresOptions(StoreOptions):
    """Holdfast on the server of this run."""

    kind: str = "postgres"
    server: Server | None = None

    @property
    def label(self) -> str:
        return "PostgreSQL durable"

    def open_blocking(self, directory: Path) -> Any:
        import holdfast.sync

        return holdfast.sync.PostgresStore(self._conninfo(directory))

    def open_awaitable(self, directory: Path) -> Any:
        import holdfast

        return holdfast.PostgresStore(self._conninfo(directory))

    def _conninfo(self, directory: Path) -> str:
        assert self.server is not None
        return self.server.conninfo(directory)


class LanggraphPostgres(Saver):
    """`put` of the blocking saver, on one connection, or on a pool for many threads."""

    durability = POWER_LOSS
    family = "peer"

    def __init__(self, server: Server, *, pooled: bool = False) -> None:
        self.server, self.pooled = server, pooled
        self.name = "langgraph PostgreSQL" + (", pool" if pooled else "")
        self.versions = count(1)

    def open(self, directory: Path) -> None:
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg import connect
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        keywords = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        conninfo = self.server.conninfo(directory)
        if self.pooled:
            self.connection = ConnectionPool(conninfo, min_size=POOL, max_size=POOL, kwargs=keywords)
        else:
            self.connection = connect(conninfo, **keywords)
        self.saver = PostgresSaver(self.connection)
        self.saver.setup()

    def save(self, thread: str, state: State) -> str:
        checkpoint = versioned(state, next(self.versions))
        self.saver.put(config_of(thread), checkpoint, METADATA, checkpoint["channel_versions"])
        return checkpoint["id"]

    def latest(self, thread: str) -> State:
        return self.saver.get_tuple(config_of(thread)).checkpoint["channel_values"]

    def restore(self, thread: str, key: str) -> State:
        return self.saver.get_tuple(config_of(thread, key)).checkpoint["channel_values"]

    def close(self) -> None:
        self.connection.close()


class AwaitableLanggraphPostgres(AwaitableSaver):
    """`aput` of the awaited saver, on a pool."""

    name = "langgraph PostgreSQL (awaited), pool"
    durability = POWER_LOSS
    family = "peer"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.versions = count(1)

    async def open(self, directory: Path) -> None:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        keywords = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        conninfo = self.server.conninfo(directory)
        self.pool = AsyncConnectionPool(conninfo, min_size=POOL, max_size=POOL, kwargs=keywords, open=False)
        await self.pool.open(wait=True)
        self.saver = AsyncPostgresSaver(self.pool)
        await self.saver.setup()

    async def save(self, thread: str, state: State) -> str:
        checkpoint = versioned(state, next(self.versions))
        await self.saver.aput(config_of(thread), checkpoint, METADATA, checkpoint["channel_versions"])
        return checkpoint["id"]

    async def latest(self, thread: str) -> State:
        return (await self.saver.aget_tuple(config_of(thread))).checkpoint["channel_values"]

    async def restore(self, thread: str, key: str) -> State:
        return (await self.saver.aget_tuple(config_of(thread, key))).checkpoint["channel_values"]

    async def close(self) -> None:
        await self.pool.close()


def versioned(state: State, version: int) -> dict[str, Any]:
    """A checkpoint whose channels are new: only then does this saver store their values."""
    checkpoint = checkpoint_of(state)
    checkpoint["channel_versions"] = dict.fromkeys(state, f"{version:032}.0")
    return checkpoint


class RawInsert(Contender):
    """One row per step, already encoded: one INSERT, prepared by the driver, and its commit."""

    family = "raw"
    durability = POWER_LOSS
    name = "raw INSERT + commit"

    def __init__(self, server: Server, bodies: list[bytes]) -> None:
        self.server, self.bodies = server, bodies

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.connection = connect(self.server, directory)

    def step(self, index: int) -> None:
        body = self.bodies[index % len(self.bodies)]
        self.connection.execute("INSERT INTO entries (body) VALUES (%s)", (body,))

    def finish(self) -> None:
        self.connection.close()

    def bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    def final_bytes(self) -> int:
        return self.bytes()


class RawInsertSaver(Saver):
    """W5: the same by any writer, each on a connection of its own: PostgreSQL groups their commits by itself."""

    family = "raw"
    durability = POWER_LOSS
    name = "raw INSERT + commit, pool"

    def __init__(self, server: Server) -> None:
        self.server = server

    def open(self, directory: Path) -> None:
        from psycopg_pool import ConnectionPool

        connect(self.server, directory).close()
        keywords = {"autocommit": True}
        self.pool = ConnectionPool(self.server.conninfo(directory), min_size=POOL, max_size=POOL, kwargs=keywords)
        self.pool.wait()

    def save(self, thread: str, state: State) -> None:
        body = encoded(state)
        with self.pool.connection() as connection:
            connection.execute("INSERT INTO entries (body) VALUES (%s)", (body,))

    def latest(self, thread: str) -> State:
        raise NotImplementedError

    def restore(self, thread: str, key: Any) -> State:
        raise NotImplementedError

    def close(self) -> None:
        self.pool.close()


def connect(server: Server, directory: Path) -> Any:
    """A connection to a database with the table `entries`."""
    import psycopg

    connection = psycopg.connect(server.conninfo(directory), autocommit=True)
    connection.execute("CREATE TABLE IF NOT EXISTS entries (id bigserial PRIMARY KEY, body bytea NOT NULL)")
    return connection
