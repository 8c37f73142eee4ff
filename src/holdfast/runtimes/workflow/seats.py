"""The executors of one run: each with what its thread saved, and nothing of another thread."""

from copy import copy
from typing import Any

from holdfast.codec import decode, encode
from holdfast.ports import Ports
from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.graph import Graph

_SAVE, _RESTORE = "on_checkpoint_save", "on_checkpoint_restore"


def is_stateful(executor: Executor) -> bool:
    """Return True if an executor saves something."""
    return getattr(type(executor), _SAVE) is not getattr(Executor, _SAVE)


class SeatPlan:
    """What the runs of one workflow object share: how executors began, and which of them a run is using."""

    def __init__(self, graph: Graph) -> None:
        self.stateful = {node.id: node.executor for node in graph.nodes.values() if is_stateful(node.executor)}
        self.beginnings: dict[str, bytes] = {}
        """What executors would have saved before they received anything, encoded."""
        self.used: dict[int, object] = {}
        """Which run uses an executor, by the executor's identity."""


class Seats:
    """The executors of one run. One that is in use by another run is copied: what they keep is never mixed."""

    def __init__(self, plan: SeatPlan, ports: Ports) -> None:
        self._plan = plan
        self._ports = ports
        self._seated: dict[str, Executor] = {}

    async def take(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Seat the stateful executors and restore each; return what they hold, by id."""
        for id_, executor in self._plan.stateful.items():
            is_free = self._plan.used.setdefault(id(executor), (self, id_)) == (self, id_)
            self._seated[id_] = executor if is_free else copy(executor)
            if id_ not in self._plan.beginnings:
                self._plan.beginnings[id_] = encode(await self.save(id_))
        held = {id_: saved.get(id_, decode(self._plan.beginnings[id_])) for id_ in self._seated}
        for id_, state in held.items():
            await self._ports.call(getattr(self._seated[id_], _RESTORE), decode(encode(state)))
        return held

    def leave(self) -> None:
        """Let other runs use the executors."""
        for executor in self._seated.values():
            if self._plan.used.get(id(executor), (None, ""))[0] is self:  # type: ignore[index]
                del self._plan.used[id(executor)]

    def find(self, id_: str, executor: Executor) -> Executor:
        """The executor that this run uses for a node."""
        return self._seated.get(id_, executor)

    def saves(self, id_: str) -> bool:
        """Return True if the executor of a node saves something."""
        return id_ in self._seated

    async def save(self, id_: str) -> Any:
        """A copy of what an executor keeps."""
        saved = await self._ports.call(getattr(self._seated[id_], _SAVE))
        if not isinstance(saved, dict):
            raise ConfigurationError(f"on_checkpoint_save of executor {id_!r} must return a dict, got {saved!r}")
        return decode(encode(saved, path=f"state of executor {id_!r}"))
