"""Schedules: each is a thread in a namespace beside that of its store, due at its next tick.

Its code is `_keep`, an ordinary durable function that every worker serves. It submits a thread for the tick, whose id
is the tick, notes the tick in its state, and is suspended until the next one. If its process dies in between, another
submits the same id: so a tick creates at most one thread.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from holdfast.codec import decode
from holdfast.history.entries import Started
from holdfast.records.arguments import check_options, mapping_or_none, sequence, text_or_none
from holdfast.records.errors import ConfigurationError, Deleted, KeyReused, NotFound
from holdfast.records.identity import thread_key
from holdfast.records.retention import Retention
from holdfast.records.schedule import Schedule
from holdfast.records.words import Status
from holdfast.runs.arguments import fingerprint_of, packed_pair
from holdfast.runs.block import Terms
from holdfast.runs.durable import AwaitableDurable, Durable, named_call, registry
from holdfast.runs.queues import DEFAULT_QUEUE, Queue, queue_of
from holdfast.runs.run import Run
from holdfast.runs.scope import current_frame
from holdfast.runs.submitting import Served, Service, Submission, submit
from holdfast.runs.ticks import (
    CatchUp,
    Overlap,
    Timing,
    check_words,
    missed_ticks,
    moment_of,
    next_tick,
    tick_id,
    ticks_to_fire,
    timing_of,
)
from holdfast.stores.maintenance import Maintenance
from holdfast.stores.writer import Intent, Place

if TYPE_CHECKING:
    from holdfast.runs.store import Store

BESIDE = ".schedules"
"""What the namespace of schedules has in addition to the one that they submit to."""
KEEPERS = {"every": "holdfast:every", "cron": "holdfast:cron"}
"""The function that keeps a schedule, by what it ticks by: only workers that can read cron expressions serve those."""
PAUSED_US = 3600_000_000
ROWS_KEPT = 1024
"""How many rows a schedule has before those of the past are deleted."""
OPEN = {Status.QUEUED, Status.WORKING, Status.INPUT_REQUIRED}
TRIES, PATIENCE_SECONDS = 1_000_000, 5.0
"""A schedule does not give up: what it submits may be impossible only for now."""


class Plan(msgspec.Struct, frozen=True):
    """What a schedule submits, and when."""

    function: str
    timing: Timing
    call: bytes
    takes_moment: bool
    catch_up: CatchUp
    overlap: Overlap
    queue: str
    priority: int
    labels: Mapping[str, str]


class Progress(msgspec.Struct, frozen=True):
    """The state of a schedule's thread, as plain data."""

    plan: Plan
    fired: int
    """All ticks up to this moment are settled: fired, skipped or dropped."""
    last: int = 0
    """The last tick that created a thread."""
    paused: bool = False


declared: dict[str, tuple[Durable[Any, Any], Plan]] = {}
"""The schedules that the modules of this program declare, by name."""


class ScheduleOptions(TypedDict, total=False):
    """The keywords of `schedule`: when it ticks, with what it calls the function, and where that queues."""

    cron: str | None
    every: timedelta | float | None
    tz: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    catch_up: CatchUp
    overlap: Overlap
    queue: Queue | str | None
    priority: int
    labels: Mapping[str, str] | None


def schedule(name: str, fn: Durable[Any, Any], **options: Unpack[ScheduleOptions]) -> None:
    """Declare, at import, that every worker of this program keeps a schedule: it submits `fn` at each tick.

    - `cron` is five fields, such as `0 9 * * 1-5`, on the wall clock of `tz` (UTC); it needs the extra `cron`. `every`,
      at least a second, ticks at multiples since 1970.
    - `args` and `kwargs` are those of the call. The thread of a tick is `NAME@2026-11-17T08:00:00Z`, with `queue`,
      `priority` and `labels`. A function that takes `scheduled_at` gets the moment.
    - `catch_up` is what to do about ticks that no worker was there for: the `latest`, `all` (up to 100), or `none`.
    - `overlap="skip"` skips a tick while the thread of the one before is open; `allow` does not. With `catch_up="all"`
      you want `allow`: else the first missed tick is open when the next ones are looked at.
    """
    before = declared.get(_check_name(name))
    if before is not None and before[0].name != getattr(fn, "name", None):
        raise ConfigurationError(f"schedule {name!r} is declared for {before[0].name} already; give another name")
    declared[name] = (fn, plan_of(fn, options))


