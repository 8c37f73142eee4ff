"""The metadata section of a row: what a listing shows, and nothing of the state."""

import msgspec

from holdfast.codec import decode
from holdfast.history.binding import META, Binding
from holdfast.history.format import FORMAT, Header
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import Corrupt
from holdfast.records.identity import CheckpointId
from holdfast.records.times import from_microseconds
from holdfast.records.words import Cause, Phase, Status


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """`parent` is the seq of the checkpoint before; `origin` the id of the checkpoint a fork began at."""

    created_at: int
    status: str
    cause: str
    phase: str | None = None
    parent: int = 0
    metadata: bytes = b""
    origin: str = ""


encode_meta = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Meta).decode


def decode_meta(binding: Binding, header: Header) -> Meta:
    """The metadata of a row whose header was verified."""
    name = binding.row_name(header.seq)
    try:
        return _decode(binding.unseal(header.meta, header.seq, META))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{name} is damaged: {error}", record=name) from error


def checkpoint_info(binding: Binding, header: Header, *, pinned: bool = False) -> CheckpointInfo:
    """What a listing shows of a row."""
    return CheckpointInfo(**info_fields(binding, header.seq, decode_meta(binding, header), journal=not header.is_checkpoint, pinned=pinned))


def info_fields(binding: Binding, seq: int, meta: Meta, *, journal: bool = False, pinned: bool = False) -> dict[str, object]:
    """The fields of a `CheckpointInfo`, for it or for a `Checkpoint`."""
    life = binding.life
    parent = str(CheckpointId(binding.thread_id, meta.parent, life)) if meta.parent else meta.origin or None
    return {
        "id": str(CheckpointId(binding.thread_id, seq, life)),
        "thread_id": binding.thread_id,
        "seq": seq,
        "parent_id": parent,
        "created_at": from_microseconds(meta.created_at),
        "status": Status(meta.status),
        "phase": Phase(meta.phase) if meta.phase else None,
        "cause": Cause(meta.cause),
        "metadata": decode(meta.metadata) if meta.metadata else {},
        "version": FORMAT,
        "journal": journal,
        "pinned": pinned,
    }
