"""The clock of a server, as its clients see it: asked now and then, never by a caller that wants the time."""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from holdfast.records.errors import StoreError

ASK_AGAIN = 30_000_000_000
"""After how many nanoseconds the server is asked again, in the background."""
SLOW = 1_000_000_000
"""An answer that takes longer says too little about the time."""
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock of this host that nobody sets, and that runs while the host is suspended."""


class ServerClock:
    """Counts from the server's last answer with a clock of this host that is never set."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._answered: tuple[int, int] | None = None
        """The host's time and the server's, at the last answer."""
        self._asked_at = 0

    def now(self) -> int:
        """Return the time of the server, in microseconds since 1970. Only the first call asks it, and may fail."""
        ticks = time.clock_gettime_ns(STEADY)
        if self._answered is None:
            self._answered = self._answer()
            self._asked_at = ticks
        elif ticks - self._asked_at > ASK_AGAIN:
            self._asked_at = ticks
            with suppress(RuntimeError):  # the interpreter is about to exit
                Thread(target=self._ask_again, name="holdfast-clock", daemon=True).start()
        host, server = self._answered
        return server + (time.clock_gettime_ns(STEADY) - host) // 1000

    def _answer(self) -> tuple[int, int]:
        before = time.clock_gettime_ns(STEADY)
        server = self._ask()
        return (before + time.clock_gettime_ns(STEADY)) // 2, server

    def _ask_again(self) -> None:
        began = time.clock_gettime_ns(STEADY)
        with suppress(StoreError):
            answered = self._answer()
            if time.clock_gettime_ns(STEADY) - began < SLOW:
                self._answered = answered