def plan_of(fn: object, options: ScheduleOptions) -> Plan:
    """Return what a schedule submits, checked."""
    if not isinstance(fn, Durable):
        raise ConfigurationError(f"a schedule is for a durable function, got {fn!r}")
    check_options(options, [*ScheduleOptions.__annotations__])
    catch_up, overlap = options.get("catch_up", "latest"), options.get("overlap", "skip")
    check_words(catch_up, overlap)
    timing = timing_of(options.get("cron"), options.get("every"), options.get("tz", "UTC"))
    arguments, named = sequence(options.get("args", ()), "args"), mapping_or_none(options.get("kwargs"), "kwargs") or {}
    takes_moment = "scheduled_at" in fn._taken.names
    fn._call(arguments, {**named, **_moment(0, takes_moment)})
    place = Submission.of({name: options[name] for name in ("queue", "priority", "labels") if name in options})
    queue = fn._service.queue if place.queue is None else queue_of(place.queue)
    call, labels = packed_pair(arguments, named), dict(place.labels or {})
    return Plan(fn.name, timing, call, takes_moment, catch_up, overlap, queue.name, place.priority, labels)


def _check_name(name: object) -> str:
    known = text_or_none(name, "name")
    if known is None:
        raise ConfigurationError("`name` must be the name of a schedule, such as 'digest'")
    thread_key(b"", tick_id(known, 1))  # the id of a tick, at its longest
    return known


def _moment(tick: int, takes_moment: bool) -> dict[str, datetime]:
    return {"scheduled_at": moment_of(tick)} if takes_moment else {}


# The threads of schedules


def beside(store: "Store") -> "Store":
    """Return a handle on the namespace of a store's schedules. It need not be closed: it uses what the store owns."""
    from holdfast.runs.store import Store

    bindings = store._reader.bindings
    return Store(
        store._backend,
        committer=store._committer,
        ports=store._ports,
        keys=bindings.ring,
        compress=bindings.compress,
        namespace=bindings.namespace + BESIDE,
        limits=store._limits,
        on_close=lambda: None,
    )


async def put(store: "Store", name: str, plan: Plan) -> None:
    """Create a schedule, or change it. Ticks before a change of its times are not caught up."""
    schedules = beside(store)
    known = await _progress(schedules, _check_name(name))
    if known is not None and known.plan == plan:
        return
    now = await store._ports.perform(store._reader.agenda.now)
    if known is not None and known.plan.timing.kind != plan.timing.kind:
        await schedules.delete(name)  # another function keeps it from now on
        known = None
    if known is None:
        with suppress(NotFound):
            await schedules.revive(name)  # it was deleted, perhaps by a process that died then

    def changed(known: Progress | None) -> Progress:
        if known is None:
            return Progress(plan, now)
        return replace(known, plan=plan, fired=known.fired if known.plan.timing == plan.timing else now)

    await _write(schedules, name, changed)


async def pause(store: "Store", name: str, *, paused: bool) -> None:
    """Stop a schedule, or let it tick again; what it missed meanwhile is not caught up. `NotFound` if there is none."""
    schedules, now = beside(store), await store._ports.perform(store._reader.agenda.now)
    found = await _progress(schedules, name)
    if found is None:
        raise _missing(name)
    await _write(schedules, name, lambda known: replace(known or found, paused=paused, fired=now))


async def remove(store: "Store", name: str) -> None:
    """Delete a schedule; the threads that it submitted stay. `NotFound` if there is none."""
    schedules = beside(store)
    if await _progress(schedules, _check_name(name)) is None:
        raise _missing(name)
    await schedules.delete(name)
    with suppress(NotFound):
        await schedules.revive(name)


async def find(store: "Store") -> list[Schedule]:
    """Return all schedules, by name."""
    schedules, found, cursor = beside(store), [], None
    while True:
        page = await schedules.threads(cursor=cursor, limit=1000)
        progress = {info.thread_id: await _progress(schedules, info.thread_id) for info in page}
        found += [_shown(name, each) for name, each in progress.items() if each is not None]
        cursor = page.next
        if cursor is None:
            return sorted(found, key=lambda each: each.name)


async def put_declared(store: "Store", functions: Collection[Served]) -> None:
    """Create or change the schedules that this program declares for these functions."""
    names = {function.name for function in functions}
    for name, (function, plan) in declared.items():
        if function.name in names:
            await put(store, name, plan)


def _missing(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}; `holdfast schedules` lists them")


