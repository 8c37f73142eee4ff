"""Executing a step: once recorded it is never executed again; one that was begun and not ended is in doubt."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.entries import Attempted, Begun, Memo, StepDone, StepError
from holdfast.ports import Ticket
from holdfast.records.errors import (
    ConfigurationError,
    Diverged,
    KeyReused,
    RunCancelled,
    StepInDoubt,
    StepTimeout,
    Suspended,
)
from holdfast.records.signatures import Parameters, parameters_of
from holdfast.records.times import from_microseconds
from holdfast.records.tracebacks import hide_our_frames
from holdfast.runs.arguments import Inputs, kept_inputs
from holdfast.runs.asking import ask
from holdfast.runs.failures import explain, failed_steps, failure_of, name_step, packed_error, rebuilt, text_of
from holdfast.runs.keys import Key
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import Done, NotDone, StepOptions, seconds
from holdfast.runs.rates import wait_for_turn
from holdfast.runs.scope import current_frame, held, idempotency_key_of, inner_frame, mark_step
from holdfast.stores.backend import Transacting, Transaction
from holdfast.stores.writer import Intent

if TYPE_CHECKING:
    from holdfast.runs.run import Run

KEY_NAME = "idempotency_key"
CONNECTION_NAME = "connection"
DOUBT_CHOICES = ("retry", "done", "fail")
"""How a person may settle a step in doubt; the value given with `done` becomes the step's result."""
Place: TypeAlias = Token[tuple[Ticket, ...]]
"""What `begin_alone` returns for `end_alone`."""


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a step."""

    key: str
    name: str
    fingerprint: bytes
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    given: Mapping[str, Any] | Sequence[Any] = ()
    """The arguments that distinguish this call from others, by name or by place."""
    options: StepOptions = StepOptions()
    connection: Any = None
    """The user's connection, to record the result in one transaction with what the function writes."""


class StepHandle(msgspec.Struct, frozen=True):
    """A step begun by `run.begin_step`: pass it to `complete_step`."""

    key: str
    name: str
    fingerprint: bytes
    idempotency_key: str
    started_at: int
    done: bool = False
    """True if it has a result already: `value`."""
    value: Any = None
    inputs: Inputs = Inputs()
    """What its row keeps of its arguments."""


def takes_key(function: Callable[..., Any]) -> bool:
    """True if a function takes `idempotency_key`, by name or among any keywords."""
    taken = _parameters(function)
    return KEY_NAME in taken.names or taken.any_keyword


def _parameters(function: Callable[..., Any]) -> Parameters:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):
        return Parameters((), by_place=False, any_keyword=False)


def known_memo(run: "Run", key: str, fingerprint: bytes) -> Memo | None:
    """Return what the journal has under a key; raise `KeyReused` if it was used for something else."""
    memo = run._ledger.journal.memos.get(key)
    if memo is not None and memo.fingerprint != fingerprint:
        raise KeyReused(
            f"step {key!r} of thread {run.thread_id!r} was recorded with other arguments; give this call another key"
        )
    return memo


async def perform_step(run: "Run", call: StepCall) -> Any:
    """Return the step's result: the recorded one, else execute the step and record its result."""
    ledger = run._ledger
    if ledger.replay is not None:
        ledger.replay.asks_for(run, call.key)
    place = await begin_alone(run, call.key)
    try:
        value = await _replayed_or_executed(run, call)
    except Exception as error:
        if isinstance(ledger.journal.memos.get(call.key), StepError):
            mark_step(run, call.key)
        if ledger.rehearsal is not None:
            ledger.rehearsal.note(error)
        hide_our_frames(error)
        raise
    finally:
        end_alone(ledger.running.pop(call.key), place)
    mark_step(run, call.key)
    return value


async def begin_alone(run: "Run", key: str) -> Place:
    """Wait until no other branch of the run is at this key, and keep others from it until `end_alone`."""
    ledger, ticket = run._ledger, Ticket()
    await ledger.ready(run._ports)
    while (under_way := ledger.running.setdefault(key, ticket)) is not ticket:
        frame = current_frame.get()
        if frame is not None and key in frame.within:
            raise ConfigurationError(f"step {key!r} calls itself: the inner call needs another key")
        await run._ports.wait(under_way)
        await ledger.ready(run._ports)
    return held.set((*held.get(), ticket))


def end_alone(ended: Ticket, place: Place) -> None:
    """Let the next branch have the key, which the caller has removed from `running`.

    The caller does that because an interrupt can strike as any function is entered, but not before the call.
    """
    ended.settle(True)
    try:
        held.reset(place)
    except ValueError:
        return  # a coroutine that is never resumed is closed from another context: there is nothing to reset


