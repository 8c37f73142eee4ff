"""What each backend chooses from its own costs: where bytes go, and what is worth a look first."""

import msgspec


class Tuning(msgspec.Struct, frozen=True):
    """When an insert becomes a blob, when a keyframe is worth it, and whether a new thread is looked for first."""

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
    """Pieces below this size are packed again."""
    assumes_new: bool = False
    """A refused swap costs no more than reading a head: so a thread that was not seen before is taken for a new one."""
