"""Executing a step: once recorded it is never executed again; what was begun and not finished is in doubt."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.entries import Attempted, Begun, Memo, StepDone, StepError
from holdfast.ports import Ticket
from holdfast.records.errors import (
    ConfigurationError,
    Diverged,
    KeyReused,
    RunCancelled,
    StepFailed,
    StepInDoubt,
    StepTimeout,
    Suspended,
)
from holdfast.records.event import EventKind
from holdfast.records.signatures import Parameters, parameters_of
from holdfast.records.times import from_microseconds
from holdfast.records.tracebacks import hide_our_frames
from holdfast.runs.asking import ask
from holdfast.runs.branches import mark_step
from holdfast.runs.failures import explain, failed_steps, text_of
from holdfast.runs.inputs import Inputs, kept_inputs
from holdfast.runs.keys import Key
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import Done, NotDone, StepOptions
from holdfast.runs.raising import noted, packed_error, rebuilt
from holdfast.runs.scope import current_frame, held, inner_frame
from holdfast.stores.backend import Transacting, Transaction
from holdfast.stores.writer import Intent

if TYPE_CHECKING:
    from holdfast.runs.run import Run

KEY_NAME = "idempotency_key"
DOUBT_CHOICES = ("retry", "done", "fail")
"""What a person may say about a step in doubt; the value that goes with `done` is the step's result."""
CONNECTION_NAME = "connection"
Place: TypeAlias = Token[tuple[Ticket, ...]]
"""What `begin_alone` gives for `end_alone`."""


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a step."""

    key: str
    name: str
    fingerprint: bytes
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    given: Mapping[str, Any] | Sequence[Any] = ()
    """The arguments that make this call another than others, by name or by place."""
    options: StepOptions = StepOptions()
    connection: Any = None
    """Of the user's, to record the result in one transaction with what the function writes."""


class StepHandle(msgspec.Struct, frozen=True):
    """A step begun by hand: to be given to `complete_step`."""

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


def takes_connection(function: Callable[..., Any]) -> bool:
    """True if a function takes `connection` by name."""
    return CONNECTION_NAME in _parameters(function).names


def _parameters(function: Callable[..., Any]) -> Parameters:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):
        return Parameters((), by_place=False, any_keyword=False)


def idempotency_key_of(run: "Run", key: str) -> str:
    """The same for every attempt at a step, in every process; another once its result was undone by a rollback.

    Also another in a fork, or in a thread that was deleted and created again.
    """
    incarnation, epoch = run._ledger.claim.log.binding.incarnation, run._ledger.journal.epochs.get(key, 0)
    undone = f"\0{epoch}" if epoch else ""
    return sha256(incarnation + key.encode() + undone.encode()).hexdigest()[:32]


def known_memo(run: "Run", key: str, fingerprint: bytes) -> Memo | None:
    """What the journal knows of a key; `KeyReused` if it was used for something else."""
    memo = run._ledger.journal.memos.get(key)
    if memo is not None and memo.fingerprint != fingerprint:
        raise KeyReused(
            f"step {key!r} of thread {run.thread_id!r} was recorded with other arguments; give this call another key"
        )
    return memo


def raised_again(memo: StepError, options: StepOptions) -> Exception:
    """The error of a step that failed for good: itself if it is one of `raises`, else `StepFailed`."""
    return rebuilt(memo, options.raised_classes) or failure_of(memo)


def failure_of(memo: StepError) -> StepFailed:
    """`StepFailed` for a step that failed for good, from its record."""
    kind = StepTimeout if memo.type == StepTimeout.__name__ else StepFailed
    text = f"step {memo.name!r} failed after {memo.attempts} attempt(s): {memo.type}: {memo.message}"
    return kind(text, type=memo.type, message=memo.message, key=memo.key)


