"""The methods of `Store` for programs that many processes run: submit, retry, queues, checks, schedules."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast

from holdfast.records.arguments import function_or_none
from holdfast.records.outcome import ThreadCheck
from holdfast.records.reports import QueueInfo
from holdfast.records.schedule import Schedule
from holdfast.runs.block import Terms
from holdfast.runs.handles import Handle
from holdfast.runs.options import seconds
from holdfast.stores.queues import list_queues

if TYPE_CHECKING:
    from holdfast.runs.durable import Durable
    from holdfast.runs.schedules import ScheduleOptions
    from holdfast.runs.store import Store
    from holdfast.runs.submitting import SubmitOptions


class Fleet:
    """A part of `Store`."""

    _open: Callable[[], Awaitable[None]]

    @property
    def _as_store(self) -> "Store":
        return cast("Store", self)

    async def submit(
        self,
        function_name: str,
        thread_id: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: "Unpack[SubmitOptions]",
    ) -> Handle:
        """Submit work to a durable function by name, even if this program does not have its code.

        As the function's own `submit`. `options` are those of its `options`.
        """
        from holdfast.runs.durable import named_call
        from holdfast.runs.submitting import Submission, submit

        await submit(self._as_store, thread_id, named_call(function_name, args, kwargs), Submission.of(options))
        return Handle(self._as_store, thread_id)

    def handle(self, thread_id: str) -> Handle:
        """Return a handle on a thread, to wait for its end. It need not exist yet."""
        return Handle(self._as_store, thread_id)

    async def retry(self, thread_id: str) -> None:
        """Put a failed thread back on its queue, with all its retries; its finished steps are kept.

        Also a fork or an imported thread that a function runs. `Conflict` for another, `NotFound` if there is none.
        """
        from holdfast.runs import settling

        store = self._as_store
        info = await store.thread(thread_id)
        settling.check_may_retry(thread_id, info.status, has_place=info.queue is not None)
        async with store._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
            await settling.retry(run)
        await store._poke(thread_id)

    async def queues(self) -> list[QueueInfo]:
        """Return the queues that have open threads: how many are ready, delayed, running, or wait for an answer."""
        await self._open()
        return await self._as_store._ports.perform(list_queues, self._as_store._reader)

    async def check(
        self,
        functions: "Sequence[Durable[Any, Any]] | None" = None,
        *,
        timeout: timedelta | float = 10,  # noqa: ASYNC109  of each replay
        progress: Callable[[int, int], object] | None = None,
    ) -> list[ThreadCheck]:
        """Replay every open thread against the code of these functions, by default all of this program.

        No step is executed and nothing is written: recorded results are replayed, and a replay ends at the first thing
        that is new. The code between steps does run, for up to `timeout` seconds. `progress` is called with the number
        of threads done, and the number of all open threads.
        """
        from holdfast.runs.checking import Checker

        notify = function_or_none(progress, "progress") or (lambda _done, _total: None)
        checker = Checker(self._as_store, functions, seconds(timeout, "timeout"))
        await self._open()
        return await checker.check(notify)

    async def schedule(self, name: str, fn: "Durable[Any, Any]", **options: "Unpack[ScheduleOptions]") -> None:
        """Create or change a schedule at run time; see `holdfast.schedule`. Any worker on this store keeps it."""
        from holdfast.runs.schedules import plan_of, put

        plan = plan_of(fn, options)
        await self._open()
        await put(self._as_store, name, plan)

    async def unschedule(self, name: str) -> None:
        """Delete a schedule; the threads that it submitted stay. `NotFound` if there is none."""
        from holdfast.runs.schedules import remove

        await self._open()
        await remove(self._as_store, name)

    async def schedules(self) -> list[Schedule]:
        """Return the schedules of this store, by name."""
        from holdfast.runs.schedules import find

        await self._open()
        return await find(self._as_store)
