"""A run as its code sees it: steps, records, checkpoints, questions, sleep, and its end."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import datetime, timedelta
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
from holdfast.runs.branches import mark_step
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.inputs import Inputs, kept_inputs
from holdfast.runs.keys import Key, kept, kind_at, part
from holdfast.runs.ledger import Ledger, packed_metadata
from holdfast.runs.options import StepCallPolicy, StepOptions, seconds
from holdfast.runs.scope import Scope, current_frame, fingerprint_of
from holdfast.runs.steps import (
    StepCall,
    StepHandle,
    failure_of,
    idempotency_key_of,
    known_memo,
    perform_step,
    row_metadata,
)
from holdfast.stores.claim import Pending
from holdfast.stores.reader import Reader
from holdfast.stores.writer import Intent

T = TypeVar("T")

ADVICE = "bind it with functools.partial or a lambda, so that it is no argument of the step"
LARGE_BYTES = 1 << 20


class Receipt(msgspec.Struct, eq=False):
    """A record on its way: `await` it to know that it is stored."""

    _ledger: Ledger
    _ports: Ports
    _pending: Pending | None

    @property
    def done(self) -> bool:
        """True if it is stored, or has failed."""
        return self._pending is None or self._pending.settled

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()

    async def wait(self) -> None:
        """Wait until it is stored; raise why it could not be."""
        if self._pending is not None and self._pending.outcome is not True:
            await self._ports.settle(self._pending, self._ledger.claim.committer)


class Run:
    """A live claim on a thread. Made by `store.run`; its methods are for the code within that block."""

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
        """The thread this run holds."""
        return self._ledger.claim.thread_id

    @property
    def resumed(self) -> bool:
        """True if the thread existed before this run."""
        return self._ledger.resumed

    @property
    def finished(self) -> bool:
        """True if the thread is complete or cancelled: recorded steps return, and nothing new is done."""
        return self._ledger.finished

    @property
    def status(self) -> Status:
        """The thread's status."""
        return Status(self._ledger.status)

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
        """What was recorded so far, by this run and those before it.

        `LimitExceeded` if all of it would take too much memory.
        """
        return self._ledger.lazy_steps.all()

    @property
    def result(self) -> Any:
        """What the thread was completed with; None if it is not complete."""
        return self._ledger.journal.result

    @property
    def _scope(self) -> Scope:
        """Where keys are counted: in the step whose function asks, or in the run's body."""
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
        """The result of `function(*args)`, executed once: when the key has a recorded result, that is returned.

        `effect=True` notes the intent first and hands over `idempotency_key=` if the function takes it; a step that was
        begun and never ended is then resolved by `on_doubt`: `retry` (with the same key), `verify`, `ask` or `fail`.
        After `retries` further attempts, for errors in `retry_on`, with `backoff` seconds between them and `timeout`
        for each, it raises the error itself if that is one of `raises`, else `StepFailed`. The same key with other
        arguments is `KeyReused`.

        `connection`, on a PostgreSQL store: one of psycopg's to the same database, in no transaction. The step begins
        one, in which the function writes (it is handed `connection=` if it takes it) and its result is recorded, and
        commits it: both are there, or neither.
        """
        options, connection = StepOptions.of(policy, "connection"), policy.get("connection")
        if connection is not None and options.effect:
            raise ConfigurationError("a step with connection= needs no effect=True: its effect and its record are one")
        name = check_key(key)
        check_function(function, name)
        fingerprint = fingerprint_of(list(args), f"step {name!r}", ADVICE)
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
        """Begin a step by hand: its handle says whether it is done already, and has its idempotency key.

        With `effect` the intent is noted; `StepInDoubt` if that was done before and the step never ended.
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
            mark_step(ledger, self._ports, step)
        if isinstance(memo, StepDone):
            return StepHandle(step, name, fingerprint, token, now, done=True, value=decode(memo.value))
        if isinstance(memo, StepError):
            raise failure_of(memo)
        ledger.check_new(f"step {name!r}")
        if isinstance(memo, Begun):
            raise StepInDoubt(
                f"step {name!r} of thread {self.thread_id!r} was begun and its end is not known; find out, and give"
                " its result to complete_step(run.in_doubt(key), value)"
            )
        inputs = kept_inputs(ledger.keep_inputs, args)
        if effect:
            await ledger.note(self._ports, Begun(step, fingerprint, 1, now, *inputs))
        await ledger.emit("step_started", {"arguments": args}, step=step, name=name, attempt=1)
        return StepHandle(step, name, fingerprint, token, now, inputs=inputs)

    def in_doubt(self, key: str) -> StepHandle:
        """The handle of a step that was begun and never ended, to complete it with what was found out."""
        step = str(part(check_key(key)))
        memo = self._ledger.journal.memos.get(step)
        if not isinstance(memo, Begun):
            raise ConfigurationError(f"step {key!r} of thread {self.thread_id!r} is not in doubt")
        token, inputs = idempotency_key_of(self, step), Inputs(memo.arguments, memo.inputs)
        return StepHandle(step, key, memo.fingerprint, token, memo.at, inputs=inputs)

    async def complete_step(self, handle: StepHandle, value: Any) -> None:
        """Record the result of a step begun by hand."""
        if handle.done:
            mark_step(self._ledger, self._ports, handle.key)
            return
        self._ledger.claim.check()
        now = self._ports.now()
        encoded = encode(value, path=f"result of step {handle.name!r}")
        took = max(now - handle.started_at, 0)
        memo = StepDone(handle.key, handle.fingerprint, handle.name, encoded, now, took, *handle.inputs)
        intent = Intent(cause="event", metadata=row_metadata(handle.key, took))
        await self._ledger.commit(self._ports, intent, memo)
        mark_step(self._ledger, self._ports, handle.key)
        details = {"step": handle.key, "name": handle.name, "attempt": 1, "seconds": took / 1e6}
        await self._ledger.emit("step_done", {"result": value}, **details)

    # Records

    def record(self, step: Step, key: str | None = None) -> Receipt:
        """Record a step that was done elsewhere. Queued at once; `await` the receipt to know that it is stored."""
        self._ledger.check()
        fields = encode(fields_of(step), path="step")
        name = self._key_for("record", key, fields)
        if name in self._ledger.journal.marks:
            mark_step(self._ledger, self._ports, name)
            return Receipt(self._ledger, self._ports, None)
        self._ledger.check_new("a record")
        entry = Recorded(name, fields, self._ports.now())
        intent = Intent(cause="event", metadata=packed_metadata({"step": step.action} if step.action else None))
        pending = self._ledger.queue(self._ports, intent, (entry,))
        mark_step(self._ledger, self._ports, name or entry)
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
        """Save the state as the thread's next checkpoint."""
        await self._ledger.ready(self._ports)
        draft, leaves = self._draft(state, self._ledger.claim.log.document)
        name = self._key_for("checkpoint", key, draft_fingerprint(draft) if self._keyed else b"")
        if name in self._ledger.journal.marks:
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
        """Append one item to the list at `path` of the state, at the same cost however long the list is."""
        await self._ledger.ready(self._ports)
        where = (*STATE, *path_of_keys(path))
        if len(where) < 2 or not all(map(is_key, where)):
            raise UnstorableValue(
                f"append to {path!r}: a path is one str, or several, such as 'messages'", path="state"
            )
        encoded = encode(item, path="item", limits=self._ledger.claim.log.binding.limits)
        name = self._key_for(kind_at("append", where[1:]), key, encoded)
        if name in self._ledger.journal.marks:
            return
        self._ledger.check_new("an append")
        try:
            await self._mark(Intent(appends=((where, encoded),), cause="event"), name)
        except NotACell:
            if self._ledger.has_changes:
                await self._ledger.commit(self._ports, Intent(cause="event"))
            state = with_appended(self.state, where[1:], item)
            draft, leaves = self._draft(state)
            await self._mark(Intent(draft=draft, leaves=leaves, cause="event"), name)

    def _draft(self, state: Any, against: Document | None = None) -> tuple[Draft, dict[Path, object]]:
        return draft_state(state, against, self._ledger.claim.log.binding.limits)

    def _key_for(self, kind: str, key: str | None, content: bytes) -> str:
        """The key under which something is recorded; empty if it is to be done each time."""
        if key is not None:
            return str(kept(kind, check_key(key)))
        if not self._keyed:
            return ""
        fingerprint = fingerprint_of(content, kind, "")
        return self._scope.ordinal(kind, fingerprint, self._ports.branch())

    async def _mark(self, intent: Intent, key: str) -> None:
        pending = await self._ledger.commit(self._ports, intent, *([Marked(key)] if key else []))
        await self._ledger.emit_saved(pending)

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
        """Ask the outside a question, and suspend the run until it is answered.

        At the deadline the default is taken (one of the choices, or without choices a value); `RequestExpired` if there
        is none.
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
        """Ask for a yes or no: True if it was approved."""
        choice = None if default is None else "approve" if default else "reject"
        answer = await self.ask(name, payload, choices=("approve", "reject"), deadline=deadline, default=choice)
        return answer.choice == "approve"

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleep, durably: what was slept before a crash counts. Longer than the lease, the run is suspended."""
        ledger = self._ledger
        await ledger.ready(self._ports)
        key = self._scope.ordinal("sleep", fingerprint_of(seconds(duration), "sleep", ""), self._ports.branch())
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
        """The thread is complete, with this result. Nothing new can be done in it afterwards.

        Saying it again with the same result changes nothing: a program that died right after it is run again.
        """
        value, now = encode(result, path="result"), self._ports.now()
        ended = self._ledger.journal.ended
        if self.finished and ended is not None and (ended.status, ended.value) == (Status.COMPLETE.value, value):
            self._ledger.check()
            return
        self._ledger.check_new("an end")
        await self._ledger.end(self._ports, Ended(Status.COMPLETE.value, value, "", "", (), now))

    async def fail(self, error: BaseException | str) -> None:
        """The thread has failed, for this reason. Running it again continues from its finished steps."""
        self._ledger.check_new("an end")
        kind = type(error).__name__ if isinstance(error, BaseException) else ""
        entry = Ended(Status.FAILED.value, encode(None), kind, text_of(error), failed_steps(error), self._ports.now())
        await self._ledger.end(self._ports, entry)


