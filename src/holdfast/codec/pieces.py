"""The structure of encoded bytes: their kind of container, its header, its items. Nothing here decodes a value.

A plain list is encoded as `container_header("list", n)` and the encodings of its items, one after the other; a dict
with str keys likewise, as alternating keys and values. So appending to an encoded list is appending to its body.
"""

from typing import Final, Literal

import msgspec
from msgspec import msgpack

from holdfast.records.errors import CodecError
from holdfast.records.packed import measure, opening_count

Kind = Literal["list", "map", "value"]
"""What an encoding is: a plain list, a plain dict with str keys, or any other value."""

_LEVELS: Final = 255
"""No stored value nests deeper."""
_ITEMS: Final = msgpack.Decoder(list[msgspec.Raw])
# kind -> header bytes for up to 15 items (added to the first), up to 2**16 - 1, and up to 2**32 - 1 items
_OPENERS: Final = {"list": (0x90, b"\xdc", b"\xdd"), "map": (0x80, b"\xde", b"\xdf")}
_LONG: Final[dict[int, tuple[Kind, int]]] = {0xDC: ("list", 3), 0xDD: ("list", 5), 0xDE: ("map", 3), 0xDF: ("map", 5)}


def container(encoded: bytes) -> tuple[Kind, int, int]:
    """Return the kind of an encoding, its count of items (or pairs), and the length of its header."""
    first = encoded[0] if encoded else 0xC1
    if 0x80 <= first <= 0x9F:
        return "list" if first >= 0x90 else "map", first & 0x0F, 1
    if first not in _LONG:
        return "value", 0, 0
    kind, length = _LONG[first]
    return kind, int.from_bytes(encoded[1:length], "big"), length


def container_header(kind: Literal["list", "map"], count: int) -> bytes:
    """Return the header that makes `count` encoded items (for a map: pairs) one encoded container."""
    short, middle, long = _OPENERS[kind]
    if count < 16:
        return bytes((short + count,))
    if count < 2**16:
        return middle + count.to_bytes(2, "big")
    return long + count.to_bytes(4, "big")


def extension(code: int, payload: bytes) -> bytes:
    """Return the encoding of an extension."""
    return msgpack.encode(msgpack.Ext(code, payload))


def split(kind: Literal["list", "map"], count: int, body: bytes) -> list[bytes]:
    """Return the encoded items of a body, in order; for a map its keys and values, alternating.

    Raises CodecError if the body does not hold exactly that many items.
    """
    header = container_header("list", count if kind == "list" else 2 * count)
    try:
        if opening_count(body) > _LEVELS:
            measure(header + body, _LEVELS)  # the C decoder recurses
        return list(map(bytes, _ITEMS.decode(header + body)))
    except (msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"not the body of an encoded {kind} of {count} items: {error}") from error
