"""Who is raced on Redis: each over a database of its own, at the same setting of the append-only file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, PROCESS_CRASH, AwaitableSaves, BlockingSaves, Contender, Saver
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.peer_triage import TriageSaver
from benchmarks.redis.server import Server
from benchmarks.workloads import State, encoded


def _durability(server: Server) -> str:
    return POWER_LOSS if server.fsync == "always" else PROCESS_CRASH


@dataclass(frozen=True)
class RedisOptions(StoreOptions):
    """Holdfast on a server of this run."""

    kind: str = "redis"
    server: Server | None = None

    @property
    def durability(self) -> str:
        assert self.server is not None
        return _durability(self.server)

    @property
    def label(self) -> str:
        assert self.server is not None
        return f"Redis {self.server.fsync}"

    def url(self, directory: Path) -> str:
        assert self.server is not None
        return self.server.url(directory)


def options_on(server: Server) -> RedisOptions:
    return RedisOptions(level="durable" if server.fsync == "always" else "process", server=server)


class TriageRedis(TriageSaver):
    """Its Redis store, on an awaitable client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name, self.durability = f"triage Redis {server.fsync}", _durability(server)

    async def open(self, directory: Path) -> None:
        import redis.asyncio
        from triage.checkpoint.redis import RedisCheckpointStore

        self.client = redis.asyncio.Redis.from_url(self.server.url(directory))
        self.store = RedisCheckpointStore(self.client)
        self.trajectory: list[Any] = []

    async def close(self) -> None:
        await self.client.aclose()


class RawSet(Contender):
    """One key per step, already encoded: one SET."""

    family = "raw"

    def __init__(self, server: Server, bodies: list[bytes]) -> None:
        self.server, self.bodies = server, bodies
        self.name, self.durability = f"raw SET, Redis {server.fsync}", _durability(server)

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.client = self.server.client(directory)

    def step(self, index: int) -> None:
        self.client.set(b"k%d" % index, self.bodies[index % len(self.bodies)])

    def finish(self) -> None:
        self.client.close()

    def final_bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    bytes = final_bytes


class RawSetSaver(Saver):
    """W5: the same by any writer, each on a connection of its own."""

    family = "raw"

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name, self.durability = f"raw SET, Redis {server.fsync}", _durability(server)
        self.numbers = count()

    def open(self, directory: Path) -> None:
        self.client = self.server.client(directory)

    def save(self, thread: str, state: State) -> None:
        self.client.set(b"k%d" % next(self.numbers), encoded(state))

    def latest(self, thread: str) -> State:
        raise NotImplementedError

    def restore(self, thread: str, key: Any) -> State:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


class _InDatabase:
    """A contender whose bytes are in its database."""

    server: Server
    directory: Path

    def final_bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    bytes = final_bytes


class DatabaseSaves(_InDatabase, BlockingSaves):
    """Saves of a blocking store."""

    def __init__(self, server: Server, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.server = server


class AwaitableDatabaseSaves(_InDatabase, AwaitableSaves):
    """Saves of a store that is awaited."""

    def __init__(self, server: Server, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.server = server


class DatabaseAppend(_InDatabase, HoldfastAppend):
    """Appends."""

    def __init__(self, server: Server, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.server = server
