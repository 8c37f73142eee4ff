"""Durable functions: started on a thread, and resumed there by replay, with the function and arguments recorded."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from warnings import warn

from msgspec.structs import replace

from holdfast.codec import container_header, decode, encode
from holdfast.history.entries import Started
from holdfast.ports import Ports, run_blocking
from holdfast.records.arguments import text_or_none
from holdfast.records.callables import is_async, parameters_of
from holdfast.records.errors import (
    ConfigurationError,
    HoldfastError,
    HoldfastWarning,
    KeyReused,
    NotFound,
    RunCancelled,
    Suspended,
    UnstorableValue,
)
from holdfast.records.loading import loading
from holdfast.records.naming import importable_module
from holdfast.records.outcome import Outcome
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.annotations import register_result
from holdfast.runs.block import Terms
from holdfast.runs.run import Run
from holdfast.runs.scope import current_frame, fingerprint_of

if TYPE_CHECKING:
    from holdfast.runs.store import Store

P = ParamSpec("P")
T = TypeVar("T")

registry: "dict[str, Durable[Any, Any]]" = {}
"""Every durable function of this program, by its name: how a recovery finds the code of a thread."""


class Durable(Generic[P, T]):
    """A function whose run on a thread continues where it died. Its world is that of its store."""

    def __init__(
        self,
        function: Callable[P, Any],
        store: "Callable[[], Store]",
        terms: Terms,
        labels: Mapping[str, str] | None,
        name: str | None = None,
    ) -> None:
        self.function = function
        self.place = f"{importable_module(function)}:{function.__qualname__}"
        """Where it is now; its name is what its threads record."""
        self.name = text_or_none(name, "name") or self.place
        self._check_alone()
        self._taken = parameters_of(function)
        self._store = store
        self._terms = replace(terms, keyed=True)
        self._labels = labels
        self._has_warned = False
        update_wrapper(cast("Callable[..., Any]", self), function)
        register_result(function)
        registry[self.name] = self

    def _check_alone(self) -> None:
        """Two functions of one name would go on with each other's threads."""
        other = registry.get(self.name)
        if other is not None and other.place != self.place:
            raise ConfigurationError(
                f"both {other.place} and {self.place} are called {self.name!r}; rename one of them"
            )

    async def begin(
        self, thread_id: str, arguments: tuple[Any, ...], named: Mapping[str, Any], store: "Store | None" = None
    ) -> Any:
        """Run the function on a thread, or go on with it."""
        return await self._enter(store or self._store(), thread_id, self._packed(arguments, named))

    def _packed(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        """The encoding of [arguments, named], as they are recorded; raises TypeError if it could not be called so.

        Defaults are recorded too: the thread goes on with them, whatever a later version of the code says.
        """
        taken = self._taken
        if named or not taken.by_place or len(arguments) != len(taken.names):
            with loading():
                from holdfast.records.signatures import bound
            given = bound(self.function, arguments, named)
            arguments, named = given.args, given.kwargs
            given.apply_defaults()
            with suppress(UnstorableValue):  # a default that cannot be stored: then the call is recorded as it was made
                return _pair(given.args, given.kwargs)
        return _pair(arguments, named)

    async def go_on(self, thread_id: str, store: "Store | None" = None) -> Any:
        """Go on with a thread whose function and arguments are recorded."""
        store = store or self._store()
        await store.thread(thread_id)
        return await self._enter(store, thread_id, None)

    def use(self, store: "Store") -> None:
        """Keep its threads in this store from now on: for tools that run a program on a store of their own."""
        self._store = lambda: store

    def _warn_if_unrecorded(self) -> None:
        """Warn, once, that a plain call is not recorded; within a run its steps are those of that run."""
        if not self._has_warned and current_frame.get() is None:
            self._has_warned = True
            name = self.function.__name__
            warn(
                f"{name}(...) calls the function itself, and nothing is recorded: use {name}.run(thread_id, ...), or"
                f" {name}.__wrapped__(...) if that is what you want, in a test for instance",
                HoldfastWarning,
                stacklevel=3,
            )

    def fits(self, ports: Ports) -> bool:
        """True if the function can be called in that world."""
        return not (ports.blocking and is_async(self.function))

    async def _enter(self, store: "Store", thread_id: str, packed: bytes | None) -> Any:
        try:
            async with store._run_block(thread_id, self._labels, self._terms) as run:  # noqa: SLF001  one room
                return await self.execute(run, packed)
        except Exception as error:
            hide_our_frames(error)
            raise

    async def execute(self, run: Run, packed: bytes | None) -> Any:
        """The function's result within a run: recorded, or made by replay of what is recorded."""
        refusal = self._refusal(run, packed)
        if refusal is not None:
            run.ledger.untouched = True
            raise refusal
        started = await self._started(run, packed or b"")
        if run.finished:
            return run.result
        arguments, named = decode(started.arguments)
        result = await run.ports.invoke(self.function, arguments, named, None)
        await run.complete(result)
        return result

    async def _started(self, run: Run, packed: bytes) -> Started:
        known = run.ledger.journal.started
        if known is not None:
            return known
        entry = Started(self.name, packed, fingerprint_of(packed, self.name, ""), run.ports.now())
        run.ledger.check_new(f"{self.name}")
        await run.ledger.note(run.ports, entry)
        return entry

    def _refusal(self, run: Run, packed: bytes | None) -> HoldfastError | None:
        """Why the function cannot be run on this thread."""
        known, name = run.ledger.journal.started, run.thread_id
        if known is None:
            text = f"thread {name!r} was not started by a durable function; give its arguments to run"
            return NotFound(text) if packed is None else None
        if known.function != self.name:
            return KeyReused(
                f"thread {name!r} runs {known.function}, not {self.name}; if that is this function, moved or renamed,"
                f" call it @durable(name={known.function!r}), else give another thread id"
            )
        if packed is not None and fingerprint_of(packed, self.name, "") != known.fingerprint:
            return KeyReused(f"thread {name!r} was started with other arguments; give another thread id, or resume it")
        if run.status is Status.CANCELLED:
            return RunCancelled(f"thread {name!r} was cancelled")
        return None

    async def outcome(self, thread_id: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Outcome:
        """Run the function on a thread and say how it stands, also if it waits."""
        try:
            result = await self.begin(thread_id, arguments, named)
        except Suspended as suspended:
            status = Status.INPUT_REQUIRED if suspended.requests else Status.WORKING
            return Outcome(status=status, thread_id=thread_id, requests=suspended.requests)
        return Outcome(status=Status.COMPLETE, thread_id=thread_id, result=result)


class AwaitableDurable(Durable[P, T]):
    """A durable `async def`."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function as it is, without a thread: nothing is recorded, unless this is part of a run."""
        self._warn_if_unrecorded()
        result: T = await self.function(*args, **kwargs)
        return result

    async def run(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on a thread. The same thread again continues, and does not repeat; a complete one has its result."""
        result: T = await self.begin(thread_id, args, kwargs)
        return result

    async def resume(self, thread_id: str) -> T:
        """Go on with a thread: its arguments are recorded. `NotFound` if it was never started."""
        result: T = await self.go_on(thread_id)
        return result

    async def start(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """As `run`, but says how the thread stands instead of raising `Suspended`."""
        return await self.outcome(thread_id, args, kwargs)


def _pair(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    parts = (encode(list(arguments), path="arguments[0]"), encode(dict(named), path="arguments[1]"))
    return container_header("list", len(parts)) + b"".join(parts)


class BlockingDurable(Durable[P, T]):
    """A durable `def`, for `holdfast.sync`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function as it is, without a thread: nothing is recorded, unless this is part of a run."""
        self._warn_if_unrecorded()
        result: T = self.function(*args, **kwargs)
        return result

    def run(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """See `AwaitableDurable.run`."""
        result: T = run_blocking(self.begin(thread_id, args, kwargs))
        return result

    def resume(self, thread_id: str) -> T:
        """See `AwaitableDurable.resume`."""
        result: T = run_blocking(self.go_on(thread_id))
        return result

    def start(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """See `AwaitableDurable.start`."""
        return run_blocking(self.outcome(thread_id, args, kwargs))
