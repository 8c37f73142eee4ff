"""Submitting work: a thread is created that nobody holds, with its function and arguments recorded, and is due.

One write creates it, or none does: the same id with the same call is the same thread.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from holdfast.history.entries import JOURNAL, AnyEntry, Started, Traced, encode_entry, row_details
from holdfast.history.journal import Journal
from holdfast.records.arguments import check_labels, check_options, text_or_none, whole_number
from holdfast.records.errors import ConfigurationError, Conflict, KeyReused, LeaseHeld, NotFound
from holdfast.records.words import Status
from holdfast.runs.arguments import fingerprint_of, packed_pair
from holdfast.runs.asking import due_at
from holdfast.runs.block import Tools
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import seconds
from holdfast.stores.backend import Transacting
from holdfast.stores.saving import Saving
from holdfast.stores.writer import Intent, Place

if TYPE_CHECKING:
    from holdfast.runs.store import Store

DEFAULT_QUEUE = "default"
LONGEST_QUEUE_BYTES = 128
PRIORITIES = (-2, 2)
LOOK_SECONDS = 0.05
LOOKS = 100
"""How often to look at a thread that another run has claimed and not begun yet."""

Compare = Callable[[Started], KeyReused | None]
"""Returns an error if a thread was started with another call than the one submitted."""


def queue_name(value: object) -> str:
    """Return the name of a queue, checked."""
    name = text_or_none(value, "queue") or DEFAULT_QUEUE
    if len(name.encode()) > LONGEST_QUEUE_BYTES:
        raise ConfigurationError(f"`queue` must have at most {LONGEST_QUEUE_BYTES} bytes, got {len(name.encode())}")
    return name


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """How processes serve a durable function: its queue, the versions of its threads, and what an error does."""

    queue: str = DEFAULT_QUEUE
    version: int = 1
    since: int | None = None
    retries: int = 0
    backoff: Any = None

    @property
    def versions(self) -> range:
        """The versions of threads that it can resume."""
        return range(self.version if self.since is None else self.since, self.version + 1)

    def check(self) -> None:
        """Raise `ConfigurationError` for an invalid option."""
        queue_name(self.queue)
        whole_number(self.version, "version", 1)
        if self.since is not None:
            whole_number(self.since, "since", 1, self.version)
        whole_number(self.retries, "retries")
        if self.backoff is not None and not callable(self.backoff):
            seconds(self.backoff, "backoff")


class SubmitOptions(TypedDict, total=False):
    """The keywords of `options` and of `store.submit`."""

    queue: str | None
    priority: int
    delay: timedelta | float | None
    at: datetime | None
    labels: Mapping[str, str] | None
    connection: Any


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one submit, checked."""

    queue: str | None = None
    priority: int = 0
    delay: timedelta | float | None = None
    at: datetime | None = None
    labels: Mapping[str, str] | None = None
    connection: Any = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Submission":
        """Return the options, checked; `ConfigurationError` for one that is wrong or unknown."""
        check_options(options, cls.__struct_fields__)
        return cls(**options)

    def __post_init__(self) -> None:
        if self.queue is not None:
            queue_name(self.queue)
        whole_number(self.priority, "priority", *PRIORITIES)
        if self.delay is not None and self.at is not None:
            raise ConfigurationError("give either `delay` or `at`, not both")
        if self.delay is not None:
            seconds(self.delay, "delay")
        given: object = self.at
        if given is not None and (not isinstance(given, datetime) or given.tzinfo is None):
            raise ConfigurationError(f"`at` must be a datetime with a time zone, got {given!r}")
        check_labels(self.labels)

    def due_at(self, now: int) -> int:
        """Return when the thread is first due, in microseconds since 1970; 0 for at once."""
        return due_at(self.at if self.delay is None else self.delay, now)


class Call(msgspec.Struct, frozen=True):
    """What a submitted thread runs: a function by name, its packed arguments, and the labels it sets on its threads."""

    function: str
    arguments: bytes
    fingerprint: bytes
    queue: str
    labels: Mapping[str, str] | None
    compare: Compare


def unknown_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Return the call of a function that this program does not have: the one that runs it adds the defaults."""
    packed = packed_pair(args, kwargs)
    fingerprint = fingerprint_of(packed, name)

    def compare(known: Started) -> KeyReused | None:
        if (known.function, known.fingerprint) == (name, fingerprint):
            return None
        return KeyReused(f"the thread runs {known.function}, or was started with other arguments; give another id")

    return Call(name, packed, fingerprint, DEFAULT_QUEUE, None, compare)


async def submit(store: "Store", thread_id: str, call: Call, options: Submission) -> None:
    """Create a thread that is due, or find that it exists; `KeyReused` if it runs something else."""
    tools, thread = store._tools, store._tools.reader.key(thread_id)
    await tools.open()
    for _ in range(LOOKS):
        try:
            await _create(tools, store._saving, thread, _intent(tools, call, options), options.connection)
        except Conflict:
            await tools.ports.perform(_compare, tools, thread, thread_id, call.compare)
            await store._poke(thread_id, options.priority)
            return
        except LeaseHeld as held:  # a run has claimed it, and records what it runs in a moment
            refusal = held
            await tools.ports.sleep(LOOK_SECONDS)
        else:
            queue = options.queue or call.queue
            await tools.events.emit("submitted", thread_id, 1, function=call.function, queue=queue)
            await store._poke(thread_id, options.priority)
            return
    raise refusal


def _intent(tools: Tools, call: Call, options: Submission) -> Intent:
    now = tools.ports.now()
    started = Started(call.function, call.arguments, call.fingerprint, now)
    trace = tools.events.trace_context()
    entries: list[AnyEntry] = [started, *([Traced(trace)] if trace else [])]
    return Intent(
        appends=tuple((JOURNAL, encode_entry(entry)) for entry in entries),
        journal=True,
        creates=True,
        status=Status.QUEUED.value,
        metadata=packed_metadata(row_details(started)),
        labels={**(call.labels or {}), **(options.labels or {})},
        place=Place(call.function, 0, queue_name(options.queue or call.queue), options.priority),
        wake_at=options.due_at(now),
    )


async def _create(tools: Tools, saving: Saving, thread: bytes, intent: Intent, connection: object) -> None:
    """Write the first row of the thread; `Conflict` if it has rows."""
    if connection is None:
        await saving.commit(thread, intent)
        return
    backend = tools.reader.backend
    if not isinstance(backend, Transacting):
        raise ConfigurationError(f"`connection` needs a PostgreSQL store, and this one is {backend.kind}")
    proposal = await tools.ports.perform(lambda: saving.writers.alone(thread).propose(intent, tools.ports.now()))
    transaction = backend.transaction(connection, tools.ports)
    await transaction.join()
    try:
        is_created = await transaction.swap(proposal.swap)
    except BaseException as error:
        await transaction.roll_back(error)
        raise
    await transaction.commit()
    if not is_created:
        raise Conflict("the thread exists already")


def _compare(tools: Tools, thread: bytes, thread_id: str, compare: Compare) -> None:
    """Raise `KeyReused` if an existing thread runs something else. Blocking."""
    try:
        known = Journal.of(tools.reader.load_head(thread).log.document).started
    except NotFound:
        raise Conflict(f"thread {thread_id!r} is being created by another transaction; retry later") from None
    if known is None:
        raise KeyReused(f"thread {thread_id!r} is used by something else; give another thread id")
    refusal = compare(known)
    if refusal is not None:
        raise refusal
