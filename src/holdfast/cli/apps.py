"""The user's program: import it, find its functions, agents and store, and name the command that resumes a thread."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from shlex import quote
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from holdfast.chaos.named import find_named
from holdfast.cli.lookup import function_of
from holdfast.cli.output import printable
from holdfast.cli.session import Session
from holdfast.ports import BlockingPorts, run_blocking
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.signatures import is_async
from holdfast.runs.api import default_store
from holdfast.runs.durable import Durable
from holdfast.runs.kinds import OpenedStore
from holdfast.runs.store import Store, tools_of
from holdfast.runtimes.agent.agent import Agent, AgentCore
from holdfast.runtimes.agent.memory import AGENT
from holdfast.runtimes.loop.core import LOOP
from holdfast.runtimes.workflow.execution import STARTED
from holdfast.stores.locations import url_parts
from holdfast.sync.agents import Agent as BlockingAgent
from holdfast.sync.functions import inner_default_store

if TYPE_CHECKING:
    from holdfast.sync import Store as BlockingStore

SAMPLE: Final = 20
IMPORTABLE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
AnyAgent = Agent | BlockingAgent
App: TypeAlias = AnyAgent | Durable[Any, Any]
APPS: Final = (Agent, BlockingAgent, Durable)
T = TypeVar("T")


def load(app: str) -> Any:
    """Import `module:name`, or a module, from the working directory first."""
    if os.getcwd() not in sys.path:  # noqa: PTH109  sys.path holds str
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        return find_named(app)
    except ConfigurationError as error:
        raise ConfigurationError(f"--app {app}: {error}") from error


def module_of(app: str) -> str:
    """Return what `load` takes for an app that may be a file: its module, found from now on."""
    if not app.endswith(".py"):
        return app
    path = os.path.abspath(app)  # noqa: PTH100  sys.path holds str
    if not os.path.isfile(path):  # noqa: PTH113
        raise ConfigurationError(f"no file {app}")
    directory, name = os.path.split(path)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    return name.removesuffix(".py")


def load_classes(app: str) -> None:
    """Import a module and register its classes, as building a workflow with them does."""
    from holdfast.codec.discovery import Annotation
    from holdfast.codec.registry import adopt_named, is_registrable

    load(app)
    values = vars(sys.modules[app.partition(":")[0]]).values()
    classes = [each for each in values if isinstance(each, type) and is_registrable(each)]
    adopt_named([Annotation(each, {}) for each in classes], evaluate=True)


def load_application(app: str) -> App:
    """Import a durable function or an agent; an agent also by the name of its function, which threads record."""
    found = load(app)
    if not isinstance(found, APPS):
        module = load(app.partition(":")[0])
        found = next((agent for agent in agents_in(module) if core_of(agent).name == app), found)
    if not isinstance(found, APPS):
        raise ConfigurationError(_not_an_application(app, found))
    return found


def _not_an_application(app: str, found: Any) -> str:
    if not isinstance(found, ModuleType):
        return f"--app {app} is not a durable function or an agent: decorate it with @holdfast.durable"
    names = [name for name, value in vars(found).items() if isinstance(value, APPS)]
    if not names:
        return (
            f"--app {app} has no durable function and no agent; give MODULE:NAME. Workflows are resumed by"
            " workflow.run(thread_id=...), and loops, composites and the tasks of a checkpoint manager by their own"
            " program too"
        )
    return f"name the function: {' or '.join(f'--app {app}:{name}' for name in names)}"


def agents_in(found: Any) -> Iterator[AnyAgent]:
    """Yield the agent itself, or the agents of a module."""
    candidates = vars(found).values() if isinstance(found, ModuleType) else [found]
    return (each for each in candidates if isinstance(each, AnyAgent))


def core_of(agent: AnyAgent) -> AgentCore:
    """Return what awaitable and blocking agents share."""
    return agent._core  # noqa: SLF001  not for users


def is_blocking(app: App) -> bool:
    """True if a durable function or agent blocks."""
    return not is_async(app.__wrapped__) if isinstance(app, Durable) else isinstance(app, BlockingAgent)


def call_with_store(session: Session, act: Callable[[Store], Coroutine[Any, Any, T]], *, blocking: bool) -> T:
    """Call a coroutine function with the session's store, in an event loop unless it is blocking."""
    app_store = session.app_store
    if app_store is not None:
        return run_blocking(act(app_store)) if tools_of(app_store).ports.blocking else asyncio.run(act(app_store))

    async def call() -> T:
        parts = url_parts(session.url, {"keys": session.keys, "namespace": session.namespace})
        async with OpenedStore(*parts, BlockingPorts() if blocking else AsyncPorts()) as store:
            return await act(store)

    return run_blocking(call()) if blocking else asyncio.run(call())


