"""The state machine of a loop: the table of legal transitions, and the function that applies one. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
from holdfast.records.loop import LoopState, Snapshot

PLANNING, EXECUTING, OBSERVING = LoopState.PLANNING, LoopState.EXECUTING, LoopState.OBSERVING
REFLECTING, COMPLETE, FAILED = LoopState.REFLECTING, LoopState.COMPLETE, LoopState.FAILED

TRANSITIONS: Final[Mapping[LoopState, Mapping[LoopState, str]]] = {
    PLANNING: {EXECUTING: "there is a plan", REFLECTING: "the plan is empty"},
    EXECUTING: {OBSERVING: "the worker returned"},
    OBSERVING: {REFLECTING: "the result is kept"},
    REFLECTING: {
        EXECUTING: "next step",
        PLANNING: "plan again",
        REFLECTING: "decided, deferred calls are left",
        COMPLETE: "all is done",
        FAILED: "given up, or a deferred call failed",
    },
    COMPLETE: {},
    FAILED: {},
}
"""Maps each state to its possible successors, and each of those to its condition."""
TERMINAL: Final = frozenset({COMPLETE, FAILED})
CHECKPOINTED: Final = frozenset({PLANNING, OBSERVING, REFLECTING})
"""The states that end with a checkpoint. EXECUTING does not: the worker records its own effects."""


def applied(snapshot: Snapshot, to: LoopState, **changes: Any) -> Snapshot:
    """Return the snapshot after a transition, with these changes. `ConfigurationError` if it is not in the table."""
    legal = TRANSITIONS[LoopState(snapshot.state)]
    if to not in legal:
        allowed = ", ".join(legal) or "none"
        raise ConfigurationError(f"a loop cannot go from {snapshot.state} to {to}; legal transitions: {allowed}")
    after = replace(snapshot, state=to.value, transitions=snapshot.transitions + 1, **changes)
    if to is EXECUTING and after.cursor >= len(after.plan):
        raise ConfigurationError(
            f"a loop cannot go to EXECUTING: all {len(after.plan)} steps of its plan are done;"
            " return LoopState.PLANNING or LoopState.COMPLETE"
        )
    return after


def resumption(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot from which a loaded loop resumes.

    A result that was not observed died with its process, so its step is executed again. A loop that failed in its
    deferred calls performs the remaining ones. Both undo the last transition.
    """
    if snapshot.state == OBSERVING:
        back = EXECUTING
    elif snapshot.state == FAILED and snapshot.decision:
        back = REFLECTING
    else:
        return snapshot
    return replace(snapshot, state=back.value, transitions=max(snapshot.transitions - 1, 0))
