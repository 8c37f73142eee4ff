"""A store whose threads can be run: claims, requests and answers, cancellation and recovery, over the archive below."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.history.journal import Journal
from holdfast.records.arguments import check_labels, function_or_none, plain_word, whole_number
from holdfast.records.errors import ConfigurationError, LeaseHeld, LimitExceeded, NotFound, RunCancelled
from holdfast.records.identity import RequestId
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.request import Request
from holdfast.records.words import KEEP_INPUTS_WORDS, KeepInputs, Status
from holdfast.runs.block import RunBlock, Terms, Tools
from holdfast.runs.run import Run
from holdfast.stores.claim import CANCEL, FINISHED
from holdfast.stores.heartbeat import Heartbeat
from holdfast.stores.housekeeping import Housekeeping
from holdfast.stores.listing import UNREADABLE, warn_of_damaged, warn_of_sealed
from holdfast.stores.pages import AsyncPage

if TYPE_CHECKING:
    from holdfast.runtimes.session.options import OrchestratorOptions
    from holdfast.runtimes.session.session import SessionBlock

REQUEST_STATUSES = ("open", "answered", "expired")
OPEN = (Status.INPUT_REQUIRED, Status.WORKING)
"""Statuses of threads that may have open requests."""
FAILURES = (Status.FAILED, Status.CANCELLED)


class Store(Housekeeping):
    """Where threads are kept, and run."""

    def __init__(self, *args: Any, inputs: KeepInputs = "preview", **options: Any) -> None:
        keep_inputs = plain_word(KEEP_INPUTS_WORDS, inputs, "value of inputs=")
        super().__init__(*args, **options)
        heartbeat = Heartbeat(self._ports)
        self._tools = Tools(
            self._ports, self._reader, self._committer, self._events, heartbeat, self._open, keep_inputs
        )

    async def close(self) -> None:
        """Let go of the store. What was acknowledged is kept; a run that is still alive lets its lease expire."""
        if not self._closed:
            await self._ports.perform(self._tools.heartbeat.stop)
        await super().close()

    # Runs

    def run(
        self,
        thread_id: str,
        *,
        labels: Mapping[str, str] | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        reopen: bool = False,
    ) -> RunBlock:
        """Claim a thread for a block: `async with store.run("user-42") as run`. Nobody else writes to it meanwhile.

        If another run holds it, waits for `wait` (one lease by default), then `LeaseHeld`. A thread whose owner is
        surely dead is taken over at once. Leaving the block gives the thread back: complete or failed if the run said
        so, failed with the error that left the block, suspended if it waits, else idle. `reopen=True` lets a complete
        thread go on.
        """
        return self._run_block(thread_id, labels, Terms(lease, wait, reopen))

    def _run_block(
        self,
        thread_id: str,
        labels: Mapping[str, str] | None,
        terms: Terms,
        check_held: Callable[[], Awaitable[None]] | None = None,
    ) -> RunBlock:
        return RunBlock(self._tools, thread_id, check_labels(labels), terms, check_held)

    def session(
        self,
        thread_id: str | None = None,
        *,
        role: str = "agent",
        phase: str = "chat",
        **options: "Unpack[OrchestratorOptions]",
    ) -> "SessionBlock":
        """Claim a thread for a conversation: `async with store.session("user-42", budget_usd=2.50) as session`.

        The short form of `Orchestrator(role, phase, store, **options).session(thread_id)`.
        """
        from holdfast.runtimes.session.orchestrator import Orchestrator

        return Orchestrator(role, phase, self, **options).session(thread_id)

    async def recover(
        self,
        handler: Callable[[Run], Any] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        max_attempts: int = 3,
        lease: timedelta | float = 30,
    ) -> Recovery:
        """Resume every thread that can be: abandoned by a process that is gone, answered, or its timer due.

        Each is claimed once among all processes that recover. Its durable function is resumed if this program has it;
        with a `handler`, that is called with the claimed run instead. A thread whose process dies `max_attempts` times
        without getting anywhere ends as failed.
        """
        from holdfast.runs.recovery import Recoverer

        await self._open()
        whole_number(max_attempts, "max_attempts", least=1)
        terms = Terms(lease, wait=0, keyed=function_or_none(handler, "handler") is None)
        terms.check()
        recoverer = Recoverer(self, handler, terms, max_attempts)
        return await recoverer.recover(check_labels(labels) or {})

    async def cancel(self, thread_id: str) -> None:
        """End a thread: a live run stops at its next step or within a second; others end at once.

        `NotFound` if there is no such thread; a finished one stays as it is.
        """
        await self._open()
        thread = self._reader.sealing.key(thread_id)
        seen = await self._ports.perform(self._reader.seen, thread)
        if seen is None or seen.head.deleted:
            raise NotFound(f"there is no thread {thread_id!r}")
        if seen.head.status in FINISHED:
            return
        live = self._tools.heartbeat.find(thread)
        if live is not None:
            live.cancelled = True
        while not await self._ended(thread_id):
            await self._ports.perform(self._backend.post, thread, CANCEL, b"")
            seen = await self._ports.perform(self._reader.seen, thread)
            if seen is None or seen.head.held(self._ports.now()):
                return  # its run hears of it

    async def retry(self, thread_id: str) -> None:
        """Put a failed thread back, so that `recover` resumes it; its finished steps are kept.

        `Conflict` if it has not failed, `NotFound` if there is no such thread.
        """
        from holdfast.runs.settling import check_failed, put_back

        check_failed(thread_id, (await self.thread(thread_id)).status)
        async with self._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
            await put_back(run)

    async def settle(self, thread_id: str, step: str, choice: str, value: Any = None, *, by: str = "") -> None:
        """Say how a step in doubt ended, by its key; then `recover`, or running the thread again, continues.

        `done`: it happened, and `value` is its result. `retry`: execute it again, with the same idempotency key.
        `fail`: it failed, and the code that called it gets `StepFailed`. `NotFound` if the step is not in doubt,
        `Conflict` if it has ended by now, or if a request asks about it: then answer that.
        """
        from holdfast.runs.settling import settle_step

        _check_texts(step=step, by=by)
        if not step:
            raise ConfigurationError("step='': give the key of the step, as `holdfast show` prints it")
        await self.thread(thread_id)
        async with self._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
            await settle_step(run, step, choice, value, by)

    async def _ended(self, thread_id: str) -> bool:
        """End a thread that no run holds; False if one does."""
        try:
            async with self._run_block(thread_id, None, Terms(wait=0, silent=True)) as run:
                run._ledger.claim.cancelled = True
        except LeaseHeld:
            return False
        except RunCancelled:
            pass
        return True

    async def outcome(self, thread_id: str) -> Outcome:
        """Read how a thread stands, without running or claiming it: its result, its error, its open requests.

        `NotFound` if there is no such thread, or it was deleted.
        """
        await self._open()
        return await self._ports.perform(self._outcome_of, self._reader.sealing.key(thread_id))

    def _outcome_of(self, thread: bytes) -> Outcome:
        info, result, requests = self._listings.info(thread), None, list[Request]()
        if info.status is Status.COMPLETE and info.row_count:
            result = Journal.of(self._reader.load_head(thread).log.document).result
        elif info.status in OPEN:
            requests = self._requests_of(info.thread_id, "open")
        error = info.error if info.status in FAILURES else None
        assert info.status is not None  # noqa: S101  a damaged head was refused
        return Outcome(
            status=info.status, thread_id=info.thread_id, result=result, error=error, requests=tuple(requests)
        )

    # Requests

    async def requests(
        self, *, status: str | None = "open", cursor: str | None = None, limit: int = 50
    ) -> AsyncPage[Request]:
        """The questions of all threads: open ones (the inbox of people who approve), `answered`, `expired`, or all.

        Oldest first within a thread. Open ones are found by the status of their threads, the others by reading all.
        Threads that cannot be read are left out, with a `HoldfastWarning`.
        """
        await self._open()
        if status is not None and status not in REQUEST_STATUSES:
            raise ConfigurationError(f"status={status!r}; requests are {', '.join(REQUEST_STATUSES)}")
        items, following = await self._ports.perform(self._list_requests, status, cursor, limit)
        return AsyncPage(items, following, lambda cursor: self.requests(status=status, cursor=cursor, limit=limit))

    def _list_requests(self, status: str | None, cursor: str | None, limit: int) -> tuple[list[Request], str | None]:
        """A page holds all matching requests of the threads of one page of threads that have any."""
        statuses = [each.value for each in OPEN] if status == "open" else []
        found: list[Request] = []
        while True:
            threads, cursor = self._listings.threads(statuses, {}, cursor, limit)
            if sealed := [info for info in threads if info.sealed_by is not None]:
                warn_of_sealed("not all requests are listed", sealed[0])
            damaged: list[tuple[str, object]] = []
            for info in threads:
                try:
                    if info.damaged is not None:
                        damaged.append((info.thread_id, info.damaged))
                    elif info.sealed_by is None:
                        found += self._requests_of(info.thread_id, status)
                except (*UNREADABLE, LimitExceeded) as error:
                    damaged.append((info.thread_id, error))
            if damaged:
                warn_of_damaged("not all requests are listed", *damaged[0])
            if cursor is None or len(found) >= limit:
                return found, cursor

    def _requests_of(self, thread_id: str, status: str | None) -> list[Request]:
        from holdfast.runs.asking import take_in_answers

        thread = self._reader.sealing.key(thread_id)
        try:
            seen = self._reader.living(thread)
            summary = self._reader.sealing.read_summary(self._reader.binding(thread, seen.head), seen.head)
            if status == "open" and not summary.requests:
                return []
            inbox = self._reader.backend.inbox(thread)
            loaded = self._reader.load_head(thread)
        except NotFound:
            return []
        journal, binding = Journal.of(loaded.log.document), loaded.log.binding
        take_in_answers(journal, binding, inbox)
        shown = set(REQUEST_STATUSES) if status is None else {status}
        if loaded.seen.head.status in FINISHED:
            shown.discard("open")
        numbers = [number for number in journal.numbers() if journal.request_status(number) in shown]
        return journal.list_requests(binding, numbers)

    async def answer(
        self, request_id: str, choice: str | None = None, value: Any = None, *, by: str = "", comment: str = ""
    ) -> Request:
        """Answer a request, once: `Conflict` if it has an answer, `InvalidAnswer` for what it does not take.

        Returns the request with its answer. The thread resumes when it is run again, or by `recover`.
        """
        from holdfast.runs.asking import leave_answer

        await self._open()
        now = self._ports.now()
        parsed = RequestId.parse(request_id)
        _check_texts(by=by, comment=comment, **({} if choice is None else {"choice": choice}))
        request = await self._ports.perform(leave_answer, self._reader, parsed, choice, value, by, comment, now)
        await self._events.emit("answered", parsed.thread_id, 0, request=request_id, name=request.name)
        return request


def _check_texts(**given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a str, got {value!r}")


def tools_of(store: Store) -> Tools:
    """What a runtime builds its runs on."""
    return store._tools
