"""`@step`: in a run, each call of the function is a step; outside of one, it is just called."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, overload
from warnings import warn

from holdfast.codec.discovery import return_annotation
from holdfast.codec.registry import adopt_named
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, HoldfastWarning, UnstorableValue
from holdfast.records.signatures import bound, is_async, parameters_of
from holdfast.runs.arguments import fingerprint_of
from holdfast.runs.ledger import live_thread
from holdfast.runs.options import StepOptions, StepPolicy
from holdfast.runs.run import for_plain_code
from holdfast.runs.scope import Frame, current_frame
from holdfast.runs.steps import KEY_NAME, StepCall, perform_step

P = ParamSpec("P")
T = TypeVar("T")


@overload
def step(function: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    ignore: Collection[str] = (),
    **policy: Unpack[StepPolicy],
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    ignore: Collection[str] = (),
    **policy: Unpack[StepPolicy],
) -> Any:
    """Make each call of a function a step of the current run: it is executed once, and replayed after that.

    Takes the same options as `Run.step`. The key is made of the function's `name`, a fingerprint of the arguments
    except those in `ignore`, and a number among equal calls. Outside of a run the function is just called. Works on
    plain and async functions.
    """
    options = StepOptions.of(policy, "name", "ignore")
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise ConfigurationError(f"put @step below @{kind}: @{kind}, then @step, then def {function.__name__}")
    if function is not None and not callable(function):
        raise ConfigurationError(f"step takes a function, got {function!r}; pass a name as @step(name=...)")

    def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
        return _StepFunction(decorated, name or decorated.__name__, ignore, options).wrapper()

    return decorate if function is None else decorate(function)


class _StepFunction:
    """A decorated function."""

    def __init__(self, function: Callable[..., Any], name: str, ignore: Collection[str], options: StepOptions) -> None:
        if isinstance(ignore, str):
            raise ConfigurationError(f"`ignore` must be a tuple of names, got {ignore!r}; write ({ignore!r},)")
        self._function = function
        self._name = name
        self._ignore = {*ignore, KEY_NAME, *_receiver(function)}
        self._options = options
        self._has_warned = False
        self._taken = parameters_of(function)
        self._handed = {KEY_NAME: ""} if options.effect and KEY_NAME in self._taken.names else {}
        if unknown := set(ignore).difference(self._taken.names):
            raise ConfigurationError(f"`ignore` names {min(unknown)!r}, which {name} does not take")
        adopt_named(return_annotation(function), evaluate=True)

    def wrapper(self) -> Callable[..., Any]:
        """Return the function to call instead: async if the decorated one is."""

        @wraps(self._function)
        async def awaitable(*args: Any, **named: Any) -> Any:
            frame = current_frame.get()
            if frame is None:
                self._warn_if_unrecorded()
                return await self._function(*args, **named)
            return await perform_step(frame.run, self._call(frame, args, named))

        @wraps(self._function)
        def blocking(*args: Any, **named: Any) -> Any:
            frame = current_frame.get()
            if frame is None:
                self._warn_if_unrecorded()
                return self._function(*args, **named)
            if not frame.run._ports.blocking:
                frame.run._ledger.plain_step = self._name
            return run_blocking(perform_step(for_plain_code(frame.run), self._call(frame, args, named)))

        return awaitable if is_async(self._function) else blocking

    def _warn_if_unrecorded(self) -> None:
        """Warn, once, if this call was probably meant to be part of a run, which another thread runs now."""
        if not self._has_warned and (thread_id := live_thread()):
            self._has_warned = True
            warn(
                f"step {self._name!r} is called where no run is known, while thread {thread_id!r} is running, so"
                " nothing is recorded. Threads of an ordinary pool do not know the run of their caller: use"
                " holdfast.sync.pool(n), or submit contextvars.copy_context().run",
                HoldfastWarning,
                stacklevel=3,
            )

    def _call(self, frame: Frame, args: tuple[Any, ...], named: Mapping[str, Any]) -> StepCall:
        given = {each: value for each, value in self._bound(args, named) if each not in self._ignore}
        fingerprint = self._fingerprint(given)
        return StepCall(
            key=frame.run._scope.key(self._name, fingerprint),
            name=self._name,
            fingerprint=fingerprint,
            function=self._function,
            arguments=args,
            named=named,
            given=given,
            options=self._options,
        )

    def _bound(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return the arguments by name, with defaults; the idempotency key of an effect may be missing."""
        taken = self._taken
        if taken.by_place and not named and len(args) == len(taken.names):
            return zip(taken.names, args, strict=True)
        given = bound(self._function, args, {**self._handed, **named})
        given.apply_defaults()
        return given.arguments.items()

    def _fingerprint(self, compared: Mapping[str, Any]) -> bytes:
        try:
            return fingerprint_of(compared, f"step {self._name!r}")
        except UnstorableValue:
            for each, value in compared.items():
                advice = f"if it does not matter, leave it out: @holdfast.step(ignore=({each!r},))"
                fingerprint_of(value, f"argument {each!r} of step {self._name!r}", advice)
            raise


def _receiver(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the name of a method's `self` or `cls`, which is not an argument of the step."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = parameters_of(function).names[:1]
    return first if owner and not owner.endswith("<locals>") and first in {("self",), ("cls",)} else ()
