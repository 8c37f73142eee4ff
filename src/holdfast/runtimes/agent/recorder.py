"""The functions an agent gets to record its work. Each is a plain call whose write is queued when it returns."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from typing import Any

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, Finished, HoldfastError
from holdfast.records.naming import name_of
from holdfast.runs.driver import Driver, Line, Note, Receipt, note
from holdfast.runtimes.agent.memory import COMPENSATOR, ITEM, USAGE, Compensator, Memory, Used
from holdfast.runtimes.agent.options import AgentTerms

current_recorder: "ContextVar[Recorder | None]" = ContextVar("holdfast_recorder", default=None)
RECORDING_NAMES = ("record_step", "update_state", "replace_state", "record_usage", "record_compensator", "checkpoint")
"""The names under which a function can ask for them."""


class HeldReceipt:
    """The receipt of a step that waits for the next checkpoint. Await it to take that checkpoint now."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    @property
    def done(self) -> bool:
        """True if the step is stored."""
        return not self._recorder.holds(self)

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Take a checkpoint unless one followed the step, and wait until it is stored."""
        await self._recorder.drain()


class LocalCompensators:
    """Compensators given as functions: known only to this process, each for the step it undoes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], Callable[..., Any]] = {}
        self._current: dict[tuple[str, int], Callable[..., Any]] = {}
        """Those of the current attempt; the next attempt may create the same functions again."""

    def begin_attempt(self) -> None:
        """Start a new attempt."""
        self._current = {}

    def name(self, function: Callable[..., Any], step: int) -> str:
        """Return the name to record it under: its full name, made unique among those of the same step."""
        if not callable(function):
            raise ConfigurationError(f"a compensator must be a name from compensators= or a function, got {function!r}")
        name = name_of(function)
        while self._current.setdefault((name, step), function) != function:
            name += "'"
        self._functions[name, step] = function
        return name

    def function(self, recorded: Compensator) -> Callable[..., Any] | None:
        """Return the function of a recorded compensator, or None if this process does not have it."""
        return self._functions.get((recorded.name, recorded.step)) if recorded.bare else None


