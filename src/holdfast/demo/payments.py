"""A small payment service: its own process, with HTTP and a ledger on disk. It knows nothing of Holdfast.

It books a refund first (a line of the ledger, synced to disk) and answers later. A request with the `Idempotency-Key`
of a booked refund gets that refund's receipt. Run as a program, it prints where it listens and what it books, and ends
when its standard input does.
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
"""Holds the service's address, host:port."""
KEYLESS = "HOLDFAST_DEMO_KEYLESS"
"""Set to send refunds without their key: a broken agent, to see that the demo notices."""
TIMEOUT_SECONDS = 30


def refund(order: str, cents: int, key: str) -> str:
    """Ask the service for a refund; return its receipt."""
    headers = {"Idempotency-Key": key} if key and KEYLESS not in os.environ else {}
    connection = HTTPConnection(os.environ[VARIABLE], timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/refunds", json.dumps({"order": order, "cents": cents}), headers)
        return str(json.loads(connection.getresponse().read())["receipt"])
    finally:
        connection.close()


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return all booked refunds."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Service(ThreadingHTTPServer):
    """Books refunds, on a free port of this machine, in a ledger that survives this process."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, ledger: Path, delay_seconds: float, first_delay_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.delays = chain([first_delay_seconds], repeat(delay_seconds))
        self._ledger = ledger
        self._lock = Lock()
        booked = read_ledger(ledger)
        self._count = len(booked)
        self._receipts = {entry["key"]: str(entry["receipt"]) for entry in booked if entry["key"]}

    def book(self, order: str, cents: int, key: str) -> tuple[str, bool]:
        """Return the receipt of a refund, and True if it is new."""
        with self._lock:
            if key in self._receipts:
                return self._receipts[key], False
            self._count += 1
            receipt = f"R-{self._count}"
            with self._ledger.open("a") as file:
                file.write(json.dumps({"receipt": receipt, "order": order, "cents": cents, "key": key}) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if key:
                self._receipts[key] = receipt
            return receipt, True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that was killed before it could read its answer."""


class Handler(BaseHTTPRequestHandler):
    """Handles one refund."""

    server: Service

    def do_POST(self) -> None:
        """Book it, print so, wait, answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        receipt, new = self.server.book(asked["order"], asked["cents"], key)
        say("booked" if new else "known", receipt=receipt, order=asked["order"], key=key)
        time.sleep(next(self.server.delays))
        answer = json.dumps({"receipt": receipt}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name in http.server
        """Log nothing."""


def say(kind: str, **words: Any) -> None:
    """Write a line to the parent process, in one write, so that no line is ever cut in half."""
    os.write(1, json.dumps({"kind": kind, **words}, default=str).encode() + b"\n")


def main() -> None:
    """Serve until standard input ends, with the parent process."""
    service = Service(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
    Thread(target=service.serve_forever, daemon=True).start()
    say("listening", address=f"127.0.0.1:{service.server_port}")
    sys.stdin.read()


if __name__ == "__main__":
    main()
