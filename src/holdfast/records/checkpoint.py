"""Checkpoints, their steps, and the differences between two of them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

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


Part: TypeAlias = Literal["state", "steps", "lazy_steps", "pending"]
"""The parts of a checkpoint's content."""


class Checkpoint:
    """The complete state of a thread at one seq.

    `state` is an exact copy of what was saved: changing it changes nothing that is stored. Each part of the content is
    decoded at its first use.
    """

    __slots__ = ("_describe", "_identify", "_info", "_parts", "_restore")

    def __init__(
        self, identify: Callable[[], str], describe: Callable[[], CheckpointInfo], restore: Callable[[Part], Any]
    ) -> None:
        self._identify = identify
        self._describe = describe
        self._restore = restore
        self._info: CheckpointInfo | None = None
        self._parts: dict[Part, Any] = {}

    @property
    def info(self) -> CheckpointInfo:
        """The checkpoint without its content."""
        if self._info is None:
            self._info = self._describe()
        return self._info

    def _restored(self, part: Part) -> Any:
        if part not in self._parts:
            self._parts[part] = self._restore(part)
        return self._parts[part]

    @property
    def id(self) -> str:
        """The checkpoint's id: `thread@seq.life`."""
        return self._identify()

    @property
    def checkpoint_id(self) -> str:
        """The same as `id`."""
        return self._identify()

    @property
    def thread_id(self) -> str:
        """The thread it belongs to."""
        return self.info.thread_id

    @property
    def seq(self) -> int:
        """The checkpoint's number in the thread's log."""
        return self.info.seq

    @property
    def parent_id(self) -> str | None:
        """The previous checkpoint; for the first of a fork, the one it was forked from."""
        return self.info.parent_id

    @property
    def created_at(self) -> datetime:
        """When it was saved, by the saver's clock. Order is by `seq`, never by this."""
        return self.info.created_at

    @property
    def status(self) -> Status:
        """The thread's status at this checkpoint; from `latest`, its status now."""
        return self.info.status

    @property
    def phase(self) -> Phase | None:
        """Where in the agent loop it was taken."""
        return self.info.phase

    @property
    def cause(self) -> Cause:
        """Why it was taken."""
        return self.info.cause

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata it was saved with."""
        return self.info.metadata

    @property
    def version(self) -> int:
        """The version of the storage format it was written in."""
        return self.info.version

    @property
    def state(self) -> Any:
        """The state that was saved."""
        return self._restored("state")

    @property
    def steps(self) -> list[Step]:
        """The steps recorded up to this checkpoint; `LimitExceeded` if all of them would take too much memory."""
        steps: list[Step] = self._restored("steps")
        return steps

    @property
    def lazy_steps(self) -> Sequence[Step]:
        """The same steps, each decoded at every access and not kept: for threads with very large results."""
        steps: Sequence[Step] = self._restored("lazy_steps")
        return steps

    @property
    def pending(self) -> list[Any]:
        """The requests open at this checkpoint."""
        pending: list[Any] = self._restored("pending")
        return pending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Checkpoint({self.id!r}, status={self.status.value!r}, created_at={self.created_at.isoformat()!r})"


class Change(NamedTuple):
    """One difference between two states: `old` is None if it was added, `new` if it was removed."""

    path: tuple[Any, ...]
    kind: Literal["added", "removed", "changed"]
    old: Any
    new: Any
