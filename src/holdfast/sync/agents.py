"""The blocking agent: the same runtime over blocking ports, its methods one line each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Unpack, overload

from holdfast.ports import iterate_blocking, run_blocking
from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import AgentSummary
from holdfast.records.outcome import Outcome
from holdfast.runs.handles import BlockingHandle as Handle
from holdfast.runs.runnables import BlockingSubmitter as Submitter
from holdfast.runs.submitting import SubmitOptions
from holdfast.runtimes.agent.agent import AgentCore
from holdfast.runtimes.agent.memory import read_summary as awaitable_summary
from holdfast.runtimes.agent.options import AgentOptions, agent_terms
from holdfast.runtimes.agent.policy import functions_of
from holdfast.runtimes.agent.strategies import is_plain
from holdfast.sync.functions import inner_store
from holdfast.sync.run import Receipt, Run
from holdfast.sync.store import Store


class Agent:
    """See `holdfast.Agent`; for a plain `def`."""

    def __init__(
        self, function: Callable[..., Any], *, store: Store | None = None, **options: Unpack[AgentOptions]
    ) -> None:
        terms = agent_terms(function, **options)
        _check_plain("function", function)
        _check_plain("policy", *functions_of(terms.policy))
        _check_plain("compensators", *terms.compensators.values())
        for name in ("classifier", "on_step", "on_failure", "on_recovery"):
            _check_plain(name, getattr(terms, name))
        self._core = AgentCore(terms, inner_store(store), Receipt, blocking=True)

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

    def submit(self, task: Any, *, thread_id: str | None = None) -> Handle:
        """See `holdfast.Agent.submit`."""
        return self.options().submit(task, thread_id=thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """See `holdfast.Agent.options`."""
        return Submitter(self._core.runnable, options)

    def resume(self, run: Run, **kwargs: Any) -> Any:
        """See `holdfast.Agent.resume`."""
        return run_blocking(self._core.resume(run._run, kwargs))  # noqa: SLF001  one room

    def summary(self, thread_id: str) -> AgentSummary:
        """See `holdfast.Agent.summary`."""
        return run_blocking(self._core.summary(thread_id))

    def stream(self, task: Any, *, thread_id: str | None = None, **kwargs: Any) -> Iterator[Any]:
        """See `holdfast.Agent.stream`; for a plain generator."""
        return iterate_blocking(self._core.items(task, self._core.thread_id(thread_id), kwargs))


def _check_plain(name: str, *functions: Callable[..., Any] | None) -> None:
    for each in functions:
        if each is not None and not is_plain(each):
            shown = getattr(each, "__qualname__", repr(each))
            raise ConfigurationError(
                f"{name}: {shown} is async; holdfast.sync.Agent takes plain functions (use holdfast for async ones)"
            )


@overload
def agent(function: Callable[..., Any], /) -> Agent: ...
@overload
def agent(*, store: Store | None = None, **options: Unpack[AgentOptions]) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """See `holdfast.agent`."""
    return partial(Agent, **options) if function is None else Agent(function, **options)


def read_summary(store: Store, thread_id: str) -> AgentSummary:
    """Summarise the attempts of an agent's thread; empty for another thread."""
    return run_blocking(awaitable_summary(store._store, thread_id))  # noqa: SLF001  one room
