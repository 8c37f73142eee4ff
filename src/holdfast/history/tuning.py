"""The numbers that decide where bytes go: chosen by each backend from what a row and a blob cost it to read."""

from typing import NamedTuple


class Tuning(NamedTuple):
    """When an insert becomes a blob, and when a keyframe is worth it."""

    inline_max: int = 4096
    """Inserts of this size or more go to blobs."""
    keyframe_rows: int = 256
    """After so many rows a keyframe is taken, if the new data outweighs its manifest."""
    keyframe_rows_max: int = 1024
    """After so many rows a keyframe is taken in any case."""
    keyframe_bytes: int = 98304
    """So many bytes of rows bring a keyframe, if twice its manifest is not more."""
    pack_max: int = 262144
    """Inline data is packed into blobs of at most this size."""
    small_piece: int = 1024
    """Pieces below this size are packed anew."""
