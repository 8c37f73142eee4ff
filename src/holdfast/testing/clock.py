"""A clock that goes as a test wants it to, and ports that tell its time."""

from holdfast.ports import BlockingPorts, Ports
from holdfast.ports.awaitable import AsyncPorts


class Clock:
    """Microseconds since 1970, moved by hand; it may go back."""

    def __init__(self, now: int = 1_700_000_000_000_000) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number turns it back."""
        self.now += round(seconds * 1_000_000)

    def ports(self, *, awaitable: bool = False) -> Ports:
        """Ports for a store that goes by this clock."""
        return _AsyncClockPorts(self) if awaitable else _BlockingClockPorts(self)


class _BlockingClockPorts(BlockingPorts):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> int:
        return self._clock.now


class _AsyncClockPorts(AsyncPorts):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> int:
        return self._clock.now
