"""What is the same in both worlds: the clock, randomness, the process, the heartbeat's thread, the terminal."""

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
    """Clock and randomness of this machine."""

    @staticmethod
    def now() -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    @staticmethod
    def entropy(count: int) -> bytes:
        """Random bytes of the operating system."""
        return os.urandom(count)

    @staticmethod
    def owner() -> str:
        """This process, and what tells its claims apart."""
        return f"{processes.identity()}:{os.urandom(4).hex()}"

    @staticmethod
    def is_certainly_dead(owner: str) -> bool:
        """What this host knows of that process."""
        return processes.is_certainly_dead(owner)

    @staticmethod
    def lock() -> AbstractContextManager[Any]:
        """One of this process."""
        return RLock()

    @staticmethod
    def beat(tick: Callable[[], float | None], woken: "Signal") -> None:
        """A daemon thread, until `tick` returns None."""
        Thread(target=_beat, args=(tick, woken), name="holdfast-heartbeat", daemon=True).start()

    @staticmethod
    def tell(text: str) -> None:
        """Standard error, if it is a terminal."""
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")


def _beat(tick: Callable[[], float | None], woken: "Signal") -> None:
    while (seconds := tick()) is not None:
        if woken.wait(seconds):
            woken.clear()
