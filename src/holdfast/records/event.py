"""Events that a store notifies listeners of: their kinds, their levels in the log, and their details.

Details are names, numbers and ids, never what a user stored. Content (arguments, results) is separate, and only for
listeners that asked for it.
"""

from typing import Literal, TypeAlias

import msgspec

EventKind: TypeAlias = Literal[
    "saved",
    "submitted",
    "claimed",
    "resumed",
    "taken_over",
    "step_started",
    "step_done",
    "step_replayed",
    "step_retried",
    "step_failed",
    "step_stopped",
    "step_in_doubt",
    "diverged",
    "attempt_failed",
    "rolled_back",
    "asked",
    "answered",
    "answer_received",
    "suspended",
    "completed",
    "failed",
    "cancelled",
    "released",
    "recovered",
    "forked",
    "imported",
    "pruned",
    "pinned",
    "unpinned",
    "erased",
    "checkpoint_deleted",
    "deleted",
    "revived",
]
DEBUG, INFO, WARNING = 10, 20, 30
"""The levels of the standard library's `logging`."""


class Sort(msgspec.Struct, frozen=True):
    """The level of a kind of event in the log, and the names of its details."""

    level: int
    details: tuple[str, ...] = ()


_CLAIM = ("owner", "token", "before", "trace")

EVENTS: dict[EventKind, Sort] = {
    "saved": Sort(DEBUG, ("bytes",)),
    "submitted": Sort(INFO, ("function", "queue")),
    "claimed": Sort(INFO, _CLAIM),
    "resumed": Sort(INFO, _CLAIM),
    "taken_over": Sort(INFO, _CLAIM),
    "step_started": Sort(DEBUG, ("step", "name", "attempt")),
    "step_done": Sort(DEBUG, ("step", "name", "attempt", "seconds")),
    "step_replayed": Sort(DEBUG, ("step", "name", "seconds_saved")),
    "step_retried": Sort(WARNING, ("step", "name", "attempt", "error", "wait_seconds")),
    "step_failed": Sort(WARNING, ("step", "name", "attempt", "error")),
    "step_stopped": Sort(INFO, ("step", "name", "attempt", "error")),
    "step_in_doubt": Sort(WARNING, ("step", "name", "policy")),
    "diverged": Sort(WARNING, ("step", "name", "recorded")),
    "attempt_failed": Sort(WARNING, ("attempt", "failure", "action", "error")),
    "rolled_back": Sort(WARNING, ("attempt", "target", "compensated")),
    "asked": Sort(INFO, ("request", "name")),
    "answered": Sort(INFO, ("request", "name")),
    "answer_received": Sort(INFO, ("request", "name", "expired")),
    "suspended": Sort(INFO, ("requests", "wake_at")),
    "completed": Sort(INFO),
    "failed": Sort(WARNING, ("error",)),
    "cancelled": Sort(INFO),
    "released": Sort(DEBUG, ("status", "token", "seconds")),
    "recovered": Sort(INFO, ("end", "error")),
    "forked": Sort(INFO, ("origin",)),
    "imported": Sort(INFO),
    "pruned": Sort(INFO, ("threads", "checkpoints", "bytes", "dry_run")),
    "pinned": Sort(DEBUG),
    "unpinned": Sort(DEBUG),
    "erased": Sort(INFO),
    "checkpoint_deleted": Sort(INFO),
    "deleted": Sort(INFO),
    "revived": Sort(INFO),
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of one store handle. docs/observability.md says what each kind means."""

    kind: EventKind
    thread_id: str
    seq: int = 0
    """The newest row of the thread at that time; 0 if unknown."""
    details: dict[str, object] = {}
    content: dict[str, object] = {}
    """Arguments and results; empty unless the listener asked for content."""
