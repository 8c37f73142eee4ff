"""A handle on a thread that runs elsewhere: wait for its end, and get its result.

Within a run, waiting suspends that run, which looks again later and holds no place meanwhile. What it found is recorded
as a step, so that a replay finds the same.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.history.entries import Slept
from holdfast.history.journal import Journal
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, RunCancelled, ThreadFailed
from holdfast.records.outcome import Outcome
from holdfast.records.words import Status
from holdfast.runs.arguments import fingerprint_of
from holdfast.runs.inbox import outcome_of
from holdfast.runs.options import StepOptions, seconds
from holdfast.runs.run import Run, for_plain_code
from holdfast.runs.scope import current_frame
from holdfast.runs.steps import StepCall, perform_step
from holdfast.stores.agenda import Agenda
from holdfast.stores.reader import Reader
from holdfast.stores.waking import ask_for_wakeup

if TYPE_CHECKING:
    from holdfast.runs.store import Store

SHORTEST_POLL, LONGEST_POLL = 0.01, 1.0
LOOK_AGAIN_US, TOLD_LATEST_US = 5_000_000, 60_000_000
"""After how long a suspended run looks again at the thread it waits for, and if that thread wakes it when it ends."""
ENDED = {Status.COMPLETE, Status.FAILED, Status.CANCELLED}
RAISED = StepOptions(raises=(TimeoutError,))


class Ending(msgspec.Struct, frozen=True):
    """The outcome of a thread; if it failed, the type and the message of its error."""

    outcome: Outcome
    type: str = ""
    message: str = ""

    def result(self) -> Any:
        """Return the result, or raise how the thread ended instead."""
        name = self.outcome.thread_id
        if self.outcome.status is Status.COMPLETE:
            return self.outcome.result
        if self.outcome.status is Status.CANCELLED:
            raise RunCancelled(f"thread {name!r} was cancelled")
        raise ThreadFailed(f"thread {name!r} failed: {self.outcome.error}", type=self.type, message=self.message)


def ending_of(reader: Reader, thread: bytes, *, asks: bool) -> Ending | None:
    """Return how a thread ended, or with `asks` that it waits for an answer; None if neither. Blocking."""
    status = reader.listed(thread).head.status
    if status not in ENDED and not (asks and status == Status.INPUT_REQUIRED):
        return None
    outcome = outcome_of(reader, thread)
    if outcome.status is Status.FAILED:
        ended = Journal.of(reader.load_head(thread).log.document).ended
        return Ending(outcome, ended.type, ended.message) if ended else Ending(outcome, message=outcome.error or "")
    return Ending(outcome) if outcome.status in ENDED or outcome.requests else None


class HandleBase:
    """The part of a handle that both worlds share."""

    def __init__(self, store: "Store", thread_id: str) -> None:
        self._store = store
        self._thread = store._tools.reader.key(thread_id)
        self._thread_id = thread_id

    @property
    def thread_id(self) -> str:
        """The id of the thread."""
        return self._thread_id

    def __repr__(self) -> str:
        return f"Handle({self._thread_id!r})"

    async def _ending(self, given: timedelta | float | None, *, asks: bool) -> Ending:
        longest = None if given is None else seconds(given, "timeout")
        await self._store._open()
        frame = current_frame.get()
        if frame is None or not frame.run._ledger.is_live:
            return await self._polled(longest, asks=asks)
        if (frame.run._reader.backend, frame.run._ledger.claim.thread) == (self._store._backend, self._thread):
            raise ConfigurationError(f"thread {self._thread_id!r} cannot wait for its own end")
        run = for_plain_code(frame.run) if self._store._ports.blocking else frame.run
        return await self._recorded(run, longest, asks=asks)

    async def _look(self, *, asks: bool) -> Ending | None:
        return await self._store._ports.perform(ending_of, self._store._reader, self._thread, asks=asks)

    def _late(self, longest: float | None) -> TimeoutError:
        return TimeoutError(f"thread {self._thread_id!r} has not ended after {longest} s")

    async def _polled(self, longest: float | None, *, asks: bool) -> Ending:
        ports, pause = self._store._ports, SHORTEST_POLL
        give_up_at = None if longest is None else ports.now() + round(longest * 1e6)
        while (ending := await self._look(asks=asks)) is None:
            left = pause if give_up_at is None else (give_up_at - ports.now()) / 1e6
            if left <= 0:
                raise self._late(longest)
            await ports.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_POLL)
        return ending

    # Within a run

    async def _recorded(self, run: Run, longest: float | None, *, asks: bool) -> Ending:
        """Return what an earlier run found, or look, and suspend the run if there is nothing to find yet."""
        name = f"wait for {self._thread_id}"
        fingerprint = fingerprint_of([self._thread_id, asks], name)
        key = run._scope.key(name, fingerprint)
        await run._ledger.ready(run._ports)
        is_known = key in run._ledger.journal.memos
        ending = None if is_known else await self._look_or_suspend(run, key, longest, asks=asks)

        def found() -> list[Any]:
            if ending is None:
                raise self._late(longest)
            return _packed(ending)

        call = StepCall(key=key, name=name, fingerprint=fingerprint, function=found, options=RAISED)
        status, result, error, kind, message = await perform_step(run, call)
        requests = () if status in ENDED else (await self._store.outcome(self._thread_id)).requests
        outcome = Outcome(
            status=Status(status), thread_id=self._thread_id, result=result, error=error, requests=requests
        )
        return Ending(outcome, kind, message)

    async def _look_or_suspend(self, run: Run, key: str, longest: float | None, *, asks: bool) -> Ending | None:
        """Return how the thread ended, or None if the time is up; else suspend the run."""
        ledger, ports = run._ledger, run._ports
        ending = await self._look(asks=asks)
        if ending is not None:
            return ending
        if longest is not None:
            due = ledger.journal.timers.get(key)
            if due is None:
                await ledger.note(ports, Slept(key, ports.now() + round(longest * 1e6)))
            elif due <= ports.now():
                return None
        backend = run._reader.backend
        is_told = not asks and self._store._backend is backend and isinstance(backend, Agenda)
        if is_told:
            await ports.perform(ask_for_wakeup, backend, self._thread, ledger.claim.thread)
            ledger.awaited.threads.append(self._has_ended)
        ledger.wake_by(ports.now() + (TOLD_LATEST_US if is_told else LOOK_AGAIN_US))
        return await ledger.suspend(ports)

    def _has_ended(self) -> bool:
        """True if the thread has ended, or was deleted. Blocking."""
        seen = self._store._reader.seen(self._thread)
        return seen is None or seen.head.deleted or seen.head.status in ENDED


def _packed(ending: Ending) -> list[Any]:
    outcome = ending.outcome
    return [outcome.status.value, outcome.result, outcome.error, ending.type, ending.message]


class Handle(HandleBase):
    """A submitted thread. Get one from `submit`, or from `store.handle(thread_id)`."""

    async def wait(self, timeout: timedelta | float | None = None) -> Outcome:  # noqa: ASYNC109  durable within a run
        """Wait until the thread has ended, or waits for an answer; `TimeoutError` after `timeout` seconds.

        `NotFound` if it does not exist. Within a run this suspends the run until then.
        """
        return (await self._ending(timeout, asks=True)).outcome

    async def result(self, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109  durable within a run
        """Wait until the thread has ended, and return its result.

        Raises `ThreadFailed` with the `type` and `message` of its error, `RunCancelled` if it was cancelled,
        `TimeoutError` after `timeout` seconds. Within a run this suspends the run until then.
        """
        return (await self._ending(timeout, asks=False)).result()


class BlockingHandle(HandleBase):
    """See `holdfast.Handle`."""

    def wait(self, timeout: timedelta | float | None = None) -> Outcome:
        """See `holdfast.Handle.wait`."""
        return run_blocking(self._ending(timeout, asks=True)).outcome

    def result(self, timeout: timedelta | float | None = None) -> Any:
        """See `holdfast.Handle.result`."""
        return run_blocking(self._ending(timeout, asks=False)).result()
