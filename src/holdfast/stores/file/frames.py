"""The log of one thread as bytes: a sequence of frames, each chained to the one before, and the index over them.

No files here: bytes come from a reader, `read(offset, length)`. A frame is one change, all or nothing. If the bytes end
inside the last frame, or a sector of it is missing, its write was cut short, and the change never happened. Anything
else is damage.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from struct import Struct
from zlib import crc32

import msgspec

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.packed import bounded
from holdfast.records.rows import Drop, Row, Swap

Reader = Callable[[int, int], bytes]

FORMAT = 1
MAGIC = b"HFLG"
LOOSE = 1
"""A flag: the file's name may not be on disk yet. The next durable writer must sync the directory first."""
SECTOR = 512
"""The unit that a disk writes atomically. After a power loss any sectors of the last frame may still be zeros."""

_FIELDS = Struct("<4sBBHIQ")  # magic, format, flags, blank sectors, length of the envelope, length of the frame
_MOST_BLANK = 0xFFFF
_CHECK = Struct("<I")  # CRC-32 of the previous digest and of these fields: a flipped length is not a torn tail
_LENGTH = Struct("<Q")  # the length of the frame again, so that the last frame can be found from the end
DIGEST_BYTES = 16
HEADER_BYTES = _FIELDS.size + _CHECK.size
FOOTER_BYTES = _LENGTH.size + DIGEST_BYTES
START = bytes(DIGEST_BYTES)
"""What the first frame is chained to."""

SCAN_AHEAD = 1 << 20
READ_AHEAD = 1 << 16
CARRY_BYTES = 1 << 20
"""A rewrite copies a log in frames of about this size, which bounds its memory."""


class Envelope(msgspec.Struct, array_like=True):
    """What a frame changes: rows, blobs and posts with their lengths. Their bytes follow in this order."""

    head: bytes
    """The head after this frame. Empty only in frames that a rewrite copies, which are never the last."""
    rows: list[tuple[int, int, int, int]] = []
    """seq, base, and the lengths of the row's description and of its body."""
    blobs: list[tuple[bytes, int]] = []
    posts: list[tuple[str, int]] = []
    consumed: tuple[str, ...] = ()
    thread: bytes = b""
    """The thread's key, in the first frame of a log."""


Place = tuple[int, int, int, int]
"""The place of a row: offset, base, the length of its description, and that of description and body."""


class Frame(msgspec.Struct, frozen=True):
    """A frame with its bytes, which end with its digest."""

    envelope: Envelope
    envelope_length: int
    flags: int
    data: bytes | bytearray


_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = bounded(msgspec.msgpack.Decoder(Envelope).decode)
_decode_description = msgspec.msgpack.Decoder(tuple[int, int, bytes, bytes]).decode


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # msgspec leaves the second as it is


class Window:
    """A reader that reads ahead, up to `limit`, to save system calls for small pieces."""

    def __init__(self, read: Reader, limit: int, ahead: int) -> None:
        self._read = read
        self._limit = limit
        self._ahead = ahead
        self._start = 0
        self._data = b""

    def get(self, offset: int, length: int) -> bytes:
        """Return these bytes; fewer if the reader has no more."""
        at = offset - self._start
        if at < 0 or at + length > len(self._data):
            self._start, at = offset, 0
            self._data = self._read(offset, max(length, min(self._ahead, self._limit - offset)))
        return self._data[at : at + length]

    def is_zero(self, offset: int) -> bool:
        """True if there are only zeros between `offset` and the limit."""
        return not any(data.strip(b"\0") for data in self.rest(offset))

    def rest(self, offset: int, overlap: int = 0) -> Iterator[bytes]:
        """Yield the bytes between `offset` and the limit in pieces, each with the first `overlap` bytes of the next."""
        for at in range(offset, self._limit, self._ahead):
            yield self.get(at, min(self._ahead + overlap, self._limit - at))


