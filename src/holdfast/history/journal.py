"""The journal of a thread, an append-only list next to the state, folded into what the next run needs to know.

Which steps are done, which are in doubt, what was asked and answered: all of it follows from the entries.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from holdfast.codec import decode, encode
from holdfast.codec.limits import DEFAULT, Limits, refuse_together
from holdfast.history.binding import Binding
from holdfast.history.cells import Document
from holdfast.history.entries import (
    Answered,
    AnyEntry,
    Asked,
    Attempted,
    Begun,
    Ended,
    Entry,
    Forked,
    Marked,
    Memo,
    Noted,
    Recorded,
    Retaken,
    RolledBack,
    Shown,
    Slept,
    Started,
    StepDone,
    StepError,
    Traced,
    encodings_of,
    read_entries,
)
from holdfast.history.lazy_steps import LazySteps
from holdfast.records.errors import Corrupt, NotFound
from holdfast.records.identity import RequestId
from holdfast.records.request import Answer, Request
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status

_ENDED = (StepDone, StepError)


class Journal:
    """The journal, folded."""

    def __init__(self, entries: Iterable[AnyEntry] = (), pasts: "dict[int, Journal] | None" = None) -> None:
        self.memos: dict[str, Memo] = {}
        self.marks: set[str] = set()
        self.timers: dict[str, int] = {}
        self.requests: list[Asked] = []
        self.answers: dict[int, Answered] = {}
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.trace = ""
        """The trace of the previous run, if it had one."""
        self.attempts = 0
        """How often a recovery took over the thread since a run last made progress."""
        self.notes: list[Noted] = []
        self._followers: dict[str, Callable[[Noted], object]] = {}
        self._keyed: dict[tuple[str, str], Noted] = {}
        """The notes that did not fail, by kind and key."""
        self.rollbacks: list[RolledBack] = []
        self.epochs: dict[str, int] = {}
        """How often the result of a step was undone, by key."""
        self._effects: set[str] = set()
        """The keys of steps with an effect: an entry says when they began."""
        self._entries: list[AnyEntry] = []
        self._pasts = {} if pasts is None else pasts
        """The journal at the lengths that rollbacks went back to, each folded once."""
        self._asked: dict[str, int] = {}
        self.inherited: set[str] = set()
        """The keys recorded by the thread that this one was forked from."""
        self._shown: list[Shown] = []
        self._places: dict[str, int] = {}
        """The index among the steps of each step that ended, or was recorded under a key."""
        for entry in entries:
            self.add(entry)

    @classmethod
    def of(cls, document: Document) -> "Journal":
        """Return the journal of a document."""
        return cls(read_entries(document))

    def add(self, entry: AnyEntry) -> None:
        """Add an entry."""
        self._handlers[type(entry)](self, entry)
        self._entries.append(entry)

    def _remember(self, entry: Memo) -> None:
        before = self.memos.get(entry.key)
        self.memos[entry.key] = entry
        if isinstance(entry, Begun):
            self._effects.add(entry.key)
        if isinstance(before, StepDone) and isinstance(entry, StepDone):
            self._shown[self._places[entry.key]] = entry  # a fork replaces the result
        elif isinstance(entry, _ENDED):
            self._places[entry.key] = len(self._shown)
            self._show(entry)

    def _retry(self, entry: Attempted) -> None:
        self._remember(entry)
        self._forget(entry.failed)

    def _forget(self, failed: Iterable[str]) -> None:
        for key in failed:
            self.memos.pop(key, None)

    def _show(self, entry: Shown) -> None:
        self.attempts = 0
        if isinstance(entry, Recorded) and entry.key:
            self.marks.add(entry.key)
            self._places[entry.key] = len(self._shown)
        self._shown.append(entry)

    def _mark(self, entry: Marked) -> None:
        self.marks.add(entry.key)
        self.attempts = 0

    def _ask(self, entry: Asked) -> None:
        self.requests.append(entry)
        self._asked[entry.key] = len(self.requests)

    def _answer(self, entry: Answered) -> None:
        self.answers[entry.number] = entry
        self.attempts = 0

    def _sleep(self, entry: Slept) -> None:
        self.timers[entry.key] = entry.due

    def _start(self, entry: Started) -> None:
        self.started = entry

    def _retake(self, _entry: Retaken) -> None:
        self.attempts += 1

    def _end(self, entry: Ended) -> None:
        self.ended = entry
        self._forget(entry.failed)

    def _trace(self, entry: Traced) -> None:
        self.trace = entry.context

    def _note(self, entry: Noted) -> None:
        self.attempts = 0
        if entry.failed:
            self._forget(entry.failed)
        self.notes.append(entry)
        before = self._keyed.get((entry.kind, entry.key))
        if entry.key and not entry.error:
            self._keyed[entry.kind, entry.key] = entry
        place = self.place_of(before) if before is not None and entry.value else None
        if entry.action and place is not None:
            self._shown[place] = entry  # a fork replaces the result
        elif entry.action:
            self._shown.append(entry)
        follower = self._followers.get(entry.kind)
        if follower is not None:
            follower(entry)

    def follow(self, followers: Mapping[str, Callable[[Noted], object]]) -> None:
        """Call the follower of a kind with each of its notes: those so far, and every later one."""
        for entry in self.notes:
            if entry.kind in followers:
                followers[entry.kind](entry)
        self._followers |= followers

    def noted(self, kind: str, key: str) -> Noted | None:
        """Return the note of this kind and key, if there is one that did not fail."""
        return self._keyed.get((kind, key))

    def _roll_back(self, entry: RolledBack) -> None:
        """Undo what came after. A step in doubt stays in doubt: its outcome is unknown."""
        then = self._at(entry.length)
        for key, memo in self.memos.items():
            if isinstance(memo, StepDone) and then.memos.get(key) is not memo:
                self.epochs[key] = self.epochs.get(key, 0) + 1
        doubts = {key: memo for key, memo in self.memos.items() if isinstance(memo, Begun)}
        self.memos = {key: memo for key, memo in then.memos.items() if not isinstance(memo, Begun)} | doubts
        self.marks, self.timers = set(then.marks), dict(then.timers)
        self._asked, self._shown = dict(then._asked), list(then._shown)  # noqa: SLF001  its own past
        self._places = dict(then._places)  # noqa: SLF001  its own past
        self.rollbacks.append(entry)
        self.attempts = 0

    def _at(self, length: int) -> "Journal":
        if length not in self._pasts:
            self._pasts[length] = Journal(self._entries[:length], self._pasts)
        return self._pasts[length]

    def _fork(self, _entry: Forked) -> None:
        """Drop what was in doubt or open in the original: here the step is not executed, the question not asked yet.

        Only notes that are steps, or lasting, stay.
        """
        self.ended = None
        self.notes = [each for each in self.notes if each.action or each.lasting]
        self._keyed = {name: each for name, each in self._keyed.items() if each.action or each.lasting}
        self.rollbacks = []
        self.attempts = 0
        self.memos = {key: memo for key, memo in self.memos.items() if isinstance(memo, _ENDED)}
        self._asked = {key: number for key, number in self._asked.items() if number in self.answers}
        self.inherited = {*self.memos, *self._asked}

    _handlers: ClassVar[dict[type[Entry], Callable[..., None]]] = {
        Started: _start,
        Begun: _remember,
        Attempted: _retry,
        StepDone: _remember,
        StepError: _remember,
        Recorded: _show,
        Marked: _mark,
        Asked: _ask,
        Answered: _answer,
        Slept: _sleep,
        Retaken: _retake,
        Ended: _end,
        Traced: _trace,
        Noted: _note,
        RolledBack: _roll_back,
        Forked: _fork,
    }

    def number_of(self, key: str) -> int:
        """Return the number of the request asked under this key; 0 if there is none."""
        return self._asked.get(key, 0)

    def asked_keys(self) -> Iterable[str]:
        """Return the keys of the requests of this thread."""
        return self._asked.keys()

    def numbers(self) -> list[int]:
        """Return the numbers of the requests of this thread: those answered, and those open.

        Requests that were open in the original of a fork, or that a rollback withdrew, are not among them.
        """
        return sorted({*self._asked.values(), *self.answers})

    def open_numbers(self) -> list[int]:
        """Return the numbers of the open requests."""
        return [number for number in self.numbers() if number not in self.answers]

    def open_after(self, entries: Iterable[Entry]) -> tuple[str, ...]:
        """Return the numbers of the requests that are open once these entries are added."""
        numbers, last = set(self.open_numbers()), len(self.requests)
        for entry in entries:
            if isinstance(entry, Asked):
                last += 1
                numbers.add(last)
            elif isinstance(entry, Answered):
                numbers.discard(entry.number)
        return tuple(map(str, sorted(numbers)))

    @property
    def length(self) -> int:
        """The number of entries."""
        return len(self._entries)

    @property
    def step_count(self) -> int:
        """The number of steps that were recorded and not undone."""
        return len(self._shown)

    @property
    def is_used(self) -> bool:
        """True if there is any entry that matters to the next run."""
        lasting = (self.memos, self.marks, self.requests, self.timers, self.started, self._shown, self.notes)
        return any(map(bool, lasting))

    @property
    def done_count(self) -> int:
        """The number of steps with a result."""
        return sum(1 for _ in self._done())

    @property
    def microseconds_done(self) -> int:
        """How long the steps with a result took."""
        return sum(entry.took for entry in self._done())

    def _done(self) -> Iterator[StepDone | Noted]:
        yield from (memo for memo in self.memos.values() if isinstance(memo, StepDone))
        yield from (note for note in self._keyed.values() if note.action and note.value)

    def result_noted(self, key: str) -> Noted | None:
        """Return the note under this key that is a step with a result."""
        return next((note for note in self._keyed.values() if note.key == key and note.action and note.value), None)

    def place_of(self, step: str | Shown) -> int | None:
        """Return the index of a step, by its key or entry; None if it has not ended, or was undone."""
        if isinstance(step, str):
            return self._places.get(step)
        return next((at for at in range(len(self._shown) - 1, -1, -1) if self._shown[at] is step), None)

    @property
    def result(self) -> Any:
        """The result of the thread; None if it is not complete."""
        ended = self.ended
        return decode(ended.value) if ended is not None and ended.status == Status.COMPLETE.value else None

    def lazy_steps(self, limits: Limits = DEFAULT) -> LazySteps:
        """Return the recorded steps, as users see them. Each is decoded when it is accessed."""
        return LazySteps(list(enumerate(self._shown)), self._effects, limits)

    def request_status(self, number: int) -> Literal["open", "answered", "expired"]:
        """Return the status of a request."""
        answered = self.answers.get(number)
        return "open" if answered is None else "expired" if answered.expired else "answered"

    def request(self, binding: Binding, number: int) -> Request:
        """Return a request as users see it. Unregistered classes in it become `Opaque`: they need not be known here."""
        from holdfast.codec.opaque import unknown_as_opaque

        asked, answered = self.requests[number - 1], self.answers.get(number)
        request_id = str(RequestId(binding.thread_id, number, binding.life))
        with unknown_as_opaque():
            return Request(
                id=request_id,
                thread_id=binding.thread_id,
                name=asked.name,
                payload=decode(asked.payload),
                choices=asked.choices,
                created_at=from_microseconds(asked.at),
                deadline=from_microseconds(asked.deadline) if asked.deadline else None,
                status=self.request_status(number),
                answer=None if answered is None or answered.expired else answer_of(answered),
                takes=next((name for name, _ in types_taken(asked, request_id) if name != "Any"), ""),
            )

    def list_requests(self, binding: Binding, numbers: Sequence[int]) -> list[Request]:
        """Return requests as users see them; `LimitExceeded` if they would take too much memory together."""
        self._check_together(binding, numbers)
        return [self.request(binding, number) for number in numbers]

    def check_may_ask(self, binding: Binding, *asked: Asked) -> None:
        """Raise `LimitExceeded` if the open requests could not be listed any more with these added."""
        self._check_together(binding, self.open_numbers(), *asked)

    def _check_together(self, binding: Binding, numbers: Sequence[int], *more: Asked) -> None:
        asked = (*(self.requests[number - 1] for number in numbers), *more)
        answered = [self.answers[number] for number in numbers if number in self.answers]
        encodings = [encoding for entry in (*asked, *answered) for encoding in encodings_of(entry)]
        refuse_together(encodings, binding.limits, f"the list of {len(asked)} requests of {binding.thread_id!r}")

    def open_requests(self, binding: Binding) -> list[Request]:
        """Return the open requests."""
        return self.list_requests(binding, self.open_numbers())


def types_taken(asked: Asked, request_id: object) -> list[tuple[str, Any]]:
    """Return the types that the value of an answer must have, by name and description; none if any value will do."""
    try:
        return msgspec.convert(decode(asked.takes) if asked.takes else [], list[tuple[str, Any]])
    except msgspec.ValidationError as error:
        raise Corrupt(f"request {request_id} is damaged: {error}", record=f"request {request_id}") from error


def answer_of(entry: Answered) -> Answer:
    """Return the answer in an entry."""
    return Answer(
        choice=entry.choice,
        value=decode(entry.value),
        by=entry.by,
        comment=entry.comment,
        at=from_microseconds(entry.at),
    )


def forked(journal: Journal, origin: str, results: Mapping[str, Any], now: int) -> list[Entry]:
    """Return what a fork adds to the journal: its origin, and results that replace recorded ones."""
    if not results and not journal.is_used:
        return []
    entries: list[Entry] = [Forked(origin)]
    for name, value in results.items():
        encoded = encode(value, path=f"results[{name!r}]")
        found = _recorded(journal, name, origin)
        if isinstance(found, Noted):
            entries.append(msgspec.structs.replace(found, value=encoded, at=now, took=0))
            continue
        inputs = (found.arguments, found.inputs)
        entries.append(StepDone(found.key, found.fingerprint, found.name, encoded, now, 0, *inputs))
    return entries


def _recorded(journal: Journal, name: str, origin: str) -> StepDone | StepError | Noted:
    """Return the ended step of this key, or the only one of this name."""
    if (note := journal.result_noted(name)) is not None:
        return note
    ended = [memo for memo in journal.memos.values() if isinstance(memo, _ENDED)]
    found = [memo for memo in ended if memo.key == name] or [memo for memo in ended if memo.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(repr(memo.key) for memo in found)
        raise NotFound(f"checkpoint {origin} has {len(found)} steps named {name!r}; use one of their keys: {keys}")
    known = ", ".join(repr(memo.key) for memo in ended) or "none"
    raise NotFound(f"checkpoint {origin} has no recorded step {name!r}; recorded are {known}")
