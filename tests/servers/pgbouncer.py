"""A private PgBouncer in transaction mode: two statements of one client may meet two servers."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from patience import GIVE_UP_SECONDS
from servers.ports import free_port
from servers.postgres import USER, PostgresServer, unprivileged

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_reset_query_always = 0
"""


def _without_prepared_statements(program: str) -> str:
    """A newer PgBouncer knows about prepared statements, and is told not to."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    return "max_prepared_statements = 0\n" if int(version.split(".")[1]) >= 21 else ""


class PgBouncer:
    """Stands before a server, until it is left."""

    def __init__(self, server: PostgresServer) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        settings = self._directory / "pgbouncer.ini"
        text = SETTINGS.format(server=server.port, port=self.port)
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        settings.write_text(text.replace("* = ", f"* = user={USER} ") + _without_prepared_statements(program))
        if not os.geteuid():
            shutil.chown(self._directory, USER, USER)
        self._process = subprocess.Popen(
            unprivileged(program, str(settings)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                psycopg.connect(f"host=127.0.0.1 port={self.port} user={USER} dbname={USER}").close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > ends_at:
                    self.__exit__(None, None, None)
                    raise
                time.sleep(0.02)
            else:
                return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
