"""What a doctor looks at. Each examination yields verdicts, what was found, and what to do about it."""

import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import holdfast
import holdfast.sync
from holdfast.cli.find import every
from holdfast.cli.heads import PAGE
from holdfast.cli.hints import recover_command
from holdfast.cli.requests import late_requests
from holdfast.cli.screen import counted, size, span
from holdfast.processes import is_certainly_dead
from holdfast.records.errors import Conflict, LeaseHeld, NotFound
from holdfast.records.thread import ThreadInfo
from holdfast.records.urls import redacted
from holdfast.records.words import Durability, Status
from holdfast.stores.locations import locate
from holdfast.stores.transport import LOCAL, VERIFIED

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.sync import Store

NAMESPACE: Final = "holdfast-doctor"
PROBE: Final = "probe"
SKEW: Final = timedelta(seconds=5)
LITTLE_SPACE: Final = 100_000_000
MOST_NAMED: Final = 3


class Verdict(StrEnum):
    """How an examination came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


Findings = Iterator[tuple[Verdict, str, str]]


class Patient:
    """The store under examination; what several examinations need is read once."""

    def __init__(self, session: "Session", *, probe: bool) -> None:
        self.session = session
        self.probe = probe
        self.now = datetime.now(UTC)

    @property
    def store(self) -> "Store":
        """The store."""
        return self.session.store

    @cached_property
    def threads(self) -> list[ThreadInfo]:
        """All threads."""
        return list(every(self.store.threads(limit=PAGE)))


def reachable(patient: Patient) -> Findings:
    """Whether it can be opened and listed."""
    kind, place = locate(patient.session.url)
    where, found = redacted(place) or "memory", patient.store.stats()
    yield Verdict.OK, f"{kind} store at {where}: {counted(found.threads, 'thread')}, {size(found.bytes)}", ""


def durability(patient: Patient) -> Findings:
    """What an acknowledged save survives."""
    guarantee = patient.store.guarantee()
    details = ", ".join(
        f"{name} {value}" for name, value in guarantee.details.items() if name not in {"writers", "transport"}
    )
    survives = {
        Durability.NONE: "nothing",
        Durability.PROCESS: "the death of a process, not power loss",
        Durability.DURABLE: "power loss",
        Durability.REPLICATED: "the loss of a machine",
    }[guarantee.level]
    verdict = Verdict.WARN if guarantee.level is Durability.NONE else Verdict.OK
    yield verdict, f"{guarantee.level}: a save survives {survives} ({details})", ""


def transport(patient: Patient) -> Findings:
    """Whether someone between here and the server could read or change what is sent."""
    guarantee = patient.store.guarantee()
    found = guarantee.details.get("transport")
    if found is None:
        return
    if found in {LOCAL, VERIFIED}:
        yield Verdict.OK, f"the way to the server: {found}", ""
        return
    advice = {
        "postgres": "set sslmode=verify-full and sslrootcert= in the URL",
        "redis": "use rediss:// with ssl_ca_certs=, and leave its checks on",
    }.get(guarantee.store, "use an endpoint with https:")
    yield Verdict.WARN, f"{found}: someone on the way can read and change data, or pretend to be the server", advice


def versions(patient: Patient) -> Findings:
    """Which versions are at work, and whether one is known to be faulty."""
    yield Verdict.OK, f"holdfast {holdfast.__version__}, Python {platform.python_version()}", ""
    sqlite = patient.store.guarantee().details.get("sqlite")
    if sqlite is None:
        return
    if has_reset_bug(sqlite):
        advice = "let no other program write to this file, or update SQLite (3.51.3, 3.50.7, 3.44.6)"
        yield Verdict.OK, f"SQLite {sqlite} has the WAL-reset bug; Holdfast's own lock keeps clear of it", advice
    else:
        yield Verdict.OK, f"SQLite {sqlite}", ""


def has_reset_bug(version: str) -> bool:
    """True for the versions of SQLite that can lose a write-ahead log when two connections meet."""
    major, minor, patch = map(int, version.split(".")[:3])
    fixed = {(3, 50): (3, 50, 7), (3, 44): (3, 44, 6)}.get((major, minor), (3, 51, 3))
    return (3, 7, 0) <= (major, minor, patch) < fixed


def permissions(patient: Patient) -> Findings:
    """Whether this user may write, and others who should not may not."""
    kind, text = locate(patient.session.url)
    if kind not in {"sqlite", "file"}:
        return
    place = Path(text)
    folder = place if place.is_dir() else place.parent
    wanted = [folder, *([place, *filter(Path.exists, _beside(place))] if kind == "sqlite" else [])]
    denied = [str(path) for path in wanted if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        yield Verdict.FAIL, f"cannot read and write {', '.join(denied)}", "change the owner or the mode"
    elif place.stat().st_mode & stat.S_IWOTH:
        yield Verdict.WARN, f"anybody on this machine may write to {place}", f"chmod o-w {place}"
    else:
        yield Verdict.OK, "this user may read and write", ""
    free = shutil.disk_usage(folder).free
    if free < LITTLE_SPACE:
        yield Verdict.WARN, f"only {size(free)} left on the disk", "free some space: saves will be refused"
    else:
        yield Verdict.OK, f"{size(free)} left on the disk", ""


def _beside(place: Path) -> list[Path]:
    return [Path(f"{place}{suffix}") for suffix in ("-wal", "-shm", "-lock")]


def clock(patient: Patient) -> Findings:
    """Whether anything was written in the future."""
    ahead = [info for info in patient.threads if info.updated_at - patient.now > SKEW]
    if not ahead:
        yield Verdict.OK, "nothing was written in the future", ""
        return
    most = max(info.updated_at for info in ahead) - patient.now
    advice = "set the clocks of all machines by NTP: leases and deadlines go by them"
    yield Verdict.WARN, f"{counted(len(ahead), 'thread')} written up to {span(most)} in the future", advice


def comparing(patient: Patient) -> Findings:
    """Whether a writer that comes second is refused."""
    if not patient.probe:
        return
    with _Scratch(patient) as (one, other):
        one.save(PROBE, {"probe": 1}, expect_seq=0)
        try:
            other.save(PROBE, {"probe": 2}, expect_seq=0)
        except Conflict:
            yield Verdict.OK, "a write that expected something else was refused", ""
        else:
            yield Verdict.FAIL, "a write that expected something else was taken", "do not use this store"


def leases(patient: Patient) -> Findings:
    """Whether a thread that a run holds is closed to others."""
    if not patient.probe:
        return
    with _Scratch(patient) as (one, other), one.run(PROBE, lease=5, wait=0):
        try:
            with other.run(PROBE, lease=5, wait=0):
                yield Verdict.FAIL, "two runs held one thread", "do not use this store"
        except LeaseHeld:
            yield Verdict.OK, "a second claim on a held thread was refused", ""


class _Scratch:
    """Two handles on the probe's thread, which is empty at first and deleted at the end.

    It has a namespace of its own, and always the same id: what a deletion leaves behind is left once.
    """

    def __init__(self, patient: Patient) -> None:
        session = patient.session
        self._stores = [
            holdfast.sync.open(session.url, keys=session.keys, namespace=NAMESPACE, inline=inline)
            for inline in (True, False)  # two connections, not one shared by both
        ]

    def __enter__(self) -> "tuple[Store, Store]":
        one, other = self._stores
        one.delete(PROBE)
        with suppress(NotFound):
            one.revive(PROBE)
        return one, other

    def __exit__(self, *_: object) -> None:
        self._stores[0].delete(PROBE)
        for store in self._stores:
            store.close()


def undone(patient: Patient) -> Findings:
    """Whether anything waits for somebody who does not come."""
    abandoned = [info.thread_id for info in patient.threads if is_abandoned(info, patient.now)]
    failed = [info.thread_id for info in patient.threads if info.status is Status.FAILED]
    late_ones = late_requests(patient.store, patient.now)
    late, late_threads = [each.id for each in late_ones], [each.thread_id for each in late_ones]
    answered = _answered(patient)
    damaged = [info.thread_id for info in patient.threads if info.damaged is not None]
    if damaged:
        yield (
            Verdict.FAIL,
            f"damaged: {_named(damaged)}",
            "`holdfast verify` says how: perhaps only the keys are wrong; `holdfast delete ID` removes one for good",
        )
    if answered:
        yield (
            Verdict.WARN,
            f"answered, and not run since: {_named(answered)}",
            f"{recover_command(patient.store, answered)} resumes them",
        )
    if abandoned:
        yield (
            Verdict.WARN,
            f"abandoned: {_named(abandoned)}",
            f"{recover_command(patient.store, abandoned)} resumes them",
        )
    if late:
        yield (
            Verdict.WARN,
            f"requests past their deadline: {_named(late)}",
            f"{recover_command(patient.store, late_threads)} ends them",
        )
    if failed:
        yield (
            Verdict.WARN,
            f"failed: {_named(failed)}",
            "`holdfast show ID` says why; `holdfast retry ID` puts one back",
        )
    if not abandoned and not late and not failed and not answered and not damaged:
        yield Verdict.OK, "nothing is left undone", ""


def _answered(patient: Patient) -> list[str]:
    """The threads that wait though nothing is asked of anybody, and no timer runs."""
    asking = {request.thread_id for request in every(patient.store.requests(limit=PAGE))}
    waiting = [
        info.thread_id
        for info in patient.threads
        if info.status is Status.INPUT_REQUIRED
        and info.lease is None
        and info.sealed_by is None
        and not _sleeps(info, patient.now)
    ]
    return [thread_id for thread_id in waiting if thread_id not in asking]


def _sleeps(info: ThreadInfo, now: datetime) -> bool:
    return info.wake_at is not None and info.wake_at > now


def is_abandoned(info: ThreadInfo, now: datetime) -> bool:
    """True if a thread is said to be at work, and nobody can be."""
    if info.status is not Status.WORKING:
        return False
    if info.lease is not None:
        return info.lease.expires_at < now or is_certainly_dead(info.lease.owner)
    return info.wake_at is None or info.wake_at < now


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


EXAMINATIONS: Final[tuple[tuple[str, Callable[[Patient], Findings]], ...]] = (
    ("reachable", reachable),
    ("durability", durability),
    ("transport", transport),
    ("versions", versions),
    ("permissions", permissions),
    ("clock", clock),
    ("comparing", comparing),
    ("leases", leases),
    ("undone", undone),
)
