"""`@step`: a function that is executed once per call and arguments in a run, and just called outside of one."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, overload
from warnings import warn

from holdfast.codec import decode
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, HoldfastWarning, UnstorableValue
from holdfast.records.signatures import bound, is_async, parameters_of
from holdfast.runs.annotations import register_result
from holdfast.runs.ledger import live_thread
from holdfast.runs.options import StepOptions, StepPolicy
from holdfast.runs.run import for_plain_code
from holdfast.runs.scope import Frame, current_frame, digest_of, fingerprint_of
from holdfast.runs.steps import KEY_NAME, StepCall, perform_step, recalled

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
    """Make each call of a function a step of the run it is made in; its policy is that of `run.step`.

    The key is the function's name, a fingerprint of the arguments but those in `ignore`, and an ordinal among equals.
    """
    options = StepOptions.of(policy, "name", "ignore")
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise ConfigurationError(f"put @step below @{kind}: @{kind}, then @step, then def {function.__name__}")
    if function is not None and not callable(function):
        raise ConfigurationError(f"step({function!r}) takes a function; a name is given as @step(name=...)")

    def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
        return _StepFunction(decorated, name or decorated.__name__, ignore, options).wrapper()

    return decorate if function is None else decorate(function)


class _StepFunction:
    """A decorated function."""

    def __init__(self, function: Callable[..., Any], name: str, ignore: Collection[str], options: StepOptions) -> None:
        if isinstance(ignore, str):
            raise ConfigurationError(f"ignore={ignore!r}: give the names in a tuple, ({ignore!r},)")
        self._function = function
        self._name = name
        self._ignore = {*ignore, KEY_NAME, *_receiver(function)}
        self._options = options
        self._has_warned = False
        self._taken = parameters_of(function)
        self._handed = {KEY_NAME: ""} if options.effect and KEY_NAME in self._taken.names else {}
        if unknown := set(ignore).difference(self._taken.names):
            raise ConfigurationError(f"ignore= names {min(unknown)!r}, which {name} does not take")
        register_result(function)

    def wrapper(self) -> Callable[..., Any]:
        """The function to call instead: of the same colour."""

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
            call = self._call(frame, args, named)
            if not frame.run._ports.blocking:
                frame.run._ledger.plain_step = self._name
            if (memo := recalled(frame.run, call)) is not None:
                return decode(memo.value)
            return run_blocking(perform_step(for_plain_code(frame.run), call))

        return awaitable if is_async(self._function) else blocking

    def _warn_if_unrecorded(self) -> None:
        """Warn, once, if this call was probably meant to be part of a run: one is under way, on another thread say."""
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
        """The arguments by their names; the key that an effect is handed need not be among them.

        Nothing has to be bound where each parameter is given by its place.
        """
        taken = self._taken
        if taken.by_place and not named and len(args) == len(taken.names):
            return zip(taken.names, args, strict=True)
        given = bound(self._function, args, {**self._handed, **named})
        given.apply_defaults()
        return given.arguments.items()

    def _fingerprint(self, compared: Mapping[str, Any]) -> bytes:
        try:
            return digest_of(compared)
        except UnstorableValue as error:
            for each, value in compared.items():
                advice = f"if it does not matter, leave it out: @holdfast.step(ignore=({each!r},))"
                fingerprint_of(value, f"argument {each!r} of step {self._name!r}", advice)
            raise UnstorableValue(f"step {self._name!r}: {error}", path=error.path) from error


def _receiver(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameter of a method that is the object or class it is called on: no argument of the step."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = parameters_of(function).names[:1]
    return first if owner and not owner.endswith("<locals>") and first in {("self",), ("cls",)} else ()
