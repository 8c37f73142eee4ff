"""Faults on demand: a backend that fails before or after its n-th call.

`FaultyBackend` fails at one call; `crash_points` tries all calls of a scenario, one after the other.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from holdfast.history.tuning import Tuning
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Row, Swap
from holdfast.stores.agenda import NO_LIMITS, Agenda, Depth, Entry, QueueLimits, Taken
from holdfast.stores.backend import Backend, Busy, Listing, counts
from holdfast.stores.listed_agenda import agenda_of

P = ParamSpec("P")
T = TypeVar("T")
How: TypeAlias = Literal["unavailable", "lost reply", "crash before", "crash after"]
EVERY_HOW: tuple[How, ...] = ("unavailable", "lost reply", "crash before", "crash after")
WRITES = frozenset({"swap", "post"})


class Crash(BaseException):
    """The process dies here. Not an Exception, so that `except Exception` does not catch it."""


class Fault(NamedTuple):
    """Fail at call number `at` (the first is 1), in one of four ways.

    `unavailable`: nothing is done, and it raises `StoreUnavailable`. `lost reply`: it is done, and it raises
    `OutcomeUnknown` (a read has no effect, so it is `unavailable` too). `crash before` and `crash after`: the process
    dies. `calls` counts only calls of these names; all if empty.
    """

    at: int
    how: How = "unavailable"
    calls: frozenset[str] = frozenset()


class FaultyBackend:
    """Any backend, with a fault. It fails once, then works again; assign `plan` for the next fault."""

    def __init__(self, inner: Backend, plan: Fault | None = None) -> None:
        self.inner = inner
        self._agenda: Agenda = agenda_of(inner)
        self.kind = inner.kind
        self.tuning: Tuning = inner.tuning
        self.inline = inner.inline
        self.calls: list[str] = []
        """The names of all calls so far."""
        self._plan: Fault | None = None
        self._counted = 0
        self.fired = False
        self.plan = plan

    @property
    def plan(self) -> Fault | None:
        """The next fault. Assigning one resets the count."""
        return self._plan

    @plan.setter
    def plan(self, plan: Fault | None) -> None:
        self._plan, self._counted, self.fired = plan, 0, False

    def _do(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls.append(name)
        fault = self._due(name)
        if fault is None:
            return function(*args, **kwargs)
        self.fired = True
        if fault.how == "crash before":
            raise Crash(f"before {name}")
        if fault.how == "unavailable" or (fault.how == "lost reply" and name not in WRITES):
            raise StoreUnavailable(f"injected: {name} was not done")
        try:
            result = function(*args, **kwargs)
        except Busy:
            self.plan = fault._replace(at=1)  # nothing was done: its retry is the call to fail
            raise
        if fault.how == "lost reply":
            raise OutcomeUnknown(f"injected: the reply to {name} was lost")
        raise Crash(f"after {name}: {result!r:.40}")

    def _due(self, name: str) -> Fault | None:
        fault = self._plan
        if fault is None or self.fired or (fault.calls and name not in fault.calls):
            return None
        self._counted += 1
        return fault if self._counted == fault.at else None

    def open(self) -> None:
        """See `Backend.open`. It has no faults."""
        self.inner.open()

    def close(self) -> None:
        """See `Backend.close`. It has no faults."""
        self.inner.close()

    def guarantee(self) -> Guarantee:
        """See `Backend.guarantee`. It has no faults."""
        return self.inner.guarantee()

    def check(self) -> list[str]:
        """See `Backend.check`. It has no faults."""
        return self.inner.check()

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        return self._do("heads", self.inner.heads, threads)

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`."""
        return self._do("swap", self.inner.swap, swaps, wait=wait)

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`."""
        return self._do("rows", self.inner.rows, thread, seq)

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        return self._do("blobs", self.inner.blobs, thread, ids)

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        return self._do("index", self.inner.index, thread, before, limit)

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`."""
        return self._do("threads", self.inner.threads, prefix, statuses, labels, cursor, limit)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`; lists the threads if the backend does not count."""
        return self._do("counts", counts, self.inner, prefix)

    def take(
        self,
        prefix: bytes,
        queue: str,
        routes: Collection[bytes],
        most: int,
        after: bytes = b"",
        limits: QueueLimits = NO_LIMITS,
        low: int = 0,
    ) -> Taken:
        """See `Agenda.take`."""
        return self._do("take", self._agenda.take, prefix, queue, routes, most, after, limits, low)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self._do("look_again", self._agenda.look_again, thread, due)

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`."""
        return self._do("call", self._agenda.call, thread, key, value)

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return self._do("depth", self._agenda.depth, prefix, queue)

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        return self._do("entries", self._agenda.entries, prefix)

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`."""
        return self._do("spend", self._agenda.spend, bucket, cost, burst)

    def now(self) -> int:
        """See `Agenda.now`. It has no faults."""
        return self._agenda.now()

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        return self._do("post", self.inner.post, thread, key, value)

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        return self._do("inbox", self.inner.inbox, thread)


def crash_points(
    scenario: Callable[[Backend], object],
    make: Callable[[], Backend],
    check: Callable[[Backend, Fault], object],
    *,
    hows: Sequence[How] = EVERY_HOW,
    calls: frozenset[str] = frozenset(),
) -> int:
    """Run a scenario with a fault at its first call, its second, and so on to its last; for each way to fail.

    `make` returns a new, open backend each time. After each fault, `check` gets the backend without faults and the
    fault, and raises if a promise was broken. Errors of the scenario after a fault are expected. Returns the number of
    faults.
    """
    return sum(1 for how in hows for _ in _points(scenario, make, check, how, calls))


def _points(
    scenario: Callable[[Backend], object],
    make: Callable[[], Backend],
    check: Callable[[Backend, Fault], object],
    how: How,
    calls: frozenset[str],
) -> Iterator[Fault]:
    at = 0
    while True:
        at += 1
        fault = Fault(at, how, calls)
        inner = make()
        try:
            if not _fires(scenario, FaultyBackend(inner, fault)):
                return
            check(inner, fault)
        finally:
            inner.close()
        yield fault


def _fires(scenario: Callable[[Backend], object], faulty: FaultyBackend) -> bool:
    """True if the fault happened; then an error of the scenario is its result."""
    try:
        scenario(faulty)
    except BaseException:
        if not faulty.fired:
            raise
    return faulty.fired
