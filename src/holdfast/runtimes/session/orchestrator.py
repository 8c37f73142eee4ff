"""`Orchestrator`: what the sessions of one role have in common, and the way to them."""

from collections.abc import Mapping
from datetime import timedelta

from holdfast.history.journal import Journal
from holdfast.records.arguments import check_labels
from holdfast.records.errors import ConfigurationError
from holdfast.records.turn import ModelPricing, SessionSummary
from holdfast.runs.api import default_store
from holdfast.runs.block import RunBlock, Terms
from holdfast.runs.store import Store, tools_of
from holdfast.runtimes.session.limits import Limits
from holdfast.runtimes.session.options import OnUnstorable, SessionOptions, needed_text
from holdfast.runtimes.session.session import SessionBlock


class Orchestrator:
    """Opens sessions: conversations whose turns are executed once, and counted over every process.

    `budget_usd`, `budget_tokens` and `max_turns` are for a whole thread, and a later orchestrator may raise them.
    `pricing` gives the prices of models by name. `lease` and `wait` are those of `store.run`.
    """

    def __init__(
        self,
        role: str,
        phase: str,
        store: Store | None = None,
        *,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        max_turns: int | None = None,
        pricing: Mapping[str, ModelPricing] | None = None,
        on_unstorable: OnUnstorable = "raise",
        lease: timedelta | float = 30,
        wait: timedelta | float | None = None,
    ) -> None:
        limits = Limits(budget_usd, budget_tokens, max_turns)
        role, phase = needed_text(role, "role"), needed_text(phase, "phase")
        self._options = SessionOptions(role, phase, {} if pricing is None else pricing, limits, on_unstorable)
        self._options.check()
        self._terms = Terms(lease, wait)
        self._terms.check()
        if store is not None and not isinstance(store, Store):
            raise ConfigurationError(f"store={store!r}: a store of holdfast, as holdfast.open returns it")
        self._store = store

    def __repr__(self) -> str:
        return f"Orchestrator(role={self._options.role!r}, phase={self._options.phase!r})"

    def session(self, thread_id: str | None = None, *, labels: Mapping[str, str] | None = None) -> SessionBlock:
        """Claim a thread for a session: `async with orchestrator.session("user-42:essay") as session`.

        Without a thread id the session has a new thread, and resumes nothing. Leaving the block leaves the thread idle.
        """
        tools = tools_of(self._opened())
        name = f"session-{tools.ports.entropy(8).hex()}" if thread_id is None else thread_id
        return SessionBlock(RunBlock(tools, name, check_labels(labels), self._terms), self._options)

    async def summary(self, thread_id: str) -> SessionSummary:
        """What the turns of a thread amount to, without claiming it. `NotFound` if there is no such thread."""
        return await read_summary(self._opened(), thread_id)

    def _opened(self) -> Store:
        return self._store if self._store is not None else default_store()


async def read_summary(store: Store, thread_id: str) -> SessionSummary:
    """What the turns of a thread amount to."""
    tools = tools_of(store)
    await tools.open()
    loaded = await tools.ports.perform(tools.reader.load_head, tools.reader.sealing.key(thread_id))
    return Journal.of(loaded.log.document).turns.summary(thread_id)
