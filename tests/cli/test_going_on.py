"""What the command line can go on with: durable functions and agents, by the names that a program has for them."""

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


def work(task, *, record_step):
    record_step(holdfast.Step(action="look")).wait()
    if "dies" in sys.argv:
        os._exit(9)
    return f"{task} done"


async def think(task, *, record_step):
    await record_step(holdfast.Step(action="look"))
    if "dies" in sys.argv:
        os._exit(9)
    return f"{task} thought"


def words(task):
    yield task
    if "dies" in sys.argv:
        os._exit(9)


def choose(task, model, *, recovery, checkpoint, effort=1):
    if "dies" in sys.argv:
        os._exit(9)


worker = holdfast.sync.Agent(work)
chooser = holdfast.sync.Agent(choose)
thinker = holdfast.Agent(think)
speaker = holdfast.sync.Agent(words)

if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker.run("all", thread_id="worker-1")
    elif sys.argv[1] == "thinker":
        asyncio.run(thinker.run("all", thread_id="thinker-1"))
    elif sys.argv[1] == "chooser":
        chooser.run("all", thread_id="chooser-1", model="large")
    else:
        list(speaker.stream("all", thread_id="speaker-1"))
"""


@pytest.fixture
def abandoned(place: Path) -> Iterator[None]:
    """Threads of four agents whose processes died."""
    (place / "crew.py").write_text(PROGRAM)
    for name in ("worker", "thinker", "speaker", "chooser"):
        assert subprocess.run([sys.executable, "crew.py", name, "dies"], check=False).returncode == 9
    yield
    sys.modules.pop("crew", None)


@pytest.mark.usefixtures("abandoned")
def test_an_agent_is_resumed_by_its_name(document: Document, call: Call) -> None:
    assert document("resume", "worker-1", "--app", "crew:worker")["result"] == "all done"
    assert document("resume", "thinker-1", "--app", "crew:thinker")["result"] == "all thought"
    assert document("resume", "thinker-1", "--app", "crew:thinker")["result"] == "all thought"
    speaking = call("resume", "speaker-1", "--app", "crew:speaker", code=2).stderr
    assert "agent crew:words yields: run or stream it from your program" in speaking
    choosing = call("resume", "chooser-1", "--app", "crew:chooser", code=2).stderr
    assert "agent crew:choose needs model: run it from your program" in choosing


@pytest.mark.usefixtures("abandoned")
def test_what_is_none_of_an_agents_is_left_as_it_is(document: Document, call: Call) -> None:
    assert "was not started by an agent" in call("resume", "user-42", "--app", "crew:worker", code=3).stderr
    call("resume", "ticket-1", "--app", "crew:worker", code=4)
    call("resume", "thinker-1", "--app", "crew:worker", code=4)
    statuses = {thread["thread_id"]: thread["status"] for thread in document("threads")}
    assert (statuses["user-42"], statuses["ticket-1"], statuses["thinker-1"]) == ("idle", "input_required", "working")


@pytest.mark.usefixtures("abandoned")
def test_the_agents_of_a_module_are_recovered_and_what_is_skipped_has_a_reason(document: Document) -> None:
    report = document("recover", "--app", "crew")
    assert set(report["completed"]) == {"worker-1", "thinker-1"}
    assert report["reasons"] == {
        "speaker-1": "agent crew:words yields: run or stream it from your program",
        "chooser-1": "agent crew:choose needs model: run it from your program",
    }


@pytest.mark.usefixtures("abandoned")
def test_the_thread_of_another_agent_of_that_name_is_left_as_it_is(document: Document, place: Path) -> None:
    source = (place / "crew.py").read_text().replace('"worker-1"', '"other-1"')
    (place / "others.py").write_text(source)
    subprocess.run([sys.executable, "others.py", "worker", "dies"], check=False)
    before = document("show", "other-1", "--journal")["checkpoints"]
    report = document("recover", "--app", "crew")
    assert report["reasons"]["other-1"] == "agent others:work is not in --app"
    assert document("show", "other-1", "--journal")["checkpoints"] == before


@pytest.mark.usefixtures("abandoned")
def test_one_agent_alone_can_be_recovered(document: Document, call: Call) -> None:
    report = document("recover", "--app", "crew:worker")
    assert report["completed"] == ["worker-1"]
    assert report["reasons"]["thinker-1"] == "agent crew:think is not in --app"
    assert "skipped    thinker-1  agent crew:think is not in --app" in call("recover", "--app", "crew:worker").stdout


def test_a_run_of_no_function_is_skipped_with_a_reason(document: Document, place: Path) -> None:
    program = "import os, holdfast.sync as h\nwith h.open('holdfast.db').run('by-hand') as run: run.step('one', int)"
    subprocess.run([sys.executable, "-c", f"{program}; os._exit(9)"], check=False)
    assert "store.recover(handler)" in document("recover", "--app", "shop")["reasons"]["by-hand"]


def test_a_module_alone_is_answered_with_its_functions(call: Call, place: Path) -> None:
    said = call("resume", "ticket-1", "--app", "shop", code=2).stderr
    assert "name the function: --app shop:refund or --app shop:other" in said
    (place / "bare.py").touch()
    assert "has no durable function" in call("resume", "ticket-1", "--app", "bare", code=2).stderr
