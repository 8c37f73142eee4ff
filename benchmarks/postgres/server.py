"""A private PostgreSQL server, with fsync, in the scratch directory; it has a database for each contender."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

USER = "postgres"
SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=600", "shared_buffers=256MB", "max_wal_size=4GB")
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
 WHERE relkind = 'r' AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""


class Server:
    """Gives each directory of a contender a database of the same name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]

    def conninfo(self, directory: Path) -> str:
        """The database that belongs to a directory, made if it is not there."""
        name = "_".join(directory.parts[-2:]).replace("-", "_").replace(" ", "_").lower()
        with self._connect(USER) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                connection.execute(f'CREATE DATABASE "{name}"')
        return self._conninfo(name)

    def url(self, directory: Path) -> str:
        """The same as a URL."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{self.conninfo(directory).rpartition('=')[2]}"

    def fetch(self, conninfo: str, statement: str) -> tuple[Any, ...]:
        """Execute a statement, and return its first row."""
        import psycopg

        with psycopg.connect(conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone() if cursor.description else ()

    def cpu_seconds(self) -> float:
        """The time of the processor that all its processes have used, also those that have ended."""
        parent = (self.directory / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0]
        while True:
            of_parent, ticks = _times(Path("/proc", parent, "stat")), 0
            for place in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError):
                    ticks += sum(map(int, _times(place)[1:3])) if _times(place)[0] == parent else 0
            if _times(Path("/proc", parent, "stat"))[3:] == of_parent[3:]:  # else one ended meanwhile
                return (ticks + sum(map(int, of_parent[1:]))) / os.sysconf("SC_CLK_TCK")

    def stored_bytes(self, directory: Path) -> int:
        """Tables, indexes and what is kept beside them, of all that the contender made."""
        import psycopg

        with psycopg.connect(self.conninfo(directory)) as connection:
            return int(connection.execute(SIZE).fetchone()[0])

    def _conninfo(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={database}"

    def _connect(self, database: str):  # noqa: ANN202 - psycopg is imported when it is needed
        import psycopg

        return psycopg.connect(self._conninfo(database), autocommit=True)

    def _wait(self) -> None:
        import psycopg

        ends_at = time.monotonic() + 30
        while True:
            try:
                self._connect(USER).close()
            except psycopg.OperationalError:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.05)
            else:
                return

    @contextmanager
    def running(self) -> Iterator[Server]:
        self.directory.mkdir(parents=True)
        as_user = []
        if not os.geteuid():
            self._hand_over()
            as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]
        data = str(self.directory / "data")
        subprocess.run(
            [*as_user, binary("initdb"), "-D", data, "-U", USER, "-A", "trust"], check=True, stdout=subprocess.DEVNULL
        )
        command = [binary("postgres"), "-D", data, "-p", str(self.port), "-k", str(self.directory)]
        with (self.directory / "log").open("wb") as log:
            options = [f"-c{setting}" for setting in SETTINGS]
            process = subprocess.Popen([*as_user, *command, *options], stdout=log, stderr=log)
        try:
            self._wait()
            yield self
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()

    def _hand_over(self) -> None:
        """PostgreSQL does not run as root, and must be able to reach its directory."""
        entry = pwd.getpwnam(USER)
        os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        for parent in self.directory.parents[:2]:
            parent.chmod(0o755)


def _times(place: Path) -> list[str]:
    """The parent of a process; then its own two times and those of its ended children, in ticks."""
    words = place.read_text(encoding="utf-8").rpartition(")")[2].split()
    return [words[1], *words[11:15]]


def binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parent.parent.name))
    place = str(found[-1]) if found else shutil.which(name)
    if place is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install postgresql")
    return place
