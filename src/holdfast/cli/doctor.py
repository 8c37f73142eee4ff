"""`holdfast doctor`: examine a store. Each examination yields verdicts, what was found, and what to do about it."""

import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

import click

import holdfast
import holdfast.sync
from holdfast.cli.apps import recover_command
from holdfast.cli.command import EXIT_ERROR, EXIT_OK, command
from holdfast.cli.lookup import PAGE, all_threads, every, is_abandoned
from holdfast.cli.output import COLOURS, Answer, Screen, counted, printable, size, span
from holdfast.cli.requests import late_requests
from holdfast.cli.session import Session, lowest_level, require_store
from holdfast.records.errors import ConfigurationError, Conflict, HoldfastError, LeaseHeld, NotFound
from holdfast.records.reports import Guarantee
from holdfast.records.thread import ThreadInfo
from holdfast.records.urls import redacted
from holdfast.records.words import Durability, Status
from holdfast.stores.locations import locate
from holdfast.stores.transport import LOCAL, VERIFIED
from holdfast.sync import Store

NAMESPACE: Final = "holdfast-doctor"
PROBE: Final = "probe"
SKEW: Final = timedelta(seconds=5)
LITTLE_SPACE: Final = 100_000_000
MOST_NAMED: Final = 3
SURVIVES: Final = {
    Durability.NONE: "nothing",
    Durability.PROCESS: "the death of a process, not power loss",
    Durability.DURABLE: "power loss",
    Durability.REPLICATED: "the loss of a machine",
}


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

    def __init__(self, session: Session) -> None:
        self.session = session
        self.now = datetime.now(UTC)

    @property
    def store(self) -> Store:
        """The store."""
        return self.session.store

    @cached_property
    def threads(self) -> list[ThreadInfo]:
        """All threads."""
        return list(all_threads(self.store))


Examination = Callable[[Patient], Findings]


@command(only_reads=True)
@click.option("--no-probe", is_flag=True, help="Write nothing: skip the probes of claims and of conflicting writes.")
def doctor(session: Session, no_probe: bool) -> Answer:
    """Examine a store: is it reachable, what does it promise, do claims work, is anything pending.

    Exit code 1 if anything failed. The probes write to a thread in the namespace `holdfast-doctor`, and delete it.
    """
    require_store(session.url)
    chosen = [examine for examine in EXAMINATIONS if not (no_probe and examine in PROBES)]
    findings = list(_examine(Patient(session), chosen))
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    document = {"ok": not failed, "findings": findings}
    return Answer(document, _lines(session.screen, findings), EXIT_ERROR if failed else EXIT_OK)


def _examine(patient: Patient, examinations: list[Examination]) -> Iterator[Finding]:
    """Yield all findings; only the first if the store cannot be reached."""
    for examine in examinations:
        name = examine.__name__
        try:
            yield from (Finding(name, *rest) for rest in examine(patient))
        except HoldfastError as error:
            yield Finding(name, Verdict.FAIL, printable(str(error)), "")
            if examine is reachable:
                return


