"""`Agent`: a function that is tried again, with a policy, on a thread that any process can go on with."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import timedelta
from functools import partial
from inspect import Parameter, isasyncgenfunction, isgeneratorfunction, signature
from typing import Any, overload

from holdfast.codec import decode, encode
from holdfast.history.entries import Started
from holdfast.records.arguments import amount, function_or_none, mapping_or_none, whole_number
from holdfast.records.checkpoint import Step
from holdfast.records.errors import (
    ConfigurationError,
    HoldfastError,
    KeyReused,
    RunCancelled,
    Suspended,
    UnstorableValue,
)
from holdfast.records.failure import AgentSummary, FailureContext
from holdfast.records.naming import name_of
from holdfast.records.outcome import Outcome
from holdfast.records.words import Status
from holdfast.runs.api import default_store
from holdfast.runs.block import RunBlock
from holdfast.runs.block import Terms as RunTerms
from holdfast.runs.options import seconds
from holdfast.runs.run import Run
from holdfast.runs.scope import fingerprint_of
from holdfast.runs.store import Store, tools_of
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.attempts import Attempts, Terms
from holdfast.runtimes.agent.classifier import RulesClassifier
from holdfast.runtimes.agent.hands import HANDED, Bare
from holdfast.runtimes.agent.memory import AGENT, ITEM, contents, read_summary
from holdfast.runtimes.agent.policy import AnyStrategy, check_strategy
from holdfast.runtimes.agent.streaming import Items, items_of
from holdfast.stores.writer import Intent

BY_NAME = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


class AgentCore:
    """What both worlds share: an agent whose store is found when it is run."""

    def __init__(
        self,
        function: Callable[..., Any],
        store: Callable[[], Store],
        *,
        policy: "AnyStrategy | None" = None,
        auto_checkpoint: bool = True,
        classifier: Callable[[FailureContext], Any] | None = None,
        compensators: Mapping[str, Callable[..., Any]] | None = None,
        max_recovery_attempts: int = 3,
        max_recovery_seconds: timedelta | float | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        on_step: Callable[[Step], Any] | None = None,
        on_failure: Callable[[FailureContext], Any] | None = None,
        on_recovery: Callable[[FailureContext, RecoveryAction], Any] | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
        receipt: Callable[[Any], Any] = lambda receipt: receipt,
    ) -> None:
        if not callable(function):
            raise ConfigurationError(f"an agent is a function, not {type(function).__name__}")
        if max_recovery_seconds is not None:
            seconds(max_recovery_seconds, "max_recovery_seconds")
        if type(auto_checkpoint) is not bool:
            raise ConfigurationError(f"auto_checkpoint={auto_checkpoint!r}: a bool")
        self._store = store
        self._bare: dict[bytes, Bare] = {}
        """The compensators that only this process knows, by the life of the thread that they were recorded in."""
        self._run_terms = RunTerms(lease, wait)
        self._run_terms.check()
        self.name = name_of(function)
        policy = RecoveryAction.ESCALATE if policy is None else policy
        check_strategy(policy, "policy")
        self._terms = Terms(
            function=function,
            policy=policy,
            classifier=function_or_none(classifier, "classifier") or RulesClassifier(),
            compensators=_functions(compensators),
            auto_checkpoint=auto_checkpoint,
            max_recovery_attempts=whole_number(max_recovery_attempts, "max_recovery_attempts"),
            max_recovery_seconds=max_recovery_seconds,
            max_cost_usd=None if max_cost_usd is None else amount(max_cost_usd, "max_cost_usd"),
            max_tokens=None if max_tokens is None else whole_number(max_tokens, "max_tokens"),
            on_step=function_or_none(on_step, "on_step"),
            on_failure=function_or_none(on_failure, "on_failure"),
            on_recovery=function_or_none(on_recovery, "on_recovery"),
            receipt=receipt,
        )

    @property
    def is_stream(self) -> bool:
        """True if the function yields."""
        return isasyncgenfunction(self._terms.function) or isgeneratorfunction(self._terms.function)

    @property
    def required(self) -> list[str]:
        """The keywords that the function cannot do without, and that only its caller can give."""
        others = list(signature(self._terms.function).parameters.values())[1:]
        given = {*HANDED, "restored_state", "recovery"}
        needed = [each for each in others if each.default is Parameter.empty and each.kind in BY_NAME]
        return [each.name for each in needed if each.name not in given]

    def thread_id(self, given: str | None) -> str:
        """The thread to run on: the given one, or a new one."""
        return f"agent-{tools_of(self._store()).ports.entropy(8).hex()}" if given is None else given

    async def result(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> Any:
        """The function's result on a thread; of one that yields, all its items."""
        if self.is_stream:
            return [item async for item in self.items(task, thread_id, named)]
        async with self._block(thread_id) as run:
            return await self.work(run, task, named)

    async def work(self, run: Run, task: Any, named: Mapping[str, Any]) -> Any:
        """The function's result within a run: stored, or made by as many attempts as it takes.

        One that cannot be stored is the `value` of the `UnstorableValue` that is raised: it was paid for.
        """
        if await self._started(run, task):
            return run.result
        attempts = self._attempts(run, named)
        await attempts.begin()
        while True:
            try:
                result = await attempts.call()
                break
            except Exception as error:  # noqa: BLE001  a policy decides about it
                await attempts.recover(error)
        try:
            await run.complete(result)
        except UnstorableValue as error:
            error.value = result
            raise
        self._forget(run)
        attempts.check_limits()
        return result

    def _attempts(self, run: Run, named: Mapping[str, Any]) -> Attempts:
        started = run.ledger.journal.started
        assert started is not None  # noqa: S101  noted as it was started
        bare = self._bare.setdefault(run.ledger.claim.log.binding.identity, Bare())
        return Attempts(self._terms, run, started.arguments, named, bare)

    def _forget(self, run: Run) -> None:
        """The thread is finished: there is nothing to compensate any more."""
        self._bare.pop(run.ledger.claim.log.binding.identity, None)

    async def go_on(self, run: Run, named: Mapping[str, Any]) -> Any:
        """Go on with a thread that was claimed by a recovery; its task is recorded."""
        started = run.ledger.journal.started
        if started is None or self.is_stream:
            run.ledger.untouched = True
            raise ConfigurationError(
                f"thread {run.thread_id!r} is none that {self.name} can go on with; run or stream it"
            )
        return await self.work(run, decode(started.arguments)[0], named)

    async def items(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """What the function yields on a thread: what was delivered before, then the rest, each item stored first."""
        if not self.is_stream:
            raise ConfigurationError(f"{self.name} yields nothing; run it, or make it an async generator")
        items = Items(self._block(thread_id))
        async with items:
            run = items.run
            finished = await self._started(run, task)
            for item in contents(run.ledger.journal, ITEM):
                with items.paused():
                    yield item
            if finished:
                return
            attempts = self._attempts(run, named)
            await attempts.begin()
            while True:
                try:
                    async with attempts.attempt() as (hands, arguments):
                        async for item in items_of(run.ports, self._terms.function, attempts.task, arguments):
                            await hands.deliver(item)
                            with items.paused():
                                yield item
                    break
                except Exception as error:  # noqa: BLE001  a policy decides about it
                    await attempts.recover(error)
            await run.complete(None)
            self._forget(run)
            attempts.check_limits()

    async def outcome(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> Outcome:
        """Run the agent on a thread and say how it stands, also if it waits."""
        try:
            result = await self.result(task, thread_id, named)
        except Suspended as suspended:
            status = Status.INPUT_REQUIRED if suspended.requests else Status.WORKING
            return Outcome(status=status, thread_id=thread_id, requests=suspended.requests)
        return Outcome(status=Status.COMPLETE, thread_id=thread_id, result=result)

    async def summary_of(self, thread_id: str) -> AgentSummary:
        """What a thread's attempts amount to."""
        return await read_summary(self._store(), thread_id)

    def _block(self, thread_id: str) -> RunBlock:
        return RunBlock(tools_of(self._store()), thread_id, None, self._run_terms)

    async def _started(self, run: Run, task: Any) -> bool:
        """Note what is run, the first time. True if it is finished."""
        packed = encode([task], path="task")
        entry = Started(AGENT + self.name, packed, fingerprint_of(packed, "task", ""), run.ports.now())
        known = run.ledger.journal.started
        refusal = self._refusal(run, known, entry)
        if refusal is not None:
            run.ledger.untouched = True
            raise refusal
        if known is None and not run.finished:
            labels = {"agent": self.name.rpartition(":")[2]}
            await run.ledger.commit(run.ports, Intent(journal=True, labels=labels), entry)
        return run.finished

    def _refusal(self, run: Run, known: Started | None, entry: Started) -> HoldfastError | None:
        if known is None and run.status is not Status.CANCELLED and (run.ledger.journal.is_used or run.finished):
            return KeyReused(f"thread {run.thread_id!r} is used by something else; give another thread id")
        if known is not None and known.function != entry.function:
            return KeyReused(f"thread {run.thread_id!r} runs {known.function}, not {entry.function}")
        if known is not None and known.fingerprint != entry.fingerprint:
            return KeyReused(f"thread {run.thread_id!r} was started with another task; give another thread id")
        if run.status is Status.CANCELLED:
            return RunCancelled(f"thread {run.thread_id!r} was cancelled")
        return None


def _functions(compensators: object) -> dict[str, Callable[..., Any]]:
    given = dict(mapping_or_none(compensators, "compensators") or {})
    for name, function in given.items():
        if type(name) is not str or not callable(function):
            raise ConfigurationError(f"compensators={compensators!r}: functions by their names")
    return given


class Agent(AgentCore):
    """A function that is tried again when it fails, as its policy says, and goes on in whatever process runs it next.

    The function is called with the task, and with those of `record_step, update_state, replace_state, record_usage,
    record_compensator, checkpoint, restored_state, recovery` that it names or takes by `**kwargs`. Without a policy a
    failure is escalated.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        policy: "AnyStrategy | None" = None,
        store: Store | None = None,
        auto_checkpoint: bool = True,
        classifier: Callable[[FailureContext], Any] | None = None,
        compensators: Mapping[str, Callable[..., Any]] | None = None,
        max_recovery_attempts: int = 3,
        max_recovery_seconds: timedelta | float | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        on_step: Callable[[Step], Any] | None = None,
        on_failure: Callable[[FailureContext], Any] | None = None,
        on_recovery: Callable[[FailureContext, RecoveryAction], Any] | None = None,
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise ConfigurationError(f"store={store!r}: a store of holdfast, as holdfast.open returns it")
        super().__init__(
            function,
            default_store if store is None else lambda: store,
            policy=policy,
            auto_checkpoint=auto_checkpoint,
            classifier=classifier,
            compensators=compensators,
            max_recovery_attempts=max_recovery_attempts,
            max_recovery_seconds=max_recovery_seconds,
            max_cost_usd=max_cost_usd,
            max_tokens=max_tokens,
            on_step=on_step,
            on_failure=on_failure,
            on_recovery=on_recovery,
            lease=lease,
            wait=wait,
        )

    async def run(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Any:
        """The agent's result. An unfinished thread is gone on with; a finished one has its result already.

        Raises `Escalated` or `Aborted` with what is known of the failure, and `Suspended` if it waits for an answer.
        """
        return await self.result(task, self.thread_id(thread_id), kwargs)

    async def start(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Outcome:
        """As `run`, but says how the thread stands instead of raising `Suspended`."""
        return await self.outcome(task, self.thread_id(thread_id), kwargs)

    async def resume(self, run: Run, **kwargs: Any) -> Any:
        """Go on with a claimed thread: `await store.recover(agent.resume, labels={"agent": "my_agent"})`."""
        return await self.go_on(run, kwargs)

    async def summary(self, thread_id: str) -> AgentSummary:
        """How often a thread's attempts failed, what was done about it, and what they used; `NotFound` without one."""
        return await self.summary_of(thread_id)

    def stream(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """What the function yields: first what was delivered before, then the rest. Each item is stored first."""
        return self.items(task, self.thread_id(thread_id), kwargs)


@overload
def agent(function: Callable[..., Any], /) -> Agent: ...
@overload
def agent(**options: Any) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function an `Agent`: `@holdfast.agent`, or with the same keywords `@holdfast.agent(policy=…, store=…)`."""
    return partial(Agent, **options) if function is None else Agent(function, **options)
