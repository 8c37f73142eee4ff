"""A loop on its thread: claim it, load its snapshot, make transitions, write checkpoints, end it.

Both worlds share this class: the methods of the public classes call it.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from holdfast.codec import encode
from holdfast.records.errors import ConfigurationError, Conflict, Finished, HoldfastError, KeyReused, NotFound
from holdfast.records.loop import LoopState, Snapshot
from holdfast.records.words import Status
from holdfast.runs.driver import Driver, Record, Store, claim, delete_ended, delete_expired, fresh_id, read
from holdfast.runtimes.loop.loading import loaded
from holdfast.runtimes.loop.options import Cadence, LoopTerms
from holdfast.runtimes.loop.screening import copied, with_secrets
from holdfast.runtimes.loop.transitions import CHECKPOINTED, COMPLETE, FAILED, PLANNING, TERMINAL, resumption
from holdfast.runtimes.loop.work import Execution, Transition, current_call

LOOP = "loop"
"""The function name that the thread of a loop records."""
Origin: TypeAlias = Literal["new", "thread", "given"]
"""Where the snapshot of a loop comes from: a new request, its thread, or the caller."""


class LoopCore:
    """One loop, in memory and on its thread."""

    def __init__(
        self, terms: LoopTerms, store: Callable[[], Store], thread_id: str | None, snapshot: Snapshot, origin: Origin
    ) -> None:
        self.terms = terms
        self.snapshot = _resumable(snapshot, terms)
        self.facade: Any = self
        """The public loop, which handlers get."""
        self._store = store
        self._thread_id = thread_id
        self._origin: Origin = origin
        self._known_transitions = None if origin == "given" else self.snapshot.transitions
        """The transition count at which the thread, as last read or written, resumes; None if unknown."""
        self._is_ahead = False
        """True if the loop made transitions that are not written yet."""
        self._execution: Execution | None = None
        self._driver: Driver | None = None
        """Set while a call of this loop holds the thread."""

    @property
    def state(self) -> LoopState:
        """The state that the loop executes next."""
        return LoopState(self.snapshot.state)

    @property
    def thread_id(self) -> str:
        """The id of the loop's thread; generated at the first use if none was given."""
        if self._thread_id is None:
            self._thread_id = fresh_id(self._store(), LOOP)
        return self._thread_id

    def screened(self, snapshot: Snapshot | None = None) -> Snapshot:
        """Return a snapshot, by default the current one, without secrets. `SecretInState` if one must be refused."""
        screen, given = self.terms.screen, snapshot or self.snapshot
        names = ("request", "plan", "results", "context")
        return replace(given, **{name: screen.screened(getattr(given, name), name) for name in names})

    # Driving

    async def drive(self) -> list[Any]:
        """Make transitions until the loop ends, and end its thread."""
        self.terms.check_complete()
        await self._with_claim(self._drive)
        await self._delete_if_ended()
        return list(self.snapshot.results)

    async def _drive(self, driver: Driver) -> None:
        if self.state is FAILED:  # its deferred calls failed, or the loop decided to fail
            self.snapshot = resumption(self.snapshot)
        cadence = Cadence.of(self.terms.every)
        cadence.written(driver.ports.now())
        with driver.body():
            while self.state not in TERMINAL:
                await self._advance_and_save(driver, cadence)
        await self._end(driver)

    async def _advance_and_save(self, driver: Driver, cadence: Cadence) -> None:
        before = self.snapshot
        try:
            await self._advance(driver)
        except Exception:
            if self.state is FAILED:  # a deferred call failed: keep the remaining ones
                await self._save(driver, self.snapshot, "error", before.state)
            raise
        at = driver.ports.now()
        if before.state in CHECKPOINTED and (cadence.is_due(at) or self.state in TERMINAL):
            cause = "event" if self.terms.every == "transition" else "interval"
            await self._save(driver, self.snapshot, cause, before.state)
            cadence.written(at)

    async def step_once(self) -> None:
        """Make one transition. Only effects write: their own rows, and the decisions before them."""
        self.terms.check_complete()
        if self.state in TERMINAL:
            raise Finished(f"the loop of thread {self.thread_id!r} is {self.state}; it has no steps left")
        await self._with_claim(self._step)

    async def _step(self, driver: Driver) -> None:
        if self.state in TERMINAL:  # the thread had already ended
            driver.leave_untouched()
            return
        with driver.body():
            await self._advance(driver)

    async def checkpoint(self) -> None:
        """Write the current snapshot. If the loop has ended, end its thread too."""
        await self._with_claim(self._checkpoint)
        await self._delete_if_ended()

    async def _checkpoint(self, driver: Driver) -> None:
        if not driver.run.finished:
            await self._save(driver, self.snapshot, "manual")
        if self.state in TERMINAL:
            await self._end(driver)

    async def _advance(self, driver: Driver) -> None:
        """Make one transition. If it fails, restore the snapshot and its context."""
        before = replace(self.snapshot, context=copied(self.snapshot.context))

        async def commit() -> None:
            if self._is_ahead:
                await self._save(driver, before, "event")

        transition = Transition(self.terms, driver, self.facade, self.snapshot, self._execution, commit)
        try:
            await transition.make()
        finally:
            if transition.snapshot is self.snapshot:
                self.snapshot = before
            else:
                self.snapshot, self._execution, self._is_ahead = transition.snapshot, transition.execution, True

    async def call(self, wanted: Any, args: tuple[Any, ...]) -> Any:
        """Call a tool from within a handler."""
        current = current_call.get()
        if current is None or current[0].loop is not self.facade:
            raise ConfigurationError("loop.call only works inside a handler of this loop, while it is driven")
        return await current[0].call_tool(current[1], self.terms.tools.find(wanted), args)

    # The thread

    async def _with_claim(self, work: Callable[[Driver], Coroutine[Any, Any, None]]) -> None:
        """Claim the thread, load its snapshot, and do some work under the claim."""
        if self._driver is not None:
            raise ConfigurationError(
                f"the loop of thread {self.thread_id!r} is already being driven; it writes its own checkpoints"
            )
        async with claim(self._store(), self.thread_id, self.terms.run, self.terms.labels) as run:
            self._driver = driver = Driver(run)
            try:
                await self._attach(driver)
                driver.refuse_divergence()
                await work(driver)
            finally:
                self._driver = None

    async def _attach(self, driver: Driver) -> None:
        """Load the snapshot of the thread, or start the thread. An incompatible thread is left untouched."""
        before = self.snapshot, self._execution, self._known_transitions
        try:
            arguments = self._arguments(driver)
            if _is_of_loop(driver.record):
                self._adopt(driver.run.state)
            if driver.record.started is None and not driver.run.state:
                driver.replace_state(self.screened().to_dict())
            await driver.start(LOOP, arguments, "request", {"workflow": LOOP})
        except HoldfastError:
            self.snapshot, self._execution, self._known_transitions = before
            driver.leave_untouched()
            raise
        self._origin = "thread"

    def _arguments(self, driver: Driver) -> bytes:
        """Return the encoded request; for a loaded loop, the one its thread recorded."""
        if self._origin != "new" and driver.record.started is not None:
            return driver.record.started.arguments
        return encode([[self.terms.screen.screened(self.snapshot.request, "request")], {}], path="request")

    def _adopt(self, state: Any) -> None:
        """Adopt the snapshot of the thread, unless this loop made transitions since it last read the thread."""
        if not state:
            self._known_transitions = self.snapshot.transitions
            return
        held = resumption(loaded(state, self.terms, f"thread {self.thread_id!r}"))
        if self._origin == "new" or (not self._is_ahead and self._known_transitions not in {None, held.transitions}):
            self.snapshot, self._execution = _resumable(held, self.terms), None
        elif self._is_behind(held):
            raise Conflict(
                f"thread {self.thread_id!r} is at transition {held.transitions}, but this loop went from"
                f" {self._known_transitions} to {self.snapshot.transitions}: another process drove it; use Loop.resume"
            )
        self._known_transitions = held.transitions
        self._is_ahead = self._is_ahead or self.snapshot.transitions > held.transitions

    def _is_behind(self, held: Snapshot) -> bool:
        """True if the thread has transitions that this loop neither read nor made."""
        mine = resumption(self.snapshot)
        if self._known_transitions is None:
            return held.transitions > mine.transitions
        is_mine = held.transitions == mine.transitions and _work(held) == _work(self.screened(mine))
        return held.transitions != self._known_transitions and not is_mine

    async def _save(self, driver: Driver, snapshot: Snapshot, cause: str, before: str = "") -> None:
        """Write a snapshot as a checkpoint; `before` is the state before its transition."""
        written = self.screened(snapshot)
        metadata: dict[str, Any] = {"cursor": written.cursor, "steps": len(written.plan)}
        if before:
            metadata = {"transition": {"from": before, "to": written.state}, **metadata}
        previous = self._known_transitions, self._is_ahead
        self._known_transitions, self._is_ahead = (
            resumption(written).transitions,
            False,
        )  # only the first of parallel effects writes
        try:
            await driver.run.checkpoint(written.to_dict(), cause=cause, metadata=metadata)
        except BaseException:
            self._known_transitions, self._is_ahead = previous  # nothing was written, so no effect may follow
            raise

    async def _end(self, driver: Driver) -> None:
        """End the thread with the loop's status; leave a thread that has ended untouched."""
        run = driver.run
        if run.finished or (self.state is FAILED and driver.found_status == Status.FAILED.value):
            driver.leave_untouched()
        elif self.state is COMPLETE:
            await run.complete()
        else:
            await run.fail(f"the loop decided to fail at step {self.snapshot.cursor} of {len(self.snapshot.plan)}")

    async def _delete_if_ended(self) -> None:
        status = {COMPLETE: Status.COMPLETE, FAILED: Status.FAILED}.get(self.state)
        if status and status.value in self.terms.retention.delete_on and not self.snapshot.decision:
            await delete_ended(self._store(), self.thread_id, status)


