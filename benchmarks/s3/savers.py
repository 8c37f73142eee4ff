"""Who is raced on S3: each under a prefix of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, BlockingSaves, Contender, Saver
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.s3.server import Server
from benchmarks.workloads import Script, State, encoded


@dataclass(frozen=True)
class S3Options(StoreOptions):
    """Holdfast on the server of this run."""

    kind: str = "s3"
    server: Server | None = None

    @property
    def label(self) -> str:
        return "S3"

    def open_blocking(self, directory: Path) -> Any:
        import holdfast.sync

        return holdfast.sync.S3Store(self._bucket(directory))

    def open_awaitable(self, directory: Path) -> Any:
        import holdfast

        return holdfast.S3Store(self._bucket(directory))

    def _bucket(self, directory: Path) -> Any:
        assert self.server is not None
        return self.server.bucket(directory)


class BucketSaves(BlockingSaves):
    """Saves whose bytes are in the contender's bucket."""

    def __init__(self, server: Server, saver: Saver, script: Script) -> None:
        super().__init__(saver, script)
        self.server = server

    def bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    def final_bytes(self) -> int:
        return self.bytes()


class BucketAppend(HoldfastAppend):
    """Appends, likewise."""

    def bytes(self) -> int:
        return self.options.server.stored_bytes(self.directory)  # type: ignore[attr-defined]

    def final_bytes(self) -> int:
        return self.bytes()


class RawPut(Contender):
    """The limit: one PUT of each step's bytes."""

    name = "raw PUT"
    family = "raw"
    durability = POWER_LOSS

    def __init__(self, server: Server, bodies: list[bytes]) -> None:
        self.server, self.bodies = server, bodies

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.bucket = self.server.bucket(directory)

    def step(self, index: int) -> None:
        self.bucket.put(f"step/{index:08}", self.bodies[index % len(self.bodies)], use_multipart=False)

    def finish(self) -> None:
        pass

    def bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    def final_bytes(self) -> int:
        return self.bytes()


class RawPutSaver(Saver):
    """W5: one PUT for each save, from as many threads."""

    name = "raw PUT, 32 threads"
    family = "raw"
    durability = POWER_LOSS

    def __init__(self, server: Server) -> None:
        self.server = server
        self.numbers = count()

    def open(self, directory: Path) -> None:
        self.bucket = self.server.bucket(directory)

    def save(self, thread: str, state: State) -> Any:
        self.bucket.put(f"{thread}/{next(self.numbers):08}", encoded(state), use_multipart=False)

    def latest(self, thread: str) -> State:
        raise NotImplementedError

    def restore(self, thread: str, key: Any) -> State:
        raise NotImplementedError

    def close(self) -> None:
        pass
