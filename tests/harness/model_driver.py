"""Doing the same to a store and to its plain model, and comparing every checkpoint that was ever acknowledged.

The store is used through several handles in turn, as by several processes. A fault may be planned for the next
operation: then what was done must be all or nothing, and the model learns which of the two it was.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from harness.thread_model import ThreadModel, assert_same
from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.history.tuning import Tuning
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import Conflict, Deleted, HoldfastError, NotFound, UnstorableValue
from holdfast.records.head import decode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.retention import Retention
from holdfast.testing.faults import Crash, Fault, FaultyBackend
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import MemoryPlace, Place

T = TypeVar("T")
Predict = Callable[[ThreadModel], None]


class Handle(NamedTuple):
    """A store, and the backend beneath it."""

    store: sync.Store
    backend: FaultyBackend


def handle_on(place: Place, tuning: Tuning | None = None, keys: KeyRing | None = None) -> Handle:
    """A new handle on a place."""
    backend = FaultyBackend(place.open())
    backend.tuning = tuning or backend.tuning
    return Handle(blocking_store(backend, keys=keys), backend)


class Driver:
    """A store under test, a model of it, and with `twin` a memory store that does the same."""

    def __init__(
        self,
        place: Place,
        *,
        handles: int = 2,
        tuning: Tuning | None = None,
        keys: KeyRing | None = None,
        twin: bool = False,
    ) -> None:
        self.place = place
        self.restores = 0
        """How many states were read back and found exact."""
        self.crashes = 0
        self.faults = 0
        self.models: dict[str, ThreadModel] = {}
        self._tuning = tuning
        self._keys = keys
        self._twin = handle_on(MemoryPlace()).store if twin else None
        self._plan: Fault | None = None
        self._left: list[Handle] = []
        self.handles = [self._new_handle() for _ in range(handles)]

    def _new_handle(self) -> Handle:
        return handle_on(self.place, self._tuning, self._keys)

    def model(self, thread: str) -> ThreadModel:
        """The model of a thread."""
        return self.models.setdefault(thread, ThreadModel())

    def plan(self, fault: Fault | None) -> None:
        """Let the next operation fail."""
        self._plan = fault

    # Life and death

    def reopen(self, at: int = 0) -> None:
        """Close one handle properly, and open another in its place."""
        self.handles[at].store.close()
        self.handles[at] = self._new_handle()

    def crash(self) -> None:
        """Kill all handles where they are, and open again what is on disk."""
        self.crashes += 1
        self._left += self.handles
        self.place = self.place.crashed()
        self.handles = [self._new_handle() for _ in self.handles]

    def close(self) -> None:
        """Close every handle."""
        for handle in (*self.handles, *self._left):
            handle.store.close()

    # Operations

    def save(self, thread: str, state: Any, at: int = 0) -> None:
        """Save a state as the next checkpoint."""
        if self._is_refused(thread, lambda store: store.save(thread, state), at):
            return
        self._learn(
            thread, self._do(at, [thread], lambda store: store.save(thread, state), lambda model: model.save(state))
        )

    def append(self, thread: str, name: str, item: Any, at: int = 0) -> None:
        """Append an item to the list of that name, if it is one."""
        if self._is_refused(thread, lambda store: store.append(thread, name, item), at):
            return
        model = self.model(thread)
        state = model.state if model.exists else {}
        if not _takes_items(state, name):
            _raises(UnstorableValue, lambda: self.handles[at].store.append(thread, name, item))
            return
        state.setdefault(name, []).append(item)
        self._learn(
            thread,
            self._do(at, [thread], lambda store: store.append(thread, name, item), lambda model: model.save(state)),
        )

    def fork(self, thread: str, seq: int, to: str, at: int = 0) -> None:
        """A new thread from one checkpoint; `Conflict` where there is a thread already."""
        state, target = self.model(thread).states[seq], self.model(to)

        def forked(store: sync.Store) -> Checkpoint | None:
            assert store.fork(store.get(thread, seq).id, to) == to
            return store.latest(to)

        if target.exists or target.is_deleted:
            _raises((Conflict, Deleted), lambda: forked(self.handles[at].store))
            return
        self._learn(to, self._do(at, [to], forked, lambda model: model.save(state)))

    def delete(self, thread: str, at: int = 0) -> None:
        """Delete a thread that is there."""
        self._do(at, [thread], lambda store: store.delete(thread), ThreadModel.delete)

    def revive(self, thread: str, at: int = 0) -> None:
        """Bring a deleted thread back, empty."""

        def revived(model: ThreadModel) -> None:
            model.is_deleted = False

        self._do(at, [thread], lambda store: store.revive(thread), revived)

    def delete_checkpoint(self, thread: str, seq: int, at: int = 0) -> None:
        """Hide one checkpoint; the only one cannot go."""
        if len(self.model(thread).states) == 1:
            _raises(Conflict, lambda: self.handles[at].store.delete_checkpoint(self.model(thread).ids[seq]))
            return
        self._do(
            at,
            [thread],
            lambda store: store.delete_checkpoint(store.get(thread, seq).id),
            lambda model: model.hide(seq),
        )

    def pin(self, thread: str, seq: int, *, pinned: bool, at: int = 0) -> None:
        """Pin or unpin a checkpoint."""
        self._do(
            at,
            [thread],
            lambda store: store.pin(store.get(thread, seq).id, pinned=pinned),
            lambda model: model.pin(seq, pinned=pinned),
        )

    def prune(self, keep_last: int, at: int = 0) -> None:
        """Prune every thread."""
        threads = [thread for thread, model in self.models.items() if model.exists]
        retention = Retention(keep_last=keep_last)
        if self._do(at, threads, lambda store: store.prune(retention), lambda model: model.prune(keep_last)) is None:
            self.prune(keep_last, at)

    def erase(self, thread: str, at: int = 0) -> None:
        """Leave nothing but the present state."""
        self._do(at, [thread], lambda store: store.erase(thread), ThreadModel.erase)
        self._learn_ids(thread, at)

    def _is_refused(self, thread: str, write: Callable[[sync.Store], object], at: int) -> bool:
        if self.model(thread).is_deleted:
            _raises(Deleted, lambda: write(self.handles[at].store))
            return True
        return False

    # All or nothing

    def _do(self, at: int, threads: list[str], action: Callable[[sync.Store], T], predict: Predict) -> T | None:
        """Act on the store; the model follows. None if a fault came between: then the model knows what became of it."""
        handle, plan = self.handles[at], self._plan
        handle.backend.plan, self._plan = plan, None
        befores = {thread: self.model(thread).copy() for thread in threads}
        for thread in threads:
            predict(self.model(thread))
        try:
            result = action(handle.store)
        except Crash:
            self.crash()
        except HoldfastError:
            if not handle.backend.fired:
                raise
        else:
            handle.backend.plan = None
            if self._twin is not None:
                action(self._twin)
            return result
        self.faults += 1
        self.handles[at].backend.plan = None
        for thread, before in befores.items():
            self._reconcile(thread, before, at)
        return None

    def _reconcile(self, thread: str, before: ThreadModel, at: int) -> None:
        """What is seen now is the model before or after the operation, or lies between them; never anything else."""
        after, store = self.model(thread), self.handles[at].store
        seen = {seq: store.get(thread, seq) for seq in self._seqs(store, thread)}
        for seq, checkpoint in seen.items():
            assert seq in before.states or seq in after.states, f"{thread}@{seq} came from nowhere"
            assert_same(
                (after.states if seq in after.states else before.states)[seq], checkpoint.state, f"{thread}@{seq}"
            )
            self.restores += 1
        lost = (set(before.states) & set(after.states)) - set(seen)
        assert not lost, f"checkpoints {sorted(lost)} of {thread!r} were lost"
        if before.exists and after.exists:
            assert seen, f"thread {thread!r} is gone"
        self.models[thread] = self._observed(thread, before, after, seen, at)

    def _observed(
        self, thread: str, before: ThreadModel, after: ThreadModel, seen: dict[int, Checkpoint], at: int
    ) -> ThreadModel:
        store, model = self.handles[at].store, before.copy()
        model.states = {seq: (after.states if seq in after.states else before.states)[seq] for seq in seen}
        model.ids = {seq: checkpoint.id for seq, checkpoint in seen.items()}
        model.gone |= {before.ids[seq] for seq in before.ids if seq not in seen}
        model.pinned = {info.seq for info in store.history(thread, limit=10_000) if info.pinned} if seen else set()
        latest = store.latest(thread)
        assert (latest is None) == (not seen), f"latest of {thread!r} is {latest!r} of {sorted(seen)}"
        model.latest = latest.seq if latest else 0
        model.rows = store.history(thread, limit=1, journal=True).items[0].seq if seen else 0
        model.is_deleted = not seen and self._is_tombstone(thread, at)
        if latest:
            assert latest.seq in {before.latest, after.latest}, f"latest of {thread!r} is {latest.seq}"
        return model

    def _is_tombstone(self, thread: str, at: int) -> bool:
        """True if the thread is deleted; only its head shows that."""
        key = thread_key(namespace_prefix(""), thread)
        encoded = self.handles[at].backend.heads([key])[0]
        return encoded is not None and decode_head(key, encoded).deleted

    # Comparing

    def _learn(self, thread: str, checkpoint: Checkpoint | None) -> None:
        """An acknowledged checkpoint is the one the model says."""
        model = self.model(thread)
        if checkpoint is None:
            return
        assert checkpoint.seq == model.latest, f"{checkpoint.id} should have seq {model.latest}"
        assert_same(model.states[model.latest], checkpoint.state, f"{checkpoint.id} as returned")
        model.ids[model.latest] = checkpoint.id

    def _learn_ids(self, thread: str, at: int) -> None:
        model = self.model(thread)
        model.ids |= {seq: self.handles[at].store.get(thread, seq).id for seq in model.states if seq not in model.ids}

    @staticmethod
    def _seqs(store: sync.Store, thread: str) -> list[int]:
        try:
            return [info.seq for info in store.history(thread, limit=10_000)]
        except NotFound:
            return []

    def check(self, thread: str, seq: int, at: int = 0) -> None:
        """One checkpoint, by its seq and by its id."""
        model, store = self.model(thread), self.handles[at].store
        assert_same(model.states[seq], store.get(thread, seq).state, f"{thread}@{seq}")
        assert_same(model.states[seq], store.load(model.ids[seq]).state, model.ids[seq])
        self.restores += 2

    def check_thread(self, thread: str, at: int = 0) -> None:
        """Everything that should be seen of a thread, and nothing else."""
        model, store = self.model(thread), self.handles[at].store
        assert self._seqs(store, thread) == model.seqs, (
            f"{thread!r} lists {self._seqs(store, thread)}, not {model.seqs}"
        )
        for seq, state in model.states.items():
            checkpoint = store.get(thread, seq)
            assert_same(state, checkpoint.state, f"{thread}@{seq}")
            assert checkpoint.id == model.ids[seq]
        latest = store.latest(thread)
        assert (latest.seq if latest else 0) == model.latest
        if latest:
            assert_same(model.states[model.latest], latest.state, f"the latest of {thread}")
        self.restores += len(model.states) + bool(latest)
        for gone in sorted(model.gone)[-3:]:
            _raises(NotFound, lambda gone=gone: store.load(gone))  # type: ignore[misc]

    def check_all(self, at: int = 0) -> None:
        """Every thread, the listing of threads, and the store's own verification."""
        store = self.handles[at].store
        for thread in self.models:
            self.check_thread(thread, at)
        listed = store.threads(limit=10_000).items
        assert sorted(info.thread_id for info in listed) == sorted(
            thread for thread, model in self.models.items() if model.exists
        )
        assert store.counts() == Counter(info.status for info in listed), f"the store counts {store.counts()}"
        report = store.verify()
        assert report.ok, report.problems
        if self._twin is not None:
            self._check_twin(self._twin)

    def _check_twin(self, twin: sync.Store) -> None:
        for thread, model in self.models.items():
            assert self._seqs(twin, thread) == model.seqs, f"the memory store differs in {thread!r}"
            latest = twin.latest(thread)
            assert_same(model.state, latest.state if latest else None, f"the latest of {thread} in the memory store")
        assert twin.counts() == self.handles[0].store.counts(), "the memory store counts otherwise"


def _takes_items(state: Any, name: str) -> bool:
    """True if `append` can find or make the list: the state is a dict, and the name is free or a list's."""
    return type(state) is dict and type(state.get(name, [])) is list


def _raises(errors: type[HoldfastError] | tuple[type[HoldfastError], ...], action: Callable[[], object]) -> None:
    try:
        action()
    except errors:
        return
    raise AssertionError(f"{errors} was not raised")
