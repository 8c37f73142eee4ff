"""What the agents of a session said, and who is to speak next. The events are the source of truth across agents."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from holdfast.records.errors import Conflict, KeyReused
from holdfast.runs.driver import Store
from holdfast.runtimes.manager.state import JsonStruct

USER = "user"


class Event(JsonStruct):
    """Something said in a session. `final`: its author has finished. `branch`: the author's path of names."""

    _always: ClassVar[frozenset[str]] = frozenset({"author", "content", "final"})

    author: str
    content: Any = None
    final: bool = False
    branch: str = ""
    key: str = ""
    """The key that it was added under, if there was one."""


class SessionEvents(JsonStruct):
    """The state of a session's thread."""

    events: list[Event]


async def added_once(store: Store, thread_id: str, event: Event) -> bool:
    """Add an event unless the session has it, by its key. False if something was written in between: try again."""
    latest = await store.latest(thread_id)
    assert latest is not None  # noqa: S101  made before
    events = SessionEvents.from_dict(latest.state).events
    for known in events:
        if known.key == event.key and known != event:
            raise KeyReused(f"session {thread_id!r} has another event under key {event.key!r}; give this one its own")
        if known.key == event.key:
            return True
    try:
        await store.save(thread_id, SessionEvents([*events, event]).to_dict(), expect_seq=latest.seq)
    except Conflict:
        return False
    return True


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
