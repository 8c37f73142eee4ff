"""The methods of `Store` for programs that many processes run: checks of new code."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.records.arguments import function_or_none
from holdfast.records.outcome import ThreadCheck
from holdfast.runs.options import seconds

if TYPE_CHECKING:
    from holdfast.runs.durable import Durable


class Fleet:
    """A part of `Store`."""

    _open: Callable[[], Awaitable[None]]

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
        checker = Checker(self, functions, seconds(timeout, "timeout"))  # type: ignore[arg-type]  # every Fleet is a Store
        await self._open()
        return await checker.check(notify)
