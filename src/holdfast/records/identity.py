"""Ids: valid thread ids, the keys that backends store threads under, and the ids of checkpoints and requests."""

from functools import lru_cache

import msgspec

from holdfast.records.errors import Corrupt, InvalidId, NotFound
from holdfast.records.shown import kind_of

MAX_ID_BYTES = 512
MAX_NAMESPACE_BYTES = 128


def _utf8(text: object, what: str, limit: int) -> bytes:
    if not isinstance(text, str):
        raise InvalidId(f"{what} must be a str, got {kind_of(text)}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidId(f"{what} {text!r} contains a lone surrogate, which cannot be stored; replace it") from error
    if len(encoded) > limit:
        raise InvalidId(f"{what} must have at most {limit} bytes in UTF-8, got {len(encoded)}")
    return encoded


def namespace_prefix(namespace: str) -> bytes:
    """Return the prefix of the keys of all threads in this namespace, and of no others."""
    encoded = _utf8(namespace, "namespace", MAX_NAMESPACE_BYTES)
    return bytes((len(encoded),)) + encoded


def thread_key(prefix: bytes, thread_id: str) -> bytes:
    """Return the unique key of a thread: the namespace's prefix, then the id."""
    if type(thread_id) is str:
        return _known_key(prefix, thread_id)
    return _key(prefix, thread_id)


def _key(prefix: bytes, thread_id: str) -> bytes:
    encoded = _utf8(thread_id, "thread id", MAX_ID_BYTES)
    if not encoded:
        raise InvalidId("thread id must not be empty")
    return prefix + encoded


_known_key = lru_cache(4096)(_key)


def thread_id_of(key: bytes) -> str:
    """Return the id in a thread's key; raise `Corrupt` if there is none."""
    try:
        return key[1 + key[0] :].decode()
    except (UnicodeDecodeError, IndexError) as error:
        name = f"key of {shown_id_of(key)!r}"
        raise Corrupt(f"{name} is damaged: {key!r} contains no thread id", record=name) from error


def shown_id_of(key: bytes) -> str:
    """Return the id in a key that may be damaged, as far as it can be shown; never empty."""
    return key[1 + sum(key[:1]) :].decode(errors="replace") or repr(key)


def prefix_of(key: bytes) -> bytes:
    """Return the prefix of a thread's key: that of its namespace."""
    return key[: 1 + sum(key[:1])]


def checkpoint_id(thread_id: str, seq: int, life: str) -> str:
    """Return the id of a checkpoint."""
    return f"{thread_id}@{seq}.{life}"


class CheckpointId(msgspec.Struct, frozen=True):
    """`thread@seq.life`: a row of a thread. A thread id has a new life after it was deleted and revived."""

    thread_id: str
    seq: int
    life: str

    def __str__(self) -> str:
        return checkpoint_id(self.thread_id, self.seq, self.life)

    @classmethod
    def parse(cls, text: str) -> "CheckpointId":
        """Split an id at its last `@`."""
        return cls(*_split_id(text, "@", "checkpoint"))


class RequestId(msgspec.Struct, frozen=True):
    """`thread#number.life`: a request of a thread, in one of its lives."""

    thread_id: str
    number: int
    life: str

    def __str__(self) -> str:
        return f"{self.thread_id}#{self.number}.{self.life}"

    @classmethod
    def parse(cls, text: str) -> "RequestId":
        """Split an id at its last `#`."""
        return cls(*_split_id(text, "#", "request"))


_LISTED = {"@": "`store.history` lists them as `id`", "#": "`store.requests` lists them as `id`"}


def _split_id(text: str, mark: str, kind: str) -> tuple[str, int, str]:
    """Split an id at its last mark: the thread id before it may contain any character."""
    if not isinstance(text, str):
        raise InvalidId(f"{kind} id must be a str, got {kind_of(text)}")
    thread_id, found, tail = text.rpartition(mark)
    number, _, life = tail.partition(".")
    if not found or not (number.isascii() and number.isdigit() and len(number) < 16) or not life:
        raise NotFound(f"{text!r} is not a {kind} id; one looks like 'my-thread{mark}7.1f9a3c2e': {_LISTED[mark]}")
    return thread_id, int(number), life


def life_of(incarnation: bytes) -> str:
    """Return the part of an incarnation that is in checkpoint ids."""
    return incarnation[:4].hex()
