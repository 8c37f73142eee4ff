"""Times, dates, time spans and time zones, to bytes and back. Nothing here reads a clock.

A time zone is stored by its key. `ZoneInfo(key)` would try to import a package named after an unknown key. So a stored
key is first looked up in the list of existing zones.
"""

import os
import zoneinfo
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from struct import Struct
from typing import Any, Final

from msgspec import msgpack

from holdfast.codec import tags
from holdfast.codec.pieces import extension
from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError

_DATE: Final = Struct(">HBB")  # year, month, day
_TIME: Final = Struct(">BBBI")  # hour, minute, second, microsecond; the highest bit is the fold
_SPAN: Final = Struct(">iII")  # days, seconds, microseconds, as timedelta normalises them
_FOLD: Final = 1 << 31
_OFFSET, _ZONE = b"o", b"z"
_LONGEST_KEY: Final = 64
_EXTRA: Final = frozenset("_+-")


def _pack_offset(offset: timedelta) -> bytes:
    return _SPAN.pack(offset.days, offset.seconds, offset.microseconds)


def _read_span(data: bytes) -> timedelta:
    days, seconds, microseconds = _SPAN.unpack(data)
    return timedelta(days, seconds, microseconds)


def _pack_zone(info: tzinfo | None) -> bytes:
    """Return nothing for naive times; a fixed offset with its name, if any; or the key of a time zone."""
    if info is None:
        return b""
    if type(info) is timezone:
        offset, *name = info.__getinitargs__()  # type: ignore[attr-defined]  # the constructor's own arguments
        return _OFFSET + _pack_offset(offset) + b"".join(b"=" + text.encode("utf-8", "surrogatepass") for text in name)
    return _ZONE + _zone_key(info).encode()


def _read_zone(data: bytes) -> tzinfo | None:
    if not data:
        return None
    if data.startswith(_OFFSET):
        end = 1 + _SPAN.size
        name = (data[end + 1 :].decode("utf-8", "surrogatepass"),) if data[end:] else ()
        return timezone(_read_span(data[1:end]), *name)
    return _zone(data.removeprefix(_ZONE).decode("ascii"))


def _pack_clock(value: datetime | time) -> bytes:
    fold = _FOLD if value.fold else 0
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond | fold)


def _read_clock(data: bytes) -> time:
    """Return the naive time of day; the zone is stored after it."""
    hour, minute, second, low = _TIME.unpack(data)
    return time(hour, minute, second, low & ~_FOLD, fold=low >> 31)


def _write_datetime(value: datetime) -> bytes:
    if value.tzinfo is timezone.utc and not value.fold:  # noqa: UP017  `datetime.UTC` is the same object
        return msgpack.encode(value)  # the timestamp extension
    payload = _DATE.pack(value.year, value.month, value.day) + _pack_clock(value) + _pack_zone(value.tzinfo)
    return extension(tags.DATETIME, payload)


def _read_timestamp(data: bytes) -> Any:
    return msgpack.decode(extension(tags.TIMESTAMP, data))


def _read_datetime(data: bytes) -> datetime:
    return datetime.combine(_read_date(data[:4]), _read_clock(data[4:11]), tzinfo=_read_zone(data[11:]))


def _write_date(value: date) -> bytes:
    return extension(tags.DATE, _DATE.pack(value.year, value.month, value.day))


def _read_date(data: bytes) -> date:
    return date(*_DATE.unpack(data))


def _write_time(value: time) -> bytes:
    return extension(tags.TIME, _pack_clock(value) + _pack_zone(value.tzinfo))


def _read_time(data: bytes) -> time:
    return _read_clock(data[:7]).replace(tzinfo=_read_zone(data[7:]))


def _write_timedelta(value: timedelta) -> bytes:
    return extension(tags.TIMEDELTA, _pack_offset(value))


def _write_zone(value: tzinfo) -> bytes:
    return extension(tags.ZONE, _pack_zone(value))


def _read_lone_zone(data: bytes) -> tzinfo:
    found = _read_zone(data)
    if found is None:
        raise CodecError("not a time zone as Holdfast writes it")
    return found


def _zone_key(info: tzinfo) -> str:
    """Return the key of a ZoneInfo; raises Refused for other time zones, whose rules could not be restored."""
    key: str | None = info.key if type(info) is zoneinfo.ZoneInfo else None
    if key is None or not _is_plain(key):
        name = f"{type(info).__module__}.{type(info).__qualname__}"
        raise Refused(f"the time zone {name} cannot be stored; use zoneinfo.ZoneInfo(key) or datetime.timezone")
    return key


def _zone(key: str) -> tzinfo:
    """Return the ZoneInfo with that key; raises CodecError if it is unknown on this machine."""
    if not _is_plain(key) or not _exists(key):
        raise CodecError(f"the time zone {key!r} is not known on this machine; installing tzdata may help")
    return zoneinfo.ZoneInfo(key)


def _is_plain(key: str) -> bool:
    """True for words joined by single slashes: never a path that could leave the database."""
    if len(key) > _LONGEST_KEY or not key.isascii():
        return False
    return all(word and all(c.isalnum() or c in _EXTRA for c in word) for word in key.split("/"))


def _exists(key: str) -> bool:
    if any(os.path.isfile(f"{root}/{key}") for root in zoneinfo.TZPATH):  # noqa: PTH113  a key is not a path
        return True
    return key in _available()


@cache
def _available() -> frozenset[str]:
    """Return all zones, including those of the tzdata package. Listing them takes 10 ms, so it is done once."""
    return frozenset(zoneinfo.available_timezones())


WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    timezone: _write_zone,
    zoneinfo.ZoneInfo: _write_zone,
}
READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    tags.TIMESTAMP: _read_timestamp,
    tags.DATETIME: _read_datetime,
    tags.DATE: _read_date,
    tags.TIME: _read_time,
    tags.TIMEDELTA: _read_span,
    tags.ZONE: _read_lone_zone,
}
