"""Notes, what a runtime writes down about its thread, and how it reads them back."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from holdfast.codec import DEFAULT, Limits, decode, encode
from holdfast.codec.limits import refuse_together
from holdfast.history.entries import Noted, RolledBack, Started, encodings_of
from holdfast.history.journal import Journal
from holdfast.history.restore import read_state
from holdfast.records.errors import Corrupt
from holdfast.runs.store import Store, tools_of

T = TypeVar("T")

Note = Noted
"""What a runtime writes down, of a kind that it chose: see `note`."""
Rollback = RolledBack
"""That a thread was restored: to which checkpoint (`target`), and how many steps it kept (`kept`)."""


def note(kind: str, content: Any, now: int, **details: Any) -> Note:
    """A note of a kind, with plain content; `details` are further fields of `Note`.

    `key` makes it findable, `value` is an encoded result, `error` says why it failed and `failed` which steps are
    behind that (they are executed again); with an `action` it is listed among the thread's steps.
    """
    plain = msgspec.structs.asdict(content) if isinstance(content, msgspec.Struct) else content
    return Noted(kind, encode(plain, path=kind), now, **details)


def read_note(noted: Note, make: Callable[[Any], T]) -> T:
    """What `make` makes of a note's content; `Corrupt` if that is not what its kind says."""
    try:
        return make(decode(noted.content))
    except (msgspec.ValidationError, TypeError, ValueError, LookupError) as error:
        raise Corrupt(f"a note of kind {noted.kind!r} cannot be read: {error}", record="journal") from error


class Record(msgspec.Struct, frozen=True):
    """What the journal of a thread holds for a runtime."""

    _journal: Journal
    state: Any = None
    """The thread's state when it was read; {} if none was saved yet. None in the record of a run: see `Run.state`."""
    _limits: Limits = DEFAULT

    @property
    def started(self) -> Started | None:
        """What the thread was started with: `function`, `arguments` (encoded), `fingerprint`."""
        return self._journal.started

    @property
    def rollbacks(self) -> list[Rollback]:
        """How often, and to where, the thread was restored."""
        return self._journal.rollbacks

    def notes(self, *kinds: str) -> list[Note]:
        """The notes of these kinds, the oldest first."""
        return [each for each in self._journal.notes if each.kind in kinds]

    def contents(self, kind: str) -> Iterator[Any]:
        """What the notes of a kind say, the oldest first; each is decoded as it comes."""
        return (decode(each.content) for each in self._journal.notes if each.kind == kind)

    def check_together(self, notes: Iterable[Note], what: str) -> None:
        """`LimitExceeded` if these notes, all of them decoded, would take too much memory together."""
        refuse_together([each for noted in notes for each in encodings_of(noted)], self._limits, what)


async def read(store: Store, thread_id: str) -> Record:
    """The record of a thread, without a claim on it. `NotFound` if there is no such thread."""
    tools = tools_of(store)
    await tools.open()
    loaded = await tools.ports.perform(tools.reader.load_head, tools.reader.key(thread_id))
    log = loaded.log
    return Record(Journal.of(log.document), read_state(log.binding, log.document), log.binding.limits)
