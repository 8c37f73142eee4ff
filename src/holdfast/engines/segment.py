"""A segment: run a thread until it ends, waits or must be handed over, and say in a word what comes next.

This is all that an engine does with a thread. Neither data of a step nor the text of an error leaves this module.
"""

from typing import TYPE_CHECKING, NamedTuple

from holdfast.ports import logger
from holdfast.runs.block import Terms, Tools
from holdfast.runs.recovery import STATUSES, Recoverer
from holdfast.runs.store import tools_of

if TYPE_CHECKING:
    from holdfast.runs.store import Store

LONGEST_SECONDS = 600
"""After how long a segment is handed over at its next step: no timeout of an engine bounds a thread."""
MAX_ATTEMPTS = 3
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

    def __init__(self, store: "Store", tag: str, lease: float = 30) -> None:
        """A claim takes over from one with the same `tag` at once: the engine starts an attempt once the last is dead."""
        self._tools: Tools = tools_of(store)
        terms = Terms(lease, wait=0, keyed=True, tag=tag, longest=LONGEST_SECONDS)
        self._recoverer = Recoverer(store, None, terms, MAX_ATTEMPTS)

    async def run(self, thread_id: str) -> Verdict:
        """Run a thread as far as it gets now. `Unfinished` if this process cannot: its store is away, or its code."""
        try:
            await self._tools.open()
            end = await self._recoverer.resume(thread_id)
            verdict = await self._tools.ports.perform(self._look, self._tools.reader.key(thread_id))
        except Exception as error:
            logger().warning("a segment of thread %r could not run", thread_id, exc_info=error)
            raise Unfinished(type(error).__name__) from None
        if verdict.word == AGAIN and end in {"skipped", "failed"}:
            logger().warning("thread %r is due, and this process does not have its function", thread_id)
            raise Unfinished("NotServed") from None
        return verdict

    def _look(self, thread: bytes) -> Verdict:
        """Return what the thread's head says now. Blocking."""
        seen, now = self._tools.reader.seen(thread), self._tools.ports.now()
        if seen is None or seen.head.deleted or seen.head.status not in STATUSES:
            return Verdict(END)
        if self._recoverer.can_resume(thread, seen.head, now):
            return Verdict(AGAIN)
        at = seen.head.expires_at  # of a timer, a deadline, or the lease of a run that is not the engine's
        return Verdict(WAKE_AT, at, max((at - now) / 1e6, SHORTEST_WAIT) if at else 0)
