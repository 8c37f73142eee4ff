"""The entries of a journal: what the runs of a thread did, asked and were answered, each a small msgpack array.

An entry begins with its kind. Values in it (results, payloads) are encodings themselves, so that reading a journal
decodes only the values that are asked for. An answer arrives as a message first: its sender has no claim on the thread.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.binding import ANSWER, Binding
from holdfast.history.cells import Cell, Document, Path
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.ranges import UNDECODABLE, Count, Moment, Seq

JOURNAL: Path = ("journal",)
NOTHING = encode(None)


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="entry", forbid_unknown_fields=True):
    """One line of the journal. Times are microseconds since 1970."""


class Started(Entry, frozen=True, tag="start"):
    """A durable function was started: its registered name, and its arguments as an encoding."""

    function: str
    arguments: bytes
    fingerprint: bytes
    at: Moment


class Begun(Entry, frozen=True, tag="begin"):
    """A step with an effect is about to be executed: until it ends, it is in doubt."""

    key: str
    fingerprint: bytes
    attempt: Count
    at: Moment
    arguments: str = ""
    """A preview of its arguments; empty if none is kept."""
    inputs: bytes = b""
    """The encoding of all arguments, a dict by name or a list by place; empty unless the store keeps them."""


class Attempted(Entry, frozen=True, tag="try"):
    """An attempt failed, and the next is due at `due`."""

    key: str
    fingerprint: bytes
    attempt: Count
    type: str
    message: str
    due: Moment
    at: Moment
    failed: tuple[str, ...] = ()
    """The steps inside it whose errors ended the attempt; the next attempt executes them again."""


class StepDone(Entry, frozen=True, tag="done"):
    """A step's recorded result: the step is never executed again."""

    key: str
    fingerprint: bytes
    name: str
    value: bytes
    at: Moment
    took: int
    """Microseconds it took, including attempts and waits: what a replay saves."""
    arguments: str = ""
    inputs: bytes = b""
    """As in `Begun`."""


class StepError(Entry, frozen=True, tag="fail"):
    """A step failed after its last attempt."""

    key: str
    fingerprint: bytes
    name: str
    type: str
    message: str
    attempts: Count
    at: Moment
    arguments: str = ""
    inputs: bytes = b""
    """As in `Begun`."""
    raised: bytes = b""
    """The encoding of the error (names of its class, arguments, attributes), if the same error is raised again."""


class Recorded(Entry, frozen=True, tag="step"):
    """The user recorded a step: the fields of a `Step` as an encoding."""

    key: str
    fields: bytes
    at: Moment


class Marked(Entry, frozen=True, tag="mark"):
    """A checkpoint or an append was made under this key."""

    key: str


class Asked(Entry, frozen=True, tag="ask"):
    """A request to the outside was asked. Requests are numbered from 1."""

    key: str
    fingerprint: bytes
    name: str
    payload: bytes
    choices: tuple[str, ...]
    deadline: Moment
    default: bytes
    """The encoded answer at the deadline; empty if there is none."""
    at: Moment
    takes: bytes = b""
    """The types that a value must have, as an encoding: pairs of a name and a description; empty for any value."""


class Answered(Entry, frozen=True, tag="answer"):
    """The one answer to request `number` was consumed. `expired`: there was none, or the request was withdrawn."""

    number: Count
    choice: str | None
    value: bytes
    by: str
    comment: str
    at: Moment
    expired: bool = False


class Slept(Entry, frozen=True, tag="sleep"):
    """A durable sleep until `due` began."""

    key: str
    due: Moment


class Retaken(Entry, frozen=True, tag="recover"):
    """A recovery claimed the thread because the process that ran it had died."""

    at: Moment


class Ended(Entry, frozen=True, tag="end"):
    """A run ended: with a result, with an error, or cancelled."""

    status: str
    value: bytes
    type: str
    message: str
    failed: tuple[str, ...]
    """The failed steps whose errors ended the run; the next run executes them again."""
    at: Moment


class Traced(Entry, frozen=True, tag="trace"):
    """The trace that a run belongs to, as a W3C `traceparent`: the next run is linked to it."""

    context: str


class Noted(Entry, frozen=True, tag="note"):
    """A note of a runtime: its kind, and its content as an encoding. Their meaning is up to the runtime.

    A note with an `action` is listed as a step of the thread. Its content is then a dict, which becomes the step's
    metadata, except for names that begin with an underscore.
    """

    kind: str
    content: bytes
    at: Moment
    key: str = ""
    """It is looked up by its kind and this; empty if it is never looked up."""
    value: bytes = b""
    """A result, encoded; empty if there is none."""
    error: str = ""
    """Why it failed; empty if it did not."""
    took: int = 0
    """Microseconds of work that a replay saves."""
    failed: tuple[str, ...] = ()
    """The failed steps behind its error: the next attempt executes them again."""
    action: str = ""
    """The name of the step that it is listed as; empty if it is not a step."""
    field: str = ""
    """The field of `Step` that shows its value; `tool_output` if empty."""
    lasting: bool = False
    """True if a fork keeps it though it is not a step."""


