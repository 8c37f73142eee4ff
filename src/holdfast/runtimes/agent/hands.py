"""What an agent's function is handed to record its work: plain calls, each on its way to the store when it returns."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_
from typing import Any

from holdfast.codec import decode, encode
from holdfast.history.cells import Cell
from holdfast.history.draft import draft_state
from holdfast.history.entries import AnyEntry, Recorded
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, Finished
from holdfast.records.failure import Usage
from holdfast.records.naming import name_of
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.run import Receipt, Run, fields_of
from holdfast.runtimes.agent.memory import COMPENSATOR, ITEM, USAGE, Compensator, note
from holdfast.stores.claim import Pending
from holdfast.stores.writer import Intent

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
        """Those of the present attempt: the next one may make the same functions anew."""

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

    `on_step` is told of each step. `receipt` is what the function's world makes of a receipt.
    """

    def __init__(
        self,
        run: Run,
        limit: "Limit",
        bare: Bare,
        *,
        auto: bool,
        on_step: Callable[[Step], Any] | None,
        receipt: Callable[[Any], Any],
    ) -> None:
        self._run = run
        self._limit = limit
        self._bare = bare
        self._auto = auto
        self._on_step = on_step
        self._told: list[Awaitable[Any]] = []
        self._made = receipt
        self._state: dict[str, Any] = run.state
        """As it is stored, by whoever did that."""
        self._cells = self._state_cells()
        self._changes: dict[str, Any] = {}
        self._replacement: dict[str, Any] | None = None
        self._over = False
        self._lock = run.ports.lock()
        self._held: list[tuple[AnyEntry, HeldReceipt]] = []
        self._last: Pending | None = None

    # What the function calls

    def record_step(self, step: Step, *, compensator: Any = None) -> Any:
        """Record a step. With auto_checkpoint it is handed to the store at once, with the state.

        `compensator`: how to undo it, as for `record_compensator` (a tuple if it takes arguments), kept with the step.
        """
        recorded = Recorded("", encode(fields_of(step), path="step"), self._run.ports.now())
        undo = compensator if isinstance(compensator, tuple) else () if compensator is None else (compensator,)
        with self._at_work():
            receipt = self._recorded(recorded, undo, {"step": step.action} if step.action else None)
        self._tell(step)
        return self._made(receipt)

    def _recorded(self, step: Recorded, undo: tuple[Any, ...], said: dict[str, Any] | None) -> "Receipt | HeldReceipt":
        if self._auto or undo:
            return self._write(step, undo=undo, said=said)
        receipt = HeldReceipt(self)
        self._held.append((step, receipt))
        return receipt

    def _tell(self, step: Step) -> None:
        told = None if self._on_step is None else self._on_step(step)
        if isinstance(told, Awaitable):
            self._told.append(told)

    def update_state(self, changes: Mapping[str, Any]) -> None:
        """Merge top-level keys into the state; saved with the next checkpoint."""
        with self._at_work():
            self._changes |= _copied(changes)

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Put another state in place of the whole; saved with the next checkpoint."""
        with self._at_work():
            self._replacement, self._changes = _copied(state), {}

    def record_usage(self, *, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
        """Add to what the thread has used. `Escalated` once that is more than the agent may use; it is kept first.

        What was left running by an attempt that is over counts too: it was paid for.
        """
        used = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
        with self._lock:
            self._run.ledger.check()
            receipt = self._note(USAGE, used)
            self._limit.check_usage(used)
        return self._made(receipt)

    def record_compensator(self, compensator: str | Callable[..., Any], *args: Any) -> Any:
        """How to undo the step just recorded: a name of `compensators=`, or a function that dies with this process.

        Saying the same of a step again changes nothing.
        """
        with self._at_work():
            self.checkpoint()
            index = self._run.ledger.journal.step_count - 1
            if index < 0:
                raise ConfigurationError("record_compensator is for the step just recorded, and there is none")
            queued = self._queued(Intent(journal=True), (self._undo(index, compensator, *args),))
        return self._made(self._receipt(queued))

    def _undo(self, index: int, compensator: Any, *args: Any) -> AnyEntry:
        bare, rollbacks = not isinstance(compensator, str), len(self._run.ledger.journal.rollbacks)
        known = self._limit.known_compensator
        name = self._bare.name(compensator, index) if bare else known(compensator)
        undo = Compensator(name=name, arguments=list(args), step=index, rollbacks=rollbacks, bare=bare)
        return note(COMPENSATOR, undo, self._run.ports.now())

    def checkpoint(self) -> Any:
        """Hand to the store what it does not have yet. Await the receipt to know that it is stored."""
        with self._at_work():
            return self._made(self._write() if self._is_behind else self._receipt(None))

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """One call at a time, and none once the attempt is over: its state is no longer the thread's."""
        with self._lock:
            self._run.ledger.check()
            if self._over:
                raise Finished(f"this attempt at {self._run.thread_id!r} is over; what it left running records nothing")
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
        """Wait until everything is stored, the state set last included, and told."""
        if self._is_behind:
            self._write()
        if self._last is not None:
            await self._run.ports.settle(self._last, self._run.ledger.claim.committer)
        while self._told:
            await self._told.pop(0)

    def _note(self, kind: str, content: Any) -> Receipt:
        entry = note(kind, content, self._run.ports.now())
        return self._receipt(self._queued(Intent(journal=True), (entry,)))

    def _write(self, *steps: AnyEntry, undo: tuple[Any, ...] = (), said: dict[str, Any] | None = None) -> Receipt:
        """What is held, and these steps; `undo` says how the last of them is undone."""
        steps, self._held = (*(entry for entry, _ in self._held), *steps), []
        intent = Intent(cause="event", metadata=packed_metadata(said))

        def compensated() -> tuple[AnyEntry, ...]:
            index = self._run.ledger.journal.step_count + len(steps) - 1
            return (*steps, self._undo(index, *undo))

        if not self._has_changes:
            return self._receipt(self._queued(intent, compensated if undo else steps))
        state = {**(self._stored() if self._replacement is None else self._replacement), **self._changes}
        intent.draft, intent.leaves = draft_state(state, self._run.ledger.claim.log.state_cells)
        self._changes, self._replacement = {}, None
        receipt = self._receipt(self._queued(intent, compensated if undo else steps))
        self._state, self._cells = state, self._state_cells()
        return receipt

    @property
    def _has_changes(self) -> bool:
        return bool(self._changes) or self._replacement is not None

    @property
    def _is_behind(self) -> bool:
        """True if there is something that the store does not have yet."""
        return bool(self._held) or self._has_changes

    def _stored(self) -> dict[str, Any]:
        """The state that changes are made to: read again if somebody else changed it, as `append` within the agent."""
        cells = self._state_cells()
        if len(cells) != len(self._cells) or not all(map(is_, cells, self._cells)):
            self._state, self._cells = self._run.state, cells
        return self._state

    def _state_cells(self) -> list[Cell]:
        document = self._run.ledger.claim.log.state_cells
        return [cell for path, cell in document.items() if path[0] == "state"]

    def _queued(self, intent: Intent, entries: tuple[AnyEntry, ...] | Callable[[], tuple[AnyEntry, ...]]) -> Pending:
        """One write is under way at most when the next begins: a killed process has lost no more than its last."""
        ports, ledger = self._run.ports, self._run.ledger
        if self._last is not None and not self._last.settled:
            ports.for_plain_code().dispatch(self._last, ledger.claim.committer)
        made = ledger.queue_made(ports, intent, entries) if callable(entries) else ledger.queue(ports, intent, *entries)
        self._last = made
        return made

    def _receipt(self, pending: Pending | None) -> Receipt:
        return Receipt(self._run.ledger, self._run.ports, pending or self._last)


