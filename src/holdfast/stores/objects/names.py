"""What the objects of a store are called. Names are hashes, numbers and hex: nothing a caller chose is in them.

format                                                              the version of this layout
spaces/<sha256 of the namespace>/<sha256 of the thread's key>       perhaps there is such a thread
<2 hex>/<sha256 of the thread's key>/head                           the record of the thread (record.py)
<2 hex>/<sha256 of the thread's key>/<era>/rows/<seq>-<base>-<digest>-<digest of the row before>
<2 hex>/<sha256 of the thread's key>/<era>/blobs/<id>   …/posts/<random>
"""

import re
from hashlib import sha256
from typing import NamedTuple, Self

FORMAT_NAME = "format"
SPACES = "spaces/"
_ROW = re.compile(r"([0-9]{12})-([0-9]{12})-([0-9a-f]*)-([0-9a-f]*)")


def _root(thread_hash: str) -> str:
    return f"{thread_hash[:2]}/{thread_hash}/"


def root_of(thread: bytes) -> str:
    """What the names of a thread's objects begin with."""
    return _root(sha256(thread).hexdigest())


def head_name(thread: bytes) -> str:
    """The object with the thread's record."""
    return root_of(thread) + "head"


def space_of(key: bytes) -> str:
    """What the names of the markers in the namespace of a key, or of a namespace's prefix, begin with."""
    namespace = key[: 1 + key[0]]
    return f"{SPACES}{sha256(namespace).hexdigest()}/"


def marker_name(thread: bytes) -> str:
    """The object that says that there may be such a thread."""
    return space_of(thread) + sha256(thread).hexdigest()


def head_of_marker(marker: str) -> str:
    """The head object that a marker speaks of."""
    return _root(marker.rpartition("/")[2]) + "head"


def markers_of(prefix: bytes) -> str:
    """Where the markers are of all threads whose key begins with `prefix`, and perhaps of others."""
    return space_of(prefix) if prefix and len(prefix) > prefix[0] else SPACES


def era_root(thread: bytes, era: int) -> str:
    """What the names of all rows, blobs and posts of one era begin with. Eras ascend."""
    return f"{root_of(thread)}{era:08}/"


class RowName(NamedTuple):
    """The last part of a row object's name. It says which row came before, so a listing alone shows the chain."""

    seq: int
    base: int
    digest: str
    parent: str

    def __str__(self) -> str:
        return f"{self.seq:012}-{self.base:012}-{self.digest}-{self.parent}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The parts of an object's whole name; None if it is not one of ours."""
        found = _ROW.fullmatch(name.rpartition("/")[2])
        return cls(int(found[1]), int(found[2]), found[3], found[4]) if found else None
