"""Resuming one thread: what a worker does with a thread it took, and a recovery with each that it found."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from holdfast.codec import encode
from holdfast.history.entries import Ended, Noted, Retaken
from holdfast.history.journal import Journal
from holdfast.ports import Ports, Ticket
from holdfast.records.errors import CodecError, Conflict, Deleted, LeaseHeld, RunCancelled, StoreError, Suspended
from holdfast.records.words import Status
from holdfast.runs.block import RunBlock, Terms
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.ledger import Ledger, packed_metadata
from holdfast.runs.options import wait_after
from holdfast.runs.run import Run
from holdfast.runs.settling import RETRIED
from holdfast.runs.submitting import Served
from holdfast.stores.reader import Seen
from holdfast.stores.writer import Intent

if TYPE_CHECKING:
    from holdfast.runs.store import Store

ERRED = "erred"
"""The kind of note that records an error after which the thread is run again."""
MAX_ATTEMPTS = 3
"""How often processes may die on a thread without a step done, before it fails."""


class Turns:
    """Lets runs pass one at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._last = Ticket(settled=True)

    async def next(self, ports: Ports) -> Ticket:
        """Wait for those that came before. Settle the ticket that this returns to let the next one pass."""
        before, mine = self._last, Ticket()
        self._last = mine
        try:
            await ports.wait(before)
        except BaseException:
            before.when_settled(lambda: mine.settle(True))
            raise
        return mine


class Resumer:
    """Claims threads and runs their functions, or a handler in their place.

    When a process dies, all threads that it ran count that. So that one which kills its process takes no others with
    it, threads whose next death is their last run one at a time here, each until it has done a step.
    """

    def __init__(
        self,
        store: "Store",
        functions: "Callable[[], Collection[Served]]",
        terms: Terms,
        max_attempts: int = MAX_ATTEMPTS,
        handler: Callable[[Run], Any] | None = None,
    ) -> None:
        self._store = store
        self._functions = functions
        self._terms = terms
        self._max_attempts = max_attempts
        self._handler = handler
        self._live: set[Ledger] = set()
        self._last_chances = Turns()
        self._stops = False

    def hand_over(self) -> None:
        """Stop every run at its next step, for another process to resume it; begin none any more."""
        self._stops = True
        for ledger in tuple(self._live):
            ledger.hand_over()

    async def resume(
        self, thread_id: str, may_resume: Callable[[Ledger], bool] | None = None, known: Seen | None = None
    ) -> str:
        """Resume a thread, and return how it ended: `completed`, `open`, `suspended` or `skipped`.

        `may_resume` decides once the thread is claimed. With `known` it is claimed only if its head is still that.
        Raises the error that the thread failed with.
        """
        block, ports = RunBlock(self._store._tools, thread_id, None, self._terms, known=known), self._store._tools.ports
        is_new = known is not None and not known.head.owner
        is_last_chance = not is_new and await ports.perform(self._has_last_chance, thread_id, known)
        turn = await self._last_chances.next(ports) if is_last_chance else None
        try:
            async with block as run:
                run._ledger.turn = turn
                return await self._run(run, may_resume)
        except Suspended:
            return "suspended"
        except (LeaseHeld, Conflict, Deleted):
            if block.entered:
                raise
            return "skipped"
        finally:
            if turn is not None:
                turn.settle(True)

    def _has_last_chance(self, thread_id: str, known: Seen | None) -> bool:
        """True if the thread fails when its process dies once more. Blocking."""
        reader = self._store._tools.reader
        seen = known or reader.seen(reader.key(thread_id))
        if seen is None or not seen.head.owner:
            return False
        try:
            journal = Journal.of(reader.load_head(reader.key(thread_id)).log.document)
        except (StoreError, CodecError):
            return False  # the claim of the thread finds that too
        return journal.attempts == self._max_attempts - 1 > 0

    def function_of(self, journal: Journal, version: int) -> Served | None:
        """Return the function of a thread that this version began; None if it is not served here."""
        name = journal.started.function if journal.started is not None else ""
        found = next((each for each in self._functions() if each.name == name), None)
        return found if found is not None and found._serves(self._store._tools.ports, version) else None

    async def _run(self, run: Run, may_resume: Callable[[Ledger], bool] | None) -> str:
        ledger = run._ledger
        function = self.function_of(ledger.journal, ledger.version)
        is_ours = self._handler is not None or function is not None
        if self._stops or not is_ours or (may_resume and not await run._ports.perform(may_resume, ledger)):
            ledger.untouched = True  # another process resumed it first
            return "skipped"
        self._live.add(ledger)
        try:
            return await self._execute(run, function)
        finally:
            self._live.discard(ledger)

    async def _execute(self, run: Run, function: Served | None) -> str:
        ledger, ports = run._ledger, run._ports
        if ledger.journal.attempts >= self._max_attempts:
            return self._give_up(run)
        if ledger.claim.found.owner:
            await ledger.note(ports, Retaken(ports.now()))
        if self._handler is not None:
            await ports.invoke(self._handler, (run,), {}, None)
        elif function is not None:
            try:
                await self._call(run, function)
            except Exception as error:
                if not await _is_tried_again(run, function, error):
                    raise
                return "suspended"
        return "completed" if run.finished else "open"

    async def _call(self, run: Run, function: Served) -> None:
        """Call the function. What its code raises to end the program must not be repeated for ever."""
        try:
            await function._execute(run, None)
        except SystemExit:
            await run._ledger.note(run._ports, Retaken(run._ports.now()))
            raise
        except BaseException as error:
            if run._ports.is_raised_cancellation(error):
                raise RuntimeError(f"{type(error).__name__}, but the run was not cancelled") from error
            raise

    def _give_up(self, run: Run) -> str:
        now, attempts = run._ports.now(), run._ledger.journal.attempts
        text = f"gave up: the process running it died in each of {attempts} attempts, with no step done"
        run._ledger.end_on_release(Ended(Status.FAILED.value, encode(None), "Poisoned", text, (), now))
        return "failed"


async def _is_tried_again(run: Run, function: Served, error: Exception) -> bool:
    """True if the function allows another run after this error: then it is noted, and the thread is due later."""
    ledger, ports, service = run._ledger, run._ports, function._service
    count = 1 + _errors_since_retry(ledger.journal)
    is_final = isinstance(error, RunCancelled | Suspended) or ledger.claim.failure is not None or ledger.finished
    if is_final or ledger.claim.cancelled or count > service.retries:
        return False
    kind, wait = type(error).__name__, wait_after(service.backoff, count)
    noted = Noted(ERRED, encode(kind), ports.now(), error=text_of(error), failed=failed_steps(error))
    metadata = packed_metadata({ERRED: kind, "attempt": count})
    await ledger.commit(ports, Intent(journal=True, metadata=metadata), noted)
    ledger.resumes_at = ports.now() + round(wait * 1e6)
    await ledger.emit("attempt_failed", attempt=count, failure="error", action="retry", error=kind)
    return True


def _errors_since_retry(journal: Journal) -> int:
    """Count the errors that were noted since a person put the thread back."""
    kinds = [note.kind for note in journal.notes if note.kind in {ERRED, RETRIED}]
    return [*reversed(kinds), RETRIED].index(RETRIED)
