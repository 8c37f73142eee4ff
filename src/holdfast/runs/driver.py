"""The interface that runtimes are written on: the verbs of a runtime on a thread that a run holds.

A runtime claims a thread, writes rows (state, notes, steps), reads its notes back, makes keys, restores checkpoints,
and calls the user's functions. A note has a kind that the runtime chooses and plain content that nothing below looks
into. A runtime needs nothing of `stores` or `history` besides this file.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar, Unpack

from holdfast.codec import encode
from holdfast.codec.discovery import Annotation, caller_names
from holdfast.codec.registry import adopt_named
from holdfast.history.entries import NOTHING, Answered, Asked, Noted, Recorded, RolledBack, Started
from holdfast.history.journal import answer_of
from holdfast.history.state_cells import STATE, draft_state, takes_append
from holdfast.ports import Ports
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, HoldfastError, KeyReused, RunCancelled
from holdfast.records.identity import RequestId
from holdfast.records.request import Answer
from holdfast.records.signatures import is_async
from holdfast.records.words import Status
from holdfast.runs.api import default_store
from holdfast.runs.arguments import fingerprint_of
from holdfast.runs.asking import YES_OR_NO, answer_types, ask, collect, leave_answers, request_id_of
from holdfast.runs.block import ENDS_OF_PROGRAMS, RunBlock, Terms
from holdfast.runs.divergence import Replay
from holdfast.runs.durable import Durable
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.handles import BlockingHandle, Handle
from holdfast.runs.keys import Key, kept, prefix_of
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import StepOptions, StepPolicy
from holdfast.runs.run import Receipt, Run, check_key, checked_step, fields_of
from holdfast.runs.scope import (
    Branch,
    Frame,
    Scope,
    current_branch,
    current_frame,
    idempotency_key_of,
    inner_frame,
    last_step,
    mark_step,
)
from holdfast.runs.steps import StepCall, begin_alone, end_alone, invoke_within, perform_step
from holdfast.runs.store import Store
from holdfast.runs.submitting import Submission, SubmitOptions
from holdfast.runs.threads import (
    BEGINNING,
    TARGET,
    UNREADABLE,
    Note,
    Past,
    Pruned,
    Record,
    Rollback,
    Then,
    checked_store,
    claim,
    delete_ended,
    delete_expired,
    every,
    fresh_id,
    note,
    ports_of,
    read,
    read_note,
    store_finder,
    submit,
    was_deleted,
)
from holdfast.stores.claim import Pending
from holdfast.stores.listing import warn_of_damaged
from holdfast.stores.writer import Intent

__all__ = [
    "BEGINNING",
    "UNREADABLE",
    "YES_OR_NO",
    "BlockingHandle",
    "Driver",
    "Durable",
    "Frame",
    "Handle",
    "Line",
    "Note",
    "Past",
    "Pruned",
    "Receipt",
    "Record",
    "Rollback",
    "Run",
    "RunBlock",
    "Started",
    "Store",
    "Submission",
    "SubmitOptions",
    "Terms",
    "Then",
    "annotations_of",
    "answer_types",
    "check_key",
    "checked_store",
    "claim",
    "default_store",
    "delete_ended",
    "delete_expired",
    "every",
    "failed_steps",
    "fingerprint_of",
    "fresh_id",
    "note",
    "ports_of",
    "read",
    "read_note",
    "run_context",
    "set_run_context",
    "store_finder",
    "submit",
    "text_of",
    "warn_of_damaged",
    "was_deleted",
    "within",
]

T = TypeVar("T")
Line: TypeAlias = Noted | Recorded | Asked
"""What a runtime may write into a row: a note, a step made by `Driver.recorded`, a question by `Driver.question`."""
RunContext: TypeAlias = tuple[Frame | None, Branch | None]
"""The frame and the branch that code belongs to: see `run_context`."""


class Driver:
    """The verbs of a runtime on the thread that a run holds."""

    def __init__(self, run: Run) -> None:
        self._ledger = ledger = run._ledger
        self._queued: Pending | None = None
        self.run = run
        self.thread_id = run.thread_id
        self.ports: Ports = run._ports
        self.record = Record(ledger.journal, _limits=ledger.claim.log.binding.limits)
        self.running = ledger.running
        """The keys under which branches of the run work now."""
        self.check = ledger.check
        """Raise why the run cannot continue: its claim is lost, it waits, it was cancelled, a write failed."""
        self.check_new = ledger.check_new
        """Do the same, and raise `Finished` if the thread is: `what` is new."""
        self.check_open = ledger.check_open
        """Only raise `Finished` if the thread is. For code that was checked already, as within `alone`."""
        self.noted = ledger.journal.noted
        """Return the note of this kind under this key; None if there is none, or it failed."""
        self.events = ledger.events
        """The listeners: `events.wants(kind)`, `events.has_listeners`."""
        self.emit = ledger.emit
        """Emit an event of this thread."""
        self.check_waits_not = ledger.check_waits_not
        """Raise the suspension that code under this key ran into, even if that code caught it."""
        self.change_state = ledger.change_state
        """Merge top-level keys into the state. The next row includes the change, whichever row that is."""
        self.replace_state = ledger.replace_state
        """Replace the whole state. The next row includes the change, whichever row that is."""

    # What it knows

    @property
    def token(self) -> int:
        """The number of this claim; no other claim of the thread has the same."""
        return self._ledger.claim.token

    @property
    def life(self) -> bytes:
        """Identifies this thread among those of its id: it changes when the thread is deleted and created again."""
        return self._ledger.claim.log.binding.identity

    @property
    def found_status(self) -> str:
        """The thread's status before this claim."""
        return self._ledger.claim.found.status

    @property
    def is_lost(self) -> bool:
        """True if nothing more can be written: the claim was lost, or a write failed."""
        return self._ledger.claim.failure is not None

    @property
    def is_waiting(self) -> bool:
        """True if the run is suspended: it waits for an answer or a timer."""
        return self._ledger.suspension is not None

    @property
    def lazy_steps(self) -> Sequence[Step]:
        """The steps that were recorded and not undone; each is decoded when it is read."""
        return self._ledger.lazy_steps

    @property
    def step_count(self) -> int:
        """How many steps were recorded and not undone."""
        return self._ledger.journal.step_count

    def leave_untouched(self) -> None:
        """Make leaving the block release the thread as it was found: the run was refused."""
        self._ledger.untouched = True

    def leave_resumable(self) -> None:
        """Make leaving the block release the thread as `working`: the next recovery may resume it."""
        self._ledger.resumes_at = 0

    # Writing

    async def start(
        self, function: str, arguments: bytes, what: str = "arguments", labels: Mapping[str, str] | None = None
    ) -> None:
        """Record what the thread runs and its encoded arguments, the first time.

        Raises `KeyReused` if it runs something else, or was started with different arguments (the error calls them
        `what`), and `RunCancelled` if it was cancelled. The thread is then left as it was found.
        """
        self.refuse_other(function, arguments, what)
        if self.record.started is None and not self.run.finished:
            started = Started(function, arguments, fingerprint_of(arguments, what), self.ports.now())
            intent = Intent(journal=True, labels=dict(labels or {}), metadata=packed_metadata({"started": function}))
            await self._ledger.commit(self.ports, intent, started)

    def refuse_other(self, function: str, arguments: bytes, what: str = "arguments") -> None:
        """Raise what `start` would raise, without writing anything."""
        refusal = self._refusal(function, arguments, what)
        if refusal is not None:
            self.leave_untouched()
            raise refusal

    def _refusal(self, function: str, arguments: bytes, what: str) -> HoldfastError | None:
        run, known, name = self.run, self.record.started, repr(self.thread_id)
        is_cancelled = run.status is Status.CANCELLED
        if known is None and not is_cancelled and (self._ledger.journal.is_used or run.finished):
            return KeyReused(f"thread {name} is used by something else; give another thread id")
        if known is not None and known.function != function:
            return KeyReused(f"thread {name} runs {known.function}, not {function}; give another thread id")
        if known is not None and known.fingerprint != fingerprint_of(arguments, what):
            return KeyReused(f"thread {name} was started before, and its {what} differed; give another thread id")
        return RunCancelled(f"thread {name} was cancelled") if is_cancelled else None

    def write(
        self,
        *lines: Line,
        cause: str = "event",
        metadata: Mapping[str, str | int] | None = None,
        journal: bool = False,
        change: Callable[[], Mapping[str, Any]] | None = None,
        appended: Mapping[tuple[str, ...], Sequence[Any]] | None = None,
    ) -> Receipt:
        """Write a row with these lines and the changes to the state that are not written yet. Await the receipt.

        The row is a checkpoint unless `journal` is True. `metadata` is a few words and numbers for listings. `change`
        returns top-level keys of the state that this very row changes; nothing is written between its call and the
        row. `appended` has items for lists in the state, by the path of each list, which `takes_append`: they cost the
        same however long the list is.
        """
        ledger = self._ledger
        if asked := [line for line in lines if isinstance(line, Asked)]:
            ledger.journal.check_may_ask(ledger.claim.log.binding, *asked)
        given = lines if change is None else partial(self._changed, change, lines)
        intent = Intent(cause=cause, journal=journal, metadata=packed_metadata(metadata))
        for path, items in (appended or {}).items():
            intent.appends += tuple(((*STATE, *path), encode(item, path="item")) for item in items)
        return Receipt(ledger, self.ports, ledger.write(intent, given))

    def _changed(self, change: Callable[[], Mapping[str, Any]], lines: tuple[Line, ...]) -> tuple[Line, ...]:
        self._ledger.change_state(change())
        return lines

    def takes_append(self, *path: str) -> bool:
        """True if items can be appended to the list at this path of the state without writing the rest of it."""
        return takes_append(self._ledger.claim.log.document, (*STATE, *path))

    def queue(
        self,
        make: Callable[[], tuple[Line, ...]],
        *,
        cause: str = "event",
        metadata: Mapping[str, Any] | None = None,
        journal: bool = False,
    ) -> Receipt:
        """Write a row from plain code, which cannot await: it is written even if nobody awaits the receipt.

        `make` returns the lines; nothing is written between its call and the row. At most one write is under way when
        the next is queued: a killed process has lost no more than its last.
        """
        before, committer = self._queued, self._ledger.claim.committer
        if before is not None and not before.settled:
            self.ports.for_plain_code().dispatch(before, committer)
        intent = Intent(cause=cause, journal=journal, metadata=packed_metadata(metadata))
        self._queued = self._ledger.queue(self.ports, intent, make)
        return self.last_receipt

    @property
    def last_receipt(self) -> Receipt:
        """The receipt of the row that was queued last; one that is done if there is none."""
        return Receipt(self._ledger, self.ports, self._queued)

    def recorded(self, step: Step) -> Recorded:
        """Return a step that was done elsewhere as a line to write."""
        return Recorded("", encode(fields_of(step), path="step"), self.ports.now())

    @property
    def has_changes(self) -> bool:
        """True if changes to the state are not written yet."""
        return self._ledger.has_changes

    # Notes and keys

    def follow(self, followers: Mapping[str, Callable[[Note], object]]) -> None:
        """Call the follower of a kind with each of its notes: the existing ones now, each further one when it is made.

        They are called in the order of the notes, one at a time.
        """
        with self._ledger.claim.lock:
            self._ledger.journal.follow(followers)

    async def alone(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do this work while no other branch of the run works under the key. Return its result."""
        place = await begin_alone(self.run, key)
        try:
            return await work()
        finally:
            end_alone(self.running.pop(key), place)

    def idempotency_key(self, key: str) -> str:
        """Return the idempotency key for the outside: the same for every attempt at this work, in every process."""
        return idempotency_key_of(self.run, key)

    @staticmethod
    def key(kind: str, text: str) -> str:
        """Return the key of something of this kind that a user named; nothing else in the thread has the same."""
        return str(kept(kind, text))

    async def step(
        self, kind: str, name: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]
    ) -> Any:
        """Perform a step of the runtime, as `Run.step` does; its key never equals that of a user's step."""
        return await self.run.step(kept(kind, name), function, *args, **policy)

    async def step_within(
        self, name: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]
    ) -> Any:
        """Perform a step of the work under way, identified by its name, its arguments and its number among equals."""
        _, fingerprint = checked_step(name, function, args)
        call = StepCall(
            key=self.run._scope.key(name, fingerprint),
            name=name,
            fingerprint=fingerprint,
            function=function,
            arguments=args,
            given=args,
            options=StepOptions.of(policy),
        )
        return await perform_step(self.run, call)

    def refuse_divergence(self) -> None:
        """From now on raise `Diverged` for a new effect where an earlier run recorded it with other arguments."""
        self._ledger.replay = Replay(self._ledger, self.ports, "raise", self.ports.branch())

    def key_within(self, key: str) -> str:
        """Return the key of a step that is called here: within the work under a key, it begins with that key."""
        return self.run._scope.prefix + key

    def begin_scope(self, key: str) -> None:
        """Put the steps that the run's body calls from now on under this key, numbered from one."""
        scope = self.run._own_scope
        scope.prefix, scope._counts = prefix_of(Key(key)), {}

    @property
    def is_within(self) -> bool:
        """True if the calling code knows which run it belongs to; False in a thread without its context."""
        return current_frame.get() is not None

    def ordinal_key(self, name: str, content: Any) -> str:
        """Return a key for the next call with this name and content, numbered in the order of the calls."""
        return self.run._scope.key(name, fingerprint_of(content, name))

    async def ask(self, key: str, name: str, payload: Any, question: Mapping[str, Any]) -> Answer:
        """Ask a question under a key, suspend the run until it is answered, and return the answer.

        `question` has the options of `Run.ask`. Raises `KeyReused` if the key was used with another payload: an answer
        is for one question only. With an empty key, the name and payload identify the question.
        """
        return await ask(self.run, check_key(name), payload, **question, key=key)

    async def withdraw(self, name: str | None, reason: str) -> None:
        """Close the open requests of this name, or all, with the next row: they show as expired and take no answer.

        A request that was answered meanwhile keeps its answer.
        """
        journal, now = self._ledger.journal, self.ports.now()
        for number in journal.open_numbers():
            is_meant = name is None or journal.requests[number - 1].name == name
            if is_meant and await collect(self.run, number) is None:
                self._ledger.carry(Answered(number, None, NOTHING, "", reason, now, expired=True))

    def question(self, key: str, name: str, payload: Any, choices: tuple[str, ...] = (), takes: bytes = b"") -> Asked:
        """Return a question as a line to write: it is asked with that row, and the run continues.

        `takes`, made by `answer_types`, is the type that the value of its answer must have.
        """
        fingerprint = fingerprint_of([payload, list(choices)], f"request {name!r}", "give a payload that can be stored")
        packed = encode(payload, path="payload")
        return Asked(key, fingerprint, check_key(name), packed, choices, 0, b"", self.ports.now(), takes)

    def request_id(self, key: str) -> str:
        """Return the id of the question that was asked under a key; empty if there is none."""
        number = self._ledger.journal.number_of(key)
        return request_id_of(self.run, number) if number else ""

    async def answer(self, values: Mapping[str, Any]) -> None:
        """Answer requests of this thread by their ids: all answers are checked before the first is stored.

        The value for a request with choices is its choice, or a bool if these are `approve` and `reject`.
        """
        ids = [RequestId.parse(each) for each in values]
        for each in ids:
            if each.thread_id != self.thread_id:
                raise ConfigurationError(f"request {each} is of another thread than {self.thread_id!r}; run that one")
        given = dict(zip(ids, values.values(), strict=True))
        for request in await self.ports.perform(leave_answers, self.run._reader, given, self.ports.now()):
            await self.emit("answered", request=request.id, name=request.name)

    async def answer_to(self, key: str) -> Answer | None:
        """Consume and return the answer to the question that was asked under a key; None if there is none yet."""
        answered = await collect(self.run, self._ledger.journal.number_of(key))
        return None if answered is None else answer_of(answered)

    async def wait_for_answers(self) -> NoReturn:
        """Suspend the run until one of its questions is answered."""
        await self._ledger.suspend(self.ports)

    # Calling the user's code

    def frame(self, key: str) -> Frame:
        """Return the frame of code that works under a key, for `within`: steps called in it belong to the key."""
        return inner_frame(self.run, Key(key))

    async def invoke(self, key: str, function: Callable[..., Any], timeout: float | None = None) -> Any:  # noqa: ASYNC109  the function's
        """Call a user's function as the work under a key: steps called in it belong to the key. Return its result."""
        replay = self._ledger.replay
        if replay is None:
            return await invoke_within(self.run, key, function, limit=timeout)
        with replay.place(key, self.ports):
            called = function if is_async(function) else replay.on_its_thread(key, function, self.ports)
            return await invoke_within(self.run, key, called, limit=timeout)

    async def together(self, branches: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run these concurrently to their end, and return their results; then raise the first error, if any.

        None of them outlives the claim, and what the others finished is recorded.
        """
        ends: dict[int, tuple[T, BaseException | None]] = {}
        numbered = [_end_of(number, branch) for number, branch in enumerate(branches)]
        async with aclosing(self.ports.side_by_side(numbered)) as endings:
            async for number, result, error in endings:
                ends[number] = (result, error)
        in_order = [ends[number] for number in range(len(branches))]
        for _, error in in_order:
            if error is not None:
                raise error
        return [result for result, _ in in_order]

    @contextmanager
    def body(self) -> Iterator[None]:
        """Enter the body of the run at its beginning: keys are numbered from one; the last step is the thread's."""
        outer, number, count = run_context(), self.ports.branch(), self.step_count
        branch = Branch(self._ledger, number, last_step=count - 1 if count else None)
        set_run_context((Frame(self.run, Scope(branch=number)), branch))
        try:
            yield
        finally:
            set_run_context(outer)

    def mark_step(self, step: Recorded) -> None:
        """Make this step, from `recorded`, the last one of the calling branch, whether it is written now or later."""
        mark_step(self.run, step)

    def last_step(self) -> int | None:
        """Return the index of the step that the calling branch recorded or replayed last; None if there is none."""
        step = last_step(self.run)
        return step if step is None or isinstance(step, int) else self._ledger.journal.place_of(step)

    @property
    def has_own_step(self) -> bool:
        """True if the calling branch recorded or replayed a step since `body` was entered."""
        return not isinstance(last_step(self.run), int)

    # The past

    async def restore(self, then: Then, metadata: Mapping[str, Any]) -> None:
        """Restore the thread to a checkpoint: its state, steps and questions. Notes and answers are kept.

        Changes to the state that are not written yet are dropped.
        """
        draft, leaves = draft_state(then.state, limits=self._ledger.claim.log.binding.limits)
        answers = self._ledger.journal.answers
        waiting = tuple(str(number) for number in then.journal.numbers() if number not in answers)
        intent = Intent(draft=draft, leaves=leaves, cause="error", requests=waiting)
        intent.metadata = packed_metadata({TARGET: then.seq, **metadata})
        entry = RolledBack(then.journal.length, then.step_count, then.seq, self.ports.now())
        self._ledger.drop_changes()
        await self._ledger.commit(self.ports, intent, entry)

    def past(self) -> Past:
        """Return the past checkpoints of the thread. Its methods block: call them by `ports.perform`."""
        return Past(self.run)


async def _end_of(number: int, branch: Callable[[], Awaitable[Any]]) -> tuple[int, Any, BaseException | None]:
    """Return the number of a branch, and its result or its error; raise at once what ends the program."""
    try:
        return number, await branch(), None
    except ENDS_OF_PROGRAMS:
        raise
    except BaseException as error:  # noqa: BLE001  raised once all have ended
        return number, None, error


def run_context() -> RunContext:
    """Return the run's frame and the branch that the calling code belongs to, for `set_run_context`."""
    return current_frame.get(), current_branch.get()


def set_run_context(context: RunContext) -> None:
    """Make the calling code part of this frame and branch."""
    current_frame.set(context[0])
    current_branch.set(context[1])


@contextmanager
def within(frame: Frame) -> Iterator[None]:
    """Run the code of the block in a frame."""
    outer = current_frame.set(frame)
    try:
        yield
    finally:
        current_frame.reset(outer)


def annotations_of(function: Callable[..., Any], where: str) -> dict[str, Any]:
    """Return the evaluated annotations of a function by parameter, and register the classes they name as storable.

    Raises `ConfigurationError`, which begins with `where`, for a name that is not defined.
    """
    names, local = getattr(function, "__globals__", {}), caller_names()
    found = {
        name: Annotation(hint, names, None, local) for name, hint in getattr(function, "__annotations__", {}).items()
    }
    adopt_named(found.values(), evaluate=True)
    try:
        return {name: annotation.evaluated() for name, annotation in found.items()}
    except NameError as error:
        raise ConfigurationError(f"{where}: an annotation names {error.name!r}, which is not defined here") from error
