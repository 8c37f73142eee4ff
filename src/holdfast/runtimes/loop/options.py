"""The options of a loop: declared once for both worlds, and checked when they are passed."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from holdfast.records.arguments import (
    check_labels,
    check_options,
    duration_us,
    function_or_none,
    mapping_or_none,
    sequence,
    whole_number,
)
from holdfast.records.errors import ConfigurationError
from holdfast.records.retention import Retention, retention_or_none
from holdfast.runs.driver import Terms
from holdfast.runtimes.loop.screening import OnSecret, Screen
from holdfast.runtimes.loop.tools import Tool, Tools

Every: TypeAlias = Literal["transition"] | int | float | timedelta
Migration: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class LoopOptions(TypedDict, total=False):
    """The keyword options of a loop, except request, store and thread id."""

    plan: Callable[[Any], Any]
    execute: Callable[[Any, Any], Any]
    observe: Callable[[Any, Any, Any], Any] | None
    reflect: Callable[[Any], Any] | None
    version: int
    migrations: Mapping[int, Migration] | None
    context: Mapping[str, Any] | None
    every: Every
    tools: Iterable[Tool | Callable[..., Any]]
    never_store: Iterable[str]
    on_secret: OnSecret
    retention: Retention | None
    labels: Mapping[str, str] | None
    lease: timedelta | float
    wait: timedelta | float | None


class Cadence(msgspec.Struct):
    """Decides which of the possible checkpoints to write: every n-th, or one per interval."""

    count: int = 1
    duration: int = 0
    """The interval in microseconds; 0 to use `count`."""
    _skipped: int = 0
    _written_at: int = 0

    @classmethod
    def of(cls, every: Any) -> "Cadence":
        """Return the cadence that `every=` asks for."""
        if every == "transition":
            return cls()
        if isinstance(every, timedelta | float):
            return cls(duration=duration_us(every, "every"))
        if type(every) is int and every > 0:
            return cls(count=every)
        raise ConfigurationError(
            f"`every` must be 'transition', a positive number of transitions, or a duration (timedelta or float"
            f" seconds), got {every!r}"
        )

    def is_due(self, now: int) -> bool:
        """True if a checkpoint is due now."""
        self._skipped += 1
        return now - self._written_at >= self.duration if self.duration else self._skipped >= self.count

    def written(self, now: int) -> None:
        """Restart the count or the interval: a checkpoint was written, or the loop started."""
        self._skipped, self._written_at = 0, now


class LoopTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of a loop."""

    plan: Callable[..., Any] | None
    execute: Callable[..., Any] | None
    observe: Callable[..., Any] | None
    reflect: Callable[..., Any] | None
    version: int
    migrations: Mapping[int, Migration]
    context: Mapping[str, Any]
    every: Every
    tools: Tools
    screen: Screen
    retention: Retention
    labels: dict[str, str] | None
    run: Terms

    def check_complete(self) -> None:
        """Raise `ConfigurationError` if the loop cannot be driven."""
        missing = [name for name in ("plan", "execute") if getattr(self, name) is None]
        if missing:
            raise ConfigurationError(
                f"a loop needs {' and '.join(f'{name}=' for name in missing)} before it can be driven"
            )


def loop_terms(options: Mapping[str, Any]) -> LoopTerms:
    """Check the options of a loop; `ConfigurationError` if one is invalid."""
    check_options(options, tuple(LoopOptions.__annotations__))
    given = options.get
    every = given("every", "transition")
    Cadence.of(every)
    return LoopTerms(
        **{name: function_or_none(given(name), name) for name in ("plan", "execute", "observe", "reflect")},
        version=whole_number(given("version", 1), "version"),
        migrations=_migrations(given("migrations")),
        context=mapping_or_none(given("context"), "context") or {},
        every=every,
        tools=Tools.of(sequence(given("tools", ()), "tools")),
        screen=Screen.of(sequence(given("never_store", ()), "never_store"), given("on_secret", "refuse")),
        retention=retention_or_none(given("retention")) or Retention(),
        labels=check_labels(given("labels")),
        run=Terms(given("lease", 30), given("wait")),
    )


def _migrations(given: object) -> Mapping[int, Migration]:
    found: dict[Any, Any] = dict(mapping_or_none(given, "migrations") or {})
    for version, function in found.items():
        if type(version) is not int or not callable(function):
            raise ConfigurationError(f"`migrations` must map versions (int) to functions, got {given!r}")
    return found
