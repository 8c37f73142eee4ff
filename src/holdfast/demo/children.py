"""Child processes that report in lines of JSON: started, listened to, and really killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, Self

import msgspec

from holdfast.demo.payments import VARIABLE
from holdfast.records.errors import HoldfastError
from holdfast.stores.locations import VARIABLE as STORE

PATIENCE_SECONDS = 60
KILLED = -9


class ChildFailed(HoldfastError):
    """A process of the demo ended by itself, or hangs: a bug of the demo or of this machine."""


class Child:
    """A Python module in its own process. Leaving its context kills it."""

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115  closed with this
        self._lines: Queue[dict[str, Any] | None] = Queue()
        self.heard: list[dict[str, Any]] = []
        """All lines so far."""
        self._process = subprocess.Popen(  # noqa: S603  our own module, by the interpreter that runs this
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        self.pid = self._process.pid
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  it is a pipe
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield its lines as they come, until it ends."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_SECONDS)
            except Empty:
                raise ChildFailed(f"process {self.pid} has printed nothing for {PATIENCE_SECONDS} s") from None
            if line is None:
                self._lines.put(None)  # for the next caller
                return
            self.heard.append(line)
            yield line

    def wait_for(self, *kinds: str) -> dict[str, Any]:
        """Return the next line of one of these kinds."""
        for line in self.lines():
            if line["kind"] in kinds:
                return line
        raise self._failed(self.join())

    def hear(self, count: int) -> None:
        """Wait for `count` more lines, or its end."""
        for _ in range(count):
            next(self.lines(), None)

    def catch_up(self) -> None:
        """Take in the lines that are there already."""
        while not self._lines.empty() and next(self.lines(), None) is not None:
            pass

    def said(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the lines of these kinds so far."""
        return [line for line in self.heard if line["kind"] in kinds]

    def kill(self) -> int:
        """Send SIGKILL; return the exit code."""
        self._process.kill()
        return self.join()

    def join(self) -> int:
        """Wait for its end, and take in its last lines; return the exit code."""
        code = self._process.wait()
        self._listener.join()
        for _ in self.lines():
            pass
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def kill_at_work(self) -> None:
        """Kill it; raise `ChildFailed` if it had ended by itself."""
        code = self.kill()
        if code != KILLED:
            raise self._failed(code)

    def check_ended(self) -> None:
        """Wait for its end; raise `ChildFailed` if that was an error."""
        if code := self.join():
            raise self._failed(code)

    def _failed(self, code: int) -> ChildFailed:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ChildFailed(f"process {self.pid} ended with exit code {code}: {lines[-1] if lines else 'no error text'}")


class World(msgspec.Struct, frozen=True):
    """Where a scene takes place: a store that workers share, and a payment service with its ledger."""

    store: str
    namespace: str
    ledger: Path
    payments: Child
    environment: dict[str, str]

    def worker(self, task: str, *arguments: str) -> Child:
        """Start a process of the agent."""
        environment = {**self.environment, STORE: self.store}  # no argument: a URL may have a password
        return Child("holdfast.demo.worker", task, self.namespace, *arguments, **environment)

    def done(self, task: str, *arguments: str) -> Child:
        """Run a process of the agent to its end."""
        with self.worker(task, *arguments) as worker:
            worker.check_ended()
            return worker

    def printed(self, *command: str) -> list[str]:
        """Run a command of `holdfast` on the store; return the lines that it prints."""
        done = subprocess.run(  # noqa: S603  our own module, by the interpreter that runs this
            [sys.executable, "-m", "holdfast", *command],
            capture_output=True,
            env={**os.environ, STORE: self.store},
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            raise ChildFailed(f"holdfast {command[0]} ended with exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout.splitlines()


@contextmanager
def world(
    store: str, directory: Path, delays: tuple[float, float], namespace: str = "", **environment: str
) -> Iterator[World]:
    """Start a payment service that answers after `delays[0]` seconds, and the first time after `delays[1]`."""
    ledger = directory / "ledger.jsonl"
    with Child("holdfast.demo.payments", str(ledger), *map(str, delays)) as payments:
        address = payments.wait_for("listening")["address"]
        yield World(store, namespace, ledger, payments, {VARIABLE: address, **environment})
