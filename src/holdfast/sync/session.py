"""The blocking orchestrator and its sessions: the same methods as the awaitable ones, each one line."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar, Unpack

from holdfast.ports import iterate_blocking, run_blocking
from holdfast.records.request import Answer
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import UsageSnapshot
from holdfast.runs.options import StepPolicy
from holdfast.runtimes.session.options import OrchestratorOptions, TurnOptions, session_options
from holdfast.runtimes.session.orchestrator import OrchestratorCore
from holdfast.runtimes.session.orchestrator import read_summary as awaitable_summary
from holdfast.runtimes.session.session import Session as AwaitableSession
from holdfast.runtimes.session.session import SessionBlock as AwaitableSessionBlock
from holdfast.sync.functions import inner_store
from holdfast.sync.store import Store

T = TypeVar("T")


class Session:
    """See `holdfast.Session`: the same methods, blocking."""

    def __init__(self, session: AwaitableSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def thread_id(self) -> str:
        """See `holdfast.Session.thread_id`."""
        return self._session.thread_id

    @property
    def resumed(self) -> bool:
        """See `holdfast.Session.resumed`."""
        return self._session.resumed

    @property
    def role(self) -> str:
        """See `holdfast.Session.role`."""
        return self._session.role

    @property
    def phase(self) -> str:
        """See `holdfast.Session.phase`."""
        return self._session.phase

    @property
    def usage(self) -> UsageSnapshot:
        """See `holdfast.Session.usage`."""
        return self._session.usage

    @property
    def cost_usd(self) -> float:
        """See `holdfast.Session.cost_usd`."""
        return self._session.cost_usd

    @property
    def turns(self) -> list[Turn]:
        """See `holdfast.Session.turns`."""
        return self._session.turns

    def summary(self) -> SessionSummary:
        """See `holdfast.Session.summary`."""
        return self._session.summary()

    def run_turn(self, function: Callable[[], T], **options: Unpack[TurnOptions]) -> TurnResult[T]:
        """See `holdfast.Session.run_turn`."""
        return run_blocking(self._session.run_turn(function, **options))

    def run_turn_stream(
        self, function: Callable[[], Iterable[T]], **options: Unpack[TurnOptions]
    ) -> Generator[T, None, None]:
        """See `holdfast.Session.run_turn_stream`."""
        return iterate_blocking(self._session.run_turn_stream(function, **options))

    def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepPolicy]) -> T:
        """See `holdfast.Session.step`."""
        return run_blocking(self._session.step(key, function, *args, **policy))

    def pause_for_input(
        self,
        prompt: Any,
        *,
        name: str = "input",
        choices: Sequence[str] = (),
        deadline: datetime | timedelta | float | None = None,
        default: Any = None,
        key: str | None = None,
    ) -> Answer:
        """See `holdfast.Session.pause_for_input`."""
        asking = self._session.pause_for_input(
            prompt, name=name, choices=choices, deadline=deadline, default=default, key=key
        )
        return run_blocking(asking)

    def hand_over(self, role: str, phase: str | None = None, *, idempotency_key: str | None = None) -> None:
        """See `holdfast.Session.hand_over`."""
        run_blocking(self._session.hand_over(role, phase, idempotency_key=idempotency_key))


class SessionBlock:
    """`with orchestrator.session(...) as session`."""

    def __init__(self, block: AwaitableSessionBlock) -> None:
        self._block = block

    def __enter__(self) -> Session:
        entered = run_blocking(self._block.enter())
        try:
            return Session(entered)
        except BaseException as interrupt:
            run_blocking(self._block.leave(interrupt))
            raise

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        run_blocking(self._block.leave(error))


class Orchestrator:
    """See `holdfast.Orchestrator`: the same methods, blocking."""

    def __init__(
        self, role: str, phase: str, store: Store | None = None, **options: Unpack[OrchestratorOptions]
    ) -> None:
        self._core = OrchestratorCore(session_options(role, phase, options), inner_store(store))

    def __repr__(self) -> str:
        return repr(self._core)

    def session(self, thread_id: str | None = None, *, labels: Mapping[str, str] | None = None) -> SessionBlock:
        """See `holdfast.Orchestrator.session`."""
        return SessionBlock(self._core.session(thread_id, labels))

    def summary(self, thread_id: str) -> SessionSummary:
        """See `holdfast.Orchestrator.summary`."""
        return run_blocking(self._core.summary(thread_id))


def read_summary(store: Store, thread_id: str) -> SessionSummary:
    """Summarise the turns of a thread; empty if it has none."""
    return run_blocking(awaitable_summary(store._store, thread_id))  # noqa: SLF001  one room
