"""From the first attempt to the last: call the function, and do what the policy says about each failure.

Every decision is noted before it is carried out, and carrying it out again changes nothing: a process that comes later
continues with the decision of the one that died.
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
from holdfast.runtimes.agent.hands import Bare, Hands, Spending, current_hands
from holdfast.runtimes.agent.memory import CHOICE, FAILURE, ITEM, TOLD, Choice, Failure, Memory
from holdfast.runtimes.agent.options import AgentTerms
from holdfast.runtimes.agent.policy import decide
from holdfast.runtimes.agent.rollback import (
    NoWayBack,
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
        bare: Bare,
        receipt: Callable[[Any], Any],
    ) -> None:
        self._terms = terms
        self._driver = driver
        self._packed_task = task
        self._named = named
        self._bare = bare
        self._receipt = receipt
        self._spending = Spending(self._memory().spent, terms.budget)

    def _memory(self) -> Memory:
        return Memory.of(self._driver.record)

    @property
    def task(self) -> Any:
        """The task, a copy each time: what an attempt does to it is not the next one's."""
        return decode(self._packed_task)[0]

    async def begin(self) -> None:
        """Carry out what was decided and perhaps not done; refuse what may not go on."""
        failures = self._memory().failures
        if failures:
            await self._carry_out(failures[-1], self._context(failures[-1]))
        if reason := self._spending.exceeded():
            raise Escalated(reason, context=self._context(failures[-1]) if failures else self._spent(reason))

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[tuple[Hands, dict[str, Any]]]:
        """One attempt: its hands, and what to call the function with. However it is left, all is stored first."""
        terms, driver = self._terms, self._driver
        self._bare.begin()
        hands = Hands(
            driver,
            self._spending,
            terms.compensators,
            self._bare,
            auto=terms.auto_checkpoint,
            on_step=terms.on_step,
            receipt=self._receipt,
        )
        outer = current_hands.get()
        with driver.body():
            current_hands.set(hands)
            try:
                yield hands, self._arguments(hands)
            finally:
                current_hands.set(outer)
                hands.close()
                if not driver.is_lost:
                    await hands.drain()

    def check_limits(self) -> None:
        """`Escalated` if the thread used more than it may, even if the function caught the error that said so."""
        if reason := self._spending.exceeded():
            text = f"{reason}; the agent continued all the same, and its result is stored: run it again to get it"
            raise Escalated(text, context=self._spent(reason))

    async def call(self) -> Any:
        """The function's result, in one attempt."""
        async with self.attempt() as (_, named):
            return await self._driver.ports.invoke(self._terms.function, (self.task,), named, None)

    def _arguments(self, hands: Hands) -> dict[str, Any]:
        """The caller's keywords, and of ours those that the function takes."""
        ours = hands.given() | self._restored()
        parameters = signature(self._terms.function).parameters.values()
        if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
            names = {each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY}
            ours = {name: value for name, value in ours.items() if name in names}
        for each in parameters:
            if each.name in {"restored_state", "recovery"} and each.default is Parameter.empty:
                ours.setdefault(each.name, {} if each.name == "restored_state" else None)
        return {**self._named, **ours}

    def _restored(self) -> dict[str, Any]:
        """What an attempt gets to know of those before it; nothing if it is the first."""
        run, memory = self._driver.run, self._memory()
        failures, delivered = memory.failures, len(self._driver.record.notes(ITEM))
        if not (failures or delivered or self._driver.step_count or run.state):
            return {}
        known = RecoveryContext(
            thread_id=run.thread_id,
            attempt=len(failures),
            state=run.state,
            steps=run.steps,
            delivered=delivered,
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
        """Find out what an error means, decide, note it, and do it. Raises if there is to be no further attempt.

        An error that says how the library is to be used is raised as it is: another attempt would end the same. So is
        that of another thread that waits: this one waits with it.
        """
        driver = self._driver
        if isinstance(error, _NOT_OURS) or driver.is_lost:
            raise error
        context = await self._classified(error)
        if isinstance(error, Aborted | Escalated) and error.context is None:
            error.context = context  # its own limit, or its own wish; that of an agent within it is a failure
            raise error
        await self._tell(self._terms.on_failure, context)
        failure = await self._decided(context)
        said: dict[str, str | int] = {"attempt": failure.attempt, "failure": failure.type}
        said["action"] = failure.decision.kind
        noted = note(FAILURE, failure, failure.at, failed=failed_steps(error))
        await driver.write(noted, journal=True, cause="error", metadata=said)
        await driver.emit("attempt_failed", **said, error=type(error).__name__)
        await self._carry_out(failure, context)

    async def _classified(self, error: Exception) -> FailureContext:
        failures = self._memory().failures
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
        except (NoWayBack, Pruned) as reason:
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
        """The checkpoint to go back to, if it comes to that; 0 for the beginning. `NoWayBack` if it cannot be done."""
        driver, earlier = self._driver, self._memory().failures
        if action.kind not in {"rollback", "suspend"}:
            return 0
        if action.checkpoint_id:
            target = await named_target(driver, action.checkpoint_id)
        else:
            given = (context.steps, context.type, earlier, driver.record.rollbacks)
            target = await driver.ports.perform(choose_target, driver.past(), *given)
        if action.strict:
            await check_compensated(driver, target)
        return target

    async def _action(self, context: FailureContext) -> RecoveryAction:
        """What the policy says; where there is to be no further attempt, only how to end it."""
        action = await decide(self._terms.policy, context, self._ask_user)
        over = self._used_up(context)
        return action if not over or action.kind == "abort" else RecoveryAction.ESCALATE(message=over)

    def _used_up(self, context: FailureContext) -> str:
        """Which limit there is to a further attempt; empty if there is none."""
        terms, longest = self._terms, self._terms.max_recovery_seconds
        if spent := self._spending.exceeded():
            return spent
        if context.attempt > terms.max_recovery_attempts:
            return f"{terms.max_recovery_attempts} recoveries were tried"
        if longest is not None and context.seconds > longest:
            return f"recovering for {context.seconds:g} s, longer than max_recovery_seconds={longest:g}"
        return ""

    async def _ask_user(self, strategy: Callable[..., Any], context: FailureContext) -> Any:
        return await self._driver.ports.invoke(strategy, (context,), {}, None)

    def _context(self, failure: Failure) -> FailureContext:
        """What is known of an earlier failure, in another process."""
        before = [each for each in self._memory().failures if each.attempt < failure.attempt]
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
        """What is known where no attempt failed, but a limit is used up."""
        attempt = len(self._memory().failures) + 1
        return msgspec.structs.replace(
            self._surroundings(), error_type=Escalated.__name__, message=reason, attempt=attempt
        )

    def _surroundings(self) -> FailureContext:
        run, spent = self._driver.run, self._spending.spent
        return FailureContext(
            thread_id=run.thread_id,
            task=self.task,
            state=run.state,
            steps=run.steps,
            usage=spent.usage,
            cost_usd=spent.cost_usd,
        )

    # What was decided

    async def _carry_out(self, failure: Failure, context: FailureContext) -> None:
        """Do what was decided, or the rest of it. A decision that ends the run is raised once."""
        driver, action = self._driver, failure.decision
        kind = action.kind
        if kind == "suspend":
            kind = await self._answer(failure, action)
        if (kind == "rollback" or action.undo) and len(driver.record.rollbacks) == failure.rollbacks:
            await self._roll_back(failure, context)
        elif kind in {"escalate", "abort"} and context.error is None and await self._was_told(failure):
            return
        if kind == "escalate":
            raise Escalated(_why(context, action.message), context=context) from context.error
        if kind == "abort":
            raise Aborted(_why(context, action.reason), context=context) from context.error
        wait = (failure.due - driver.ports.now()) / 1e6
        if wait > 0:
            await driver.ports.sleep(wait)
        driver.check()
        if context.error is not None:
            await self._tell(self._terms.on_recovery, context, action)

    async def _was_told(self, failure: Failure) -> bool:
        """True if the process before came to its end and raised the failure. Noted, since this one may be killed."""
        if failure.attempt in self._memory().told:
            return True
        driver = self._driver
        if driver.found_status != Status.FAILED:
            return False
        await driver.write(note(TOLD, failure.attempt, driver.ports.now()), journal=True)
        return True

    async def _roll_back(self, failure: Failure, context: FailureContext) -> None:
        try:
            await roll_back(self._driver, failure, self._terms.compensators, self._bare)
        except Escalated as escalated:
            escalated.context = context
            raise

    async def _answer(self, failure: Failure, action: RecoveryAction) -> str:
        """What a person chose. It is noted before it is done: a rollback undoes the question, but not the choice."""
        known = self._memory().choices.get(failure.attempt)
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
        said: dict[str, str | int] = {"attempt": choice.attempt, "choice": choice.choice}
        await driver.write(note(CHOICE, choice, driver.ports.now()), journal=True, metadata=said)
        return choice.choice

    async def _tell(self, callback: Callable[..., Any] | None, *args: Any) -> None:
        if callback is not None:
            await self._driver.ports.call(callback, *args)


def _why(context: FailureContext, message: str) -> str:
    what = f"attempt {context.attempt} at {context.thread_id!r} failed ({context.type.value}): "
    return what + f"{context.error_type}: {context.message}" + (f"; {message}" if message else "")
