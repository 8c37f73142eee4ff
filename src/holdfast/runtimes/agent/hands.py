"""The functions an agent gets to record its work. Each is a plain call whose write is queued when it returns."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, Finished, HoldfastError
from holdfast.records.naming import name_of
from holdfast.records.usage import Budget, Spent
from holdfast.runs.driver import Driver, Line, Note, Receipt, note
from holdfast.runtimes.agent.memory import COMPENSATOR, ITEM, USAGE, Compensator, Memory, Used

current_hands: "ContextVar[Hands | None]" = ContextVar("holdfast_hands", default=None)
HANDED = ("record_step", "update_state", "replace_state", "record_usage", "record_compensator", "checkpoint")
"""The names under which a function can ask for them."""


class HeldReceipt:
    """The receipt of a step that waits for the next checkpoint. Await it to take that checkpoint now."""

    def __init__(self, hands: "Hands") -> None:
        self._hands = hands

    @property
    def done(self) -> bool:
        """True if the step is stored."""
        return not self._hands.holds(self)

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Take a checkpoint unless one followed the step, and wait until it is stored."""
        await self._hands.drain()


class Bare:
    """Compensators given as functions: known only to this process, each for the step it undoes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], Callable[..., Any]] = {}
        self._said: dict[tuple[str, int], Callable[..., Any]] = {}
        """Those of the current attempt; the next attempt may create the same functions again."""

    def begin(self) -> None:
        """Start a new attempt."""
        self._said = {}

    def name(self, function: Callable[..., Any], step: int) -> str:
        """Return the name to record it under: its full name, made unique among those of the same step."""
        if not callable(function):
            raise ConfigurationError(f"a compensator must be a name from compensators= or a function, got {function!r}")
        name = name_of(function)
        while self._said.setdefault((name, step), function) != function:
            name += "'"
        self._functions[name, step] = function
        return name

    def function(self, recorded: Compensator) -> Callable[..., Any] | None:
        """Return the function of a recorded compensator, or None if this process does not have it."""
        return self._functions.get((recorded.name, recorded.step)) if recorded.bare else None


class Hands:
    """Records the work of one attempt until the attempt ends. Thread-safe.

    `on_step` is called with each step. `receipt` converts a receipt for the function's world.
    """

    def __init__(
        self,
        driver: Driver,
        spending: "Spending",
        compensators: Mapping[str, Any],
        bare: Bare,
        *,
        auto: bool,
        on_step: Callable[[Step], Any] | None,
        receipt: Callable[[Any], Any],
    ) -> None:
        self._driver = driver
        self._spending = spending
        self._compensators = compensators
        self._bare = bare
        self._auto = auto
        self._on_step = on_step
        self._notified: list[Awaitable[Any]] = []
        self._made = receipt
        self._over = False
        self._lock = driver.ports.lock()
        self._held: list[tuple[Line, HeldReceipt]] = []
        self._repeated: Counter[tuple[str, bytes]] = Counter()

    # Called by the agent's function

    def record_step(self, step: Step, *, compensator: Any = None) -> Any:
        """Record a step. With `auto_checkpoint` it is queued at once, together with the state.

        `compensator` undoes the step, as in `record_compensator`; a tuple adds its arguments.
        """
        recorded = self._driver.recorded(step)
        undo = compensator if isinstance(compensator, tuple) else () if compensator is None else (compensator,)
        with self._at_work():
            receipt = self._recorded(recorded, undo, {"step": step.action} if step.action else None)
            self._driver.mark_step(recorded)
        self._notify(step)
        return self._made(receipt)

    def _recorded(self, step: Line, undo: tuple[Any, ...], metadata: dict[str, Any] | None) -> "Receipt | HeldReceipt":
        if self._auto or undo:
            return self._write(step, undo=undo, metadata=metadata)
        receipt = HeldReceipt(self)
        self._held.append((step, receipt))
        return receipt

    def _notify(self, step: Step) -> None:
        awaited = None if self._on_step is None else self._on_step(step)
        if isinstance(awaited, Awaitable):
            self._notified.append(awaited)

    def update_state(self, changes: Mapping[str, Any]) -> None:
        """Merge top-level keys into the state. The next row saves it: a step, a question or a checkpoint."""
        with self._at_work():
            self._driver.change_state(_state(changes))

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Replace the whole state. The next row saves it: a step, a question or a checkpoint."""
        with self._at_work():
            self._driver.replace_state(_state(state))

    def record_usage(self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
        """Add to the thread's usage. The usage is recorded first; then `Escalated` if it exceeds the agent's budget.

        Calls from work that an ended attempt left running count too: they were paid for.
        """
        used = Used(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
        with self._lock:
            self._driver.check()
            spent = used.spent
            receipt = self._note(USAGE, used)
            self._spending.add(spent)
        return self._made(receipt)

    def record_compensator(self, compensator: str | Callable[..., Any], *args: Any) -> Any:
        """Say how to undo the step that this branch just recorded or replayed.

        `compensator` is a name from `compensators=`, or a function, which only this process can call. Recording the
        same compensator for a step again, as a retry does, changes nothing.
        """
        with self._at_work():
            self.checkpoint()
            index = self._driver.last_step()
            if index is None:
                raise ConfigurationError(
                    "record_compensator applies to the step just recorded or replayed, and this branch has none;"
                    " call it in the task or thread that awaited the step (in Python 3.11 asyncio.wait_for runs its"
                    " argument in a new task, asyncio.timeout does not; threads need the context of their caller)"
                )
            if not self._driver.has_own_step:
                known = self._known_step(compensator, args)
                index = index if known is None else known
            undo = self._undo(index, compensator, *args)
            receipt = self._driver.queue(lambda: (undo,), journal=True)
        return self._made(receipt)

    def _known_step(self, compensator: Any, args: tuple[Any, ...]) -> int | None:
        """Return the step for which an earlier attempt recorded the same compensator, at the same position.

        An attempt that finds its steps in the restored state records none, but still records their compensators.
        """
        name = compensator if isinstance(compensator, str) else name_of(compensator)
        said = (name, note(COMPENSATOR, list(args), 0).content)
        self._repeated[said] += 1
        record = self._driver.record
        alike = [
            each.step
            for each in Memory.of(record).compensators
            if (each.name.rstrip("'"), each.arguments) == (name, list(args)) and not each.is_undone(record.rollbacks)
        ]
        return alike[self._repeated[said] - 1] if len(alike) >= self._repeated[said] else None

    def _undo(self, index: int, compensator: Any, *args: Any) -> Note:
        bare, rollbacks = not isinstance(compensator, str), len(self._driver.record.rollbacks)
        name = self._bare.name(compensator, index) if bare else self._known(compensator)
        undo = Compensator(name=name, arguments=list(args), step=index, rollbacks=rollbacks, bare=bare)
        return note(COMPENSATOR, undo, self._driver.ports.now())

    def _known(self, name: str) -> str:
        if name not in self._compensators:
            known = ", ".join(map(repr, self._compensators)) or "none"
            raise ConfigurationError(f"compensator {name!r} is not among the agent's compensators= ({known})")
        return name

    def checkpoint(self) -> Any:
        """Queue everything that is not stored yet. Await the receipt to know that it is stored."""
        with self._at_work():
            return self._made(self._write() if self._is_behind else self._driver.last_receipt)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Allow one call at a time, and none after the attempt ended: the state is no longer its own."""
        with self._lock:
            self._driver.check()
            if self._over:
                raise Finished(
                    f"this attempt at {self._driver.thread_id!r} has ended; work it left running cannot record steps"
                )
            yield

    # Called by the runtime

    def given(self) -> dict[str, Any]:
        """Return the recording functions by name."""
        return {name: getattr(self, name) for name in HANDED}

    def deliver(self, item: Any) -> Receipt:
        """Record an item of the stream."""
        return self._note(ITEM, item)

    def holds(self, receipt: HeldReceipt) -> bool:
        """True if the step of a receipt is not queued yet."""
        return any(each is receipt for _, each in self._held)

    def close(self) -> None:
        """End the attempt."""
        with self._lock:
            self._over = True

    async def drain(self) -> None:
        """Wait until everything is stored, including the last state, and all callbacks have returned."""
        with self._lock:
            if self._is_behind:
                self._write()
        await self._driver.last_receipt
        while self._notified:
            await self._notified.pop(0)

    def _note(self, kind: str, content: Any) -> Receipt:
        written = note(kind, content, self._driver.ports.now())
        return self._driver.queue(lambda: (written,), journal=True)

    def _write(self, *steps: Line, undo: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None) -> Receipt:
        """Queue the held steps and these; `undo` compensates the last of them."""
        held, self._held = self._held, []
        lines = (*(step for step, _ in held), *steps)

        def made() -> tuple[Line, ...]:
            return (*lines, self._undo(self._driver.step_count + len(lines) - 1, *undo)) if undo else lines

        try:
            return self._driver.queue(made, metadata=metadata)
        except HoldfastError:
            self._held = held  # something else was refused, such as an argument of the compensator
            raise

    @property
    def _is_behind(self) -> bool:
        """True if something is not queued yet."""
        return bool(self._held) or self._driver.has_changes


class Spending:
    """The usage of an agent's thread, and its budget."""

    def __init__(self, spent: Spent, budget: Budget) -> None:
        self.spent = spent
        self._budget = budget

    def add(self, more: Spent) -> None:
        """Add to the usage; `Escalated` if that exceeds the budget."""
        self.spent += more
        if reason := self.exceeded():
            raise Escalated(reason)

    def exceeded(self) -> str:
        """Return which limit is used up; empty if none is."""
        return self._budget.exceeded(self.spent.cost, self.spent.usage.tokens)


def _state(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the state must be a dict, got {type(given).__name__}")
    return dict(given)