async def _replayed_or_executed(run: "Run", call: StepCall) -> Any:
    ledger, memo = run._ledger, known_memo(run, call.key, call.fingerprint)
    if isinstance(memo, StepDone):
        await ledger.emit("step_replayed", step=call.key, name=call.name, seconds_saved=memo.took / 1e6)
        return decode(memo.value)
    if isinstance(memo, StepError):
        raise rebuilt(memo, call.options.raised_classes) or failure_of(memo)
    ledger.check_open(f"step {call.key!r}")
    if ledger.replay is not None and memo is None:
        await ledger.replay.check_step(run, call.key, call.name, call.given, effect=call.options.effect)
    await ledger.stop_rehearsal(run._ports, f"step {call.name!r}")
    execution = _Execution(run, call, memo)
    try:
        return await execution.result()
    except BaseException as error:
        await execution.stopped_by(error)
        raise


async def invoke_within(
    run: "Run",
    key: str,
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    limit: float | None = None,
    *,
    effect: bool = False,
) -> Any:
    """Call a user's function as the work under a key: the steps that it calls belong to that key."""
    await run._ledger.stop_rehearsal(run._ports, f"the work under {key!r}")
    outer = current_frame.set(inner_frame(run, Key(key), effect=effect))
    try:
        value = await run._ports.invoke(function, arguments, named or {}, limit)
    finally:
        current_frame.reset(outer)
    if run._ledger.suspension is not None:
        run._ledger.check_waits_not(key)
    return value


