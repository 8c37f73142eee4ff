"""`async with store.run(...)`: from the claim to the release, and the status that the thread gets."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import NoReturn

import msgspec

from holdfast.codec import encode
from holdfast.history.entries import Ended, Traced, message_key
from holdfast.ports import INFO, Ports, is_heard, logger
from holdfast.processes import named
from holdfast.records.errors import (
    CodecError,
    ConfigurationError,
    Fenced,
    HoldfastError,
    LeaseHeld,
    RunCancelled,
    StoreError,
    Suspended,
)
from holdfast.records.event import EventKind
from holdfast.records.identity import thread_id_of
from holdfast.records.request import Request
from holdfast.records.retention import microseconds
from holdfast.records.words import Status
from holdfast.runs.failures import explain
from holdfast.runs.ledger import Ledger, failed_end
from holdfast.runs.options import seconds
from holdfast.runs.run import Run
from holdfast.runs.scope import Frame, Scope, current_frame
from holdfast.stores.claim import Claim, Claiming
from holdfast.stores.committer import Committer
from holdfast.stores.decisions import as_found
from holdfast.stores.events import Events
from holdfast.stores.heartbeat import Heartbeat
from holdfast.stores.reader import Reader, Seen
from holdfast.stores.waking import make_due, wake_waiting
from holdfast.stores.writer import Intent

SHORTEST_LEASE = 0.5
POLL_SECONDS = 0.1
ENDED = {Status.COMPLETE.value, Status.FAILED.value, Status.CANCELLED.value}
ENDS_OF_PROGRAMS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Errors that a suspension must not replace when they leave a block."""


class Tools(msgspec.Struct, frozen=True):
    """The parts of a store that a run needs."""

    ports: Ports
    reader: Reader
    committer: Committer
    events: Events
    heartbeat: Heartbeat
    open: Callable[[], Awaitable[None]]
    poke: Callable[[str], Awaitable[None]]
    keep_inputs: str


class Terms(msgspec.Struct, frozen=True):
    """The terms of a claim: how long the lease is, how long to wait for another's."""

    lease: timedelta | float = 30
    wait: timedelta | float | None = None
    reopen: bool = False
    keyed: bool = False
    """True for durable functions: records without a key get one by their place in the program."""
    silent: bool = False
    """True for a claim that runs none of the user's code: it prints nothing on the terminal."""
    tag: str = ""
    """The tag of the engine that asks for the run: see `take`."""
    longest: float = 0
    """After how many seconds the run is handed over at its next step, if it has done one; 0 for never."""

    def __post_init__(self) -> None:
        if seconds(self.lease, "lease") < SHORTEST_LEASE:
            raise ConfigurationError(f"`lease` must be at least {SHORTEST_LEASE} s, got {self.lease}")
        if self.wait is not None:
            seconds(self.wait, "wait")