class Limit:
    """What an agent may use, and which compensators it has."""

    def __init__(
        self, used: Usage, cost_usd: float | None, tokens: int | None, compensators: Mapping[str, Any]
    ) -> None:
        self.used = used
        self._cost_usd = cost_usd
        self._tokens = tokens
        self._compensators = compensators

    def check_usage(self, more: Usage = Usage()) -> None:  # noqa: B008  a frozen structure
        """`Escalated` if more is used than may be."""
        self.used += more
        if reason := self.exceeded():
            raise Escalated(reason)

    def exceeded(self) -> str:
        """Which limit is used up; empty if none is."""
        if self._cost_usd is not None and self.used.cost_usd > self._cost_usd:
            return f"{self.used.cost_usd:g} USD are used, of {self._cost_usd:g}"
        if self._tokens is not None and self.used.tokens > self._tokens:
            return f"{self.used.tokens} tokens are used, of {self._tokens}"
        return ""

    def known_compensator(self, name: str) -> str:
        """The name; a clear refusal if the agent has no such compensator."""
        if name not in self._compensators:
            known = ", ".join(map(repr, self._compensators)) or "none"
            raise ConfigurationError(f"compensator {name!r} is not one of the agent's compensators= ({known})")
        return name


def _copied(changes: Any) -> dict[str, Any]:
    """What is given now, whatever is done to it later."""
    if not isinstance(changes, Mapping):
        raise ConfigurationError(f"a state is a dict, not {type(changes).__name__}")
    copied: dict[str, Any] = decode(encode(dict(changes), path="state"))
    return copied
