"""A private PostgreSQL server: initialised in a temporary directory, run as a child that ends when the tests end."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from patience import GIVE_UP_SECONDS
from servers import check_allowed
from servers.ports import free_port
from servers.tls import Files

USER = "postgres"

_numbers = count()


def binary(name: str) -> str:
    """A program of the newest PostgreSQL that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parent.parent.name))
    place = str(found[-1]) if found else shutil.which(name)
    if place is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install postgresql")
    return place


def unprivileged(*command: str) -> list[str]:
    """The command as a user that PostgreSQL agrees to run as; it is ended when this process dies, however it dies."""
    if os.geteuid():
        return ["setpriv", "--pdeathsig", "QUIT", *command]
    return ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--pdeathsig", "QUIT", *command]


def _initdb(data: Path) -> list[str]:
    options = ("-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
    return [binary("initdb"), "-D", str(data), *options]


def _is_alive(process: int) -> bool:
    """True for a process that has not ended; one that nobody has waited for yet has."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class PostgresServer:
    """One server. It can be killed and started again; its port stays the same."""

    def __init__(
        self, *settings: str, largest_file: int | None = None, primary: "PostgresServer | None" = None
    ) -> None:
        check_allowed()
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self.port = free_port()
        self._settings = settings
        self._limits = ["prlimit", f"--fsize={largest_file}"] if largest_file else []
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        if not os.geteuid():
            entry = pwd.getpwnam(USER)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        made = _initdb if primary is None else primary._copy
        subprocess.run(unprivileged(*made(self._data)), check=True, stdout=subprocess.DEVNULL)
        self.start()

    def _copy(self, data: Path) -> list[str]:
        """The command that makes a standby of this server."""
        return [binary("pg_basebackup"), "-D", str(data), "-R", "-d", self.conninfo(), "-c", "fast", "--no-sync"]

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def conninfo(self, **parameters: Any) -> str:
        """What to connect with."""
        given: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": USER, **parameters}
        return psycopg.conninfo.make_conninfo(**given)

    def url(self, schema: str, port: int | None = None) -> str:
        """What to give to `open`."""
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{USER}?schema={schema}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = [f"-c{setting}" for setting in ("listen_addresses=127.0.0.1", *self._settings)]
        command = [binary("postgres"), "-D", str(self._data), "-p", str(self.port), "-k", str(self.directory), *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([*self._limits, *unprivileged(*command)], stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                psycopg.connect(self.conninfo(connect_timeout=5)).close()
            except psycopg.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > ends_at:
                    log = (self.directory / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"PostgreSQL does not start; its log ends with\n{log}") from error
                time.sleep(0.02)
            else:
                return

    def listen_with_tls(self, files: Files) -> None:
        """Take connections over TLS too, with this certificate."""
        for place, name in ((files.certificate, "certificate.pem"), (files.key, "key.pem")):
            kept = self.directory / name
            shutil.copy(place, kept)
            kept.chmod(0o600)
            if not os.geteuid():
                shutil.chown(kept, USER, USER)
        self.execute(f"ALTER SYSTEM SET ssl_cert_file = '{self.directory}/certificate.pem'")
        self.execute(f"ALTER SYSTEM SET ssl_key_file = '{self.directory}/key.pem'")
        self.execute("ALTER SYSTEM SET ssl = on")
        self.execute("SELECT pg_reload_conf()")
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while self.execute("SHOW ssl") != [("on",)] and time.monotonic() < ends_at:
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to the server and every process of it, as if the machine had failed."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # no more children from here on
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], check=False, capture_output=True, text=True
        )
        children = [int(process) for process in found.stdout.split()]
        for process in [self._process.pid, *children]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        while any(map(_is_alive, children)):
            time.sleep(0.001)  # one that is still dying may hold the port
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Shut it down: SIGINT disconnects everybody first."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(GIVE_UP_SECONDS)

    def remove(self) -> None:
        """Stop it and remove what it kept."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.remove)

    def execute(self, sql: str) -> list[tuple[object, ...]]:
        """Run a statement as an administrator would."""
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


@cache
def shared_server() -> PostgresServer:
    """The server of this test process; each test takes a schema of its own."""
    return PostgresServer("max_connections=60", "shared_buffers=32MB")


def url_for(directory: Path) -> str:
    """A store that belongs to a test's directory, and does not wait for the disk."""
    schema = "d_" + sha256(str(directory).encode()).hexdigest()[:16]
    return f"{shared_server().url(schema)}&options=-c%20synchronous_commit%3Doff"


def new_schema() -> str:
    """A name that no other test has."""
    return f"t{os.getpid()}_{next(_numbers)}"