def for_plain_code(run: Run) -> Run:
    """The same run for code that cannot await."""
    ports = run._ports.for_plain_code()
    return Run(run._ledger, ports, run._reader, run._own_scope, keyed=run._keyed)


def check_key(key: object) -> str:
    """A key: a str that is not empty."""
    text = str(key) if isinstance(key, Key) else key
    if not isinstance(text, str) or not is_key(text) or not text:
        raise ConfigurationError(f"{key!r} is not a key; give a str that is not empty")
    return text


def check_function(function: object, key: str) -> None:
    """A step is given a function, and not what that returned."""
    if not callable(function):
        kind = type(function).__name__
        raise ConfigurationError(f"step {key!r} takes a function to call, not {kind}: run.step(key, function, *args)")


_STEP_KINDS: dict[str, tuple[type, ...]] = {
    "action": (str,),
    "tool_called": (str, NoneType),
    "error": (str, NoneType),
    "metadata": (dict,),
    "idempotent": (bool,),
}
"""What tools rely on when they show a step; the other fields may be anything."""
_STEP_DEFAULTS = {name: getattr(Step(), name) for name in Step.__struct_fields__ if name != "index"}


def fields_of(step: Step) -> dict[str, Any]:
    """What a step says, without what it leaves at its default; its index is its place among the others."""
    if not isinstance(step, Step):
        raise ConfigurationError(f"what is recorded is a holdfast.Step, not {type(step).__name__}")
    for name, kinds in _STEP_KINDS.items():
        if not isinstance(getattr(step, name), kinds):
            words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
            raise ConfigurationError(f"Step({name}={getattr(step, name)!r}): {words}")
    names = [name for name, default in _STEP_DEFAULTS.items() if not _is_default(getattr(step, name), default)]
    return {name: getattr(step, name) for name in names}


def _is_default(value: Any, default: Any) -> bool:
    """A field that may be anything is None by default, and is not compared: some values, of numpy say, refuse that."""
    return value is None if default is None else bool(value == default)
