"""What both worlds share: the clock, randomness, the process, the heartbeat's thread, the terminal."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock, Thread
from typing import Any

from holdfast import processes
from holdfast.ports.tickets import Signal


class SystemPorts:
    """The clock, randomness and process of this machine."""

    @staticmethod
    def now() -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // 1000

    @staticmethod
    def entropy(count: int) -> bytes:
        """Return random bytes of the operating system."""
        return os.urandom(count)

    @staticmethod
    def owner() -> str:
        """Return the identity of this process with a random suffix."""
        return f"{processes.identity()}:{os.urandom(4).hex()}"

    @staticmethod
    def is_certainly_dead(owner: str) -> bool:
        """Ask this host about the process."""
        return processes.is_certainly_dead(owner)

    @staticmethod
    def lock() -> AbstractContextManager[Any]:
        """Return a lock of this process."""
        return RLock()

    @staticmethod
    def beat(tick: Callable[[], float | None], woken: "Signal") -> None:
        """Run it on a daemon thread until `tick` returns None."""
        Thread(target=_beat, args=(tick, woken), name="holdfast-heartbeat", daemon=True).start()

    @staticmethod
    def tell(text: str) -> None:
        """Write to standard error if it is a terminal."""
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")


def _beat(tick: Callable[[], float | None], woken: "Signal") -> None:
    while (seconds := tick()) is not None:
        if woken.wait(seconds):
            woken.clear()
