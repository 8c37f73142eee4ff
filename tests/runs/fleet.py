"""Real worker processes on one store, and what they did: each execution of a step is a line of a log."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import sync
from patience import GIVE_UP_SECONDS

APP = str(Path(__file__).parent / "worker_app.py")
SHIFTED = str(Path(__file__).parent / "shifted_clock.py")
LEASE = 2.0


class Fleet:
    """Worker processes of one store."""

    def __init__(self, directory: Path, url: str, app: str = APP) -> None:
        self.url = url
        self.app = app
        self.log = directory / "log"
        self.log.touch()
        self.store = sync.open(self.url)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, shift: int = 0, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker; the clock of its host is `shift` seconds ahead."""
        program = [SHIFTED, str(shift)] if shift else ["-m", "holdfast"]
        command = [sys.executable, *program, "worker", self.app, "--store", self.url, "--lease", str(LEASE), *options]
        names = {f"APP_{name.upper()}": value for name, value in environment.items()}
        worker = subprocess.Popen(
            command, env={**os.environ, "APP_LOG": str(self.log), **names}, stdout=subprocess.DEVNULL
        )
        self.workers.append(worker)
        return worker

    def submit(self, thread_id: str, steps: int, **options: Any) -> None:
        self.store.submit("worker_app:count", thread_id, (thread_id, steps), **options)

    def submit_many(self, threads: int) -> None:
        for number in range(threads):
            self.submit(f"t-{number}", 3)

    def executions(self) -> list[str]:
        return self.log.read_text().splitlines()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait as long as something is executed now and then."""
        size, end = 0, 0.0
        while not condition():
            if self.log.stat().st_size != size:
                size, end = self.log.stat().st_size, time.monotonic() + GIVE_UP_SECONDS
            end = end or time.monotonic() + GIVE_UP_SECONDS
            assert time.monotonic() < end, (self.store.counts(), self.executions()[-5:])
            time.sleep(0.02)

    def until_executed(self, count: int) -> None:
        self.until(lambda: len(self.executions()) >= count)

    def kill_at_random(self, threads: int, kills: int) -> None:
        """Kill workers while they run these threads, and start others."""
        for kill in range(kills):
            self.until_executed((kill + 1) * threads // kills)
            random.choice([worker for worker in self.workers if worker.poll() is None]).kill()
            self.start()

    def check_all_ended(self, threads: int, most_repeated: int) -> None:
        """All of `submit_many` end, each step is recorded once, and few were executed again."""
        self.until(lambda: self._have_completed(threads))
        executed = Counter(line for line in self.executions() if " by " not in line)
        assert set(executed) == {f"t-{number} {step}" for number in range(threads) for step in range(3)}
        assert sum(executed.values()) - len(executed) <= most_repeated
        assert all(len(self.store.history(f"t-{number}").items) == 3 for number in range(threads))
        assert self.store.verify().ok

    def _have_completed(self, threads: int) -> bool:
        """True if all have. One that failed because three kills hit it, with no step done in between, is put back."""
        for info in self.store.threads(status="failed"):
            assert "died in each of" in str(info.error), info
            self.store.retry(info.thread_id)
        return self.store.counts() == {"complete": threads}

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
        self.store.close()
