"""How large a value, or stored bytes, may be. The same limits hold at save and at load, before any value is made.

An exact count of the memory takes longer than decoding, in Python. So cheaper bounds come first: what the number of
bytes allows at most, then what the bytes of each kind allow at most. Only what these cannot clear is counted exactly.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.codec import tags
from holdfast.records.errors import ConfigurationError, LimitExceeded
from holdfast.records.packed import BOXED, LEAF, PLACE, WIDE, Buffer, TooDeep, measure
from holdfast.records.shown import quoted

DEEPEST = 200
"""No value may nest deeper than this, whatever the limits say: ormsgpack ends at 255 levels."""
EQUAL_HASHES = 32
"""A set or dict takes time quadratic in the number of members whose hashes are equal; more of them are refused."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds that keep a hostile or a runaway value from taking the process down: `holdfast.open(..., limits=)`.

    `size` is in bytes of one encoding, `depth` in containers within containers (a registered object counts twice:
    itself and its fields). `memory` is what the objects of a state take in bytes, beside the bytes of their text:
    docs/limits.md says what is charged. Compressed bytes may expand to at most `expansion` times their length, or to
    `expansion_floor` bytes if that is more.
    """

    size: int = 256 * 2**20
    depth: int = DEEPEST
    memory: int = 256 * 2**20
    expansion: int = 200
    expansion_floor: int = 2**20

    def __post_init__(self) -> None:
        """Refuse limits that nothing could meet, or that the encoder could not keep."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"Limits: `{name}` must be an int of at least 1, got {quoted(value):.60}")
        if self.depth > DEEPEST:
            raise ConfigurationError(f"Limits: `depth` must be at most {DEEPEST}, got {quoted(self.depth):.60}")


DEFAULT = Limits()
UNWEIGHED = Limits(memory=2**62)
"""The defaults, for parts of a state: their memory is charged for the state as a whole."""


def unweighed(limits: Limits) -> Limits:
    """The same limits without the one on memory."""
    return UNWEIGHED if limits is DEFAULT else replace(limits, memory=UNWEIGHED.memory)


def checked_limits(given: Limits | None) -> Limits:
    """The limits given to a store; the defaults without any."""
    if given is None:
        return DEFAULT
    if not isinstance(given, Limits):
        raise ConfigurationError(f"`limits` must be a holdfast.Limits, got a {type(given).__name__}")
    return given


# The engine appends items, each encoded alone with the full depth, to containers a few levels down in a state.
SLACK: Final = 8

BOXES: Final = dict.fromkeys(tags.NESTED, 256) | {tags.TUPLE: 64, tags.OBJECT: 80, tags.RANGE: 64, tags.DEQUE: 656}
"""What the containers of the standard library and objects take beside the list they are stored as."""
_COPIES: Final = -(-(DEEPEST + SLACK) // BOXED)
MOST_PER_BYTE: Final = 142 + _COPIES
"""No byte of an encoding takes more: an empty deque takes 848 with six, and each may be copied with all its boxes."""
_OPENING: Final = 280
_STARTS_LEAF: Final = bytes([*range(0xA0, 0xC0), *range(0xC4, 0xC7), *range(0xCA, 0xD4), *range(0xD9, 0xDC)])
_STARTS_CONTAINER: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0), *range(0xC7, 0xCA), *range(0xD4, 0xD9)])


def refuse_excess(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if an encoding is longer, or all together take more memory, than the limits allow."""
    total = sum(map(len, encodings))
    if total <= limits.size and total * MOST_PER_BYTE <= limits.memory:
        return
    longest = max(map(len, encodings))
    if longest > limits.size:
        raise LimitExceeded(_text(what, f"takes {longest} bytes, more", limits.size, "size"))
    if sum(map(most_memory, encodings)) <= limits.memory:
        return
    memory = 0
    for each in encodings:
        memory += exact_memory(each, limits)
        if memory > limits.memory:
            raise LimitExceeded(_text(what, "would take more memory", limits.memory, "memory"))


def refuse_together(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if values that are going to be held at the same time would take too much memory together.

    Each was stored under the default limits, so a single one is always taken.
    """
    refuse_excess(encodings, replace(DEFAULT, memory=max(limits.memory, DEFAULT.memory)), what)


def most_memory(data: Buffer) -> int:
    """At least what an encoding takes in memory: each byte is taken for the first of the costliest it could begin."""
    data = bytes(data)
    containers = len(data) - len(data.translate(None, _STARTS_CONTAINER))
    leaves = len(data) - len(data.translate(None, _STARTS_LEAF))
    return containers * _OPENING + leaves * LEAF + len(data) * (PLACE + WIDE + _COPIES)


def exact_memory(data: Buffer, limits: Limits) -> int:
    """What an encoding takes in memory, beside the bytes of its text, counted until it is more than the limit.

    Raises LimitExceeded if it nests too deep.
    """
    try:
        return measure(data, limits.depth + SLACK, BOXES, limits.memory)
    except TooDeep as error:
        raise LimitExceeded(f"the stored value {error}") from error


def _text(what: str, taken: str, limit: int, name: str) -> str:
    hint = f"store less, or open the store with limits=holdfast.Limits({name}=...)"
    return f"{what} {taken} than the limit of {limit} bytes; {hint}"
