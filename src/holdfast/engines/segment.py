"""A segment: run a thread until it ends, waits or must be handed over, and return one word for the engine.

This is all that an engine does with a thread. Neither data of a step nor the text of an error leaves this module.
"""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ports import logger
from holdfast.records.errors import StoreError
from holdfast.runs.block import Terms, Tools
from holdfast.runs.resuming import Resumer
from holdfast.runs.store import tools_of
from holdfast.stores.agenda import OPEN
from holdfast.stores.claim import replaceable_owner
from holdfast.stores.decisions import may_go_on, may_run

if TYPE_CHECKING:
    from holdfast.runs.store import Store
    from holdfast.runs.submitting import Served

LONGEST_SECONDS: float = 600
"""After how long a segment is handed over at its next step: no timeout of an engine bounds a thread."""
SHORTEST_WAIT = 0.01
END, WAKE_AT, AGAIN = "end", "wake_at", "again"


class Verdict(NamedTuple):
    """What the engine does next: nothing, run a segment at a moment, or run one now."""

    word: str
    at: int = 0
    """For `wake_at`: when, in microseconds since 1970 by the clock of this process; 0: when the thread is poked."""
    seconds: float = 0
    """How far away that is. An engine waits this long, so that its clock does not matter."""


class Unfinished(Exception):
    """The engine has to run the segment again, later or elsewhere. It says no more: engines keep and show errors."""


class Segments:
    """Runs segments of the threads of one store for one engine."""

    def __init__(
        self, store: "Store", functions: "Collection[Served]", tag: str, lease: timedelta | float = 30
    ) -> None:
        """A claim takes over from one with the same `tag` at once: the engine begins an attempt if the last is dead."""
        self._tools: Tools = tools_of(store)
        self._tag = tag
        terms = Terms(lease, wait=0, keyed=True, tag=tag, longest=LONGEST_SECONDS)
        self._resumer = Resumer(store, lambda: functions, terms)
        self._count = 0
        self.idle = asyncio.Event()
        """Set while no segment runs."""
        self.idle.set()

    def hand_over(self) -> None:
        """Stop every thread at its next step; begin none any more."""
        self._resumer.hand_over()

    async def run(self, thread_id: str) -> Verdict:
        """Run a thread as far as it gets now. `Unfinished` if this process cannot: it lacks the store, or the code."""
        self._count += 1
        self.idle.clear()
        try:
            return await self._segment(thread_id)
        finally:
            self._count -= 1
            if not self._count:
                self.idle.set()

    async def _segment(self, thread_id: str) -> Verdict:
        thread = self._tools.reader.key(thread_id)
        try:
            await self._tools.open()
            if not await self._tools.ports.perform(self._may_run, thread):
                return await self._tools.ports.perform(self._verdict, thread)
            is_run = await self._run(thread_id)
            verdict = await self._tools.ports.perform(self._verdict, thread)
        except Exception as error:  # noqa: BLE001  of any kind: none may reach the engine
            unexpected = None if isinstance(error, StoreError) else error
            logger().warning("a segment of thread %r could not run: %s", thread_id, error, exc_info=unexpected)
            raise Unfinished(type(error).__name__) from None
        if not is_run and verdict.word != END:
            logger().warning("thread %r was not run: its function is not served here", thread_id)
            raise Unfinished("NotServed") from None
        return verdict

    async def _run(self, thread_id: str) -> bool:
        """Run the thread; False if it was left as it is. An error of its code is recorded with it, and ends it."""
        try:
            return await self._resumer.resume(thread_id) != "skipped"
        except StoreError:
            raise
        except Exception:  # noqa: BLE001  recorded with the thread
            return True

    def _may_run(self, thread: bytes) -> bool:
        seen = self._tools.reader.seen(thread)
        if seen is None:
            return False
        owner = replaceable_owner(self._tools.ports, seen.head, self._tag)
        return may_run(seen.head, self._tools.ports.now(), owner)

    def _verdict(self, thread: bytes) -> Verdict:
        """Return what the thread's head says now. Blocking."""
        seen, now = self._tools.reader.seen(thread), self._tools.ports.now()
        if seen is None or seen.head.deleted or seen.head.status not in OPEN:
            return Verdict(END)
        if may_go_on(seen.head, now):
            return Verdict(AGAIN)
        at = seen.head.expires_at  # of a timer, a deadline, or the lease of a run that is not the engine's
        return Verdict(WAKE_AT, at, max((at - now) / 1e6, SHORTEST_WAIT) if at else 0)
