"""A thread pool for steps: each call runs in a copy of the caller's context, so that it knows its run."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from holdfast.ports.carried import Carried, under_way
from holdfast.records.arguments import whole_number

P = ParamSpec("P")
T = TypeVar("T")


class Pool(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` whose `submit` and `map` keep the context of their caller."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function on a thread of the pool, in a copy of the caller's context."""
        work = Carried()
        under_way.add(work)
        try:
            future = super().submit(work.run, partial(fn, *args, **kwargs))
        except BaseException:
            under_way.discard(work)
            raise
        future.add_done_callback(lambda _: under_way.discard(work))
        return future


def pool(workers: int) -> Pool:
    """Make a pool of up to `workers` threads. Steps called on them belong to the run of their caller.

    An ordinary `ThreadPoolExecutor` does not know the run: a step there is called but not recorded.
    """
    return Pool(whole_number(workers, "workers", least=1), thread_name_prefix="holdfast-pool")
