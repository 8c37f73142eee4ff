"""A little payment service: a process of its own, over HTTP, with its own ledger on disk. It knows nothing of Holdfast.

A refund is booked first (a line of the ledger, forced to the disk) and answered later. A request that bears the
`Idempotency-Key` of a booked refund is answered with that one. Run as a program it says on standard output where it
listens and what it books, and ends when its standard input does.
"""

import json
import os
import sys
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from threading import Lock, Thread
from typing import Any

VARIABLE = "HOLDFAST_DEMO_PAYMENTS"
"""Where the service listens: host:port."""
KEYLESS = "HOLDFAST_DEMO_KEYLESS"
"""Set if refunds are to be sent without their key: a broken agent, to see that the demo notices."""
TIMEOUT_SECONDS = 30


def refund(order: str, cents: int, key: str) -> str:
    """Ask the service for a refund: its receipt."""
    headers = {"Idempotency-Key": key} if key and KEYLESS not in os.environ else {}
    connection = HTTPConnection(os.environ[VARIABLE], timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/refunds", json.dumps({"order": order, "cents": cents}), headers)
        response = connection.getresponse()
        return str(json.loads(response.read())["receipt"])
    finally:
        connection.close()


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """What was booked."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Ledger:
    """The refunds that were booked, in a file that survives this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._booked = {entry["key"]: entry for entry in read_ledger(path) if entry["key"]}
        self._count = len(read_ledger(path))

    def book(self, order: str, cents: int, key: str) -> tuple[str, bool]:
        """The receipt of a refund, and whether it is a new one."""
        with self._lock:
            if key in self._booked:
                return self._booked[key]["receipt"], False
            self._count += 1
            entry = {"receipt": f"R-{self._count}", "order": order, "cents": cents, "key": key}
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if key:
                self._booked[key] = entry
            return str(entry["receipt"]), True


class Service(ThreadingHTTPServer):
    """Listens on a free port of this machine."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, ledger: Ledger, delay_seconds: float, first_delay_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ledger = ledger
        self.delays = chain([first_delay_seconds], repeat(delay_seconds))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed does not read its answer: nothing to do."""


class Handler(BaseHTTPRequestHandler):
    """One refund."""

    server: Service

    def do_POST(self) -> None:
        """Book it, say so, take a while, answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        receipt, new = self.server.ledger.book(asked["order"], asked["cents"], key)
        say(kind="booked" if new else "known", receipt=receipt, order=asked["order"], key=key)
        time.sleep(next(self.server.delays))
        answer = json.dumps({"receipt": receipt}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name in http.server
        """Say nothing: what is booked was said."""


def say(**words: Any) -> None:
    """Write a line to the parent process, in one write, so that no line is ever half there."""
    os.write(1, json.dumps(words).encode() + b"\n")


def main() -> None:
    """Serve until standard input ends, with the parent process."""
    service = Service(Ledger(Path(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3]))
    Thread(target=service.serve_forever, daemon=True).start()
    say(kind="listening", address=f"127.0.0.1:{service.server_port}")
    sys.stdin.read()


if __name__ == "__main__":
    main()
