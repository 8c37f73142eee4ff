"""A session as its code sees it: turns, steps within them, questions to people, and hand-overs."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, NoReturn, TypeVar, Unpack, overload

from msgspec.structs import replace

from holdfast.history.entries import HandedOver
from holdfast.history.turns import Turns
from holdfast.records.arguments import text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Answer
from holdfast.records.turn import PICODOLLARS, SessionSummary, Turn, TurnResult, UsageSnapshot
from holdfast.runs.block import RunBlock
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import StepPolicy, seconds
from holdfast.runs.run import Run, check_key
from holdfast.runs.scope import current_frame, fingerprint_of
from holdfast.runtimes.session.limits import Places
from holdfast.runtimes.session.options import OnUnstorable, SessionOptions, check_call, check_policy, needed_text
from holdfast.runtimes.session.streams import OpenStreams
from holdfast.runtimes.session.turns import TurnExecution
from holdfast.stores.writer import Intent

T = TypeVar("T")

TURN_NAMES = ("turn=", "turn~")
"""How the names of turns begin: with a key, and without."""
Usage = UsageSnapshot | Callable[[Any], Any] | None


class Session:
    """A conversation on a thread that this process holds. Made by `Orchestrator.session`."""

    def __init__(self, run: Run, options: SessionOptions) -> None:
        self._run = run
        self._options = options
        self._unnamed = count(1)
        self._streams = OpenStreams()
        self._places = Places(self._turns.count, run.ledger.claim.lock)

    def __repr__(self) -> str:
        return f"Session({self.thread_id!r}, role={self.role!r}, phase={self.phase!r}, turns={self._turns.count})"

    # What it knows

    @property
    def _turns(self) -> Turns:
        return self._run.ledger.journal.turns

    @property
    def thread_id(self) -> str:
        """The thread this session is kept in."""
        return self._run.thread_id

    @property
    def resumed(self) -> bool:
        """True if the thread existed before this session."""
        return self._run.resumed

    @property
    def role(self) -> str:
        """Who takes the next turn."""
        return self._options.role

    @property
    def phase(self) -> str:
        """What the next turn is part of."""
        return self._options.phase

    @property
    def usage(self) -> UsageSnapshot:
        """What all turns of the thread used, in every process."""
        return self._turns.usage

    @property
    def cost_usd(self) -> float:
        """What all turns of the thread cost, at the prices of their day; those of unpriced models count for nothing."""
        return self._turns.cost / PICODOLLARS

    @property
    def turns(self) -> list[Turn]:
        """The history: every turn that was executed on the thread, those that failed among them."""
        return self._turns.listed()

    def summary(self) -> SessionSummary:
        """What the turns of the thread amount to."""
        return self._turns.summary(self.thread_id, self.role, self.phase)

    # Turns

    @overload
    async def run_turn(
        self,
        function: Callable[[], Awaitable[T]],
        *,
        model: str | None = None,
        usage: UsageSnapshot | Callable[[T], Any] | None = None,
        idempotency_key: str | None = None,
        fingerprint: Any = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  the turn's, not this call's
        on_unstorable: OnUnstorable | None = None,
    ) -> TurnResult[T]: ...

    @overload
    async def run_turn(
        self,
        function: Callable[[], T],
        *,
        model: str | None = None,
        usage: UsageSnapshot | Callable[[T], Any] | None = None,
        idempotency_key: str | None = None,
        fingerprint: Any = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  the turn's, not this call's
        on_unstorable: OnUnstorable | None = None,
    ) -> TurnResult[T]: ...

    async def run_turn(
        self,
        function: Callable[[], Any],
        *,
        model: str | None = None,
        usage: Usage = None,
        idempotency_key: str | None = None,
        fingerprint: Any = None,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  the turn's, not this call's
        on_unstorable: OnUnstorable | None = None,
    ) -> TurnResult[Any]:
        """What `function()` returns, and what it used: from the record if this thread has one under the key.

        `usage` is known beforehand, or a function of the result. The result is recorded before any budget is judged, so
        that nothing paid for is lost: after `BudgetExceeded` the same key returns it. A `fingerprint` says what the
        turn is about; the same key with another one is `KeyReused`. A turn that fails is recorded as failed, and
        executed again when its key comes again. Without a key a turn is recorded, and never replayed. After `timeout`
        it is abandoned (`StepTimeout`). A result that cannot be stored raises `UnstorableValue`, which has it as
        `value`; with `on_unstorable="warn"` it is returned, and would be made again.
        """
        execution = self._execution(function, model, usage, idempotency_key, fingerprint, timeout, on_unstorable)
        return await execution.result()

    def run_turn_stream(
        self,
        function: Callable[[], AsyncIterator[T] | Iterable[T]],
        *,
        model: str | None = None,
        usage: UsageSnapshot | Callable[[list[T]], Any] | None = None,
        idempotency_key: str | None = None,
        fingerprint: Any = None,
        timeout: timedelta | float | None = None,
        on_unstorable: OnUnstorable | None = None,
    ) -> AsyncGenerator[T, None]:
        """The chunks of a stream, as they come. It is recorded when it ends, and a replay gives the same chunks.

        `usage` may be a function of the list of chunks. A stream that is left before its end is not recorded, and
        closed at the end of the session at the latest.
        """
        execution = self._execution(function, model, usage, idempotency_key, fingerprint, timeout, on_unstorable)
        return self._streams.add(execution.chunks())

    def _execution(
        self,
        function: Callable[[], Any],
        model: str | None,
        usage: Usage,
        idempotency_key: str | None,
        fingerprint: Any,
        timeout: timedelta | float | None,
        on_unstorable: OnUnstorable | None,
    ) -> TurnExecution:
        check_call(function, usage)
        run, options, key = self._run, self._options, idempotency_key
        if type(key) is not str or not key or not key.isascii():
            key = text_or_none(key, "idempotency_key") or ""
        if type(model) is not str or not model or not model.isascii():
            model = text_or_none(model, "model")
        return TurnExecution(
            run,
            options,
            self._streams,
            self._places,
            # Without a key, a name that no other claim of the thread ever gives: steps within it are its own.
            f"turn={key}" if key else f"turn~{run.ledger.claim.token}.{next(self._unnamed)}",
            function,
            model,
            usage,
            key,
            key or "turn",
            b"" if fingerprint is None else fingerprint_of(fingerprint, "fingerprint", "give plain data"),
            None if timeout is None else seconds(timeout, "timeout"),
            options.on_unstorable if on_unstorable is None else check_policy(on_unstorable),
        )

    async def close_streams(self) -> None:
        """Close the streams that were left before their end; done when the session's block is left."""
        await self._streams.close()

    # Within and between turns

    @overload
    async def step(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **policy: Unpack[StepPolicy]
    ) -> T: ...

    @overload
    async def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepPolicy]) -> T: ...

    async def step(self, key: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]) -> Any:
        """A step, executed once; see `Run.step`. Within a turn its key is the turn's own: another turn has another.

        So a turn that died halfway, and is executed again, goes on behind its finished steps. Threads that a turn
        starts need its context: `copy_context().run(session.step, ...)`.
        """
        self._check_turn_known(key)
        return await self._run.step(self._run.scope.prefix + check_key(key), function, *args, **policy)

    def _check_turn_known(self, key: str) -> None:
        """Refuse a step that may be part of a turn and does not say of which: another turn would get its result."""
        frame, ledger = current_frame.get(), self._run.ledger
        if frame is None and any(name.startswith(TURN_NAMES) for name in tuple(ledger.running)):
            raise ConfigurationError(
                f"step {key!r} is called from a thread that does not know its turn;"
                " start it with contextvars.copy_context().run"
            )

    async def pause_for_input(
        self,
        prompt: Any,
        *,
        name: str = "input",
        choices: Sequence[str] = (),
        deadline: datetime | timedelta | float | None = None,
        default: Any = None,
    ) -> Answer:
        """Ask a person, and suspend the session until there is an answer; see `Run.ask`."""
        return await self._run.ask(name, prompt, choices=choices, deadline=deadline, default=default)

    async def hand_over(self, role: str, phase: str | None = None, *, idempotency_key: str | None = None) -> None:
        """The turns that follow are taken by another role, or belong to another phase. Recorded as an event, once.

        A program that is run again comes to the same hand-over again: the first to a role and phase, the second, and so
        on, are told apart by their order in the session. With a key of its own, by that.
        """
        phase = self.phase if phase is None else needed_text(phase, "phase")
        options = replace(self._options, role=needed_text(role, "role"), phase=phase)
        self._run.ledger.check()
        key = self._hand_over_key(options, text_or_none(idempotency_key, "idempotency_key"))
        if key not in self._run.ledger.journal.marks:
            self._run.ledger.check_new("a hand-over")
            metadata = {"from": f"{self.role}/{self.phase}", "to": f"{options.role}/{options.phase}"}
            entry = HandedOver(key, options.role, options.phase, self._run.ports.now())
            intent = Intent(cause="event", metadata=packed_metadata(metadata))
            await self._run.ledger.commit(self._run.ports, intent, entry)
        self._options = options

    def _hand_over_key(self, options: SessionOptions, key: str | None) -> str:
        if key is not None:
            return f"hand={key}"
        fingerprint = fingerprint_of([options.role, options.phase], "hand_over", "")
        return self._run.scope.key("hand", fingerprint)


class SessionBlock:
    """`async with orchestrator.session(...) as session`."""

    def __init__(self, block: RunBlock, options: SessionOptions) -> None:
        self._block = block
        self._options = options
        self._session: Session | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a session is a block: `with orchestrator.session(...) as session:`, then session.{name}")

    async def __aenter__(self) -> Session:
        return await self.enter()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.leave(error)

    async def enter(self) -> Session:
        """Claim the thread."""
        self._session = Session(await self._block.enter(), self._options)
        return self._session

    async def leave(self, error: BaseException | None) -> None:
        """Give the thread back: idle, or failed with the error that left the block, or waiting."""
        try:
            if self._session is not None:
                await self._session.close_streams()
        finally:
            await self._block.leave(error)
