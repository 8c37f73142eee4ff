"""Submitting work: a thread is created that nobody holds, with its function and arguments recorded, and is due.

One write creates it, or none does: the same id with the same call is the same thread.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from holdfast.history.entries import JOURNAL, AnyEntry, Started, Traced, encode_entry, row_details
from holdfast.history.journal import Journal
from holdfast.records.arguments import check_labels, check_options, whole_number
from holdfast.records.errors import ConfigurationError, Conflict, KeyReused, LeaseHeld, NotFound, QueueFull
from holdfast.records.head import Head
from holdfast.records.words import Status
from holdfast.runs.arguments import fingerprint_of, packed_pair
from holdfast.runs.asking import due_at
from holdfast.runs.block import Terms, Tools
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.options import seconds
from holdfast.runs.queues import Queue, queue_of
from holdfast.runs.scope import rehearsing
from holdfast.runs.settling import put_back
from holdfast.stores.agenda import entry_of
from holdfast.stores.backend import Transacting
from holdfast.stores.listed_agenda import ListedAgenda, agenda_of
from holdfast.stores.saving import Saving
from holdfast.stores.writer import Intent, Place

if TYPE_CHECKING:
    from holdfast.ports import Ports
    from holdfast.runs.run import Run
    from holdfast.runs.store import Store

NO_QUEUE = queue_of(None)
"""The default queue, which has no limits."""
PRIORITIES = (-2, 2)
ENDED = {Status.COMPLETE.value, Status.FAILED.value, Status.CANCELLED.value}
LOOK_SECONDS = 0.05
LOOKS = 100
"""How often to look at a thread that another run has claimed and not begun yet."""

Compare = Callable[[Started], KeyReused | None]
"""Returns an error if a thread was started with another call than the one submitted."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """How processes serve a durable function: its queue, the versions of its threads, and what an error does."""

    queue: Queue = NO_QUEUE
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
        whole_number(self.version, "version", 1)
        if self.since is not None:
            whole_number(self.since, "since", 1, self.version)
        whole_number(self.retries, "retries")
        if self.backoff is not None and not callable(self.backoff):
            seconds(self.backoff, "backoff")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Service":
        """Return how the options of a runtime say that it is served, checked."""
        given = {name: options[name] for name in ServiceOptions.__annotations__ if name in options}
        service = cls(**{**given, "queue": queue_of(given.get("queue"))})
        service.check()
        return service

    def place(self, function: str) -> Place:
        """Return the place of a thread that this version of a function begins."""
        return Place(function, self.version, self.queue.name, fair_by=self.queue.fair_by)


class ServiceOptions(TypedDict, total=False):
    """The keywords of a runtime that say how processes serve it."""

    queue: Queue | str
    version: int
    since: int | None


class SubmitOptions(TypedDict, total=False):
    """The keywords of `options` and of `store.submit`."""

    queue: Queue | str | None
    priority: int
    delay: timedelta | float | None
    at: datetime | None
    labels: Mapping[str, str] | None
    connection: Any


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one submit, checked."""

    queue: Queue | str | None = None
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
            queue_of(self.queue)
        whole_number(self.priority, "priority", *PRIORITIES)
        if self.delay is not None and self.at is not None:
            raise ConfigurationError("give either `delay` or `at`, not both")
        if self.delay is not None:
            seconds(self.delay, "delay")
        given: object = self.at
        if given is not None and (not isinstance(given, datetime) or given.tzinfo is None):
            raise ConfigurationError(f"`at` must be a datetime with a time zone, got {given!r}")
        due_at(self.at, 0)
        check_labels(self.labels)

    def due_at(self, now: int) -> int:
        """Return when the thread is first due, in microseconds since 1970; 0 for at once."""
        moment = due_at(self.at if self.delay is None else self.delay, now)
        return moment if moment > now else 0


class Call(msgspec.Struct, frozen=True):
    """What a submitted thread runs: a function by name, its packed arguments, and the labels it sets on its threads."""

    function: str
    arguments: bytes
    fingerprint: bytes
    queue: Queue
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

    return Call(name, packed, fingerprint, NO_QUEUE, None, compare)


class Served(Protocol):
    """What a process can run by its name: a durable function, or the work of a runtime."""

    name: str
    _place: str
    _store: "Callable[[], Store]"
    _service: Service

    def _serves(self, ports: "Ports", version: int) -> bool: ...
    async def _execute(self, run: "Run", packed: bytes | None) -> Any: ...
    def _call(self, arguments: Sequence[Any], named: Mapping[str, Any], thread_id: str = "") -> Call: ...


async def submit(store: "Store", thread_id: str, call: Call, options: Submission) -> None:
    """Create a thread that is due, or find that it exists; `KeyReused` if it runs something else."""
    tools = store._tools
    await tools.open()
    if (ledger := rehearsing()) is not None:
        if await tools.ports.perform(tools.reader.seen, tools.reader.key(thread_id)) is None:
            await ledger.stop_rehearsal(tools.ports, f"thread {thread_id!r}")
        await tools.ports.perform(_compared, tools, thread_id, call.compare)
        return
    for _ in range(LOOKS):
        try:
            if not await _is_created(store, thread_id, call, options):
                await _find(store, thread_id, call, options)
        except LeaseHeld as held:  # a run has claimed it, and records what it runs in a moment
            refusal = held
            await tools.ports.sleep(LOOK_SECONDS)
        else:
            await store._poke(thread_id, options.priority)
            return
    raise refusal


