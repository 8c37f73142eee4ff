"""A run as its code sees it: steps, records, checkpoints, questions, sleep, and its end."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import NoneType
from typing import Any, TypeVar, Unpack, overload

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.cells import Document, Path
from holdfast.history.entries import Begun, Ended, Marked, Recorded, Slept, StepDone, StepError
from holdfast.history.log import NotACell
from holdfast.history.state_cells import STATE, Draft, draft_state, is_key, with_appended
from holdfast.history.state_cells import fingerprint as draft_fingerprint
from holdfast.ports import Ports
from holdfast.records.arguments import path_of_keys, plain_word
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, StepInDoubt, UnstorableValue
from holdfast.records.identity import CheckpointId
from holdfast.records.request import Answer
from holdfast.records.words import CAUSE_WORDS, PHASE_WORDS, Cause, Phase, Status
from holdfast.runs import asking
from holdfast.runs.arguments import Inputs, fingerprint_of, kept_inputs
from holdfast.runs.failures import failure_of
from holdfast.runs.keys import Key, kept, kind_at, part
from holdfast.runs.ledger import AlreadyWritten, Ledger, Made, failed_end, packed_metadata
from holdfast.runs.options import StepCallPolicy, StepOptions, seconds
from holdfast.runs.scope import Scope, current_frame, idempotency_key_of, mark_step
from holdfast.runs.steps import StepCall, StepHandle, known_memo, perform_step
from holdfast.stores.claim import FINISHED, Pending
from holdfast.stores.reader import Reader
from holdfast.stores.writer import Intent

T = TypeVar("T")

ADVICE = "bind it with functools.partial or a lambda, so that it is not an argument of the step"
DEFAULT_OPTIONS = StepOptions()


class Receipt(msgspec.Struct, eq=False):
    """A record that is being stored: `await` it to be sure that it is."""

    _ledger: Ledger
    _ports: Ports
    _pending: Pending | None

    @property
    def done(self) -> bool:
        """True if the record is stored, or could not be."""
        return self._pending is None or self._pending.settled

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Wait until the record is stored; raise the error if it could not be."""
        if self._pending is not None and self._pending.outcome is not True:
            await self._ports.settle(self._pending, self._ledger.claim.committer)


