"""A private Redis server with an append-only file in the scratch directory; a database for each contender."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DATABASES = 64


class Server:
    """Gives each directory of a contender a database of its own."""

    def __init__(self, directory: Path, fsync: str) -> None:
        self.directory = directory
        self.fsync = fsync
        self._databases: dict[Path, int] = {}
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]

    def database(self, directory: Path) -> int:
        """The number of the database that belongs to a directory."""
        return self._databases.setdefault(directory, len(self._databases))

    def url(self, directory: Path) -> str:
        return f"redis://127.0.0.1:{self.port}/{self.database(directory)}"

    def client(self, directory: Path) -> Any:
        import redis

        return redis.Redis.from_url(self.url(directory))

    def stored_bytes(self, directory: Path) -> int:
        """What all keys of the contender weigh in memory, by Redis's own account."""
        with self.client(directory) as client:
            names = list(client.scan_iter(count=1000))
            pipeline = client.pipeline(transaction=False)
            for name in names:
                pipeline.memory_usage(name, samples=0)
            return sum(pipeline.execute())

    def _wait(self) -> None:
        import redis

        ends_at = time.monotonic() + 30
        while True:
            try:
                with redis.Redis(port=self.port) as client:
                    client.ping()
            except redis.ConnectionError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.05)
            else:
                return

    @contextmanager
    def running(self) -> Iterator[Server]:
        self.directory.mkdir(parents=True)
        binary = shutil.which("redis-server") or shutil.which("valkey-server")
        if binary is None:
            raise FileNotFoundError("redis-server is not installed: apt-get install redis-server")
        settings = {
            "port": self.port, "bind": "127.0.0.1", "dir": self.directory, "databases": DATABASES, "save": "",
            "appendonly": "yes", "appendfsync": self.fsync, "auto-aof-rewrite-percentage": 0,
        }  # fmt: skip
        command = [binary, *(word for name, value in settings.items() for word in (f"--{name}", str(value)))]
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            self._wait()
            yield self
        finally:
            process.kill()
            process.wait()
