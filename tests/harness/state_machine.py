"""The hypothesis state machine: any store, a memory store and a plain model, side by side, in all that can be done.

    machine = machine_for(lambda: DirectoryPlace(new_directory(), MyBackend))
    TestMyStore = machine.TestCase

Hypothesis finds the shortest sequence that breaks a promise. `random_walk` runs longer ones, faster.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from harness.model_driver import Driver
from harness.random_walk import TIGHT
from holdfast.history.tuning import Tuning
from holdfast.testing.faults import EVERY_HOW, Fault
from holdfast.testing.places import Place

T = TypeVar("T")

LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, float("nan"), 2**64, "", b""]),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.text(alphabet="ab", min_size=150, max_size=600),
    st.binary(max_size=30),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.integers(0, 3), inner, max_size=2),
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(["messages", "plan", "n", "a", ""])
STATES: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=5), st.fixed_dictionaries({"messages": st.lists(VALUES, max_size=6)}), VALUES
)
THREADS = st.sampled_from(["t", "t2", "../t\0", "forked"])
HANDLES = st.integers(0, 1)


class StoreMachine(RuleBasedStateMachine):
    """Every rule does one thing to all three, and each checkpoint that is looked at must be exact in all."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(self.new_place(), tuning=self.tuning(), twin=not self.with_faults)

    with_faults = False

    def new_place(self) -> Place:
        """A new, empty place."""
        raise NotImplementedError("use machine_for")

    def tuning(self) -> Tuning | None:
        """Small numbers, so that short stories meet every kind of row."""
        return TIGHT

    def _existing(self) -> list[str]:
        return [thread for thread, model in self.driver.models.items() if model.exists]

    def _pick(self, data: st.DataObject) -> tuple[str, int]:
        thread = data.draw(st.sampled_from(self._existing()))
        return thread, data.draw(st.sampled_from(self.driver.model(thread).seqs))

    def _some_exist(self) -> bool:
        return bool(self._existing())

    @rule(thread=THREADS, state=STATES, at=HANDLES)
    def save(self, thread: str, state: Any, at: int) -> None:
        """Save a whole state."""
        self.driver.save(thread, state, at)

    @rule(thread=THREADS, key=KEYS, value=VALUES, at=HANDLES)
    def save_edited(self, thread: str, key: str, value: Any, at: int) -> None:
        """Save the present state with one key changed."""
        state = self.driver.model(thread).state
        self.driver.save(thread, {**state, key: value} if type(state) is dict else {key: value}, at)

    @rule(thread=THREADS, order=st.randoms(use_true_random=False), at=HANDLES)
    def save_shuffled(self, thread: str, order: Any, at: int) -> None:
        """Save the present state with its messages in another order, and its keys too."""
        state = self.driver.model(thread).state
        if type(state) is dict:
            for value in state.values():
                if type(value) is list:
                    order.shuffle(value)
            keys = list(state)
            order.shuffle(keys)
            self.driver.save(thread, {key: state[key] for key in keys}, at)

    @rule(thread=THREADS, key=KEYS, item=VALUES, at=HANDLES)
    def append(self, thread: str, key: str, item: Any, at: int) -> None:
        """Append one item."""
        self.driver.append(thread, key, item, at)

    @precondition(_some_exist)
    @rule(data=st.data(), at=HANDLES)
    def look(self, data: st.DataObject, at: int) -> None:
        """Load any checkpoint."""
        self.driver.check(*self._pick(data), at)

    @precondition(_some_exist)
    @rule(data=st.data(), to=THREADS, at=HANDLES)
    def fork(self, data: st.DataObject, to: str, at: int) -> None:
        """Fork from any checkpoint."""
        self.driver.fork(*self._pick(data), to, at)

    @precondition(_some_exist)
    @rule(data=st.data(), at=HANDLES)
    def delete(self, data: st.DataObject, at: int) -> None:
        """Delete a thread."""
        self.driver.delete(self._pick(data)[0], at)

    @precondition(lambda self: any(model.is_deleted for model in self.driver.models.values()))
    @rule(data=st.data(), at=HANDLES)
    def revive(self, data: st.DataObject, at: int) -> None:
        """Revive a thread."""
        deleted = [thread for thread, model in self.driver.models.items() if model.is_deleted]
        self.driver.revive(data.draw(st.sampled_from(deleted)), at)

    @precondition(_some_exist)
    @rule(data=st.data(), at=HANDLES)
    def delete_checkpoint(self, data: st.DataObject, at: int) -> None:
        """Delete any checkpoint."""
        self.driver.delete_checkpoint(*self._pick(data), at)

    @precondition(_some_exist)
    @rule(data=st.data(), pinned=st.booleans(), at=HANDLES)
    def pin(self, data: st.DataObject, pinned: bool, at: int) -> None:
        """Pin or unpin any checkpoint."""
        self.driver.pin(*self._pick(data), pinned=pinned, at=at)

    @rule(keep_last=st.integers(1, 4), at=HANDLES)
    def prune(self, keep_last: int, at: int) -> None:
        """Prune all threads."""
        self.driver.prune(keep_last, at)

    @precondition(_some_exist)
    @rule(data=st.data(), at=HANDLES)
    def erase(self, data: st.DataObject, at: int) -> None:
        """Erase a thread's model."""
        self.driver.erase(self._pick(data)[0], at)

    @rule()
    def crash(self) -> None:
        """Every process dies."""
        self.driver.plan(None)
        self.driver.crash()

    @rule(at=HANDLES)
    def reopen(self, at: int) -> None:
        """One process ends properly, and another begins."""
        self.driver.plan(None)
        self.driver.reopen(at)

    @precondition(lambda self: self.with_faults)
    @rule(call=st.integers(1, 3), how=st.sampled_from(EVERY_HOW))
    def fault(self, call: int, how: Any) -> None:
        """The next operation fails at one of its calls."""
        self.driver.plan(Fault(call, how))

    def teardown(self) -> None:
        """At the end everything is looked at once more, from disk."""
        try:
            self.driver.plan(None)
            self.driver.check_all(1)
            self.driver.crash()
            self.driver.check_all()
        finally:
            self.driver.close()


def machine_for(new_place: Callable[[], Place], *, faults: bool = False) -> type[StoreMachine]:
    """The machine for stores on such places; with `faults` it also fails at backend calls, and has no memory twin."""

    class Machine(StoreMachine):
        with_faults = faults

        def new_place(self) -> Place:
            return new_place()

    return Machine
