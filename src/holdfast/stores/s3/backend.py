"""Threads in a bucket: the object backend over obstore's calls.

Replacing the head object, on the condition that it has not changed, is the commit. Any number of processes may share a
bucket.
"""

from holdfast.history.tuning import Tuning
from holdfast.records.reports import Guarantee
from holdfast.records.words import Durability
from holdfast.stores.objects.backend import PARALLEL, TUNING, ObjectBackend
from holdfast.stores.s3.client import PATIENCE_SECONDS, Client
from holdfast.stores.s3.places import TIMEOUT_SECONDS, Place, Source, place_of


class S3Backend(ObjectBackend):
    """The interface of `Backend` over a bucket."""

    def __init__(
        self,
        source: Source,
        durability: Durability | None = None,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        allow_http: bool = False,
        parallel: int = PARALLEL,
        patience: float = PATIENCE_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
        tuning: Tuning = TUNING,
    ) -> None:
        self._place = place_of(source, endpoint=endpoint, region=region, allow_http=allow_http, timeout=timeout)
        self.kind = self._place.kind
        level = _level(self._place, durability)
        super().__init__(Client(self._place, patience), durability=level, tuning=tuning, parallel=parallel)

    def guarantee(self) -> Guarantee:
        """Return the level that an acknowledged put has.

        The clouds write to several places. Another endpoint has the level that was asked for at open: no server reports
        its own.
        """
        level = super().guarantee().level
        meaning = (
            "written to several places by the service" if self._place.is_cloud else "as far as the server promises"
        )
        details = {"place": str(self._place), "acknowledged put": meaning, "transport": self._place.transport}
        return Guarantee(level=level, store=self.kind, details=details)


def _level(place: Place, asked: Durability | None) -> Durability:
    """Return the effective level: a put is never acknowledged early, so it is at least `durable`."""
    return Durability.REPLICATED if place.is_cloud or asked is Durability.REPLICATED else Durability.DURABLE
