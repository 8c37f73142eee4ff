"""What an agent's function is handed to record its work: plain calls, each on its way to the store when it returns."""

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
"""What a function may be handed, by name."""


class HeldReceipt:
    """A step that waits for the next checkpoint: `await` it to take that now."""

    def __init__(self, hands: "Hands") -> None:
        self._hands = hands

    @property
    def done(self) -> bool:
        """True if it is stored."""
        return not self._hands.holds(self)

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Take a checkpoint if there was none since, and wait until it is stored."""
        await self._hands.drain()


class Bare:
    """The compensators that are functions of this process, each for the step that it undoes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], Callable[..., Any]] = {}
        self._said: dict[tuple[str, int], Callable[..., Any]] = {}
        """Those of the present attempt: the next one may make the same functions again."""

    def begin(self) -> None:
        """Another attempt begins."""
        self._said = {}

    def name(self, function: Callable[..., Any], step: int) -> str:
        """What to record it by: its full name. Another of the same step and name gets another one."""
        if not callable(function):
            raise ConfigurationError(f"a compensator is a name of compensators=, or a function, not {function!r}")
        name = name_of(function)
        while self._said.setdefault((name, step), function) != function:
            name += "'"
        self._functions[name, step] = function
        return name

    def function(self, recorded: Compensator) -> Callable[..., Any] | None:
        """The function of a compensator, if it is one of these."""
        return self._functions.get((recorded.name, recorded.step)) if recorded.bare else None


class Hands:
    """One attempt's way to the store, until the attempt is over. Its calls may come from several threads.

    `on_step` is called with each step. `receipt` is what the function's world makes of a receipt.
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

    # What the function calls

    def record_step(self, step: Step, *, compensator: Any = None) -> Any:
        """Record a step. With auto_checkpoint it is handed to the store at once, with the state.

        `compensator`: how to undo it, as for `record_compensator` (a tuple if it takes arguments), kept with the step.
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
        """Merge top-level keys into the state. It is saved with the next row: a step, a question, a checkpoint."""
        with self._at_work():
            self._driver.change_state(_state(changes))

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Replace the whole state. It is saved with the next row: a step, a question, a checkpoint."""
        with self._at_work():
            self._driver.replace_state(_state(state))

    def record_usage(self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
        """Add to what the thread has used. `Escalated` once that is more than the agent may use; it is kept first.

        What an attempt that is over left running counts too: it was paid for.
        """
        used = Used(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
        with self._lock:
            self._driver.check()
            spent = used.spent
            receipt = self._note(USAGE, used)
            self._spending.add(spent)
        return self._made(receipt)

    def record_compensator(self, compensator: str | Callable[..., Any], *args: Any) -> Any:
        """How to undo the step that this branch just recorded or replayed.

        `compensator` is a name of `compensators=`, or a function that dies with this process. Giving the same one for a
        step again, as a retry does, changes nothing.
        """
        with self._at_work():
            self.checkpoint()
            index = self._driver.last_step()
            if index is None:
                raise ConfigurationError(
                    "record_compensator is for the step just recorded or replayed, and there is none in this branch;"
                    " call it in the task or thread that awaited the step itself (asyncio.wait_for makes a task of its"
                    " own in Python 3.11, asyncio.timeout does not; threads need the context of their caller)"
                )
            if not self._driver.has_own_step:
                known = self._known_step(compensator, args)
                index = index if known is None else known
            undo = self._undo(index, compensator, *args)
            receipt = self._driver.queue(lambda: (undo,), journal=True)
        return self._made(receipt)

    def _known_step(self, compensator: Any, args: tuple[Any, ...]) -> int | None:
        """The step that an earlier attempt gave the same compensator for, at the same place among equal ones.

        An attempt that finds its steps in the restored state records none, and gives their compensators all the same.
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
            raise ConfigurationError(f"compensator {name!r} is not one of the agent's compensators= ({known})")
        return name

    def checkpoint(self) -> Any:
        """Hand to the store what it does not have yet. Await the receipt to know that it is stored."""
        with self._at_work():
            return self._made(self._write() if self._is_behind else self._driver.last_receipt)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """One call at a time, and none once the attempt is over: its state is no longer the thread's."""
        with self._lock:
            self._driver.check()
            if self._over:
                raise Finished(
                    f"this attempt at {self._driver.thread_id!r} is over; what it left running records nothing"
                )
            yield

    # What its runtime calls

    def given(self) -> dict[str, Any]:
        """All that a function may be handed, by name."""
        return {name: getattr(self, name) for name in HANDED}

    def deliver(self, item: Any) -> Receipt:
        """Note an item of the stream."""
        return self._note(ITEM, item)

    def holds(self, receipt: HeldReceipt) -> bool:
        """True if the step of a receipt was not handed over yet."""
        return any(each is receipt for _, each in self._held)

    def close(self) -> None:
        """The attempt is over."""
        with self._lock:
            self._over = True

    async def drain(self) -> None:
        """Wait until everything is stored, the state set last included, and all callbacks have returned."""
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
        """What is held, and these steps; `undo` says how the last of them is undone."""
        held, self._held = self._held, []
        lines = (*(step for step, _ in held), *steps)

        def made() -> tuple[Line, ...]:
            return (*lines, self._undo(self._driver.step_count + len(lines) - 1, *undo)) if undo else lines

        try:
            return self._driver.queue(made, metadata=metadata)
        except HoldfastError:
            self._held = held  # what was refused is not theirs: an argument of the compensator, say
            raise

    @property
    def _is_behind(self) -> bool:
        """True if there is something that the store does not have yet."""
        return bool(self._held) or self._driver.has_changes


class Spending:
    """What an agent's thread has used, and may use."""

    def __init__(self, spent: Spent, budget: Budget) -> None:
        self.spent = spent
        self._budget = budget

    def add(self, more: Spent) -> None:
        """Count this too; `Escalated` if it is more than the agent may use."""
        self.spent += more
        if reason := self.exceeded():
            raise Escalated(reason)

    def exceeded(self) -> str:
        """Which limit is used up; empty if none is."""
        return self._budget.exceeded(self.spent.cost, self.spent.usage.tokens)


def _state(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"a state is a dict, not {type(given).__name__}")
    return dict(given)