class Run:
    """A live claim on a thread, made by `store.run`. Use its methods within that block."""

    def __init__(self, ledger: Ledger, ports: Ports, reader: Reader, scope: Scope, *, keyed: bool = False) -> None:
        self._ledger = ledger
        self._ports = ports
        self._reader = reader
        self._own_scope = scope
        self._keyed = keyed

    def __repr__(self) -> str:
        return f"Run({self.thread_id!r}, status={self._ledger.status!r}, seq={self.seq})"

    # What it knows

    @property
    def thread_id(self) -> str:
        """The id of the thread that this run holds."""
        return self._ledger.claim.thread_id

    @property
    def resumed(self) -> bool:
        """True if the thread existed before this run."""
        return self._ledger.resumed

    @property
    def finished(self) -> bool:
        """True if the thread is complete or cancelled: recorded steps are replayed, new ones raise `Finished`."""
        return self._ledger.status in FINISHED

    @property
    def status(self) -> Status:
        """The thread's status."""
        return Status(self._ledger.status)

    @property
    def version(self) -> int:
        """The version of the durable function that began the thread; 0 if none has."""
        return self._ledger.version

    @property
    def seq(self) -> int:
        """The number of the newest checkpoint that is stored; 0 if there is none yet."""
        return self._ledger.claim.writer.settled_log.checkpoint

    @property
    def checkpoint_id(self) -> str | None:
        """The id of the newest checkpoint that is stored: to load it, fork it, pin it."""
        log = self._ledger.claim.writer.settled_log
        return str(CheckpointId(self.thread_id, log.checkpoint, log.binding.life)) if log.checkpoint else None

    @property
    def state(self) -> Any:
        """The thread's state now, as a copy; {} if none was saved yet."""
        return self._ledger.state

    @property
    def steps(self) -> list[Step]:
        """The steps recorded so far, by this run and earlier ones.

        Raises `LimitExceeded` if they would take too much memory together.
        """
        return self._ledger.lazy_steps.all()

    @property
    def result(self) -> Any:
        """The result that the thread was completed with; None if it is not complete."""
        return self._ledger.journal.result

    @property
    def _scope(self) -> Scope:
        """The scope that counts keys: of the step whose function calls, or of the run's body."""
        frame = current_frame.get()
        return frame.scope if frame is not None and frame.run._ledger is self._ledger else self._own_scope

    # Steps

    @overload
    async def step(
        self, key: str, function: Callable[..., Awaitable[T]], *args: Any, **policy: Unpack[StepCallPolicy]
    ) -> T: ...

    @overload
    async def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepCallPolicy]) -> T: ...

    async def step(self, key: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepCallPolicy]) -> Any:
        """Execute `function(*args)` once under this key, record its result and return it.

        If the key has a recorded result, return that and do not call the function. Raises `KeyReused` if it was
        recorded with other arguments, and `Finished` if the thread is finished and the step is new.

        A failed attempt is retried up to `retries` times for errors in `retry_on`, after `backoff` seconds; `timeout`
        limits each attempt. After the last one the step raises the error itself if it is one of `raises`, else
        `StepFailed`.

        `effect=True` is for functions with effects outside, such as a payment: the intent is recorded first, and
        `idempotency_key=` is passed if the function takes it. A step that was begun and never ended has an unknown
        outcome, which `on_doubt` resolves: `retry` (with the same key), `verify`, `ask` or `fail`.

        `connection`, on a PostgreSQL store, is a psycopg connection to the same database, in no transaction. The step
        begins one, in which the function writes (`connection=` is passed if it takes it) and its result is recorded:
        both are committed, or neither.
        """
        options = StepOptions.of(policy, "connection") if policy else DEFAULT_OPTIONS
        connection = policy.get("connection")
        if connection is not None and options.effect:
            raise ConfigurationError("a step with connection= needs no effect=True: its effect and its record are one")
        name, fingerprint = checked_step(key, function, args)
        call = StepCall(
            key=str(part(key)),
            name=name,
            fingerprint=fingerprint,
            function=function,
            arguments=args,
            given=args,
            options=options,
            connection=connection,
        )
        return await perform_step(self, call)

    async def begin_step(self, key: str, *args: Any, effect: bool = True) -> StepHandle:
        """Begin a step whose work you do yourself, and return its handle for `complete_step`.

        The handle has the idempotency key; `handle.done` is True if the step has a result already. With `effect` the
        intent is recorded. Raises `StepInDoubt` if the step was begun before and never ended.
        """
        ledger, name = self._ledger, check_key(key)
        step = str(part(key))
        await ledger.ready(self._ports)
        if ledger.replay is not None:
            ledger.replay.asks_for(self, step)
        fingerprint = fingerprint_of(list(args), f"step {name!r}", ADVICE)
        memo = known_memo(self, step, fingerprint)
        now, token = self._ports.now(), idempotency_key_of(self, step)
        if isinstance(memo, StepDone | StepError):
            mark_step(self, step)
        if isinstance(memo, StepDone):
            return StepHandle(step, name, fingerprint, token, now, done=True, value=decode(memo.value))
        if isinstance(memo, StepError):
            raise failure_of(memo)
        ledger.check_new(f"step {name!r}")
        if isinstance(memo, Begun):
            raise StepInDoubt(
                f"step {name!r} of thread {self.thread_id!r} was begun and its outcome is unknown; find out, then call"
                " complete_step(run.in_doubt(key), value)"
            )
        inputs = kept_inputs(ledger.keep_inputs, args)
        if effect:
            await ledger.note(self._ports, Begun(step, fingerprint, 1, now, *inputs))
        await ledger.emit("step_started", {"arguments": args}, step=step, name=name, attempt=1)
        return StepHandle(step, name, fingerprint, token, now, inputs=inputs)

    def in_doubt(self, key: str) -> StepHandle:
        """Return the handle of a step that was begun and never ended, to complete it with the result you found.

        Raises `ConfigurationError` if the step is not in doubt.
        """
        step = str(part(check_key(key)))
        memo = self._ledger.journal.memos.get(step)
        if not isinstance(memo, Begun):
            raise ConfigurationError(f"step {key!r} of thread {self.thread_id!r} is not in doubt")
        token, inputs = idempotency_key_of(self, step), Inputs(memo.arguments, memo.inputs)
        return StepHandle(step, key, memo.fingerprint, token, memo.at, inputs=inputs)

    async def complete_step(self, handle: StepHandle, value: Any) -> None:
        """Record the result of a step that was begun by `begin_step`. If it has one already, that stays."""
        if handle.done:
            mark_step(self, handle.key)
            return
        self._ledger.claim.check()
        now = self._ports.now()
        encoded = encode(value, path=f"result of step {handle.name!r}")
        took = max(now - handle.started_at, 0)
        memo = StepDone(handle.key, handle.fingerprint, handle.name, encoded, now, took, *handle.inputs)
        intent = Intent(cause="event", metadata=packed_metadata({"step": handle.key, "ms": took // 1000}))
        pending = await self._ledger.commit_once(self._ports, intent, memo)
        mark_step(self, handle.key)
        if pending is None:
            return
        details = {"step": handle.key, "name": handle.name, "attempt": 1, "seconds": took / 1e6}
        await self._ledger.emit("step_done", {"result": value}, **details)

    # Records

    def record(self, step: Step, key: str | None = None) -> Receipt:
        """Record a step that was done elsewhere, and return a receipt: `await` it to be sure that the step is stored.

        With a `key` it is recorded once, however often it is called.
        """
        self._ledger.check()
        fields = encode(fields_of(step), path="step")
        name = self._key_for("record", key, fields)
        entry = Recorded(name, fields, self._ports.now())
        intent = Intent(cause="event", metadata=packed_metadata({"step": step.action} if step.action else None))
        if name not in self._ledger.journal.marks:
            self._ledger.check_new("a record")
        try:
            pending: Pending | None = self._ledger.queue(self._ports, intent, partial(self._ledger.once, entry))
        except AlreadyWritten:
            pending = self._ledger.claim.last_row()
        mark_step(self, name or entry)
        return Receipt(self._ledger, self._ports, pending)

    async def checkpoint(
        self,
        state: Any,
        *,
        phase: Phase | str | None = None,
        cause: Cause | str = Cause.EVENT,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> None:
        """Save the state as the thread's next checkpoint. With a `key` it is saved once, however often it is called."""
        await self._ledger.ready(self._ports)
        draft, leaves = self._draft(state, self._ledger.claim.log.document)
        name = self._key_for("checkpoint", key, draft_fingerprint(draft) if self._keyed else b"")
        if await self._is_marked(name):
            return
        self._ledger.check_new("a checkpoint")
        intent = Intent(
            draft=draft,
            leaves=leaves,
            size=sum(len(cell) for cell in draft.values() if isinstance(cell, bytes)),
            phase=plain_word(PHASE_WORDS, phase, "phase"),
            cause=plain_word(CAUSE_WORDS, cause, "cause"),
            metadata=packed_metadata(metadata),
        )
        await self._mark(intent, name)

    async def append(self, path: str | Sequence[str], item: Any, key: str | None = None) -> None:
        """Append one item to the list at `path` of the state: the cost does not depend on the length of the list.

        `path` is a top-level key, or several keys. With a `key` the item is appended once.
        """
        await self._ledger.ready(self._ports)
        where = (*STATE, *path_of_keys(path))
        if len(where) < 2 or not all(map(is_key, where)):
            raise UnstorableValue(
                f"cannot append to {path!r}: the path must be one str, or several, such as 'messages'", path="state"
            )
        encoded = encode(item, path="item", limits=self._ledger.claim.log.binding.limits)
        name = self._key_for(kind_at("append", where[1:]), key, encoded)
        if await self._is_marked(name):
            return
        self._ledger.check_new("an append")
        try:
            await self._mark(Intent(appends=((where, encoded),), cause="event"), name)
        except NotACell:
            if self._ledger.has_changes:
                await self._ledger.commit(self._ports, Intent(cause="event"))
            await self._mark(partial(self._restated, where[1:], item), name)

    def _restated(self, path: Path, item: Any) -> Intent:
        """Return the row that appends to a list inside a cell: the whole state, with changes not written yet."""
        draft, leaves = self._draft(with_appended(self.state, path, item))
        self._ledger.drop_changes()
        return Intent(draft=draft, leaves=leaves, cause="event")

    def _draft(self, state: Any, against: Document | None = None) -> tuple[Draft, dict[Path, object]]:
        return draft_state(state, against, self._ledger.claim.log.binding.limits)

    def _key_for(self, kind: str, key: str | None, content: bytes) -> str:
        """Return the key under which something is recorded; empty if it is done each time."""
        if key is not None:
            return str(kept(kind, check_key(key)))
        if not self._keyed:
            return ""
        return self._scope.ordinal(kind, fingerprint_of(content, kind), self._ports.branch())

    async def _is_marked(self, key: str) -> bool:
        """True if this key has its row, perhaps by another branch. It is stored then."""
        if key not in self._ledger.journal.marks:
            return False
        await self._ledger.wait_for_rows(self._ports)
        return True

    async def _mark(self, made: Made, key: str) -> None:
        """Write a row, with its key if it has one."""
        ledger, ports = self._ledger, self._ports
        pending = await (ledger.commit_once(ports, made, Marked(key)) if key else ledger.commit(ports, made))
        if pending is not None:
            await ledger.emit_saved(pending)

    # Waiting

    async def ask(
        self,
        name: str,
        payload: Any = None,
        *,
        choices: Sequence[str] = (),
        deadline: datetime | timedelta | float | None = None,
        default: Any = None,
    ) -> Answer:
        """Ask a person or another program a question, and return the answer.

        Until `store.answer` answers it, the run is suspended: leaving its block raises `Suspended`. At the `deadline`
        the `default` is the answer (one of the choices, or without choices a value); without a default
        `RequestExpired` is raised.
        """
        return await asking.ask(self, check_key(name), payload, choices, deadline, default)

    async def confirm(
        self,
        name: str,
        payload: Any = None,
        *,
        deadline: datetime | timedelta | float | None = None,
        default: bool | None = None,
    ) -> bool:
        """Ask for a yes or no, as `ask` does. Return True if the answer is `approve`, False if it is `reject`."""
        choice = None if default is None else "approve" if default else "reject"
        answer = await self.ask(name, payload, choices=asking.YES_OR_NO, deadline=deadline, default=choice)
        return answer.choice == "approve"

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleep, durably: time before a crash counts. Suspends the run if the rest is longer than its lease."""
        ledger = self._ledger
        await ledger.ready(self._ports)
        key = self._scope.ordinal("sleep", fingerprint_of(seconds(duration), "sleep"), self._ports.branch())
        due = ledger.journal.timers.get(key)
        if due is None:
            ledger.check_new("a sleep")
            due = self._ports.now() + round(seconds(duration) * 1e6)
            await ledger.note(self._ports, Slept(key, due))
        remaining = due - self._ports.now()
        if remaining > ledger.claim.lease:
            await ledger.suspend(self._ports)
        if remaining > 0:
            await self._ports.sleep(remaining / 1e6)
        ledger.check()

    # The end

    async def complete(self, result: Any = None) -> None:
        """Complete the thread with this result. Afterwards anything new in it raises `Finished`.

        Calling it again with the same result changes nothing: a program that crashed right after it may run again.
        """
        entry = self._completion(result)
        if entry is not None:
            await self._ledger.end(self._ports, entry)

    def _complete_on_release(self, result: Any) -> None:
        """Complete the thread in the swap that releases its lease. A run that was to be handed over ends here."""
        if self._ledger.is_handed_over and not self._ledger.has_stopped:
            self._ledger.suspension = None
        entry = self._completion(result)
        if entry is not None:
            self._ledger.end_on_release(entry)

    def _completion(self, result: Any) -> Ended | None:
        """Return the end of the run; None if it has ended with this result."""
        value, now = encode(result, path="result"), self._ports.now()
        ended = self._ledger.journal.ended
        if self.finished and ended is not None and (ended.status, ended.value) == (Status.COMPLETE.value, value):
            self._ledger.check()
            return None
        self._ledger.check_new("an end")
        return Ended(Status.COMPLETE.value, value, "", "", (), now)

    async def fail(self, error: BaseException | str) -> None:
        """Mark the thread as failed, for this reason. Running it again resumes after its finished steps."""
        self._ledger.check_new("an end")
        await self._ledger.end(self._ports, failed_end(error, self._ports.now()))


def for_plain_code(run: Run) -> Run:
    """Return the same run for code that cannot await."""
    ports = run._ports.for_plain_code()
    return Run(run._ledger, ports, run._reader, run._own_scope, keyed=run._keyed)


def check_key(key: object) -> str:
    """Return a key as text; raise `ConfigurationError` unless it is a str that is not empty."""
    text = str(key) if isinstance(key, Key) else key
    if not isinstance(text, str) or not is_key(text) or not text:
        raise ConfigurationError(f"a key must be a str that is not empty, got {key!r}")
    return text


def checked_step(key: str, function: object, args: tuple[Any, ...]) -> tuple[str, bytes]:
    """Return the name of a step and the fingerprint of its arguments; raise if it cannot be called so."""
    name = check_key(key)
    if not callable(function):
        kind = type(function).__name__
        raise ConfigurationError(f"step {name!r} takes a function to call, not {kind}: run.step(key, function, *args)")
    return name, fingerprint_of(list(args), f"step {name!r}", ADVICE)


_STEP_KINDS: dict[str, tuple[type, ...]] = {
    "action": (str,),
    "tool_called": (str, NoneType),
    "error": (str, NoneType),
    "metadata": (dict,),
    "idempotent": (bool,),
}
"""The types that tools rely on when they show a step; other fields may be anything."""
_STEP_DEFAULTS = {name: getattr(Step(), name) for name in Step.__struct_fields__ if name != "index"}


def fields_of(step: Step) -> dict[str, Any]:
    """Return the fields of a step that differ from their defaults, without its index."""
    if not isinstance(step, Step):
        raise ConfigurationError(f"a record must be a holdfast.Step, not {type(step).__name__}")
    for name, kinds in _STEP_KINDS.items():
        if not isinstance(getattr(step, name), kinds):
            words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
            raise ConfigurationError(f"`{name}` of a Step must be {words}, got {getattr(step, name)!r}")
    fields = {name: getattr(step, name) for name in _STEP_DEFAULTS}
    # Where the default is None, values are not compared: arrays of numpy refuse that.
    return {
        name: value
        for name, value in fields.items()
        if (value is not None if _STEP_DEFAULTS[name] is None else value != _STEP_DEFAULTS[name])
    }
