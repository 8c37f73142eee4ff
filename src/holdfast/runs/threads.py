"""What a runtime does with threads besides driving one: claim, read and delete them, look into their past."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.codec import DEFAULT, Limits, decode, encode
from holdfast.codec.limits import refuse_together
from holdfast.history.entries import Noted, RolledBack, Started, encodings_of
from holdfast.history.journal import Journal
from holdfast.history.meta import decode_meta
from holdfast.history.restore import read_state
from holdfast.ports import Ports
from holdfast.records.arguments import check_labels
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    KeyUnavailable,
    NotFound,
)
from holdfast.records.head import Head
from holdfast.records.words import Status
from holdfast.runs.api import default_store
from holdfast.runs.block import RunBlock, Terms
from holdfast.runs.store import Store, tools_of
from holdfast.stores.maintenance import Maintenance

if TYPE_CHECKING:
    from holdfast.runs.run import Run

T = TypeVar("T")

UNREADABLE = (Corrupt, IncompatibleCheckpoint, KeyUnavailable)
"""The errors of a thread that cannot be read."""


def claim(store: Store, thread_id: str, terms: Terms, labels: Mapping[str, str] | None = None) -> RunBlock:
    """Claim a thread for an `async with` block, which yields the run to make a `Driver` of."""
    return RunBlock(tools_of(store), thread_id, check_labels(labels), terms)


def checked_store(store: Any) -> Store:
    """Return the store that a user gave; raise `ConfigurationError` if it is not one."""
    if not isinstance(store, Store):
        raise ConfigurationError(f"`store` must be a store from holdfast.open, got {store!r}")
    return store


def store_finder(store: Any) -> Callable[[], Store]:
    """Return a function that returns the given store, or for None the default store at the time of the call."""
    if store is None:
        return default_store
    found = checked_store(store)
    return lambda: found


async def every(page: Any) -> AsyncIterator[Any]:
    """Yield the items of a listing: those of this page, and of all pages that follow."""
    while page is not None:
        for item in page:
            yield item
        page = await page.next_page()


def fresh_id(store: Store, prefix: str) -> str:
    """Return an id for a new thread: the prefix and a random part."""
    return f"{prefix}-{tools_of(store).ports.entropy(8).hex()}"


def ports_of(store: Store) -> Ports:
    """Return the ports of a store: its clock, and how it calls functions."""
    return tools_of(store).ports


# Deleting


async def was_deleted(store: Store, thread_id: str) -> bool:
    """True if the thread was deleted and not revived."""
    tools = tools_of(store)
    await tools.open()
    seen = await tools.ports.perform(tools.reader.seen, tools.reader.key(thread_id))
    return seen is not None and seen.head.deleted


async def delete_ended(store: Store, thread_id: str, *statuses: Status) -> None:
    """Delete a thread that ended with one of these statuses, unless another process has started it again."""
    await _delete_if(store, thread_id, lambda head: head.status in statuses)


async def delete_expired(store: Store, thread_id: str, ttl: int) -> bool:
    """Delete a thread that nothing was written to for `ttl` microseconds, unless a process that may be alive holds it.

    Returns True if it was deleted; False also if another process deleted it first, and has perhaps started it again.
    """
    ports, now = ports_of(store), ports_of(store).now()

    def is_expired(head: Head) -> bool:
        is_held = head.held(now) and not ports.is_certainly_dead(head.owner)
        return not is_held and now - head.updated_at > ttl

    return await _delete_if(store, thread_id, is_expired)


async def _delete_if(store: Store, thread_id: str, condition: Callable[[Head], bool]) -> bool:
    """Delete a thread if its head still meets a condition at that moment. True if it was deleted."""
    tools = tools_of(store)
    await tools.open()
    delete_if = Maintenance(tools.reader).delete_if
    is_deleted = await tools.ports.perform(delete_if, tools.reader.key(thread_id), condition, tools.ports.now())
    if is_deleted:
        await tools.events.emit("deleted", thread_id)
    return is_deleted


# Notes, and reading them back

Note = Noted
"""What a runtime writes down, of a kind that it chose: see `note`."""
Rollback = RolledBack
"""A restore of the thread: to which checkpoint (`target`), and how many steps it kept (`kept`)."""


def note(kind: str, content: Any, now: int, **details: Any) -> Note:
    """Make a note of a kind, with plain content; `details` are further fields of `Note`.

    `key` makes it findable, `value` is an encoded result, `error` says why it failed and `failed` which steps are
    behind that (they are executed again); with an `action` it is listed among the thread's steps.
    """
    plain = msgspec.structs.asdict(content) if isinstance(content, msgspec.Struct) else content
    return Noted(kind, encode(plain, path=kind), now, **details)


def read_note(noted: Note, make: Callable[[Any], T]) -> T:
    """Return what `make` makes of a note's content; raise `Corrupt` if the content does not fit its kind."""
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
        """What the thread runs, if that was noted: `function`, encoded `arguments` and their `fingerprint`."""
        return self._journal.started

    @property
    def rollbacks(self) -> list[Rollback]:
        """The restores of the thread, the oldest first."""
        return self._journal.rollbacks

    def notes(self, *kinds: str) -> list[Note]:
        """Return the notes of these kinds, the oldest first."""
        return [each for each in self._journal.notes if each.kind in kinds]

    def contents(self, kind: str) -> Iterator[Any]:
        """Yield the contents of the notes of a kind, the oldest first; each is decoded when it is reached."""
        return (decode(each.content) for each in self._journal.notes if each.kind == kind)

    def check_together(self, notes: Iterable[Note], what: str) -> None:
        """Raise `LimitExceeded` if these notes, all of them decoded, would take too much memory together."""
        refuse_together([each for noted in notes for each in encodings_of(noted)], self._limits, what)


