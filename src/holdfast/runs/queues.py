"""What processes of a store keep together: queues with limits, and rates."""

from collections.abc import Iterable

import msgspec

from holdfast.ports import run_blocking
from holdfast.records.arguments import text_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.ranges import LONGEST_QUEUE_BYTES, is_queue_name
from holdfast.runs.rates import RateBase, checked_rate
from holdfast.runs.run import Run, for_plain_code
from holdfast.runs.scope import current_frame
from holdfast.stores.agenda import QueueLimits
from holdfast.stores.bindings import Bindings

DEFAULT_QUEUE = "default"


class _Named(msgspec.Struct, frozen=True):
    """The part of a queue that is given by position."""

    name: str


class Queue(_Named, frozen=True, kw_only=True):
    """A queue with limits; a plain name is a queue without.

    - `concurrency` is the most threads that are run at once, in all processes.
    - `fair_by` names a label: threads with different values of it take turns, however many one of them has queued.
      `each` is the most threads of one value that are run at once.
    - `rate` limits how often a thread begins.
    - `max_waiting` is the most threads that wait in the queue: a further one raises `QueueFull`. Submits at the same
      moment do not see each other, and can exceed it by their number.
    """

    concurrency: int | None = None
    each: int | None = None
    fair_by: str | None = None
    rate: RateBase | None = None
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        if text_or_none(self.name, "queue") is None or not is_queue_name(self.name):
            raise ConfigurationError(
                f"`queue` must be printable and have at most {LONGEST_QUEUE_BYTES} bytes, got {self.name!r}"
            )
        for name in ("concurrency", "each", "max_waiting"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, 1)
        text_or_none(self.fair_by, "fair_by")
        if self.each is not None and self.fair_by is None:
            raise ConfigurationError("`each` needs `fair_by`: the label whose values are limited")
        checked_rate(self.rate)
        if self.rate is not None and self.rate.by is not None:
            raise ConfigurationError("the rate of a queue cannot have `by`; give it to the rate of a step")

    @property
    def has_limits(self) -> bool:
        """True if workers have to agree on anything."""
        return self != Queue(self.name, max_waiting=self.max_waiting)

    def limits(self, bindings: Bindings, functions: Iterable[str]) -> QueueLimits:
        """Return the limits as the agenda takes them, for workers that run these functions."""
        unbegun = frozenset(route for function in functions for route in bindings.routes(function, 0))
        pace = None if self.rate is None else self.rate.pace(bindings, dict)
        return QueueLimits(self.concurrency, self.each, pace, unbegun)


def queue_of(given: object) -> Queue:
    """Return a queue: itself, or the one of a name without limits."""
    return given if isinstance(given, Queue) else Queue(text_or_none(given, "queue") or DEFAULT_QUEUE)


class Rate(RateBase, frozen=True, kw_only=True):
    """A limit that all processes of a store share, for `step(rate=...)` and `Queue(rate=...)`.

    At most `count` + `burst` units are granted in any `per` seconds, spaced evenly. A call of several units may
    overdraw, and what follows waits. With `by`, the name of a label, each value of the label has its own limit.
    """

    async def spend(self, units: float) -> None:
        """Charge what the current step really used, without waiting; negative units return what it did not use."""
        await self.charge(_run_for(self), units)


class BlockingRate(RateBase, frozen=True, kw_only=True):
    """See `holdfast.Rate`."""

    def spend(self, units: float) -> None:
        """See `holdfast.Rate.spend`."""
        run_blocking(self.charge(for_plain_code(_run_for(self)), units))


def _run_for(rate: RateBase) -> Run:
    frame = current_frame.get()
    if frame is None:
        raise ConfigurationError(f"rate {rate.name!r} belongs to the store of a run: call spend within a step")
    return frame.run
