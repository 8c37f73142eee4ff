"""Commands to type next, with the thread and the application named, so that they can be pasted."""

import re
from collections.abc import Iterable, Iterator, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.cli.text import printable
from holdfast.cli.work import function_of
from holdfast.records.errors import NotFound
from holdfast.runtimes.agent.memory import AGENT
from holdfast.runtimes.loop.core import LOOP
from holdfast.runtimes.workflow.execution import STARTED

if TYPE_CHECKING:
    from holdfast.sync import Store

UNKNOWN: Final = "MODULE:NAME"
SAMPLE: Final = 20
IMPORTABLE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Program(NamedTuple):
    """How a thread is resumed whose handlers only its own program has."""

    what: str
    whose: str
    call: str

    @property
    def advice(self) -> str:
        """What to do, as a part of a sentence."""
        return f"{self.call} in {self.whose}"


LOOPS: Final = Program("a loop", "its program", "Loop.resume")
TASKS: Final = Program("a task of a checkpoint manager", "its server", "manager.recover or manager.resume")
WORKFLOWS: Final = Program("a workflow", "its program", "workflow.run(thread_id=...)")
COMPOSITES: Final = Program("a composite", "its program", "store.recover(composite.resume)")


def program_of(function: str, labels: Mapping[str, str]) -> Program | None:
    """What resumes a thread of a runtime whose handlers only its program has; None for functions and agents.

    The labels that these runtimes give tell them from functions in a module of the same name.
    """
    kind, _, name = function.partition(":")
    if function in {LOOP, STARTED}:
        return LOOPS if function == LOOP else WORKFLOWS
    if kind == "manager" and labels.get("app") == name and "task" in labels:
        return TASKS
    return COMPOSITES if kind == "workflow" and labels.get("workflow") == name else None


def _program(store: "Store", thread_id: str) -> Program | None:
    try:
        return program_of(function_of(store, thread_id), store.thread(thread_id).labels)
    except NotFound:
        return None


def program_advice(store: "Store", thread_id: str) -> str:
    """Say what a thread of such a runtime is, and what resumes it; empty for functions and agents."""
    program = _program(store, thread_id)
    return "" if program is None else f"{program.what}: {program.whose} resumes it by {program.call}"


def app_of(function: str) -> str:
    """What `--app` takes for the function or agent that a thread recorded; empty if its name is not importable."""
    name = function.removeprefix(AGENT)
    return name if IMPORTABLE.fullmatch(name) else ""


def resume_command(store: "Store", thread_id: str) -> str:
    """The command that resumes a thread; for one that neither a function nor an agent started, what to do instead."""
    program, app = _program(store, thread_id), app_of(function_of(store, thread_id))
    if program is not None:
        return program.advice
    return f"holdfast resume {typed(thread_id)} --app {app}" if app else "run your program again"


def next_commands(store: "Store", thread_id: str, in_doubt: Iterable[str]) -> Iterator[str]:
    """What to do about a thread that stands still: settle its steps in doubt, and resume it."""
    for key in in_doubt:
        yield f"settle it with: holdfast settle {typed(thread_id)} {typed(key)} --done JSON, --retry or --fail"
    yield f"to resume it: {resume_command(store, thread_id)}"


def typed(text: str) -> str:
    """An id or key as a shell takes it."""
    return quote(printable(text))


def recover_command(store: "Store", thread_ids: list[str]) -> str:
    """What resumes these threads: a command with the modules of the first few, and what their own programs call."""
    programs = {thread_id: _program(store, thread_id) for thread_id in thread_ids[:SAMPLE]}
    others = [thread_id for thread_id, program in programs.items() if program is None]
    advices = sorted({program.advice for program in programs.values() if program is not None})
    if others or not advices:
        apps = {app_of(function_of(store, thread_id)).partition(":")[0] for thread_id in others} - {""}
        advices.insert(0, "holdfast recover " + " ".join(f"--app {module}" for module in sorted(apps) or ["MODULE"]))
    return " and ".join(advices)
