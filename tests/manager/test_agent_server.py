"""The server of examples/agent_server: killed under load and started again, on a store that its URL names."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from kinds import parameters, url_of
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.processes

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_server"
TASKS = [f"order-{number}" for number in range(20)]


class Server:
    """The example under uvicorn, with its payments in a directory."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self.payments = directory / "payments.txt"
        outside = {"HOLDFAST_STORE": url, "DURABILITY": "process", "PAYMENTS": str(self.payments)}
        self._environment = {**os.environ, **outside}
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(self._port), "--log-level", "warning"]
        with (self._directory / "printed.txt").open("ab") as printed:
            self._process = subprocess.Popen(
                [*command, "--timeout-graceful-shutdown", "5"],
                cwd=EXAMPLE,
                env=self._environment,
                stdout=printed,
                stderr=printed,
            )
        until(lambda: self.call("GET", "/openapi.json")[0] == 200 or self._process.poll() is not None)
        assert self._process.poll() is None, (self._directory / "printed.txt").read_text()

    def end(self, how: signal.Signals) -> int:
        """End it with a signal."""
        self._process.send_signal(how)
        return self._process.wait(GIVE_UP_SECONDS)

    def call(self, method: str, path: str, text: str = "", **headers: str) -> tuple[int, Any]:
        """The status and the answer; 0 if the server is dead."""
        body = json.dumps({"text": text}).encode() if text else None
        named = {"Content-Type": "application/json", **headers}
        request = Request(f"http://127.0.0.1:{self._port}{path}", body, named, method=method)
        try:
            with urlopen(request, timeout=GIVE_UP_SECONDS) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)
        except (OSError, HTTPException):
            return 0, None

    def order(self, task: str, text: str = "refund me") -> int:
        """Send the webhook of a task."""
        return self.call("POST", "/webhooks/ana/chat-1", text, **{"Idempotency-Key": task})[0]

    def approve(self, task: str) -> int:
        """Approve its refund."""
        return self.call("POST", f"/tasks/ana/chat-1/{task}/approval", "approve")[0]

    def statuses(self) -> set[str]:
        """How the tasks stand."""
        found = [self.call("GET", f"/tasks/ana/chat-1/{task}")[1] for task in TASKS]
        return {each["status"] if each else "" for each in found}


def until(condition: Callable[[], bool], seconds: float = GIVE_UP_SECONDS) -> None:
    """Wait for a condition; a deadline only for what will never come."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.mark.parametrize("kind", parameters("sqlite", "postgres", quick={"sqlite"}, rare={"postgres"}))
def test_a_server_killed_under_load_finishes_every_task_and_pays_each_refund_once(kind: str, tmp_path: Path) -> None:
    server = Server(tmp_path, url_of(kind, tmp_path))
    server.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            sent = [pool.submit(server.order, task) for task in TASKS]
            until(lambda: any(each.done() for each in sent))
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
        server.start()
        with ThreadPoolExecutor(8) as pool:  # the sender repeats itself, since it got no answer
            assert set(pool.map(server.order, TASKS * 2)) == {202}
        assert server.order(TASKS[0], "another text") == 409
        until(lambda: server.statuses() == {"input_required"})
        with ThreadPoolExecutor(8) as pool:
            approved = [pool.submit(server.approve, task) for task in TASKS]
            until(lambda: any(each.done() for each in approved))
            server.end(signal.SIGKILL)
        server.start()
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(server.approve, TASKS)) <= {200, 409}
        until(lambda: server.statuses() == {"done"})
        assert {server.approve(task) for task in TASKS} == {409}
        paid = server.payments.read_text().split()
        assert len(paid) == len(set(paid)) == len(TASKS)
    finally:
        with suppress(ProcessLookupError):
            server.end(signal.SIGTERM)


def test_progress_is_streamed_and_a_graceful_shutdown_leaves_the_task_to_the_next_server(tmp_path: Path) -> None:
    server = Server(tmp_path, str(tmp_path / "agents.db"))
    server.start()
    assert server.order("order-1") == 202
    assert server.end(signal.SIGTERM) in {0, -signal.SIGTERM}
    server.start()
    path = "/tasks/ana/chat-1/order-1"
    until(lambda: server.call("GET", path)[1]["status"] == "input_required")
    assert server.call("GET", path)[1]["pending"]["arguments"] == {"amount": 40}
    assert server.approve("order-1") == 200
    with urlopen(f"http://127.0.0.1:{server._port}{path}/stream", timeout=GIVE_UP_SECONDS) as stream:
        said = [json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: ")]
    assert said[-1] == {"task": "order-1", "answer": "The refund was paid (40)."}
    assert {each["tool"] for each in said[:-1]} == {"find_order", "read_rules"}
    assert server.call("GET", "/tasks/ana/chat-1/unknown")[0] == 404
    assert server.end(signal.SIGTERM) in {0, -signal.SIGTERM}
