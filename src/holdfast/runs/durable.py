"""Durable functions: run on a thread, which records the function and its arguments, and resumed by replay."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload
from warnings import warn

from msgspec.structs import replace

from holdfast.codec import decode
from holdfast.codec.discovery import return_annotation
from holdfast.codec.registry import adopt_named
from holdfast.history.entries import Started
from holdfast.history.journal import Journal
from holdfast.ports import Ports, run_blocking
from holdfast.records.arguments import mapping_or_none, sequence, text_or_none
from holdfast.records.errors import (
    CodecError,
    ConfigurationError,
    Deleted,
    HoldfastError,
    HoldfastWarning,
    KeyReused,
    NotFound,
    RunCancelled,
    Suspended,
)
from holdfast.records.naming import importable_module
from holdfast.records.outcome import Outcome
from holdfast.records.signatures import is_async, parameters_of
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.arguments import differences, fingerprint_of, packed_call
from holdfast.runs.block import Terms
from holdfast.runs.divergence import OnDivergence, Replay, check_policy
from holdfast.runs.handles import BlockingHandle, Handle
from holdfast.runs.run import Run
from holdfast.runs.scope import current_frame
from holdfast.runs.submitting import Call, Served, Service, Submission, SubmitOptions, submit, unknown_call

if TYPE_CHECKING:
    from holdfast.runs.store import Store

P = ParamSpec("P")
T = TypeVar("T")
FRESH = "fresh"
DEFAULT_SERVICE = Service()

registry: "dict[str, Served]" = {}
"""What this program can run, by name: a recovery finds the code of a thread here."""


class Durable(Generic[P, T]):
    """A function that resumes on its thread after a crash. Whether it blocks depends on its store."""

    __wrapped__: Callable[P, Any]

    def __init__(
        self,
        function: Callable[P, Any],
        store: "Callable[[], Store]",
        terms: Terms,
        labels: Mapping[str, str] | None,
        name: str | None = None,
        on_divergence: OnDivergence = "raise",
        service: Service = DEFAULT_SERVICE,
    ) -> None:
        check_policy(on_divergence)
        service.check()
        self._function = function
        self._place = f"{importable_module(function)}:{function.__qualname__}"
        """Where the function is defined now; its threads record `name`."""
        self.name = text_or_none(name, "name") or self._place
        self._check_name_is_unique()
        self._taken = parameters_of(function)
        self._store = store
        self._terms = replace(terms, keyed=True)
        self._labels = labels
        self._has_warned = False
        self._on_divergence = on_divergence
        self._service = service
        """How it is served: its queue, its versions, and what an error does."""
        self._owner = ""
        """The class in whose body the function is defined."""
        update_wrapper(cast("Callable[..., Any]", self), function)
        adopt_named(return_annotation(function), evaluate=True)
        registry[self.name] = self

    def _check_name_is_unique(self) -> None:
        """Raise `ConfigurationError` for a second function of this name: they would resume each other's threads."""
        other = registry.get(self.name)
        if other is not None and other._place != self._place:
            raise ConfigurationError(
                f"both {other._place} and {self._place} are named {self.name!r}; rename one of them"
            )

    # In classes

    def __set_name__(self, owner: type, name: str) -> None:
        if self._function.__qualname__ == f"{owner.__qualname__}.{name}":
            self._owner = owner.__qualname__

    def __get__(self, instance: object, _owner: type | None = None) -> Self:
        """Raise `ConfigurationError` for a method: a process that resumes a thread has no `self` to pass."""
        if instance is not None and self._owner:
            name = self._function.__name__
            raise ConfigurationError(
                f"{self._owner}.{name} is a durable method, and the process that resumes its thread has no"
                f" {self._owner} to call it on. Make it a function of the module that takes what it needs as arguments,"
                " or put @staticmethod above @durable"
            )
        return self

    # Running

    async def _begin(
        self, thread_id: str, arguments: tuple[Any, ...], named: Mapping[str, Any], store: "Store | None" = None
    ) -> Any:
        """Run the function on a thread, or resume it there."""
        store = store or self._store()
        fresh, named = self._split(named)
        packed = packed_call(self._function, self._taken, arguments, named)
        if fresh:
            await _free(store, thread_id)
        return await self._enter(store, thread_id, packed)

    def _split(self, named: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
        """Return whether to start over, and the function's keywords; its own parameter `fresh` has priority."""
        if FRESH not in named or FRESH in self._taken.names:
            return False, named
        fresh, taken = named[FRESH], self._taken
        if taken.any_keyword or not isinstance(fresh, bool):
            why = f"{self.name} takes keywords of any name" if taken.any_keyword else f"got {fresh!r}, not a bool"
            raise ConfigurationError(
                f"fresh={fresh!r} is ambiguous: {why}. To start over, call store.delete and store.revive, then run"
            )
        return fresh, {name: value for name, value in named.items() if name != FRESH}

    async def _resume(self, thread_id: str, store: "Store | None" = None) -> Any:
        """Resume a thread whose function and arguments are recorded."""
        store = store or self._store()
        await store.thread(thread_id)
        return await self._enter(store, thread_id, None)

    def _use(self, store: "Store") -> None:
        """Use this store from now on: for tools that run a program on another store."""
        self._store = lambda: store

    def _warn_if_unrecorded(self) -> None:
        """Warn, once, that a plain call is not recorded; within a run its steps belong to that run."""
        if not self._has_warned and current_frame.get() is None:
            self._has_warned = True
            name = self._function.__name__
            warn(
                f"{name}(...) calls the function itself, and nothing is recorded: use {name}.run(thread_id, ...), or"
                f" {name}.__wrapped__(...) if that is what you want, in a test for instance",
                HoldfastWarning,
                stacklevel=3,
            )

    def _serves(self, ports: Ports, version: int) -> bool:
        """True if it can resume threads of this version (0: not begun) there: an async function needs an event loop."""
        return version in (0, *self._service.versions) and not (ports.blocking and is_async(self._function))

    async def _enter(self, store: "Store", thread_id: str, packed: bytes | None) -> Any:
        async def check() -> None:
            await store._tools.ports.perform(self._check_recorded, store, thread_id, packed)

        block = store._run_block(thread_id, None, self._terms, check)
        try:
            async with block as run:
                return await self._execute(run, packed)
        except Exception as error:
            hide_our_frames(error)
            raise

    def _check_recorded(self, store: "Store", thread_id: str, packed: bytes | None) -> None:
        """Raise why the function cannot run on a thread that another run holds. Blocking."""
        reader = store._tools.reader
        try:
            known = Journal.of(reader.load_head(reader.key(thread_id)).log.document).started
        except NotFound:
            return
        refusal = None if known is None else self._conflict(known, thread_id, packed)
        if refusal is not None:
            raise refusal

    async def _execute(self, run: Run, packed: bytes | None) -> Any:
        """Return the function's result in a run: the recorded one, or call it, with recorded steps replayed."""
        refusal = self._refusal(run, packed)
        if refusal is not None:
            run._ledger.untouched = True
            raise refusal
        run._ledger.place = self._service.place(self.name)
        run._ledger.labels = self._labels or {}
        run._ledger.version = run._ledger.version or self._service.version
        started = await self._started(run, packed or b"")
        if run.finished:
            return run.result
        arguments, named = decode(started.arguments)
        replay = run._ledger.replay = self._replay(run)
        result = await run._ports.invoke(self._function, arguments, named, None)
        run._complete_on_release(result)
        await replay.report_unasked()
        return result

    def _replay(self, run: Run) -> Replay:
        ports, runs_here = run._ports, run._ports.blocking or is_async(self._function)
        return Replay(run._ledger, ports, self._on_divergence, ports.branch() if runs_here else 0)

    async def _started(self, run: Run, packed: bytes) -> Started:
        known = run._ledger.journal.started
        if known is not None:
            return known
        entry = Started(self.name, packed, fingerprint_of(packed, self.name), run._ports.now())
        run._ledger.check_new(self.name)
        await run._ledger.note(run._ports, entry)
        return entry

    def _refusal(self, run: Run, packed: bytes | None) -> HoldfastError | None:
        """Return why the function cannot run on this thread."""
        known, name = run._ledger.journal.started, run.thread_id
        if known is None:
            text = f"thread {name!r} was not started by a durable function; pass its arguments to run"
            return NotFound(text) if packed is None else None
        conflict = self._conflict(known, name, packed)
        if conflict is None and run.status is Status.CANCELLED:
            return RunCancelled(f"thread {name!r} was cancelled")
        return conflict

    def _conflict(self, known: Started, thread_id: str, packed: bytes | None) -> KeyReused | None:
        """Return an error if the thread was started by another function or with other arguments."""
        if known.function != self.name:
            return KeyReused(
                f"thread {thread_id!r} runs {known.function}, not {self.name}; if that is this function, moved or"
                f" renamed, use @durable(name={known.function!r}), else give another thread id"
            )
        if packed is None or fingerprint_of(packed, self.name) == known.fingerprint or self._is_same(known, packed):
            return None
        return KeyReused(
            f"thread {thread_id!r} was started with other arguments:"
            f" {differences(self._function, known.arguments, packed)}. Give another thread id, resume this one with"
            f" {self._function.__name__}.resume({thread_id!r}), or start over with fresh=True"
        )

    def _is_same(self, known: Started, packed: bytes) -> bool:
        """True if the recorded call is this one in another form: it was submitted by name, without the defaults."""
        try:
            arguments, named = decode(known.arguments)
            return packed_call(self._function, self._taken, tuple(arguments), named) == packed
        except (CodecError, TypeError, ValueError):
            return False

    # Submitting

    def _call(self, arguments: Sequence[Any], named: Mapping[str, Any], thread_id: str = "") -> Call:
        packed = packed_call(self._function, self._taken, tuple(arguments), named)
        fingerprint = fingerprint_of(packed, self.name)

        def compare(known: Started) -> KeyReused | None:
            return self._conflict(known, thread_id, packed)

        return Call(self.name, packed, fingerprint, self._service.queue, self._labels, compare)

    async def _submit(
        self, thread_id: str, arguments: tuple[Any, ...], named: Mapping[str, Any], options: Submission
    ) -> "Store":
        """Create the thread, and return the store that it is in."""
        store = self._store()
        await submit(store, thread_id, self._call(arguments, named, thread_id), options)
        return store

    async def _outcome(self, thread_id: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Outcome:
        """Run the function on a thread and return its outcome, also if it waits."""
        try:
            result = await self._begin(thread_id, arguments, named)
        except Suspended as suspended:
            status = Status.INPUT_REQUIRED if suspended.requests else Status.WORKING
            return Outcome(status=status, thread_id=thread_id, requests=suspended.requests)
        return Outcome(status=Status.COMPLETE, thread_id=thread_id, result=result)


def service_of(function: Served) -> Service:
    """Return how processes serve a function."""
    return function._service


async def _free(store: "Store", thread_id: str) -> None:
    """Delete a thread and make its id usable again. Raises `LeaseHeld` while a live run holds it."""
    with suppress(Deleted):  # raised as the block is left, or if it was deleted before
        async with store._run_block(thread_id, None, Terms(wait=0)) as run:
            run._ledger.untouched = True
            await store.delete(thread_id)
    await store.revive(thread_id)


def named_call(name: object, args: object, kwargs: object) -> Call:
    """Return the call of a durable function by its name, whether or not this program has it."""
    known = text_or_none(name, "function_name")
    if known is None:
        raise ConfigurationError("`function_name` must be the name of a durable function, such as 'app:support'")
    arguments, named = sequence(args, "args"), mapping_or_none(kwargs, "kwargs") or {}
    function = registry.get(known)
    return unknown_call(known, arguments, named) if function is None else function._call(arguments, named)


class AwaitableSubmitter(Generic[P]):
    """Submits work to a durable function with options: see `AwaitableDurable.options`."""

    def __init__(self, function: "Durable[P, Any]", options: Submission) -> None:
        self._function = function
        self._options = options

    async def submit(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """See `AwaitableDurable.submit`."""
        return Handle(await self._function._submit(thread_id, args, kwargs, self._options), thread_id)


class BlockingSubmitter(Generic[P]):
    """See `AwaitableSubmitter`."""

    def __init__(self, function: "Durable[P, Any]", options: Submission) -> None:
        self._function = function
        self._options = options

    def submit(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle:
        """See `AwaitableDurable.submit`."""
        return BlockingHandle(run_blocking(self._function._submit(thread_id, args, kwargs, self._options)), thread_id)


class AwaitableDurable(Durable[P, T]):
    """A durable `async def`."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function itself, without a thread: nothing is recorded, unless this is part of a run."""
        self._warn_if_unrecorded()
        result: T = await self._function(*args, **kwargs)
        return result

    @overload
    async def run(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def run(self, thread_id: str, /, *args: Any, fresh: bool, **kwargs: Any) -> T: ...
    async def run(self, thread_id: str, /, *args: Any, **kwargs: Any) -> T:
        """Run the function on a thread, or resume it there, and return its result.

        Finished steps are not repeated; a complete thread returns its recorded result. Raises `KeyReused` if the thread
        was started by another function or with other arguments, `Suspended` if it waits, and `LeaseHeld` if another run
        holds it longer than `wait`.

        `fresh=True` deletes the thread and starts over, for development; `LeaseHeld` while it runs. If the function has
        a parameter named `fresh`, it gets the value.
        """
        result: T = await self._begin(thread_id, args, kwargs)
        return result

    async def resume(self, thread_id: str) -> T:
        """Resume a thread with its recorded arguments and return its result. `NotFound` if it was never started."""
        result: T = await self._resume(thread_id)
        return result

    @overload
    async def start(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Outcome: ...
    @overload
    async def start(self, thread_id: str, /, *args: Any, fresh: bool, **kwargs: Any) -> Outcome: ...
    async def start(self, thread_id: str, /, *args: Any, **kwargs: Any) -> Outcome:
        """Do what `run` does, and return an `Outcome`; a thread that waits does not raise `Suspended`."""
        return await self._outcome(thread_id, args, kwargs)

    async def submit(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """Create a thread that runs the function elsewhere, and return a handle on it; durable when this returns.

        A `Worker` of any process that has the function runs it. The same id and arguments again are the same thread;
        `KeyReused` if it runs something else.
        """
        return Handle(await self._submit(thread_id, args, kwargs, Submission()), thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> AwaitableSubmitter[P]:
        """Return an object whose `submit` uses these options.

        - `queue` is where the thread waits, by default the queue of the function; `priority` is from -2 to 2, larger
          first.
        - `delay`, in seconds, or `at`, a time with a time zone, is when it is due.
        - `labels` are set on the thread, besides those of the function.
        - `connection`, on a PostgreSQL store, is a psycopg connection with an open transaction: the thread is part of
          it, and exists once you commit.
        """
        return AwaitableSubmitter(self, Submission.of(options))


class BlockingDurable(Durable[P, T]):
    """A durable `def`, for `holdfast.sync`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function itself, without a thread: nothing is recorded, unless this is part of a run."""
        self._warn_if_unrecorded()
        result: T = self._function(*args, **kwargs)
        return result

    @overload
    def run(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def run(self, thread_id: str, /, *args: Any, fresh: bool, **kwargs: Any) -> T: ...
    def run(self, thread_id: str, /, *args: Any, **kwargs: Any) -> T:
        """See `AwaitableDurable.run`."""
        result: T = run_blocking(self._begin(thread_id, args, kwargs))
        return result

    def resume(self, thread_id: str) -> T:
        """See `AwaitableDurable.resume`."""
        result: T = run_blocking(self._resume(thread_id))
        return result

    @overload
    def start(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Outcome: ...
    @overload
    def start(self, thread_id: str, /, *args: Any, fresh: bool, **kwargs: Any) -> Outcome: ...
    def start(self, thread_id: str, /, *args: Any, **kwargs: Any) -> Outcome:
        """See `AwaitableDurable.start`."""
        return run_blocking(self._outcome(thread_id, args, kwargs))

    def submit(self, thread_id: str, /, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle:
        """See `AwaitableDurable.submit`."""
        return BlockingHandle(run_blocking(self._submit(thread_id, args, kwargs, Submission())), thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> BlockingSubmitter[P]:
        """See `AwaitableDurable.options`."""
        return BlockingSubmitter(self, Submission.of(options))
