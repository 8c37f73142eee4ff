"""What each backend chooses by its own costs."""

import msgspec


class Tuning(msgspec.Struct, frozen=True):
    """When inserted bytes become a blob, when to write a keyframe, and whether to check first for an unknown thread."""

    inline_max: int = 4096
    """Inserts of this size or more go to blobs."""
    keyframe_rows: int = 256
    """Write a keyframe after this many rows, if the new data outweighs its manifest."""
    keyframe_rows_max: int = 1024
    """Write a keyframe after this many rows in any case."""
    keyframe_bytes: int = 98304
    """Write a keyframe after this many bytes of rows, unless its manifest is larger than half of them."""
    pack_max: int = 262144
    """Inline data is packed into blobs of up to this size."""
    small_piece: int = 1024
    """Pieces below this size are packed again."""
    assumes_new: bool = False
    """A refused swap costs no more than reading a head, so an unknown thread is assumed to be new."""
