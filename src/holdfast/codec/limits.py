"""How large a value, or stored bytes, may be. The same limits hold at save and at load."""

from msgspec import Struct

from holdfast.records.errors import ConfigurationError

DEEPEST = 200
"""No value may nest deeper than this, whatever the limits say: ormsgpack ends at 255 levels."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds that keep a hostile or a runaway value from taking the process down.

    `size` is in bytes of the encoding, `depth` in containers within containers (a registered object counts twice:
    itself and its fields), `items` counts every value in it, keys too. Compressed bytes may expand to at most
    `expansion` times their length, or to `expansion_floor` bytes if that is more.

    At save the depth is exact. At load it is exact for bytes up to 4 KB and for limits other than the default; longer
    bytes may nest deeper, up to the interpreter's own recursion limit, which ends in the same error.
    """

    size: int = 256 * 2**20
    depth: int = DEEPEST
    items: int = 50_000_000
    expansion: int = 200
    expansion_floor: int = 2**20

    def __post_init__(self) -> None:
        """Refuse limits that nothing could meet, or that the encoder could not keep."""
        if not 1 <= self.depth <= DEEPEST:
            raise ConfigurationError(f"Limits(depth={self.depth}): the depth must be between 1 and {DEEPEST}")
        if min(self.size, self.items, self.expansion, self.expansion_floor) < 1:
            raise ConfigurationError("Limits: size, items, expansion and expansion_floor must be at least 1")


DEFAULT = Limits()
