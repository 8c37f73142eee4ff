"""The policy of a step: retries, timeout, effects. Checked when it is passed."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from holdfast.records.arguments import check_options, duration_us
from holdfast.records.errors import ConfigurationError

OnDoubt: TypeAlias = Literal["retry", "verify", "ask", "fail"]
Backoff: TypeAlias = float | timedelta | Callable[[int], float | timedelta]
Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]
T = TypeVar("T")

FIRST_WAIT = 0.2
LONGEST_WAIT = 60.0


class Done(msgspec.Struct, Generic[T], frozen=True):
    """Returned by a `verify` function if the effect happened: holds its result."""

    value: T


class _NotDone:
    def __repr__(self) -> str:
        return "NotDone"


NotDone = _NotDone()
"""Returned by a `verify` function if the effect did not happen: the step is executed."""


class StepPolicy(TypedDict, total=False):
    """The keywords of a step for `run.step`, `session.step` and `@step`. See `Run.step`."""

    effect: bool
    on_doubt: OnDoubt | None
    verify: Callable[..., Any] | None
    retries: int
    retry_on: Errors
    raises: Errors
    backoff: Backoff | None
    timeout: timedelta | float | None


class StepCallPolicy(StepPolicy, total=False):
    """The keywords of `Run.step`."""

    connection: Any


class StepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of one step."""

    effect: bool = False
    on_doubt: str | None = None
    verify: Callable[..., Any] | None = None
    retries: int = 0
    retry_on: Any = Exception
    raises: Any = ()
    backoff: Any = None
    timeout: Any = None

    @classmethod
    def of(cls, policy: Mapping[str, Any], *more: str) -> "StepOptions":
        """Return the options in a policy; raise `ConfigurationError` for a keyword that is not one nor in `more`."""
        names = cls.__struct_fields__
        check_options(policy, (*names, *more))
        return cls(**{name: value for name, value in policy.items() if name in names})

    def __post_init__(self) -> None:
        if self.on_doubt not in {None, "retry", "verify", "ask", "fail"}:
            raise ConfigurationError(f"`on_doubt` must be 'retry', 'verify', 'ask' or 'fail', got {self.on_doubt!r}")
        if (self.on_doubt == "verify") != (self.verify is not None):
            raise ConfigurationError("on_doubt='verify' and verify=function need each other")
        if (self.on_doubt or self.verify) and not self.effect:
            raise ConfigurationError("`on_doubt` needs effect=True; other steps are executed again")
        if type(self.retries) is not int or self.retries < 0:
            raise ConfigurationError(f"`retries` must be an int of at least 0, got {self.retries!r}")
        if self.retry_on is not Exception and not _are_errors(self.retry_on):
            raise ConfigurationError(f"`retry_on` must be an exception class or a tuple of them, got {self.retry_on!r}")
        if self.raises != () and not _are_errors(self.raises):
            raise ConfigurationError(f"`raises` must be an exception class or a tuple of them, got {self.raises!r}")
        if self.timeout is not None:
            seconds(self.timeout, "timeout")
        if self.backoff is not None and not callable(self.backoff):
            seconds(self.backoff, "backoff")

    @property
    def raised_classes(self) -> tuple[type[Exception], ...]:
        """The classes of errors that are raised as themselves."""
        return self.raises if isinstance(self.raises, tuple) else (self.raises,)

    def wait_after(self, attempt: int) -> float:
        """Return how many seconds to wait after this many failed attempts."""
        return wait_after(self.backoff, attempt)


def wait_after(backoff: Any, attempt: int) -> float:
    """Return how many seconds to wait after this many failed attempts: 0.2 s at first, each time twice as long."""
    if backoff is None:
        return float(min(FIRST_WAIT * 2 ** min(attempt - 1, 32), LONGEST_WAIT))
    return seconds(backoff(attempt) if callable(backoff) else backoff, "backoff")


def _are_errors(given: object) -> bool:
    classes = given if isinstance(given, tuple) else (given,)
    return all(isinstance(each, type) and issubclass(each, BaseException) for each in classes)


def seconds(duration: timedelta | float, name: str = "duration") -> float:
    """Return a duration in seconds; raise `ConfigurationError`, which names it, if it is not one."""
    return duration_us(duration, name) / 1e6
