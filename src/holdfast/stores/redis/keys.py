"""The names of keys, and rows as bytes.

Every key of a thread has the hash tag of its shard, so that one script may use all of them, and the listings of that
shard with them, also in a cluster:

    <prefix>:{17}:t<thread>       hash: h head, t newest seq, e if it expires, r<seq> a row, b<id> a blob
    <prefix>:{17}:p<thread>       hash: the messages left for it
    <prefix>:{17}:i<space><word>  sorted set: the threads of a namespace listed under a word, by time of creation
    <prefix>:{17}:n               set: the namespaces of the shard
    <prefix>:{17}:x               there if a thread of the shard was ever given a time to live
    <prefix>:{0}:f                the number of this format

The tag ends before anything that a thread's id can reach, and what is behind it is the key of the thread as it is: two
threads never share a key.
"""

from collections.abc import Iterable
from struct import Struct, error
from zlib import crc32

from holdfast.records.errors import ConfigurationError, Corrupt
from holdfast.records.head import Head
from holdfast.records.rows import Row

SHARDS = 64
"""How many parts the threads of a store are spread over. Stored threads are found by it: it can never change."""
EVERY = b"*"
"""The word that all listed threads are listed under."""
_EPOCH = 1 << 63
_ROW = Struct(">QIB")


class Keys:
    """The names of one store's keys."""

    def __init__(self, prefix: str) -> None:
        if not prefix or set(prefix) & set("{}") or not prefix.isprintable():
            raise ConfigurationError(f"prefix={prefix!r}: a word that Redis keys may begin with, without braces")
        self.prefix = prefix
        self.format = f"{prefix}:{{0}}:f".encode()
        self._bases = [f"{prefix}:{{{shard}}}:".encode() for shard in range(SHARDS)]
        self._threads = [base + b"t" for base in self._bases]
        self._posts = [base + b"p" for base in self._bases]

    def thread(self, shard: int, thread: bytes) -> bytes:
        """Where a thread is kept."""
        return self._threads[shard] + thread

    def posts(self, shard: int, thread: bytes) -> bytes:
        """Where the messages for a thread are left."""
        return self._posts[shard] + thread

    def listing(self, shard: int, space: bytes, word: bytes) -> bytes:
        """Where the threads of a namespace that are listed under a word are found."""
        return self._bases[shard] + b"i" + space + word

    def base(self, shard: int) -> bytes:
        """What all keys of a shard begin with."""
        return self._bases[shard]

    def expiring(self, shard: int) -> bytes:
        """Where it is noted that threads of a shard expire."""
        return self._bases[shard] + b"x"

    def spaces(self, shard: int) -> bytes:
        """Where the namespaces of a shard are found."""
        return self._bases[shard] + b"n"


def shard_of(thread: bytes) -> int:
    """The shard a thread belongs to."""
    return crc32(thread) % SHARDS


def space_of(thread: bytes) -> bytes:
    """The namespace a thread's key begins with."""
    return thread[: 1 + thread[0]]


def born(head: Head) -> bytes:
    """The time of a thread's creation, as bytes that sort by it."""
    return (head.created_at + _EPOCH).to_bytes(8)


def words_of(head: Head) -> list[bytes]:
    """The words a thread is listed under: none, or every thread's, its status, and its labels."""
    return [EVERY, status_word(head.listed_as), *map(label_word, head.labels)] if head.listed_as else []


def status_word(status: str) -> bytes:
    """The word of a status."""
    return b"s" + status.encode()


def label_word(token: bytes) -> bytes:
    """The word of a label."""
    return b"l" + token


def pack_words(words: Iterable[bytes]) -> bytes:
    """Several values as one, for a script to take apart."""
    return b"".join([len(word).to_bytes(4) + word for word in words])


def pack_row(row: Row) -> bytes:
    """A row as one value. What an index needs comes first, the body last."""
    return _ROW.pack(row.base, len(row.header), len(row.digest)) + row.digest + row.header + row.body


def unpack_row(seq: int, data: bytes) -> Row:
    """The row in a value, or in as much of it as comes before its body."""
    try:
        base, header_length, digest_length = _ROW.unpack_from(data)
    except error as cause:
        raise Corrupt(f"row {seq} is damaged: it is too short", record=f"row {seq}") from cause
    header_at = _ROW.size + digest_length
    body_at = header_at + header_length
    return Row(seq, base, data[_ROW.size : header_at], data[header_at:body_at], data[body_at:])
