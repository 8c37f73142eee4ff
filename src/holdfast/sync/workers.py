"""The blocking worker: it runs the awaitable one, on an event loop of its own."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Self

from holdfast.ports.crew import run_in_loop
from holdfast.ports.tickets import Helper
from holdfast.runs.durable import Durable
from holdfast.runs.worker import Worker as AwaitableWorker
from holdfast.sync.functions import inner_store
from holdfast.sync.store import Store


class Worker:
    """See `holdfast.Worker`. Plain functions run on threads."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        functions: Collection[Durable[Any, Any]] | None = None,
        queues: Collection[str] | None = None,
        concurrency: int = 10,
        lease: timedelta | float = 30,
        grace: timedelta | float = 30,
    ) -> None:
        self._worker = AwaitableWorker(
            functions=functions, queues=queues, concurrency=concurrency, lease=lease, grace=grace
        )
        self._worker._find_store = inner_store(store)  # noqa: SLF001  the worker makes its own handle of it
        self._beside: Helper | None = None

    def run(self, *, once: bool = False) -> None:
        """See `holdfast.Worker.run`."""
        run_in_loop(self._worker.run(once=once))

    def stop(self) -> None:
        """See `holdfast.Worker.stop`."""
        self._worker.stop()

    def __enter__(self) -> Self:
        self._beside = Helper(function=self.run)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._beside is not None:
            self._beside.join()
