"""One case of a crash test: a scenario, killed at chosen points and started again until it ends, and what was seen."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast import sync
from holdfast.history.entries import AnyEntry, Begun, Noted, read_entries
from holdfast.history.journal import Journal
from holdfast.ports import run_blocking
from holdfast.records.checkpoint import Step
from holdfast.records.errors import NotFound, Suspended
from holdfast.records.request import Request
from holdfast.records.signatures import is_async
from holdfast.runs.durable import AwaitableDurable, Durable
from holdfast.runs.scope import Frame
from holdfast.runs.store import Store
from holdfast.stores.backend import Backend
from holdfast.testing.clock import Clock
from holdfast.testing.crash_ports import Died, Life, MortalBackend, mortal_loop, ports_of
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import MemoryPlace, Place

ROUNDS = 1000
"""How often a scenario may wait for the outside before it is taken for one that never ends."""


def first_choice(request: Request) -> Any:
    """How requests are answered unless the test says otherwise: with the first choice, or with None."""
    return request.choices[0] if request.choices else None


class Scenario(msgspec.Struct, kw_only=True, frozen=True):
    """What is to be run: a durable function, or a function that takes a store."""

    function: Any
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    thread_id: str = "crash-test"
    answer: Callable[[Request], Any] = first_choice
    """The outsider: the choice for a request that has choices, else the value."""
    before: Callable[[], object] | None = None
    """Called before each case: makes the world outside new."""
    after: Callable[[], object] | None = None
    """Called after each case: raises an AssertionError if the world outside is not as it should be."""
    accept: tuple[type[Exception], ...] = ()
    """Errors that a case may end with in place of the result."""
    place: Callable[[], Place] = MemoryPlace
    seed: int = 0

    @property
    def awaitable(self) -> bool:
        """True if it needs an event loop."""
        if isinstance(self.function, Durable):
            return isinstance(self.function, AwaitableDurable)
        return is_async(self.function)

    def called(self, store: Store, blocking: sync.Store | None) -> Any:
        """The scenario's result, or in the awaitable world what to await for it."""
        if isinstance(self.function, Durable):
            begun = self.function._begin(self.thread_id, self.arguments, self.named, store)  # noqa: SLF001
            return begun if blocking is None else run_blocking(begun)
        return self.function(store if blocking is None else blocking, *self.arguments, **self.named)


class ThreadView(msgspec.Struct, frozen=True):
    """How a thread stood at the end."""

    status: str
    state: Any
    steps: list[Step]
    """In no order: parallel branches may have come to their ends in another one."""


class Case(msgspec.Struct):
    """What was seen of one case."""

    crashes: list[str] = []
    """The points at which it died."""
    going_on: list[str] = []
    """The last news before each death."""
    points: list[str] = []
    """Those of the last life."""
    result: Any = None
    error: Exception | None = None
    accepted: bool = False
    """True if the error is one that a case may end with."""
    executions: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """How often each step of each thread was executed, and did not fail by itself."""
    keys: dict[tuple[str, str, int], set[str]] = {}
    """The idempotency keys that each step was executed with."""
    acknowledged: set[tuple[str, str]] = set()
    threads: dict[str, ThreadView] = {}
    problems: list[str] = []