def _shown(name: str, progress: Progress) -> Schedule:
    plan, timing = progress.plan, progress.plan.timing
    following = 0 if progress.paused else next_tick(timing, progress.fired)
    return Schedule(
        name=name,
        function=plan.function,
        cron=timing.cron or None,
        every=timedelta(microseconds=timing.every) if timing.every else None,
        tz=timing.tz,
        catch_up=plan.catch_up,
        overlap=plan.overlap,
        paused=progress.paused,
        fired_at=moment_of(progress.last) if progress.last else None,
        next_at=moment_of(following) if following else None,
    )


async def _progress(schedules: "Store", name: str) -> Progress | None:
    """Return the state of a schedule; None if there is none."""
    checkpoint = await schedules.latest(name)
    return None if checkpoint is None else msgspec.convert(checkpoint.state, Progress)


async def _write(schedules: "Store", name: str, change: Callable[[Progress | None], Progress]) -> None:
    """Change the state of a schedule, as it is once its thread is claimed: the keeper may just have fired a tick.

    The thread is due at once: the keeper waits for the next tick.
    """
    async with schedules._run_block(name, None, Terms(silent=True)) as run:
        ledger, ports = run._ledger, run._ports
        started, known = [], None
        if ledger.journal.started is not None:
            known = msgspec.convert(run.state, Progress)
        else:
            call, keeper = packed_pair((), {}), KEEPERS[change(None).plan.timing.kind]
            started = [Started(keeper, call, fingerprint_of(call, keeper), ports.now())]
            ledger.place = Place(keeper, 1, DEFAULT_QUEUE)
        ledger.change_state(msgspec.to_builtins(change(known), builtin_types=(bytes,)))
        await ledger.commit(ports, Intent(cause="event"), *started)
        ledger.resumes_at = 0


# The keeper


def keepers_of(store: "Store") -> list[Durable[Any, Any]]:
    """Return the durable functions that keep the schedules of a store, for workers on the namespace beside it."""

    async def keep() -> None:
        frame = current_frame.get()
        assert frame is not None  # noqa: S101  it is run by a worker
        await _keep(store, frame.run)

    service, names = Service(retries=TRIES, backoff=PATIENCE_SECONDS), dict(KEEPERS)
    if find_spec("cronsim") is None:
        del names["cron"]
    keepers: list[Durable[Any, Any]] = []
    for name in names.values():
        keepers.append(AwaitableDurable(keep, lambda: store, Terms(), None, name, "ignore", service))
        del registry[name]  # it is no function of the user's program
    return keepers


async def _keep(store: "Store", run: Run) -> None:
    """Fire the ticks that are due, note them, and wait for the next."""
    ledger, ports = run._ledger, run._ports
    progress, now = msgspec.convert(run.state, Progress), await ports.perform(run._reader.agenda.now)
    if progress.paused:
        ledger.wake_by(now + PAUSED_US)
        await ledger.suspend(ports)
    timing = progress.plan.timing
    missed, last = missed_ticks(timing, progress.fired, now), progress.last
    for tick in ticks_to_fire(timing, progress.fired, now, progress.plan.catch_up):
        if await _fire(store, run.thread_id, progress.plan, tick, last):
            last = tick
    fired = missed[-1] if missed else progress.fired
    if missed:
        ledger.change_state({"fired": fired, "last": last})
        await ledger.commit(ports, Intent(cause="event"))
    if ledger.claim.writer.seen.head.row_count > ROWS_KEPT:
        await ports.perform(_prune, run, now)
    following = next_tick(timing, max(fired, now))
    ledger.wake_by(following or now + PAUSED_US)
    await ledger.suspend(ports)


async def _fire(store: "Store", name: str, plan: Plan, tick: int, last: int) -> bool:
    """Submit the thread of a tick; False if the thread of the one before is open, and must not overlap."""
    if plan.overlap == "skip" and last and await _is_open(store, tick_id(name, last)):
        return False
    arguments, named = decode(plan.call)
    call = named_call(plan.function, arguments, {**named, **_moment(tick, plan.takes_moment)})
    try:
        options = Submission(queue=plan.queue, priority=plan.priority, labels=plan.labels)
        await submit(store, tick_id(name, tick), call, options)
    except (Deleted, KeyReused):
        return True  # it was fired before, and deleted, or the schedule was changed meanwhile
    return True


async def _is_open(store: "Store", thread_id: str) -> bool:
    try:
        return (await store.thread(thread_id)).status in OPEN
    except NotFound:
        return False


def _prune(run: Run, now: int) -> None:
    """Delete the rows of past ticks. Blocking."""
    thread, reader = run._ledger.claim.thread, run._reader
    seen = reader.seen(thread)
    if seen is not None:
        Maintenance(reader).prune(thread, seen.encoded, retention=Retention(keep_last=1), now=now, dry_run=False)
