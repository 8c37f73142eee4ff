"""One case of `crash_everywhere`: a scenario, stopped at chosen points and started again within this process."""

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
from holdfast.testing.crash_effects import Died, EffectBackend, step_of
from holdfast.testing.crash_engine import Trial, run_lives
from holdfast.testing.crash_ports import Life, mortal_loop, ports_of
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import MemoryPlace, Place

ROUNDS = 1000
"""How often a scenario may wait for an answer before it is given up."""


def first_choice(request: Request) -> Any:
    """Answer a request with its first choice, or with None if it has no choices."""
    return request.choices[0] if request.choices else None


class Scenario(msgspec.Struct, kw_only=True, frozen=True):
    """What to run: a durable function, or a function that takes a store."""

    function: Any
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    thread_id: str = "crash-test"
    answer: Callable[[Request], Any] = first_choice
    """Returns the choice for a request that has choices, else the value."""
    before: Callable[[], object] | None = None
    """Called before each case, to reset the world outside."""
    after: Callable[[], object] | None = None
    """Called after each case; raises an AssertionError if the world outside is wrong."""
    accept: tuple[type[Exception], ...] = ()
    """Errors that a case may end with instead of the result."""
    place: Callable[[], Place] = MemoryPlace
    seed: int = 0

    @property
    def awaitable(self) -> bool:
        """True if it needs an event loop."""
        if isinstance(self.function, Durable):
            return isinstance(self.function, AwaitableDurable)
        return is_async(self.function)

    def called(self, store: Store, blocking: sync.Store | None) -> Any:
        """Call the scenario: return its result, or in the awaitable world what to await for it."""
        if isinstance(self.function, Durable):
            begun = self.function._begin(self.thread_id, self.arguments, self.named, store)  # noqa: SLF001
            return begun if blocking is None else run_blocking(begun)
        return self.function(store if blocking is None else blocking, *self.arguments, **self.named)


class ThreadView(msgspec.Struct, frozen=True):
    """What a thread looks like at the end."""

    status: str
    state: Any
    steps: list[Step]
    """Sorted: parallel branches may end in any order."""


class Case(Trial):
    """What was seen of one case. Executions that failed by themselves are not counted."""

    going_on: list[str] = msgspec.field(default_factory=list)
    """The last event before each crash."""
    result: Any = None
    error: Exception | None = None
    accepted: bool = False
    """True if the error is one that a case may end with."""
    threads: dict[str, ThreadView] = msgspec.field(default_factory=dict)


class CaseRunner:
    """Runs one case."""

    def __init__(self, scenario: Scenario, crash_at: tuple[int, ...]) -> None:
        self.case = Case(crash_at=crash_at)
        self._scenario = scenario
        self._clock = Clock()
        self._place = scenario.place()
        self._answers: Counter[str] = Counter()
        self._last_event = ""

    def run(self) -> Case:
        """Run all lives; return what was seen, with the problems that need no comparison."""
        if self._scenario.before is not None:
            self._scenario.before()
        run_lives(self.case, self._live)
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

    def _live(self, number: int, crash_at: int) -> bool:
        case, life = self.case, Life(number, self._clock, crash_at)
        with self._opened() as backend:
            self._outsider = blocking_store(backend, ports=self._clock.ports(), closes=False)
            try:
                case.result = self._run(life, backend)
            except Died:
                case.going_on.append(self._last_event)
            except Exception as error:  # noqa: BLE001  how a case ends is compared, and reported
                case.error, case.accepted = error, isinstance(error, self._scenario.accept)
        case.points = life.points
        if life.dead:
            self._place = self._place.crashed()
        return life.dead

    def _run(self, life: Life, backend: Backend) -> Any:
        awaitable, mortal = self._scenario.awaitable, EffectBackend(backend, life)
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
        """Call it again while it waits for an answer. Whatever it returns, a dead life is dead."""
        for _ in range(ROUNDS):
            try:
                result = call()
            except Suspended as suspended:
                life.check()
                self._respond(suspended)
            else:
                life.check()
                return result
        raise AssertionError(f"it still waits for an answer after {ROUNDS} rounds")

    def _respond(self, suspended: Suspended) -> None:
        """Answer the open requests; if there are none, let time pass until the thread is due."""
        for request in suspended.requests:
            given = self._scenario.answer(request)
            choice, value = (given, None) if request.choices else (None, given)
            self._outsider.answer(request.id, choice, value, by="outsider")
            self._answers[request.id] += 1
        if not suspended.requests:
            reader = self._outsider._store._reader  # noqa: SLF001  only the head has the time
            head = reader.living(reader.key(suspended.thread_id)).head
            self._clock.now = max(self._clock.now, head.expires_at)

    # What is seen meanwhile

    def executes(self, frame: Frame, *, with_key: bool) -> None:
        """Record a step that is about to be executed."""
        thread_id, key = step = step_of(frame)
        journal = Journal(_entries(self._outsider, thread_id))
        self.case.executes(step, frame.idempotency_key, journal.epochs.get(key, 0))
        if frame.effect and not isinstance(journal.memos.get(key), Begun):
            self.case.problems.append(f"effect {key!r} ran before its intent was stored")

    def failed(self, frame: Frame) -> None:
        """Take back an execution that failed: it may be tried again."""
        self.case.executions[step_of(frame)] -= 1

    def heard(self, event: Any) -> None:
        """Remember the last event, and the steps that are acknowledged."""
        step = event.details.get("step")
        self._last_event = event.kind if step is None else f"{event.kind} {step!r}"
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


ONCE = {**dict.fromkeys(("StepDone", "Marked", "Recorded", "Asked", "Slept", "Noted"), "key"), "Answered": "number"}
"""The kinds of journal entry that occur once, and what identifies one."""


def _repeated(entries: list[AnyEntry]) -> Iterator[str]:
    """Find journal entries that are there twice and must be there once."""
    counts: Counter[tuple[str, Any]] = Counter()
    for entry in entries:
        kind = type(entry).__name__
        if kind in {"Forked", "RolledBack"}:
            counts.clear()
        if isinstance(entry, Noted):
            kind = entry.kind if entry.action and not entry.error else ""  # a failed one may be repeated under its key
        name = getattr(entry, ONCE.get(type(entry).__name__, ""), None)
        if kind and name:
            counts[kind, name] += 1
    for (kind, name), count in counts.items():
        if count > 1:
            yield f"the journal has {kind} {name!r} {count} times"
