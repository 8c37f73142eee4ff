"""Play a scene: make a place and a payment service for it, print the verdict, and what to try next."""

import os
import shlex
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from shutil import which
from tempfile import mkdtemp
from typing import Any, TypeAlias

import holdfast.sync as holdfast
from holdfast.demo.chaos import Kills, chaos
from holdfast.demo.children import World, world
from holdfast.demo.payments import KEYLESS
from holdfast.demo.scenes import approve, crash, fork, without
from holdfast.demo.stage import Stage
from holdfast.records.errors import ConfigurationError
from holdfast.records.urls import redacted
from holdfast.stores.locations import absolute_url, locate

THREAD = "ticket-8812"
LATE = (0.3, 10.0)
"""How long the payment service takes to answer, and the first time: an agent killed then has no answer."""
PROMPT = (0.3, 0.3)
Scene: TypeAlias = Callable[[Stage, World, str], dict[str, Any]]
SCENES: dict[str, tuple[Scene, tuple[float, float]]] = {
    "crash": (crash, LATE),
    "without": (without, LATE),
    "approve": (approve, PROMPT),
    "fork": (fork, PROMPT),
}
VERDICTS = {
    "crash": ("Nothing was lost, and nothing was done twice.", "A PROMISE WAS BROKEN: this is a bug."),
    "without": ("The customer was paid twice.", ""),
    "approve": ("The question outlived its process; the work before it was not repeated.", "THE WORK WAS NOT RESUMED."),
    "fork": ("The finished work was not repeated, and the original is unchanged.", "THE FORK IS WRONG."),
    "chaos": ("Lost steps: 0. Repeated effects: 0.", "SOMETHING WAS LOST, OR DONE TWICE."),
}


def play(name: str, stage: Stage, store: str | None = None, pace: float = 1.0) -> dict[str, Any]:
    """Play one scene; return what it found, with `ok`."""
    scene, delays = SCENES[name]
    directory, url = _place(store)
    thread_id = _free_thread(url)
    started_at = time.monotonic()
    with world(url, directory, delays, HOLDFAST_DEMO_PACE=str(pace)) as place:
        summary = scene(stage, place, thread_id)
    _conclude(stage, name, summary, url, started_at, thread=thread_id)
    if name != "without":
        stage.commands("Look at what is left:", next_commands(name, summary))
    return summary


def play_chaos(stage: Stage, kills: Kills, store: str | None = None, *, keyless: bool = False) -> dict[str, Any]:
    """Play the random kills, in a new namespace: the rest of the store is left alone."""
    directory, url = _place(store)
    namespace = f"chaos-{os.urandom(4).hex()}"
    environment = {"HOLDFAST_DEMO_PACE": "0.01", **({KEYLESS: "1"} if keyless else {})}
    started_at = time.monotonic()
    with world(url, directory, (0.05, 0.05), namespace, **environment) as place:
        summary = chaos(stage, place, kills)
    _conclude(stage, "chaos", summary, url, started_at, namespace=namespace)
    return summary


def _conclude(stage: Stage, name: str, summary: dict[str, Any], url: str, started_at: float, **where: str) -> None:
    summary |= {"store": redacted(url), **where, "seconds": round(time.monotonic() - started_at, 1)}
    good, bad = VERDICTS[name]
    text = good if summary["ok"] else bad
    stage.verdict(f"{text}  ({summary['seconds']} s)", ok=summary["ok"] and name != "without")


def _place(store: str | None) -> tuple[Path, str]:
    """Return a new directory for the ledger, and the URL of the store: in it, if none was named."""
    directory = Path(mkdtemp(prefix="holdfast-demo-"))
    if store is None:
        return directory, str(directory / "agents.db")
    if locate(store)[0] == "memory":
        raise ConfigurationError("the demo's processes share a store, and memory: is private to one; give a path")
    return directory, store


def _free_thread(url: str) -> str:
    with holdfast.open(url) as store:
        names = (THREAD if number == 1 else f"{THREAD}-{number}" for number in count(1))
        return next(name for name in names if store.latest(name) is None)


def next_commands(name: str, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return commands to paste into a shell, and what each shows."""
    thread = summary["thread"]
    more = {
        "crash": ("holdfast demo crash --without", "the same agent without Holdfast"),
        "approve": ("holdfast requests --status answered", "who allowed what, and when"),
        "fork": (f"holdfast diff {thread} {thread}-charged-once", "what the other result changed"),
    }
    # A shell that does not find the command needs the directory of this interpreter.
    path = "" if which("holdfast") else f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    return [
        (f"export {path}HOLDFAST_STORE={shlex.quote(absolute_url(summary['store']))}", ""),
        (f"holdfast show {thread}", "the thread and its checkpoints"),
        (f"holdfast steps {thread}", "what was done, and how long it took"),
        (f"holdfast state {thread}", "what the agent knows"),
        (f"holdfast fork {thread}@2 --to what-if", "back to before the search, as a new thread"),
        more[name],
    ]
