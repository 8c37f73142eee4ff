"""The standard library's value types, to bytes and back: `leaf_writer(cls)` by class, `LEAF_READERS` by code.

What would be slow to load (a huge fraction, a pattern that is slow to compile) is refused at save and at load. `uuid`
is imported for its type only.
"""

import ipaddress
import pathlib
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from struct import Struct
from typing import Any, Final
from uuid import UUID, SafeUUID
from warnings import catch_warnings, simplefilter

from holdfast.codec import tags, times
from holdfast.codec.pieces import extension
from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError

_PATHS: Final = ("PurePosixPath", "PosixPath", "PureWindowsPath", "WindowsPath")
_NETWORKS: Final = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_PARTS: Final = Struct(">dd")
_FLAGS: Final = Struct(">cI")  # the type of the pattern's text, its flags
_SIZE: Final = Struct(">I")
_LARGEST: Final = 4096  # bytes of a numerator or denominator: finding their common divisor takes quadratic time

_LONGEST_PATTERN: Final = 10_000
_MOST_SETS: Final = 100
_MOST_WIDE_SETS: Final = 10
_STORED_FLAGS: Final = 2 | 4 | 8 | 16 | 32 | 64 | 256  # all of `re` except DEBUG, which prints, and TEMPLATE


def _write_int(value: int) -> bytes:
    return extension(tags.BIG_INT, _pack_int(value))


def _read_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def write_text(value: str) -> bytes:
    """Return the encoding of a str that is not valid Unicode (lone surrogates)."""
    return extension(tags.SURROGATES, value.encode("utf-8", "surrogatepass"))


def _read_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _write_decimal(value: Decimal) -> bytes:
    return extension(tags.DECIMAL, str(value).encode())


def _read_decimal(data: bytes) -> Decimal:
    text = data.decode("ascii")
    value = Decimal(text)
    if str(value) != text:  # the caller's decimal context may turn malformed text into NaN
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
        raise Refused(f"the path {text!r} would be loaded as another path; store its parts")
    flavour = bytes((_PATHS.index(kind.__name__),))
    return extension(tags.PATH, flavour + text.encode("utf-8", "surrogatepass"))


def _read_path(data: bytes) -> Any:
    try:
        return getattr(pathlib, _PATHS[data[0]])(_read_text(data[1:]))
    except NotImplementedError as error:
        raise CodecError(f"a {_PATHS[data[0]]} cannot be restored on this system; store a pure path") from error


def _write_network(value: Any) -> bytes:
    kind, text = type(value), str(value)
    if kind(text) != value:
        raise Refused(f"the network {text!r} would be loaded as another one; store its parts")
    return extension(tags.NETWORK, bytes((_NETWORKS.index(kind.__name__),)) + text.encode("utf-8", "surrogatepass"))


def _read_network(data: bytes) -> Any:
    text = _read_text(data[1:])
    value = getattr(ipaddress, _NETWORKS[data[0]])(text)
    if str(value) != text:
        raise CodecError("not a network address as Holdfast writes it")
    return value


def _write_pattern(value: Any) -> bytes:
    reason = _too_slow(value.pattern, value.flags)
    if reason:
        raise Refused(f"the pattern {reason}; store its text and compile it when needed")
    is_text = isinstance(value.pattern, str)
    text = value.pattern.encode("utf-8", "surrogatepass") if is_text else bytes(value.pattern)
    return extension(tags.PATTERN, _FLAGS.pack(b"s" if is_text else b"b", value.flags) + text)


def _read_pattern(data: bytes) -> Any:
    kind, flags = _FLAGS.unpack_from(data)
    raw = data[_FLAGS.size :]
    if kind not in {b"s", b"b"}:
        raise CodecError("not a pattern as Holdfast writes it")
    pattern: Any = _read_text(raw) if kind == b"s" else raw
    reason = _too_slow(pattern, flags)
    if reason:
        raise CodecError(f"a stored pattern {reason}")
    with catch_warnings():  # about sets whose meaning may change: the program that made the pattern saw them
        simplefilter("ignore")
        value = re.compile(pattern, flags)
    if value.flags != flags:
        raise CodecError("not a pattern as Holdfast writes it")
    return value


def _too_slow(pattern: str | bytes, flags: int) -> str:
    """Return why a pattern may take more than 0.2 s to compile, or do more than compile; empty if it cannot.

    The time is linear in the length, except for sets of characters: one with characters beyond Latin-1 takes 1.5 ms,
    and ten times as much if it ignores case.
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    if flags & ~_STORED_FLAGS:
        return f"has flags that cannot be stored: {flags & ~_STORED_FLAGS:#x}"
    if len(text) > _LONGEST_PATTERN:
        return f"has {len(text)} characters, more than the limit of {_LONGEST_PATTERN}"
    most = _MOST_WIDE_SETS if _has_wide_sets(text) and _ignores_case(text, flags) else _MOST_SETS
    if text.count("[") > most:
        return f"has {text.count('[')} sets of characters, more than the limit of {most} for its kind"
    return ""


def _has_wide_sets(text: str) -> bool:
    return any(escape in text for escape in ("\\u", "\\U", "\\N")) or max(text, default="") > "\xff"


def _ignores_case(text: str, flags: int) -> bool:
    """True if the pattern, or a group of it, ignores case: `(?i`, `(?mi`."""
    return bool(flags & 2) or any("i" in start.lstrip("aLmsux")[:1] for start in text.split("(?")[1:])


def _write_fraction(value: Any) -> bytes:
    top, bottom = _pack_int(value.numerator), _pack_int(value.denominator)
    if max(len(top), len(bottom)) > _LARGEST:
        raise Refused(f"a Fraction of more than {_LARGEST} bytes cannot be stored; store numerator and denominator")
    return extension(tags.FRACTION, _SIZE.pack(len(top)) + top + bottom)


def _read_fraction(data: bytes) -> Any:
    middle = _SIZE.size + _SIZE.unpack_from(data)[0]
    top, bottom = data[_SIZE.size : middle], data[middle:]
    if max(len(top), len(bottom)) > _LARGEST:
        raise CodecError(f"a stored Fraction has more than {_LARGEST} bytes")
    numbers = _read_int(top), _read_int(bottom)
    value = Fraction(*numbers)
    if value.as_integer_ratio() != numbers:
        raise CodecError("not a Fraction as Holdfast writes it")
    return value


def _pack_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _write_complex(value: complex) -> bytes:
    return extension(tags.COMPLEX, _PARTS.pack(value.real, value.imag))


def _read_complex(data: bytes) -> complex:
    return complex(*_PARTS.unpack(data))


_LEAF_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    int: _write_int,
    Decimal: _write_decimal,
    UUID: _write_uuid,
    Fraction: _write_fraction,
    complex: _write_complex,
    re.Pattern: _write_pattern,
    **{getattr(pathlib, name): _write_path for name in _PATHS},
    **{getattr(ipaddress, name): _write_network for name in _NETWORKS},
    **times.WRITERS,
}
leaf_writer: Final = _LEAF_WRITERS.get
"""Returns the function that encodes a value of exactly this class, if the class is one of the value types."""

LEAF_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    tags.BIG_INT: _read_int,
    tags.SURROGATES: _read_text,
    tags.DECIMAL: _read_decimal,
    tags.UUID: _read_uuid,
    tags.PATH: _read_path,
    tags.NETWORK: _read_network,
    tags.PATTERN: _read_pattern,
    tags.FRACTION: _read_fraction,
    tags.COMPLEX: _read_complex,
    **times.READERS,
}
