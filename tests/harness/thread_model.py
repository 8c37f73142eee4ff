"""The plain model of a store: what each thread's checkpoints hold, as Python values in a dict. Nothing clever."""

from copy import deepcopy
from typing import Any

from holdfast.testing.exact import difference


class ThreadModel:
    """What should be seen of one thread."""

    def __init__(self) -> None:
        self.states: dict[int, Any] = {}
        """The state of every visible checkpoint, by seq."""
        self.ids: dict[int, str] = {}
        """The id of each of them."""
        self.gone: set[str] = set()
        """Ids of checkpoints that must not be found any more."""
        self.pinned: set[int] = set()
        self.rows = 0
        """The seq of the newest row, checkpoint or not."""
        self.latest = 0
        """The seq of the checkpoint whose state is the thread's; 0 if there is none."""
        self.is_deleted = False

    def copy(self) -> "ThreadModel":
        """Return an independent model with the same states."""
        other = ThreadModel()
        other.states, other.ids = dict(self.states), dict(self.ids)
        other.gone, other.pinned = set(self.gone), set(self.pinned)
        other.rows, other.latest, other.is_deleted = self.rows, self.latest, self.is_deleted
        return other

    @property
    def exists(self) -> bool:
        """True if the thread is there for readers."""
        return bool(self.states)

    @property
    def state(self) -> Any:
        """The thread's state, as a copy to play with."""
        return deepcopy(self.states[self.latest]) if self.latest else None

    @property
    def seqs(self) -> list[int]:
        """The visible checkpoints, newest first."""
        return sorted(self.states, reverse=True)

    def save(self, state: Any) -> None:
        """One more checkpoint."""
        self.rows += 1
        self.states[self.rows] = deepcopy(state)
        self.latest = self.rows

    def hide(self, seq: int) -> None:
        """A checkpoint is deleted. If it was the newest, a journal row brings back the state before it."""
        if seq == self.latest:
            self.rows += 1
            self.latest = max(other for other in self.states if other != seq)
        self._forget(seq)

    def prune(self, keep_last: int) -> None:
        """Only the newest, and the pinned, stay."""
        kept = set(self.seqs[:keep_last]) | self.pinned
        for seq in [seq for seq in self.states if seq not in kept]:
            self._forget(seq)

    def pin(self, seq: int, *, pinned: bool) -> None:
        """A pin is set, or taken off: that alone hides nothing."""
        if pinned:
            self.pinned.add(seq)
        else:
            self.pinned.discard(seq)

    def erase(self) -> None:
        """Keep only the present state, as a new checkpoint."""
        state = self.state
        for seq in list(self.states):
            self._forget(seq)
        self.save(state)

    def delete(self) -> None:
        """Delete the thread; its rows begin at 1 again if it is revived."""
        for seq in list(self.states):
            self._forget(seq)
        self.rows = self.latest = 0
        self.is_deleted = True

    def _forget(self, seq: int) -> None:
        del self.states[seq]
        self.pinned.discard(seq)
        if seq in self.ids:
            self.gone.add(self.ids.pop(seq))


def assert_same(expected: Any, actual: Any, what: str) -> None:
    """AssertionError if two states differ in anything."""
    found = difference(expected, actual)
    assert found is None, f"{what} is wrong: {found}"
