"""A private PostgreSQL server in a temporary directory, which ends with this process."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def program(name: str) -> str:
    """A program of the newest PostgreSQL that is installed; empty if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else shutil.which(name) or ""


@contextmanager
def private_server() -> Iterator[str]:
    """The URL of a new server. PostgreSQL refuses to run as root: then it runs as the user `postgres`."""
    directory = Path(tempfile.mkdtemp(prefix="fleet-postgres-"))
    user = [] if os.geteuid() else ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    if user:
        shutil.chown(directory, "postgres", "postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = ["-D", str(directory / "data")]
    initialise = [*user, program("initdb"), *data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run(initialise, check=True, stdout=subprocess.DEVNULL)
    serve = [*user, program("postgres"), *data, "-p", str(port), "-k", str(directory), "-clisten_addresses=127.0.0.1"]
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(serve, stdout=log, stderr=log, start_new_session=True)  # Ctrl-C is not for it
    try:
        until_ready(server, port, directory / "log")
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def until_ready(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Wait until the server takes connections."""
    asking = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(asking, check=False).returncode:
        if server.poll() is not None:
            raise SystemExit(f"PostgreSQL did not start:\n{log.read_text()}")
        time.sleep(0.1)
