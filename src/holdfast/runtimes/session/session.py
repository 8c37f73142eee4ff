"""A session as its code sees it: turns, steps within them, questions to people, and hand-overs."""

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
from holdfast.runtimes.session.limits import Places
from holdfast.runtimes.session.options import SessionOptions, TurnOptions, check_call, check_policy, needed_text
from holdfast.runtimes.session.record import HAND_OVER, RESERVE, TURN, VISIT, Turns
from holdfast.runtimes.session.streams import OpenStreams
from holdfast.runtimes.session.turns import TurnExecution

T = TypeVar("T")

TURN_NAMES = ("turn=", "turn~")
"""How the names of turns begin: with a key, and without."""


class Session:
    """A conversation on a thread that this process holds. Made by `Orchestrator.session`."""

    def __init__(self, run: Run, options: SessionOptions) -> None:
        self._driver = driver = Driver(run)
        self._run = run
        self._options = options
        self._unnamed = count(1)
        self._streams = OpenStreams()
        self._turns = turns = Turns()
        driver.follow({TURN: turns.add, RESERVE: turns.reserve, HAND_OVER: turns.hand_over})
        self._places = Places(turns.count, driver.ports.lock())
        self._visit = len(driver.record.notes(VISIT)) + 1
        """The number of this session among those that were left normally, and with it of those that continue it."""
        self._used_answers = False

    def __repr__(self) -> str:
        return f"Session({self.thread_id!r}, role={self.role!r}, phase={self.phase!r}, turns={self._turns.count})"

    # What it knows

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
        return self._turns.cost_usd

    @property
    def turns(self) -> list[Turn]:
        """The history: every turn that was executed on the thread, those that failed among them.

        `LimitExceeded` if all of it would take too much memory.
        """
        return self._turns.listed(self._driver.record)

    def summary(self) -> SessionSummary:
        """What the turns of the thread amount to."""
        return self._turns.summary(self.thread_id, self.role, self.phase)

    # Turns

    @overload
    async def run_turn(self, function: Callable[[], Awaitable[T]], **options: Unpack[TurnOptions]) -> TurnResult[T]: ...

    @overload
    async def run_turn(self, function: Callable[[], T], **options: Unpack[TurnOptions]) -> TurnResult[T]: ...

    async def run_turn(self, function: Callable[[], Any], **options: Unpack[TurnOptions]) -> TurnResult[Any]:
        """What `function()` returns, and what it used: from the record if this thread has one under the key.

        `usage` is known beforehand, or a function of the result. The result is recorded before any budget is judged, so
        that nothing paid for is lost: after `BudgetExceeded` the same key returns it. A `fingerprint` says what the
        turn is about; the same key with another one is `KeyReused`. A turn that fails is recorded as failed, and
        executed again when its key comes again. Without a key a turn is recorded, and never replayed. After `timeout`
        it is abandoned (`StepTimeout`). A result that cannot be stored raises `UnstorableValue`, which has it as
        `value`; with `on_unstorable="warn"` it is returned, and would be made again. `reserve` is the most that the
        turn may use: it is noted before the call, the turn is refused if the budget has no room for it, and if the
        process dies it counts against the budget until the key is repeated.
        """
        return await self._execution(function, options).result()

    def run_turn_stream(
        self, function: Callable[[], AsyncIterator[T] | Iterable[T]], **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[T, None]:
        """The chunks of a stream, as they come. It is recorded when it ends, and a replay gives the same chunks.

        `usage` may be a function of the list of chunks. A stream that is left before its end is not recorded, and
        closed at the end of the session at the latest.
        """
        return self._streams.add(self._execution(function, options).chunks())

    def _execution(self, function: Callable[[], Any], given: TurnOptions) -> TurnExecution:
        check_call(function, given)
        driver, options = self._driver, self._options
        key = text_or_none(given.get("idempotency_key"), "idempotency_key") or ""
        fingerprint, timeout, unstorable = given.get("fingerprint"), given.get("timeout"), given.get("on_unstorable")
        return TurnExecution(
            driver,
            options,
            self._turns,
            self._streams,
            self._places,
            # Without a key, a name that no other claim of the thread ever gives: steps within it are its own.
            driver.key("turn", key) if key else f"turn~{driver.token}.{next(self._unnamed)}",
            function,
            None if (model := given.get("model")) is None else text_or_none(model, "model"),
            given.get("usage"),
            key,
            key or "turn",
            b"" if fingerprint is None else fingerprint_of(fingerprint, "fingerprint", "give plain data"),
            None if timeout is None else seconds(timeout, "timeout"),
            options.on_unstorable if unstorable is None else check_policy(unstorable),
            given.get("reserve"),
        )

    async def _leave(self, error: BaseException | None) -> None:
        """Close the streams that were left before their end. Answers that this session used are used up."""
        await self._streams.close()
        driver = self._driver
        if error is None and self._used_answers and not (driver.is_waiting or driver.is_lost or self._run.finished):
            visit = note(VISIT, None, driver.ports.now(), lasting=True)
            await driver.write(visit, journal=True, metadata={"visit": self._visit})

    # Within and between turns

    @overload
    async def step(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **policy: Unpack[StepPolicy]
    ) -> T: ...

    @overload
    async def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepPolicy]) -> T: ...

    async def step(self, key: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]) -> Any:
        """A step, executed once; see `Run.step`. Within a turn its key is the turn's own: another turn has another.

        So a turn that died halfway, and is executed again, continues behind its finished steps. Threads that a turn
        starts need its context: `copy_context().run(session.step, ...)`.
        """
        self._check_turn_known(key)
        return await self._run.step(self._driver.key_within(check_key(key)), function, *args, **policy)

    def _check_turn_known(self, key: str) -> None:
        """Refuse a step that may be part of a turn and does not say of which: another turn would get its result."""
        if not self._driver.is_within and any(name.startswith(TURN_NAMES) for name in tuple(self._driver.running)):
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
        key: str | None = None,
    ) -> Answer:
        """Ask a person, and suspend the session until there is an answer; see `Run.ask`.

        A question with a `key` is asked once in the thread. Without one, its answer is used until a session that used
        it was left normally: an equal question in a later session is asked again.
        """
        driver, question = self._driver, {"choices": choices, "deadline": deadline, "default": default}
        if key is not None:
            return await driver.ask(driver.key("input", check_key(key)), name, prompt, question)
        again = driver.ordinal_key("input", [self._visit, name, prompt, list(choices)]) if self._visit > 1 else ""
        answer = await driver.ask(again, name, prompt, question)
        self._used_answers = True
        return answer

    async def hand_over(self, role: str, phase: str | None = None, *, idempotency_key: str | None = None) -> None:
        """The turns that follow are taken by another role, or belong to another phase. Recorded as an event, once.

        A program that is run again comes to the same hand-over again. Hand-overs to the same role and phase differ by
        their order in the session, or by the key you give them.
        """
        phase = self.phase if phase is None else needed_text(phase, "phase")
        options = replace(self._options, role=needed_text(role, "role"), phase=phase)
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
        driver, hands = self._driver, [options.role, options.phase]
        return driver.key("hand", key) if key is not None else driver.ordinal_key("hand", hands)


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
        run = await self._block.enter()
        try:
            self._session = Session(run, self._options)
        except BaseException as error:
            await self._block.leave(error)
            raise
        return self._session

    async def leave(self, error: BaseException | None) -> None:
        """Give the thread back: idle, or failed with the error that left the block, or waiting."""
        try:
            if self._session is not None:
                await self._session._leave(error)  # noqa: SLF001  one file
        except BaseException as cut:
            await self._block.leave(error or cut)
            raise
        await self._block.leave(error)
