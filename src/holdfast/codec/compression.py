"""zstd, with a limit on what stored bytes may expand to. Imported at its first use: it costs start-up time."""

import sys
from typing import TYPE_CHECKING, Final

from holdfast.codec.limits import Limits
from holdfast.records.errors import Corrupt, LimitExceeded

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

# Of 512-byte pieces of text level 1 leaves 48 % in 7 us, level 3 47 % in 9 us, level 6 46 % in 18 us; of 256 KB 28 % in
# 0.9 ms, 26 % in 1.1 ms, 24 % in 3.4 ms. What is written once for hundreds of rows is worth the time: of 93 KB of steps
# level 3 leaves 40.2 % in 0.5 ms, level 5 39.8 % in 1.0 ms, level 6 38.9 % in 2.2 ms, level 9 38.2 % in 3.4 ms.
_LEVEL: Final = 3
_DENSE_LEVEL: Final = 6
# Making a compressor takes 17 us, more than compressing a small record. Taking one out and putting it back are atomic.
_spares: Final[dict[int, list[zstd.ZstdCompressor]]] = {_LEVEL: [], _DENSE_LEVEL: []}


def compress(data: bytes, *, dense: bool = False) -> bytes:
    """Return one zstd frame, which includes the length of the data. `dense` takes more time for less space."""
    level = _DENSE_LEVEL if dense else _LEVEL
    spare = _spares[level]
    compressor = spare.pop() if spare else zstd.ZstdCompressor(level=level)
    frame = compressor.compress(data, compressor.FLUSH_FRAME)
    spare.append(compressor)
    return frame


def may_expand(frame_size: int, size: int, limits: Limits) -> bool:
    """True if a frame of that size may expand to `size` bytes."""
    return size <= limits.size and size <= max(limits.expansion_floor, limits.expansion * frame_size)


def decompress(frame: bytes, limits: Limits, record: str) -> bytes:
    """Return the data of one zstd frame. Raises LimitExceeded, before it expands, beyond the limits."""
    try:
        size = zstd.get_frame_info(frame).decompressed_size
        if size is None:
            raise Corrupt(f"{record}: compressed bytes without their length", record=record)
        if not may_expand(len(frame), size, limits):
            raise LimitExceeded(
                f"{record}: {len(frame)} compressed bytes would expand to {size}, which is beyond the limits"
            )
        decompressor = zstd.ZstdDecompressor()
        data = decompressor.decompress(frame, size + 1)
    except zstd.ZstdError as error:
        raise Corrupt(f"{record}: compressed bytes are damaged: {error}", record=record) from error
    if len(data) != size or not decompressor.eof or decompressor.unused_data:
        raise Corrupt(f"{record}: compressed bytes are damaged", record=record)
    return data
