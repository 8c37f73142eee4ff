"""A background thread that applies a store's retention from time to time."""

import time
from datetime import timedelta
from threading import Thread

from holdfast.ports import Signal, logger
from holdfast.records.arguments import duration_us
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.records.retention import Freed, Retention
from holdfast.stores.events import log_event, pruned_details
from holdfast.stores.listing import Listings
from holdfast.stores.upkeep import Upkeep


class Sweeper:
    """Prunes every `interval` until stopped. A sweep that fails is logged, and tried again at the next turn."""

    def __init__(
        self, upkeep: Upkeep, listings: Listings, retention: Retention | None, interval: timedelta | float
    ) -> None:
        if retention is None:
            raise ConfigurationError("sweep= needs retention=: what should be swept?")
        self._seconds = duration_us(interval, "sweep") / 1e6
        if not self._seconds:
            raise ConfigurationError(f"sweep={interval}: a positive interval")
        self._upkeep = upkeep
        self._listings = listings
        self._retention = retention
        self._stopped = Signal()
        self._thread = Thread(target=self._run, name="holdfast-sweeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the sweep under way."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self.sweep()
            except HoldfastError:
                logger().exception("a sweep failed; it is tried again in %s s", self._seconds)

    def sweep(self) -> Freed:
        """Prune every thread once."""
        freed = Freed()
        for thread, head in self._listings.all_heads():
            now = time.time_ns() // 1000
            freed += self._upkeep.prune(thread, head, self._retention, now, dry_run=False)
        if freed.damaged:
            logger().warning("a sweep left damaged threads as they are: %s", ", ".join(freed.damaged))
        log_event("pruned", "", 0, pruned_details(freed, dry_run=False))
        return freed
