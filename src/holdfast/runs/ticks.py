"""When a schedule ticks, and which ticks it fires: pure functions of times in microseconds since 1970.

`every` ticks at multiples of its period since 1970, `cron` by the wall clock of its time zone: a moment that the change
to summer time skips ticks right after it; one that occurs twice in autumn ticks once, unless its hour is a wildcard.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.runs.options import seconds

if TYPE_CHECKING:
    from cronsim import CronSim

CatchUp: TypeAlias = Literal["latest", "all", "none"]
Overlap: TypeAlias = Literal["skip", "allow"]
SHORTEST_US = 1_000_000
MOST_CAUGHT_UP = 100
LATE_US = 60_000_000
"""A tick that was not fired for this long is a missed one: with `catch_up="none"` it is dropped."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Timing(msgspec.Struct, frozen=True):
    """When a schedule ticks: after each period, in microseconds, or by a cron expression in a time zone."""

    every: int = 0
    cron: str = ""
    tz: str = "UTC"

    @property
    def kind(self) -> str:
        """What it ticks by: `every` or `cron`."""
        return "cron" if self.cron else "every"


def timing_of(cron: object, every: object, tz: object) -> Timing:
    """Return when a schedule ticks; raise `ConfigurationError` unless exactly one of `cron` and `every` is valid."""
    if (cron is None) == (every is None):
        raise ConfigurationError("give either `cron` or `every`")
    if every is not None:
        period = round(seconds(every, "every") * 1e6)  # type: ignore[arg-type]  # checked there
        if period < SHORTEST_US:
            raise ConfigurationError(f"`every` must be at least 1 s, got {every!r}")
        return Timing(every=period)
    if not isinstance(cron, str) or not isinstance(tz, str):
        raise ConfigurationError(f"`cron` and `tz` must be texts, got {cron!r} and {tz!r}")
    timing = Timing(cron=cron, tz=tz)
    _cron(timing, 0)
    return timing


def next_tick(timing: Timing, after: int) -> int:
    """Return the first tick after this moment; 0 if there is none."""
    if timing.every:
        return (after // timing.every + 1) * timing.every
    return next((_microseconds(tick) for tick in _cron(timing, after)), 0)


def missed_ticks(timing: Timing, fired: int, now: int) -> list[int]:
    """Return the ticks after `fired`, up to now: the latest of them, up to 100, in order."""
    latest = islice(takewhile(lambda tick: tick > fired, _ticks_back(timing, now)), MOST_CAUGHT_UP)
    return [*latest][::-1]


def ticks_to_fire(timing: Timing, fired: int, now: int, catch_up: CatchUp) -> list[int]:
    """Return the ticks that a schedule fires now, if it fired all up to `fired`."""
    missed = missed_ticks(timing, fired, now)
    if catch_up == "all":
        return missed
    return [tick for tick in missed[-1:] if catch_up == "latest" or now - tick <= LATE_US]


def tick_id(name: str, tick: int) -> str:
    """Return the id of the thread that a tick creates: `digest@2026-11-17T08:00:00Z`."""
    moment = moment_of(tick)
    return f"{name}@{moment:%Y-%m-%dT%H:%M:%S}{f'.{moment.microsecond:06}' if moment.microsecond else ''}Z"


def moment_of(tick: int) -> datetime:
    """Return a tick as a time in UTC."""
    return EPOCH + tick * MICROSECOND


def check_words(catch_up: object, overlap: object) -> None:
    """Raise `ConfigurationError` unless these are valid."""
    for name, value, words in (("catch_up", catch_up, get_args(CatchUp)), ("overlap", overlap, get_args(Overlap))):
        if value not in words:
            raise ConfigurationError(f"`{name}` must be one of {', '.join(map(repr, words))}, got {value!r}")


def _ticks_back(timing: Timing, now: int) -> Iterator[int]:
    """Yield the ticks up to now, the latest first."""
    if timing.every:
        yield from range(now - now % timing.every, 0, -timing.every)
    else:
        yield from map(_microseconds, _cron(timing, now + SHORTEST_US - now % SHORTEST_US, reverse=True))


def _cron(timing: Timing, start: int, *, reverse: bool = False) -> "CronSim":
    """Return the ticks of a cron expression after a moment, or before it; it has whole minutes."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ConfigurationError("`cron` needs the package cronsim: pip install 'holdfast[cron]'") from error
    try:
        return CronSim(timing.cron, moment_of(start).astimezone(ZoneInfo(timing.tz)), reverse=reverse)
    except CronSimError as error:
        raise ConfigurationError(f"`cron` must be five fields, such as '0 9 * * 1-5', got {timing.cron!r}") from error
    except (KeyError, OSError, ValueError) as error:
        raise ConfigurationError(f"`tz` must be a time zone, such as 'Europe/Berlin', got {timing.tz!r}") from error


def _microseconds(moment: datetime) -> int:
    return (moment.astimezone(UTC) - EPOCH) // MICROSECOND
