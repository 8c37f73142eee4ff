"""Values to bytes: the door. What is most often stored goes through one C call here, anything else to `exact`.

Single plain values, and short lists and dicts of such, need nothing but a look at their types. All that knows how to
encode the rest is loaded when the first such value comes: a process that goes on with its thread begins sooner.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec import EncodeError, msgpack

from holdfast.codec.limits import DEFAULT, UNWEIGHED, Limits
from holdfast.records.loading import loading

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_TEXT: Final = frozenset({str})
_CONTAINERS: Final = frozenset({list, dict})
_FLAT_ITEMS: Final = 32
_FLAT_BYTES: Final = 1 << 20
"""Far below every limit."""

_pack: Final = msgpack.Encoder().encode
_UNFIT: Final = (UnicodeEncodeError, OverflowError, EncodeError)
"""Lone surrogates, more than 64 bits, more than 4 GB."""


def encode(value: Any, *, path: str = "value", limits: Limits = DEFAULT) -> bytes:
    """The encoding of a value, from which `decode` makes an equal value of the same types.

    The same value has the same encoding, every time. bytearray and memoryview are stored as bytes; nothing else changes
    its type. Raises UnstorableValue, with the path below `path` to what cannot be stored exactly, and LimitExceeded
    beyond the limits.
    """
    exactly = _exactly
    if exactly is None or type(value) in _SCALARS:
        packed = _pack_flat(value) if (limits is DEFAULT or limits is UNWEIGHED) and is_flat(value) else None
        if packed is not None:
            return packed
        exactly = _loaded()
    return exactly(value, path, limits)


def _pack_flat(value: Any) -> bytes | None:
    """The encoding of a value that looked flat; None if it is not, or does not fit into plain msgpack.

    A container is copied, and the copy looked at: what is packed is that, whatever other threads do meanwhile.
    """
    if type(value) in _CONTAINERS:
        value = value.copy()
        if not is_flat(value):
            return None
    try:
        data = _pack(value)
    except _UNFIT:
        return None
    return data if len(data) <= _FLAT_BYTES else None


def is_flat(value: Any) -> bool:
    """True of a single plain value, and of a short list or dict of such: nothing in it has not been looked at."""
    cls = type(value)
    if cls is dict:
        return (
            len(value) <= _FLAT_ITEMS
            and _SCALARS.issuperset(map(type, value.values()))
            and _TEXT.issuperset(map(type, value))
        )
    if cls is list:
        return len(value) <= _FLAT_ITEMS and _SCALARS.issuperset(map(type, value))
    return cls in _SCALARS


_exactly: Callable[[Any, str, Limits], bytes] | None = None
"""The encoder of all values, once it is loaded: from then on it is asked for containers at once."""


def _loaded() -> Callable[[Any, str, Limits], bytes]:
    global _exactly  # noqa: PLW0603  loaded once
    with loading():
        from holdfast.codec.exact import encode_exactly
    _exactly = encode_exactly
    return encode_exactly