def row_metadata(key: str, took: int, **more: str) -> bytes:
    """What the row of an ended step says of it: which one, and how many milliseconds it took."""
    return packed_metadata({"step": key, **more, "ms": max(took, 0) // 1000})


async def perform_step(run: "Run", call: StepCall) -> Any:
    """The step's result: from the record if there is one, else by executing it, and then recorded."""
    if (memo := recalled(run, call)) is not None:
        return decode(memo.value)
    place = begin_at_once(run, call.key) or await begin_alone(run, call.key)
    try:
        value = await _recalled_or_executed(run, call)
    except Exception as error:
        if isinstance(run._ledger.journal.memos.get(call.key), StepError):
            mark_step(run._ledger, run._ports, call.key)
        hide_our_frames(error)
        raise
    finally:
        end_alone(run._ledger.running.pop(call.key), place)
    mark_step(run._ledger, run._ports, call.key)
    return value


def recalled(run: "Run", call: StepCall) -> StepDone | None:
    """The record of a finished step, if its value may be returned at once: the run goes on, and nobody listens."""
    ledger = run._ledger
    if ledger.replay is not None:
        ledger.replay.asks_for(run, call.key)
    if ledger.suspension is not None or ledger.events.wants("step_replayed"):
        return None
    ledger.check()
    memo = known_memo(run, call.key, call.fingerprint)
    # In this order: a record of another branch may not be stored yet, but then that branch is still at the step.
    if not isinstance(memo, StepDone) or call.key in ledger.running:
        return None
    mark_step(ledger, run._ports, call.key)
    return memo


def begin_at_once(run: "Run", key: str) -> Place | None:
    """As `begin_alone`; None if that would have to wait."""
    ledger, ticket = run._ledger, Ticket()
    if ledger.suspension is not None:
        return None
    ledger.check()
    if ledger.running.setdefault(key, ticket) is not ticket:
        return None
    return held.set((*held.get(), ticket))


async def begin_alone(run: "Run", key: str) -> Place:
    """Wait until no other branch of the run is at this key, and be the one that is, until `end_alone`."""
    ledger, ticket = run._ledger, Ticket()
    await ledger.ready(run._ports)
    while (under_way := ledger.running.setdefault(key, ticket)) is not ticket:
        _check_not_within(key)
        await run._ports.wait(under_way)
        await ledger.ready(run._ports)
    return held.set((*held.get(), ticket))


def end_alone(ended: Ticket, place: Place) -> None:
    """Let the next branch have the key, which the caller has taken out of those that run.

    That is for the caller to do since an interrupt can strike as any function is entered, but not before it is called.
    """
    ended.settle(True)
    try:
        held.reset(place)
    except ValueError:
        return  # a coroutine that is never resumed is closed from elsewhere: what it held went with its context


def _check_not_within(key: str) -> None:
    frame = current_frame.get()
    if frame is not None and key in frame.within:
        raise ConfigurationError(f"step {key!r} calls itself: the inner call needs another key")


async def _recalled_or_executed(run: "Run", call: StepCall) -> Any:
    ledger, memo = run._ledger, known_memo(run, call.key, call.fingerprint)
    if isinstance(memo, StepDone):
        if ledger.events.wants("step_replayed"):
            await ledger.emit("step_replayed", step=call.key, name=call.name, seconds_saved=memo.took / 1e6)
        return decode(memo.value)
    if isinstance(memo, StepError):
        raise raised_again(memo, call.options)
    ledger.check_new(f"step {call.key!r}")
    if ledger.replay is not None and memo is None:
        await ledger.replay.check_step(run, call.key, call.name, call.given, effect=call.options.effect)
    execution = _Execution(run, call, memo)
    try:
        return await execution.result()
    except BaseException as error:
        await execution.left_by(error)
        raise


def _is_abandoned(error: Exception) -> bool:
    """True if a function was given up while it ran: its outcome is unknown."""
    return isinstance(error, StepTimeout) and not error.key


class _Execution:
    """One step, from its first attempt here to its recorded end."""

    def __init__(self, run: "Run", call: StepCall, memo: Begun | Attempted | None) -> None:
        self._run = run
        self._call = call
        self._memo = memo
        self._attempt = 0 if memo is None else memo.attempt
        self._started_at = run._ports.now()
        self._key = idempotency_key_of(run, call.key)
        self._inputs = kept_inputs(run._ledger.keep_inputs, call.given)  # now: the function may change its arguments
        self._is_open = False

    async def _tell(self, kind: EventKind, content: Mapping[str, object] | None = None, /, **details: object) -> None:
        self._is_open = kind == "step_started"
        common = {"step": self._call.key, "name": self._call.name}
        await self._run._ledger.emit(kind, content, **common, **details)

    async def left_by(self, error: BaseException) -> None:
        """The step is left without an end of its own: cancelled, suspended, or its result could not be stored."""
        if self._is_open:
            await self._tell("step_stopped", attempt=self._attempt, error=type(error).__name__)

    async def result(self) -> Any:
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
        while True:
            self._attempt += 1
            if self._call.options.effect:
                now = self._run._ports.now()
                self._memo = Begun(self._call.key, self._call.fingerprint, self._attempt, now, *self._inputs)
                await self._run._ledger.note(self._run._ports, self._memo)
            given = {"arguments": self._call.arguments, "named": dict(self._call.named)}
            await self._tell("step_started", given, attempt=self._attempt)
            transaction = await self._begun()
            try:
                value = await self._invoke()
                self._run._ledger.check_waits_not(self._call.key)
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

    async def _begun(self) -> Transaction | None:
        """The transaction that the function's own writes and its result share, if there is to be one."""
        if self._call.connection is None:
            return None
        backend = self._run._reader.backend
        if not isinstance(backend, Transacting):
            raise ConfigurationError(f"connection= is for steps on a PostgreSQL store; this one is {backend.kind}")
        transaction = backend.transaction(self._call.connection, self._run._ports)
        await transaction.begin()
        return transaction

    def _is_ours(self, error: Exception) -> bool:
        """True for what says nothing about the step: the run was cancelled, it diverged, another thread waits."""
        return isinstance(error, RunCancelled | Suspended | Diverged) or self._run._ledger.claim.failure is not None

    async def _invoke(self) -> Any:
        call = self._call
        named = dict(call.named)
        if call.options.effect and takes_key(call.function):
            named.setdefault(KEY_NAME, self._key)
        if call.connection is not None and takes_connection(call.function):
            named.setdefault(CONNECTION_NAME, call.connection)
        frame = inner_frame(self._run, Key(call.key), lambda: self._key, effect=call.options.effect)
        token = current_frame.set(frame)
        try:
            return await self._run._ports.invoke(call.function, call.arguments, named, call.options.timeout_seconds)
        finally:
            current_frame.reset(token)

    async def _failed(self, error: Exception) -> None:
        """Record a failed attempt and wait for the next; or, if it was the last, that the step failed."""
        call, ports = self._call, self._run._ports
        explain(error, self._run._ledger.plain_step)
        kind, message, now = type(error).__name__, text_of(error), ports.now()
        if self._attempt > call.options.retries or not isinstance(error, call.options.retry_on):
            raised = packed_error(error, call.options.raised_classes)
            ended = (kind, message, self._attempt, now, *self._inputs, raised)
            memo = StepError(call.key, call.fingerprint, call.name, *ended)
            metadata = row_metadata(call.key, now - self._started_at, error=kind)
            await self._run._ledger.commit(ports, Intent(cause="error", metadata=metadata), memo)
            await self._tell("step_failed", attempt=self._attempt, error=kind)
            if raised:
                raise noted(error, memo)
            hide_our_frames(error)
            raise failure_of(memo) from error
        wait = call.options.wait_after(self._attempt)
        due = now + round(wait * 1e6)
        failed = failed_steps(error)
        attempted = Attempted(call.key, call.fingerprint, self._attempt, kind, message, due, now, failed)
        await self._run._ledger.note(ports, attempted)
        await self._tell("step_retried", attempt=self._attempt, error=kind, wait_seconds=wait)
        await self._wait_until(due)

    async def _wait_until(self, due: int) -> None:
        self._run._ledger.check()
        remaining = (due - self._run._ports.now()) / 1e6
        if remaining > 0:
            await self._run._ports.sleep(remaining)
        self._run._ledger.check()

    async def _record(self, value: Any, transaction: Transaction | None = None) -> Any:
        call, ports = self._call, self._run._ports
        try:
            encoded = encode(value, path=f"result of step {call.name!r}")
            now = ports.now()
            took = max(now - self._started_at, 0)
            memo = StepDone(call.key, call.fingerprint, call.name, encoded, now, took, *self._inputs)
            intent = Intent(cause="event", metadata=row_metadata(call.key, took))
            if transaction is None:
                await self._run._ledger.commit(ports, intent, memo)
            else:
                await self._run._ledger.commit_within(ports, transaction, intent, memo)
        except BaseException as error:
            if transaction is not None:
                await transaction.roll_back(error)
            raise
        await self._tell("step_done", {"result": value}, attempt=self._attempt, seconds=memo.took / 1e6)
        return value

    # Doubt

    async def _resolve_doubt(self, begun: Begun) -> Any:
        """Done with the value, or anything else to execute it (again, with the same key)."""
        options = self._call.options
        policy = options.on_doubt or ("retry" if takes_key(self._call.function) else "fail")
        await self._tell("step_in_doubt", policy=policy)
        if policy == "verify":
            return await self._verify()
        if policy == "ask":
            return await self._ask(begun)
        if policy == "fail":
            raise StepInDoubt(
                f"step {self._call.key!r} of thread {self._run.thread_id!r} was begun and its end is not known: it may"
                " have had its effect. Find out and say how it ended: store.settle(thread_id, step, 'done', value), or"
                " `holdfast settle`. For the next time, let the function take idempotency_key=, or give on_doubt="
                "'verify', 'ask' or 'retry'"
            )
        return NotDone

    async def _verify(self) -> Any:
        assert self._call.options.verify is not None  # noqa: S101  checked with the options
        arguments = (self._key, *self._call.arguments)
        verdict = await self._run._ports.invoke(self._call.options.verify, arguments, {}, None)
        if not isinstance(verdict, Done) and verdict is not NotDone:
            raise ConfigurationError(f"verify= of step {self._call.key!r} returns holdfast.Done(value) or NotDone")
        return verdict

    async def _ask(self, begun: Begun) -> Any:
        """Ask once for each time it was begun: an answer settles one doubt, not the next."""
        name = f"{self._call.name} in doubt"
        payload = {"step": self._call.key, KEY_NAME: self._key, "begun_at": from_microseconds(begun.at)}
        if begun.arguments:
            payload["arguments"] = begun.arguments
        answer = await ask(self._run, name, payload, DOUBT_CHOICES, None, None, replayed=False)
        if answer.choice == "fail":
            raise StepInDoubt(f"step {self._call.key!r} was in doubt, and {answer.by or 'somebody'} let it fail")
        return Done(answer.value) if answer.choice == "done" else NotDone
