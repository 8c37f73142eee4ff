"""Blocking composites of agents: the same as the awaitable ones, for plain functions. Parallel agents run in order."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.ports import run_blocking
from holdfast.runs.block import Terms
from holdfast.runtimes.manager.composition import LOOP, PARALLEL, SEQUENTIAL, CompositeBase
from holdfast.sync.functions import inner_store
from holdfast.sync.run import Run
from holdfast.sync.store import Store


class Composite(CompositeBase):
    """See `holdfast.Composite`: the same methods, blocking."""

    def run(
        self,
        given: Any,
        *,
        thread_id: str | None = None,
        store: Store | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
    ) -> Any:
        """See `holdfast.Composite.run`."""
        return run_blocking(self._result(given, thread_id, inner_store(store)(), Terms(lease, wait)))

    def resume(self, run: Run) -> Any:
        """See `holdfast.Composite.resume`."""
        return run_blocking(self._resumed(run._run))  # noqa: SLF001  one room


def sequential(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """See `holdfast.sequential`."""
    return Composite(SEQUENTIAL, agents, name)


def parallel(agents: Sequence[Any], *, name: str | None = None) -> Composite:
    """See `holdfast.parallel`."""
    return Composite(PARALLEL, agents, name)


def repeat(agent: Any, *, max_iterations: int, name: str | None = None) -> Composite:
    """See `holdfast.repeat`."""
    return Composite(LOOP, [agent], name, max_iterations)