def _resumable(snapshot: Snapshot, terms: LoopTerms) -> Snapshot:
    """Return a loaded snapshot in the form from which the loop resumes."""
    return replace(resumption(snapshot), context=with_secrets(snapshot.context, terms.context))


def first_snapshot(request: Any, terms: LoopTerms) -> Snapshot:
    """Return the snapshot of a loop that has not started."""
    return Snapshot(terms.version, request, PLANNING.value, [], 0, [], dict(terms.context))


def _work(snapshot: Snapshot) -> bytes:
    return encode([snapshot.state, snapshot.plan, snapshot.cursor, snapshot.results])


async def stored(store: Store, thread_id: str, terms: LoopTerms) -> Snapshot | None:
    """Return the snapshot of a thread; None if there is none, or nothing was written for the `ttl`."""
    ttl = terms.retention.ttl_us
    try:
        if ttl is not None and await delete_expired(store, thread_id, ttl):
            await store.revive(thread_id)  # a new loop may start under its id
            return None
        record = await read(store, thread_id)
    except NotFound:
        return None
    if not _is_of_loop(record):
        raise KeyReused(f"thread {thread_id!r} is not the thread of a loop; use another thread_id")
    return loaded(record.state, terms, f"thread {thread_id!r}") if record.state else None


def _is_of_loop(record: Record) -> bool:
    """True unless something else was started on the thread."""
    return record.started is None or record.started.function == LOOP
