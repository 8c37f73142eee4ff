"""A session: turns, steps within them, questions to people, and hand-overs."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, NoReturn, TypeVar, Unpack, overload

from msgspec.structs import replace

from holdfast.records.arguments import text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Answer
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import UsageSnapshot
from holdfast.runs.driver import Driver, Run, RunBlock, check_key, fingerprint_of, note
from holdfast.runs.options import StepPolicy, seconds
from holdfast.runtimes.session.limits import TurnSlots
from holdfast.runtimes.session.options import (
    SessionOptions,
    TurnOptions,
    check_on_unstorable,
    check_turn,
    required_text,
)
from holdfast.runtimes.session.record import HAND_OVER, RESERVE, TURN, VISIT, Turns
from holdfast.runtimes.session.streams import OpenStreams
from holdfast.runtimes.session.turns import TurnExecution

T = TypeVar("T")

TURN_NAMES = ("turn=", "turn~")
"""The prefixes of turn names: with a key, and without."""


class Session:
    """A conversation on a thread that this process holds. Opened by `Orchestrator.session`."""

    def __init__(self, run: Run, options: SessionOptions) -> None:
        self._driver = driver = Driver(run)
        self._run = run
        self._options = options
        self._unnamed = count(1)
        self._streams = OpenStreams()
        self._turns = turns = Turns()
        driver.follow({TURN: turns.add, RESERVE: turns.reserve, HAND_OVER: turns.hand_over})
        self._slots = TurnSlots(turns.count, driver.ports.lock())
        self._visit = len(driver.record.notes(VISIT)) + 1
        """The number of earlier sessions that were left normally. Sessions that resume this one share it."""
        self._used_answers = False

    def __repr__(self) -> str:
        return f"Session({self.thread_id!r}, role={self.role!r}, phase={self.phase!r}, turns={self._turns.count})"

    # Properties

    @property
    def thread_id(self) -> str:
        """The id of the session's thread."""
        return self._run.thread_id

    @property
    def resumed(self) -> bool:
        """True if the thread existed before this session."""
        return self._run.resumed

    @property
    def role(self) -> str:
        """The role that takes the next turn."""
        return self._options.role

    @property
    def phase(self) -> str:
        """The phase the next turn belongs to."""
        return self._options.phase

    @property
    def usage(self) -> UsageSnapshot:
        """The usage of all turns of the thread, in all processes."""
        return self._turns.usage

    @property
    def cost_usd(self) -> float:
        """The cost of all turns of the thread, at the prices when they ran; unpriced models count as zero."""
        return self._turns.cost_usd

    @property
    def turns(self) -> list[Turn]:
        """The history: every turn executed on the thread, failed ones included.

        `LimitExceeded` if the list would need too much memory.
        """
        return self._turns.listed(self._driver.record)

    def summary(self) -> SessionSummary:
        """Return the totals of the thread's turns."""
        return self._turns.summary(self.thread_id, self.role, self.phase)

    # Turns

    @overload
    async def run_turn(self, function: Callable[[], Awaitable[T]], **options: Unpack[TurnOptions]) -> TurnResult[T]: ...

    @overload
    async def run_turn(self, function: Callable[[], T], **options: Unpack[TurnOptions]) -> TurnResult[T]: ...

    async def run_turn(self, function: Callable[[], Any], **options: Unpack[TurnOptions]) -> TurnResult[Any]:
        """Call `function()` as a turn and return its result and usage; replay the turn if its key is recorded.

        `usage` is a value or a function of the result. The result is recorded before the budget is checked, so nothing
        paid for is lost: after `BudgetExceeded` the same key returns it. A `fingerprint` identifies the content of the
        turn; the same key with another fingerprint raises `KeyReused`. A failed turn is recorded as failed, and
        executed again when its key is repeated. A turn without a key is recorded and never replayed. After `timeout`
        it is abandoned (`StepTimeout`). A result that cannot be stored raises `UnstorableValue` with the result as
        `value`; with `on_unstorable="warn"` it is returned, and a rerun executes the turn again. `reserve` is the most
        the turn may use: it is recorded before the call, a turn whose reserve exceeds the budget is refused, and after
        a crash it counts against the budget until the key is repeated.
        """
        return await self._execution(function, options).result()

    def run_turn_stream(
        self, function: Callable[[], AsyncIterator[T] | Iterable[T]], **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[T, None]:
        """Yield the chunks of a stream. The turn is recorded when the stream ends; a replay yields the same chunks.

        `usage` may be a function of the list of chunks. A stream that is left early is not recorded; it is closed when
        the session ends at the latest.
        """
        return self._streams.add(self._execution(function, options).chunks())

    def _execution(self, function: Callable[[], Any], given: TurnOptions) -> TurnExecution:
        check_turn(function, given)
        driver, options = self._driver, self._options
        key = text_or_none(given.get("idempotency_key"), "idempotency_key") or ""
        fingerprint, timeout, unstorable = given.get("fingerprint"), given.get("timeout"), given.get("on_unstorable")
        return TurnExecution(
            driver,
            options,
            self._turns,
            self._streams,
            self._slots,
            # Without a key: a name that no other claim of the thread uses, so that its steps are its own.
            driver.key("turn", key) if key else f"turn~{driver.token}.{next(self._unnamed)}",
            function,
            None if (model := given.get("model")) is None else text_or_none(model, "model"),
            given.get("usage"),
            key,
            key or "turn",
            b"" if fingerprint is None else fingerprint_of(fingerprint, "fingerprint", "give plain data"),
            None if timeout is None else seconds(timeout, "timeout"),
            options.on_unstorable if unstorable is None else check_on_unstorable(unstorable),
            given.get("reserve"),
        )

    async def _leave(self, error: BaseException | None) -> None:
        """Close the streams that were left early, and mark the answers this session used as consumed."""
        await self._streams.close()
        driver = self._driver
        if error is None and self._used_answers and not (driver.is_waiting or driver.is_lost or self._run.finished):
            visit = note(VISIT, None, driver.ports.now(), lasting=True)
            await driver.write(visit, journal=True, metadata={"visit": self._visit})

    # Steps, questions and hand-overs

    @overload
    async def step(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **policy: Unpack[StepPolicy]
    ) -> T: ...

    @overload
    async def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepPolicy]) -> T: ...

    async def step(self, key: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]) -> Any:
        """Execute a step once; see `Run.step`. Inside a turn the key belongs to that turn.

        So a turn that died halfway resumes after its finished steps. Threads that a turn starts need its context:
        `copy_context().run(session.step, ...)`.
        """
        self._check_turn_known(key)
        return await self._run.step(self._driver.key_within(check_key(key)), function, *args, **policy)

    def _check_turn_known(self, key: str) -> None:
        """Refuse a step whose turn is unknown: another turn could get its result."""
        if not self._driver.is_within and any(name.startswith(TURN_NAMES) for name in tuple(self._driver.running)):
            raise ConfigurationError(
                f"step {key!r} is called from a thread without the context of its turn;"
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
        key: str | None = None,
    ) -> Answer:
        """Ask a person, and suspend the session until the answer arrives; see `Run.ask`.

        A question with a `key` is asked once per thread. Without a key, the answer is reused until a session that used
        it is left normally; a later session asks an equal question again.
        """
        driver, question = self._driver, {"choices": choices, "deadline": deadline, "default": default}
        if key is not None:
            return await driver.ask(driver.key("input", check_key(key)), name, prompt, question)
        again = driver.ordinal_key("input", [self._visit, name, prompt, list(choices)]) if self._visit > 1 else ""
        answer = await driver.ask(again, name, prompt, question)
        self._used_answers = True
        return answer

    async def hand_over(self, role: str, phase: str | None = None, *, idempotency_key: str | None = None) -> None:
        """Hand the following turns to another role or phase. Recorded once as an event.

        A rerun of the program repeats its hand-overs without recording them again: those to the same role and phase
        are matched by their order in the session, or by the key you pass.
        """
        phase = self.phase if phase is None else required_text(phase, "phase")
        options = replace(self._options, role=required_text(role, "role"), phase=phase)
        driver = self._driver
        driver.check()
        key = self._hand_over_key(options, text_or_none(idempotency_key, "idempotency_key"))
        if driver.noted(HAND_OVER, key) is None:
            driver.check_new("a hand-over")
            metadata = {"from": f"{self.role}/{self.phase}", "to": f"{options.role}/{options.phase}"}
            content = {"role": options.role, "phase": options.phase}
            await driver.write(
                note(HAND_OVER, content, driver.ports.now(), key=key, action=HAND_OVER), metadata=metadata
            )
        self._options = options

    def _hand_over_key(self, options: SessionOptions, key: str | None) -> str:
        driver = self._driver
        return driver.key("hand", key) if key is not None else driver.ordinal_key("hand", [options.role, options.phase])


class SessionBlock:
    """`async with orchestrator.session(...) as session`."""

    def __init__(self, block: RunBlock, options: SessionOptions) -> None:
        self._block = block
        self._options = options
        self._session: Session | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"enter the session before session.{name}: `with orchestrator.session(...) as session:`")

    async def __aenter__(self) -> Session:
        return await self.enter()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.leave(error)

    async def enter(self) -> Session:
        """Claim the thread."""
        run = await self._block.enter()
        try:
            self._session = Session(run, self._options)
        except BaseException as error:
            await self._block.leave(error)
            raise
        return self._session

    async def leave(self, error: BaseException | None) -> None:
        """Release the thread: as idle, as failed with the error that left the block, or as waiting."""
        try:
            if self._session is not None:
                await self._session._leave(error)  # noqa: SLF001  one file
        except BaseException as cut:
            await self._block.leave(error or cut)
            raise
        await self._block.leave(error)
