"""A backend that lets something else happen at a chosen moment: races, made to happen every time."""

from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.records.rows import Row, Swap
from holdfast.stores.backend import Backend, Listing
from holdfast.testing.faults import FaultyBackend


class Hooked(FaultyBackend):
    """Before the n-th call of a name, once, something else happens."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self._hooks: dict[str, tuple[int, Callable[[], object]]] = {}

    def before(self, name: str, happen: Callable[[], object], nth: int = 1) -> None:
        """Let it happen before the next call of that name, or the n-th from now."""
        self._hooks[name] = (nth, happen)

    @property
    def has_happened(self) -> bool:
        """True if nothing is left to happen."""
        return not self._hooks

    def _reach(self, name: str) -> None:
        nth, happen = self._hooks.pop(name, (0, None))
        if happen is None:
            return
        if nth > 1:
            self._hooks[name] = (nth - 1, happen)
            return
        happen()

    def check(self) -> list[str]:
        self._reach("check")
        return self.inner.check()

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        self._reach("heads")
        return self.inner.heads(threads)

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        self._reach("swap")
        return self.inner.swap(swaps, wait=wait)

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        self._reach("rows")
        return self.inner.rows(thread, seq)

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        self._reach("blobs")
        return self.inner.blobs(thread, ids)

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        self._reach("index")
        return self.inner.index(thread, before, limit)

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        self._reach("threads")
        return self.inner.threads(prefix, statuses, labels, cursor, limit)