async def _is_created(store: "Store", thread_id: str, call: Call, options: Submission) -> bool:
    """Create the thread; False if it exists."""
    tools = store._tools
    place, queue = _place(call, options), _queue(call, options)
    intent = _intent(tools, call, options, place)
    await tools.ports.perform(_check_room, tools, thread_id, queue)
    try:
        await _create(tools, store._saving, tools.reader.key(thread_id), intent, options.connection)
    except Conflict:
        return False
    await tools.events.emit("submitted", thread_id, 1, function=call.function, queue=place.queue)
    return True


def _queue(call: Call, options: Submission) -> Queue:
    return call.queue if options.queue is None else queue_of(options.queue)


def _place(call: Call, options: Submission) -> Place:
    queue = _queue(call, options)
    return Place(call.function, 0, queue.name, options.priority, queue.fair_by)


def _check_room(tools: Tools, thread_id: str, queue: Queue) -> None:
    """Raise `QueueFull` for a new thread if as many as may wait there; `ConfigurationError` if it cannot be limited."""
    reader = tools.reader
    agenda = agenda_of(reader.backend)
    if queue.has_limits and isinstance(agenda, ListedAgenda):
        raise agenda.unlimited()
    if queue.max_waiting is None:
        return
    depth = agenda.depth(reader.bindings.prefix, queue.name)
    is_full = depth.ready + depth.delayed >= queue.max_waiting
    if is_full and reader.backend.heads([reader.key(thread_id)])[0] is None:
        raise QueueFull(f"queue {queue.name!r} has {queue.max_waiting} waiting threads, as many as it may; retry later")


def _intent(tools: Tools, call: Call, options: Submission, place: Place) -> Intent:
    now = tools.ports.now()
    started = Started(call.function, call.arguments, call.fingerprint, now)
    trace = tools.events.trace_context()
    entries: list[AnyEntry] = [started, *([Traced(trace)] if trace else [])]
    return Intent(
        appends=tuple((JOURNAL, encode_entry(entry)) for entry in entries),
        size=len(call.arguments),
        journal=True,
        creates=True,
        status=Status.QUEUED.value,
        metadata=packed_metadata(row_details(started)),
        labels={**(call.labels or {}), **(options.labels or {})},
        place=place,
        wake_at=options.due_at(now),
    )


async def _find(store: "Store", thread_id: str, call: Call, options: Submission) -> None:
    """Check that a thread which exists runs this call, and queue it if nothing would run it: a fork, or an import."""
    tools = store._tools
    head = await tools.ports.perform(_compared, tools, thread_id, call.compare)
    if _runs_or_ended(head):
        return
    if options.connection is not None:
        raise Conflict(f"thread {thread_id!r} exists and is {head.status}; submit it without `connection`")
    async with store._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
        if _runs_or_ended(run._ledger.claim.found):  # another process was faster
            run._ledger.untouched = True
        else:
            await put_back(run, _place(call, options), options.due_at(tools.ports.now()))


def _runs_or_ended(head: Head) -> bool:
    return entry_of(head) is not None or head.status in ENDED


async def _create(tools: Tools, saving: Saving, thread: bytes, intent: Intent, connection: object) -> None:
    """Write the first row of the thread; `Conflict` if it has rows."""
    if connection is None:
        await saving.commit(thread, intent)
        return
    backend = tools.reader.backend
    if not isinstance(backend, Transacting):
        raise ConfigurationError(f"`connection` needs a PostgreSQL store, and this one is {backend.kind}")
    proposal = await tools.ports.perform(lambda: saving.writers.alone(thread).propose(intent, tools.ports.now()))
    transaction, shielded = backend.transaction(connection, tools.ports), tools.ports.shielded
    try:
        await shielded(transaction.join())  # a cancelled one would leave its savepoint open
        is_created = await transaction.swap(proposal.swap)
    except BaseException as error:
        await shielded(transaction.roll_back(error))
        raise
    await shielded(transaction.commit())
    if not is_created:
        raise Conflict("the thread exists already")


def _compared(tools: Tools, thread_id: str, compare: Compare) -> Head:
    """Return the head of an existing thread; `KeyReused` if it runs something else. Blocking."""
    try:
        loaded = tools.reader.load_head(tools.reader.key(thread_id))
    except NotFound:
        raise Conflict(
            f"thread {thread_id!r} is part of a transaction that is still open, perhaps this one; retry after its end"
        ) from None
    journal, head = Journal.of(loaded.log.document), loaded.seen.head
    was_cancelled_unbegun = head.status == Status.CANCELLED.value and not head.checkpoint and not journal.is_used
    if journal.started is None and not was_cancelled_unbegun:
        raise KeyReused(f"thread {thread_id!r} is used by something else; give another thread id")
    refusal = None if journal.started is None else compare(journal.started)
    if refusal is not None:
        raise refusal
    return head
