"""The allowed ranges of numbers, and the words, in stored records: decoders refuse everything else."""

from typing import Annotated, TypeAlias

import msgspec

from holdfast.records.words import Cause, Phase, Status

FIRST_MOMENT = -62_135_596_800_000_000
LAST_MOMENT = 253_402_300_799_999_999
"""The first and the last microsecond that a datetime can hold, in the years 1 and 9999."""
END_OF_SEQS = 1 << 40
LARGEST_TOKEN = (1 << 63) - 1
LONGEST_QUEUE_BYTES = 128

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=FIRST_MOMENT, le=LAST_MOMENT)]
"""Microseconds since 1970."""
Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_SEQS)]
Token: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKEN // 2)]
"""A fencing token, with room for the next ones."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKEN)]
Total: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""A count that grows with each write, with room for the next ones."""
Priority: TypeAlias = Annotated[int, msgspec.Meta(ge=-2, le=2)]
"""Among the threads of a queue; larger first."""
RequestNumber: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[1-9][0-9]{0,8}\Z")]

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder of records raises for bytes that are not a record."""

STATUSES = frozenset(status.value for status in Status)
CAUSES = frozenset(cause.value for cause in Cause)
PHASES = frozenset(phase.value for phase in Phase)


def is_queue_name(name: str) -> bool:
    """True if a queue may have this name: every kind of store can keep it."""
    return 0 < len(name.encode()) <= LONGEST_QUEUE_BYTES and name.isprintable()
