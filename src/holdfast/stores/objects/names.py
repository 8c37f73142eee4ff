"""What the objects of a store are called. Names are hashes, numbers and hex: nothing a caller chose is in them.

format                                                              the version of this layout
spaces/<sha256 of the namespace>/<sha256 of the thread's key>       perhaps there is such a thread
marks/<sha256 of a word>/<sha256 of the thread's key>-<version>-<random>   perhaps it has that status or label
<2 hex>/<sha256 of the thread's key>/head                           the record of the thread (record.py)
<2 hex>/<sha256 of the thread's key>/<era>/rows/<last>-<first>-<base>-<version>-<digest of the segment before>-<digest>
<2 hex>/<sha256 of the thread's key>/<era>/blobs/<id>   …/posts/<random>
"""

import re
from hashlib import sha256
from typing import NamedTuple, Self

FORMAT_NAME = "format"
SPACES = "spaces/"
MARKS = "marks/"
_MARK = re.compile(r"marks/([0-9a-f]{64})/([0-9a-f]{64})-([0-9]{12})-([0-9a-f]+)")
_SEGMENT = re.compile(r"([0-9]{12})-([0-9]{12})-([0-9]{12})-([0-9]{12})-((?:[0-9a-f]{32})?)-([0-9a-f]{32})")
_BLOB = re.compile(r"[0-9a-f]{32}")
_ERA = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/([0-9]{8})/")
_HEAD = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})/head")
_NAMELESS = re.compile(rb"([0-9a-f]{64})[.]head")


def blob_of(name: str) -> bytes | None:
    """The id in the last part of a blob object's name; None if it is not one of ours."""
    return bytes.fromhex(name) if _BLOB.fullmatch(name) else None


def _root(thread_hash: str) -> str:
    return f"{thread_hash[:2]}/{thread_hash}/"


def hash_of(thread: bytes) -> str:
    """What stands for a thread in names."""
    return sha256(thread).hexdigest()


def root_of(thread: bytes) -> str:
    """What the names of a thread's objects begin with."""
    return _root(hash_of(thread))


def head_name(thread: bytes) -> str:
    """The object with the thread's record."""
    return root_of(thread) + "head"


def space_of(key: bytes) -> str:
    """What the names of the markers in the namespace of a key, or of a namespace's prefix, begin with."""
    namespace = key[: 1 + key[0]]
    return f"{SPACES}{sha256(namespace).hexdigest()}/"


def marker_name(thread: bytes) -> str:
    """The object that says that there may be such a thread."""
    return space_of(thread) + hash_of(thread)


def head_of(thread_hash: str) -> str:
    """The head object of the thread with that hash."""
    return _root(thread_hash) + "head"


def markers_of(prefix: bytes) -> str:
    """Where the markers are of all threads whose key begins with `prefix`, and perhaps of others."""
    return space_of(prefix) if prefix and len(prefix) > prefix[0] else SPACES


def word_of(namespaced: bytes, kind: str, value: bytes) -> str:
    """The hash that stands for a status or a label, in the namespace of a key or of a namespace's prefix."""
    namespace = namespaced[: 1 + namespaced[0]]
    return sha256(b"\0".join([namespace, kind.encode(), value])).hexdigest()


def marks_of(word: str) -> str:
    """What the names of the marks of a word begin with."""
    return f"{MARKS}{word}/"


class MarkName(NamedTuple):
    """A mark: that a thread may have a status or label since a version of its record. No two have the same name."""

    word: str
    thread_hash: str
    version: int
    suffix: str

    def __str__(self) -> str:
        return f"{marks_of(self.word)}{self.thread_hash}-{self.version:012}-{self.suffix}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The parts of an object's name; None if it is not one of ours."""
        found = _MARK.fullmatch(name)
        return cls(found[1], found[2], int(found[3]), found[4]) if found else None


def era_root(thread: bytes, era: int) -> str:
    """What the names of all segments, blobs and posts of one era begin with. Eras ascend."""
    return f"{root_of(thread)}{era:08}/"


def era_of(name: str) -> int:
    """The era in the whole name of an object; 0 if there is none."""
    found = _ERA.match(name)
    return int(found[1]) if found else 0


def hash_in(name: str) -> str:
    """The hash of the thread in the whole name of its head object; empty for any other object."""
    found = _HEAD.fullmatch(name)
    return found[1] if found else ""


def nameless(prefix: bytes, thread_hash: str) -> bytes:
    """The key that stands for a thread whose own key is lost, in the namespace that is asked for."""
    return (prefix or b"\0") + f"{thread_hash}.head".encode()


def nameless_hash(thread: bytes) -> str:
    """The hash in a key that `nameless` made; empty for any other."""
    found = _NAMELESS.fullmatch(thread[1 + thread[0] :])
    return found[1].decode() if found else ""


class SegmentName(NamedTuple):
    """The last part of the name of a segment: an object with the rows `first` to `last`.

    It says which segment came before, so a listing alone shows the chain. The digest is of the rest of the name and of
    the content: no two segments have the same.
    """

    last: int
    first: int
    base: int
    """The lowest base of its rows."""
    version: int
    """Of the record that it was made for."""
    previous: str
    """The digest of the segment before it in its stretch; empty if it is the first."""
    digest: str

    def __str__(self) -> str:
        return f"{self.last:012}-{self.first:012}-{self.base:012}-{self.version:012}-{self.previous}-{self.digest}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The parts of an object's whole name; None if it is not one of ours."""
        found = _SEGMENT.fullmatch(name.rpartition("/")[2])
        if found is None:
            return None
        last, first, base, version = map(int, found.groups()[:4])
        return cls(last, first, base, version, found[5], found[6]) if 0 < first <= last else None
