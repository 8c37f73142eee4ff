"""Commands to type next, with the thread and the application named, so that they can be pasted."""

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, Final

from holdfast.cli.text import printable
from holdfast.cli.work import function_of
from holdfast.runtimes.agent.memory import AGENT
from holdfast.runtimes.loop.core import LOOP

if TYPE_CHECKING:
    from holdfast.sync import Store

UNKNOWN: Final = "MODULE:NAME"
SAMPLE: Final = 20
IMPORTABLE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def app_of(function: str) -> str:
    """What `--app` takes for the function or agent that a thread recorded; empty if its name is not importable."""
    name = function.removeprefix(AGENT)
    return name if IMPORTABLE.fullmatch(name) else ""


def program_advice(function: str) -> str:
    """Say what resumes a thread of a runtime whose handlers only its program has; empty for functions and agents."""
    if function == LOOP:
        return "a loop: its program resumes it by Loop.resume"
    if function.startswith("manager:"):
        return "a task of a checkpoint manager: its server resumes it by manager.recover or manager.resume"
    if function.startswith("workflow:"):
        return "a composite: its program resumes it by store.recover(composite.resume)"
    return ""


def resume_command(store: "Store", thread_id: str) -> str:
    """The command that resumes a thread; for one that neither a function nor an agent started, what to do instead."""
    function = function_of(store, thread_id)
    if not app_of(function):
        return "run your program again"
    return f"holdfast resume {_typed(thread_id)} --app {app_of(function)}"


def next_commands(store: "Store", thread_id: str, in_doubt: Iterable[str]) -> Iterator[str]:
    """What to do about a thread that stands still: settle its steps in doubt, and resume it."""
    for key in in_doubt:
        yield f"settle it with: holdfast settle {_typed(thread_id)} {_typed(key)} --done JSON, --retry or --fail"
    yield f"to resume it: {resume_command(store, thread_id)}"


def _typed(text: str) -> str:
    """An id or key as a shell takes it."""
    return quote(printable(text))


def recover_command(store: "Store", thread_ids: list[str]) -> str:
    """The command that resumes these threads, and all others that can be. It names the modules of the first few."""
    apps = {app_of(function_of(store, thread_id)).partition(":")[0] for thread_id in thread_ids[:SAMPLE]} - {""}
    return "holdfast recover " + " ".join(f"--app {module}" for module in sorted(apps) or ["MODULE"])
