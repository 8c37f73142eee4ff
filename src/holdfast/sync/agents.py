"""The blocking agent: the same runtime over blocking ports, its methods one line each."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, overload

from holdfast.ports import run_blocking
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import AgentSummary, FailureContext
from holdfast.records.outcome import Outcome
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.agent import AgentCore
from holdfast.runtimes.agent.memory import read_summary as awaitable_summary
from holdfast.runtimes.agent.policy import AnyStrategy, functions_of
from holdfast.runtimes.agent.strategies import is_plain
from holdfast.sync.functions import inner_store
from holdfast.sync.run import Receipt, Run
from holdfast.sync.store import Store


class Agent:
    """See `holdfast.Agent`; for a plain `def`."""

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
            raise ConfigurationError(f"store={store!r}: a store of holdfast.sync, as holdfast.sync.open returns it")
        self._core = AgentCore(
            function,
            inner_store(store),
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
            receipt=Receipt,
        )
        _check_plain("function", function)
        _check_plain("policy", *functions_of(RecoveryAction.ESCALATE if policy is None else policy))
        _check_plain("compensators", *(compensators or {}).values())
        for name, given in {
            "classifier": classifier,
            "on_step": on_step,
            "on_failure": on_failure,
            "on_recovery": on_recovery,
        }.items():
            _check_plain(name, given)

    @property
    def name(self) -> str:
        """See `holdfast.Agent.name`."""
        return self._core.name

    def run(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Any:
        """See `holdfast.Agent.run`."""
        return run_blocking(self._core.result(task, self._core.thread_id(thread_id), kwargs))

    def start(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Outcome:
        """See `holdfast.Agent.start`."""
        return run_blocking(self._core.outcome(task, self._core.thread_id(thread_id), kwargs))

    def resume(self, run: Run, **kwargs: Any) -> Any:
        """See `holdfast.Agent.resume`."""
        return run_blocking(self._core.go_on(run._run, kwargs))  # noqa: SLF001  one room

    def summary(self, thread_id: str) -> AgentSummary:
        """See `holdfast.Agent.summary`."""
        return run_blocking(self._core.summary_of(thread_id))

    def stream(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Iterator[Any]:
        """See `holdfast.Agent.stream`; for a plain generator."""
        items = self._core.items(task, self._core.thread_id(thread_id), kwargs)
        try:
            while True:
                try:
                    yield run_blocking(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            run_blocking(items.aclose())


def _check_plain(name: str, *functions: Callable[..., Any] | None) -> None:
    for each in functions:
        if each is not None and not is_plain(each):
            shown = getattr(each, "__qualname__", repr(each))
            raise ConfigurationError(
                f"{name}: {shown} is async; holdfast.sync.Agent takes plain functions (use holdfast for async ones)"
            )


async def _next(items: AsyncGenerator[Any, None]) -> Any:
    return await anext(items)


@overload
def agent(function: Callable[..., Any], /) -> Agent: ...
@overload
def agent(**options: Any) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """See `holdfast.agent`."""
    return partial(Agent, **options) if function is None else Agent(function, **options)


def read_summary(store: Store, thread_id: str) -> AgentSummary:
    """What the attempts of a thread amount to; of one that is none of an agent's, nothing."""
    return run_blocking(awaitable_summary(store._store, thread_id))  # noqa: SLF001  one room
