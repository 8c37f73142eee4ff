"""When schedules tick: pure functions, compared with the plain definition of what they mean."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import ConfigurationError
from holdfast.runs.ticks import (
    LATE_US,
    MOST_CAUGHT_UP,
    Timing,
    check_words,
    missed_ticks,
    moment_of,
    next_tick,
    tick_id,
    ticks_to_fire,
    timing_of,
)

SECOND = 1_000_000
BERLIN = ZoneInfo("Europe/Berlin")
YEAR_2026 = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
moments = st.integers(YEAR_2026, YEAR_2026 + 400 * 86400 * SECOND)
timings = st.one_of(
    st.builds(lambda n: Timing(every=n * SECOND), st.integers(1, 100_000)),
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 9 * * 1-5", "59 23 31 12 *", "*/30 1-3 * * *"]).map(
        lambda cron: Timing(cron=cron, tz="Europe/Berlin")
    ),
)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def berlin(timing: Timing, start: str, count: int) -> list[str]:
    """The next ticks, as a clock in Berlin shows them."""
    tick, shown = at(start), []
    for _ in range(count):
        tick = next_tick(timing, tick)
        shown.append(moment_of(tick).astimezone(BERLIN).isoformat())
    return shown


@given(timings, moments)
def test_the_next_tick_is_later_and_is_missed_until_it_is_fired(timing: Timing, now: int) -> None:
    tick = next_tick(timing, now)
    assert tick > now
    assert missed_ticks(timing, now, tick - 1) == []
    assert missed_ticks(timing, now, tick) == [tick]
    assert missed_ticks(timing, tick, tick) == []


@given(timings, moments, st.integers(0, 40 * 86400 * SECOND))
def test_missed_ticks_are_those_that_one_would_have_fired_one_by_one(timing: Timing, fired: int, away: int) -> None:
    one_by_one, tick = list[int](), next_tick(timing, fired)
    while tick <= fired + away and len(one_by_one) < 3 * MOST_CAUGHT_UP:
        one_by_one.append(tick)
        tick = next_tick(timing, tick)
    if len(one_by_one) < 3 * MOST_CAUGHT_UP:
        missed = missed_ticks(timing, fired, fired + away)
        assert missed == one_by_one[-MOST_CAUGHT_UP:]
        assert ticks_to_fire(timing, fired, fired + away, "all") == missed
        assert ticks_to_fire(timing, fired, fired + away, "latest") == missed[-1:]


@given(timings, moments, st.lists(st.integers(-7200 * SECOND, 7200 * SECOND), max_size=20))
def test_no_tick_is_fired_twice_whichever_way_the_clock_moves(timing: Timing, start: int, moves: list[int]) -> None:
    fired, now, done = start, start, list[int]()
    for move in moves:
        now = max(now + move, YEAR_2026)
        for tick in ticks_to_fire(timing, fired, now, "all"):
            assert tick <= now
            done.append(tick)
            fired = tick
        fired = max(fired, now) if not missed_ticks(timing, fired, now) else fired
    assert done == sorted(set(done))


@given(timings, moments, st.integers(0, 86400 * SECOND))
def test_without_catch_up_only_a_tick_of_the_last_minute_is_fired(timing: Timing, fired: int, away: int) -> None:
    now = fired + away
    due = ticks_to_fire(timing, fired, now, "none")
    assert due == [tick for tick in missed_ticks(timing, fired, now)[-1:] if now - tick <= LATE_US]


def test_every_ticks_at_multiples_since_1970() -> None:
    assert next_tick(Timing(every=60 * SECOND), at("2026-11-17T08:00:30Z")) == at("2026-11-17T08:01:00Z")
    assert next_tick(Timing(every=60 * SECOND), at("2026-11-17T08:01:00Z")) == at("2026-11-17T08:02:00Z")


def test_a_moment_that_summer_time_skips_ticks_right_after_it() -> None:
    assert berlin(Timing(cron="30 2 * * *", tz="Europe/Berlin"), "2026-03-28T12:00:00+01:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_moment_that_occurs_twice_in_autumn_ticks_once() -> None:
    assert berlin(Timing(cron="30 2 * * *", tz="Europe/Berlin"), "2026-10-24T12:00:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_every_half_hour_ticks_through_the_hour_that_occurs_twice() -> None:
    assert berlin(Timing(cron="*/30 * * * *", tz="Europe/Berlin"), "2026-10-25T01:45:00+02:00", 4) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
    ]


def test_the_id_of_a_tick_is_its_time_in_utc() -> None:
    assert tick_id("digest", at("2026-11-17T09:00:00+01:00")) == "digest@2026-11-17T08:00:00Z"
    assert tick_id("fast", at("2026-11-17T08:00:00Z") + 500_000) == "fast@2026-11-17T08:00:00.500000Z"


@pytest.mark.parametrize(
    ("cron", "every", "tz"),
    [
        (None, None, "UTC"),
        ("* * * * *", 60, "UTC"),
        (None, 0.5, "UTC"),
        (None, "often", "UTC"),
        ("* * *", None, "UTC"),
        ("61 * * * *", None, "UTC"),
        ("* * * * *", None, "Mars/Olympus"),
        ("* * * * *", None, "../etc"),
        (5, None, "UTC"),
    ],
)
def test_wrong_timings_are_refused(cron: object, every: object, tz: object) -> None:
    with pytest.raises(ConfigurationError):
        timing_of(cron, every, tz)


@pytest.mark.parametrize(("catch_up", "overlap"), [("some", "skip"), ("all", "never"), (None, "skip")])
def test_wrong_words_are_refused(catch_up: object, overlap: object) -> None:
    with pytest.raises(ConfigurationError):
        check_words(catch_up, overlap)


def test_a_timedelta_is_a_period() -> None:
    assert timing_of(None, timedelta(minutes=5), "UTC") == Timing(every=300 * SECOND)
