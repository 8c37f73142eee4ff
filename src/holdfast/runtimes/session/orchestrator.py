"""`Orchestrator`: opens the sessions of one role."""

from collections.abc import Callable, Mapping
from typing import Unpack

from holdfast.records.turn import SessionSummary
from holdfast.runs.driver import Store, claim, fresh_id, read, store_finder
from holdfast.runtimes.session.options import OrchestratorOptions, SessionOptions, session_options
from holdfast.runtimes.session.record import HAND_OVER, TURN, Turns
from holdfast.runtimes.session.session import SessionBlock


class OrchestratorCore:
    """The part of an orchestrator that both worlds share. It looks up its store when a session opens."""

    def __init__(self, options: SessionOptions, store: Callable[[], Store]) -> None:
        self._options = options
        self._store = store

    def __repr__(self) -> str:
        return f"Orchestrator(role={self._options.role!r}, phase={self._options.phase!r})"

    def session(self, thread_id: str | None, labels: Mapping[str, str] | None) -> SessionBlock:
        """Return the block of a session on this thread, or on a new one."""
        store = self._store()
        name = fresh_id(store, "session") if thread_id is None else thread_id
        return SessionBlock(claim(store, name, self._options.run, labels), self._options)

    async def summary(self, thread_id: str) -> SessionSummary:
        """Summarise the turns of a thread."""
        return await read_summary(self._store(), thread_id)


class Orchestrator:
    """Opens sessions: conversations whose turns execute once and are counted over all processes.

    `budget_usd`, `budget_tokens` and `max_turns` apply to a whole thread; a later orchestrator may raise them.
    `pricing` maps model names to prices. `lease` and `wait` work as in `store.run`.
    """

    def __init__(
        self, role: str, phase: str, store: Store | None = None, **options: Unpack[OrchestratorOptions]
    ) -> None:
        self._core = OrchestratorCore(session_options(role, phase, options), store_finder(store))

    def __repr__(self) -> str:
        return repr(self._core)

    def session(self, thread_id: str | None = None, *, labels: Mapping[str, str] | None = None) -> SessionBlock:
        """Claim a thread for a session: `async with orchestrator.session("user-42:essay") as session`.

        Without a thread id the session starts a new thread. Leaving the block leaves the thread idle.
        """
        return self._core.session(thread_id, labels)

    async def summary(self, thread_id: str) -> SessionSummary:
        """Summarise the turns of a thread without claiming it. `NotFound` if the thread does not exist."""
        return await self._core.summary(thread_id)


async def read_summary(store: Store, thread_id: str) -> SessionSummary:
    """Summarise the turns of a thread."""
    record, turns = await read(store, thread_id), Turns()
    for note in record.notes(TURN, HAND_OVER):
        turns.hand_over(note) if note.kind == HAND_OVER else turns.add(note)
    return turns.summary(thread_id)