async def read(store: Store, thread_id: str) -> Record:
    """Return the record of a thread without claiming it. Raises `NotFound` if it does not exist."""
    tools = tools_of(store)
    await tools.open()
    log = (await tools.ports.perform(tools.reader.load_head, tools.reader.key(thread_id))).log
    return Record(Journal.of(log.document), read_state(log.binding, log.document), log.binding.limits)


# The past of a run's thread

BEGINNING = 0
PAGE = 64
TARGET = "rolled_back_to"
"""In the metadata of a checkpoint that a restore wrote: the checkpoint that it restored."""


class Pruned(Exception):
    """The checkpoints that a restore needs were pruned."""


class Then(msgspec.Struct, frozen=True):
    """A thread as it was at a checkpoint."""

    seq: int
    state: Any
    journal: Journal

    @property
    def step_count(self) -> int:
        """How many steps it had."""
        return self.journal.step_count

    @property
    def rollback_count(self) -> int:
        """How often it had been rolled back."""
        return len(self.journal.rollbacks)


class Past:
    """The checkpoints of a run's thread. The methods block: call them by `ports.perform`."""

    def __init__(self, run: "Run") -> None:
        self._reader = run._reader
        self._thread = run._ledger.claim.thread
        self._binding = run._ledger.claim.log.binding

    def lineage(self, start: int | None = None) -> Iterator[int]:
        """Yield checkpoints from `start` (default: the newest) back, without those that a restore undid or wrote."""
        skip_to, before = start, None if start is None else start + 1
        while True:
            seen, headers = self._reader.survey(self._thread, before, PAGE)
            for header in headers:
                hidden = not header.is_checkpoint or not seen.head.marks.shows(header.seq)
                if hidden or (skip_to is not None and header.seq > skip_to):
                    continue
                metadata = decode_meta(self._binding, header).metadata
                target: int | None = decode(metadata).get(TARGET) if metadata else None
                if target is None:
                    yield header.seq
                skip_to = header.seq - 1 if target is None else target
            if len(headers) < PAGE:
                return
            before = headers[-1].seq

    def at(self, seq: int, life: str = "") -> Then:
        """Return the thread at a checkpoint, empty at the beginning. Raises `NotFound` if it was deleted."""
        if seq == BEGINNING and not life:
            return Then(seq, {}, Journal())
        log = self._reader.load_checkpoint(self._thread, seq, life).log
        return Then(seq, read_state(self._binding, log.document), Journal.of(log.document))

    def at_latest(self, seq: int) -> Then:
        """Return the thread at a checkpoint; if that was pruned meanwhile, at the newest one before it."""
        try:
            return self.at(seq)
        except NotFound:
            older = next(self.lineage(seq), None)
            return self.at(self.beginning() if older is None else older)

    def beginning(self) -> int:
        """Return the beginning, if no earlier checkpoint was pruned; else raise `Pruned`."""
        if self._reader.survey(self._thread, None, 1)[0].head.marks.floor > 1:
            raise Pruned("the checkpoints before the failing step were pruned: there is none to return to")
        return BEGINNING
