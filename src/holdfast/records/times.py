"""Times are stored as microseconds since 1970 and shown as aware datetimes in UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_microseconds(value: int) -> datetime:
    """Return the time as an aware datetime, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=value)
