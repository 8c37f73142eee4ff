"""The executor instances of one run, each restored from its own thread."""

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
_initial_states: dict[int, bytes] = {}
"""The encoded state of each executor before its first message, by the executor's identity."""
_users: dict[int, "tuple[ExecutorInstances, str]"] = {}
"""The run that uses each executor, and its node, by the executor's identity."""


class ExecutorInstances:
    """The executors of one run. An executor that another run uses is copied, so that threads never share state."""

    def __init__(self, graph: Graph, driver: Driver) -> None:
        self._graph = graph
        self._driver = driver
        self._instances: dict[str, Executor] = {}
        """The executors with their own state, by node id."""

    async def take(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Take the executors with their own state, and restore each; return their states by id."""
        held: dict[str, Any] = {}
        for id_, node in self._graph.nodes.items():
            executor = node.executor
            if getattr(type(executor), _SAVE) is getattr(Executor, _SAVE):
                continue
            is_free = _users.setdefault(id(executor), (self, id_)) == (self, id_)
            self._instances[id_] = executor if is_free else _copied_executor(executor)
            if id(executor) not in _initial_states:
                _initial_states[id(executor)] = encode(await self.save(id_))
                finalize(executor, _initial_states.pop, id(executor), None)
            held[id_] = saved[id_] if id_ in saved else decode(_initial_states[id(executor)])
            await self._call(id_, _RESTORE, decode(encode(held[id_])))
        return held

    def release(self) -> None:
        """Release the executors for other runs."""
        for id_, executor in self._instances.items():
            if _users.get(id(executor)) == (self, id_):
                del _users[id(executor)]

    def find(self, id_: str, executor: Executor) -> Executor:
        """Return the executor that this run uses for a node."""
        return self._instances.get(id_, executor)

    async def save(self, id_: str) -> Any:
        """Return a copy of an executor's own state; None if it has none."""
        if id_ not in self._instances:
            return None
        saved = await self._call(id_, _SAVE)
        if not isinstance(saved, dict):
            raise ConfigurationError(f"on_checkpoint_save of executor {id_!r} must return a dict, got {saved!r}")
        return decode(encode(saved, path=f"state of executor {id_!r}"))

    async def _call(self, id_: str, hook: str, *args: Any) -> Any:
        try:
            return await self._driver.ports.call(getattr(self._instances[id_], hook), *args)
        except Exception as error:
            text = f"{hook} of executor {id_!r} failed: {type(error).__name__}: {error}"
            raise ExecutorFailed(text, executor=id_, thread_id=self._driver.thread_id) from error


def _copied_executor(executor: Executor) -> Executor:
    """Return a copy with its own containers, which hooks may change in place; other objects, as clients, are shared."""
    made = copy(executor)
    vars(made).update({name: _copied_containers(value) for name, value in vars(executor).items()})
    return made


def _copied_containers(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied_containers(each) for key, each in value.items()}
    if type(value) is list:
        return [_copied_containers(each) for each in value]
    return copy(value) if isinstance(value, dict | list | set | deque | bytearray) else value
