"""Fuzz runs in processes of their own: `python -m fuzz.child` reads a line of JSON for each, `[TARGET, FIRST, COUNT]`.

It forks a process for the run, so that none costs a new interpreter, and prints two lines: what went wrong, as JSON,
and the exit code. The process of a run has little memory, each input little time, and an audit hook that hears of
everything that is imported, executed or opened. `TARGET` may also be one of the wrong parsers below, which a run must
find.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from tempfile import gettempdir
from typing import Any, NoReturn

from fuzz.mutations import mutated
from fuzz.targets import FOLDER, Target, targets
from holdfast.records.errors import HoldfastError

MEMORY = 1 << 30
SECONDS = 10
FORBIDDEN = ("import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.")
MAX_FAILURES = 5


class TooSlow(BaseException):
    """An input took longer than any may."""


def _hang(_: bytes) -> None:
    while True:
        time.sleep(0.01)


def _swell(_: bytes) -> int:
    return len(bytearray(MEMORY))


WRONG: dict[str, Callable[[bytes], object]] = {
    "raises a foreign error": int,
    "imports a name it was given": lambda data: __import__("json." + data[:2].hex()),
    "opens a file": lambda _: open("/dev/null"),  # noqa: SIM115, PTH123
    "takes all memory": _swell,
    "never ends": _hang,
}


class Run:
    """What is heard and counted while the inputs are parsed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        """Where files may be opened; nowhere if that is empty."""
        self.listens = False
        self.failures: list[str] = []
        self.heard: list[str] = []
        self.slowest = 0.0

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listens and event.startswith(FORBIDDEN) and not self._is_allowed(arguments):
            self.heard.append(f"{event} {str(arguments)[:80]}")

    def _is_allowed(self, arguments: tuple[Any, ...]) -> bool:
        """Time zones of the system; for a parser of files its folder, and names relative to an open one."""
        first = arguments[0] if arguments else ""
        if str(first).startswith(zoneinfo.TZPATH):
            return True
        return bool(self.folder) and (
            isinstance(first, int) or str(first).startswith(self.folder) or "/" not in str(first)
        )

    def parse(self, number: int, target: Target) -> None:
        data = mutated(number, target.seeds)
        start, self.listens = time.perf_counter(), True
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            target.parse(data)
        except HoldfastError:
            pass
        except (Exception, TooSlow) as error:  # noqa: BLE001  whatever it is, it is not ours
            self.failures.append(f"input {number} ({data[:60]!r}…): {type(error).__name__}: {str(error)[:200]}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.listens = False
        self.slowest = max(self.slowest, time.perf_counter() - start)
        if self.heard:
            self.failures.append(f"input {number} ({data[:60]!r}…): {self.heard.pop()}")
            self.heard.clear()


def _too_slow(*_: object) -> None:
    raise TooSlow(f"took more than {SECONDS} s")


def warm_up(target: Target) -> None:
    """Parse all seeds, which are right, and some inputs: what is imported at the first use is imported now."""
    for seed in target.seeds:
        target.parse(seed)
    for number in range(-300, 0):
        with suppress(Exception):  # what is found here is found again
            target.parse(mutated(number, target.seeds))


def main(name: str, first: int, count: int) -> None:
    with targets() as known:
        target = known.get(name)
        if target is None:
            target = Target([b"\0\0"], WRONG[name], 1)
        else:
            warm_up(target)
        report(fuzzed(target, range(first, first + count)))


def fuzzed(target: Target, numbers: range) -> Run:
    """A run over these inputs, which ends early if enough is wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    run = Run(f"{gettempdir()}/{FOLDER}" if target.reads_files else "")
    sys.addaudithook(run.hear)
    for number in numbers:
        run.parse(number, target)
        if len(run.failures) >= MAX_FAILURES:
            break
    return run


def report(run: Run) -> None:
    sys.stdout.write(json.dumps({"failures": run.failures, "slowest": run.slowest}))


def serve() -> None:
    for line in sys.stdin:
        process = os.fork()
        if not process:
            _end_with(*json.loads(line))
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"\n{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _end_with(name: str, first: int, count: int) -> NoReturn:
    """Make one run, and end this process whatever happens."""
    try:
        main(name, first, count)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  it must not come back to the loop that forked it
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    serve()
