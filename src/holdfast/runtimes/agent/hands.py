"""What an agent's function is handed to record its work: plain calls, each on its way to the store when it returns."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.codec import decode, encode
from holdfast.history.draft import draft_state
from holdfast.history.entries import AnyEntry, Recorded
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, Finished
from holdfast.records.failure import Usage
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
        self._taken: Receipt | None = None

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
        self._functions: dict[tuple[str, int, int], Callable[..., Any]] = {}

    def name(self, function: Callable[..., Any], step: int, rollbacks: int) -> str:
        """What to record it by: its name. Another of the same step and name gets another one."""
        if not callable(function):
            raise ConfigurationError(f"a compensator is a name of compensators=, or a function, not {function!r}")
        name: str = getattr(function, "__name__", type(function).__name__)
        while self._functions.setdefault((name, step, rollbacks), function) != function:
            name += "'"
        return name

    def function(self, recorded: Compensator) -> Callable[..., Any] | None:
        """The function of a compensator, if it is one of these."""
        return self._functions.get((recorded.name, recorded.step, recorded.rollbacks)) if recorded.bare else None


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
        self._dirty = False
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
        if undo:
            index = self._run.ledger.journal.step_count + len(self._held)
            return self._write(step, self._undo(index, *undo), said=said)
        if self._auto:
            return self._write(step, said=said)
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
            self._state, self._dirty = {**self._state, **_copied(changes)}, True

    def replace_state(self, state: Mapping[str, Any]) -> None:
        """Put another state in place of the whole; saved with the next checkpoint."""
        with self._at_work():
            self._state, self._dirty = _copied(state), True

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
            queued = self._queued(Intent(journal=True), self._undo(index, compensator, *args))
        return self._made(self._receipt(queued))

    def _undo(self, index: int, compensator: Any, *args: Any) -> AnyEntry:
        bare, rollbacks = not isinstance(compensator, str), len(self._run.ledger.journal.rollbacks)
        known = self._limit.known_compensator
        name = self._bare.name(compensator, index, rollbacks) if bare else known(compensator)
        undo = Compensator(name=name, arguments=list(args), step=index, rollbacks=rollbacks, bare=bare)
        return note(COMPENSATOR, undo, self._run.ports.now())

    def checkpoint(self) -> Any:
        """Hand to the store what it does not have yet. Await the receipt to know that it is stored."""
        with self._at_work():
            return self._made(self._write() if self._held or self._dirty else self._receipt(None))

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
        if self._held or self._dirty:
            self._write()
        if self._last is not None:
            await self._run.ports.settle(self._last, self._run.ledger.claim.committer)
        while self._told:
            await self._told.pop(0)

    def _note(self, kind: str, content: Any) -> Receipt:
        entry = note(kind, content, self._run.ports.now())
        return self._receipt(self._queued(Intent(journal=True), entry))

    def _write(self, *entries: AnyEntry, said: dict[str, Any] | None = None) -> Receipt:
        held, self._held = [entry for entry, _ in self._held], []
        intent = Intent(cause="event", metadata=packed_metadata(said))
        if self._dirty:
            intent.draft, intent.leaves = draft_state(self._state, self._run.ledger.claim.log.state_cells)
            self._dirty = False
        return self._receipt(self._queued(intent, *held, *entries))

    def _queued(self, intent: Intent, *entries: AnyEntry) -> Pending:
        """One write is under way at most when the next begins: a killed process has lost no more than its last."""
        ports, ledger = self._run.ports, self._run.ledger
        if self._last is not None and not self._last.settled:
            ports.for_plain_code().dispatch(self._last, ledger.claim.committer)
        self._last = ledger.queue(ports, intent, *entries)
        return self._last

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
