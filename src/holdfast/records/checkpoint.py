"""Checkpoints, the steps within them, and what a comparison of two of them finds."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.records.words import Cause, Phase, Status


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded unit of an agent's work."""

    index: int = 0
    action: str = ""
    tool_called: str | None = None
    tool_input: Any = None
    tool_output: Any = None
    llm_output: Any = None
    error: str | None = None
    metadata: dict[str, Any] = {}
    idempotent: bool = False


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint without its content: what listings show."""

    id: str
    thread_id: str
    seq: int
    parent_id: str | None
    created_at: datetime
    status: Status
    phase: Phase | None
    cause: Cause
    metadata: dict[str, Any]
    version: int
    journal: bool = False
    pinned: bool = False

    @property
    def checkpoint_id(self) -> str:
        """The same as `id`."""
        return self.id


class Content(NamedTuple):
    """What a checkpoint holds, decoded."""

    state: Any
    steps: list[Step]
    pending: list[Any]


class Checkpoint(CheckpointInfo, frozen=True, kw_only=True, dict=True, eq=False):
    """The complete state of a thread at one seq.

    `state` is exactly what was saved, and this checkpoint's own copy: it is decoded at the first access, and changing
    it changes nothing that is stored.
    """

    restore: Callable[[], Content]

    @property
    def _content(self) -> Content:
        cached: Content | None = self.__dict__.get("content")
        if cached is None:
            cached = self.__dict__["content"] = self.restore()
        return cached

    @property
    def state(self) -> Any:
        """The state that was saved."""
        return self._content.state

    @property
    def steps(self) -> list[Step]:
        """The steps recorded up to this checkpoint."""
        return self._content.steps

    @property
    def pending(self) -> list[Any]:
        """The requests open at this checkpoint."""
        return self._content.pending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Checkpoint({self.id!r}, status={self.status.value!r}, created_at={self.created_at.isoformat()!r})"


class Change(NamedTuple):
    """One difference between two states: `old` is None where it was added, `new` where it was removed."""

    path: tuple[Any, ...]
    kind: Literal["added", "removed", "changed"]
    old: Any
    new: Any