class Recorder:
    """Records the work of one attempt until the attempt ends. Thread-safe.

    `receipt` converts a receipt for the function's world.
    """

    def __init__(
        self,
        terms: AgentTerms,
        driver: Driver,
        memory: Memory,
        local: LocalCompensators,
        receipt: Callable[[Any], Any],
    ) -> None:
        self._terms = terms
        self._driver = driver
        self._memory = memory
        self._local = local
        self._receipt = receipt
        self._lock = driver.ports.lock()
        self._is_closed = False
        self._held: list[tuple[Line, HeldReceipt]] = []
        self._callbacks: list[Awaitable[Any]] = []
        """What `on_step` returned, to be awaited."""
        self._repeated: Counter[tuple[str, bytes]] = Counter()

    # Called by the agent's function

    def record_step(self, step: Step, *, compensator: Any = None) -> Any:
        """Record a step. With `auto_checkpoint` it is queued at once, together with the state.

        `compensator` undoes the step, as in `record_compensator`; a tuple adds its arguments.
        """
        recorded = self._driver.recorded(step)
        undo = compensator if isinstance(compensator, tuple) else () if compensator is None else (compensator,)
        receipt: Receipt | HeldReceipt
        with self._lock:
            self._check_open()
            if self._terms.auto_checkpoint or undo:
                receipt = self._write(recorded, undo=undo, metadata={"step": step.action} if step.action else None)
            else:
                receipt = HeldReceipt(self)
                self._held.append((recorded, receipt))
            self._driver.mark_step(recorded)
        if self._terms.on_step is not None:
            returned = self._terms.on_step(step)
            if isinstance(returned, Awaitable):
                self._callbacks.append(returned)
        return self._receipt(receipt)

    def update_state(self, changes: Mapping[str, Any]) -> None:
        """Merge top-level keys into the state. The next row saves it: a step, a question or a checkpoint."""
        with self._lock:
            self._check_open()
            self._driver.change_state(_state(changes))

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Replace the whole state. The next row saves it: a step, a question or a checkpoint."""
        with self._lock:
            self._check_open()
            self._driver.replace_state(_state(state))

    def record_usage(self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
        """Add to the thread's usage. The usage is recorded first; then `Escalated` if it exceeds the agent's budget.

        Calls from work that an ended attempt left running count too: they were paid for.
        """
        used = Used(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
        used.spent()  # raises for an invalid value, before it is written
        with self._lock:
            self._driver.check()
            receipt = self._note(USAGE, used)
            if reason := self._memory.exceeded(self._terms.budget):
                raise Escalated(reason)
        return self._receipt(receipt)

    def record_compensator(self, compensator: str | Callable[..., Any], *args: Any) -> Any:
        """Say how to undo the step that this branch just recorded or replayed.

        `compensator` is a name from `compensators=`, or a function, which only this process can call. Recording the
        same compensator for a step again, as a retry does, changes nothing.
        """
        with self._lock:
            self._check_open()
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
        return self._receipt(receipt)

    def _known_step(self, compensator: Any, args: tuple[Any, ...]) -> int | None:
        """Return the step for which an earlier attempt recorded the same compensator, at the same position.

        An attempt that finds its steps in the restored state records none, but still records their compensators.
        """
        name = compensator if isinstance(compensator, str) else name_of(compensator)
        call = (name, note(COMPENSATOR, list(args), 0).content)
        self._repeated[call] += 1
        rollbacks = self._driver.record.rollbacks
        alike = [
            each.step
            for each in self._memory.compensators()
            if (each.name.rstrip("'"), each.arguments) == (name, list(args)) and not each.is_undone(rollbacks)
        ]
        return alike[self._repeated[call] - 1] if len(alike) >= self._repeated[call] else None

    def _undo(self, index: int, compensator: Any, *args: Any) -> Note:
        bare, rollbacks = not isinstance(compensator, str), len(self._driver.record.rollbacks)
        name = self._local.name(compensator, index) if bare else self._known(compensator)
        undo = Compensator(name=name, arguments=list(args), step=index, rollbacks=rollbacks, bare=bare)
        return note(COMPENSATOR, undo, self._driver.ports.now())

    def _known(self, name: str) -> str:
        if name not in self._terms.compensators:
            known = ", ".join(map(repr, self._terms.compensators)) or "none"
            raise ConfigurationError(f"compensator {name!r} is not among the agent's compensators= ({known})")
        return name

    def checkpoint(self) -> Any:
        """Queue everything that is not stored yet. Await the receipt to know that it is stored."""
        with self._lock:
            self._check_open()
            return self._receipt(self._write() if self._is_behind else self._driver.last_receipt)

    def _check_open(self) -> None:
        """Raise if the attempt has ended: the state is no longer its own."""
        self._driver.check()
        if self._is_closed:
            raise Finished(
                f"this attempt at {self._driver.thread_id!r} has ended; work it left running cannot record steps"
            )

    # Called by the runtime

    def functions(self) -> dict[str, Any]:
        """Return the recording functions by name."""
        return {name: getattr(self, name) for name in RECORDING_NAMES}

    def deliver(self, item: Any) -> Receipt:
        """Record an item of the stream."""
        return self._note(ITEM, item)

    def holds(self, receipt: HeldReceipt) -> bool:
        """True if the step of a receipt is not queued yet."""
        return any(each is receipt for _, each in self._held)

    def close(self) -> None:
        """End the attempt."""
        with self._lock:
            self._is_closed = True

    async def drain(self) -> None:
        """Wait until everything is stored, including the last state, and all callbacks have returned."""
        with self._lock:
            if self._is_behind:
                self._write()
        await self._driver.last_receipt
        while self._callbacks:
            await self._callbacks.pop(0)

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


def _state(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the state must be a dict, got {type(given).__name__}")
    return dict(given)
