"""The blocking names that belong to runs: `durable`, `current`, and what acts on the current run."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Answer
from holdfast.records.signatures import is_async
from holdfast.records.words import Cause, Phase
from holdfast.runs.api import current as current_run
from holdfast.runs.block import Terms
from holdfast.runs.divergence import OnDivergence, check_policy
from holdfast.runs.durable import BlockingDurable
from holdfast.runs.options import Backoff
from holdfast.runs.queues import DEFAULT_QUEUE, Queue, queue_of
from holdfast.runs.store import Store as AwaitableStore
from holdfast.runs.submitting import Service
from holdfast.stores.locations import absolute_url
from holdfast.sync.run import Receipt, Run
from holdfast.sync.store import Store
from holdfast.sync.store import open as open_store

P = ParamSpec("P")
T = TypeVar("T")


def default_store() -> Store:
    """See `holdfast.runs.api.default_store`."""
    return _opened(absolute_url(None))


@cache
def _opened(url: str) -> Store:
    return open_store(url)


def inner_default_store() -> AwaitableStore:
    """Return the awaitable store inside the default store."""
    return default_store()._store  # noqa: SLF001  one room


def inner_store(store: Store | None) -> Callable[[], AwaitableStore]:
    """Return a function that returns the given store; for None, the default store at the time of its call."""
    if store is None:
        return inner_default_store
    found = checked_store(store)
    return lambda: found


def checked_store(store: Any) -> AwaitableStore:
    """Return the awaitable store inside a user's store; `ConfigurationError` if it is not a store."""
    if not isinstance(store, Store):
        raise ConfigurationError(f"`store` must be a store from holdfast.sync.open, got {store!r}")
    return store._store  # noqa: SLF001  one room


def current() -> Run:
    """See `holdfast.current`."""
    return Run(current_run())


def ask(
    name: str,
    payload: Any = None,
    *,
    choices: Sequence[str] = (),
    deadline: datetime | timedelta | float | None = None,
    default: Any = None,
) -> Answer:
    """See `holdfast.ask`."""
    return current().ask(name, payload, choices=choices, deadline=deadline, default=default)


def confirm(
    name: str,
    payload: Any = None,
    *,
    deadline: datetime | timedelta | float | None = None,
    default: bool | None = None,
) -> bool:
    """See `holdfast.confirm`."""
    return current().confirm(name, payload, deadline=deadline, default=default)


def record(step: Step, key: str | None = None) -> Receipt:
    """See `holdfast.record`; durable on return."""
    return current().record(step, key)


def append(path: str | Sequence[str], item: Any, key: str | None = None) -> None:
    """See `holdfast.append`."""
    current().append(path, item, key)


def checkpoint(
    state: Any,
    *,
    phase: Phase | str | None = None,
    cause: Cause | str = Cause.EVENT,
    metadata: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """See `holdfast.checkpoint`."""
    current().checkpoint(state, phase=phase, cause=cause, metadata=metadata, key=key)


def sleep(duration: timedelta | float) -> None:
    """See `holdfast.sleep`."""
    current().sleep(duration)


@overload
def durable(function: Callable[P, T], /) -> BlockingDurable[P, T]: ...
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
) -> Callable[[Callable[P, T]], BlockingDurable[P, T]]: ...
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
    """See `holdfast.durable`; for a plain `def`."""
    terms = Terms(lease, wait)
    check_policy(on_divergence)
    service = Service(queue=queue_of(queue), version=version, since=since, retries=retries, backoff=backoff)
    service.check()
    find_store = inner_store(store)

    def decorate(decorated: Callable[..., Any]) -> BlockingDurable[Any, Any]:
        if is_async(decorated):
            shown = getattr(decorated, "__qualname__", repr(decorated))
            raise ConfigurationError(f"{shown} is async; use @holdfast.durable, or make it a plain def")
        return BlockingDurable(decorated, find_store, terms, labels, name, on_divergence, service)

    return decorate if function is None else decorate(function)
