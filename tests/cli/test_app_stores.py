"""Which store an application is resumed on: the one that was asked for, else the one that it was given."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call

pytestmark = pytest.mark.processes

Document = Callable[..., Any]

PROGRAM = """
import asyncio
import os
import sys

import holdfast
import holdfast.sync


def die():
    if "dies" in sys.argv:
        os._exit(9)


plain = holdfast.sync.open("plain.db", namespace="mine")
awaitable = holdfast.open("awaitable.db", keys=b"k" * 32)


@holdfast.sync.durable(store=plain)
def count(number: int) -> int:
    die()
    return number


@holdfast.durable(store=awaitable)
async def think(number: int) -> int:
    die()
    return number


@holdfast.sync.durable
def default(number: int) -> int:
    die()
    return number


def work(task):
    die()
    return task


async def muse(task):
    die()
    return task


worker = holdfast.sync.Agent(work, store=plain)
muser = holdfast.Agent(muse, store=awaitable)

if __name__ == "__main__":
    acts = {
        "count": lambda: count.run("count-1", 1),
        "think": lambda: asyncio.run(think.run("think-1", 2)),
        "default": lambda: default.run("default-1", 3),
        "work": lambda: worker.run("all", thread_id="work-1"),
        "muse": lambda: asyncio.run(muser.run("all", thread_id="muse-1")),
    }
    acts[sys.argv[1]]()
"""
NAMES = ("count", "think", "default", "work", "muse")


@pytest.fixture(autouse=True)
def abandoned(place: Path) -> Iterator[None]:
    """A thread of each function and agent, whose processes died."""
    (place / "crew.py").write_text(PROGRAM)
    for name in NAMES:
        assert subprocess.run([sys.executable, "crew.py", name, "dies"], check=False).returncode == 9
    yield
    sys.modules.pop("crew", None)


@pytest.mark.parametrize(
    ("thread", "app", "result"),
    [
        ("count", "crew:count", 1),
        ("think", "crew:think", 2),
        ("default", "crew:default", 3),
        ("work", "crew:worker", "all"),
        ("muse", "crew:muser", "all"),
    ],
)
def test_a_thread_is_resumed_in_the_store_of_its_application(
    document: Document, thread: str, app: str, result: Any
) -> None:
    assert document("resume", thread, "--app", app)["result"] == result


def test_an_agent_is_found_by_the_function_that_its_threads_record(document: Document) -> None:
    assert document("resume", "work-1", "--app", "crew:work")["result"] == "all"


def test_all_stores_of_an_application_are_recovered(document: Document) -> None:
    report = document("recover", "--app", "crew")
    assert set(report["completed"]) == {f"{name}-1" for name in NAMES}
    assert report["skipped"] == []


def test_a_store_that_was_asked_for_is_used_and_the_difference_is_said(
    call: Call, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "using --store holdfast.db, not the store of crew:count"
    assert note in call("resume", "count-1", "--app", "crew:count", "--store", "holdfast.db", code=3).stderr
    same = document("resume", "count-1", "--app", "crew:count", "--store", "plain.db", "--namespace", "mine")
    assert (same["result"], same["note"]) == (1, "")
    monkeypatch.setenv("HOLDFAST_STORE", "holdfast.db")
    report = document("recover", "--app", "crew")
    assert report["completed"] == ["default-1"]
    assert report["note"].startswith("using HOLDFAST_STORE=holdfast.db, not the store of crew:")
    assert report["note"] in call("recover", "--app", "crew").stdout


def test_hints_name_the_function_that_was_recorded(call: Call) -> None:
    assert "to resume it: holdfast resume default-1 --app crew:default" in call("show", "default-1").stdout
    work = call("show", "work-1", "--store", "plain.db", "--namespace", "mine").stdout
    assert "to resume it: holdfast resume work-1 --app crew:work" in work
    assert "holdfast recover --app crew" in " ".join(call("doctor", "--no-probe").stdout.split())
    said = call("approve", "ticket-1").stdout
    assert "to resume the thread: holdfast resume ticket-1 --app shop:refund" in said
