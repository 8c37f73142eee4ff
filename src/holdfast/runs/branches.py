"""Which step was recorded or replayed last, in each parallel branch of a runtime's work.

A branch is a task or thread. What a branch does counts for it and for the branches that started it, never for its
siblings: three branches of a `gather` each have a last step of their own.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from holdfast.ports import Ports

if TYPE_CHECKING:
    from holdfast.runs.ledger import Ledger


class Branch(msgspec.Struct, eq=False):
    """A task or thread that works on a run."""

    ledger: "Ledger"
    number: int
    parent: "Branch | None" = None
    last_step: str | int | None = None
    """The key of the last step, or the index of one that was recorded without a key."""


current_branch: ContextVar[Branch | None] = ContextVar("holdfast_branch", default=None)
"""Set while a runtime wants to know; None elsewhere, and then nothing is kept."""


def mark_step(ledger: "Ledger", ports: Ports, step: str | int) -> None:
    """This step was recorded or replayed just now, in the branch that calls."""
    branch = current_branch.get()
    if branch is None or branch.ledger is not ledger:
        return
    number = ports.branch()
    if branch.number != number:
        branch = Branch(ledger, number, branch)
        current_branch.set(branch)
    reached: Branch | None = branch
    while reached is not None:
        reached.last_step = step
        reached = reached.parent


def last_step() -> str | int | None:
    """The step that was recorded or replayed last, in the branch that calls or in those it started."""
    branch = current_branch.get()
    return None if branch is None else branch.last_step
