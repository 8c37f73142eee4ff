"""The events of a session, and the agent that runs next. Events are the source of truth across agents."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from holdfast.records.json_struct import JsonStruct

USER = "user"


class Event(JsonStruct):
    """A message in a session. `final` means that its author has finished; `branch` is the author's path of names."""

    _always: ClassVar[frozenset[str]] = frozenset({"author", "content", "final"})

    author: str
    content: Any = None
    final: bool = False
    branch: str = ""


class SessionEvents(JsonStruct):
    """The state of a session's thread."""

    events: list[Event]


def name_of(agent: Any) -> str:
    """Return an agent's `name`, or the name of the function or class."""
    return str(getattr(agent, "name", None) or getattr(agent, "__name__", type(agent).__name__))


def find_agent_to_run(events: Iterable[Event], root: Any) -> Any:
    """Return the agent to resume: the last author in the tree, except the user, that has not finished; else the root.

    The tree is `root` and its `sub_agents`, recursively. The branch of an event, if any, identifies its author.
    """
    agents: dict[str, Any] = {}
    for path, agent in reversed(list(_paths(root, ""))):  # the first agent in the tree wins a name
        agents[name_of(agent)] = agents[path] = agent
    finished: set[int] = set()
    for event in reversed(list(events)):
        agent = agents.get(event.branch or event.author, agents.get(event.author))
        if event.author == USER or agent is None:
            continue
        if not event.final and id(agent) not in finished:
            return agent
        finished.add(id(agent))
    return root


def _paths(agent: Any, parent: str) -> Iterator[tuple[str, Any]]:
    path = f"{parent}.{name_of(agent)}" if parent else name_of(agent)
    yield path, agent
    for each in getattr(agent, "sub_agents", None) or ():
        yield from _paths(each, path)
