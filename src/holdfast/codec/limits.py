"""How large a value, or stored bytes, may be. The same limits hold at save and at load."""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
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
