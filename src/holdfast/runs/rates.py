"""Rates that all processes of a store share: a step waits its turn, and may charge afterwards what it really used."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.records.arguments import duration_us, text_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.stores.agenda import PARKED, Pace
from holdfast.stores.bindings import Bindings
from holdfast.stores.listed_agenda import agenda_of

if TYPE_CHECKING:
    from holdfast.runs.run import Run

LONGEST_NAME_BYTES = 128


class _Named(msgspec.Struct, frozen=True):
    """The part of a rate that is given by position."""

    name: str
    count: float


class RateBase(_Named, frozen=True, kw_only=True):
    """The part of a rate that both worlds share."""

    per: timedelta | float
    burst: int = 1
    by: str | None = None

    def __post_init__(self) -> None:
        if not text_or_none(self.name, "name") or len(self.name.encode()) > LONGEST_NAME_BYTES:
            raise ConfigurationError(f"a rate needs a name of 1 to {LONGEST_NAME_BYTES} bytes, got {self.name!r}")
        given: object = self.count
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < float("inf"):
            raise ConfigurationError(f"`count` must be a number above 0, got {given!r}")
        if not duration_us(self.per, "per"):
            raise ConfigurationError(f"`per` must be longer than 0 s, got {self.per!r}")
        whole_number(self.burst, "burst")
        text_or_none(self.by, "by")

    def cost(self, units: float = 1) -> int:
        """Return what units cost, in microseconds."""
        return round(duration_us(self.per, "per") * units / self.count)

    def pace(self, bindings: Bindings, labels: Callable[[], dict[str, str]]) -> Pace:
        """Return the rate as the agenda takes it; with `by`, the one of a thread with these labels."""
        value = "" if self.by is None else labels().get(self.by, "")
        name, *_ = bindings.routes(f"rate {self.name}\0{value}", 0)
        return Pace(bindings.prefix + name, max(1, self.cost()), self.cost(self.burst))

    async def charge(self, run: "Run", units: float) -> None:
        """Charge units on behalf of a run, without waiting."""
        given: object = units
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise ConfigurationError(f"`units` must be a number, got {given!r}")
        pace = self.pace(run._reader.bindings, run._ledger.claim.labels)
        if run._ledger.rehearsal is None:
            await run._ports.perform(agenda_of(run._reader.backend).spend, pace.bucket, self.cost(units), PARKED)


def checked_rate(given: object) -> None:
    """Raise `ConfigurationError` unless this is a rate, or None."""
    if given is not None and not isinstance(given, RateBase):
        raise ConfigurationError(f"`rate` must be a Rate, got {given!r}")


async def wait_for_turn(run: "Run", rate: RateBase, units: Any) -> None:
    """Wait until the rate grants the units. Suspends the run if that takes longer than its lease."""
    ledger, ports, agenda = run._ledger, run._ports, agenda_of(run._reader.backend)
    pace, cost = rate.pace(run._reader.bindings, ledger.claim.labels), rate.cost(units)
    while wait := await ports.perform(agenda.spend, pace.bucket, cost, pace.burst):
        if wait > ledger.claim.lease:
            ledger.wake_by(ports.now() + wait)
            await ledger.suspend(ports)
        await ports.sleep(wait / 1e6)
        ledger.check()
