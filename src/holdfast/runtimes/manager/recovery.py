"""Resume tasks: a pure function decides which; one process resumes each, and uses its input once."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from holdfast.ports import logger
from holdfast.records.errors import ConfigurationError, Conflict, Deleted, InvalidAnswer, LeaseHeld, NotFound, RunError
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.runs.driver import UNREADABLE, Driver, Record, Store, Terms, every, note, ports_of, read, was_deleted
from holdfast.runtimes.manager.config import CheckpointConfig
from holdfast.runtimes.manager.held import QUESTION, TASK_LABELS, Held, saved_at, thread_id_of
from holdfast.runtimes.manager.state import ExecutionState, RecoveryReport
from holdfast.runtimes.manager.tasks import Tasks

PAGE = 500
PENDING = (Status.WORKING, Status.INPUT_REQUIRED)
RESUMABLE = (*PENDING, Status.FAILED)
RESUMED = "manager_resumed"
"""The kind of note for a resumed task. Its content is the number of the checkpoint if a recovery resumed it, or the
last save and the user's input if `resume` did."""
NO_CHECKPOINT = "no checkpoint: its process died before the first save; start it again inside manager.hold"


async def pending_threads(store: Store, app: str, user: str | None = None) -> list[ThreadInfo]:
    """List the threads of the pending tasks. With a user, only threads with that user's label are read."""
    labels = {"app": app} if user is None else {"user": user}
    listed = every(await store.threads(status=PENDING, labels=labels, limit=PAGE))
    return [info async for info in listed if _is_task(info, app, user)]


def decide(state: ExecutionState, config: CheckpointConfig, now: datetime, *, waits: bool) -> str:
    """Return what to do with a pending task: `resume` it, or report it as `expired`, `waiting` or `skipped`.

    `waits` means that it has an unanswered request. An answered task does not expire.
    """
    if not config.enabled:
        return "skipped"
    is_answered = state.needs_user_input and not waits
    if not is_answered and state.is_expired(config.recovery_timeout, now=now):
        return "expired"
    if waits:
        return "resume" if config.should_auto_resume_hitl else "waiting"
    return "resume" if config.should_auto_resume and state.is_recoverable else "skipped"


class Found(msgspec.Struct, frozen=True):
    """A task as it was read before it was claimed."""

    info: ThreadInfo
    record: Record

    def check(self, driver: Driver) -> None:
        """Raise `Conflict` if the thread changed since it was read."""
        then, now = self.record, driver.record
        is_resumed = then.started != now.started or len(then.notes(RESUMED)) != len(now.notes(RESUMED))
        if is_resumed or (driver.found_status, driver.run.seq) != (self.info.status, self.info.seq):
            raise Conflict(f"task {self.info.thread_id!r} changed meanwhile: another process resumed or saved it")


