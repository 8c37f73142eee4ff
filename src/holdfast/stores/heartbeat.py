"""The one thread of a store that keeps the leases of its live runs, in both worlds, whatever their code does."""

from collections.abc import Callable
from threading import Lock
from typing import ParamSpec, TypeVar

from holdfast.ports import Ports, Signal, logger, reset_after_fork
from holdfast.records.errors import StoreClosed
from holdfast.stores.claim import Claim, hear_cancels

P = ParamSpec("P")
T = TypeVar("T")

SHORTEST_SECONDS = 0.05
LONGEST_SECONDS = 1.0
"""Also how soon a run hears that it was cancelled."""


class Heartbeat:
    """Tends the claims given to it. Its thread ends with the last of them."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The runs of the parent are not the child's."""
        self._claims: dict[Claim, None] = {}
        self._beating = False
        self._lock = Lock()
        self._woken = Signal()
        self._tending = Lock()

    def add(self, claim: Claim) -> None:
        """Keep this claim's lease. If it is the shortest, the next beat, timed for the others, would come too late."""
        with self._lock:
            if self._claims and all(claim.lease < other.lease for other in self._claims):
                self._woken.set()
            self._claims[claim] = None
            if not self._beating:
                self._ports.beat(self._tick, self._woken)
                self._beating = True

    def remove(self, claim: Claim) -> None:
        """Let this one be."""
        with self._lock:
            self._claims.pop(claim, None)

    def stop(self) -> None:
        """Keep no lease any more, and touch the backend no more: it is about to be closed. Blocking."""
        with self._lock:
            self._claims.clear()
        with self._tending:
            self._woken.set()

    def find(self, thread: bytes) -> Claim | None:
        """The live claim of this store handle on a thread."""
        with self._lock:
            return next((claim for claim in self._claims if claim.thread == thread), None)

    def _tick(self) -> float | None:
        with self._tending:
            return self._tended()

    def _tended(self) -> float | None:
        """Look after all of them; how long that lasts."""
        with self._lock:
            claims = list(self._claims)
            if not claims:
                self._beating = False
                return None
        self._tend([claim for claim in claims if claim.failure is None])
        shortest = min(claim.lease for claim in claims) / 1e6
        return min(max(shortest / 4, SHORTEST_SECONDS), LONGEST_SECONDS)

    def _tend(self, claims: list[Claim]) -> None:
        """Renew the leases that are due, in one commit; then look which runs somebody wants to end."""
        now = self._ports.now()
        renewals = [(claim, self._tried(claim, claim.renew, now)) for claim in claims]
        for claim, pending in renewals:
            if pending is not None:
                self._tried(claim, claim.wait_for, pending)
        self._hear(claims)

    def _hear(self, claims: list[Claim]) -> None:
        try:
            hear_cancels(claims)
        except BaseException:  # noqa: BLE001  one of them has trouble: the others are asked one by one
            for claim in claims:
                self._tried(claim, claim.hears_cancel)

    def _tried(self, claim: Claim, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
        """One claim's trouble must not end the heartbeat of the others."""
        try:
            return act(*args, **named)
        except StoreClosed:
            self.remove(claim)
        except BaseException as error:  # noqa: BLE001  whatever it is
            if not claim.given_back:
                logger().warning("the lease of %r was not renewed: %s", claim.thread_id, error)
        return None
