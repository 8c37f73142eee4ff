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
    """A process of the demo ended by itself, or says nothing any more: not what the demo is about."""


class Child:
    """A Python module in a process of its own. Used as a context, it does not outlive it."""

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115  closed with this
        self._lines: Queue[dict[str, Any] | None] = Queue()
        self.heard: list[dict[str, Any]] = []
        """All that was heard of it so far."""
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
        assert self._process.stdout is not None  # noqa: S101  it was asked for
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, as it comes, until it ends."""
        while (line := self._next()) is not None:
            self.heard.append(line)
            yield line

    def _next(self) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=PATIENCE_SECONDS)
        except Empty:
            raise ChildFailed(f"process {self.pid} has said nothing for {PATIENCE_SECONDS} s") from None
        if line is None:
            self._lines.put(None)  # nothing will come after this, however often it is asked
        return line

    def wait_for(self, *kinds: str) -> dict[str, Any]:
        """The next line of one of these kinds."""
        for line in self.lines():
            if line["kind"] in kinds:
                return line
        raise ChildFailed(f"process {self.pid} ended with exit code {self.join()}: {self.last_words()}")

    def hear(self, count: int) -> None:
        """Wait for so many lines more."""
        for _ in range(count):
            next(self.lines(), None)

    def catch_up(self) -> None:
        """Hear what it has said already."""
        while not self._lines.empty() and next(self.lines(), None) is not None:
            pass

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        """What was heard so far of these kinds."""
        return [line for line in self.heard if line["kind"] in kinds]

    def kill(self) -> int:
        """SIGKILL: no cleanup, no farewell. The exit code."""
        self._process.kill()
        return self.join()

    def join(self) -> int:
        """Wait for its end, and hear what it still said: its exit code."""
        code = self._process.wait()
        self._listener.join()
        for _ in self.lines():
            pass
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def kill_at_work(self) -> None:
        """Kill it; `ChildFailed` if it was dead already, by its own fault."""
        code = self.kill()
        if code != KILLED:
            raise ChildFailed(f"process {self.pid} ended by itself, with exit code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """The last line of its standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class World(msgspec.Struct, frozen=True):
    """Where a scenario takes place: a store that workers share, and a payment service with its ledger."""

    store: str
    namespace: str
    ledger: Path
    payments: Child
    environment: dict[str, str]

    def worker(self, task: str, *arguments: str) -> Child:
        """A new process of the agent."""
        environment = {**self.environment, STORE: self.store}  # no argument: a URL may have a password
        return Child("holdfast.demo.worker", task, self.namespace, *arguments, **environment)

    def done(self, task: str, *arguments: str) -> Child:
        """A process of the agent that does its task to the end."""
        with self.worker(task, *arguments) as worker:
            for _ in worker.lines():
                pass
            if code := worker.join():
                raise ChildFailed(f"process {worker.pid} ended with exit code {code}: {worker.last_words()}")
            return worker


@contextmanager
def world(
    store: str, directory: Path, delays: tuple[float, float], namespace: str = "", **environment: str
) -> Iterator[World]:
    """A store, and a payment service that takes its time to answer: so many seconds, and so many the first time."""
    ledger = directory / "ledger.jsonl"
    with Child("holdfast.demo.payments", str(ledger), *map(str, delays)) as payments:
        address = payments.wait_for("listening")["address"]
        yield World(store, namespace, ledger, payments, {VARIABLE: address, **environment})