class Recoverer:
    """Resumes the tasks of a manager."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._store = tasks.store
        self._ports = ports_of(tasks.store)
        self._called: set[str] = set()
        """The threads for which the callback was called."""

    async def recover(self, found: list[ThreadInfo]) -> RecoveryReport:
        """Recover these threads as configured; concurrently in the awaitable world."""
        if self._tasks.config.should_auto_resume or self._tasks.config.should_auto_resume_hitl:
            self._callback()
        if not self._tasks.config.enabled:
            self._tasks.warn_disabled()
        ends = await self._ports.gather([self._recovered(info) for info in found])
        ids = [(info.thread_id, end) for info, end in zip(found, ends, strict=True)]
        return RecoveryReport(**{end: tuple(each for each, its in ids if its == end) for end in set(ends)})

    async def _recovered(self, info: ThreadInfo) -> str:
        """Recover a thread and return the outcome. An error does not stop the recovery of other threads."""
        try:
            return await self._recover(info)
        except Exception as error:  # noqa: BLE001  logged and reported
            is_called = info.thread_id in self._called
            if isinstance(error, LeaseHeld | Conflict | NotFound | Deleted) and not is_called:
                return "skipped"  # another process holds or deleted it
            logger().warning("recovery of task %r failed: %s: %s", info.thread_id, type(error).__name__, error)
            logger().debug("traceback of the failed recovery", exc_info=True)
            return "damaged" if isinstance(error, UNREADABLE) and not is_called else "failed"

    async def _recover(self, info: ThreadInfo) -> str:
        record = await read(self._store, info.thread_id)
        found = Found(info, record)
        if record.state == {}:
            return await self._fail(found, "failed", NO_CHECKPOINT) if self._tasks.config.enabled else "skipped"
        state, requests = ExecutionState.from_dict(record.state), await self._requests(info)
        verdict = decide(state, self._tasks.config, self._now(), waits=bool(requests))
        if verdict == "expired":
            timeout, age = self._tasks.config.recovery_timeout, self._now() - state.checkpoint_time
            reason = f"expired: the last checkpoint is {age} old, and recovery.timeout is {timeout}"
            return await self._fail(found, "expired", reason)
        if verdict != "resume" or any(request.name != QUESTION for request in requests):  # the callback asked it
            return "waiting" if requests else verdict
        for request in requests:
            await self._store.answer(request.id, value="", by="auto_resume_hitl")
        await self._resume(self._claim_now(found), None)
        return "resumed" if info.thread_id in self._called else "waiting"

    async def _fail(self, found: Found, end: str, reason: str) -> str:
        held = self._claim_now(found)
        async with held:
            await held.driver.run.fail(reason)
        return end

    async def resume(self, ids: tuple[str, ...], user_input: str) -> Any:
        """Resume one task with a user's input. The input is stored first, so it is not lost and used once."""
        self._callback()
        if not isinstance(user_input, str):
            raise ConfigurationError(f"`user_input` must be a str, got {user_input!r}")
        thread_id = thread_id_of(*ids)
        found = await self._find(thread_id)
        for request in await self._requests(found.info):
            if not user_input:
                raise InvalidAnswer(f"task {thread_id!r} waits for input; pass user_input")
            await self._store.answer(request.id, value=user_input)
        result = await self._resume(self._tasks.hold(ids, self._tasks.terms, found.check), user_input)
        if thread_id not in self._called:  # its process died before asking; it has asked now
            return await self.resume(ids, user_input)
        return result

    async def _find(self, thread_id: str) -> Found:
        """Return a task that can be resumed. `Conflict` if it was resumed already, `NotFound` if there is none."""
        try:
            record = await read(self._store, thread_id)
            info = await self._store.thread(thread_id)
        except NotFound:
            if await was_deleted(self._store, thread_id):
                raise Conflict(f"task {thread_id!r} is complete or was cleared") from None
            raise
        if info.status not in RESUMABLE:
            raise Conflict(f"task {thread_id!r} is {info.status}: it was already resumed or has ended")
        if record.state == {}:
            raise NotFound(f"task {thread_id!r} has {NO_CHECKPOINT}")
        return Found(info, record)

    async def _requests(self, info: ThreadInfo) -> tuple[Request, ...]:
        """Return the unanswered requests of a task."""
        waits = info.status is Status.INPUT_REQUIRED
        return (await self._store.outcome(info.thread_id)).requests if waits else ()

    def _claim_now(self, found: Found) -> Held:
        """Return the claim of a recovery, which does not wait for other runs."""
        return self._tasks.hold(_ids(found.info), Terms(self._tasks.terms.lease, wait=0), found.check)

    async def _resume(self, held: Held, given: str | None) -> Any:
        """Claim a task and return the result of the callback; None if the task waits for an answer.

        `given` is the user's input, or None for a recovery.
        """
        async with held:
            driver, state = held.driver, held.loaded
            assert state is not None  # noqa: S101  `Found.check` compared the thread
            if given is None:
                _check_attempts(driver, self._tasks.max_attempts)
            answer = await held.user_input(state)
            if given and answer and answer != given:
                driver.leave_untouched()
                raise Conflict(f"task {driver.thread_id!r} already has its input: {answer!r}")
            user_input, seq = answer or given or _last_input(driver, state), driver.run.seq
            content = seq if given is None else [saved_at(state), user_input]
            await driver.write(note(RESUMED, content, self._ports.now()), journal=True, metadata={"resumed": seq})
            await self._tasks.restore(state)
            self._called.add(driver.thread_id)
            return await self._ports.invoke(self._callback(), (state, user_input), {}, None)
        return None

    def _callback(self) -> Callable[[ExecutionState, str], Any]:
        if self._tasks.callback is None:
            raise ConfigurationError("no resume callback is set; call manager.on_resume(callback) first")
        return self._tasks.callback

    def _now(self) -> datetime:
        return from_microseconds(self._ports.now())


def _check_attempts(driver: Driver, most: int) -> None:
    """Raise `RunError` if recoveries resumed this checkpoint `most` times: it seems to kill its processes."""
    seq = driver.run.seq
    attempts = sum(each == seq for each in driver.record.contents(RESUMED))
    if attempts >= most:
        raise RunError(
            f"gave up: checkpoint {seq} was resumed {attempts} times, and each process stopped before the next"
            " checkpoint; inspect the task, then call manager.resume to try again"
        )


def _last_input(driver: Driver, state: ExecutionState) -> str:
    """Return the input of the last `manager.resume` of this state, whose process may have died; empty if none."""
    noted = [each for each in driver.record.contents(RESUMED) if isinstance(each, list)]
    return str(noted[-1][1]) if noted and noted[-1][0] == saved_at(state) else ""


def _is_task(info: ThreadInfo, app: str, user: str | None) -> bool:
    """True for the thread of a task. Forks have the same labels but other ids; damaged threads have only their id."""
    ids = _ids(info)
    if len(ids) != len(TASK_LABELS) or ids[0] != app or user not in {None, ids[1]}:
        return False
    return info.damaged is not None or info.labels.items() >= dict(zip(TASK_LABELS, ids, strict=True)).items()


def _ids(info: ThreadInfo) -> tuple[str, ...]:
    """Return the names of a task from its thread id: see `thread_id_of`."""
    return tuple(part.replace("%2F", "/").replace("%25", "%") for part in info.thread_id.split("/"))
