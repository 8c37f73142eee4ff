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
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"
SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=256MB", "max_wal_size=4GB")
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
            [*as_user, _binary("initdb"), "-D", data, "-U", USER, "-A", "trust"], check=True, stdout=subprocess.DEVNULL
        )
        command = [_binary("postgres"), "-D", data, "-p", str(self.port), "-k", str(self.directory)]
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


def _binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parent.parent.name))
    place = str(found[-1]) if found else shutil.which(name)
    if place is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install postgresql")
    return place
