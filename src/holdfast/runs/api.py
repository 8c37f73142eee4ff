"""The functions of `holdfast` that belong to runs: `durable`, `current`, and those that act on the current run."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Answer
from holdfast.records.signatures import is_async
from holdfast.records.words import Cause, Phase
from holdfast.runs.block import Terms
from holdfast.runs.divergence import OnDivergence, check_policy
from holdfast.runs.durable import AwaitableDurable
from holdfast.runs.options import Backoff
from holdfast.runs.queues import DEFAULT_QUEUE, Queue, queue_of
from holdfast.runs.run import Receipt, Run
from holdfast.runs.scope import current_frame
from holdfast.runs.store import Store
from holdfast.runs.submitting import Service

P = ParamSpec("P")
T = TypeVar("T")


def default_store() -> Store:
    """Return the default store: HOLDFAST_STORE, else holdfast.db, as `holdfast.open` finds it now. Opened once each."""
    from holdfast.stores.locations import absolute_url

    return _opened(absolute_url(None))


@cache
def _opened(url: str) -> Store:
    from holdfast.runs.kinds import open as open_store

    return open_store(url)


def current() -> Run:
    """Return the run that this code belongs to: in a durable function, a step or a `store.run` block.

    Raises `ConfigurationError` elsewhere.
    """
    frame = current_frame.get()
    if frame is None:
        raise ConfigurationError(
            "there is no run here: call this within a durable function or a store.run block; for threads of a pool, use"
            " holdfast.sync.pool(n), or submit contextvars.copy_context().run"
        )
    return frame.run


def idempotency_key() -> str:
    """Return the idempotency key of the current step: the same for every attempt, in every process.

    Raises `ConfigurationError` outside of a step.
    """
    frame = current_frame.get()
    if frame is None or not frame.idempotency_key:
        raise ConfigurationError("idempotency_key() is for code within a step")
    return frame.idempotency_key


async def ask(
    name: str,
    payload: Any = None,
    *,
    choices: Sequence[str] = (),
    deadline: datetime | timedelta | float | None = None,
    default: Any = None,
) -> Answer:
    """Ask a question in the current run; see `Run.ask`."""
    return await current().ask(name, payload, choices=choices, deadline=deadline, default=default)


async def confirm(
    name: str,
    payload: Any = None,
    *,
    deadline: datetime | timedelta | float | None = None,
    default: bool | None = None,
) -> bool:
    """Ask for a yes or no in the current run; see `Run.confirm`."""
    return await current().confirm(name, payload, deadline=deadline, default=default)


def record(step: Step, key: str | None = None) -> Receipt:
    """Record a step in the current run; see `Run.record`."""
    return current().record(step, key)


async def append(path: str | Sequence[str], item: Any, key: str | None = None) -> None:
    """Append an item to a list in the state of the current run; see `Run.append`."""
    await current().append(path, item, key)


async def checkpoint(
    state: Any,
    *,
    phase: Phase | str | None = None,
    cause: Cause | str = Cause.EVENT,
    metadata: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """Save the state of the current run; see `Run.checkpoint`."""
    await current().checkpoint(state, phase=phase, cause=cause, metadata=metadata, key=key)


async def sleep(duration: timedelta | float) -> None:
    """Sleep durably in the current run; see `Run.sleep`."""
    await current().sleep(duration)


@overload
def durable(function: Callable[P, Awaitable[T]], /) -> AwaitableDurable[P, T]: ...
@overload
def durable(
    *,
    name: str | None = None,
    store: Store | None = None,
    lease: timedelta | float = 30,
    wait: timedelta | float | None = None,
    labels: Mapping[str, str] | None = None,
    on_divergence: OnDivergence = "raise",
    queue: Queue | str = DEFAULT_QUEUE,
    version: int = 1,
    since: int | None = None,
    retries: int = 0,
    backoff: Backoff | None = None,
) -> Callable[[Callable[P, Awaitable[T]]], AwaitableDurable[P, T]]: ...
def durable(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    store: Store | None = None,
    lease: timedelta | float = 30,
    wait: timedelta | float | None = None,
    labels: Mapping[str, str] | None = None,
    on_divergence: OnDivergence = "raise",
    queue: Queue | str = DEFAULT_QUEUE,
    version: int = 1,
    since: int | None = None,
    retries: int = 0,
    backoff: Backoff | None = None,
) -> Any:
    """Make an `async def` durable: `await function.run("thread-id", ...)` resumes it after a crash.

    The body is resumed by replay: its finished steps return their recorded results at once. So between steps it should
    depend only on these and on its arguments. Called as a plain function it records nothing.

    - `name` is what its threads record, by default `module:function`. Keep the old name if the function moves.
    - `store` is where its threads are kept; by default the one that `holdfast.open()` would open.
    - `lease` is how many seconds the claim of a dead process lasts; `wait` is how long to wait for another run's.
    - `labels` are set on its threads.
    - `on_divergence` is what to do when a resumed run calls an effect, or asks a question, with other arguments than an
      earlier run recorded there: `raise` `Diverged`, `warn` with the event `diverged`, or `ignore` it.
    - `queue` is where its submitted threads wait. `version` is recorded by the threads it begins; it can also resume
      those that versions from `since` on began, by default none but its own.
    - `retries` is how often a worker runs a thread again after an error, each time after `backoff` seconds.
    """
    terms = Terms(lease, wait)
    check_policy(on_divergence)
    service = Service(queue=queue_of(queue), version=version, since=since, retries=retries, backoff=backoff)
    service.check()
    if store is not None and not isinstance(store, Store):
        raise ConfigurationError(f"`store` must be a store from holdfast.open, got {store!r}")

    def decorate(decorated: Callable[..., Any]) -> AwaitableDurable[Any, Any]:
        if not is_async(decorated):
            shown = getattr(decorated, "__qualname__", repr(decorated))
            raise ConfigurationError(f"{shown} is a plain function; use @holdfast.sync.durable, or make it async def")
        find_store = (lambda: store) if store is not None else default_store
        return AwaitableDurable(decorated, find_store, terms, labels, name, on_divergence, service)

    return decorate if function is None else decorate(function)
