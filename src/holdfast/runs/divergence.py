"""Checks that a resumed durable function asks for the same steps and questions as earlier runs.

A recorded step is found by its name and arguments. A function that calls an effect with the time of day would never
find it, and pay at each resume. So a new effect or question is refused while one of the same name, recorded at the same
place by an earlier run, was not asked for. Nothing is reported where the case is unclear: parallel branches may still
ask for the recorded one, or a retried step repeats its calls. Where a runtime names the work of each branch
(`Replay.place`), only branches of the same work count. What follows on branches may depend on which of them ended
first: then only the event is emitted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args
from weakref import WeakSet

from holdfast.codec import decode
from holdfast.history.entries import Asked, Attempted, Begun, Memo, StepDone
from holdfast.history.journal import Journal
from holdfast.ports import Ports
from holdfast.records.errors import CodecError, ConfigurationError, Diverged
from holdfast.runs.arguments import preview
from holdfast.runs.keys import Key, place_of, prefix_of, scope_of
from holdfast.runs.scope import Frame, current_frame

if TYPE_CHECKING:
    from holdfast.runs.ledger import Ledger
    from holdfast.runs.run import Run

T = TypeVar("T")
OnDivergence: TypeAlias = Literal["raise", "warn", "ignore"]
MOST_NAMED = 5
BODY = ""
"""The place of calls outside of all places that a runtime named."""


def check_policy(policy: object) -> None:
    """Raise `ConfigurationError` unless it is a valid policy."""
    if policy not in get_args(OnDivergence):
        words = ", ".join(map(repr, get_args(OnDivergence)))
        raise ConfigurationError(f"on_divergence must be one of {words}, got {policy!r}")


class Replay:
    """What the code of one run of a durable function has asked for, and what earlier runs recorded."""

    def __init__(self, ledger: "Ledger", ports: Ports, policy: OnDivergence, home: int) -> None:
        """`home` is the branch that runs the function's body; 0 if that is the first one to ask."""
        self._ledger = ledger
        self._policy = policy
        self._asked: set[str] = set()
        self._homes: dict[str, int] = {"": home} if home else {}
        """The branch that runs the code of each scope, by the scope's prefix."""
        self._parallel: set[str] = set()
        """The scopes, by prefix, in which more than one branch asked: their order may differ in each run."""
        self._reported: set[str] = set()
        self._by_place: dict[str, list[str]] | None = None
        self._bystanders: dict[str, WeakSet[object]] = {BODY: WeakSet(ports.others(self._belongs))}
        """Tasks or threads that are older than the run, or than the work at a place: they are not branches of it."""

    @contextmanager
    def place(self, key: str, ports: Ports) -> Iterator[None]:
        """Mark the work under a key that is the same in every run: only its own branches ask for its steps."""
        prefix = prefix_of(Key(key))
        outer, outer_home = self._bystanders.get(key), self._homes.get(prefix, 0)
        self._bystanders[key], self._homes[prefix] = WeakSet(ports.others(self._belongs)), ports.branch()
        try:
            yield
        finally:
            if outer is None:
                del self._bystanders[key], self._homes[prefix]
            else:
                self._bystanders[key], self._homes[prefix] = outer, outer_home

    def on_its_thread(self, key: str, function: Callable[..., T], ports: Ports) -> Callable[..., T]:
        """Return a plain function that works at a place: the task that waits for its thread is not a branch of it."""

        def called() -> T:
            with self.place(key, ports):
                return function()

        return called

    def asks_for(self, run: "Run", key: str) -> None:
        """Note that the code asks for the step or question of this key."""
        self._asked.add(key)
        prefix = run._scope.prefix
        if self._homes.setdefault(prefix, _branch_of(run)) != _branch_of(run):
            self._parallel.add(prefix)

    async def check_step(self, run: "Run", key: str, name: str, given: object, *, effect: bool) -> None:
        """Raise `Diverged` for a new effect where another was recorded; for a plain step emit the event `diverged`."""
        other = self._other(run, key)
        if other is not None:
            memo = self._ledger.journal.memos[other]
            arguments = "" if isinstance(memo, Attempted) else memo.arguments
            texts = preview(given), arguments or f"arguments of fingerprint {memo.fingerprint.hex()}"  # type: ignore[arg-type]
            await self._diverges(run, key, other, name, texts, raises=effect or self._ledger.rehearsal is not None)

    async def check_question(self, run: "Run", key: str, name: str, payload: object, choices: object) -> None:
        """Raise `Diverged` for a new question where another was recorded: the answer is only for that one."""
        other = self._other(run, key)
        if other is not None:
            journal = self._ledger.journal
            asked = journal.requests[journal.number_of(other) - 1]
            await self._diverges(run, key, other, name, (_question(payload, choices), _recorded(asked)), raises=True)

    async def report_unasked(self) -> None:
        """Emit which recorded steps the function, which has ended, did not ask for."""
        if self._policy == "ignore" or self._parallel:
            return
        if keys := self.unasked_steps():
            names = ", ".join(keys[:MOST_NAMED]) + (
                f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            )
            await self._ledger.emit("diverged", step="", name="", recorded=names)

    def unasked_steps(self) -> list[str]:
        """Return the keys of recorded steps of the function's own body that it has not asked for."""
        journal = self._ledger.journal
        left = [memo for key, memo in journal.memos.items() if key not in self._asked and key not in journal.inherited]
        return [memo.key for memo in left if not _is_nested(memo, journal)]

    def unasked_questions(self) -> list[Asked]:
        """Return the recorded questions of the function's own body that it has not asked."""
        journal = self._ledger.journal
        keys = [key for key in journal.asked_keys() if key not in self._asked and key not in journal.inherited]
        return [journal.requests[journal.number_of(key) - 1] for key in keys if not scope_of(key)]

    @property
    def asked_count(self) -> int:
        """How many steps and questions the code has asked for."""
        return len(self._asked)

    @property
    def is_parallel(self) -> bool:
        """True if more than one branch has asked for something in the same scope."""
        return bool(self._parallel)

    def _other(self, run: "Run", key: str) -> str | None:
        """Return the key that an earlier run recorded at the same place, if it was not asked for; None if unclear."""
        if self._policy == "ignore":
            return None
        unasked = [each for each in self._recorded_at(place_of(key)) if each not in self._asked]
        if not unasked or self._is_retried() or self.has_branches(run):
            return None
        return unasked[0]

    def _recorded_at(self, place: str) -> list[str]:
        if self._by_place is None:
            self._by_place = {}
            journal = self._ledger.journal
            for key in (*journal.memos, *journal.asked_keys()):
                if key not in journal.inherited:
                    self._by_place.setdefault(place_of(key), []).append(key)
        return self._by_place.get(place, []) if place else []

    def _is_retried(self) -> bool:
        """True within a step that failed before: each attempt may make other calls."""
        frame, memos = current_frame.get(), self._ledger.journal.memos
        enclosing = [memos.get(key) for key in frame.within] if frame is not None else []
        return any(isinstance(memo, Attempted | Begun) and _attempts_failed(memo) for memo in enclosing)

    def has_branches(self, run: "Run") -> bool:
        """True if this is a parallel branch, or others may exist, which may still ask for the recorded step."""
        if _branch_of(run) != self._homes.get(run._scope.prefix):
            return True
        place = self._place_of(current_frame.get())
        others = _ports_of(run).others(lambda context: self._belongs(context, place))
        return not self._bystanders.get(place, WeakSet()).issuperset(others)

    def _place_of(self, frame: Frame | None) -> str:
        """Return the key of the innermost place that code with this frame works at."""
        within = frame.within if frame is not None else ()
        return next((key for key in reversed(within) if key in self._bystanders), BODY)

    def _belongs(self, context: Context, place: str = BODY) -> bool:
        """True if code with this context is part of the work at a place, or of the run at all."""
        frame = context.get(current_frame)
        return frame is not None and frame.run._ledger is self._ledger and place in (BODY, *frame.within)

    async def _diverges(
        self, run: "Run", key: str, other: str, name: str, texts: tuple[str, str], *, raises: bool
    ) -> None:
        given, recorded = texts
        if raises and self._policy == "raise" and run._scope.prefix not in self._parallel:
            raise Diverged(
                f"thread {self._ledger.claim.thread_id!r} calls {name!r} with {given}, but an earlier run recorded it"
                f" with {recorded}, and this run has not asked for that: doing both would repeat it. If the arguments"
                " depend on the clock, on chance or on live data, put the clock into a step: a resumed run then gets"
                " the recorded value. That fixes new threads; for this one, and if you changed the code on purpose, see"
                " docs/steps-and-effects.md#changed-code",
                name=name,
                given=given,
                recorded=recorded,
            )
        place = place_of(key)
        if place not in self._reported:
            self._reported.add(place)
            content = {"given": given, "recorded": recorded}
            await self._ledger.emit("diverged", content, step=key, name=name, recorded=other)


def _ports_of(run: "Run") -> Ports:
    """Return the ports of the run's own world: a plain step in an awaitable run has blocking ones."""
    frame = current_frame.get()
    return run._ports if frame is None else frame.run._ports


def _branch_of(run: "Run") -> int:
    return _ports_of(run).branch()


def _attempts_failed(memo: Attempted | Begun) -> bool:
    return isinstance(memo, Attempted) or memo.attempt > 1


def _is_nested(memo: Memo, journal: Journal) -> bool:
    """True for a step that was, or may have been, called within another step, which is not executed again."""
    if place_of(memo.key):
        return bool(scope_of(memo.key))
    others = [other for other in journal.memos.values() if isinstance(other, StepDone) and other is not memo]
    return any(other.at - other.took <= memo.at <= other.at for other in others)


def _question(payload: object, choices: object) -> str:
    return preview({"payload": payload, "choices": choices} if choices else {"payload": payload})


def _recorded(asked: Asked) -> str:
    try:
        return _question(decode(asked.payload), asked.choices)
    except CodecError:
        return f"a payload of fingerprint {asked.fingerprint.hex()}"