class RolledBack(Entry, frozen=True, tag="rollback"):
    """The thread was rolled back to when its journal had `length` entries; notes and answers stay."""

    length: Seq
    kept: Count
    """The number of recorded steps that are left."""
    target: Seq
    """The checkpoint whose state this is; 0 for the beginning."""
    at: Moment


class Forked(Entry, frozen=True, tag="fork"):
    """Everything before this entry was done by the thread that this one was forked from."""

    origin: str


AnyEntry: TypeAlias = (
    Started
    | Begun
    | Attempted
    | StepDone
    | StepError
    | Recorded
    | Marked
    | Asked
    | Answered
    | Slept
    | Retaken
    | Ended
    | Traced
    | Noted
    | RolledBack
    | Forked
)
Memo: TypeAlias = Begun | Attempted | StepDone | StepError
Shown: TypeAlias = StepDone | StepError | Recorded | Noted

encode_entry: Callable[[Entry], bytes] = msgspec.msgpack.Encoder().encode
"""Encodes an entry as one item of the journal."""

_ENCODED: Final[dict[type[Entry], tuple[str, ...]]] = {
    Started: ("arguments",),
    Begun: ("inputs",),
    StepDone: ("value", "inputs"),
    StepError: ("inputs", "raised"),
    Recorded: ("fields",),
    Asked: ("payload", "default", "takes"),
    Answered: ("value",),
    Ended: ("value",),
    Noted: ("content", "value"),
}
"""The fields of each kind of entry that hold the encoding of a value."""
_decode: Callable[[bytes], list[AnyEntry]] = msgspec.msgpack.Decoder(list[AnyEntry]).decode


def encodings_of(entry: Entry) -> Iterator[bytes]:
    """Yield the encodings of values in an entry."""
    for name in _ENCODED.get(type(entry), ()):
        if encoding := getattr(entry, name):
            yield encoding


def row_details(entry: AnyEntry) -> dict[str, object]:
    """Return what a listing of rows shows of an entry: what happened, and to what. No content."""
    match entry:
        case Started():
            return {"started": entry.function}
        case Begun():
            return {"begun": entry.key}
        case Attempted():
            return {"failed": entry.key, "attempt": entry.attempt, "error": entry.type}
        case Asked():
            return {"asked": entry.name}
        case Answered():
            return {"answered": entry.number}
        case Slept():
            return {"sleeps": entry.key}
        case Retaken():
            return {"recovered": True}
        case Ended():
            return {"ended": entry.status}
        case _:
            return {}


def read_entries(document: Document) -> list[AnyEntry]:
    """Return the entries in a document, in order."""
    cell = document.get(JOURNAL)
    if cell is None:
        return []
    entries = parsed_entries(cell)
    _check_answers(entries)
    return entries


def parsed_entries(cell: Cell) -> list[AnyEntry]:
    """Return the entries in a part of a journal."""
    try:
        return _decode(cell.encoded())
    except UNDECODABLE as error:
        raise Corrupt(f"the journal cannot be read: {error}", record="journal") from error


def _check_answers(entries: list[AnyEntry]) -> None:
    """Refuse an answer to a request that was not asked before it."""
    asked_count = 0
    for entry in entries:
        if isinstance(entry, Asked):
            asked_count += 1
        elif isinstance(entry, Answered) and not 1 <= entry.number <= asked_count:
            raise Corrupt(
                f"the journal cannot be read: it has {asked_count} requests, and an answer to request {entry.number}",
                record="journal",
            )


def message_key(number: int) -> str:
    """Return the key of the message that answers request `number`."""
    return f"answer:{number}"


def pack_answer(binding: Binding, entry: Answered) -> bytes:
    """Return an answer as a sealed message."""
    content = [entry.choice, entry.value, entry.by, entry.comment, entry.at, entry.expired]
    return binding.seal(encode(content), entry.number, ANSWER)


def unpack_answer(binding: Binding, number: int, message: bytes) -> Answered:
    """Return the answer in a message."""
    name = f"answer {number} of {binding.thread_id!r}"
    try:
        return msgspec.convert(["answer", number, *decode(binding.unseal(message, number, ANSWER))], Answered)
    except (Corrupt, CodecError, TypeError, msgspec.ValidationError) as error:
        raise Corrupt(f"{name} is damaged: {error}", record=name) from error
