"""Members of sets and keys of dicts whose hashes are equal: to make the container takes time quadratic in their number.

Hashes of str and bytes are different in every process, but those of numbers, and of tuples of numbers, can be made
equal on purpose: every multiple of 2**61 - 1 has the hash 0. So a few are accepted, at save as at load, and no more.
"""

from collections import Counter
from typing import Any

from holdfast.codec.limits import EQUAL_HASHES
from holdfast.records.errors import LimitExceeded


def refuse_equal_hashes(members: list[Any]) -> None:
    """Raise LimitExceeded if too many of the members have the same hash."""
    if len(members) <= EQUAL_HASHES:
        return
    hashes = list(map(hash, members))
    if len(hashes) - len(set(hashes)) < EQUAL_HASHES:
        return
    most = max(Counter(hashes).values())
    if most > EQUAL_HASHES:
        raise LimitExceeded(
            f"a set or dict has {most} members with the same hash, and the limit is {EQUAL_HASHES}: "
            "it would be slow to make again; store a list instead"
        )