def _lines(screen: Screen, findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    indent = " " * (width + 8)
    for finding in findings:
        first, *others = wrap(printable(finding.found), screen.width - len(indent))
        yield f"{screen.style(finding.verdict.ljust(4), fg=COLOURS[finding.verdict])}  {finding.name:<{width}}  {first}"
        for line in [*others, *wrap(f"→ {finding.advice}" if finding.advice else "", screen.width - len(indent))]:
            yield indent + line
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    yield ""
    yield ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def reachable(patient: Patient) -> Findings:
    """Check that the store can be opened and listed."""
    kind, place = locate(patient.session.url)
    where, found = redacted(place) or "memory", patient.store.stats()
    yield Verdict.OK, f"{kind} store at {where}: {counted(found.threads, 'thread')}, {size(found.bytes)}", ""


def durability(patient: Patient) -> Findings:
    """Say what an acknowledged save survives."""
    guarantee, refusal = _strongest(patient.session)
    shown = {name: value for name, value in guarantee.details.items() if name not in {"writers", "transport"}}
    details = ", ".join(f"{name} {value}" for name, value in shown.items())
    verdict = Verdict.WARN if refusal or guarantee.level is Durability.NONE else Verdict.OK
    yield verdict, f"{guarantee.level}: a save survives {SURVIVES[guarantee.level]} ({details})", refusal


def _strongest(session: Session) -> tuple[Guarantee, str]:
    """Return the guarantee of the highest level that the store can be opened with, and why it refuses the default."""
    refusal = ""
    for level in (None, Durability.PROCESS):
        try:
            with holdfast.sync.open(session.url, keys=session.keys, durability=level) as store:
                return store.guarantee(), refusal
        except ConfigurationError as error:
            refusal = refusal or printable(str(error))
    return session.store.guarantee(), refusal


def transport(patient: Patient) -> Findings:
    """Check that the connection to the server is encrypted and verified."""
    guarantee = patient.store.guarantee()
    found = guarantee.details.get("transport")
    if found is None:
        return
    if found in {LOCAL, VERIFIED}:
        yield Verdict.OK, f"the connection to the server: {found}", ""
        return
    advice = {
        "postgres": "set sslmode=verify-full and sslrootcert= in the URL",
        "redis": "use rediss:// with ssl_ca_certs=, and leave its checks on",
    }.get(guarantee.store, "use an endpoint with https:")
    yield Verdict.WARN, f"{found}: someone on the network can read and change data, or impersonate the server", advice


def versions(patient: Patient) -> Findings:
    """Name the versions in use, and check for a known bug of SQLite."""
    yield Verdict.OK, f"holdfast {holdfast.__version__}, Python {platform.python_version()}", ""
    sqlite = patient.store.guarantee().details.get("sqlite")
    if sqlite is None:
        return
    if has_reset_bug(sqlite):
        advice = "let no other program write to this file, or update SQLite (3.51.3, 3.50.7, 3.44.6)"
        yield Verdict.OK, f"SQLite {sqlite} has the WAL-reset bug; Holdfast's own lock avoids it", advice
    else:
        yield Verdict.OK, f"SQLite {sqlite}", ""


def has_reset_bug(version: str) -> bool:
    """True for the versions of SQLite that can lose a write-ahead log when two connections meet."""
    major, minor, patch = map(int, version.split(".")[:3])
    fixed = {(3, 50): (3, 50, 7), (3, 44): (3, 44, 6)}.get((major, minor), (3, 51, 3))
    return (3, 7, 0) <= (major, minor, patch) < fixed


def permissions(patient: Patient) -> Findings:
    """Check that this user can write, that not everybody can, and that the disk has space."""
    kind, text = locate(patient.session.url)
    if kind not in {"sqlite", "file"}:
        return
    place = Path(text)
    folder = place if place.is_dir() else place.parent
    beside = [path for suffix in ("-wal", "-shm", "-lock") if (path := Path(f"{place}{suffix}")).exists()]
    wanted = [folder, place, *beside] if kind == "sqlite" else [folder]
    denied = [str(path) for path in wanted if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        yield Verdict.FAIL, f"cannot read and write {', '.join(denied)}", "change the owner or the mode"
    elif place.stat().st_mode & stat.S_IWOTH:
        yield Verdict.WARN, f"every user of this machine can write to {place}", f"chmod o-w {place}"
    else:
        yield Verdict.OK, "this user can read and write", ""
    free = shutil.disk_usage(folder).free
    little = free < LITTLE_SPACE
    advice = "free some space: saves will be refused" if little else ""
    yield Verdict.WARN if little else Verdict.OK, f"{size(free)} left on the disk", advice


def clock(patient: Patient) -> Findings:
    """Check that nothing was written in the future."""
    ahead = [info for info in patient.threads if info.updated_at - patient.now > SKEW]
    if not ahead:
        yield Verdict.OK, "nothing was written in the future", ""
        return
    most = max(info.updated_at for info in ahead) - patient.now
    advice = "synchronize the clocks of all machines with NTP: leases and deadlines depend on them"
    yield Verdict.WARN, f"{counted(len(ahead), 'thread')} written up to {span(most)} in the future", advice


def conflicts(patient: Patient) -> Findings:
    """Check that the second of two conflicting writes is refused."""
    with _probe_thread(patient.session) as (one, other):
        one.save(PROBE, {"probe": 1}, expect_seq=0)
        try:
            other.save(PROBE, {"probe": 2}, expect_seq=0)
        except Conflict:
            yield Verdict.OK, "a conflicting write was refused", ""
        else:
            yield Verdict.FAIL, "a conflicting write was accepted", "do not use this store"


def leases(patient: Patient) -> Findings:
    """Check that a second run cannot claim a held thread."""
    with _probe_thread(patient.session) as (one, other), one.run(PROBE, lease=5, wait=0):
        try:
            with other.run(PROBE, lease=5, wait=0):
                yield Verdict.FAIL, "two runs held one thread", "do not use this store"
        except LeaseHeld:
            yield Verdict.OK, "a second claim on a held thread was refused", ""


@contextmanager
def _probe_thread(session: Session) -> Iterator[tuple[Store, Store]]:
    """Open two handles on an empty thread, with a connection each, and delete it at the end.

    Its id is always the same, so that deletions leave only one record behind.
    """
    url, keys, level = session.url, session.keys, lowest_level(session.url)
    with (
        holdfast.sync.open(url, keys=keys, namespace=NAMESPACE, durability=level, inline=True) as one,
        holdfast.sync.open(url, keys=keys, namespace=NAMESPACE, durability=level, inline=False) as other,
    ):
        one.delete(PROBE)
        with suppress(NotFound):
            one.revive(PROBE)
        try:
            yield one, other
        finally:
            one.delete(PROBE)


def pending(patient: Patient) -> Findings:
    """Find threads that stay as they are until somebody acts."""
    store, late = patient.store, late_requests(patient.store, patient.now)
    if damaged := [info.thread_id for info in patient.threads if info.damaged is not None]:
        advice = (
            "`holdfast verify` says how: perhaps only the keys are wrong; `holdfast delete ID` deletes one for good"
        )
        yield Verdict.FAIL, f"damaged: {_named(damaged)}", advice
    if answered := _answered(patient):
        advice = f"{recover_command(store, answered)} resumes them"
        yield Verdict.WARN, f"answered, and not run since: {_named(answered)}", advice
    if abandoned := [info.thread_id for info in patient.threads if is_abandoned(info, patient.now)]:
        yield Verdict.WARN, f"abandoned: {_named(abandoned)}", f"{recover_command(store, abandoned)} resumes them"
    if late:
        advice = f"{recover_command(store, [each.thread_id for each in late])} ends them"
        yield Verdict.WARN, f"requests past their deadline: {_named([each.id for each in late])}", advice
    if failed := [info.thread_id for info in patient.threads if info.status is Status.FAILED]:
        advice = "`holdfast show ID` says why; `holdfast retry ID` puts one back"
        yield Verdict.WARN, f"failed: {_named(failed)}", advice
    if not (damaged or answered or abandoned or late or failed):
        yield Verdict.OK, "nothing is pending", ""


def _answered(patient: Patient) -> list[str]:
    """Return the threads that wait without an open request and without a timer."""
    asking = {request.thread_id for request in every(patient.store.requests(limit=PAGE))}
    return [
        info.thread_id
        for info in patient.threads
        if info.status is Status.INPUT_REQUIRED
        and info.lease is None
        and info.sealed_by is None
        and (info.wake_at is None or info.wake_at <= patient.now)
        and info.thread_id not in asking
    ]


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


PROBES: Final[list[Examination]] = [conflicts, leases]
EXAMINATIONS: Final[list[Examination]] = [
    reachable,
    durability,
    transport,
    versions,
    permissions,
    clock,
    *PROBES,
    pending,
]
