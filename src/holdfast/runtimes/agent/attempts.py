"""The attempts of a run: call the function, and carry out what the policy decides about each failure.

Every decision is recorded before it is carried out, and carrying it out again changes nothing. So after a crash the
next process carries out the decision of the one that died.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import Parameter, signature
from typing import Any

import msgspec

from holdfast.codec import decode
from holdfast.records.errors import Aborted, CodecError, ConfigurationError, Escalated, RunCancelled, Suspended
from holdfast.records.failure import FailureContext, FailureType, RecoveryContext
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.runs.driver import Driver, Pruned, failed_steps, note, text_of
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.memory import CHOICE, FAILURE, RAISED, Choice, Failure, Memory
from holdfast.runtimes.agent.options import AgentTerms
from holdfast.runtimes.agent.policy import decide
from holdfast.runtimes.agent.recorder import LocalCompensators, Recorder, current_recorder
from holdfast.runtimes.agent.rollback import (
    RollbackImpossible,
    check_compensated,
    choose_target,
    named_target,
    progress_of,
    roll_back,
)

CHOICES = ("retry", "rollback", "abort")
_NOT_OURS = (RunCancelled, ConfigurationError, CodecError, Suspended)


class Attempts:
    """The attempts of one run at one task."""

    def __init__(
        self,
        terms: AgentTerms,
        driver: Driver,
        task: bytes,
        named: Mapping[str, Any],
        local: LocalCompensators,
        receipt: Callable[[Any], Any],
    ) -> None:
        self._terms = terms
        self._driver = driver
        self._packed_task = task
        self._named = named
        self._local = local
        self._receipt = receipt
        self._memory = Memory(driver.record)
        driver.follow(self._memory.followers)

    @property
    def task(self) -> Any:
        """A fresh copy of the task, so that one attempt cannot change it for the next."""
        return decode(self._packed_task)[0]

    async def begin(self) -> None:
        """Carry out a decision that may be unfinished. Raises if the thread may not continue."""
        failures = self._memory.failures
        if failures:
            await self._carry_out(failures[-1], self._context(failures[-1]))
        if reason := self._memory.exceeded(self._terms.budget):
            raise Escalated(reason, context=self._context(failures[-1]) if failures else self._spent(reason))

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[tuple[Recorder, dict[str, Any]]]:
        """Open one attempt: its recording functions and the arguments. On leaving, everything is stored first."""
        driver, outer = self._driver, current_recorder.get()
        self._local.begin_attempt()
        recorder = Recorder(self._terms, driver, self._memory, self._local, self._receipt)
        with driver.body():
            current_recorder.set(recorder)
            try:
                yield recorder, self._arguments(recorder)
            finally:
                current_recorder.set(outer)
                recorder.close()
                if not driver.is_lost:
                    await recorder.drain()

    def check_limits(self) -> None:
        """Raise `Escalated` if the thread exceeded its budget, even if the function caught the first such error."""
        if reason := self._memory.exceeded(self._terms.budget):
            text = f"{reason}; the agent ignored the limit and finished: its result is stored, run it again to get it"
            raise Escalated(text, context=self._spent(reason))

    async def call(self) -> Any:
        """Call the function once, as one attempt, and return its result."""
        async with self.attempt() as (_, named):
            return await self._driver.ports.invoke(self._terms.function, (self.task,), named, None)

    def _arguments(self, recorder: Recorder) -> dict[str, Any]:
        """Return the caller's keywords, plus those of ours that the function accepts."""
        ours = recorder.functions() | self._restored()
        parameters = signature(self._terms.function).parameters.values()
        if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
            names = {each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY}
            ours = {name: value for name, value in ours.items() if name in names}
        for each in parameters:
            if each.name in {"restored_state", "recovery"} and each.default is Parameter.empty:
                ours.setdefault(each.name, {} if each.name == "restored_state" else None)
        return {**self._named, **ours}

    def _restored(self) -> dict[str, Any]:
        """Return what this attempt learns about earlier ones; empty for the first."""
        run, memory = self._driver.run, self._memory
        failures = memory.failures
        if not (failures or memory.item_count or self._driver.step_count or run.state):
            return {}
        known = RecoveryContext(
            thread_id=run.thread_id,
            attempt=len(failures),
            state=run.state,
            steps=run.steps,
            delivered=memory.item_count,
        )
        return {"restored_state": run.state, "recovery": self._with_failure(known, memory) if failures else known}

    @staticmethod
    def _with_failure(known: RecoveryContext, memory: Memory) -> RecoveryContext:
        last = memory.failures[-1]
        action, choice = last.decision, memory.choices.get(last.attempt)
        return msgspec.structs.replace(
            known,
            failure=last.failure_type,
            message=last.message,
            action=action.kind if choice is None else choice.choice,
            answer=None if choice is None else choice.answer,
            hint=action.hint,
            subgoal=action.from_subgoal,
        )

    # Failures

    async def recover(self, error: Exception) -> None:
        """Classify an error, decide, record the decision and carry it out. Raises if no further attempt is allowed.

        Errors about wrong use of the library are raised unchanged: another attempt would fail the same way. So is the
        suspension of another thread: this one waits with it.
        """
        driver = self._driver
        if isinstance(error, _NOT_OURS) or driver.is_lost:
            raise error
        context = await self._classified(error)
        if isinstance(error, Aborted | Escalated) and error.context is None:
            error.context = context  # raised by this agent itself; one with a context came from a nested agent
            raise error
        await self._notify(self._terms.on_failure, context)
        failure = await self._decided(context)
        details: dict[str, str | int] = {"attempt": failure.attempt, "failure": failure.type}
        details["action"] = failure.decision.kind
        noted = note(FAILURE, failure, failure.at, failed=failed_steps(error))
        await driver.write(noted, journal=True, cause="error", metadata=details)
        await driver.emit("attempt_failed", **details, error=type(error).__name__)
        await self._carry_out(failure, context)

    async def _classified(self, error: Exception) -> FailureContext:
        failures = self._memory.failures
        now = self._driver.ports.now()
        context = msgspec.structs.replace(
            self._surroundings(),
            error=error,
            error_type=type(error).__name__,
            message=text_of(error),
            attempt=len(failures) + 1,
            earlier=tuple(each.failure_type for each in failures),
            seconds=(now - failures[0].at) / 1e6 if failures else 0.0,
        )
        kind = await self._driver.ports.invoke(self._terms.classifier, (context,), {}, None)
        if not isinstance(kind, str) or kind not in set(FailureType):
            raise ConfigurationError(f"the classifier returned {kind!r}, which is not a FailureType")
        return msgspec.structs.replace(context, type=FailureType(kind))

    async def _decided(self, context: FailureContext) -> Failure:
        action = await self._action(context)
        try:
            target = await self._target(action, context)
        except (RollbackImpossible, Pruned) as reason:
            action, target = RecoveryAction.ESCALATE(message=str(reason)), 0
        now = self._driver.ports.now()
        return Failure(
            attempt=context.attempt,
            type=context.type.value,
            error=context.error_type,
            message=context.message,
            progress=progress_of(context.steps),
            action=msgspec.structs.asdict(action),
            target=target,
            rollbacks=len(self._driver.record.rollbacks),
            due=now + round(action.delay * 1e6),
            at=now,
        )

    async def _target(self, action: RecoveryAction, context: FailureContext) -> int:
        """Return the checkpoint a rollback would restore; 0 for the beginning. Raises `RollbackImpossible`."""
        driver, earlier = self._driver, self._memory.failures
        if action.kind not in {"rollback", "suspend"}:
            return 0
        if action.checkpoint_id:
            target = await named_target(driver, action.checkpoint_id)
        else:
            given = (context.steps, context.type, earlier, driver.record.rollbacks)
            target = await driver.ports.perform(choose_target, driver.past(), *given)
        if action.strict:
            await check_compensated(driver, self._memory, target)
        return target

    async def _action(self, context: FailureContext) -> RecoveryAction:
        """Ask the policy. Once a limit is used up, only ESCALATE and ABORT are possible."""
        action = await decide(self._terms.policy, context, self._call_strategy)
        limit = self._used_up(context)
        return action if not limit or action.kind == "abort" else RecoveryAction.ESCALATE(message=limit)

    def _used_up(self, context: FailureContext) -> str:
        """Return which limit forbids a further attempt; empty if none does."""
        terms, longest = self._terms, self._terms.max_recovery_seconds
        if reason := self._memory.exceeded(terms.budget):
            return reason
        if context.attempt > terms.max_recovery_attempts:
            return f"max_recovery_attempts={terms.max_recovery_attempts} is used up"
        if longest is not None and context.seconds > longest:
            return f"recovery has taken {context.seconds:g} s, more than max_recovery_seconds={longest:g}"
        return ""

    async def _call_strategy(self, strategy: Callable[..., Any], context: FailureContext) -> Any:
        return await self._driver.ports.invoke(strategy, (context,), {}, None)

    def _context(self, failure: Failure) -> FailureContext:
        """Rebuild the context of a failure that an earlier process recorded."""
        before = [each for each in self._memory.failures if each.attempt < failure.attempt]
        return msgspec.structs.replace(
            self._surroundings(),
            type=failure.failure_type,
            error_type=failure.error,
            message=failure.message,
            attempt=failure.attempt,
            earlier=tuple(each.failure_type for each in before),
            seconds=(failure.at - before[0].at) / 1e6 if before else 0.0,
        )

    def _spent(self, reason: str) -> FailureContext:
        """Return the context of an escalation without a failed attempt: a limit is used up."""
        attempt = len(self._memory.failures) + 1
        return msgspec.structs.replace(
            self._surroundings(), error_type=Escalated.__name__, message=reason, attempt=attempt
        )

    def _surroundings(self) -> FailureContext:
        run, spent = self._driver.run, self._memory.spent
        return FailureContext(
            thread_id=run.thread_id,
            task=self.task,
            state=run.state,
            steps=run.steps,
            usage=spent.usage,
            cost_usd=spent.cost_usd,
        )

    # Carrying out decisions

    async def _carry_out(self, failure: Failure, context: FailureContext) -> None:
        """Carry out a decision, or the rest of it. A decision that ends the run is raised once."""
        driver, action = self._driver, failure.decision
        kind = action.kind
        if kind == "suspend":
            kind = await self._answer(failure, action)
        if (kind == "rollback" or action.undo) and len(driver.record.rollbacks) == failure.rollbacks:
            await self._roll_back(failure, context)
        elif kind in {"escalate", "abort"} and context.error is None and await self._was_raised(failure):
            return
        if kind == "escalate":
            raise Escalated(_failure_text(context, action.message), context=context) from context.error
        if kind == "abort":
            raise Aborted(_failure_text(context, action.reason), context=context) from context.error
        wait = (failure.due - driver.ports.now()) / 1e6
        if wait > 0:
            await driver.ports.sleep(wait)
        driver.check()
        if context.error is not None:
            await self._notify(self._terms.on_recovery, context, action)

    async def _was_raised(self, failure: Failure) -> bool:
        """True if an earlier process already raised this failure. Recorded, since this process may be killed too."""
        if failure.attempt in self._memory.raised:
            return True
        driver = self._driver
        if driver.found_status != Status.FAILED:
            return False
        await driver.write(note(RAISED, failure.attempt, driver.ports.now()), journal=True)
        return True

    async def _roll_back(self, failure: Failure, context: FailureContext) -> None:
        try:
            await roll_back(self._driver, self._memory, failure, self._terms.compensators, self._local)
        except Escalated as escalated:
            escalated.context = context
            raise

    async def _answer(self, failure: Failure, action: RecoveryAction) -> str:
        """Return what a person chose. The choice is recorded first: a rollback removes the question, not the choice."""
        known = self._memory.choices.get(failure.attempt)
        if known is not None:
            return known.choice
        driver = self._driver
        payload: dict[str, Any] = {"failure": failure.type, "error": failure.error}
        payload |= {"message": action.message or failure.message, "at": from_microseconds(failure.at)}
        if action.message:
            payload["error_message"] = failure.message
        answer = await driver.run.ask(f"recovery {failure.attempt}", payload, choices=CHOICES)
        choice = Choice(
            attempt=failure.attempt,
            choice=answer.choice or "abort",
            value=answer.value,
            by=answer.by,
            comment=answer.comment,
            at=answer.at,
        )
        details: dict[str, str | int] = {"attempt": choice.attempt, "choice": choice.choice}
        await driver.write(note(CHOICE, choice, driver.ports.now()), journal=True, metadata=details)
        return choice.choice

    async def _notify(self, callback: Callable[..., Any] | None, *args: Any) -> None:
        if callback is not None:
            await self._driver.ports.call(callback, *args)


def _failure_text(context: FailureContext, message: str) -> str:
    what = f"attempt {context.attempt} at {context.thread_id!r} failed ({context.type.value}): "
    return what + f"{context.error_type}: {context.message}" + (f"; {message}" if message else "")
