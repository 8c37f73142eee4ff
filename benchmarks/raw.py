"""The limits: what the disk and SQLite cost by themselves, in the fastest form that keeps the same promise.

SQLite: one prepared INSERT per autocommitted transaction into a rowid table, WAL of the default size. Tried and slower
or equal: explicit BEGIN and COMMIT, WITHOUT ROWID, smaller and larger pages and logs.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, PROCESS_CRASH, Contender, Saver
from benchmarks.workloads import State, encoded

_SYNCHRONOUS = {POWER_LOSS: "FULL", PROCESS_CRASH: "NORMAL"}


def connect(path: Path, durability: str) -> sqlite3.Connection:
    """A connection in WAL mode with the table `entries`."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={_SYNCHRONOUS[durability]}")
    connection.execute("CREATE TABLE IF NOT EXISTS entries (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return connection


class RawInsert(Contender):
    """One row per step, already encoded."""

    family = "raw"

    def __init__(self, bodies: list[bytes], durability: str) -> None:
        self.bodies, self.durability = bodies, durability
        self.name = f"raw SQLite {_SYNCHRONOUS[durability]}"

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.connection = connect(directory / "raw.db", self.durability)

    def step(self, index: int) -> None:
        self.connection.execute("INSERT INTO entries (body) VALUES (?)", (self.bodies[index % len(self.bodies)],))

    def finish(self) -> None:
        self.connection.close()


class RawAppend(Contender):
    """One write per step to the end of a file."""

    family = "raw"

    def __init__(self, bodies: list[bytes], durability: str) -> None:
        self.bodies, self.durability = bodies, durability
        self.name = "raw append + fdatasync" if durability == POWER_LOSS else "raw append"

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.file = os.open(directory / "raw.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.sync = os.fdatasync if self.durability == POWER_LOSS else _nothing

    def step(self, index: int) -> None:
        os.write(self.file, self.bodies[index % len(self.bodies)])
        self.sync(self.file)

    def finish(self) -> None:
        os.close(self.file)


class RawInsertSaver(Saver):
    """W5: the same INSERT for any writer, one transaction each, one connection under a lock."""

    family = "raw"

    def __init__(self, durability: str) -> None:
        self.durability = durability
        self.name = f"raw SQLite {_SYNCHRONOUS[durability]}"
        self.lock = threading.Lock()

    def open(self, directory: Path) -> None:
        self.connection = connect(directory / "raw.db", self.durability)

    def save(self, thread: str, state: State) -> Any:
        body = encoded(state)
        with self.lock:
            self.connection.execute("INSERT INTO entries (body) VALUES (?)", (body,))

    def latest(self, thread: str) -> State:
        raise NotImplementedError

    def restore(self, thread: str, key: Any) -> State:
        raise NotImplementedError

    def close(self) -> None:
        self.connection.close()


class RawAppendSaver(Saver):
    """W5: one append and one fdatasync per save, under a lock."""

    family = "raw"
    durability = POWER_LOSS
    name = "raw append + fdatasync"

    def open(self, directory: Path) -> None:
        self.lock = threading.Lock()
        self.file = os.open(directory / "raw.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def save(self, thread: str, state: State) -> Any:
        body = encoded(state)
        with self.lock:
            os.write(self.file, body)
            os.fdatasync(self.file)

    def latest(self, thread: str) -> State:
        raise NotImplementedError

    def restore(self, thread: str, key: Any) -> State:
        raise NotImplementedError

    def close(self) -> None:
        os.close(self.file)


def raw_limits(bodies: list[bytes]) -> list[Contender]:
    """The four limits of a workload whose steps have these encodings."""
    kinds: tuple[type[RawInsert | RawAppend], ...] = (RawInsert, RawAppend)
    return [kind(bodies, durability) for kind in kinds for durability in (POWER_LOSS, PROCESS_CRASH)]


def _nothing(_file: int) -> None:
    """Leave the data to the page cache."""
