"""Reading what a head says in words: labels, an error, the numbers of open requests, each of the right type."""

import msgspec

from holdfast.codec import decode
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.ranges import RequestNumber


class SummaryFields(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The fields of a summary, in their stored order."""

    labels: dict[str, str]
    error: str | None
    requests: tuple[RequestNumber, ...]


def read_fields(thread_id: str, data: bytes) -> SummaryFields:
    """The fields in an unsealed summary, or `Corrupt`."""
    try:
        return msgspec.convert(decode(data), SummaryFields)
    except (CodecError, msgspec.MsgspecError, ValueError) as error:
        name = f"head of {thread_id!r}"
        raise Corrupt(f"{name} is damaged: its summary cannot be read: {error}", record=name) from error
