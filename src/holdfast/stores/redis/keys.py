"""The names of keys, and rows as bytes.

Every key of a thread has the hash tag of its shard. So one script may use all of them, and the listings of that shard,
also in a cluster:

    <prefix>:{17}:t<thread>       hash: h head, t newest seq, e if it expires, r<seq> a row, b<id> a blob
    <prefix>:{17}:p<thread>       hash: the messages for the thread
    <prefix>:{17}:i<space><word>  sorted set: the threads of a namespace listed under a word, by time of creation
    <prefix>:{17}:n               set: the namespaces of the shard
    <prefix>:{17}:x               exists if a thread of the shard ever had a time to live
    <prefix>:{0}:f                the number of this format

The agenda of a queue is in the shard of its name:

    <prefix>:{17}:ap<space><queue>  hash: the entry of each thread, and the ticket of a write that is under way
    <prefix>:{17}:at<space><queue>  sorted set by name: what is not due yet, by route and due time
    <prefix>:{17}:ar<space><queue>  sorted set by name: what is due, by route, held, rank, lane and due time
    <prefix>:{17}:ah<space><queue>  sorted set by due time: threads that are held
    <prefix>:{17}:af<space><queue>  sorted set by due time: threads that are not
    <prefix>:{17}:al<space><queue>  sorted set by name: threads that are held, by lane
    <prefix>:{17}:q                 set: the queues of the shard, each with its namespace
    <prefix>:{17}:u<bucket>         when the bucket of a rate is paid off

The tag comes first and a thread's key last, unchanged: two threads never share a key of Redis.
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
AGENDA = (b"p", b"t", b"r", b"h", b"f", b"l")
"""The parts of a queue's agenda: places, times, ready, held, free, lanes."""
_EPOCH = 1 << 63
_ROW = Struct(">QIB")


class Keys:
    """The names of one store's keys."""

    def __init__(self, prefix: str) -> None:
        if not prefix or set(prefix) & set("{}") or not prefix.isprintable():
            raise ConfigurationError(f"`prefix` must be a printable word without braces, got {prefix!r}")
        self.prefix = prefix
        self._bases = [f"{prefix}:{{{shard}}}:".encode() for shard in range(SHARDS)]
        self._tag_at = len(prefix.encode()) + 2
        self.format = self._bases[0] + b"f"

    def base(self, shard: int) -> bytes:
        """Return what all keys of a shard begin with."""
        return self._bases[shard]

    def thread(self, shard: int, thread: bytes) -> bytes:
        """Return the key of a thread."""
        return self._bases[shard] + b"t" + thread

    def posts(self, shard: int, thread: bytes) -> bytes:
        """Return the key of a thread's messages."""
        return self._bases[shard] + b"p" + thread

    def listing(self, shard: int, space: bytes, word: bytes) -> bytes:
        """Return the key of the threads of a namespace that are listed under a word."""
        return self._bases[shard] + b"i" + space + word

    def expiring(self, shard: int) -> bytes:
        """Return the key that exists if threads of a shard expire."""
        return self._bases[shard] + b"x"

    def spaces(self, shard: int) -> bytes:
        """Return the key of the namespaces of a shard."""
        return self._bases[shard] + b"n"

    def agenda(self, shard: int, space: bytes, queue: bytes) -> tuple[bytes, ...]:
        """Return the keys of a queue's agenda, as its script takes them."""
        base = self._bases[shard]
        return *(base + b"a" + kind + space + queue for kind in AGENDA), self.queues(shard)

    def queues(self, shard: int) -> bytes:
        """Return the key of the queues of a shard."""
        return self._bases[shard] + b"q"

    def bucket(self, shard: int, bucket: bytes) -> bytes:
        """Return the key of a bucket."""
        return self._bases[shard] + b"u" + bucket

    def pattern(self, kind: bytes) -> bytes:
        """Return the pattern that the keys of one kind match, and perhaps some others: see `is_kind`."""
        escaped = "".join(f"\\{each}" if each in "*?[]\\^-" else each for each in self.prefix)
        return escaped.encode() + b":{*}:" + kind + b"*"

    def is_kind(self, name: bytes, kind: bytes) -> bool:
        """True if this is one of our keys, of this kind."""
        shard, brace, rest = name[self._tag_at :].partition(b"}:")
        return bool(brace) and shard.isdigit() and len(shard) < 9 and int(shard) < SHARDS and rest.startswith(kind)

    def shard_in(self, name: bytes) -> int:
        """Return the shard that one of our keys is in."""
        return int(name[self._tag_at :].partition(b"}")[0])


def shard_of(thread: bytes) -> int:
    """Return the shard that a thread belongs to."""
    return crc32(thread) % SHARDS


def space_of(thread: bytes) -> bytes:
    """Return the namespace that a thread's key begins with."""
    return thread[: 1 + thread[0]]


def born(head: Head) -> bytes:
    """Return the time of a thread's creation, as bytes that sort by it."""
    return (head.created_at + _EPOCH).to_bytes(8)


def words_of(head: Head) -> list[bytes]:
    """Return the words that a thread is listed under: `EVERY`, its status and its labels, or none."""
    return [EVERY, status_word(head.listed_as), *map(label_word, head.labels)] if head.listed_as else []


def status_word(status: str) -> bytes:
    """Return the word of a status."""
    return b"s" + status.encode()


def label_word(token: bytes) -> bytes:
    """Return the word of a label."""
    return b"l" + token


def pack_words(words: Iterable[bytes]) -> bytes:
    """Pack several values into one, which a script takes apart."""
    return b"".join([len(word).to_bytes(4) + word for word in words])


def pack_row(row: Row) -> bytes:
    """Pack a row into one value: first what an index needs, the body last."""
    return _ROW.pack(row.base, len(row.header), len(row.digest)) + row.digest + row.header + row.body


def unpack_row(seq: int, data: bytes) -> Row:
    """Unpack a row, whole or without its body."""
    try:
        base, header_length, digest_length = _ROW.unpack_from(data)
    except error as cause:
        raise Corrupt(f"row {seq} is damaged: it is too short", record=f"row {seq}") from cause
    header_at = _ROW.size + digest_length
    body_at = header_at + header_length
    return Row(seq, base, data[_ROW.size : header_at], data[header_at:body_at], data[body_at:])
