"""Time zones by key. Reading one back looks into the system's time zone database, and nowhere else.

`ZoneInfo(key)` would try to import a package named after a key it does not find; so a stored key is first looked up in
the list of zones that exist, and only then handed to it.
"""

import os
import sys
from datetime import tzinfo
from functools import cache
from typing import Final

from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError

_LONGEST: Final = 64
_EXTRA: Final = frozenset("_+-")


def zone_key(info: tzinfo) -> str:
    """The key of a ZoneInfo; raises Refused for any other time zone object, whose rules could not be restored."""
    zoneinfo = sys.modules.get("zoneinfo")
    is_zone = zoneinfo is not None and type(info) is zoneinfo.ZoneInfo
    key: str | None = getattr(info, "key", None) if is_zone else None
    if key is None or not _is_plain(key):
        name = f"{type(info).__module__}.{type(info).__qualname__}"
        raise Refused(f"the time zone {name} cannot be stored; use zoneinfo.ZoneInfo(key) or datetime.timezone")
    return key


def zone(key: str) -> tzinfo:
    """The ZoneInfo with that key; raises CodecError if this machine does not know it."""
    import zoneinfo

    if not _is_plain(key) or not _exists(key):
        raise CodecError(f"the time zone {key!r} is not known on this machine; installing tzdata may help")
    return zoneinfo.ZoneInfo(key)


def _is_plain(key: str) -> bool:
    """True for words joined by single slashes: never a path that could leave the database."""
    if len(key) > _LONGEST or not key.isascii():
        return False
    return all(word and all(c.isalnum() or c in _EXTRA for c in word) for word in key.split("/"))


def _exists(key: str) -> bool:
    import zoneinfo

    if any(os.path.isfile(f"{root}/{key}") for root in zoneinfo.TZPATH):  # noqa: PTH113  pathlib is not loaded here
        return True
    return key in _available()


@cache
def _available() -> frozenset[str]:
    """Every zone there is, also those of the tzdata package. Listing them takes some 10 ms, so it is done once."""
    import zoneinfo

    return frozenset(zoneinfo.available_timezones())
