"""Names of objects. They consist of hashes, numbers and hex, and hold nothing that a caller chose.

format                                                  the version of this layout
spaces/<hash of the namespace>/<thread>                 marker: such a thread may exist
marks/<term>/<thread>-<version>-<random>                mark: the thread may have that status or label
<2 hex>/<thread>/head                                   the record of the thread (record.py)
<2 hex>/<thread>/<era>/rows/<version>-<digest>          segment: rows that moved out of the record
<2 hex>/<thread>/<era>/blobs/<id>
<2 hex>/<thread>/<era>/posts/<random>

<thread> is the SHA-256 of the thread's key, <term> that of a namespace with a status or a label.
"""

import re
from hashlib import sha256
from typing import NamedTuple, Self

FORMAT_NAME = "format"
SPACES = "spaces/"
MARKS = "marks/"
_MARK = re.compile(r"marks/([0-9a-f]{64})/([0-9a-f]{64})-([0-9]{12})-([0-9a-f]{1,32})")
_SEGMENT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/[0-9]{8}/rows/([0-9]{12})-[0-9a-f]{32}")
_BLOB = re.compile(r"[0-9a-f]{32}")
_ERA = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/([0-9]{8})/")
_HEAD = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})/head")
_PLACEHOLDER = re.compile(rb"([0-9a-f]{64})[.]head")


def hash_of(thread: bytes) -> str:
    """Return the hash that represents a thread in names."""
    return sha256(thread).hexdigest()


def root_of(thread_hash: str) -> str:
    """Return the prefix of all names of a thread's objects, markers and marks aside."""
    return f"{thread_hash[:2]}/{thread_hash}/"


def head_name(thread: bytes) -> str:
    """Return the name of a thread's head object."""
    return head_of(hash_of(thread))


def head_of(thread_hash: str) -> str:
    """Return the name of the head object of the thread with that hash."""
    return root_of(thread_hash) + "head"


def hash_in(name: str) -> str:
    """Return the thread's hash in the name of a head object; empty for any other object."""
    found = _HEAD.fullmatch(name)
    return found[1] if found else ""


# Eras


def era_root(thread: bytes, era: int) -> str:
    """Return the prefix of the names of all segments, blobs and posts of an era. Later eras sort later."""
    return f"{root_of(hash_of(thread))}{era:08}/"


def era_of(name: str) -> int:
    """Return the era in an object's name; 0 if there is none."""
    found = _ERA.match(name)
    return int(found[1]) if found else 0


def segment_version(name: str) -> int:
    """Return the version of the record that a segment was put for; 0 if it is not the name of a segment."""
    found = _SEGMENT.fullmatch(name)
    return int(found[1]) if found else 0


def blob_of(name: str) -> bytes | None:
    """Return the id in the last part of a blob object's name; None if it is not one of ours."""
    return bytes.fromhex(name) if _BLOB.fullmatch(name) else None


# Markers


def space_of(key: bytes) -> str:
    """Return the prefix of the markers in the namespace of a key, or of a namespace's prefix."""
    namespace = key[: 1 + key[0]]
    return f"{SPACES}{sha256(namespace).hexdigest()}/"


def marker_name(thread: bytes) -> str:
    """Return the name of the object which says that a thread may exist."""
    return space_of(thread) + hash_of(thread)


def markers_of(prefix: bytes) -> str:
    """Return the prefix of the markers of all threads whose key begins with `prefix`, and perhaps of others."""
    return space_of(prefix) if prefix and len(prefix) > prefix[0] else SPACES


def placeholder_key(prefix: bytes, thread_hash: str) -> bytes:
    """Return a key under which to list a thread whose own key is lost, in the namespace that is listed."""
    return (prefix or b"\0") + f"{thread_hash}.head".encode()


def placeholder_hash(thread: bytes) -> str:
    """Return the hash in a key that `placeholder_key` made; empty for any other."""
    found = _PLACEHOLDER.fullmatch(thread[1 + thread[0] :])
    return found[1].decode() if found else ""


# Marks


def term_of(key: bytes, kind: str, value: bytes) -> str:
    """Return the hash of a status or a label in the namespace of a key, or of a namespace's prefix."""
    namespace = key[: 1 + key[0]]
    return sha256(b"\0".join([namespace, kind.encode(), value])).hexdigest()


def marks_of(term: str) -> str:
    """Return the prefix of the marks of a term."""
    return f"{MARKS}{term}/"


class MarkName(NamedTuple):
    """The name of a mark. `suffix` is `<version>-<random>`: no name is used twice."""

    term: str
    thread_hash: str
    suffix: str

    def __str__(self) -> str:
        return f"{marks_of(self.term)}{self.thread_hash}-{self.suffix}"

    @property
    def version(self) -> int:
        """The version of the record that the mark was put for."""
        return int(self.suffix[:12])

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of an object's name; None if it is not a mark of ours."""
        found = _MARK.fullmatch(name)
        return cls(found[1], found[2], f"{found[3]}-{found[4]}") if found else None
