"""`Agent`: a function that its policy retries after failures, on a thread that any process can resume."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from inspect import Parameter, isasyncgenfunction, isgeneratorfunction, signature
from typing import Any, Unpack, overload

from holdfast.codec import decode, encode
from holdfast.records.errors import (
    ConfigurationError,
    Suspended,
    UnstorableValue,
)
from holdfast.records.failure import AgentSummary
from holdfast.records.outcome import Outcome
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.driver import (
    Driver,
    Handle,
    Run,
    Runnable,
    Store,
    SubmitOptions,
    Submitter,
    claim,
    fresh_id,
    store_finder,
)
from holdfast.runtimes.agent.attempts import Attempts
from holdfast.runtimes.agent.memory import AGENT, ITEM, read_summary
from holdfast.runtimes.agent.options import AgentOptions, AgentTerms, agent_terms
from holdfast.runtimes.agent.recorder import RECORDING_NAMES, LocalCompensators
from holdfast.runtimes.agent.streaming import Items, items_of

BY_NAME = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


class AgentCore:
    """The part of an agent that both worlds share. It looks up its store when it runs.

    `receipt` converts a receipt for the function's world, which is `blocking` or not.
    """

    def __init__(
        self,
        terms: AgentTerms,
        store: Callable[[], Store],
        receipt: Callable[[Any], Any] = lambda receipt: receipt,
        *,
        blocking: bool = False,
    ) -> None:
        self.terms = terms
        self.store = store
        self._receipt = receipt
        self.name = terms.name
        """The name its threads record."""
        self.is_stream = isasyncgenfunction(terms.function) or isgeneratorfunction(terms.function)
        """True if the function yields."""
        self._local: dict[bytes, LocalCompensators] = {}
        """Compensators that are functions of this process, by the incarnation of their thread."""
        self.runnable = Runnable(
            AGENT + self.name,
            store,
            terms.service,
            self._labels,
            lambda run: self.resume(run, {}),
            _forms,
            blocking=blocking,
            refusal=self.refusal,
        )

    @property
    def required(self) -> list[str]:
        """Keywords without a default that the caller must pass."""
        try:
            others = list(signature(self.terms.function).parameters.values())[1:]
        except ValueError:  # a type such as `str` has no signature
            return []
        given = {*RECORDING_NAMES, "restored_state", "recovery"}
        needed = [each for each in others if each.default is Parameter.empty and each.kind in BY_NAME]
        return [each.name for each in needed if each.name not in given]

    def thread_id(self, given: str | None) -> str:
        """Return the given thread id, or a new one."""
        return fresh_id(self.store(), "agent") if given is None else given

    async def result(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> Any:
        """Run the function on a thread and return its result; for a generator, the list of its items."""
        if self.is_stream:
            return [item async for item in self.items(task, thread_id, named)]
        try:
            async with claim(self.store(), thread_id, self.terms.run) as run:
                return await self.work(run, task, named)
        except Exception as error:
            hide_our_frames(error)
            raise

    async def work(self, run: Run, task: Any, named: Mapping[str, Any]) -> Any:
        """Return the stored result, or make attempts until one succeeds or the policy ends the run.

        A result that cannot be stored is kept as `UnstorableValue.value`: it was paid for.
        """
        driver = Driver(run)
        if await self._started(driver, task, named):
            return run.result
        attempts = self._attempts(driver, task, named)
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
        self._local.pop(driver.life, None)
        attempts.check_limits()
        return result

    def _attempts(self, driver: Driver, task: Any, named: Mapping[str, Any]) -> Attempts:
        local = self._local.setdefault(driver.life, LocalCompensators())
        return Attempts(self.terms, driver, encode([task], path="task"), named, local, self._receipt)

    async def resume(self, run: Run, named: Mapping[str, Any]) -> Any:
        """Resume a thread that `recover` claimed; the task is recorded."""
        driver = Driver(run)
        started = driver.record.started
        if started is None or self.is_stream:
            driver.leave_untouched()
            raise ConfigurationError(f"thread {run.thread_id!r} cannot be resumed by {self.name}; run or stream it")
        recorded = decode(started.arguments)
        return await self.work(run, recorded[0] if len(recorded) == 1 else recorded[0][0], named)

    async def items(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield the items delivered earlier, then the remaining ones. Each item is stored before it is yielded."""
        if not self.is_stream:
            raise ConfigurationError(f"{self.name} does not yield; call run(), or make it an async generator")
        items = Items(claim(self.store(), thread_id, self.terms.run))
        async with items:
            run, driver = items.run, Driver(items.run)
            finished = await self._started(driver, task, named)
            for item in driver.record.contents(ITEM):
                with items.paused():
                    yield item
            if finished:
                return
            attempts = self._attempts(driver, task, named)
            await attempts.begin()
            while True:
                try:
                    async with attempts.attempt() as (recorder, arguments):
                        async for item in items_of(driver.ports, self.terms.function, attempts.task, arguments):
                            await recorder.deliver(item)
                            with items.paused():
                                yield item
                    break
                except Exception as error:  # noqa: BLE001  a policy decides about it
                    await attempts.recover(error)
            await run.complete(None)
            self._local.pop(driver.life, None)
            attempts.check_limits()

    async def outcome(self, task: Any, thread_id: str, named: Mapping[str, Any]) -> Outcome:
        """Run the agent on a thread and return its outcome, also if it waits."""
        try:
            result = await self.result(task, thread_id, named)
        except Suspended as suspended:
            status = Status.INPUT_REQUIRED if suspended.requests else Status.WORKING
            return Outcome(status=status, thread_id=thread_id, requests=suspended.requests)
        return Outcome(status=Status.COMPLETE, thread_id=thread_id, result=result)

    async def summary(self, thread_id: str) -> AgentSummary:
        """Summarise a thread's attempts."""
        return await read_summary(self.store(), thread_id)

    @property
    def _labels(self) -> dict[str, str]:
        return {"agent": self.name.rpartition(":")[2]}

    @property
    def refusal(self) -> str:
        """Why no other process can run the agent by its name; empty if one can."""
        if self.is_stream:
            return f"agent {self.name} yields: run or stream it from your program"
        needed = ", ".join(self.required)
        return f"agent {self.name} needs {needed}: run it from your program" if needed else ""

    async def _started(self, driver: Driver, task: Any, named: Mapping[str, Any]) -> bool:
        """Record the agent and its task the first time. True if the thread is finished.

        Keywords are not recorded: a thread that was run with some has no place, where workers would find it.
        """
        submitted, alone = _forms(task)
        known = driver.record.started
        packed = submitted if known is not None and known.arguments == submitted else alone
        place = None if named else self.runnable.place
        await driver.start(AGENT + self.name, packed, "task", self._labels, place)
        return driver.run.finished


