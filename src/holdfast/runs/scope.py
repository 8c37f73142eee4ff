"""Where in a run a call is made: its run and step, the keys it may use, and the step that was recorded last.

Keys that the user does not choose are made of names, fingerprints of arguments and a number among equals. They do not
depend on the order in which parallel branches make their calls.
"""

from contextvars import ContextVar
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.history.entries import Recorded
from holdfast.ports import Ports, Ticket
from holdfast.runs.keys import Key, prefix_of

if TYPE_CHECKING:
    from holdfast.runs.ledger import Ledger
    from holdfast.runs.run import Run

NO_KEY = Key()


class Scope(msgspec.Struct, eq=False):
    """One level of a run: its body, or the function of one step. Counts the calls by name."""

    prefix: Key = NO_KEY
    """How the keys of this level begin: `scope.prefix + key` is the key of what the user calls `key` here."""
    branch: int = 0
    _counts: dict[str, "count[int]"] = {}

    def key(self, name: str, fingerprint: bytes) -> str:
        """Return a key for a call with these arguments."""
        return self._numbered(f"{self.prefix + name}:{fingerprint.hex()}")

    def ordinal(self, kind: str, fingerprint: bytes, branch: int) -> str:
        """Return a key for the next call of this kind; in a parallel branch, for the next with this content."""
        content = "" if branch == self.branch else f":{fingerprint.hex()}"
        return self._numbered(f"{self.prefix + kind}{content}")

    def _numbered(self, name: str) -> str:
        return f"{name}:{next(self._counts.setdefault(name, count(1)))}"


class Frame(msgspec.Struct, frozen=True):
    """The run and step that the code which runs now belongs to."""

    run: "Run"
    scope: Scope
    effect: bool = False
    """True within a step that was given `effect=True`."""
    within: tuple[str, ...] = ()
    """The keys of the steps that this code is part of, the innermost last."""

    @property
    def idempotency_key(self) -> str:
        """The idempotency key of the step or turn; empty in the run's own body."""
        return idempotency_key_of(self.run, self.within[-1]) if self.within else ""


current_frame: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)
held: ContextVar[tuple[Ticket, ...]] = ContextVar("holdfast_held", default=())
"""The tickets, which other branches wait for, of the steps that this code is part of."""


def rehearsing() -> "Ledger | None":
    """Return the ledger of the rehearsed run that the calling code belongs to; None if there is none."""
    frame = current_frame.get()
    return frame.run._ledger if frame is not None and frame.run._ledger.rehearsal is not None else None


def inner_frame(run: "Run", key: str, *, effect: bool = False) -> Frame:
    """Return the frame of a step or turn that is called here; the keys of calls within it begin with its key."""
    outer = current_frame.get()
    within = (key,) if outer is None else (*outer.within, key)
    return Frame(run, Scope(prefix_of(key)), effect, within)


def idempotency_key_of(run: "Run", key: str) -> str:
    """Return the idempotency key of a step: the same for every attempt, in every process.

    It changes once the step's result was undone by a rollback, in a fork, and in a thread that was deleted and created
    again.
    """
    incarnation, epoch = run._ledger.claim.log.binding.incarnation, run._ledger.journal.epochs.get(key, 0)
    undone = f"\0{epoch}" if epoch else ""
    return sha256(incarnation + key.encode() + undone.encode()).hexdigest()[:32]


# Which step was recorded or replayed last, in each parallel branch of a runtime's work.
#
# A branch is a task or thread. A step counts for its branch and for the branches that started it, never for siblings:
# three branches of a `gather` each have their own last step. A task becomes a branch when it records something itself.
# Where it is unclear whose step it was, there is no last step rather than a wrong one.

Mark: TypeAlias = str | int | Recorded
"""A step: its key, its index, or the recorded line if it has no key."""


class Branch(msgspec.Struct, eq=False):
    """A task or thread that works on a run."""

    ledger: "Ledger"
    number: int
    parent: "Branch | None" = None
    last_step: "Mark | None" = None
    is_shared: bool = False
    """True if a branch that this one started was the last to record a step."""


current_branch: ContextVar[Branch | None] = ContextVar("holdfast_branch", default=None)
"""Set by runtimes that need the last step; None elsewhere, and then nothing is kept."""


def mark_step(run: "Run", step: Mark) -> None:
    """Note that the calling branch has just recorded or replayed this step."""
    if current_branch.get() is None or (branch := _branch(run._ledger, run._ports)) is None:
        return
    branch.last_step, branch.is_shared = step, False
    above = branch.parent
    while above is not None:
        above.last_step, above.is_shared = step, True
        above = above.parent


def last_step(run: "Run") -> Mark | None:
    """Return the step that the calling branch, or one that it started, recorded or replayed last."""
    branch = _branch(run._ledger, run._ports)
    return None if branch is None else branch.last_step


def _branch(ledger: "Ledger", ports: Ports) -> Branch | None:
    """Return the calling branch. A new one starts with the last step of its parent, if that is certain."""
    branch = current_branch.get()
    if branch is None or branch.ledger is not ledger:
        return None
    number = ports.branch()
    if branch.number != number:
        branch = Branch(ledger, number, branch, None if branch.is_shared else branch.last_step)
        current_branch.set(branch)
    return branch
