"""Private Redis servers: in temporary directories, on free ports, children that end when the tests end."""

import atexit
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import redis

from patience import GIVE_UP_SECONDS
from servers import check_allowed
from servers.disks import limit_files
from servers.ports import free_port

_numbers = count()


def binary() -> str:
    """Redis or Valkey, whichever is installed."""
    place = shutil.which("redis-server") or shutil.which("valkey-server")
    if place is None:
        raise FileNotFoundError("redis-server is not installed: apt-get install redis-server")
    return place


class RedisServer:
    """One server. It can be killed and started again; its port stays the same. Settings are those of redis.conf."""

    def __init__(self, *words: str, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        self.port = free_port()
        self._words = words
        given = {"appendonly": "yes", "appendfsync": "always", "save": ""}
        self._settings = given | {name.replace("_", "-"): value for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    @classmethod
    def sentinel(cls, directory: Path, service: str, port: int, *more: str) -> "RedisServer":
        """A sentinel that watches a server on its own, with more lines for its settings."""
        settings = directory / "sentinel.conf"
        watched = f"sentinel monitor {service} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {service} 500\n"
        settings.write_text(watched + "".join(f"{line}\n" for line in more))
        return cls(str(settings), "--sentinel")

    def url(self, prefix: str, port: int | None = None) -> str:
        """What to give to `open`."""
        return f"redis://127.0.0.1:{port or self.port}/0?prefix={prefix}"

    def client(self, **options: Any) -> "redis.Redis":
        """A client for the test itself."""
        return redis.Redis(port=self.port, **options)

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers, unless it is to be met before."""
        check_allowed()
        options = [word for name, value in self._settings.items() for word in (f"--{name}", value)]
        command = [
            binary(),
            *self._words,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.directory),
            *options,
        ]
        with (self.directory / "log").open("ab") as log:
            # However this process dies, its server dies with it. Python ignores the signal of a file that is too large,
            # and so does its server: it gets the error instead, as from a full disk.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log, restore_signals=False
            )
        if wait:
            self._wait()

    def _wait(self) -> None:
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
                return
            except redis.ConnectionError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > ends_at:
                    raise
                time.sleep(0.02)
            else:
                return

    def limit_files(self, size: int | None) -> None:
        """Let no file grow beyond `size` bytes, as if the disk were full; None for no limit."""
        assert self._process is not None
        limit_files(self._process.pid, size)

    def listen_with_tls(self) -> int:
        """Take connections over TLS too, with the certificate of the settings; returns the port."""
        port = free_port()
        with self.client() as client:
            client.config_set("tls-port", port)
        return port

    def kill(self) -> None:
        """SIGKILL, as if the process had been killed for its memory."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut it down."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(GIVE_UP_SECONDS)

    def remove(self) -> None:
        """Stop it and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class RedisCluster:
    """Three servers that share the slots between them."""

    def __init__(self, **settings: str) -> None:
        buses = [free_port() for _ in range(3)]
        self.nodes = [RedisServer(cluster_enabled="yes", cluster_port=str(bus), **settings) for bus in buses]
        first = self.nodes[0]
        with first.client() as client:
            for node, bus in zip(self.nodes[1:], buses[1:], strict=True):
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                bounds = number * 16384 // 3, (number + 1) * 16384 // 3
                client.execute_command("CLUSTER", "ADDSLOTS", *range(*bounds))
        self.wait()

    def wait(self) -> None:
        """Wait until all nodes know that all slots are served."""
        for node in self.nodes:
            self._wait(node)

    def _wait(self, node: RedisServer) -> None:
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < ends_at:
            with node.client() as client:
                if client.cluster("INFO")["cluster_state"] == "ok":
                    return
            time.sleep(0.02)
        raise TimeoutError("the cluster did not come together")

    def url(self, prefix: str) -> str:
        """What to give to `open`."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[1:])
        return f"redis+cluster://{hosts}?prefix={prefix}"


@cache
def shared_server() -> RedisServer:
    """A server for all tests of this process that do not harm it. Its append-only file is written at its leisure."""
    return RedisServer(appendfsync="everysec")


@cache
def shared_cluster() -> RedisCluster:
    """A cluster for all tests of this process that do not harm it."""
    return RedisCluster(appendfsync="everysec")


def new_prefix() -> str:
    """A prefix that no other test uses: an empty place on a server."""
    return f"test{next(_numbers)}"


def contents(client: Any, prefix: str) -> Mapping[bytes, dict[bytes, bytes]]:
    """Every hash below a prefix, with its fields."""
    names = sorted(client.scan_iter(f"{prefix}:*", _type="HASH"))
    return {name: client.hgetall(name) for name in names}
