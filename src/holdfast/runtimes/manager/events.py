"""What the agents of a session said, and who is to speak next. The events are the source of truth across agents."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from holdfast.records.json_struct import JsonStruct

USER = "user"


class Event(JsonStruct):
    """Something said in a session. `final`: its author has finished. `branch`: the author's path of names."""

    _always: ClassVar[frozenset[str]] = frozenset({"author", "content", "final"})

    author: str
    content: Any = None
    final: bool = False
    branch: str = ""


class SessionEvents(JsonStruct):
    """The state of a session's thread."""

    events: list[Event]


def name_of(agent: Any) -> str:
    """Return an agent's name: its `name`, or that of the function."""
    return str(getattr(agent, "name", None) or getattr(agent, "__name__", type(agent).__name__))


def find_agent_to_run(events: Iterable[Event], root: Any) -> Any:
    """Find the agent to resume: the last author in the tree that is not the user and has not finished; else the root.

    The tree is `root`, its `sub_agents`, theirs, and so on. An event with a branch names its author by that path.
    """
    agents: dict[str, Any] = {}
    for path, agent in reversed(list(_paths(root, ""))):  # of equal names, the first in the tree is found
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
