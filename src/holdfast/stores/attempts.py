"""Retries while a server is unavailable: the one place that decides how long to wait between them."""

from collections.abc import Iterator
from time import monotonic, sleep

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


def attempts(patience: float) -> Iterator[bool]:
    """Yield False before each attempt but the last, then True; sleep between them, twice as long each time.

    All pauses together take at most `patience` seconds. There is always one attempt.
    """
    ends_at, pause = monotonic() + patience, FIRST_PAUSE
    while monotonic() + pause < ends_at:
        yield False
        sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    yield True
