"""How large a value, or stored bytes, may be. The same limits apply at save and at load, before any value is made.

To count memory exactly takes longer than to decode, in Python. So cheaper upper bounds come first: by the number of
bytes, then by the number of bytes of each kind. Only what these cannot clear is counted exactly.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.codec import tags
from holdfast.records.errors import ConfigurationError, LimitExceeded
from holdfast.records.packed import BOXED, LEAF, PLACE, WIDE, Buffer, TooDeep, measure
from holdfast.records.shown import kind_of, quoted

DEEPEST = 200
"""No value may nest deeper than this, whatever the limits say: ormsgpack stops at 255 levels."""
EQUAL_HASHES = 32
"""How many members of a set or dict may have the same hash: building it takes quadratic time in this number."""


class Limits(Struct, frozen=True, kw_only=True):
    """Limits that keep a hostile or runaway value from taking down the process: `holdfast.open(..., limits=)`.

    `size` is the bytes of one encoding, `depth` the levels of containers in containers (a registered object counts
    twice: itself and its fields). `memory` is the bytes that the objects of a state take, without those of their text:
    docs/limits.md says what is charged. Compressed bytes may expand to at most `expansion` times their length, or to
    `expansion_floor` bytes if that is more.
    """

    size: int = 256 * 2**20
    depth: int = DEEPEST
    memory: int = 256 * 2**20
    expansion: int = 200
    expansion_floor: int = 2**20

    def __post_init__(self) -> None:
        """Refuse limits that no value could meet, or that the encoder could not enforce."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"Limits: `{name}` must be an int of at least 1, got {quoted(value):.60}")
        if self.depth > DEEPEST:
            raise ConfigurationError(f"Limits: `depth` must be at most {DEEPEST}, got {quoted(self.depth):.60}")


DEFAULT = Limits()


@cache
def without_memory(limits: Limits) -> Limits:
    """Return the limits without the one on memory: for parts of a state, which is charged as a whole."""
    return replace(limits, memory=2**62)


def checked_limits(given: Limits | None) -> Limits:
    """Return the limits given to a store, or the defaults."""
    if given is None:
        return DEFAULT
    if not isinstance(given, Limits):
        raise ConfigurationError(f"`limits` must be a holdfast.Limits, got {kind_of(given)}")
    return given


# Appended items are each encoded with the full depth, and end up a few levels down in a state.
SLACK: Final = 8

BOXES: Final = dict.fromkeys(tags.NESTED, 256) | {tags.TUPLE: 64, tags.OBJECT: 80, tags.RANGE: 64, tags.DEQUE: 656}
"""The bytes that standard containers and objects take, besides the list they are stored as."""
_COPIES: Final = -(-(DEEPEST + SLACK) // BOXED)
MOST_PER_BYTE: Final = 142 + _COPIES
"""No byte of an encoding takes more: an empty deque takes 848 in six bytes, and each may be copied with its boxes."""
_OPENING: Final = 280
_STARTS_LEAF: Final = bytes([*range(0xA0, 0xC0), *range(0xC4, 0xC7), *range(0xCA, 0xD4), *range(0xD9, 0xDC)])
_STARTS_CONTAINER: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0), *range(0xC7, 0xCA), *range(0xD4, 0xD9)])


def refuse_excess(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if an encoding is too long, or if all together would take too much memory."""
    total = sum(map(len, encodings))
    if total <= limits.size and total * MOST_PER_BYTE <= limits.memory:
        return
    longest = max(map(len, encodings))
    if longest > limits.size:
        raise limit_exceeded(what, f"takes {longest} bytes, more", limits.size, "size")
    if sum(map(most_memory, encodings)) <= limits.memory:
        return
    memory = 0
    for each in encodings:
        memory += exact_memory(each, limits)
        if memory > limits.memory:
            raise limit_exceeded(what, "would take more memory", limits.memory, "memory")


def refuse_together(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if values that will be held at the same time would take too much memory together.

    Each was stored under the default limits, so a single one is always accepted.
    """
    refuse_excess(encodings, replace(DEFAULT, memory=max(limits.memory, DEFAULT.memory)), what)


def most_memory(data: Buffer) -> int:
    """Return an upper bound of the memory an encoding takes: each byte counts as the costliest value it could begin."""
    data = bytes(data)
    containers = len(data) - len(data.translate(None, _STARTS_CONTAINER))
    leaves = len(data) - len(data.translate(None, _STARTS_LEAF))
    return containers * _OPENING + leaves * LEAF + len(data) * (PLACE + WIDE + _COPIES)


def exact_memory(data: Buffer, limits: Limits) -> int:
    """Count the memory an encoding takes, without the bytes of its text; stop once it is above the limit.

    Raises LimitExceeded if it nests too deep.
    """
    try:
        return measure(data, limits.depth + SLACK, BOXES, limits.memory)
    except TooDeep as error:
        raise LimitExceeded(f"the stored value {error}") from error


def limit_exceeded(what: str, taken: str, limit: int, name: str) -> LimitExceeded:
    """Return the error for something that takes more than a limit; `name` is the limit's field of `Limits`."""
    hint = f"store less, or open the store with limits=holdfast.Limits({name}=...)"
    return LimitExceeded(f"{what} {taken} than the limit of {limit} bytes; {hint}")
