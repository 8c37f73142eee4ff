"""What a runtime is written on: the verbs it has on a claimed thread.

A runtime claims a thread, writes rows (state, notes, steps), reads its notes back, takes keys, restores checkpoints,
and calls the user's functions in a frame. The words of a runtime are its own: a note has a kind and plain content, and
nothing below looks into it. Nothing of `stores` or `history` is needed beside this file.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar, Unpack

from holdfast.codec import encode
from holdfast.history.entries import NOTHING, Answered, Asked, Noted, Recorded, RolledBack, Started
from holdfast.history.journal import answer_of
from holdfast.history.state_cells import STATE, draft_state, takes_append
from holdfast.ports import Ports
from holdfast.records.checkpoint import Step
from holdfast.records.errors import (
    ConfigurationError,
    HoldfastError,
    KeyReused,
    RunCancelled,
)
from holdfast.records.identity import RequestId
from holdfast.records.request import Answer
from holdfast.records.signatures import is_async
from holdfast.records.words import Status
from holdfast.runs.annotations import annotations_of
from holdfast.runs.api import default_store
from holdfast.runs.asking import YES_OR_NO, answer_types, ask, collect, leave_answers, request_id_of
from holdfast.runs.block import ENDS_OF_PROGRAMS, RunBlock, Terms
from holdfast.runs.branches import Branch, current_branch, last_step, mark_step
from holdfast.runs.divergence import Replay
from holdfast.runs.durable import Durable
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.keys import Key, kept, prefix_of
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.notes import Note, Record, Rollback, note, read, read_note
from holdfast.runs.options import StepOptions, StepPolicy
from holdfast.runs.past import BEGINNING, TARGET, Past, Pruned, Then
from holdfast.runs.run import ADVICE, Receipt, Run, check_function, check_key, fields_of
from holdfast.runs.scope import Frame, Scope, current_frame, fingerprint_of, inner_frame
from holdfast.runs.steps import (
    StepCall,
    begin_alone,
    begin_at_once,
    end_alone,
    idempotency_key_of,
    perform_step,
)
from holdfast.runs.store import Store
from holdfast.runs.threads import (
    UNREADABLE,
    checked_store,
    claim,
    delete_ended,
    delete_expired,
    every,
    fresh_id,
    ports_of,
    store_finder,
    was_deleted,
)
from holdfast.stores.claim import Pending
from holdfast.stores.listing import warn_of_damaged
from holdfast.stores.writer import Intent

__all__ = [
    "BEGINNING",
    "UNREADABLE",
    "YES_OR_NO",
    "Driver",
    "Durable",
    "Frame",
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
    "stand",
    "standing",
    "store_finder",
    "text_of",
    "warn_of_damaged",
    "was_deleted",
    "within",
]

T = TypeVar("T")
WORKING = Status.WORKING.value
Line: TypeAlias = Noted | Recorded | Asked
"""What a runtime may write into a row: a note, a step made by `Driver.recorded`, a question by `Driver.question`."""
Standing: TypeAlias = tuple[Frame | None, Branch | None]


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
        """The keys that branches of the run are at."""
        self.check = ledger.check
        """Raise why the run cannot continue: the claim is lost, it waits, it was cancelled, a write failed."""
        self.check_new = ledger.check_new
        """The same, and `Finished` if the thread is: what is named is new."""
        self.noted = ledger.journal.noted
        """The note of this kind under this key, unless it failed."""
        self.events = ledger.events
        """Who listens: `events.wants(kind)`, `events.has_listeners`."""
        self.emit = ledger.emit
        """Emit an event of this thread."""
        self.check_waits_not = ledger.check_waits_not
        """Raise the suspension that code under this key ran into, even if that code caught it."""
        self.change_state = ledger.change_state
        """Merge top-level keys into the state. The next row takes it along, whichever that is."""
        self.replace_state = ledger.replace_state
        """Replace the whole state. The next row takes it along, whichever that is."""

    # What it knows

    @property
    def token(self) -> int:
        """The number of this claim: no other claim of the thread ever has it."""
        return self._ledger.claim.token

    @property
    def life(self) -> bytes:
        """Which thread of this id it is: another once it was deleted and made again."""
        return self._ledger.claim.log.binding.identity

    @property
    def found_status(self) -> str:
        """The thread's status before this claim."""
        return self._ledger.claim.found.status

    @property
    def is_lost(self) -> bool:
        """True if nothing can be written any more: the claim was lost, or a write failed."""
        return self._ledger.claim.failure is not None

    @property
    def is_waiting(self) -> bool:
        """True if the run is suspended: it waits for an answer, or for a moment."""
        return self._ledger.suspension is not None

    @property
    def lazy_steps(self) -> Sequence[Step]:
        """The steps that were recorded, and not undone; each is decoded when it is looked at."""
        return self._ledger.lazy_steps

    @property
    def step_count(self) -> int:
        """How many steps were recorded, and not undone."""
        return self._ledger.journal.step_count

    def check_open(self, what: str) -> None:
        """`Finished` if the thread is: `what` is new. For code that was checked already, as within `alone`."""
        if self._ledger.status != WORKING:
            self._ledger.check_new(what)

    def leave_untouched(self) -> None:
        """Leave the thread as it was found when the block is left: the run was refused."""
        self._ledger.untouched = True

    def leave_resumable(self) -> None:
        """Leave the thread at work and held by no run when the block is left: the next recovery may resume it."""
        self._ledger.resumable = True

    # Writing

    async def start(
        self, function: str, arguments: bytes, what: str = "arguments", labels: Mapping[str, str] | None = None
    ) -> None:
        """Note what the thread runs, and its encoded arguments, the first time.

        `KeyReused` if it runs something else, or was started with different arguments (the error calls them `what`);
        `RunCancelled` if it was cancelled. The thread is then left as it was found.
        """
        self.refuse_other(function, arguments, what)
        if self.record.started is None and not self.run.finished:
            started = Started(function, arguments, fingerprint_of(arguments, what, ""), self.ports.now())
            intent = Intent(journal=True, labels=dict(labels or {}), metadata=packed_metadata({"started": function}))
            await self._ledger.commit(self.ports, intent, started)

    def refuse_other(self, function: str, arguments: bytes, what: str = "arguments") -> None:
        """Raise what `start` would raise, and write nothing."""
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
        if known is not None and known.fingerprint != fingerprint_of(arguments, what, ""):
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
        """Write a row: these notes and steps, and the changes to the state that wait. Await the receipt.

        The row is a checkpoint unless `journal` says that it only notes something. `metadata` is what listings show: a
        few words and numbers. `change` returns top-level keys of the state that this very row changes; it is called
        when nothing can come between what it sees and the row. `appended` has items for lists in the state, by the path
        of each list, which `takes_append`: they cost the same however long the list is.
        """
        asked = [line for line in lines if isinstance(line, Asked)]
        if asked:
            self._ledger.journal.check_may_ask(self._ledger.claim.log.binding, *asked)
        given = lines if change is None else partial(self._changed, change, lines)
        intent = _intent(cause, metadata, journal)
        for path, items in (appended or {}).items():
            intent.appends += tuple(((*STATE, *path), encode(item, path="item")) for item in items)
        return Receipt(self._ledger, self.ports, self._ledger.write(intent, given))

    def takes_append(self, *path: str) -> bool:
        """True if the list at this path of the state can be given items without writing the rest of it."""
        return takes_append(self._ledger.claim.log.document, (*STATE, *path))

    def _changed(self, change: Callable[[], Mapping[str, Any]], lines: tuple[Line, ...]) -> tuple[Line, ...]:
        self._ledger.change_state(change())
        return lines

    def queue(
        self,
        make: Callable[[], tuple[Line, ...]],
        *,
        cause: str = "event",
        metadata: Mapping[str, Any] | None = None,
        journal: bool = False,
    ) -> Receipt:
        """The same from plain code, which cannot wait: it is written though nobody may await the receipt.

        `make` is called when nothing can come between what it sees and its row. One write at most is under way when the
        next is queued: a killed process has lost no more than its last.
        """
        before, committer = self._queued, self._ledger.claim.committer
        if before is not None and not before.settled:
            self.ports.for_plain_code().dispatch(before, committer)
        self._queued = self._ledger.queue(self.ports, _intent(cause, metadata, journal), make)
        return self.last_receipt

    @property
    def last_receipt(self) -> Receipt:
        """The receipt of what was queued last; one that is done if nothing was."""
        return Receipt(self._ledger, self.ports, self._queued)

    def recorded(self, step: Step) -> Recorded:
        """A step that was done elsewhere, as a line to write."""
        return Recorded("", encode(fields_of(step), path="step"), self.ports.now())

    # The state

    @property
    def has_changes(self) -> bool:
        """True if changes to the state wait for a row."""
        return self._ledger.has_changes

    # Notes and keys

    def follow(self, followers: Mapping[str, Callable[[Note], object]]) -> None:
        """Call the follower of a kind with each of its notes: those noted so far, and every further one as it is made.

        They are called in the order of the notes, and one at a time.
        """
        with self._ledger.claim.lock:
            self._ledger.journal.follow(followers)

    async def alone(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do this work while no other branch of the run is at the key."""
        run = self.run
        place = begin_at_once(run, key) or await begin_alone(run, key)
        try:
            return await work()
        finally:
            end_alone(self.running.pop(key), place)

    def idempotency_key(self, key: str) -> str:
        """The key to hand to the outside: the same for every attempt at this, in every process."""
        return idempotency_key_of(self.run, key)

    @staticmethod
    def key(kind: str, text: str) -> str:
        """The key of something of this kind that a user named: nothing else of the thread ever has the same."""
        return str(kept(kind, text))

    async def step(
        self, kind: str, name: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]
    ) -> Any:
        """A step of the runtime's own, which no step of the user's is taken for; see `Run.step`."""
        return await self.run.step(kept(kind, name), function, *args, **policy)

    async def step_within(
        self, name: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]
    ) -> Any:
        """A step of the work under way here, found again by its name, its arguments and its number among equals."""
        check_function(function, check_key(name))
        fingerprint = fingerprint_of(list(args), f"step {name!r}", ADVICE)
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
        """Raise `Diverged` for a new effect where an earlier run recorded one of the same name with other arguments."""
        self._ledger.replay = Replay(self._ledger, self.ports, "raise", self.ports.branch())

    def key_within(self, key: str) -> str:
        """The key of a step that is called here: within the work under a key, it belongs to that."""
        return self.run._scope.prefix + key

    def begin_scope(self, key: str) -> None:
        """Put the steps that the run's body calls from now on under this key, counted from one."""
        scope = self.run._own_scope
        scope.prefix, scope._counts = prefix_of(Key(key)), {}

    @property
    def is_within(self) -> bool:
        """True if the code that calls knows which run it belongs to; not so in a thread without its context."""
        return current_frame.get() is not None

    def ordinal_key(self, name: str, content: Any) -> str:
        """A key for the next call with this name and content, in the order of the program."""
        return self.run._scope.key(name, fingerprint_of(content, name, ""))

    async def ask(self, key: str, name: str, payload: Any, question: Mapping[str, Any]) -> Answer:
        """Ask the outside under a key, and suspend the run until it is answered; see `Run.ask` for the question.

        The same key with another payload is `KeyReused`: an answer is for one question only. Without a key, the
        question is found again by its name and payload.
        """
        return await ask(self.run, check_key(name), payload, **question, key=key)

    async def withdraw(self, name: str | None, reason: str) -> None:
        """Close the open requests of this name, or all, with the next row: they take no answer, and show as expired.

        One whose answer was given already is closed with that answer.
        """
        journal, now = self._ledger.journal, self.ports.now()
        for number in journal.open_numbers():
            is_meant = name is None or journal.requests[number - 1].name == name
            if is_meant and await collect(self.run, number) is None:
                self._ledger.carry(Answered(number, None, NOTHING, "", reason, now, expired=True))

    def question(self, key: str, name: str, payload: Any, choices: tuple[str, ...] = (), takes: bytes = b"") -> Asked:
        """A question to the outside as a line to write: it is asked with that row, and the run goes on.

        `takes`, made by `answer_types`, says what the value of its answer must be.
        """
        fingerprint = fingerprint_of([payload, list(choices)], f"request {name!r}", "give a payload that can be stored")
        packed = encode(payload, path="payload")
        return Asked(key, fingerprint, check_key(name), packed, choices, 0, b"", self.ports.now(), takes)

    def request_id(self, key: str) -> str:
        """The id of the question that was asked under a key; empty if there is none."""
        number = self._ledger.journal.number_of(key)
        return request_id_of(self.run, number) if number else ""

    async def answer(self, values: Mapping[str, Any]) -> None:
        """Answer requests of this thread by their ids: none before all are known to take their answers.

        The value for a request with choices is its choice; see `leave_answers`.
        """
        ids = [RequestId.parse(each) for each in values]
        for each in ids:
            if each.thread_id != self.thread_id:
                raise ConfigurationError(f"request {each} is of another thread than {self.thread_id!r}; run that one")
        given = dict(zip(ids, values.values(), strict=True))
        for request in await self.ports.perform(leave_answers, self.run._reader, given, self.ports.now()):
            await self.emit("answered", request=request.id, name=request.name)

    async def answer_to(self, key: str) -> Answer | None:
        """The answer to the question that was asked under a key, consumed by now; None if there is none yet."""
        answered = await collect(self.run, self._ledger.journal.number_of(key))
        return None if answered is None else answer_of(answered)

    async def wait_for_answers(self) -> NoReturn:
        """Suspend the run: it has nothing to do until one of its questions is answered."""
        await self._ledger.suspend(self.ports)

    # Calling the user's code

    def frame(self, key: str) -> Frame:
        """The frame of code that works under a key: steps called in it belong to it."""
        return inner_frame(self.run, Key(key), lambda: self.idempotency_key(key))

    async def invoke(self, key: str, function: Callable[..., Any], timeout: float | None = None) -> Any:  # noqa: ASYNC109  the function's
        """Call a user's function in a frame of its own."""
        outer = current_frame.set(self.frame(key))
        try:
            value = await self._invoke(key, function, timeout)
        finally:
            current_frame.reset(outer)
        if self._ledger.suspension is not None:
            self.check_waits_not(key)
        return value

    async def _invoke(self, key: str, function: Callable[..., Any], seconds: float | None) -> Any:
        replay = self._ledger.replay
        if replay is None:
            return await self.ports.invoke(function, (), {}, seconds)
        with replay.place(key, self.ports):
            called = function if is_async(function) else replay.on_its_thread(key, function, self.ports)
            return await self.ports.invoke(called, (), {}, seconds)

    async def together(self, branches: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run these to their end, at the same time. Then raise the first error, if any did.

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
        """Enter the body of the run from its beginning: keys are counted from one; the last step is the thread's."""
        before, number, count = standing(), self.ports.branch(), self.step_count
        branch = Branch(self._ledger, number, last_step=count - 1 if count else None)
        stand((Frame(self.run, Scope(branch=number)), branch))
        try:
            yield
        finally:
            stand(before)

    def mark_step(self, step: Recorded) -> None:
        """This step, made by `recorded`, is recorded by the branch that calls, now or with a later row."""
        mark_step(self._ledger, self.ports, step)

    def last_step(self) -> int | None:
        """The index of the step that was recorded or replayed last, in the branch that calls; None without one."""
        step = last_step(self._ledger, self.ports)
        return step if step is None or isinstance(step, int) else self._ledger.journal.place_of(step)

    @property
    def has_own_step(self) -> bool:
        """True if the branch that calls recorded or replayed a step since `body` was entered."""
        return not isinstance(last_step(self._ledger, self.ports), int)

    # The past

    async def restore(self, then: Then, metadata: Mapping[str, Any]) -> None:
        """Make the thread what it was at a checkpoint: its state, steps and questions. Notes and answers stay known.

        Changes to the state that wait for a row are dropped.
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
        """The checkpoints behind the thread. Its methods block: call them by `ports.perform`."""
        return Past(self.run)


def _intent(cause: str, metadata: Mapping[str, Any] | None, journal: bool) -> Intent:
    return Intent(cause=cause, journal=journal, metadata=packed_metadata(metadata))


async def _end_of(number: int, branch: Callable[[], Awaitable[Any]]) -> tuple[int, Any, BaseException | None]:
    """Return the number of a branch, and its result or its error; what ends the program is raised at once."""
    try:
        return number, await branch(), None
    except ENDS_OF_PROGRAMS:
        raise
    except BaseException as error:  # noqa: BLE001  raised once all have ended
        return number, None, error


def standing() -> Standing:
    """Where the code that calls this stands: in which run's frame, and in which branch."""
    return current_frame.get(), current_branch.get()


def stand(at: Standing) -> None:
    """Stand there again."""
    current_frame.set(at[0])
    current_branch.set(at[1])


@contextmanager
def within(frame: Frame) -> Iterator[None]:
    """Run code in a frame, a part at a time."""
    outer = current_frame.set(frame)
    try:
        yield
    finally:
        current_frame.reset(outer)
