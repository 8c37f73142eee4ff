"""Loops: their states, the snapshot that a checkpoint of a loop holds, and deferred calls."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from holdfast.records.errors import Corrupt


class LoopState(StrEnum):
    """What a loop does next. Snapshots store these words."""

    PLANNING = "PLANNING"
    EXECUTING = "EXECUTING"
    OBSERVING = "OBSERVING"
    REFLECTING = "REFLECTING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


class Deferred(msgspec.Struct, frozen=True):
    """A call of a tool that is made after the last decision of the loop is committed."""

    id: str
    tool: str
    arguments: list[Any]


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a loop needs to resume, as plain data.

    `version` is the schema version of the program. `cursor` is the index of the next item of the plan.
    """

    version: int
    request: Any
    state: str
    plan: list[Any]
    cursor: int
    results: list[Any]
    context: dict[Any, Any] = {}
    outbox: list[Deferred] = []
    """The deferred calls that are not made yet."""
    decision: str = ""
    """COMPLETE once the last decision is made and deferred calls are left."""
    transitions: int = 0
    """How many transitions the loop has made."""

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dict: the state of a loop's thread."""
        outbox = [msgspec.structs.asdict(each) for each in self.outbox]
        return msgspec.structs.asdict(self) | {"outbox": outbox}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Snapshot":
        """Make a snapshot from a dict; raise `Corrupt` if it is not a snapshot of a loop.

        `outbox`, `decision` and `transitions` may be missing.
        """
        try:
            return checked(msgspec.convert(dict(fields), cls))
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise Corrupt(f"not the snapshot of a loop: {error}; nothing was changed", record="snapshot") from error


WITH_A_STEP: Final = frozenset({LoopState.EXECUTING, LoopState.OBSERVING})
"""The states in which the cursor is at an item of the plan."""


def checked(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot; raise `ValueError` if its fields contradict each other."""
    words, count = [state.value for state in LoopState], len(snapshot.plan)
    if snapshot.state not in words:
        raise ValueError(f"state {snapshot.state!r} is unknown; states are {', '.join(words)}")
    if snapshot.decision not in {"", LoopState.COMPLETE.value}:
        raise ValueError(f"decision {snapshot.decision!r} is unknown; it must be COMPLETE or empty")
    last = count - 1 if snapshot.state in WITH_A_STEP else count
    if not 0 <= snapshot.cursor <= last:
        raise ValueError(f"cursor {snapshot.cursor} is beyond the plan of {count} steps in state {snapshot.state}")
    if snapshot.transitions < 0:
        raise ValueError(f"transitions must not be negative, got {snapshot.transitions}")
    return snapshot