class Index:
    """What a log holds, as far as it was read. Only this class knows the bytes of a frame.

    `owner` is the SHA-256 of the thread's key. Every digest includes it, so a frame of another thread is detected.
    """

    def __init__(self, owner: bytes, name: str) -> None:
        self.owner = owner
        self.name = name
        self.end = 0
        self.digest = START
        self.named = False
        self.thread = b""
        self.head = b""
        self.rows: dict[int, Place] = {}
        self.blobs: dict[bytes, tuple[int, int]] = {}
        self.posts: dict[str, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        """How many rows, blobs and posts are indexed."""
        return len(self.rows) + len(self.blobs) + len(self.posts)

    def build(self, thread: bytes, envelope: Envelope, content: Sequence[bytes]) -> Frame:
        """Return the frame that adds this change at the end."""
        if not self.end:
            envelope.thread = thread
        described = _encode(envelope)
        length = HEADER_BYTES + len(described) + sum(map(len, content)) + FOOTER_BYTES
        flags = 0 if self.named else LOOSE
        body = b"".join((described, *content, _LENGTH.pack(length)))
        blank = _blank_count(body, self.end + HEADER_BYTES)
        fields = _FIELDS.pack(MAGIC, FORMAT, flags, blank, len(described), length)
        data = bytearray().join((fields, _CHECK.pack(crc32(self.digest + fields)), body))
        data += self._digest_of(data)
        return Frame(envelope, len(described), flags, data)

    def _digest_of(self, data: bytes | bytearray | memoryview) -> bytes:
        digest = sha256(self.owner + self.digest)
        digest.update(data)
        return digest.digest()[:DIGEST_BYTES]

    def accept(self, frame: Frame) -> None:
        """Apply a frame at the end to the index."""
        envelope, data = frame.envelope, frame.data
        self._place(envelope, self.end + HEADER_BYTES + frame.envelope_length)
        for key in envelope.consumed:
            self.posts.pop(key, None)
        self.head = envelope.head
        self.thread = self.thread or envelope.thread
        self.end += len(data)
        self.digest = bytes(data[-DIGEST_BYTES:])
        self.named = not frame.flags & LOOSE

    def _place(self, envelope: Envelope, at: int) -> None:
        for seq, base, described, body in envelope.rows:
            self.rows[seq] = (at, base, described, described + body)
            at += described + body
        for blob, length in envelope.blobs:
            self.blobs[blob] = (at, length)
            at += length
        for key, length in envelope.posts:
            self.posts[key] = (at, length)
            at += length

    def catch_up(self, read: Reader, size: int) -> None:
        """Read and verify every frame after `end`, in a file of `size` bytes. Ignore a torn tail."""
        window = Window(read, size, READ_AHEAD if self.end else SCAN_AHEAD)
        while self.end < size and (frame := self._next(window, size)):
            self.accept(frame)

    def _next(self, window: Window, size: int) -> Frame | None:
        header = window.get(self.end, min(HEADER_BYTES, size - self.end))
        if not _is_header(header, self.digest):
            self._require(self._is_torn_header(header, window), "there is no frame")
            return None
        _, version, flags, blank, envelope_length, length = _FIELDS.unpack_from(header)
        if version > FORMAT:
            raise IncompatibleCheckpoint(
                f"{self.name} was written by a newer Holdfast (format {version}); upgrade holdfast"
            )
        if self.end + length > size:
            return None
        data = window.get(self.end, length)
        digest = self._digest_of(memoryview(data)[:-DIGEST_BYTES])
        if digest != data[-DIGEST_BYTES:]:
            self._require(self._is_torn_frame(data, digest, blank, window), "its digest does not match")
            return None
        return Frame(self._opened(data, envelope_length), envelope_length, flags, data)

    def _is_torn_header(self, header: bytes, window: Window) -> bool:
        """True if a write was cut short: zeros follow its start, or a sector is missing and no frame follows."""
        begun = header.rstrip(b"\0")[: len(MAGIC)]
        if MAGIC.startswith(begun) and window.is_zero(self.end + len(header)):
            return True
        edge = SECTOR - self.end % SECTOR
        data = window.get(self.end, edge + SECTOR if edge < HEADER_BYTES else edge)
        return _blank_count(data, self.end) > 0 and not self._is_followed(window)

    def _is_followed(self, window: Window) -> bool:
        """True if there is a frame further on: then there was one here too."""
        for data in window.rest(self.end, DIGEST_BYTES + HEADER_BYTES):
            for at in (found.start() for found in re.finditer(MAGIC, data)):
                if at >= DIGEST_BYTES and _is_header(data[at : at + HEADER_BYTES], data[at - DIGEST_BYTES : at]):
                    return True
        return False

    def _is_torn_frame(self, data: bytes, digest: bytes, blank: int, window: Window) -> bool:
        """True if the last frame has more blank sectors than its header says, or lacks the end of its digest."""
        last = min((self.end + len(data)) % SECTOR or SECTOR, DIGEST_BYTES)
        lacks_end = data.endswith(digest[:-last] + bytes(last))
        lacks_more = _blank_count(data[HEADER_BYTES:-DIGEST_BYTES], self.end + HEADER_BYTES) > blank
        return (lacks_end or lacks_more) and window.is_zero(self.end + len(data))

    def _require(self, is_torn: bool, problem: str) -> None:
        if not is_torn:
            raise self.damage(self.end, problem)

    def _opened(self, data: bytes, envelope_length: int) -> Envelope:
        try:
            envelope = _decode_envelope(data[HEADER_BYTES : HEADER_BYTES + envelope_length])
        except _UNREADABLE as error:
            raise self.damage(self.end, str(error)) from error
        if not self.end and sha256(envelope.thread).digest() != self.owner:
            raise self.damage(0, "it is the log of another thread")
        return envelope

    def damage(self, offset: int, problem: str) -> Corrupt:
        """Return the error for damage at this offset."""
        record = f"{self.name} at byte {offset}"
        return Corrupt(f"{record} is damaged: {problem}", record=record)

    def run_to(self, seq: int) -> list[int]:
        """Return the seqs of the rows that a restore of `seq` reads, as far as they exist."""
        base = self.rows[seq][1] if seq in self.rows else seq
        return [at for at in range(base, seq + 1) if at in self.rows]

    def read_rows(self, read: Reader, seqs: Sequence[int], *, bodies: bool = True) -> list[Row]:
        """Return the rows of these seqs, which must exist; without `bodies`, with empty ones."""
        places = [self.rows[seq] for seq in seqs]
        spans = [(offset, length if bodies else described) for offset, _, described, length in places]
        return [self._row(data, place) for data, place in zip(self.read(read, spans), places, strict=True)]

    def _row(self, data: bytes, place: Place) -> Row:
        offset, _, described, _ = place
        try:
            seq, base, digest, header = _decode_description(data[:described])
        except _UNREADABLE as error:
            raise self.damage(offset, str(error)) from error
        return Row(seq, base, digest, header, data[described:])

    def read(self, read: Reader, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each (offset, length). Reads neighbours together."""
        window = Window(read, max((offset + length for offset, length in spans), default=0), READ_AHEAD)
        found = {span: window.get(*span) for span in sorted(set(spans))}
        for (offset, length), data in found.items():
            if len(data) < length:
                raise self.damage(offset, "the file ends too early")
        return [found[span] for span in spans]

    def without(self, drop: Drop) -> "Index":
        """Return an index of what a drop leaves, at its present offsets."""
        left = Index(self.owner, self.name)
        if not drop.everything:
            left.rows, left.blobs, left.posts = dict(self.rows), dict(self.blobs), dict(self.posts)
        for start, stop in drop.rows:
            for seq in range(max(start, min(self.rows, default=stop)), min(stop, max(self.rows, default=start) + 1)):
                left.rows.pop(seq, None)
        for blob in drop.blobs:
            left.blobs.pop(blob, None)
        return left

    def copied(self, read: Reader) -> Iterator[tuple[Envelope, list[bytes]]]:
        """Yield everything that is indexed, as changes of bounded size for a new log."""
        envelope, content, size = Envelope(b""), list[bytes](), 0
        for kind, entry, span in self._pieces():
            getattr(envelope, kind).append(entry)
            content += self.read(read, [span])
            size += span[1]
            if size >= CARRY_BYTES:
                yield envelope, content
                envelope, content, size = Envelope(b""), [], 0
        if content:
            yield envelope, content

    def _pieces(self) -> Iterator[tuple[str, tuple[object, ...], tuple[int, int]]]:
        for seq, (offset, base, described, length) in self.rows.items():
            yield "rows", (seq, base, described, length - described), (offset, length)
        for blob, (offset, length) in self.blobs.items():
            yield "blobs", (blob, length), (offset, length)
        for key, (offset, length) in self.posts.items():
            yield "posts", (key, length), (offset, length)


def _is_header(header: bytes, previous: bytes) -> bool:
    """True if this is the header of a frame that is chained to the previous digest."""
    return header.startswith(MAGIC) and header[_FIELDS.size :] == _CHECK.pack(crc32(previous + header[: _FIELDS.size]))


def _blank_count(data: bytes, offset: int) -> int:
    """Return on how many sectors these bytes, at this offset of a file, are all zeros; up to what a header can hold."""
    count = start = 0
    for stop in (*range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)):
        count += not data[start:stop].strip(b"\0")
        start = stop
    return min(count, _MOST_BLANK)


def change_of(swap: Swap) -> tuple[Envelope, list[bytes]]:
    """Return what a swap adds, as an envelope and the bytes that follow it."""
    envelope, content = Envelope(swap.replacement, consumed=swap.consumed), list[bytes]()
    for row in swap.rows:
        description = _encode((row.seq, row.base, row.digest, row.header))
        envelope.rows.append((row.seq, row.base, len(description), len(row.body)))
        content += (description, row.body)
    for blob, data in swap.blobs.items():
        envelope.blobs.append((blob, len(data)))
        content.append(data)
    return envelope, content


def end_of_data(read: Reader, size: int) -> int:
    """Return the offset at which the zeros at the end of a file begin."""
    while size:
        start = max(size - READ_AHEAD, 0)
        if data := read(start, size - start).rstrip(b"\0"):
            return start + len(data)
        size = start
    return 0


def last_frame(index: Index, read: Reader, size: int) -> bool:
    """Fill an empty index with the last frame alone, and the thread's key; False if the whole log must be read.

    This keeps a listing cheap: it verifies only the frame that holds the head.
    """
    footer = read(max(size - FOOTER_BYTES, 0), FOOTER_BYTES)
    length = _LENGTH.unpack_from(footer)[0] if len(footer) == FOOTER_BYTES else 0
    if not HEADER_BYTES + FOOTER_BYTES <= length <= size:
        return False
    try:
        index.thread = _first_thread(read, size)
        index.end = size - length
        index.digest = read(index.end - DIGEST_BYTES, DIGEST_BYTES) if index.end else START
        index.catch_up(read, size)
    except (Corrupt, *_UNREADABLE):
        return False
    return index.end == size and sha256(index.thread).digest() == index.owner


def _first_thread(read: Reader, size: int) -> bytes:
    envelope_length = _FIELDS.unpack_from(read(0, HEADER_BYTES))[4]
    return _decode_envelope(read(HEADER_BYTES, min(envelope_length, size))).thread
