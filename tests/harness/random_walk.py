"""A random walk through a store: fast, repeatable by its seed, with crashes on the way. Needs no other package."""

from collections.abc import Callable
from random import Random

from harness.model_driver import Driver
from harness.random_states import States
from holdfast.codec.keys import KeyRing
from holdfast.history.tuning import Tuning
from holdfast.testing.faults import EVERY_HOW, Fault
from holdfast.testing.places import Place

TIGHT = Tuning(
    inline_max=200, keyframe_rows=6, keyframe_rows_max=20, keyframe_bytes=2000, pack_max=4096, small_piece=64
)
"""Numbers so small that a short walk meets every kind of row, blob and pack."""

NAMES = ("thread", "thread/2", "../th\0read", "ßtrange")


class Walk:
    """Takes random steps with a driver; `run` takes many, and checks everything at its end."""

    def __init__(
        self,
        place: Place,
        seed: int,
        *,
        tuning: Tuning | None = TIGHT,
        keys: KeyRing | None = None,
        faults: bool = True,
        twin: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.driver = Driver(place, tuning=tuning, keys=keys, twin=twin)
        self._states = States(self.random)
        self._faults = faults
        self._forks = 0
        self._live: dict[str, object] = {}
        self._steps: tuple[tuple[Callable[[], None], int], ...] = (
            (self._save, 40),
            (self._append, 20),
            (self._check_some, 15),
            (self._fork, 3),
            (self._delete, 2),
            (self._revive, 3),
            (self._delete_checkpoint, 4),
            (self._pin, 4),
            (self._prune, 3),
            (self._erase, 2),
            (self._crash, 2),
            (self._reopen, 2),
            (self._check_all, 1),
        )

    def run(self, steps: int) -> int:
        """Walk, check everything twice more, and return how many exact restores it was."""
        functions, weights = zip(*self._steps, strict=True)
        try:
            for step in self.random.choices(functions, weights, k=steps):
                self._maybe_plan_a_fault()
                step()
            self.driver.plan(None)
            self.driver.check_all(1)
            self.driver.crash()
            self.driver.check_all()
        finally:
            self.driver.close()
        return self.driver.restores

    def _maybe_plan_a_fault(self) -> None:
        if self._faults and self.random.random() < 0.12:
            calls = frozenset({"swap"}) if self.random.random() < 0.7 else frozenset[str]()
            self.driver.plan(Fault(self.random.choice((1, 1, 2, 3)), self.random.choice(EVERY_HOW), calls))

    def _handle(self) -> int:
        return self.random.randrange(len(self.driver.handles))

    def _name(self) -> str:
        return self.random.choice((*NAMES, *self.driver.models))

    def _existing(self) -> str | None:
        found = [thread for thread, model in self.driver.models.items() if model.exists]
        return self.random.choice(found) if found else None

    def _checkpoint(self) -> tuple[str, int] | None:
        thread = self._existing()
        return None if thread is None else (thread, self.random.choice(self.driver.model(thread).seqs))

    def _save(self) -> None:
        thread, model = self._name(), None
        model = self.driver.model(thread)
        state = self._live.get(thread, model.state)
        if self.random.random() < 0.3:
            state = model.state
        # The same object, changed in place, as a program would; the store must not be fooled by that.
        self._live[thread] = state = self._states.edit(state) if model.exists else self._states.fresh()
        self.driver.save(thread, state, self._handle())

    def _append(self) -> None:
        name = self.random.choice(("messages", "messages", "list", "new", "field 0"))
        self.driver.append(self._name(), name, self._states.item(), self._handle())

    def _check_some(self) -> None:
        for _ in range(4):
            found = self._checkpoint()
            if found:
                self.driver.check(*found, self._handle())

    def _fork(self) -> None:
        found = self._checkpoint()
        if found and self._forks < 6:
            self._forks += 1
            self.driver.fork(*found, self.random.choice((f"fork {self._forks}", found[0])), self._handle())

    def _delete(self) -> None:
        thread = self._existing()
        if thread:
            self.driver.delete(thread, self._handle())

    def _revive(self) -> None:
        deleted = [thread for thread, model in self.driver.models.items() if model.is_deleted]
        if deleted:
            self.driver.revive(self.random.choice(deleted), self._handle())

    def _delete_checkpoint(self) -> None:
        found = self._checkpoint()
        if found:
            self.driver.delete_checkpoint(*found, self._handle())

    def _pin(self) -> None:
        found = self._checkpoint()
        if found:
            self.driver.pin(*found, pinned=self.random.random() < 0.7, at=self._handle())

    def _prune(self) -> None:
        self.driver.prune(self.random.choice((1, 3, 8)), self._handle())

    def _erase(self) -> None:
        thread = self._existing()
        if thread:
            self.driver.erase(thread, self._handle())

    def _crash(self) -> None:
        self.driver.plan(None)
        self.driver.crash()

    def _reopen(self) -> None:
        self.driver.plan(None)
        self.driver.reopen(self._handle())

    def _check_all(self) -> None:
        self.driver.check_all(self._handle())
