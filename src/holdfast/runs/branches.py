"""Which step was recorded or replayed last, in each parallel branch of a runtime's work.

A branch is a task or thread. What a branch does counts for it and for the branches that started it, never for its
siblings: three branches of a `gather` each have a last step of their own. A task is known as a branch once it has
recorded something itself; where that leaves open whose step it was, there is no last step rather than a wrong one.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.history.entries import Recorded
from holdfast.ports import Ports

if TYPE_CHECKING:
    from holdfast.runs.ledger import Ledger


Mark: TypeAlias = str | int | Recorded
"""A step: its key, its index, or if it has no key the line that was recorded."""


class Branch(msgspec.Struct, eq=False):
    """A task or thread that works on a run."""

    ledger: "Ledger"
    number: int
    parent: "Branch | None" = None
    last_step: "Mark | None" = None
    is_shared: bool = False
    """True if a branch that this one started was the last to record a step."""


current_branch: ContextVar[Branch | None] = ContextVar("holdfast_branch", default=None)
"""Set while a runtime wants to know; None elsewhere, and then nothing is kept."""


def mark_step(ledger: "Ledger", ports: Ports, step: Mark) -> None:
    """This step was recorded or replayed just now, in the branch that calls."""
    branch = _branch(ledger, ports)
    if branch is None:
        return
    branch.last_step, branch.is_shared = step, False
    above = branch.parent
    while above is not None:
        above.last_step, above.is_shared = step, True
        above = above.parent


def last_step(ledger: "Ledger", ports: Ports) -> Mark | None:
    """The step that was recorded or replayed last, in the branch that calls or in those it started."""
    branch = _branch(ledger, ports)
    return None if branch is None else branch.last_step


def _branch(ledger: "Ledger", ports: Ports) -> Branch | None:
    """The branch that calls. A new one begins with the last step of the branch that started it, if that is certain."""
    branch = current_branch.get()
    if branch is None or branch.ledger is not ledger:
        return None
    number = ports.branch()
    if branch.number != number:
        branch = Branch(ledger, number, branch, None if branch.is_shared else branch.last_step)
        current_branch.set(branch)
    return branch
