"""Value types of the standard library that few programs store: networks, patterns, fractions. Loaded when one is met.

No module is imported to write a value: a value of one of its classes exists, so it is loaded. Reading is bounded: what
would be slow to make again (a huge fraction, a pattern that is slow to compile) is refused at save and at load.
"""

import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from holdfast.codec import tags
from holdfast.codec.pieces import extension
from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError

_NETWORKS: Final = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_PARTS: Final = Struct(">dd")
_FLAGS: Final = Struct(">cI")  # the type of the pattern's text, its flags
_SIZE: Final = Struct(">I")
_LARGEST: Final = 4096  # bytes of a numerator or denominator: to find their common divisor takes quadratic time

_LONGEST_PATTERN: Final = 10_000
_MOST_SETS: Final = 100
_MOST_WIDE_SETS: Final = 10
_STORED_FLAGS: Final = 2 | 4 | 8 | 16 | 32 | 64 | 256  # all of `re` but DEBUG, which prints, and TEMPLATE


def _write_network(value: Any) -> bytes:
    kind, text = type(value), str(value)
    if kind(text) != value:
        raise Refused(f"the network {text!r} reads as another one; store its parts")
    return extension(tags.NETWORK, bytes((_NETWORKS.index(kind.__name__),)) + text.encode("utf-8", "surrogatepass"))


def _read_network(data: bytes) -> Any:
    import ipaddress

    text = data[1:].decode("utf-8", "surrogatepass")
    value = getattr(ipaddress, _NETWORKS[data[0]])(text)
    if str(value) != text:
        raise CodecError("not a network address as Holdfast writes it")
    return value


def _write_pattern(value: Any) -> bytes:
    reason = _too_slow(value.pattern, value.flags)
    if reason:
        raise Refused(f"the pattern {reason}; store its text and compile that when it is needed")
    is_text = isinstance(value.pattern, str)
    text = value.pattern.encode("utf-8", "surrogatepass") if is_text else bytes(value.pattern)
    return extension(tags.PATTERN, _FLAGS.pack(b"s" if is_text else b"b", value.flags) + text)


def _read_pattern(data: bytes) -> Any:
    import re

    kind, flags = _FLAGS.unpack_from(data)
    raw = data[_FLAGS.size :]
    if kind not in {b"s", b"b"}:
        raise CodecError("not a pattern as Holdfast writes it")
    pattern: Any = raw.decode("utf-8", "surrogatepass") if kind == b"s" else raw
    reason = _too_slow(pattern, flags)
    if reason:
        raise CodecError(f"a stored pattern {reason}")
    with catch_warnings():  # of sets that may mean something else one day: the program that made it has seen them
        simplefilter("ignore")
        value = re.compile(pattern, flags)
    if value.flags != flags:
        raise CodecError("not a pattern as Holdfast writes it")
    return value


def _too_slow(pattern: str | bytes, flags: int) -> str:
    """Why a pattern may take longer to compile than some 0.2 s, or do more than compile; empty if it cannot.

    The time is linear in the length, but for sets of characters: one with characters beyond Latin-1 takes 1.5 ms, and
    ten times as much if it ignores case.
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    if flags & ~_STORED_FLAGS:
        return f"has flags that cannot be stored: {flags & ~_STORED_FLAGS:#x}"
    if len(text) > _LONGEST_PATTERN:
        return f"has {len(text)} characters, and the limit is {_LONGEST_PATTERN}"
    most = _MOST_WIDE_SETS if _has_wide_sets(text) and _ignores_case(text, flags) else _MOST_SETS
    if text.count("[") > most:
        return f"has {text.count('[')} sets of characters, and the limit for its kind is {most}"
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
    from fractions import Fraction

    middle = _SIZE.size + _SIZE.unpack_from(data)[0]
    top, bottom = data[_SIZE.size : middle], data[middle:]
    if max(len(top), len(bottom)) > _LARGEST:
        raise CodecError(f"a stored Fraction has more than {_LARGEST} bytes")
    numbers = int.from_bytes(top, "big", signed=True), int.from_bytes(bottom, "big", signed=True)
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


READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    tags.NETWORK: _read_network,
    tags.PATTERN: _read_pattern,
    tags.FRACTION: _read_fraction,
    tags.COMPLEX: _read_complex,
}

_WRITERS: Final[dict[tuple[str, str], Callable[[Any], bytes]]] = {
    ("builtins", "complex"): _write_complex,
    ("fractions", "Fraction"): _write_fraction,
    ("re", "Pattern"): _write_pattern,
    **{("ipaddress", name): _write_network for name in _NETWORKS},
}


def writer_of(cls: type) -> Callable[[Any], bytes] | None:
    """The function that encodes a value of exactly this class, if it is one of these types."""
    module = sys.modules.get(cls.__module__)
    if getattr(module, cls.__name__, None) is not cls:
        return None
    return _WRITERS.get((cls.__module__, cls.__name__))
