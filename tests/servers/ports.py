"""Ports of the loopback that nobody uses."""

import os
import secrets
import socket

WORKERS = 16
PORTS = range(10_000, 32_000)
"""Below those of outgoing connections: one of them could take a server's port while it is down."""

_given: set[int] = set()


def free_port() -> int:
    """A port that was free a moment ago. No process of this test run gets it a second time."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    while True:
        port = secrets.choice(PORTS[worker::WORKERS])
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
