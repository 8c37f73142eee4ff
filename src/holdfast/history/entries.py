"""The entries of a journal: what the runs of a thread did, asked and were told, each a small msgpack array.

An entry begins with its kind. Values within it (results, payloads) are encodings of their own, so that reading a
journal decodes no value that nobody asks for.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from holdfast.codec import encode
from holdfast.history.cells import Path
from holdfast.records.ranges import Count, Moment, Seq

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
    """A step with an effect is about to be executed: from here on, until it ends, it is in doubt."""

    key: str
    fingerprint: bytes
    attempt: Count
    at: Moment
    arguments: str = ""
    """A preview of what it was called with; empty if none is kept."""
    inputs: bytes = b""
    """The encoding of all of it, a dict by name or a list by place; empty unless the store keeps that."""


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
    """The steps within it whose errors ended the attempt; the next attempt executes them again."""


class StepDone(Entry, frozen=True, tag="done"):
    """A step's result, recorded: it is never executed again."""

    key: str
    fingerprint: bytes
    name: str
    value: bytes
    at: Moment
    took: int
    """Microseconds it took, attempts and waits included: what a replay saves."""
    arguments: str = ""
    inputs: bytes = b""
    """As in `Begun`."""


class StepError(Entry, frozen=True, tag="fail"):
    """A step that failed for good."""

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
    """The encoding of the error, if it is raised as itself: names of its class, arguments, attributes."""


class Recorded(Entry, frozen=True, tag="step"):
    """A step the user recorded: the fields of a `Step` as an encoding."""

    key: str
    fields: bytes
    at: Moment


class Marked(Entry, frozen=True, tag="mark"):
    """A checkpoint or an append was made under this key."""

    key: str


class Asked(Entry, frozen=True, tag="ask"):
    """A request to the outside. Requests are numbered in their order, from 1."""

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
    """What a value must be, as an encoding: pairs of the name of a type and its description; empty for any value."""


class Answered(Entry, frozen=True, tag="answer"):
    """The one answer to request `number`, consumed. `expired`: there was none, or the request was withdrawn."""

    number: Count
    choice: str | None
    value: bytes
    by: str
    comment: str
    at: Moment
    expired: bool = False


class Slept(Entry, frozen=True, tag="sleep"):
    """A durable sleep until `due`."""

    key: str
    due: Moment


class Retaken(Entry, frozen=True, tag="recover"):
    """A recovery claimed the thread because the process that ran it was gone."""

    at: Moment


class Ended(Entry, frozen=True, tag="end"):
    """A run came to its end: with a result, or with an error that left it, or cancelled by somebody."""

    status: str
    value: bytes
    type: str
    message: str
    failed: tuple[str, ...]
    """The failed steps whose errors left the run; they are executed again by the next run."""
    at: Moment


class Traced(Entry, frozen=True, tag="trace"):
    """The trace that a run belonged to, as a W3C `traceparent`: the next run is linked to it."""

    context: str


class Noted(Entry, frozen=True, tag="note"):
    """What a runtime writes down in its own words: of which kind, and its content as an encoding.

    A note with an `action` is listed among the thread's steps. Its content is then a dict, which becomes the step's
    metadata, except for names that begin with an underscore.
    """

    kind: str
    content: bytes
    at: Moment
    key: str = ""
    """What it is looked up by, together with its kind; empty if nobody does."""
    value: bytes = b""
    """A result, encoded; empty if there is none."""
    error: str = ""
    """Why it failed; empty if it did not."""
    took: int = 0
    """Microseconds of work that a replay saves."""
    failed: tuple[str, ...] = ()
    """The failed steps behind its error: the next attempt executes them again."""
    action: str = ""
    """The name under which it is listed among the steps; empty if it is not a step."""
    field: str = ""
    """The field of `Step` that its value is shown in; `tool_output` if empty."""
    lasting: bool = False
    """True if a fork keeps it, though it is not a step."""


class RolledBack(Entry, frozen=True, tag="rollback"):
    """The thread is again as it was when its journal had `length` entries; what was noted and answered stays known."""

    length: Seq
    kept: Count
    """How many of the recorded steps are left."""
    target: Seq
    """The checkpoint whose state this is; 0 for the beginning."""
    at: Moment


class Forked(Entry, frozen=True, tag="fork"):
    """Everything before this was done by the thread it was forked from."""

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
"""An entry as one item of the journal."""

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
"""The fields of each kind of entry that hold the encoding of a user's or a runtime's value."""


def encodings_of(entry: Entry) -> Iterator[bytes]:
    """The encodings of values within an entry."""
    for name in _ENCODED.get(type(entry), ()):
        if encoding := getattr(entry, name):
            yield encoding


def told(entry: AnyEntry) -> dict[str, object]:
    """What a listing of rows says of an entry: in a word what happened, and to what. No content."""
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
