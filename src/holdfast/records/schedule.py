"""A schedule as `store.schedules` shows it."""

from datetime import datetime, timedelta

import msgspec


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When a durable function is submitted again and again, and the state of that."""

    name: str
    function: str
    """The name of the durable function, as its threads record it."""
    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    catch_up: str = "latest"
    overlap: str = "skip"
    paused: bool = False
    fired_at: datetime | None = None
    """The last tick that created a thread; None if there is none yet."""
    next_at: datetime | None = None
    """The next tick; None if it is paused."""
