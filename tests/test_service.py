"""The service of docs/recovery.md: killed while it writes a report, started again, and the report goes on."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from holdfast import sync
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.processes

DOCUMENT = Path(__file__).parent.parent / "docs" / "recovery.md"
PROGRAM = re.compile(r"<!-- saved as service\.py -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = [f"researching part {number}" for number in range(1, 11)]


class Service:
    """The document's program under uvicorn, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        found = PROGRAM.search(DOCUMENT.read_text())
        assert found is not None
        (directory / "service.py").write_text(found[1])
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def start(self) -> None:
        """Start it; what it prints goes to a file."""
        command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(self._port), "--log-level", "warning"]
        with (self._directory / "printed.txt").open("ab") as printed:
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=printed, stderr=printed)

    def end(self, how: signal.Signals) -> int:
        """End it with a signal."""
        self._process.send_signal(how)
        return self._process.wait(GIVE_UP_SECONDS)

    def call(self, path: str, method: str = "GET") -> Any:
        """What it answers."""
        with urlopen(Request(f"http://127.0.0.1:{self._port}{path}", method=method), timeout=GIVE_UP_SECONDS) as answer:
            return json.load(answer)

    def post(self, path: str) -> None:
        """Ask for something, and do not wait for the answer: the service may die of it."""

        def target() -> None:
            with suppress(OSError):
                self.call(path, "POST")

        Thread(target=target, daemon=True).start()

    @property
    def printed(self) -> list[str]:
        """The lines of all its processes."""
        return (self._directory / "printed.txt").read_text().splitlines()


def until(condition: Callable[[], bool], seconds: float = GIVE_UP_SECONDS) -> None:
    """Wait for a condition; a deadline only for what will never come."""
    deadline = monotonic() + seconds
    while True:
        with suppress(URLError):
            if condition():
                return
        assert monotonic() < deadline
        sleep(0.02)


def test_a_service_killed_in_mid_report_goes_on_with_it_when_it_is_started_again(tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.start()
    until(lambda: "openapi" in service.call("/openapi.json"))
    service.post("/reports/r-1?topic=kelp")
    until(lambda: len(service.printed) >= 4)
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    with sync.open(tmp_path / "agents.db") as store:
        done = len(store.get("r-1", store.thread("r-1").seq).steps)
    begun = len(service.printed)
    assert 3 <= done < 10
    service.start()
    until(lambda: service.call("/reports/r-1")["status"] == "complete")
    assert service.printed == [*PARTS[:begun], *PARTS[done:]], "a recorded step was repeated, or one was left out"
    assert service.call("/reports/r-1?topic=kelp", "POST").startswith("part 1 of kelp, part 2 of kelp")
    assert service.end(signal.SIGTERM) in {0, -signal.SIGTERM}