class CaseRunner:
    """Runs one case: as many lives as crashes were planned, and one more that goes to the end."""

    def __init__(self, scenario: Scenario, crash_at: tuple[int, ...]) -> None:
        self.case = Case()
        self._scenario = scenario
        self._crash_at = crash_at
        self._clock = Clock()
        self._place = scenario.place()
        self._answers: Counter[str] = Counter()
        self._news = ""

    def run(self) -> Case:
        """The case, with all that can be told without comparing it to another."""
        if self._scenario.before is not None:
            self._scenario.before()
        for number, crash_at in enumerate((*self._crash_at, 0), 1):
            if not self._live(Life(number, self._clock, crash_at)):
                break
        with self._opened() as backend:
            self._look(blocking_store(backend, ports=self._clock.ports(), closes=False))
        self._check_outside()
        return self.case

    def _check_outside(self) -> None:
        if self._scenario.after is not None:
            try:
                self._scenario.after()
            except AssertionError as error:
                self.case.problems.append(f"outside: {error}")

    @contextmanager
    def _opened(self) -> Iterator[Backend]:
        backend = self._place.open()
        backend.open()
        try:
            yield backend
        finally:
            backend.close()

    # Lives

    def _live(self, life: Life) -> bool:
        """True if it died, and another has to go on."""
        case = self.case
        with self._opened() as backend:
            self._outsider = blocking_store(backend, ports=self._clock.ports(), closes=False)
            try:
                case.result = self._ended(life, backend)
            except Died:
                case.crashes.append(life.points[-1])
                case.going_on.append(self._news)
            except Exception as error:  # noqa: BLE001  how a case ends is compared, and reported
                case.error, case.accepted = error, isinstance(error, self._scenario.accept)
        case.points = life.points
        if life.dead:
            self._place = self._place.crashed()
        return life.dead

    def _ended(self, life: Life, backend: Backend) -> Any:
        awaitable, mortal = self._scenario.awaitable, MortalBackend(backend, life)
        ports = ports_of(life, self, awaitable=awaitable, seed=self._scenario.seed)
        if awaitable:
            store = Store(mortal, ports=ports)
            store.on_event(self.heard)
            with mortal_loop() as loop:
                return self._with_answers(life, lambda: loop.run_until_complete(self._scenario.called(store, None)))
        blocking = blocking_store(mortal, ports=ports)
        blocking.on_event(self.heard)
        return self._with_answers(life, lambda: self._scenario.called(blocking._store, blocking))  # noqa: SLF001

    def _with_answers(self, life: Life, call: Callable[[], Any]) -> Any:
        """Call it again for as long as it waits for the outside. Whatever else it says, a dead process is dead."""
        for _ in range(ROUNDS):
            try:
                result = call()
            except Suspended as suspended:
                life.check()
                self._respond(suspended)
            else:
                life.check()
                return result
        raise AssertionError(f"it still waits after {ROUNDS} answers")

    def _respond(self, suspended: Suspended) -> None:
        """Be the outside: answer what is asked, or let time pass."""
        for request in suspended.requests:
            given = self._scenario.answer(request)
            choice, value = (given, None) if request.choices else (None, given)
            self._outsider.answer(request.id, choice, value, by="outsider")
            self._answers[request.id] += 1
        if not suspended.requests:
            reader = self._outsider._store._reader  # noqa: SLF001  the moment is in the head alone
            head = reader.living(reader.key(suspended.thread_id)).head
            self._clock.now = max(self._clock.now, head.expires_at)

    # What is seen meanwhile

    def executes(self, frame: Frame) -> None:
        """A step is about to be executed: see whether that is in order."""
        step = _step_of(frame)
        undone = self._undone_count(*step)
        self.case.executions[step] += 1
        self.case.keys.setdefault((*step, undone), set()).add(frame.idempotency_key)
        if step in self.case.acknowledged and not undone:
            self.case.problems.append(f"step {step[1]!r} ran again after it was acknowledged")
        if frame.effect and not self._is_intended(*step):
            self.case.problems.append(f"effect {step[1]!r} ran before its intent was stored")

    def failed(self, frame: Frame) -> None:
        """What failed may be tried again."""
        self.case.executions[_step_of(frame)] -= 1

    def _is_intended(self, thread_id: str, key: str) -> bool:
        return isinstance(Journal(_entries(self._outsider, thread_id)).memos.get(key), Begun)

    def _undone_count(self, thread_id: str, key: str) -> int:
        """How often a rollback undid the step: then it is to be done again, with another key."""
        return Journal(_entries(self._outsider, thread_id)).epochs.get(key, 0)

    def heard(self, event: Any) -> None:
        """Keep the news, and what it acknowledges."""
        step = event.details.get("step")
        self._news = event.kind if step is None else f"{event.kind} {step!r}"
        if event.kind == "step_done":
            self.case.acknowledged.add((event.thread_id, step))

    # What is seen at the end

    def _look(self, store: sync.Store) -> None:
        case = self.case
        case.problems += [f"verify: {problem}" for problem in store.verify().problems]
        case.problems += [f"{name} took {count} answers" for name, count in self._answers.items() if count > 1]
        for info in store.threads(limit=1000):
            latest = store.latest(info.thread_id) if info.damaged is None else None
            case.threads[info.thread_id] = ThreadView(
                "damaged" if info.status is None else info.status.value,
                None if latest is None else latest.state,
                [] if latest is None else sorted(map(_timeless, latest.steps), key=repr),
            )
            case.problems += _left_behind(store, info.thread_id, info.owner)
            case.problems += _repeated(_entries(store, info.thread_id))


def _step_of(frame: Frame) -> tuple[str, str]:
    return frame.run.thread_id, frame.scope.prefix.removesuffix("/")


def _entries(store: sync.Store, thread_id: str) -> list[AnyEntry]:
    reader = store._store._reader  # noqa: SLF001  the journal is not for users
    try:
        return read_entries(reader.load_head(reader.key(thread_id)).log.document)
    except NotFound:
        return []


def _timeless(step: Step) -> Step:
    metadata = {name: value for name, value in step.metadata.items() if name != "seconds"}
    return msgspec.structs.replace(step, index=0, metadata=metadata)


def _left_behind(store: sync.Store, thread_id: str, owner: str | None) -> Iterator[str]:
    if owner is not None:
        yield f"thread {thread_id!r} is still held by {owner}"
    reader = store._store._reader  # noqa: SLF001  messages are not for users
    for key in reader.backend.inbox(reader.key(thread_id)):
        yield f"message {key!r} of thread {thread_id!r} was never consumed"


ONCE = {"StepDone": "key", "Marked": "key", "Recorded": "key", "Answered": "number", "Asked": "key", "Slept": "key"}
ONCE["Noted"] = "key"


def _repeated(entries: list[AnyEntry]) -> Iterator[str]:
    """Journal entries that are there twice, and must be there once."""
    counts: Counter[tuple[str, Any]] = Counter()
    for entry in entries:
        kind = type(entry).__name__
        if kind in {"Forked", "RolledBack"}:
            counts.clear()
        if isinstance(entry, Noted):
            kind = entry.kind if entry.action and not entry.error else ""  # what failed may come again under its key
        name = getattr(entry, ONCE.get(type(entry).__name__, ""), None)
        if kind and name:
            counts[kind, name] += 1
    for (kind, name), count in counts.items():
        if count > 1:
            yield f"the journal has {kind} {name!r} {count} times"