def _forms(task: Any) -> tuple[bytes, bytes]:
    """Return the encoded task as it is recorded: as the call of a function if it is submitted, else alone."""
    return encode([[task], {}], path="task"), encode([task], path="task")


class Agent:
    """A function that its policy retries after failures, and that any process can resume.

    The function gets the task, and those of `record_step, update_state, replace_state, record_usage,
    record_compensator, checkpoint, restored_state, recovery` that it names or takes by `**kwargs`. Without a policy
    every failure is escalated. `name` identifies the agent in its threads; it defaults to module and function.
    """

    def __init__(
        self, function: Callable[..., Any], *, store: Store | None = None, **options: Unpack[AgentOptions]
    ) -> None:
        self._core = AgentCore(agent_terms(function, **options), store_finder(store))

    @property
    def name(self) -> str:
        """The name its threads record, by which `recover` finds the agent."""
        return self._core.name

    async def run(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Any:
        """Run the agent and return its result. Resumes an unfinished thread; returns the result of a finished one.

        Raises `Escalated` or `Aborted` with the context of the failure, and `Suspended` if it waits for an answer.
        """
        return await self._core.result(task, self._core.thread_id(thread_id), kwargs)

    async def start(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Outcome:
        """Run the agent like `run`, but return an `Outcome` instead of raising `Suspended`."""
        return await self._core.outcome(task, self._core.thread_id(thread_id), kwargs)

    async def submit(self, task: Any, *, thread_id: str | None = None) -> Handle:
        """Create a thread for the task, and return a handle on it; durable when this returns.

        Any process that has the agent runs it: by `store.recover()`, or by `run` with the same task and id. The same id
        and task again are the same thread; `KeyReused` if it runs something else. An agent that yields, or needs
        keywords, cannot be submitted.
        """
        return await self.options().submit(task, thread_id=thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """Return an object whose `submit` uses these options: those of a durable function."""
        return Submitter(self._core.runnable, options)

    async def resume(self, run: Run, **kwargs: Any) -> Any:
        """Resume a claimed thread: `await store.recover(agent.resume, labels={"agent": "my_agent"})`."""
        return await self._core.resume(run, kwargs)

    async def summary(self, thread_id: str) -> AgentSummary:
        """Return a thread's failures, the actions taken, and the usage. `NotFound` if the thread does not exist."""
        return await self._core.summary(thread_id)

    def stream(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Iterate over what the function yields: items delivered earlier first. Each is stored before it is yielded."""
        return self._core.items(task, self._core.thread_id(thread_id), kwargs)


@overload
def agent(function: Callable[..., Any], /) -> Agent: ...
@overload
def agent(*, store: Store | None = None, **options: Unpack[AgentOptions]) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function an `Agent`: `@holdfast.agent`, or with the same keywords `@holdfast.agent(policy=…, store=…)`."""
    return partial(Agent, **options) if function is None else Agent(function, **options)