def store_of(app: App) -> Store | None:
    """Return the store that a durable function or an agent was given; None if it uses the default one."""
    find = app._store if isinstance(app, Durable) else core_of(app).store  # noqa: SLF001  no program asks for it
    return None if find in {default_store, inner_default_store} else find()


def store_note(session: Session, apps: Mapping[str, App]) -> str:
    """Say which applications have another store than the requested one, which is used; empty for none."""
    if not session.requested_store:
        return ""
    stores = {name: store_of(app) for name, app in apps.items()}
    others = [name for name, store in stores.items() if store is not None and not _is_same(store, session)]
    return f"using {session.requested_store}, not the store of {', '.join(others)}" if others else ""


def _is_same(store: Store, session: Session) -> bool:
    """True if a store keeps its threads where the session's store does."""
    readers = [tools_of(each).reader for each in (store, session.store._store)]  # noqa: SLF001  the inner store
    places = [(id(reader.backend), reader.bindings.prefix) for reader in readers]
    return places[0] == places[1]


class Program(NamedTuple):
    """How to resume a thread of a runtime whose handlers only its own program has."""

    kind: str
    owner: str
    call: str

    @property
    def advice(self) -> str:
        """Say what to call where."""
        return f"{self.call} in {self.owner}"

    def for_thread(self, thread_id: str) -> "Program":
        """Return how to resume this thread."""
        return self._replace(call=self.call.replace("...", repr(thread_id)))


LOOPS: Final = Program("a loop", "its program", "Loop.resume")
TASKS: Final = Program("a task of a checkpoint manager", "its server", "manager.recover or manager.resume")
WORKFLOWS: Final = Program("a workflow", "its program", "workflow.run(thread_id=...)")
COMPOSITES: Final = Program("a composite", "its program", "store.recover(composite.resume)")


def _program_of(store: "BlockingStore", thread_id: str) -> Program | None:
    """Return how the thread's own program resumes it; None for functions and agents.

    The labels of these runtimes distinguish them from functions in a module of the same name.
    """
    function = function_of(store, thread_id)
    if function in {LOOP, STARTED}:
        return LOOPS if function == LOOP else WORKFLOWS
    kind, _, name = function.partition(":")
    if kind not in {"manager", "workflow"}:
        return None
    try:
        labels = store.thread(thread_id).labels
    except NotFound:
        return None
    if kind == "manager":
        return TASKS if labels.get("app") == name and "task" in labels else None
    return COMPOSITES if labels.get("workflow") == name else None


def program_advice(store: "BlockingStore", thread_id: str) -> str:
    """Say what resumes a thread that neither a function nor an agent started; empty for those."""
    program = _program_of(store, thread_id)
    if program is None:
        return ""
    return f"{program.kind}: {program.owner} resumes it by {program.for_thread(thread_id).call}"


def _app_of(store: "BlockingStore", thread_id: str) -> str:
    """Return what `--app` takes for the recorded function or agent; empty if its name is not importable."""
    name = function_of(store, thread_id).removeprefix(AGENT)
    return name if IMPORTABLE.fullmatch(name) else ""


def resume_command(store: "BlockingStore", thread_id: str) -> str:
    """Return the command that resumes a thread, or what to do instead."""
    if program := _program_of(store, thread_id):
        return program.for_thread(thread_id).advice
    app = _app_of(store, thread_id)
    return f"holdfast resume {quoted(thread_id)} --app {app}" if app else "run your program again"


def next_commands(store: "BlockingStore", thread_id: str, in_doubt: Iterable[str]) -> Iterator[str]:
    """Say what to do about a thread that stopped: resume it, or first settle a step in doubt that refuses that.

    A step that takes its idempotency key refuses nothing. The record does not say which steps do.
    """
    yield f"to resume it: {resume_command(store, thread_id)}"
    for key in in_doubt:
        settle = f"holdfast settle {quoted(thread_id)} {quoted(key)} --done JSON, --retry or --fail"
        yield f"if that is refused because {printable(key)} is in doubt: {settle}"


def recover_command(store: "BlockingStore", thread_ids: list[str]) -> str:
    """Return the command that resumes these threads, and the calls for those that only their programs resume."""
    programs = {thread_id: _program_of(store, thread_id) for thread_id in thread_ids[:SAMPLE]}
    others = [thread_id for thread_id, program in programs.items() if program is None]
    advices = sorted({program.advice for program in programs.values() if program is not None})
    if others or not advices:
        modules = {_app_of(store, thread_id).partition(":")[0] for thread_id in others} - {""}
        advices.insert(0, "holdfast recover " + " ".join(f"--app {module}" for module in sorted(modules) or ["MODULE"]))
    return " and ".join(advices)


def quoted(text: str) -> str:
    """Quote an id or key for a shell."""
    return quote(printable(text))
