"""The metadata section of a row: what a listing shows, without the state."""

from typing import Any

import msgspec

from holdfast.codec import decode
from holdfast.history.binding import Binding
from holdfast.history.format import FORMAT, Header, damaged
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import CodecError, UnknownType
from holdfast.records.identity import checkpoint_id
from holdfast.records.packed import bounded
from holdfast.records.ranges import CAUSES, PHASES, STATUSES, UNDECODABLE, Moment, Seq
from holdfast.records.shown import kind_of
from holdfast.records.times import from_microseconds
from holdfast.records.words import Cause, Phase, Status


class Meta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row's metadata. `parent_back`: the distance to the previous checkpoint, 0 if none. `origin`: that of a fork."""

    created_at: Moment
    parent_back: Seq = 1
    status: str = "idle"
    cause: str = "manual"
    phase: str | None = None
    metadata: bytes = b""
    origin: str = ""


_encode = msgspec.msgpack.Encoder().encode


def encode_meta(meta: Meta) -> bytes:
    """Encode the metadata. Defaults at the end are left out: a plain save has ten bytes."""
    if meta.metadata or meta.phase or meta.origin or meta.cause != "manual":
        return _encode(meta)
    if meta.status != "idle":
        return _encode((meta.created_at, meta.parent_back, meta.status))
    return _encode((meta.created_at,) if meta.parent_back == 1 else (meta.created_at, meta.parent_back))


_decode = bounded(msgspec.msgpack.Decoder(Meta).decode)


def decode_meta(binding: Binding, header: Header) -> Meta:
    """Return the metadata of a row whose header was verified."""
    try:
        meta = _decode(binding.unseal_meta(header))
    except UNDECODABLE as error:
        raise damaged(header.seq, binding.thread_id, str(error)) from error
    if problem := _problem_of(meta, header.seq):
        raise damaged(header.seq, binding.thread_id, problem)
    return meta


def _problem_of(meta: Meta, seq: int) -> str:
    """Return what is wrong with metadata whose types and ranges are right; empty if nothing is."""
    if meta.status not in STATUSES:
        return f"its status is {meta.status!r}"
    if meta.cause not in CAUSES:
        return f"its cause is {meta.cause!r}"
    if meta.phase and meta.phase not in PHASES:
        return f"its phase is {meta.phase!r}"
    if meta.parent_back > seq:
        return f"the checkpoint before it is {meta.parent_back} rows back"
    return ""


def _metadata(binding: Binding, seq: int, meta: Meta) -> dict[str, Any]:
    """Decode the metadata that the user saved."""
    if not meta.metadata:
        return {}
    try:
        metadata = decode(meta.metadata)
    except UnknownType:
        raise
    except CodecError as error:
        raise damaged(seq, binding.thread_id, f"its metadata cannot be decoded: {error}") from error
    if type(metadata) is not dict:
        raise damaged(seq, binding.thread_id, f"its metadata is {kind_of(metadata)}, not a dict")
    return metadata


def checkpoint_info(binding: Binding, header: Header, *, pinned: bool = False) -> CheckpointInfo:
    """Return what a listing shows of a row."""
    meta = decode_meta(binding, header)
    return describe(binding, header.seq, meta, meta.status, journal=not header.is_checkpoint, pinned=pinned)


def describe(
    binding: Binding, seq: int, meta: Meta, status: str, *, journal: bool = False, pinned: bool = False
) -> CheckpointInfo:
    """Return what the metadata says about a row."""
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
        metadata=_metadata(binding, seq, meta),
        version=FORMAT,
        journal=journal,
        pinned=pinned,
    )
