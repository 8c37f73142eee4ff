"""The metadata section of a row: what a listing shows, and nothing of the state."""

import msgspec

from holdfast.codec import decode
from holdfast.history.binding import META, Binding
from holdfast.history.format import FORMAT, Header
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import Corrupt
from holdfast.records.identity import checkpoint_id
from holdfast.records.packed import bounded
from holdfast.records.times import from_microseconds
from holdfast.records.words import Cause, Phase, Status


class Meta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`parent_back`: how many rows back the checkpoint before is, 0 if there is none. `origin`: where a fork began."""

    created_at: int
    parent_back: int = 1
    status: str = "idle"
    cause: str = "manual"
    phase: str | None = None
    metadata: bytes = b""
    origin: str = ""


_encode = msgspec.msgpack.Encoder().encode


def encode_meta(meta: Meta) -> bytes:
    """The metadata's bytes; defaults at the end are left out, so that a plain save carries ten bytes."""
    if meta.metadata or meta.phase or meta.origin or meta.cause != "manual":
        return _encode(meta)
    if meta.status != "idle":
        return _encode((meta.created_at, meta.parent_back, meta.status))
    return _encode((meta.created_at,) if meta.parent_back == 1 else (meta.created_at, meta.parent_back))


_decode = bounded(msgspec.msgpack.Decoder(Meta).decode)


def decode_meta(binding: Binding, header: Header) -> Meta:
    """The metadata of a row whose header was verified."""
    name = binding.row_name(header.seq)
    try:
        return _decode(binding.unseal(header.meta, header.seq, META))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{name} is damaged: {error}", record=name) from error


def checkpoint_info(binding: Binding, header: Header, *, pinned: bool = False) -> CheckpointInfo:
    """What a listing shows of a row."""
    meta = decode_meta(binding, header)
    return describe(binding, header.seq, meta, meta.status, journal=not header.is_checkpoint, pinned=pinned)


def describe(
    binding: Binding, seq: int, meta: Meta, status: str, *, journal: bool = False, pinned: bool = False
) -> CheckpointInfo:
    """What is known of a row from its metadata."""
    thread_id, life = binding.thread_id, binding.life
    parent = checkpoint_id(thread_id, seq - meta.parent_back, life) if meta.parent_back else None
    return CheckpointInfo(
        id=checkpoint_id(thread_id, seq, life),
        thread_id=thread_id,
        seq=seq,
        parent_id=parent or meta.origin or None,
        created_at=from_microseconds(meta.created_at),
        status=Status(status),
        phase=Phase(meta.phase) if meta.phase else None,
        cause=Cause(meta.cause),
        metadata=decode(meta.metadata) if meta.metadata else {},
        version=FORMAT,
        journal=journal,
        pinned=pinned,
    )
