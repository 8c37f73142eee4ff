"""The one thread of a store that renews the leases of its live runs, whether their code is blocking or awaitable."""

from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

from holdfast.ports import Ports, Signal, logger, reset_after_fork
from holdfast.records.errors import StoreClosed
from holdfast.stores.claim import Claim, notice_cancellations

P = ParamSpec("P")
T = TypeVar("T")

SHORTEST_SECONDS = 0.05
LONGEST_SECONDS = 1.0
"""Also the longest time until a run notices that it was cancelled."""


class Heartbeat:
    """Renews the leases of the claims given to it. Its thread ends with the last of them."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Drop all claims: the runs of the parent do not belong to a forked child."""
        self._claims: dict[Claim, None] = {}
        self._beating = False
        self._lock = Lock()
        self._woken = Signal()
        self._renewing = Lock()

    def add(self, claim: Claim) -> None:
        """Renew this claim's lease from now on. If it is the shortest, the next beat would be too late: wake up."""
        with self._lock:
            if self._claims and all(claim.lease < other.lease for other in self._claims):
                self._woken.set()
            self._claims[claim] = None
            if not self._beating:
                self._ports.beat(self._tick, self._woken)
                self._beating = True

    def remove(self, claim: Claim) -> None:
        """Stop renewing this claim's lease."""
        with self._lock:
            self._claims.pop(claim, None)

    def stop(self) -> None:
        """Renew nothing any more, and do not touch the backend again: it is about to be closed. Blocking."""
        with self._lock:
            self._claims.clear()
        with self._renewing:
            self._woken.set()

    def find(self, thread: bytes) -> Claim | None:
        """Return the live claim of this store handle on a thread, None if there is none."""
        with self._lock:
            return next((claim for claim in self._claims if claim.thread == thread), None)

    def _tick(self) -> float | None:
        """Renew what is due. Return the seconds until the next beat, None if no claim is left."""
        with self._renewing:
            with self._lock:
                claims = list(self._claims)
                if not claims:
                    self._beating = False
                    return None
            self._renew([claim for claim in claims if claim.failure is None])
            shortest = min(claim.lease for claim in claims) / 1e6
            return min(max(shortest / 4, SHORTEST_SECONDS), LONGEST_SECONDS)

    def _renew(self, claims: list[Claim]) -> None:
        """Renew the leases that are due, in one commit; then see which runs somebody asked to end."""
        now = self._ports.now()
        renewals = [(claim, self._tried(claim, claim.renew, now)) for claim in claims]
        for claim, pending in renewals:
            if pending is not None:
                self._tried(claim, claim.wait_for, pending)
        try:
            notice_cancellations(claims)
        except BaseException:  # noqa: BLE001  one of them failed: look at each
            for claim in claims:
                self._tried(claim, claim.was_cancelled)

    def _tried(self, claim: Claim, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
        """Log an error of one claim: it must not end the heartbeat of the others."""
        try:
            return act(*args, **named)
        except StoreClosed:
            self.remove(claim)
        except BaseException as error:  # noqa: BLE001  whatever it is
            if not claim.is_released:
                logger().warning("the lease of %r was not renewed: %s", claim.thread_id, error)
        return None
