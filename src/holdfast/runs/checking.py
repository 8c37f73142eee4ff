"""Checks whether the code of a program asks for what the open threads of a store recorded.

Each thread is rehearsed, one after the other. It fits if the code, up to the first thing that is new, has asked for all
recorded steps and questions. What the code does after that is unknown, and not judged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from holdfast.codec import decode
from holdfast.history.entries import Attempted, Begun
from holdfast.history.journal import Journal
from holdfast.records.errors import (
    CodecError,
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    KeyUnavailable,
    NotFound,
    StepTimeout,
)
from holdfast.records.outcome import ThreadCheck
from holdfast.records.signatures import bound, is_async
from holdfast.records.thread import ThreadInfo
from holdfast.runs.block import Terms
from holdfast.runs.divergence import Replay
from holdfast.runs.durable import Durable, registry
from holdfast.runs.keys import name_of, place_of
from holdfast.runs.ledger import Suspension
from holdfast.runs.rehearsal import RehearsedBlock
from holdfast.runs.run import Run
from holdfast.runs.steps import DOUBT_CHOICES
from holdfast.runs.submitting import Served
from holdfast.runs.threads import every
from holdfast.stores.agenda import OPEN

if TYPE_CHECKING:
    from holdfast.runs.store import Store

PAGE = 256
KEPT = Terms(keyed=True)
UNREADABLE = (Corrupt, IncompatibleCheckpoint, KeyUnavailable)
ADVICE = (
    "Let it end with the code that began it (a new `version` of the function leaves it to processes with the old code),"
    " or change the code so that it asks for what is recorded"
)


class Checker:
    """One check of a store."""

    def __init__(self, store: "Store", functions: Sequence[Durable[Any, Any]] | None, limit: float) -> None:
        for each in functions or ():
            if not isinstance(each, Durable):
                raise ConfigurationError(f"`functions` must be durable functions, got {each!r}")
        self._store = store
        self._functions: Mapping[str, Served] = (
            registry if functions is None else {each.name: each for each in functions}
        )
        self._limit = limit

    async def check(self, progress: Callable[[int, int], object]) -> list[ThreadCheck]:
        """Judge all open threads that record a function, in the order of their ids."""
        listed = await self._store.threads(status=OPEN, limit=PAGE)
        threads = sorted([info async for info in every(listed)], key=lambda info: info.thread_id)
        found = []
        for number, info in enumerate(threads, 1):
            found.append(await self._judged(info))
            progress(number, len(threads))
        return [each for each in found if each is not None]

    async def _judged(self, info: ThreadInfo) -> ThreadCheck | None:
        """Return the verdict on a thread; None if it records no function, or has ended meanwhile."""
        if info.damaged is not None:
            return self._verdict(info, "", "unserved", f"it cannot be read: {info.damaged}")
        try:
            name = await self._store._ports.perform(self._recorded_function, info.thread_id)
        except NotFound:
            return None
        except UNREADABLE as error:
            return self._verdict(info, info.function or "", "unserved", f"it cannot be read: {error}")
        function = self._functions.get(name)
        if refusal := self._unserved(function, name, info.version):
            return self._verdict(info, name, "unserved", refusal) if name else None
        if not isinstance(function, Durable):
            return None  # the code of other runtimes has effects between its records
        difference = await self._difference(function, info.thread_id)
        return self._verdict(info, name, "differs" if difference else "fits", difference)

    def _verdict(
        self, info: ThreadInfo, name: str, verdict: Literal["fits", "differs", "unserved"], reason: str
    ) -> ThreadCheck:
        return ThreadCheck(
            thread_id=info.thread_id, verdict=verdict, function=name, version=info.version, reason=reason
        )

    def _recorded_function(self, thread_id: str) -> str:
        """Return the name of the function that a thread runs; empty if there is none. Blocking."""
        reader = self._store._reader
        started = Journal.of(reader.load_head(reader.key(thread_id)).log.document).started
        return "" if started is None else started.function

    def _unserved(self, function: Served | None, name: str, version: int) -> str:
        """Say why the program cannot run a thread; empty if it can."""
        if function is None:
            return f"{name} is not among the durable functions of this program"
        if not function._serves(self._store._ports, 0):
            return f"{name} is async: check it on a store of holdfast.open"
        versions = function._service.versions
        if version and version not in versions:
            served = " to ".join(map(str, dict.fromkeys((versions[0], versions[-1]))))
            return f"version {version} of {name} began it, and this program serves version {served}"
        return ""

    async def _difference(self, function: Durable[Any, Any], thread_id: str) -> str:
        """Rehearse a thread, and say what differs; empty if it fits."""
        try:
            async with RehearsedBlock(self._store._tools, thread_id, None, KEPT) as run:
                error = await self._rehearsed(function, run)
                return _difference_of(function, run, error, self._limit)
        except NotFound:
            return ""  # it was deleted meanwhile

    async def _rehearsed(self, function: Durable[Any, Any], run: Run) -> BaseException | None:
        """Run the code of the function to its first new thing. Return the error that ended it, if any."""
        ledger, ports, code = run._ledger, run._ports, function._function
        assert ledger.journal.started is not None  # noqa: S101  its name is known
        try:
            arguments, named = decode(ledger.journal.started.arguments)
            bound(code, tuple(arguments), named)
        except (CodecError, TypeError) as error:
            assert ledger.rehearsal is not None  # noqa: S101  of a rehearsed block
            ledger.rehearsal.difference = f"the function does not take the recorded arguments: {error}"
            return error
        try:
            await ports.invoke(_followed(function, run), arguments, named, self._limit)
        except BaseException as error:
            if ledger.suspension is None and not isinstance(error, Exception | Suspension):  # also of an inner thread
                raise
            return error
        return None


def _followed(function: Durable[Any, Any], run: Run) -> Callable[..., Any]:
    """Return the function's code, whose calls are compared with the record.

    Plain code is called on a separate thread. It is the home of the run's body, and the waiting caller no branch of it.
    """
    ledger, ports, code = run._ledger, run._ports, function._function

    def follow() -> None:
        ledger.replay = Replay(ledger, ports, function._on_divergence, ports.branch())

    def called(*arguments: Any, **named: Any) -> Any:
        if ports.blocking:
            run._own_scope.branch = ports.branch()
        follow()
        return code(*arguments, **named)

    if is_async(code):
        follow()
        return code
    return called


def _difference_of(function: Durable[Any, Any], run: Run, error: BaseException | None, limit: float) -> str:
    """Say how the code differs from the record, after a rehearsal that ended with this error; empty if it fits."""
    rehearsal, replay = run._ledger.rehearsal, run._ledger.replay
    assert rehearsal is not None  # noqa: S101  of a rehearsed block
    if isinstance(error, Exception):
        rehearsal.note(error)
    if rehearsal.difference:
        return f"{rehearsal.difference}. {ADVICE}"
    if isinstance(error, StepTimeout) and not error.key:
        return f"its replay did not come to the end of its record within {limit:g} s. {ADVICE}"
    if replay is None or function._on_divergence == "ignore" or (replay.is_parallel and rehearsal.has_failed):
        return ""
    left = _left_out(replay, run._ledger.journal)
    if not left:
        return ""
    return f"the code {_end_of(run, error)} and has not asked for {left[0]}, which is recorded. {ADVICE}"


def _left_out(replay: Replay, journal: Journal) -> list[str]:
    """Name the recorded steps and questions that the code left out, where that is certain.

    A step whose body the rehearsal did not enter may contain steps with keys of their own; a person's decision about a
    step in doubt is not part of the code.
    """
    has_open = any(isinstance(memo, Begun | Attempted) for memo in journal.memos.values())
    steps = [key for key in replay.unasked_steps() if place_of(key) or not has_open]
    questions = [asked.name for asked in replay.unasked_questions() if asked.choices != DOUBT_CHOICES]
    return [f"step {name_of(key)!r}" for key in steps] + [f"question {name!r}" for name in questions]


def _end_of(run: Run, error: BaseException | None) -> str:
    """Say where the rehearsal ended."""
    ledger = run._ledger
    if ledger.suspension is None and not isinstance(error, Suspension):
        return "returns" if error is None else f"raises {type(error).__name__}"
    reached = ledger.rehearsal.reached if ledger.rehearsal is not None else ""
    return f"comes to {reached}, which is new," if reached else "waits"