class _Execution:
    """One step, from its first attempt here to its recorded end."""

    def __init__(self, run: "Run", call: StepCall, memo: Begun | Attempted | None) -> None:
        self._run = run
        self._ledger = run._ledger
        self._ports = run._ports
        self._call = call
        self._memo = memo
        self._attempt = 0 if memo is None else memo.attempt
        self._started_at = run._ports.now()
        self._inputs = kept_inputs(run._ledger.keep_inputs, call.given)  # now: the function may change its arguments
        self._names = {"step": call.key, "name": call.name}
        self._is_open = False
        """True while listeners know that an attempt started, and not how it ended."""

    async def stopped_by(self, error: BaseException) -> None:
        """Announce that the step stopped without an end: cancelled, suspended, or its result could not be stored."""
        if self._is_open:
            details = {"attempt": self._attempt, "error": type(error).__name__}
            await self._ledger.emit("step_stopped", **self._names, **details)

    async def result(self) -> Any:
        """Wait for the next attempt, or resolve a doubt, as the record demands; then execute the step."""
        memo = self._memo
        if isinstance(memo, Attempted):
            await self._wait_until(memo.due)
        if isinstance(memo, Begun):
            self._attempt -= 1
            verdict = await self._resolve_doubt(memo)
            if isinstance(verdict, Done):
                return await self._record(verdict.value)
        return await self._execute()

    async def _execute(self) -> Any:
        call = self._call
        while True:
            if call.options.rate is not None:
                await wait_for_turn(self._run, call.options.rate, call.options.units_of(call.arguments, call.named))
            self._attempt += 1
            if call.options.effect:
                self._memo = Begun(call.key, call.fingerprint, self._attempt, self._ports.now(), *self._inputs)
                await self._ledger.note(self._ports, self._memo)
            given = {"arguments": call.arguments, "named": dict(call.named)}
            self._is_open = True
            await self._ledger.emit("step_started", given, **self._names, attempt=self._attempt)
            transaction = None if call.connection is None else await self._begin_transaction()
            try:
                value = await self._invoke()
            except BaseException as error:
                if transaction is not None:
                    await transaction.roll_back(error)
                if not isinstance(error, Exception) or self._is_ours(error):
                    raise
                if isinstance(self._memo, Begun) and _is_abandoned(error):
                    verdict = await self._resolve_doubt(self._memo)
                    if isinstance(verdict, Done):
                        return await self._record(verdict.value)
                await self._failed(error)
                continue
            return await self._record(value, transaction)

    async def _begin_transaction(self) -> Transaction:
        """Begin the transaction that includes the function's own writes and its result."""
        backend = self._run._reader.backend
        if not isinstance(backend, Transacting):
            raise ConfigurationError(f"`connection` is for steps on a PostgreSQL store; this one is {backend.kind}")
        transaction = backend.transaction(self._call.connection, self._ports)
        await transaction.begin()
        return transaction

    def _is_ours(self, error: Exception) -> bool:
        """True for errors that say nothing about the step: the run was cancelled, it diverged, another thread waits."""
        return isinstance(error, RunCancelled | Suspended | Diverged) or self._ledger.claim.failure is not None

    async def _invoke(self) -> Any:
        call, options, named = self._call, self._call.options, dict(self._call.named)
        if options.effect and takes_key(call.function):
            named.setdefault(KEY_NAME, idempotency_key_of(self._run, call.key))
        if call.connection is not None and CONNECTION_NAME in _parameters(call.function).names:
            named.setdefault(CONNECTION_NAME, call.connection)
        limit = None if options.timeout is None else seconds(options.timeout, "timeout")
        return await invoke_within(
            self._run, call.key, call.function, call.arguments, named, limit, effect=options.effect
        )

    async def _failed(self, error: Exception) -> None:
        """Record a failed attempt and wait for the next; or, if it was the last, that the step failed."""
        options = self._call.options
        explain(error, self._ledger.plain_step)
        if self._attempt > options.retries or not isinstance(error, options.retry_on):
            await self._fail(error)
        kind, now, wait = type(error).__name__, self._ports.now(), options.wait_after(self._attempt)
        due = now + round(wait * 1e6)
        failure = (self._attempt, kind, text_of(error), due, now, failed_steps(error))
        await self._ledger.note(self._ports, Attempted(self._call.key, self._call.fingerprint, *failure))
        self._is_open = False
        details = {"attempt": self._attempt, "error": kind, "wait_seconds": wait}
        await self._ledger.emit("step_retried", **self._names, **details)
        await self._wait_until(due)

    async def _fail(self, error: Exception) -> NoReturn:
        """Record that the step failed for good, and raise its error."""
        call, kind, now = self._call, type(error).__name__, self._ports.now()
        raised = packed_error(error, call.options.raised_classes)
        ended = (kind, text_of(error), self._attempt, now, *self._inputs, raised)
        memo = StepError(call.key, call.fingerprint, call.name, *ended)
        metadata = {"step": call.key, "error": kind, "ms": max(now - self._started_at, 0) // 1000}
        await self._ledger.commit(self._ports, Intent(cause="error", metadata=packed_metadata(metadata)), memo)
        self._is_open = False
        await self._ledger.emit("step_failed", **self._names, attempt=self._attempt, error=kind)
        if raised:
            raise name_step(error, memo)
        hide_our_frames(error)
        raise failure_of(memo) from error

    async def _wait_until(self, due: int) -> None:
        self._ledger.check()
        remaining = (due - self._ports.now()) / 1e6
        if remaining > 0:
            await self._ports.sleep(remaining)
        self._ledger.check()

    async def _record(self, value: Any, transaction: Transaction | None = None) -> Any:
        call, ports = self._call, self._ports
        try:
            encoded = encode(value, path=f"result of step {call.name!r}")
            now = ports.now()
            took = max(now - self._started_at, 0)
            memo = StepDone(call.key, call.fingerprint, call.name, encoded, now, took, *self._inputs)
            intent = Intent(cause="event", metadata=packed_metadata({"step": call.key, "ms": took // 1000}))
            if transaction is None:
                await self._ledger.commit(ports, intent, memo)
            else:
                await self._ledger.commit_within(ports, transaction, intent, memo)
        except BaseException as error:
            if transaction is not None:
                await transaction.roll_back(error)
            raise
        self._is_open = False
        details = {"attempt": self._attempt, "seconds": took / 1e6}
        await self._ledger.emit("step_done", {"result": value}, **self._names, **details)
        return value

    # Doubt

    async def _resolve_doubt(self, begun: Begun) -> Any:
        """Return `Done` with the value; anything else means to execute the step (again, with the same key)."""
        options, call = self._call.options, self._call
        policy = options.on_doubt or ("retry" if takes_key(call.function) else "fail")
        self._is_open = False
        await self._ledger.emit("step_in_doubt", **self._names, policy=policy)
        if policy == "verify":
            return await self._verify()
        if policy == "ask":
            return await self._ask(begun)
        if policy == "fail":
            raise StepInDoubt(
                f"step {call.key!r} of thread {self._run.thread_id!r} was begun and its outcome is unknown: it may have"
                " had its effect. Find out, then call store.settle(thread_id, step, 'done', value) or `holdfast"
                " settle`. To avoid this, let the function take idempotency_key=, or set on_doubt= to 'verify', 'ask'"
                " or 'retry'"
            )
        return NotDone

    async def _verify(self) -> Any:
        assert self._call.options.verify is not None  # noqa: S101  checked with the options
        arguments = (idempotency_key_of(self._run, self._call.key), *self._call.arguments)
        verdict = await self._ports.invoke(self._call.options.verify, arguments, {}, None)
        if not isinstance(verdict, Done) and verdict is not NotDone:
            raise ConfigurationError(
                f"verify= of step {self._call.key!r} must return Done(value) or NotDone, got {verdict!r}"
            )
        return verdict

    async def _ask(self, begun: Begun) -> Any:
        """Ask once for each time it was begun: an answer settles one doubt, not the next."""
        key = self._call.key
        payload = {
            "step": key,
            KEY_NAME: idempotency_key_of(self._run, key),
            "begun_at": from_microseconds(begun.at),
        }
        if begun.arguments:
            payload["arguments"] = begun.arguments
        answer = await ask(self._run, f"{self._call.name} in doubt", payload, DOUBT_CHOICES, None, None, replayed=False)
        if answer.choice == "fail":
            raise StepInDoubt(f"step {key!r} was in doubt, and {answer.by or 'a person'} chose to let it fail")
        return Done(answer.value) if answer.choice == "done" else NotDone


def _is_abandoned(error: Exception) -> bool:
    """True if the function was abandoned while it ran: its outcome is unknown."""
    return isinstance(error, StepTimeout) and not error.key
