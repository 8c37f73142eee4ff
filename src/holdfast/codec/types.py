"""The standard library's value types that are stored most, to bytes and back; `library_types` has the others.

`leaf_writer(cls)` gives the function that encodes a value of exactly that class; `LEAF_READERS` the way back, by code.
Nothing here makes an id or reads a clock: `uuid` and `datetime` are here for their types.
"""

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from struct import Struct
from typing import Any, Final
from uuid import UUID, SafeUUID

from msgspec import msgpack

from holdfast.codec import library_types, tags
from holdfast.codec.pieces import extension
from holdfast.codec.refusal import Refused
from holdfast.codec.zones import zone, zone_key
from holdfast.records.errors import CodecError

Writer = Callable[[Any], bytes]

_DATE: Final = Struct(">HBB")  # year, month, day
_TIME: Final = Struct(">BBBI")  # hour, minute, second, microsecond; the highest bit is the fold
_SPAN: Final = Struct(">iII")  # days, seconds, microseconds, as timedelta normalises them
_FOLD: Final = 1 << 31
_OFFSET, _ZONE = b"o", b"z"
_PATHS: Final = ("PurePosixPath", "PosixPath", "PureWindowsPath", "WindowsPath")


def _write_int(value: int) -> bytes:
    return extension(tags.BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _read_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def write_text(value: str) -> bytes:
    """The encoding of a str that is not valid Unicode (lone surrogates)."""
    return extension(tags.SURROGATES, value.encode("utf-8", "surrogatepass"))


def _read_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _pack_offset(offset: timedelta) -> bytes:
    return _SPAN.pack(offset.days, offset.seconds, offset.microseconds)


def _read_span(data: bytes) -> timedelta:
    days, seconds, microseconds = _SPAN.unpack(data)
    return timedelta(days, seconds, microseconds)


def _pack_zone(info: tzinfo | None) -> bytes:
    """Nothing for naive times; a fixed offset with the name it was given, if any; or the key of a time zone."""
    if info is None:
        return b""
    if type(info) is timezone:
        offset, *name = info.__getinitargs__()  # type: ignore[attr-defined]  # the constructor's own arguments
        return _OFFSET + _pack_offset(offset) + b"".join(b"=" + text.encode("utf-8", "surrogatepass") for text in name)
    return _ZONE + zone_key(info).encode()


def _read_zone(data: bytes) -> tzinfo | None:
    if not data:
        return None
    if data.startswith(_OFFSET):
        end = 1 + _SPAN.size
        name = (_read_text(data[end + 1 :]),) if data[end:] else ()
        return timezone(_read_span(data[1:end]), *name)
    return zone(data.removeprefix(_ZONE).decode("ascii"))


def _pack_clock(value: datetime | time) -> bytes:
    fold = _FOLD if value.fold else 0
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond | fold)


def _read_clock(data: bytes) -> time:
    """The naive time of day; the zone comes after it."""
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


def _write_decimal(value: Decimal) -> bytes:
    return extension(tags.DECIMAL, str(value).encode())


def _read_decimal(data: bytes) -> Decimal:
    text = data.decode("ascii")
    value = Decimal(text)
    if str(value) != text:  # also when the caller's decimal context lets malformed text pass as NaN
        raise CodecError("not a decimal number as Holdfast writes it")
    return value


def _write_uuid(value: UUID) -> bytes:
    safety = b"" if value.is_safe is SafeUUID.unknown else bytes((value.is_safe is SafeUUID.safe,))
    return extension(tags.UUID, value.bytes + safety)


def _read_uuid(data: bytes) -> UUID:
    safety = {b"": SafeUUID.unknown, b"\x00": SafeUUID.unsafe, b"\x01": SafeUUID.safe}[data[16:]]
    return UUID(bytes=data[:16], is_safe=safety)


def _write_path(value: Any) -> bytes:
    kind, text = type(value), str(value)
    if kind(text).parts != value.parts:
        raise Refused(f"the path {text!r} reads as another path; store its parts")
    flavour = bytes((_PATHS.index(kind.__name__),))
    return extension(tags.PATH, flavour + text.encode("utf-8", "surrogatepass"))


def _read_path(data: bytes) -> Any:
    import pathlib

    try:
        return getattr(pathlib, _PATHS[data[0]])(_read_text(data[1:]))
    except NotImplementedError as error:
        raise CodecError(f"a {_PATHS[data[0]]} cannot be restored on this system; store a pure path") from error


LEAF_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    tags.TIMESTAMP: _read_timestamp,
    tags.BIG_INT: _read_int,
    tags.SURROGATES: _read_text,
    tags.DATETIME: _read_datetime,
    tags.DATE: _read_date,
    tags.TIME: _read_time,
    tags.TIMEDELTA: _read_span,
    tags.DECIMAL: _read_decimal,
    tags.UUID: _read_uuid,
    tags.PATH: _read_path,
    tags.ZONE: _read_lone_zone,
    **library_types.READERS,
}

_LEAF_WRITERS: Final[dict[type, Writer]] = {
    int: _write_int,
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    Decimal: _write_decimal,
    UUID: _write_uuid,
    timezone: _write_zone,
}


def leaf_writer(cls: type) -> Writer | None:
    """The function that encodes a value of exactly this class, if the class is one of the standard value types."""
    writer = _LEAF_WRITERS.get(cls)
    if writer is None:
        writer = _late_writer(cls)
        if writer is not None:
            _LEAF_WRITERS[cls] = writer
    return writer


def _late_writer(cls: type) -> Writer | None:
    """The same for classes of modules that may never be loaded: if they are not, no value can be of these classes."""
    if _is_path(cls):
        return _write_path
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and cls is zoneinfo.ZoneInfo:
        return _write_zone
    return library_types.writer_of(cls)


def _is_path(cls: type) -> bool:
    """True for pathlib's own classes."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and cls.__name__ in _PATHS and getattr(pathlib, cls.__name__) is cls
