"""Questions to the outside: asked once, answered once, and the answer consumed once.

An answer is a message in the thread's inbox, so answering needs no claim on the thread. The run that finds it writes it
into the journal and removes the message in one write. At the deadline the run posts the default itself: the first
message wins.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.history.binding import Binding
from holdfast.history.entries import Answered, Asked, message_key, pack_answer, row_details, unpack_answer
from holdfast.history.journal import Journal, answer_of, types_taken
from holdfast.history.log import Log
from holdfast.records.errors import (
    ConfigurationError,
    Conflict,
    InvalidAnswer,
    KeyReused,
    NotFound,
    RequestExpired,
)
from holdfast.records.head import Head
from holdfast.records.identity import RequestId
from holdfast.records.request import Answer, Request
from holdfast.records.shown import quoted
from holdfast.runs.arguments import fingerprint_of
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import seconds
from holdfast.stores.claim import FINISHED
from holdfast.stores.reader import Reader
from holdfast.stores.waking import call
from holdfast.stores.writer import Intent

if TYPE_CHECKING:
    from holdfast.runs.run import Run

YES_OR_NO = ("approve", "reject")
"""The choices of a yes-or-no request: a bool can answer it."""
DEADLINE = "deadline"
"""The author of default answers."""


def take_in_answers(journal: Journal, binding: Binding, inbox: Mapping[str, bytes]) -> None:
    """Add the answers in the inbox to a journal: their requests are no longer open."""
    for number in journal.open_numbers():
        message = inbox.get(message_key(number))
        if message is not None:
            journal.add(unpack_answer(binding, number, message))


def due_at(deadline: datetime | timedelta | float | None, now: int) -> int:
    """Return a deadline, given as a time or as a duration from now, in microseconds since 1970; 0 for none."""
    if deadline is None:
        return 0
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ConfigurationError(f"`deadline` must have a time zone, got {deadline!r}; or give a duration")
        try:
            return (deadline.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        except OverflowError:
            raise ConfigurationError(f"a time must be within the years 1 to 9999 in UTC, got {deadline!r}") from None
    return now + round(seconds(deadline, "deadline") * 1e6)


def check_choice(choices: Sequence[str], choice: str | None, name: str) -> None:
    """Raise `InvalidAnswer` unless the choice is one of the choices; without choices it must be None."""
    if choices and choice not in choices:
        raise InvalidAnswer(f"request {name!r} takes one of {', '.join(map(repr, choices))}, not {choice!r}")
    if not choices and choice is not None:
        raise InvalidAnswer(f"request {name!r} has no choices; answer it with value=")


def answer_types(*hints: Any) -> bytes:
    """Encode the types that the value of an answer must have, all of them, for its request."""
    from holdfast.codec.value_types import described, signature

    return encode([[signature(hint), described(hint)] for hint in hints])


def checked_value(asked: Asked, value: Any, request_id: object) -> Any:
    """Return the value of an answer as its request takes it; raise `InvalidAnswer` if it is of another type.

    If a class that the request names is unknown here, the run checks an object later: the class may have moved.
    """
    if not asked.takes:
        return value
    from holdfast.codec.value_types import adopt_given, converted, is_known, is_object, resolved

    for name, description in types_taken(asked, request_id):
        try:
            adopt_given(value, description)
            if is_known(description) or not is_object(value):
                value = converted(value, resolved(description))
        except Exception as error:
            given = f"{quoted(value):.200}"
            raise InvalidAnswer(
                f"request {request_id} of {asked.name!r} takes a value of type {name}, not {given}: {error}"
            ) from error
    return value


async def ask(
    run: "Run",
    name: str,
    payload: Any,
    choices: Sequence[str],
    deadline: datetime | timedelta | float | None,
    default: Any,
    *,
    key: str = "",
    replayed: bool = True,
) -> Answer:
    """Return the answer to a question; suspend the run until there is one.

    `key` identifies the question, instead of its name and payload. `replayed` is False for a question that not every
    run asks.
    """
    ledger = run._ledger
    await ledger.ready(run._ports)
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise ConfigurationError(f"`choices` of request {name!r} must be a list of words, got {choices!r}")
    fingerprint = fingerprint_of([payload, list(choices)], f"request {name!r}", "give a payload that can be stored")
    key = key or run._scope.key(f"ask:{name}", fingerprint)
    replay = ledger.replay if replayed else None
    if replay is not None:
        replay.asks_for(run, key)
    number = ledger.journal.number_of(key)
    if number and ledger.journal.requests[number - 1].fingerprint != fingerprint:
        raise KeyReused(
            f"question {key!r} of thread {run.thread_id!r} was asked with another payload or other choices;"
            " give this one another key"
        )
    if not number:
        ledger.check_new(f"request {name!r}")
        if replay is not None:
            await replay.check_question(run, key, name, payload, tuple(choices))
        await ledger.stop_rehearsal(run._ports, f"question {name!r}")
        number = await _put(run, key, fingerprint, name, payload, tuple(choices), deadline, default)
    answered = await collect(run, number)
    if answered is None:
        await ledger.suspend(run._ports)
    if answered.expired:
        raise RequestExpired(f"request {name!r} of thread {run.thread_id!r} {_why_closed(answered)}")
    return answer_of(answered)


def _why_closed(answered: Answered | None) -> str:
    """Say why a request takes no answer, in words that follow its id."""
    if answered is None:
        return "is no longer open: its thread was rolled back"
    if not answered.expired:
        return "was answered already"
    return "got no answer before its deadline" if answered.by == DEADLINE else f"was withdrawn: {answered.comment}"


async def _put(
    run: "Run",
    key: str,
    fingerprint: bytes,
    name: str,
    payload: Any,
    choices: tuple[str, ...],
    deadline: datetime | timedelta | float | None,
    default: Any,
) -> int:
    ledger, now = run._ledger, run._ports.now()
    packed = _packed_default(choices, default, name)
    if default is not None and deadline is None:
        raise ConfigurationError(f"request {name!r} has a `default`, which is taken at the `deadline`: give both")
    asked = Asked(key, fingerprint, name, encode(payload, path="payload"), choices, due_at(deadline, now), packed, now)
    ledger.journal.check_may_ask(ledger.claim.log.binding, asked)
    await ledger.note(run._ports, asked)
    number = ledger.journal.number_of(key)
    await ledger.emit("asked", {"payload": payload}, request=request_id_of(run, number), name=name)
    return number


def _packed_default(choices: tuple[str, ...], default: Any, name: str) -> bytes:
    """Encode the default answer: a choice where there are choices, else a value."""
    if default is None:
        return b""
    if choices:
        check_choice(choices, default, name)
    return encode(default, path="default")


async def collect(run: "Run", number: int) -> Answered | None:
    """Return the answer to a request: the consumed one, or the one in the inbox, or its default after the deadline."""
    ledger, backend = run._ledger, run._reader.backend
    if number in ledger.journal.answers:
        return ledger.journal.answers[number]
    if ledger.rehearsal is not None:
        return None  # to consume an answer is a write
    binding, thread = ledger.claim.log.binding, ledger.claim.thread
    asked = ledger.journal.requests[number - 1]
    inbox = await run._ports.perform(backend.inbox, thread)
    if message_key(number) not in inbox:
        if not asked.deadline or run._ports.now() < asked.deadline:
            ledger.awaited.messages.add(message_key(number))
            return None
        default = pack_answer(binding, _at_deadline(asked, number, run._ports.now()))
        await run._ports.perform(backend.post, thread, message_key(number), default)
        inbox = await run._ports.perform(backend.inbox, thread)
    answered = unpack_answer(binding, number, inbox[message_key(number)])
    metadata = packed_metadata(row_details(answered))
    intent = Intent(journal=True, metadata=metadata, consumed=(message_key(number),))
    await ledger.commit(run._ports, intent, answered)
    details = {"request": request_id_of(run, number), "name": asked.name, "expired": answered.expired}
    await ledger.emit("answer_received", **details)
    return answered


def request_id_of(run: "Run", number: int) -> str:
    """Return the id of a request, which `store.answer` takes."""
    return str(RequestId(run.thread_id, number, run._ledger.claim.log.binding.life))


def _at_deadline(asked: Asked, number: int, now: int) -> Answered:
    nothing = encode(None)
    if not asked.default:
        return Answered(number, None, nothing, DEADLINE, "", now, expired=True)
    if asked.choices:
        return Answered(number, decode(asked.default), nothing, DEADLINE, "", now)
    return Answered(number, None, asked.default, DEADLINE, "", now)


def leave_answer(
    reader: Reader, request_id: RequestId, choice: str | None, value: Any, by: str, comment: str, now: int
) -> Request:
    """Post the answer to a request, and return the answered request. Blocking. Raises `Conflict` if it has one."""
    thread, number = reader.key(request_id.thread_id), request_id.number
    binding, request, value = _checked(reader, request_id, choice, value, now)
    entry = Answered(number, choice, encode(value, path="value"), by, comment, now)
    was_posted = call(reader, thread, message_key(number), pack_answer(binding, entry))
    # Its run may have consumed the default at this moment, and removed its message: then ours came too late.
    consumed = Journal.of(reader.load_head(thread).log.document).answers.get(number)
    if not was_posted or consumed not in {None, entry}:
        raise Conflict(f"request {request_id} was answered already")
    return replace(request, status="answered", answer=answer_of(entry))


def leave_answers(reader: Reader, values: Mapping[RequestId, Any], now: int) -> list[Request]:
    """Post answers for a thread that the caller holds, after all of them were checked and encoded. Blocking.

    The value for a request with choices is its choice, or a bool if these are approve and reject. An equal answer that
    exists already counts as this one, so that an interrupted call can be repeated. Returns the answered requests.
    """
    checked = [_answer_to_leave(reader, request_id, given, now) for request_id, given in values.items()]
    left = [each for each in checked if each is not None]
    for binding, request, entry in left:
        thread, key = reader.key(request.thread_id), message_key(entry.number)
        if not reader.backend.post(thread, key, pack_answer(binding, entry)):
            _refuse_another(unpack_answer(binding, entry.number, reader.backend.inbox(thread)[key]), entry, request.id)
    return [request for _, request, _ in left]


def _answer_to_leave(
    reader: Reader, request_id: RequestId, given: Any, now: int
) -> tuple[Binding, Request, Answered] | None:
    """Return an answer that its request takes; None if an equal one exists. `Conflict` if the thread is finished."""
    thread, number = reader.key(request_id.thread_id), request_id.number
    loaded = reader.load_head(thread)
    journal = _journal_with(loaded.log, request_id)
    take_in_answers(journal, loaded.log.binding, reader.backend.inbox(thread))
    asked, there = journal.requests[number - 1], journal.answers.get(number)
    choice, value = (_choice(asked.choices, given), None) if asked.choices else (None, given)
    if there is None or loaded.seen.head.status in FINISHED:
        binding, request, value = _checked(reader, request_id, choice, value, now)
        return binding, request, Answered(number, choice, encode(value, path="value"), "", "", now)
    value = encode(checked_value(asked, value, request_id), path="value")
    _refuse_another(there, Answered(number, choice, value, "", "", now), request_id)
    return None


def _choice(choices: Sequence[str], given: Any) -> Any:
    return YES_OR_NO[not given] if type(given) is bool and choices == YES_OR_NO else given


def _refuse_another(there: Answered, entry: Answered, request_id: object) -> None:
    """Raise `Conflict` if the existing answer is not equal to this one."""
    if there.expired or (there.choice, there.value) != (entry.choice, entry.value):
        raise Conflict(f"request {request_id} {_why_closed(there)}")


def _checked(
    reader: Reader, request_id: RequestId, choice: str | None, value: Any, now: int
) -> tuple[Binding, Request, Any]:
    """Return an open request that takes this answer, and the value as it takes it; raise if it does not."""
    loaded = reader.load_head(reader.key(request_id.thread_id))
    request = _open_request(loaded.log, loaded.seen.head, request_id)
    check_choice(request.choices, choice, request.name)
    if request.deadline is not None and due_at(request.deadline, now) <= now:
        raise RequestExpired(f"the deadline of request {request_id} is past")
    asked = Journal.of(loaded.log.document).requests[request_id.number - 1]
    return loaded.log.binding, request, checked_value(asked, value, request_id)


def _open_request(log: Log, head: Head, request_id: RequestId) -> Request:
    journal, number = _journal_with(log, request_id), request_id.number
    if number not in journal.open_numbers():
        raise Conflict(f"request {request_id} {_why_closed(journal.answers.get(number))}")
    if head.status in FINISHED:
        raise Conflict(f"request {request_id}: thread {request_id.thread_id!r} is {head.status}")
    return journal.request(log.binding, number)


def _journal_with(log: Log, request_id: RequestId) -> Journal:
    """Return the journal of the thread; raise `NotFound` if it does not have this request."""
    journal = Journal.of(log.document)
    if log.binding.life != request_id.life or not 1 <= request_id.number <= len(journal.requests):
        raise NotFound(f"there is no request {request_id}")
    return journal
