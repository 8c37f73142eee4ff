"""Limits as they are typed: `memory=1GiB,depth=100`."""

import re
from typing import Final

from holdfast.codec.limits import Limits
from holdfast.records.errors import ConfigurationError

UNITS: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_LIMIT: Final = re.compile(r"([a-z_]+)=([0-9]{1,18})(KiB|MiB|GiB)?")


def parse_limits(text: str | None) -> Limits | None:
    """The limits that were given, if any; those that are not named have their defaults."""
    return None if text is None else Limits(**dict(_parse_limit(part.strip()) for part in text.split(",")))


def _parse_limit(part: str) -> tuple[str, int]:
    found = _LIMIT.fullmatch(part)
    if found is None or found[1] not in Limits.__struct_fields__:
        names = ", ".join(Limits.__struct_fields__)
        raise ConfigurationError(
            f"--limits: {part!r:.60} is not a limit; give NAME=NUMBER, where the number may end in KiB, MiB or GiB"
            f" and the name is one of {names}, as in memory=1GiB,size=512MiB"
        )
    return found[1], int(found[2]) * UNITS[found[3]]