class RunBlock:
    """The `async with` block of one run."""

    def __init__(
        self,
        tools: Tools,
        thread_id: str,
        labels: Mapping[str, str] | None,
        terms: Terms,
        check_held: Callable[[], Awaitable[None]] | None = None,
        known: Seen | None = None,
    ) -> None:
        """`check_held` raises an error if waiting for a thread that another run holds would be useless.

        `known` is the head of the thread, if the caller has read it: the thread is claimed only if it is unchanged.
        """
        self._tools = tools
        self._thread = tools.reader.key(thread_id)
        self._labels = labels
        self._terms = terms
        self._check_held = check_held
        self._known = known
        self._run: Run | None = None
        self._outer: Frame | None = None
        self._entered_at = 0

    def __enter__(self) -> NoReturn:
        raise TypeError("this store is awaitable: use `async with store.run(...)`, or holdfast.sync for a plain `with`")

    def __exit__(self, *_: object) -> None:
        """Do nothing: Python looks for this method before it calls `__enter__`, which explains what to do."""

    async def __aenter__(self) -> Run:
        return await self.enter()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.leave(error)

    @property
    def entered(self) -> bool:
        """True once the thread was claimed."""
        return self._run is not None

    async def enter(self) -> Run:
        """Claim the thread and return its run."""
        if self._run is not None:
            raise ConfigurationError("this block was entered before; call store.run again")
        await self._tools.open()
        claim = await self._claim()
        try:
            run = await self._begun(claim)
            self._outer = current_frame.get()
            current_frame.set(Frame(run, run._scope))
        except BaseException as error:
            self._tools.heartbeat.remove(claim)
            await self._tools.ports.shielded(self._tools.ports.perform(claim.undo, error))
            raise
        self._run = run
        return run

    async def _begun(self, claim: Claim) -> Run:
        """Announce the claim, and return the run under it."""
        tools, ports = self._tools, self._tools.ports
        self._entered_at = ports.now()
        ledger = Ledger(claim, tools.events, reopen=self._terms.reopen, keep_inputs=tools.keep_inputs)
        if self._terms.longest:
            ledger.hand_over_at(self._entered_at + round(self._terms.longest * 1e6))
        if self._labels:
            await ledger.commit(ports, Intent(journal=True, labels=dict(self._labels)))
        tools.heartbeat.add(claim)
        await self._announce(ledger)
        return Run(ledger, ports, tools.reader, Scope(branch=ports.branch()), keyed=self._terms.keyed)

    async def _claim(self) -> Claim:
        ports = self._tools.ports
        wait = self._terms.lease if self._terms.wait is None else self._terms.wait
        give_up_at, has_waited = ports.now() + microseconds(wait), False
        while True:
            try:
                return await self._taken()
            except LeaseHeld as held:
                if self._check_held is not None and not has_waited:
                    await self._check_held()
                left = (give_up_at - ports.now()) / 1e6
                if left <= 0:
                    raise
                if not has_waited:
                    self._report_waiting(held, left)
                    has_waited = True
                await ports.sleep(min(left, max(held.remaining, 0.001), POLL_SECONDS))

    def _report_waiting(self, held: LeaseHeld, left: float) -> None:
        """Report on the terminal and in the log whose lease this run waits for: the program seems to hang otherwise."""
        text = (
            f"waiting up to {left:.0f} s for the lease of {named(held.owner)} on thread {thread_id_of(self._thread)!r},"
            f" which expires in {held.remaining:.0f} s unless it is renewed"
        )
        self._tools.ports.tell(text)
        if is_heard(INFO):
            logger().info("%s", text)

    async def _taken(self) -> Claim:
        """Make one attempt to claim the thread. If the run is cancelled meanwhile, release the claim first."""
        tools, ports, taking = self._tools, self._tools.ports, Claiming()
        lease, reopen, tag = microseconds(self._terms.lease), self._terms.reopen, self._terms.tag
        given = (ports, tools.reader, tools.committer, self._thread, lease)
        try:
            return await ports.shielded(ports.perform(taking.take, *given, reopen=reopen, tag=tag, known=self._known))
        except BaseException:
            await ports.shielded(ports.perform(taking.abandon))
            raise

    async def _announce(self, ledger: Ledger) -> None:
        claim, journal = ledger.claim, ledger.journal
        kind: EventKind = "taken_over" if claim.found.owner else "resumed" if ledger.resumed else "claimed"
        await ledger.emit(kind, owner=claim.owner, token=claim.token, before=claim.found.owner, trace=journal.trace)
        if trace := self._tools.events.trace_context():
            ledger.carry(Traced(trace))
        if journal.done_count and not ledger.finished and not self._terms.silent:
            saved = journal.microseconds_done / 1e6
            self._tools.ports.tell(
                f"resumed {claim.thread_id}: {journal.done_count} steps from checkpoint, {saved:.1f} s saved"
            )

    # Leaving

    async def leave(self, error: BaseException | None) -> None:
        """Release the lease, with the status that follows from how the block's code ended.

        A cancellation that arrives meanwhile is raised after the end was stored and announced.
        """
        assert self._run is not None  # noqa: S101  entered
        ledger, ports = self._run._ledger, self._tools.ports
        try:
            self._restore_frame(ledger)
            explain(error, ledger.plain_step)
            stops = isinstance(error, ENDS_OF_PROGRAMS) or ports.is_cancelled_by(error)
            cut = await self._wait_for_steps(ledger)
            await ports.shielded(self._end(ledger, cut or error, stops=stops or cut is not None))
        except (KeyboardInterrupt, SystemExit):  # it may strike before the end begins
            self._tools.heartbeat.remove(ledger.claim)
            await self._release_lease(ledger.claim)
            raise
        if cut is not None:
            raise cut

    async def _wait_for_steps(self, ledger: Ledger) -> BaseException | None:
        """Let other branches of a suspended run record their steps. Return the error that ended the wait, if any."""
        try:
            if ledger.suspension is not None and not ledger.untouched:
                await ledger.wait_for_steps(self._tools.ports)
        except BaseException as cut:  # noqa: BLE001  raised once the lease is released
            return cut
        return None

    async def _end(self, ledger: Ledger, error: BaseException | None, *, stops: bool) -> None:
        """End the run. With `stops` the program or task ends with this error, which a suspension must not replace."""
        try:
            if ledger.untouched:
                await self._release(ledger, *as_found(ledger.claim.found))
            elif ledger.suspension is not None:
                requests = await self._suspend(ledger)
                if not stops:
                    raise self._suspended(ledger, requests) from None
            elif error is None:
                await self._end_well(ledger)
            elif isinstance(error, Suspended) and not ledger.finished:
                await self._wait_for_another(ledger)
            else:
                await self._end_badly(ledger, error)
        except (StoreError, CodecError, KeyboardInterrupt, SystemExit):
            await self._release_lease(ledger.claim)
            raise
        finally:
            self._tools.heartbeat.remove(ledger.claim)
            await self._announce_release(ledger)
            ledger.claim.failure = ledger.claim.failure or Fenced(
                f"the run of {ledger.claim.thread_id!r} is over: its block was left; call store.run again"
            )

    def _restore_frame(self, ledger: Ledger) -> None:
        """Make the code after the block part of the outer run again, unless that is over: blocks may overlap."""
        ledger.over = True
        frame = current_frame.get()
        if frame is not None and frame.run._ledger is ledger:
            outer = self._outer
            current_frame.set(None if outer is None or outer.run._ledger.over else outer)

    async def _announce_release(self, ledger: Ledger) -> None:
        status = ledger.status if ledger.claim.failure is None else "lost"
        seconds_held = (self._tools.ports.now() - self._entered_at) / 1e6
        await ledger.emit("released", status=status, token=ledger.claim.token, seconds=seconds_held)

    async def _end_well(self, ledger: Ledger) -> None:
        if not ledger.finished:
            await self._end_if_cancelled(ledger)
        is_left = ledger.status == Status.WORKING.value and ledger.resumes_at is None
        await self._release(ledger, Status.IDLE.value if is_left else ledger.status, ledger.resumes_at or 0)

    async def _end_badly(self, ledger: Ledger, error: BaseException) -> None:
        """Record an error; anything else that ends a program leaves the thread `working`.

        A failure to record the error must not hide it.
        """
        try:
            if isinstance(error, RunCancelled) and not ledger.finished:
                await self._cancel(ledger)
                return
            if isinstance(error, Exception) and not ledger.finished:
                ledger.end_on_release(failed_end(error, self._tools.ports.now()))
            await self._release(ledger, ledger.status)
        except HoldfastError as failure:
            if failure is not error:
                error.add_note(f"holdfast could not record this: {failure}")
            await self._release_lease(ledger.claim)
        except ENDS_OF_PROGRAMS as failure:
            if failure is not error:
                raise
            await self._release_lease(ledger.claim)  # it struck during a write, which ended the claim

    async def _end_if_cancelled(self, ledger: Ledger) -> None:
        if await self._tools.ports.perform(ledger.claim.was_cancelled):
            await self._cancel(ledger)
            raise RunCancelled(f"the run of {ledger.claim.thread_id!r} was cancelled")

    async def _cancel(self, ledger: Ledger) -> None:
        now = self._tools.ports.now()
        entry = Ended(Status.CANCELLED.value, encode(None), "RunCancelled", "cancelled from outside", (), now)
        ledger.end_on_release(entry)
        await self._release(ledger, ledger.status)

    async def _suspend(self, ledger: Ledger) -> tuple[Request, ...]:
        """Release the thread until it is answered or its timer is due. Return the requests it waits for.

        A request whose answer was posted and not consumed yet is not among them: without others the thread can resume.
        """
        ports, claim, journal = self._tools.ports, ledger.claim, ledger.journal
        claim.check()
        inbox = await ports.perform(self._tools.reader.backend.inbox, claim.thread)
        await self._end_if_cancelled(ledger)
        unanswered = [number for number in journal.open_numbers() if message_key(number) not in inbox]
        requests = tuple(journal.list_requests(claim.log.binding, unanswered))
        can_resume = ledger.is_handed_over or (not requests and bool(journal.open_numbers()))
        wake_at = 0 if can_resume else self._wake_at(ledger, unanswered)
        status = Status.INPUT_REQUIRED.value if requests and not can_resume else Status.WORKING.value
        await self._release(ledger, status, wake_at, frozenset(inbox.keys() - ledger.awaited.messages))
        if not can_resume and await ports.perform(self._wake_if_ended, ledger):
            await self._tools.poke(claim.thread_id)
        await ledger.emit("suspended", requests=[request.id for request in requests], wake_at=wake_at)
        return requests

    def _wake_if_ended(self, ledger: Ledger) -> bool:
        """Make the released thread due if a thread that it waits for has ended meanwhile. True if so. Blocking."""
        reader, thread = self._tools.reader, ledger.claim.thread
        has_place = bool(ledger.claim.writer.seen.head.route)
        is_over = has_place and any(has_ended() for has_ended in ledger.awaited.threads)
        if is_over:
            make_due(reader.backend, reader.agenda, thread)
        return is_over

    async def _wait_for_another(self, ledger: Ledger) -> None:
        """Release a thread whose code ran another thread, which waits: it looks again after one lease."""
        wake_at = self._tools.ports.now() + microseconds(self._terms.lease)
        await self._release(ledger, Status.WORKING.value, wake_at)
        await ledger.emit("suspended", requests=[], wake_at=wake_at)

    def _suspended(self, ledger: Ledger, requests: tuple[Request, ...]) -> Suspended:
        thread_id = ledger.claim.thread_id
        names = ", ".join(request.id for request in requests)
        noun = "request" if len(requests) == 1 else "requests"
        asked = f"is waiting for an answer to {noun} {names}; then run it again"
        what = asked if requests else "sleeps; run it again later"
        return Suspended(
            f"thread {thread_id!r} {what}, or let store.recover resume it", thread_id=thread_id, requests=requests
        )

    def _wake_at(self, ledger: Ledger, unanswered: Sequence[int]) -> int:
        """Return when to resume without an answer: at the earliest end of a sleep, or deadline; 0 for never.

        A sleep that ended before this run began is not one that it waits for.
        """
        journal = ledger.journal
        sleeps = [due for due in journal.timers.values() if due > self._entered_at]
        deadlines = [journal.requests[number - 1].deadline for number in unanswered]
        return min((moment for moment in (*sleeps, *deadlines, ledger.awaited.look_at) if moment), default=0)

    async def _release(
        self, ledger: Ledger, status: str, wake_at: int = 0, heard: frozenset[str] | None = None
    ) -> None:
        pending = ledger.claim.release(status, wake_at, heard)
        await self._tools.ports.settle(pending, ledger.claim.committer)
        ledger.status = status
        await ledger.emit_end()
        if status in ENDED and ledger.claim.writer.seen.head.route:
            for waiting in await self._tools.ports.perform(wake_waiting, self._tools.reader, ledger.claim.thread):
                await self._tools.poke(thread_id_of(waiting))

    async def _release_lease(self, claim: Claim) -> None:
        try:
            await self._tools.ports.perform(claim.release_after_failure)
        except HoldfastError:
            return  # the lease expires
