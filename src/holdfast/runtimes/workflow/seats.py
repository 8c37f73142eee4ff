"""The executors of one run: each with what its thread saved, and nothing of another thread."""

from collections import deque
from copy import copy
from typing import Any
from weakref import finalize

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError, ExecutorFailed
from holdfast.runs.driver import Driver
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.graph import Graph

_SAVE, _RESTORE = "on_checkpoint_save", "on_checkpoint_restore"
_beginnings: dict[int, bytes] = {}
"""What executors saved before they received anything, encoded: by the executor's identity."""
_users: dict[int, "tuple[Seats, str]"] = {}
"""Which run uses an executor, and as which node: by the executor's identity."""


class Seats:
    """The executors of one run. One that is in use elsewhere is copied: what two threads keep is never mixed."""

    def __init__(self, graph: Graph, driver: Driver) -> None:
        self._graph = graph
        self._driver = driver
        self._seated: dict[str, Executor] = {}
        """The executors that save something, by the id of their node."""

    async def take(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Seat the executors that save something, and restore each; return what they hold, by id."""
        held: dict[str, Any] = {}
        for id_, node in self._graph.nodes.items():
            executor = node.executor
            if getattr(type(executor), _SAVE) is getattr(Executor, _SAVE):
                continue
            is_free = _users.setdefault(id(executor), (self, id_)) == (self, id_)
            self._seated[id_] = executor if is_free else _twin(executor)
            if id(executor) not in _beginnings:
                _beginnings[id(executor)] = encode(await self.save(id_))
                finalize(executor, _beginnings.pop, id(executor), None)
            held[id_] = saved[id_] if id_ in saved else decode(_beginnings[id(executor)])
            await self._call(id_, _RESTORE, decode(encode(held[id_])))
        return held

    def leave(self) -> None:
        """Let other runs use the executors."""
        for id_, executor in self._seated.items():
            if _users.get(id(executor)) == (self, id_):
                del _users[id(executor)]

    def find(self, id_: str, executor: Executor) -> Executor:
        """The executor that this run uses for a node."""
        return self._seated.get(id_, executor)

    async def save(self, id_: str) -> Any:
        """A copy of what an executor keeps; None if it saves nothing."""
        if id_ not in self._seated:
            return None
        saved = await self._call(id_, _SAVE)
        if not isinstance(saved, dict):
            raise ConfigurationError(f"on_checkpoint_save of executor {id_!r} must return a dict, got {saved!r}")
        return decode(encode(saved, path=f"state of executor {id_!r}"))

    async def _call(self, id_: str, hook: str, *args: Any) -> Any:
        try:
            return await self._driver.ports.call(getattr(self._seated[id_], hook), *args)
        except Exception as error:
            text = f"{hook} of executor {id_!r} failed: {type(error).__name__}: {error}"
            raise ExecutorFailed(text, executor=id_, thread_id=self._driver.thread_id) from error


def _twin(executor: Executor) -> Executor:
    """A copy with containers of its own, which hooks may fill in place; what else it holds, as a client, is shared."""
    twin = copy(executor)
    vars(twin).update({name: _apart(value) for name, value in vars(executor).items()})
    return twin


def _apart(value: Any) -> Any:
    if type(value) is dict:
        return {key: _apart(each) for key, each in value.items()}
    if type(value) is list:
        return [_apart(each) for each in value]
    return copy(value) if isinstance(value, dict | list | set | deque | bytearray) else value
