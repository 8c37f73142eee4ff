"""Raw msgpack objects of a user: the one thing that the C encoder would write without asking.

ormsgpack packs its own `Ext` and `Fragment` as they are, so a user's would pass for ours. To search every value would
cost more than to encode it. But each such object holds a reference to its class; so a value is searched only while
there are such objects, and whether there are any is asked only when the number of references has changed.
"""

import gc
from sys import getrefcount
from typing import Any, Final

from ormsgpack import Ext, Fragment

from holdfast.codec.refusal import Refused

_RAW: Final = frozenset({Ext, Fragment})
_CONTAINERS: Final = frozenset({list, dict})
# The number of references at the last look, and whether there was such an object.
_last_look: tuple[int, bool] = (0, False)


def may_exist() -> bool:
    """True while somebody holds a raw msgpack object, whoever it is."""
    global _last_look  # noqa: PLW0603  one look for all
    count = getrefcount(Ext) + getrefcount(Fragment)
    if count != _last_look[0]:
        _last_look = (count, any(type(holder) in _RAW for holder in gc.get_referrers(Ext, Fragment)))
    return _last_look[1]


def refuse_raw(value: Any) -> None:
    """Raise Refused if a value is a raw msgpack object, or its lists and dicts hold one."""
    waiting, seen = [[value]], set[int]()
    while waiting:
        items = waiting.pop()
        kinds = set(map(type, items))
        if kinds & _RAW:
            raise Refused("raw msgpack objects cannot be stored; store the value they stand for")
        for item in items if kinds & _CONTAINERS else ():
            if type(item) in _CONTAINERS and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item if type(item) is list else list(item.values()))
