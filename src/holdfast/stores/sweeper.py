"""A background thread that applies a store's retention at an interval."""

import time
from datetime import timedelta
from threading import Thread

from holdfast.ports import Signal, logger
from holdfast.records.arguments import duration_us
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.records.retention import Freed, Retention
from holdfast.stores.events import log_event, pruned_details
from holdfast.stores.listing import Listings
from holdfast.stores.maintenance import Maintenance


class Sweeper:
    """Prunes every `interval` until stopped. A sweep that fails is logged, and retried after the next interval."""

    def __init__(
        self, maintenance: Maintenance, listings: Listings, retention: Retention | None, interval: timedelta | float
    ) -> None:
        if retention is None:
            raise ConfigurationError("`sweep` needs `retention`, which says what to prune; give both")
        self._seconds = duration_us(interval, "sweep") / 1e6
        if not self._seconds:
            raise ConfigurationError(f"`sweep` must be more than 0 s, got {interval}")
        self._maintenance = maintenance
        self._listings = listings
        self._retention = retention
        self._stopped = Signal()
        self._thread = Thread(target=self._run, name="holdfast-sweeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the sweep that is running."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self.sweep()
            except HoldfastError:
                logger().exception("a sweep failed; retrying in %s s", self._seconds)

    def sweep(self) -> Freed:
        """Prune every thread once."""
        freed = Freed()
        for thread, head in self._listings.all_heads():
            now = time.time_ns() // 1000
            freed += self._maintenance.prune(thread, head, retention=self._retention, now=now, dry_run=False)
        if freed.damaged:
            logger().warning("a sweep left damaged threads as they are: %s", ", ".join(freed.damaged))
        log_event("pruned", "", 0, pruned_details(freed, dry_run=False))
        return freed
